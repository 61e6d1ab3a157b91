"""A shopping cart as a workflow class: it takes signals, answers queries, and publishes how far it is.

    python -m examples.cart

Its store is cart.db in the folder where you are; ``outlast workflow show cart-ann --store sqlite:///cart.db`` looks into it.
"""

from outlast import App, workflow

app = App("sqlite:///cart.db")


@app.task
def charge(user: str, cents: int) -> str:
    """Charge the card of a user; a real one would hand ``ctx.operation_id`` to its provider."""
    return f"{user} paid {cents / 100:.2f}"


@app.workflow
class Cart:
    def __init__(self) -> None:
        self.items: dict[str, int] = {}
        self.cents = 0

    @workflow.run
    async def shop(self, user: str) -> str:
        """Wait for the money for a week, then charge it."""
        workflow.publish("stage", "open")
        try:
            await workflow.wait_until(lambda: self.cents > 0, timeout="7d")
        except TimeoutError:
            workflow.publish("stage", "left behind")
            return f"{user} left {len(self.items)} things behind"
        workflow.publish("stage", "paying")
        receipt = await charge.execute(user, self.cents)
        workflow.publish("stage", "paid")
        return receipt

    @workflow.signal
    def add(self, item: str, times: int = 1) -> None:
        self.items[item] = self.items.get(item, 0) + times

    @workflow.signal
    def pay(self, cents: int) -> None:
        self.cents = cents

    @workflow.query
    def count(self) -> int:
        return sum(self.items.values())

    @workflow.query
    def has(self, item: str) -> bool:
        return item in self.items


def main() -> None:
    """Fill a cart, ask it, pay it."""
    with app:
        cart = Cart.shop.using(id="cart-ann", if_open="return_existing").start("ann")
        cart.signal(Cart.add, "tea", times=2)
        cart.signal(Cart.add, "milk")
        print("things in the cart:", cart.query(Cart.count))
        print("bread among them:", cart.query(Cart.has, "bread"))
        cart.signal(Cart.pay, 499)
        print(cart.result(timeout="30s"))
        print("stage:", cart.published("stage"))


if __name__ == "__main__":
    main()
