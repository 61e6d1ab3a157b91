"""The shop of ``outlast tour``: a program as users write it, in which something of every kind goes on."""

from outlast import App, Fatal, Retry, Signal, workflow
from outlast.sdk.failures import show_code_of

QUEUE = "shop"  # the one that the tour's worker polls

show_code_of(__file__)
app = App(namespace="default", queues=[QUEUE])
approve = Signal("approve", dict[str, str])


@app.task(queue=QUEUE)
def reserve(order: str) -> str:
    """Keep the goods for an order."""
    return f"reserved for {order}"


@app.task(queue=QUEUE, retry=Retry(max_attempts=500, first="15s", factor=1))
def charge(order: str) -> str:
    """Charge the card; the provider is away, so that this is tried again and again."""
    raise ConnectionError(f"payments.example does not answer for {order}")


@app.task(queue=QUEUE)
def send_receipt(address: str) -> None:
    """Send a mail to an address that is none, which no repeat will mend."""
    raise Fatal(f"{address} is no address")


@app.task(queue=QUEUE)
def remind(order: str) -> str:
    """Remind a customer."""
    return f"reminded of {order}"


@app.task(queue="images")
def resize(picture: str) -> str:
    """Resize a picture, if somebody polled its queue."""
    return f"{picture} resized"


@app.workflow(queue=QUEUE)
async def order(name: str) -> str:
    """Reserve, wait for a person, and charge."""
    await reserve.execute(name)
    said = await approve.receive(timeout="3d")
    await charge.execute(name)
    return f"{name} approved by {said.get('by', 'somebody')}"


@app.workflow(queue=QUEUE)
async def subscription(name: str) -> str:
    """Sleep for a month, which costs a row and no process."""
    await workflow.sleep("30d")
    return f"{name} renewed"


@app.workflow(queue=QUEUE)
async def gift(name: str) -> str:
    """Done as soon as it is begun."""
    return await reserve.execute(name)


@app.workflow(queue=QUEUE)
async def refund(name: str) -> str:
    """End in a failure, which a person may look at."""
    await send_receipt.execute(name)
    return "never"


@app.workflow(queue=QUEUE)
async def report(name: str) -> str:
    """Call a task as if it were a function, which a workflow must not: the run is held until the code is right."""
    return reserve(name)


def fill() -> None:
    """Start one of everything."""
    order.using(id="order-7").start("order-7")
    subscription.using(id="subscription-ada").start("ada")
    gift.using(id="gift-1").start("gift-1")
    refund.using(id="refund-3").start("nobody")
    report.using(id="report-may").start("may")
    paid = order.using(id="order-8").start("order-8")
    paid.signal(approve, {"by": "ada"})
    send_receipt.enqueue("nowhere")
    remind.using(delay="2h").enqueue("order-7")
    resize.enqueue("cat.png")
    app.stop()
