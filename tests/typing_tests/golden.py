"""What users are promised by the types: every line is checked by both checkers, none is run.

Each line that ends in ``# wrong`` must be an error under both; every other line must not be one.
"""

from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, assert_type

from outlast import (
    App,
    Handle,
    HistoryEvent,
    Retry,
    Signal,
    Task,
    TaskContext,
    TaskHandle,
    Workflow,
    WorkflowHandle,
    task,
    workflow,
)
from outlast.core.admin import NamespaceInfo, WorkersInfo
from outlast.core.replies import TaskInfo, WorkflowInfo
from outlast.protocol.transport import Attempt, Count, QueueInfo

app = App("memory:")


@dataclass
class Order:
    id: str
    cents: int


@dataclass
class Approval:
    by: str


@app.task
def charge(order: Order, times: int = 1) -> str:
    return order.id * times


@app.task(max_attempts=3, timeout="10m", retry=Retry(first="2s", never_for=(ValueError,)), tags={"a": "b"})
def thumbnail(ctx: TaskContext, url: str, *, size: int) -> bytes:
    assert_type(ctx.checkpoint(default=0), int)
    assert_type(ctx.attempt, int)
    return url.encode() * size


@app.task
async def ship(order: Order) -> int:
    return order.cents


@app.task(priority=1)
async def pack(ctx: TaskContext, item: str) -> list[str]:
    return [item, ctx.task_id]


@app.task
def nothing() -> None: ...


@task
def loose(number: int) -> float:
    return number / 2


@task(queue="bulk")
async def loose_async(ctx: TaskContext, number: int) -> float:
    return number / ctx.attempt


approve = Signal("approve", Approval)


@app.workflow
async def order_flow(order: Order) -> int:
    charge_id = await charge.execute(order)
    assert_type(charge_id, str)
    assert_type(await thumbnail.execute("u", size=1), bytes)
    assert_type(await ship.using(timeout="1m").execute(order), int)
    approval = await approve.receive(timeout="3d")
    assert_type(approval, Approval)
    await workflow.sleep("1h")
    await charge.execute(order.id)  # wrong
    await ship.execute(order, 1)  # wrong
    return approval.by  # wrong


@app.workflow
class Cart:
    @workflow.run
    async def shop(self, user: str, *, price: int = 1) -> int:
        assert_type(self.count(), int)
        return price

    @workflow.signal
    def pay(self, cents: int) -> None: ...

    @workflow.query
    def count(self) -> int:
        return 1

    @workflow.query
    def has(self, item: str) -> bool:
        return bool(item)


async def uses_of_a_class() -> None:
    cart = Cart.shop.using(id="c").start("ann", price=2)
    assert_type(cart, WorkflowHandle[int])
    assert_type(cart.query(Cart.count), int)
    assert_type(await cart.aquery(Cart.has, "tea"), bool)
    cart.signal(Cart.pay, 499)
    cart.signal(approve, Approval("ann"))
    cart.signal(Cart.pay, "much")  # wrong
    cart.signal(approve, 3)  # wrong
    cart.query(Cart.has)  # wrong
    cart.query(Cart.pay)  # wrong
    Cart.shop.start(3)  # wrong


@app.workflow(run_timeout="30d")
async def other_flow(name: str, *, loud: bool = False) -> list[int]:
    return [len(name), loud]


def enqueues(order: Order) -> None:
    assert_type(charge.enqueue(order), TaskHandle[str])
    assert_type(charge.enqueue(order, times=2).result(timeout="1s"), str)
    assert_type(thumbnail.enqueue("u", size=2), TaskHandle[bytes])
    assert_type(ship.enqueue(order), TaskHandle[int])
    assert_type(pack.enqueue("tea"), TaskHandle[list[str]])
    assert_type(nothing.enqueue(), TaskHandle[None])
    assert_type(loose.enqueue(1), TaskHandle[float])
    assert_type(loose_async.enqueue(1), TaskHandle[float])
    assert_type(charge.using(delay="5m", queue="bulk").enqueue(order), TaskHandle[str])
    assert_type(charge.enqueue_many([(order,), (order, 2)]), list[TaskHandle[str]])
    handle: Handle[str] = charge.enqueue(order)
    assert_type(handle.result(), str)
    held: Task[[Order], int] = ship
    assert_type(held.enqueue(order), TaskHandle[int])


def enqueues_wrongly(order: Order) -> None:
    charge.enqueue(1)  # wrong
    charge.enqueue()  # wrong
    charge.enqueue(order, times="2")  # wrong
    charge.enqueue(order, size=2)  # wrong
    thumbnail.enqueue("u")  # wrong
    thumbnail.enqueue("u", 2)  # wrong
    pack.enqueue(1)  # wrong
    loose.enqueue("1")  # wrong
    loose_async.enqueue("1")  # wrong
    charge.using(delay="5m").enqueue(order.id)  # wrong
    charge.using(dealy="5m")  # wrong
    charge.using(priority="high")  # wrong
    handle: Handle[int] = charge.enqueue(order)  # wrong
    handle.result()


def calls_plainly(order: Order) -> None:
    assert_type(charge(order), str)
    assert_type(thumbnail("u", size=1), bytes)
    shipping: Coroutine[Any, Any, int] = ship(order)
    packing: Coroutine[Any, Any, list[str]] = pack("tea")
    shipping.close()
    packing.close()
    charge("order")  # wrong
    packing = pack(1)  # wrong
    packing = ship(order)  # wrong


async def awaits(order: Order) -> None:
    assert_type(await charge.execute(order), str)
    assert_type(await pack.execute("tea"), list[str])
    assert_type(await charge.aenqueue(order), TaskHandle[str])
    assert_type(await (await ship.aenqueue(order)).aresult(), int)
    assert_type(await ship(order), int)
    assert_type(await order_flow.astart(order), WorkflowHandle[int])
    assert_type(await other_flow.execute("a", loud=True), list[int])
    await other_flow.execute(1)  # wrong


def starts(order: Order) -> None:
    handle = order_flow.using(id=f"order-{order.id}", if_open="return_existing").start(order)
    assert_type(handle, WorkflowHandle[int])
    assert_type(handle.result(timeout=10), int)
    assert_type(handle.run_id, str)
    handle.signal(approve, Approval(by="ann"))
    held: Workflow[[Order], int] = order_flow
    assert_type(held.start(order), WorkflowHandle[int])
    assert_type(other_flow.start_many([("a",), ("b",)]), list[WorkflowHandle[list[int]]])


def starts_wrongly(order: Order) -> None:
    order_flow.start("order")  # wrong
    order_flow.start(order, 2)  # wrong
    other_flow.start("a", loud="very")  # wrong
    order_flow.using(if_open="ignore")  # wrong
    order_flow.start(order).signal(approve, "ann")  # wrong
    order_flow.start(order).signal("approve", Approval(by="ann"))  # wrong


async def looks(order: Order) -> None:
    assert_type(app.workflows.list("state = failed", limit=5), Iterator[WorkflowInfo])
    assert_type(app.workflows.alist(type="order", state="failed"), AsyncIterator[WorkflowInfo])
    assert_type(app.tasks.list(queue="images", standalone=True), Iterator[TaskInfo])
    assert_type(app.tasks.alist(run_id="r"), AsyncIterator[TaskInfo])
    assert_type(app.workflows.count(), Count)
    assert_type(await app.tasks.acount("tag.plan = pro"), Count)
    assert_type(order_flow.start(order).history(), Iterator[HistoryEvent])
    assert_type(order_flow.start(order).awatch(first_event_id=3), AsyncIterator[HistoryEvent])
    assert_type(charge.enqueue(order).attempts(), tuple[Attempt, ...])
    assert_type(charge.enqueue(order).retry("mended"), bool)
    assert_type((await app.tasks.aretry("type = charge", limit=10, dry_run=True)).ids, tuple[str, ...])
    assert_type(await app.queues.adescribe("images"), QueueInfo)
    assert_type(app.workers.list(queue="images"), WorkersInfo)
    assert_type(app.namespaces.create("shop", retention="7d", reason="new"), NamespaceInfo)
    assert_type(await app.namespaces.aupdate("shop", starts_per_second=5, dry_run=True), NamespaceInfo)
    app.workflows.list(status="failed")  # wrong
    app.tasks.list("state = failed", 5)  # wrong
    app.workers.list("images")  # wrong
    app.namespaces.create("shop", retntion="7d")  # wrong
    app.namespaces.delete("shop")  # wrong
    charge.enqueue(order).history()  # wrong
    order_flow.start(order).retry()  # wrong
    app.tasks.retry(run_id="r")  # wrong
