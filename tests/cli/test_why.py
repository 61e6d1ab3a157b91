"""What `outlast why` and `outlast workflow show` make of what is known."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from outlast.cli.steps import Step, steps_of
from outlast.cli.text import ago, clean, instant, span, table
from outlast.cli.why import helps, lines_of_task, lines_of_workflow
from outlast.cli.workflow import run_told
from outlast.core import events as e
from outlast.core.failure import Failure, FailureKind
from outlast.core.payload import Payload
from outlast.core.replies import PendingActivity, PendingTimer, RunStatus, TaskInfo, TaskState, WorkflowInfo
from outlast.core.retry import RetryPolicy
from outlast.core.units import DAY, HOUR, MINUTE, SECOND
from tests.cli.conftest import Command

NOW = 1_796_000_000 * SECOND
BROKEN = Failure(kind=FailureKind.APPLICATION, type="CardDeclined", message="no money\nat all")


IN_HAND: dict[str, Any] = {
    "state": TaskState.LEASED,
    "worker": "w-1",
    "worker_identity": "4711@shop",
    "lease_until": NOW + 18 * SECOND,
    "expires_at": NOW + 18 * SECOND,
    "heard_at": NOW - 12 * SECOND,
}


def a_run(**fields: Any) -> WorkflowInfo:
    chosen: dict[str, Any] = {
        "namespace": "default",
        "workflow_id": "order-7",
        "run_id": "r",
        "first_run_id": "r",
        "type": "order",
        "queue": "default",
        "status": RunStatus.RUNNING,
        "build": "v12",
        "started_at": NOW - 252 * SECOND,
        "closed_at": 0,
        "events": 9,
        "history_bytes": 900,
        "cancel_requested": False,
    }
    return WorkflowInfo(**{**chosen, **fields})


def an_activity(**fields: Any) -> PendingActivity:
    chosen: dict[str, Any] = {
        "activity_id": "1",
        "scheduled_event_id": 5,
        "task_id": "r:5",
        "type": "charge",
        "queue": "money",
        "state": TaskState.ENQUEUED,
    }
    return PendingActivity(**{**chosen, **fields})


def test_a_run_that_waits_for_a_signal_is_told_in_full(tmp_path: Path) -> None:
    source = tmp_path / "orders.py"
    source.write_text("def f():\n    approval = await approve.receive()\n")
    os.utime(source, ns=(0, 0))
    info = a_run(why='signal "approve"', why_at=NOW + 3 * DAY, places={"signal:approve": f"{source}:2"})
    steps = [
        Step(5, "activity", "charge", "done", NOW, NOW + 300_000_000),
        *(Step(n, "activity", "pack", "done", NOW, NOW + 1_100_000_000) for n in (6, 7, 8)),
    ]

    lines = lines_of_workflow(info, steps, now=NOW)

    assert lines[0] == "order-7  order  waiting 4 m 12 s   build v12"
    assert lines[1].startswith('  waits for  signal "approve", until ')
    assert lines[1].endswith("(in 3 d)")
    assert lines[2] == f"  at         {source}:2   approval = await approve.receive()"
    assert lines[3] == "  before     charge ✓ 300 ms   pack ×3 ✓ 1.1 s"
    assert lines[4] == "  helps      outlast workflow signal order-7 approve 'JSON'"
    os.utime(source)
    assert f"  at         {source}:2   (the file has changed since the run began)" in lines_of_workflow(
        info, steps, now=NOW
    )


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (a_run(task_state="ready", polled=False), 'a worker: queue "default"'),
        (a_run(task_state="backoff", task_failure=BROKEN), "which failed with CardDeclined"),
        (
            a_run(activities=(an_activity(), an_activity())),
            'a worker of queue "money" to take activity "charge", and 1 more',
        ),
        (a_run(places={"signal:approve": "x.py:1"}), 'signal "approve"'),
        (a_run(timers=(PendingTimer(timer_id="1", started_event_id=5, fire_at=NOW + HOUR),)), "a timer, due"),
        (a_run(), "a signal, or a cancel request"),
        (a_run(cancel_requested=True), "to cancel"),
        (a_run(parked=3), "3 events that its code has not seen"),
        (a_run(activities=(an_activity(last_failure=BROKEN),)), "charge: CardDeclined: no money\n             at all"),
        (a_run(status=RunStatus.FAILED, closed_at=NOW, failure=BROKEN), "CardDeclined: no money\n             at all"),
        (a_run(status=RunStatus.COMPLETED, closed_at=NOW), "completed after 4 m 12 s"),
    ],
    ids=["ready", "held", "activity", "signal", "timer", "nothing", "cancel", "parked", "retrying", "failed", "done"],
)
def test_each_state_of_a_run_has_its_words(info: WorkflowInfo, said: str) -> None:
    assert said in "\n".join(lines_of_workflow(info, [], now=NOW))


def test_each_open_run_has_something_that_helps() -> None:
    assert helps(a_run(task_state="ready", polled=False)) == ["outlast worker start APP --queue default"]
    assert helps(a_run(activities=(an_activity(),))) == ["outlast worker start APP --queue money"]
    assert helps(a_run(workflow_id="o'7")) == ["outlast workflow show 'o'\"'\"'7'"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"state": TaskState.ENQUEUED, "polled": False, "why": "a worker"}, "outlast worker start APP --queue images"),
        ({"state": TaskState.RETRY_WAIT, "run_at": NOW + MINUTE, "failure": BROKEN}, "(in 1 m)"),
        ({"state": TaskState.RETRY_WAIT, "failure": BROKEN}, "last error CardDeclined"),
        ({"state": TaskState.LEASED, "workflow_id": "order-7"}, "part of    workflow order-7"),
        (IN_HAND, "waits for  worker 4711@shop, attempt 2"),
        (IN_HAND, "(in 18 s); the worker was last heard of 12 s ago"),
        (IN_HAND, "then       if nothing is heard of the worker by then, another attempt follows"),
        ({**IN_HAND, "lease_until": NOW + MINUTE}, "if the attempt does not end by then, another attempt follows"),
        ({**IN_HAND, "attempt": 5}, "by then, the task fails: it was its last attempt"),
        ({**IN_HAND, "cancel_requested": True}, "by then, the task ends, as was asked"),
        ({**IN_HAND, "expires_at": NOW - MINUTE}, "(1 m ago), as far as the store tells"),
        ({**IN_HAND, "expires_at": NOW - MINUTE}, "when an engine runs on the store, another attempt follows"),
        ({"state": TaskState.FAILED, "failure": BROKEN, "closed_at": NOW}, "ended by   CardDeclined"),
        ({"state": TaskState.ENQUEUED}, "attempt 2 of 5"),
    ],
    ids=[
        "nobody polls",
        "due later",
        "last error",
        "activity",
        "in hand",
        "its lease",
        "what comes then",
        "its own time",
        "last attempt",
        "asked to end",
        "lease over",
        "nobody runs",
        "dead",
        "attempts",
    ],
)
def test_each_state_of_a_task_has_its_words(fields: dict[str, Any], said: str) -> None:
    chosen: dict[str, Any] = {
        "namespace": "default",
        "task_id": "t-1",
        "type": "resize",
        "queue": "images",
        "attempt": 2,
        "attempts_max": 5,
        "enqueued_at": NOW - SECOND,
    }

    assert said in "\n".join(lines_of_task(TaskInfo(**{**chosen, **fields}), now=NOW, served=False))


def test_a_lease_that_is_over_waits_for_no_engine_where_one_has_answered() -> None:
    info = TaskInfo(
        namespace="default", task_id="t-1", type="resize", queue="images", attempt=2, enqueued_at=NOW - SECOND,
        state=TaskState.LEASED, expires_at=NOW - MINUTE, lease_until=NOW - MINUTE,
    )  # fmt: skip

    told = "\n".join(lines_of_task(info, now=NOW, served=True))

    assert "then       another attempt follows" in told
    assert "as far as the store tells" not in told


def test_a_history_is_told_by_its_steps() -> None:
    started = e.WorkflowExecutionStarted(
        workflow_type="order", task_queue="q", run_id="r", original_run_id="r", first_run_id="r"
    )
    charge = e.ActivityTaskScheduled(activity_id="1", activity_type="charge", task_queue="q", retry=RetryPolicy())
    pack = e.ActivityTaskScheduled(activity_id="2", activity_type="pack", task_queue="q", retry=RetryPolicy())
    history: list[e.Event] = [
        started,
        e.WorkflowTaskScheduled(),
        e.WorkflowTaskStarted(scheduled_event_id=2),
        e.WorkflowTaskCompleted(scheduled_event_id=2, started_event_id=3),
        charge,
        pack,
        e.TimerStarted(timer_id="1", start_to_fire=1, fire_at=2),
        e.ActivityTaskStarted(scheduled_event_id=5, attempt=3),
        e.ActivityTaskFailed(scheduled_event_id=5, started_event_id=8, failure=BROKEN, retry_state="x"),
        e.WorkflowExecutionSignaled(signal_name="approve"),
        e.TimerFired(timer_id="1", started_event_id=7),
        e.WorkflowExecutionFailed(failure=BROKEN),
    ]

    steps = steps_of((n, NOW + n, event) for n, event in enumerate(history, 1))

    assert [(step.kind, step.name, step.state, step.attempt) for step in steps] == [
        ("run", "order", "started", 0),
        ("activity", "charge", "failed", 3),
        ("activity", "pack", "waiting", 0),
        ("timer", "sleep", "fired", 0),
        ("signal", "approve", "received", 0),
        ("run", "", "failed", 0),
    ]
    assert steps[1].detail.startswith("CardDeclined")


@pytest.mark.parametrize(
    ("nanoseconds", "said"),
    [
        (0, "0 ms"),
        (30_000_000, "30 ms"),
        (999_600_000, "1.0 s"),
        (9_990_000_000, "10 s"),
        (1_300_000_000, "1.3 s"),
        (42 * SECOND, "42 s"),
        (252 * SECOND, "4 m 12 s"),
        (2 * HOUR + 3 * MINUTE, "2 h 3 m"),
        (3 * DAY, "3 d"),
        (-5, "0 ms"),
    ],
    ids=str,
)
def test_a_span_is_told_in_two_units_at_most(nanoseconds: int, said: str) -> None:
    assert span(nanoseconds) == said


def test_instants_are_told_from_now_or_exactly() -> None:
    assert ago(NOW - MINUTE, NOW) == "1 m ago"
    assert ago(NOW + MINUTE, NOW) == "in 1 m"
    assert (ago(0, NOW), instant(0)) == ("-", "-")
    assert instant(NOW) == "30 Nov 2026 00:53:20"


def test_what_a_terminal_would_obey_is_written_out() -> None:
    assert clean("a\x1b[31mb\nc") == "a\\x1b[31mb\\nc"
    assert table(("A",), [("x\ny",)]) == "A\nx\\ny\n"


WAITING = """
from outlast import App, Signal

app = App()
approve = Signal("approve", str)


@app.workflow
async def order() -> str:
    return await approve.receive(timeout="3d")


if __name__ == "__main__":
    import time

    with app:
        handle = order.using(id="order-1").start()
        while not handle.describe().timers:
            time.sleep(0.02)
"""


def test_without_an_engine_why_still_says_until_when_and_a_query_says_what_it_needs(
    folder: Path, outlast: Command
) -> None:
    (folder / "shop.py").write_text(WAITING)
    subprocess.run([sys.executable, "shop.py"], cwd=folder, check=True, timeout=60)

    _, why, _ = outlast("why", "order-1")
    code, _, refused = outlast("workflow", "query", "order-1", "stage")

    assert 'signal "approve", until ' in why
    assert re.search(r"\(in (3 d|2 d 23 h)\)", why)  # by when the clock is read
    assert code == 5
    assert "No engine is running on outlast.db, and this needs one." in refused


def test_the_timeout_of_a_wait_is_a_step_with_its_name() -> None:
    events = [
        (1, 1, e.TimerStarted(timer_id="1", start_to_fire=1, fire_at=2, summary='timeout of signal "approve"')),
        (2, 1, e.TimerStarted(timer_id="2", start_to_fire=1, fire_at=2)),
    ]

    assert [(step.kind, step.name) for step in steps_of(events)] == [
        ("timer", 'timeout of signal "approve"'),
        ("timer", "sleep"),
    ]


def test_a_marker_is_a_step_with_what_it_says() -> None:
    events = [
        (1, 1, e.MarkerRecorded(marker_name="publish", details={"stage": Payload("json/plain", b'"packed"')})),
        (2, 1, e.MarkerRecorded(marker_name="note", details={"text": Payload("json/plain", b'"asked twice"')})),
    ]

    assert [(step.name, step.detail) for step in steps_of(events)] == [
        ("publish stage", '"packed"'),
        ("note", '"asked twice"'),
    ]


def test_what_a_run_has_published_is_shown_with_it() -> None:
    info = a_run(published={"stage": Payload("json/plain", b'"packed"')})

    assert '  published stage = "packed"\n' in run_told(info, [], [], raw=False, now=NOW)


def test_code_that_differs_from_its_history_is_told_the_way_out() -> None:
    differs = Failure(kind=FailureKind.APPLICATION, type="Nondeterminism", message="run r differs.\n  code  x")

    said, ends = helps(a_run(task_state="backoff", task_failure=differs))

    assert "workflow.patched" in said
    assert ends.startswith("outlast workflow terminate order-7")


def test_nothing_moves_without_an_engine_and_that_is_said() -> None:
    waiting = TaskInfo(namespace="default", task_id="t-1", type="resize", queue="images", state=TaskState.ENQUEUED)
    moves = "\n".join([*lines_of_workflow(a_run(), [], now=NOW), *lines_of_task(waiting, now=NOW)])
    stands = [lines_of_workflow(a_run(), [], now=NOW, served=False), lines_of_task(waiting, now=NOW, served=False)]

    assert "none runs" not in moves
    assert all("  engine     none runs on the store" in "\n".join(lines) for lines in stands)


def test_a_run_that_shall_stop_and_has_no_worker_can_be_ended_without_its_code() -> None:
    asked = a_run(cancel_requested=True, task_state="ready", polled=False)

    assert "outlast workflow terminate order-7   (ends it without its code)" in helps(asked)
