"""Starting runs: what happens when the workflow id, the run id or the request was seen before."""

import pytest

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.inputs import IfClosed, IfOpen
from outlast.core.replies import RunStatus
from outlast.core.units import HOUR, SECOND
from tests.core.world import World, failure, payload

FAILED = (RunStatus.FAILED, RunStatus.CANCELED, RunStatus.TERMINATED, RunStatus.TIMED_OUT)
CLOSED = (*FAILED, RunStatus.COMPLETED)


def start_of(run_id: str, *, if_open: IfOpen = IfOpen.FAIL, if_closed: IfClosed = IfClosed.ALLOW) -> i.StartWorkflow:
    return i.StartWorkflow(
        type="order",
        queue="default",
        run_id=run_id,
        request_id=f"request of {run_id}",
        workflow_id="w",
        if_open=if_open,
        if_closed=if_closed,
    )


def world_with_last_run(status: RunStatus) -> World:
    """Return a world whose latest run of "w" is ``first`` and stands at ``status``."""
    world = World()
    world.start(run_id="first", run_timeout=HOUR)
    if status is RunStatus.TERMINATED:
        world.terminate()
    elif status is RunStatus.TIMED_OUT:
        world.pass_time(3601)
    elif status is not RunStatus.RUNNING:
        closing = {
            RunStatus.COMPLETED: c.CompleteWorkflow(),
            RunStatus.FAILED: c.FailWorkflow(failure=failure()),
            RunStatus.CANCELED: c.CancelWorkflow(),
        }[status]
        world.do(world.turn(), closing)
    assert world.run_info().status is status
    return world


@pytest.mark.parametrize("if_closed", IfClosed, ids=str)
@pytest.mark.parametrize(
    ("if_open", "reply"),
    [
        (IfOpen.FAIL, "workflow_already_open"),
        (IfOpen.RETURN_EXISTING, replies.WorkflowStarted(workflow_id="w", run_id="first", started=False)),
        (IfOpen.TERMINATE, replies.WorkflowStarted(workflow_id="w", run_id="second", polled=False)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_open_run_decides_by_if_open_alone(
    if_open: IfOpen, if_closed: IfClosed, reply: str | replies.WorkflowStarted
) -> None:
    world = world_with_last_run(RunStatus.RUNNING)

    got = world.ask(
        start_of("second", if_open=if_open, if_closed=if_closed),
        replies.Refused if isinstance(reply, str) else type(reply),
    )

    assert (got.code if isinstance(got, replies.Refused) else got) == reply


@pytest.mark.parametrize("if_open", IfOpen, ids=str)
@pytest.mark.parametrize("status", CLOSED, ids=str)
@pytest.mark.parametrize(
    ("if_closed", "allowed"),
    [(IfClosed.ALLOW, CLOSED), (IfClosed.ALLOW_IF_FAILED, FAILED), (IfClosed.REJECT, ())],
    ids=["allow", "allow if failed", "reject"],
)
def test_a_closed_run_decides_by_if_closed_and_how_it_ended(
    if_open: IfOpen, if_closed: IfClosed, status: RunStatus, allowed: tuple[RunStatus, ...]
) -> None:
    world = world_with_last_run(status)

    ticket = world.send(start_of("second", if_open=if_open, if_closed=if_closed))

    reply = world.answers[ticket]
    assert (reply.code if isinstance(reply, replies.Refused) else "") == (
        "" if status in allowed else "workflow_id_reuse_refused"
    )
    assert ("second" in world.tables.runs) == (status in allowed)


def test_a_refused_start_leaves_no_trace() -> None:
    world = world_with_last_run(RunStatus.RUNNING)
    number = world.tables.held.last_number

    world.ask(start_of("second"), replies.Refused)

    assert world.tables.held.last_number == number


def test_a_start_that_takes_the_place_of_another_ends_it_in_the_same_commit() -> None:
    world = world_with_last_run(RunStatus.RUNNING)
    number = world.tables.held.last_number

    world.ask(start_of("second", if_open=IfOpen.TERMINATE), replies.WorkflowStarted)

    assert world.tables.held.last_number == number + 1
    assert world.run_info(run_id="first").status is RunStatus.TERMINATED
    (terminated,) = world.found("first", e.WorkflowExecutionTerminated)
    assert terminated.reason == "a start of the same id took its place"


def test_a_start_that_takes_the_place_of_a_run_unknown_to_memory_ends_its_activities() -> None:
    world = world_with_last_run(RunStatus.RUNNING)
    world.do(world.turn(), c.ScheduleActivity(activity_id="1", activity_type="pay", task_queue="default"))
    world.restart()

    world.ask(start_of("second", if_open=IfOpen.TERMINATE), replies.WorkflowStarted)

    assert world.task_info("first:5").state is replies.TaskState.CANCELED


def test_a_run_id_that_is_taken_is_refused() -> None:
    world = world_with_last_run(RunStatus.COMPLETED)

    refused = world.ask(start_of("first"), replies.Refused)

    assert refused.code == "workflow_already_open"


def test_a_repeated_start_gets_the_first_answer() -> None:
    world = World()
    first = world.start(request_id="r", run_id="first")

    again = world.start(request_id="r", run_id="second")

    assert again == replies.WorkflowStarted(workflow_id="w", run_id=first.run_id, replayed=True)
    assert list(world.tables.runs) == ["first"]


def test_a_repeated_start_is_known_after_its_run_has_closed_and_another_has_followed() -> None:
    world = World()
    world.start(request_id="r", run_id="first")
    world.do(world.turn(), c.CompleteWorkflow())
    world.start(request_id="s", run_id="second")
    world.restart()

    again = world.start(request_id="r", run_id="third")

    assert (again.run_id, again.replayed) == ("first", True)


def test_a_start_without_an_id_gets_one_from_its_key() -> None:
    world = World()

    started = world.start("", request_id="r")

    assert started.workflow_id == "w-r"
    assert world.tables.dedup == {}
    assert world.start("", request_id="r", run_id="x").replayed


def test_a_start_without_an_id_is_remembered_when_its_run_has_continued_as_new() -> None:
    world = World()
    world.start("", request_id="r", run_id="first")
    world.do(world.turn(), c.ContinueAsNew())
    world.restart()

    again = world.start("", request_id="r", run_id="other")

    assert (again.run_id, again.replayed) == ("first", True)


def test_a_start_without_an_id_is_remembered_when_its_chain_has_ended() -> None:
    world = World()
    world.start("", request_id="r", run_id="first")
    world.do(world.turn(), c.ContinueAsNew())
    world.do(world.turn(), c.CompleteWorkflow())
    world.restart()

    again = world.start("", request_id="r", run_id="other")

    assert (again.run_id, again.replayed) == ("first", True)


def test_the_key_of_a_long_chain_is_kept_a_window_longer_than_the_chain() -> None:
    world = World()
    world.start(request_id="r", run_id="first")
    world.stall(30 * HOUR / SECOND)
    world.do(world.turn(), c.ContinueAsNew())
    world.do(world.turn(), c.CompleteWorkflow())
    world.start(request_id="s", run_id="second")
    world.stall(10 * HOUR / SECOND)
    world.restart()

    again = world.start(request_id="r", run_id="third")

    assert (again.run_id, again.replayed) == ("first", True)


def test_a_key_used_for_another_start_is_refused() -> None:
    world = World()
    world.start(request_id="r", run_id="first")

    refused = world.ask(
        i.StartWorkflow(
            type="other", queue="default", run_id="second", request_id="r", workflow_id="w", input=(payload("1"),)
        ),
        replies.Refused,
    )

    assert refused.code == "idempotency_key_reused"
    assert refused.facts == {"run_id": "first", "workflow_id": "w"}


def test_the_same_request_in_another_namespace_starts_another_run() -> None:
    world = World()
    world.start(request_id="r", run_id="first")

    reply = world.ask(
        i.StartWorkflow(type="order", queue="default", run_id="second", request_id="r", workflow_id="w"),
        replies.WorkflowStarted,
        namespace="other",
    )

    assert reply == replies.WorkflowStarted(workflow_id="w", run_id="second", polled=False)


def test_a_start_that_got_an_open_run_gets_it_again_after_the_run_has_closed() -> None:
    world = World()
    world.start(run_id="first")
    world.start(request_id="r", run_id="second", if_open=IfOpen.RETURN_EXISTING)
    world.do(world.turn(), c.CompleteWorkflow())

    again = world.start(request_id="r", run_id="third", if_open=IfOpen.RETURN_EXISTING)

    assert (again.run_id, again.started, again.replayed) == ("first", False, True)


def test_a_run_is_found_by_the_start_that_began_it_or_found_it_open_and_by_no_other() -> None:
    world = World()
    world.start(run_id="first")
    world.do(world.turn(), c.CompleteWorkflow())
    asked = i.DescribeWorkflow(workflow_id="w", start_request_id="r")
    unknown = world.ask(asked, replies.Refused)
    world.start(request_id="q", run_id="second")
    world.start(request_id="r", run_id="third", if_open=IfOpen.RETURN_EXISTING)
    world.do(world.turn(), c.CompleteWorkflow())
    world.start(request_id="s", run_id="fourth")

    assert unknown.code == "workflow_not_found"
    world.restart()  # nothing of it is in memory
    for key, run_id in {"q": "second", "r": "second", "s": "fourth"}.items():
        asked = i.DescribeWorkflow(workflow_id="w", start_request_id=key)
        assert world.ask(asked, replies.WorkflowInfo).run_id == run_id


def test_a_start_that_took_the_place_of_another_is_still_said_to_have_started_its_run() -> None:
    world = World()
    world.start(run_id="first")
    world.start(request_id="r", run_id="second", if_open=IfOpen.TERMINATE)
    world.start(request_id="other", run_id="third", if_open=IfOpen.TERMINATE)

    again = world.start(request_id="r", run_id="fourth", if_open=IfOpen.TERMINATE)

    assert (again.run_id, again.started, again.replayed) == ("second", True, True)


def test_each_start_of_a_batch_has_its_own_answer() -> None:
    world = World()
    world.start("a", run_id="first")
    items = tuple(
        i.StartWorkflow(type="order", queue="default", run_id=run_id, request_id=run_id, workflow_id=workflow_id)
        for run_id, workflow_id in (("r1", "a"), ("r2", "b"), ("r2", "b"), ("r3", "b"))
    )

    reply = world.ask(i.StartWorkflows(items=items), replies.WorkflowsStarted)

    answers = [item.code if isinstance(item, replies.Refused) else (item.run_id, item.replayed) for item in reply.items]
    assert answers == ["workflow_already_open", ("r2", False), ("r2", True), "workflow_already_open"]


def test_a_delayed_run_takes_its_first_turn_when_its_delay_is_over() -> None:
    world = World()
    world.start(delay=60 * SECOND)
    world.pass_time(59.9)
    early = world.poll().workflow_tasks
    why = world.run_info().why

    world.pass_time(0.2)

    assert (early, why) == ((), "its start delay to pass")
    assert len(world.poll().workflow_tasks) == 1
    assert world.tables.timers == {}


def test_a_signal_does_not_bring_a_delayed_start_forward() -> None:
    world = World()
    started = world.start(delay=60 * SECOND)
    world.signal()

    assert world.poll().workflow_tasks == ()
    assert world.kinds(started.run_id) == ["WorkflowExecutionStarted", "WorkflowExecutionSignaled"]


def test_a_cancel_brings_a_delayed_start_forward() -> None:
    world = World()
    world.start(delay=60 * SECOND)
    world.cancel_run()

    assert len(world.poll().workflow_tasks) == 1
    assert world.tables.timers == {}


def test_a_delayed_start_survives_a_restart() -> None:
    world = World()
    world.start(delay=60 * SECOND)
    world.restart()
    world.signal()
    world.restart()
    early = world.poll().workflow_tasks

    world.pass_time(60.1)

    assert early == ()
    assert len(world.poll().workflow_tasks) == 1


def test_a_delayed_run_that_is_terminated_leaves_no_timer() -> None:
    world = World()
    world.start(delay=60 * SECOND, run_timeout=HOUR)

    world.terminate()

    assert world.tables.timers == {}
