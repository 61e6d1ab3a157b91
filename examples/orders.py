"""An order in a shop: charge the card, pack in parallel, wait for a person, ship; give the money back if it ends badly.

    PROVIDER=http://… outlast dev examples/orders.py

PROVIDER is where the payment provider and the carrier answer; ``python -m examples.provider LOG`` plays both. Kill whatever
you like at any moment: each order goes on where it was, and no card is charged twice (``orders_demo.py`` does just that).
"""
# not run by itself: orders_demo.py gives it to a worker

import asyncio
import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from outlast import App, Fatal, Retry, RetryableError, Signal, TaskContext, TaskError

app = App()

APPROVAL_FROM_CENTS = 10_000
PATIENT = Retry(max_attempts=10, first="100ms", factor=2, longest="5s")


@dataclass
class Order:
    id: str
    customer: str
    card: str
    cents: int
    items: list[str]
    address: str
    approve_within: str = "3d"


@dataclass
class Approval:
    by: str
    granted: bool = True
    reason: str = ""


@dataclass
class Receipt:
    order: str
    outcome: str  # shipped, declined, expired, rejected, undeliverable
    note: str = ""
    charge: str = ""
    refund: str = ""
    parcels: list[str] = field(default_factory=list[str])


class CardDeclined(Fatal):
    """The bank says no: asking again would be pointless."""


class Undeliverable(Fatal):
    """The carrier does not know the address."""


approve = Signal("approve", Approval)


@app.workflow
async def order(o: Order) -> Receipt:
    """See ``o`` through: it ends shipped, or with no money taken."""
    try:
        paid = await charge.execute(o)
    except CardDeclined as declined:
        return Receipt(o.id, "declined", note=str(declined))

    parcels = await asyncio.gather(*(pack.execute(o.id, item) for item in o.items))

    if o.cents >= APPROVAL_FROM_CENTS:
        try:
            answer = await approve.receive(timeout=o.approve_within)
        except TimeoutError:
            return await give_back(o, paid, "expired", f"nobody answered within {o.approve_within}")
        if not answer.granted:
            return await give_back(o, paid, "rejected", f"{answer.by}: {answer.reason}")

    try:
        tracking = await ship.execute(o.id, o.address, parcels)
    except TaskError as failed:
        return await give_back(o, paid, "undeliverable", failed.message)
    return Receipt(o.id, "shipped", note=tracking, charge=paid, parcels=parcels)


async def give_back(o: Order, paid: str, outcome: str, why: str) -> Receipt:
    """Undo the charge and say why."""
    return Receipt(o.id, outcome, note=why, charge=paid, refund=await refund.execute(o.id, paid))


@app.task(retry=PATIENT, timeout="30s")
def charge(ctx: TaskContext, o: Order) -> str:
    """Take the money. A repeat of this call carries the same operation id, so the provider takes it once."""
    answer = ask("charge", ctx.operation_id, order=o.id, card=o.card, cents=o.cents)
    if answer.get("declined"):
        raise CardDeclined(f"card {o.card}: {answer['declined']}")
    return str(answer["id"])


@app.task
async def pack(order_id: str, item: str) -> str:
    """Put one item into a box."""
    await asyncio.sleep(0.05)
    return f"{order_id}/{item}"


@app.task(retry=Retry(max_attempts=4, first="100ms", factor=2))
def ship(ctx: TaskContext, order_id: str, address: str, parcels: list[str]) -> str:
    """Hand the parcels to the carrier, whose service is not up all the time."""
    answer = ask("ship", ctx.operation_id, order=order_id, address=address, parcels=parcels)
    if answer.get("unknown"):
        raise Undeliverable(f"no such address: {address}")
    return str(answer["id"])


@app.task(retry=PATIENT)
def refund(ctx: TaskContext, order_id: str, paid: str) -> str:
    """Give the money back, once, as it was taken."""
    return str(ask("refund", ctx.operation_id, order=order_id, charge=paid)["id"])


def ask(what: str, operation_id: str, **body: object) -> dict[str, Any]:
    """Return the provider's answer. Its 5xx and a connection that breaks are worth another try."""
    request = urllib.request.Request(
        f"{os.environ['PROVIDER']}/{what}",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json", "idempotency-key": operation_id},
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
    except urllib.error.HTTPError as error:
        raise RetryableError(f"{what}: the provider answered {error.code}") from error
    except OSError as error:
        raise RetryableError(f"{what}: {error}") from error
