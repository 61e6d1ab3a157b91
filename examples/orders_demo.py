"""Kill the engine and the worker while cards are being charged, and see that no order is lost and no card charged twice.

    make demo

Provider, engine and worker are real processes; the engine and the worker are ended with SIGKILL. What is said at the end
is checked: by the state of every order, and by the provider's own log, which was written and synced as it happened.
"""
# not run by itself: tests/end_to_end/test_demo.py runs it

import asyncio
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from examples.processes import Child, Children
from outlast import WorkflowHandle

HERE = Path(__file__).parent
FOLDER = Path(".demo")
STORE = f"sqlite:///{FOLDER}/outlast.db"
OUTLAST = [sys.executable, "-m", "outlast.cli"]

TASK_LEASE = (
    "3s"  # of the demo, so that one need not wait for the usual 30 s until a dead worker's charges are tried again
)
ANSWERED_BEFORE_KILL = 6  # charges that must have gone through before the kill,
IN_FLIGHT_AT_KILL = 4  # and charges that the provider must have in hand at that moment
KILL_WITHIN = 20.0
END_WITHIN = 60.0  # seconds for all orders to end after the restart
EARLY_DECISIONS = 3  # how many approvals are sent before the kill; the others after it


class CheckFailed(Exception):
    """Something is not as it must be."""


@dataclass
class Row:
    """One line of orders.jsonl: the order, what a person will say to it, and how it must end."""

    order: Any
    decision: str | None
    outcome: str

    @property
    def workflow_id(self) -> str:
        return f"order-{self.order.id}"


@dataclass
class Snapshot:
    """What the engine says of all orders at one moment."""

    open: int = 0
    ended: int = 0
    activities: Counter[str] = field(default_factory=Counter[str])  # by type
    leased: Counter[str] = field(default_factory=Counter[str])  # by type: held by a worker
    waiting: int = 0  # for an approval, under a durable timer


class Provider:
    """The provider's log, read from outside."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """Return the lines of one kind of request. The last line may be half written: it is left out."""
        whole = self._path.read_text().split("\n")[:-1]
        return [line for line in map(json.loads, whole) if line["kind"] == kind]

    def in_flight(self) -> list[str]:
        """Return the orders whose charge was asked for and not answered yet."""
        open_: dict[str, str] = {}
        for line in self.lines("charge"):
            if line["what"] == "asked":
                open_[line["operation"]] = line["order"]
            else:
                open_.pop(line["operation"], None)
        return list(open_.values())

    def done(self, kind: str) -> Counter[str]:
        """Return how often something was really done, by order."""
        return Counter(line["order"] for line in self.lines(kind) if line["what"] == "done")

    def answered(self) -> int:
        return sum(line["what"] != "asked" for line in self.lines("charge"))


class Demo:
    """The processes, the orders, and what was seen of them."""

    def __init__(self, children: Children) -> None:
        self.children = children
        log = FOLDER / "provider.jsonl"
        self.provider = children.start("provider", [sys.executable, "-m", "examples.provider", str(log)])
        self.log = Provider(log)
        self.engine = self._start_engine(port="0")
        self.worker = self._start_worker()
        self.shop = shop_at(self.engine.last_word)
        self.rows = read_rows(self.shop)
        self.handles: dict[str, WorkflowHandle[Any]] = {}

    def _start_engine(self, *, port: str) -> Child:
        serve = ["serve", "--store", STORE, "--port", port, "--task-lease", TASK_LEASE]
        return self.children.start("engine", [*OUTLAST, *serve])

    def _start_worker(self) -> Child:
        work = ["worker", "start", str(HERE / "orders.py"), "--server", self.engine.last_word]
        return self.children.start("worker", [*OUTLAST, *work], PROVIDER=self.provider.last_word)

    def feed(self) -> None:
        """Start a run for each order. A start that is not answered is sent again with the same ids by the SDK."""
        for row in self.rows:
            start = self.shop.order.using(id=row.workflow_id, if_open="return_existing").start
            self.handles[row.workflow_id] = start(row.order)

    def decide(self, rows: list[Row]) -> None:
        """Say yes or no where somebody is to."""
        for row in rows:
            granted = row.decision == "grant"
            approval = self.shop.Approval(by="ann", granted=granted, reason="" if granted else "the customer owes us")
            self.handles[row.workflow_id].signal(self.shop.approve, approval)

    def wait_for_charges(self) -> None:
        """Return when some charges have gone through and others are in the provider's hands."""
        ends = time.monotonic() + KILL_WITHIN
        while self.log.answered() < ANSWERED_BEFORE_KILL or len(self.log.in_flight()) < IN_FLIGHT_AT_KILL:
            check(time.monotonic() < ends, f"no {IN_FLIGHT_AT_KILL} charges were in flight within {KILL_WITHIN:g} s")
            time.sleep(0.01)

    def kill(self) -> None:
        """SIGKILL both: neither has a chance to tidy up."""
        self.engine.kill()
        self.worker.kill()

    def restart_engine(self) -> None:
        """Start an engine where the dead one was: same store, same address. The SDK's client here just goes on."""
        self.engine = self._start_engine(port=self.engine.last_word.rpartition(":")[2])

    def restart_worker(self) -> None:
        self.worker = self._start_worker()

    def look(self) -> Snapshot:
        """Ask the engine about every order."""
        seen = Snapshot()
        for handle in self.handles.values():
            info = handle.describe()
            if info.status != "running":
                seen.ended += 1
                continue
            seen.open += 1
            seen.waiting += bool(info.timers)
            for activity in info.activities:
                seen.activities[activity.type] += 1
                seen.leased[activity.type] += activity.state == "leased"
        return seen

    def receipts(self) -> dict[str, Any]:
        """Return every order's receipt; an order that has not ended in time fails the demo."""
        ends = time.monotonic() + END_WITHIN

        async def gather() -> list[Any]:
            return await asyncio.gather(
                *(handle.aresult(timeout=ends - time.monotonic()) for handle in self.handles.values())
            )

        return dict(zip(self.handles, asyncio.run(gather()), strict=True))


def main() -> int:
    """Return 0 if everything was as promised."""
    signal.signal(signal.SIGTERM, end)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    with Children(FOLDER) as children:
        try:
            play(Demo(children))
        except Exception as error:  # noqa: BLE001 - whatever it was, the logs say more
            print(f"\ndemo failed: {type(error).__name__}: {error}\n{children.log_tails()}", file=sys.stderr)
            return 1
    return 0


def play(demo: Demo) -> None:
    """The story, in order; raises CheckFailed where it does not end as it must."""
    rows = demo.rows
    print(f"{len(rows)} orders from {HERE.name}/orders.jsonl\n")
    tell("store", STORE)
    tell("provider", f"pid {demo.provider.pid}  {demo.provider.last_word}  its own log: {FOLDER}/provider.jsonl")
    tell("engine", f"pid {demo.engine.pid}  {demo.engine.last_word}  ready in {demo.engine.seconds:.1f} s")
    tell("worker", f"pid {demo.worker.pid}  {HERE.name}/orders.py  ready in {demo.worker.seconds:.1f} s")

    demo.feed()
    decided = [row for row in rows if row.decision]
    demo.decide(decided[:EARLY_DECISIONS])
    demo.wait_for_charges()
    before, in_flight = demo.look(), demo.log.in_flight()
    demo.kill()
    print("\nat the kill")
    tell_of(before)
    tell("  in flight", f"{len(in_flight)} charges begun at the provider, not answered: {', '.join(in_flight)}")
    tell("  SIGKILL", f"engine pid {demo.engine.pid}, worker pid {demo.worker.pid}")

    demo.restart_engine()
    after = demo.look()
    demo.restart_worker()
    print("\nwhat the restart found")
    tell_of(after)
    tell(
        "  leases",
        f"{after.leased.total()} of a dead worker; they run out within {TASK_LEASE}, then the calls are repeated",
    )
    tell("  engine", f"pid {demo.engine.pid}  ready in {demo.engine.seconds:.1f} s, same store, same address")
    tell("  worker", f"pid {demo.worker.pid}  ready in {demo.worker.seconds:.1f} s")
    check(after.open + after.ended == len(rows), "an order is gone after the restart")
    demo.decide(decided[EARLY_DECISIONS:])
    tell("  decisions", f"{EARLY_DECISIONS} were sent before the kill, {len(decided) - EARLY_DECISIONS} after it")

    receipts = demo.receipts()
    demo.shop.app.stop()
    demo.worker.stop()
    demo.engine.stop()
    tell_outcomes(rows, receipts)
    repeats = judge(demo, receipts)
    print("\nto look further")
    expired = next(row for row in rows if row.outcome == "expired")
    command = "outlast" if shutil.which("outlast") else ".venv/bin/outlast"
    for words in ("workflow list", f"workflow show {expired.workflow_id}", f"why {expired.workflow_id}"):
        print(f"  {command} {words} --store {STORE}")
    check(repeats > 0, "no charge was asked for again: the kill has hit nothing")
    print(f"\ndemo ok: {len(rows)} orders, 0 lost, 0 charged twice")


def judge(demo: Demo, receipts: dict[str, Any]) -> int:
    """Check each order by its receipt and by the provider's log; return how many charges were asked for again."""
    by_id = runs_in_store()
    done = {kind: demo.log.done(kind) for kind in ("charge", "refund", "ship")}
    for row in demo.rows:
        name, number, receipt = row.workflow_id, row.order.id, receipts[row.workflow_id]
        check(by_id[name] == 1, f"{name} has {by_id[name]} runs")
        check(receipt.outcome == row.outcome, f"{name} ended {receipt.outcome}, not {row.outcome}: {receipt.note}")
        owed = {
            "charge": row.outcome != "declined",
            "refund": row.outcome in {"expired", "rejected", "undeliverable"},
            "ship": row.outcome == "shipped",
        }
        for kind, count in owed.items():
            check(done[kind][number] == count, f"{name}: {done[kind][number]} × {kind}, by the provider's log")
        check(len(receipt.parcels) == (len(row.order.items) if row.outcome == "shipped" else 0), f"{name}: parcels")
    asked = [line for line in demo.log.lines("charge") if line["what"] == "asked"]
    repeats = [line for line in asked if line["repeat"]]
    print("\ncharges, by the provider's log")
    tell("  asked for", f"{len(asked)} times for {len(demo.rows)} orders")
    tell(
        "  repeats",
        f"{len(repeats)} recognised by operation id: {', '.join(sorted(line['order'] for line in repeats))}",
    )
    tell("  taken", f"{done['charge'].total()} charges, {done['refund'].total()} given back")
    return len(repeats)


def runs_in_store() -> Counter[str]:
    """Return how many runs each workflow id has in the store, as the command line sees it without an engine."""
    command = [*OUTLAST, "workflow", "list", "--json", "--limit", "500", "--store", STORE]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return Counter(json.loads(line)["id"] for line in listed.splitlines())


def tell_of(seen: Snapshot) -> None:
    """Print what the engine says."""
    tell("  orders", f"{seen.open} open, {seen.ended} ended")
    kinds = [f"{count} {kind} ({seen.leased[kind]} running)" for kind, count in sorted(seen.activities.items())]
    tell("  activities", ", ".join(kinds) or "none")
    tell("  approvals", f"{seen.waiting} awaited, each under a durable timer")


def tell_outcomes(rows: list[Row], receipts: dict[str, Any]) -> None:
    """Print a line per kind of outcome, with an example."""
    print("\nhow they ended")
    for outcome, count in Counter(receipt.outcome for receipt in receipts.values()).most_common():
        example = next(row for row in rows if receipts[row.workflow_id].outcome == outcome)
        receipt = receipts[example.workflow_id]
        money = f"{receipt.charge}, back by {receipt.refund}" if receipt.refund else receipt.charge or "no charge"
        tell(f"  {outcome}", f"{count:>2}   for example {example.workflow_id}: {money}; {receipt.note}")


def tell(name: str, text: str) -> None:
    print(f"{name:<16}{text}", flush=True)


def check(holds: object, otherwise: str) -> None:
    if not holds:
        raise CheckFailed(otherwise)


def end(number: int, _frame: FrameType | None) -> None:
    """Leave the block that ends the children."""
    sys.exit(128 + number)


def shop_at(address: str) -> ModuleType:
    """Return the shop's module with its app a client of the engine at ``address``."""
    os.environ["OUTLAST_STORE"] = address
    return importlib.import_module("examples.orders")


def read_rows(shop: ModuleType) -> list[Row]:
    """Return the lines of orders.jsonl."""
    rows: list[Row] = []
    for line in (HERE / "orders.jsonl").read_text().splitlines():
        fields = json.loads(line)
        decision, outcome = fields.pop("decision"), fields.pop("outcome")
        rows.append(Row(shop.Order(**fields), decision, outcome))
    return rows


if __name__ == "__main__":
    sys.exit(main())
