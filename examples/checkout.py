"""Orders and their tasks in one transaction: neither is ever there without the other.

    python -m examples.checkout

The shop keeps its orders in shop.db; the engine has its own file, orders.db, in the folder where you are.
"""

import contextlib
import sqlite3

from outlast import App
from outlast.sdk.handle import TaskHandle

app = App("sqlite:///orders.db", outboxes=["sqlite:///shop.db"])
STOCK = 3


@app.task
def send(order: str) -> str:
    """Send what was ordered."""
    return f"sent {order}"


def check_out(shop: sqlite3.Connection, order: str) -> TaskHandle[str]:
    """Store an order and enqueue its task. Raises ValueError when nothing is left, and neither is there then."""
    with shop:
        shop.execute("INSERT INTO orders VALUES (?)", (order,))
        handle = send.using(tx=shop, id=f"send-{order}").enqueue(order)
        if shop.execute("SELECT count(*) FROM orders").fetchone()[0] > STOCK:
            raise ValueError(f"{order} came too late")
        return handle


def main() -> None:
    """Check out five orders of a stock of three."""
    with app, contextlib.closing(sqlite3.connect("shop.db")) as shop:
        shop.execute("CREATE TABLE IF NOT EXISTS orders (name TEXT)")
        handles: list[TaskHandle[str]] = []
        for n in range(5):
            try:
                handles.append(check_out(shop, f"order-{n}"))
            except ValueError as error:
                print(error)
        for handle in handles:
            print(handle.result(timeout="30s"))
        stored = [name for (name,) in shop.execute("SELECT name FROM orders")]
        assert app.tasks.count().count == len(handles) == len(stored) == STOCK


if __name__ == "__main__":
    main()
