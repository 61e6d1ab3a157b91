"""What the commands of a turn make of a run, and what is left of a turn that asks for the impossible."""

import pytest

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core.retry import RetryPolicy
from outlast.core.units import HOUR, MINUTE, SECOND
from tests.core.world import World, payload

PAY = c.ScheduleActivity(activity_id="1", activity_type="pay", task_queue="default")
SLEEP = c.StartTimer(timer_id="1", start_to_fire=5 * SECOND)
AFTER_COMPLETED = [
    "WorkflowExecutionStarted", "WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskCompleted",
]  # fmt: skip


OTHER = c.ScheduleActivity(activity_id="2", activity_type="pay", task_queue="default")
DETACHED = c.EnqueueDetached(place="1", task_type="job", task_queue="default")


@pytest.mark.parametrize(
    "commands",
    [
        (PAY, PAY),
        (SLEEP, SLEEP),
        (c.CancelTimer(timer_id="9"),),
        (c.RequestCancelActivity(activity_id="9"),),
        (c.ScheduleActivity(activity_id="", activity_type="pay", task_queue="default"),),
        (c.ScheduleActivity(activity_id="9", activity_type="", task_queue="default"),),
        (c.ScheduleActivity(activity_id="9", activity_type="pay", task_queue=""),),
        (c.ScheduleActivity(activity_id="9", activity_type="pay", task_queue="default", heartbeat=-1),),
        (c.ScheduleActivity(activity_id="9", activity_type="pay", task_queue="default", start_to_close=2**62),),
        (
            c.ScheduleActivity(
                activity_id="9", activity_type="pay", task_queue="default", input=(payload("x" * 5_000_000),)
            ),
        ),
        (c.StartTimer(timer_id="9", start_to_fire=-1),),
        (c.StartTimer(timer_id="9", start_to_fire=2**62),),
        (c.StartTimer(timer_id="", start_to_fire=1),),
        (c.EnqueueDetached(place="", task_type="job", task_queue="default"),),
        (c.EnqueueDetached(place="1", task_type="", task_queue="default"),),
        (DETACHED, DETACHED),
        tuple(c.RecordMarker(marker_name="m") for _ in range(10_001)),
    ],
    ids=[
        "activity twice", "timer twice", "cancel of no timer", "cancel of no activity", "activity without an id",
        "activity without a type", "activity without a queue", "negative timeout", "endless timeout", "huge input",
        "negative sleep", "endless sleep", "timer without an id", "detached task without a place",
        "detached task without a type", "detached place twice", "too many",
    ],
)  # fmt: skip
def test_a_command_that_cannot_be_carried_out_leaves_no_trace_of_its_turn(commands: tuple[c.Command, ...]) -> None:
    world = World()
    started = world.start()

    refused = world.do(world.turn(), OTHER, c.StartTimer(timer_id="8", start_to_fire=HOUR), *commands).refused

    assert refused is not None
    assert refused.code == "bad_command"
    assert world.kinds(started.run_id)[-1] == "WorkflowTaskFailed"
    assert (world.tables.tasks, world.tables.timers) == ({}, {})
    assert world.run_info().task_attempt == 2


def test_a_detached_place_that_was_used_in_an_earlier_turn_is_refused() -> None:
    world = World()
    started = world.start()
    world.do(world.turn(), DETACHED, force_new=True)
    world.restart()

    refused = world.do(world.turn(), OTHER, DETACHED).refused

    assert refused is not None
    assert refused.code == "bad_command"
    assert list(world.tables.tasks) == [f"{started.run_id}:d1"]


def test_a_detached_task_outlives_its_run() -> None:
    world = World()
    started = world.start()
    world.do(world.turn(), DETACHED, c.CompleteWorkflow())

    lease = world.lease()

    assert lease.token.task_id == f"{started.run_id}:d1"
    assert lease.run_id == ""
    assert world.kinds(started.run_id)[-2:] == ["TaskEnqueued", "WorkflowExecutionCompleted"]


def test_a_timer_may_be_started_again_in_the_turn_that_cancels_it() -> None:
    world = World()
    world.start()
    world.do(world.turn(), SLEEP, force_new=True)

    world.do(world.turn(), c.CancelTimer(timer_id="1"), c.StartTimer(timer_id="1", start_to_fire=HOUR))

    assert [row.fire_at for row in world.tables.timers.values()] == [world.now + HOUR]


def test_search_attributes_and_markers_are_recorded_in_order() -> None:
    world = World()
    started = world.start(search_attributes={"a": payload("0")})

    world.do(
        world.turn(),
        c.UpsertSearchAttributes(search_attributes={"b": payload("1")}),
        c.RecordMarker(marker_name="patch", details={"id": payload("x")}),
    )

    assert world.kinds(started.run_id)[-2:] == ["UpsertWorkflowSearchAttributes", "MarkerRecorded"]
    assert world.run_info().search_attributes == {"a": payload("0"), "b": payload("1")}


def test_events_of_commands_say_which_turn_asked_for_them() -> None:
    world = World()
    started = world.start()

    world.do(world.turn(), PAY, SLEEP)

    (scheduled,) = world.found(started.run_id, e.ActivityTaskScheduled)
    (timer,) = world.found(started.run_id, e.TimerStarted)
    assert (scheduled.workflow_task_completed_event_id, timer.workflow_task_completed_event_id) == (4, 4)
    assert scheduled.task_id == f"{started.run_id}:5"


def test_an_operation_keeps_its_id_wherever_its_explicit_key_stands() -> None:
    world = World()
    started = world.start()
    keyed = c.ScheduleActivity(activity_id="1", activity_type="pay", task_queue="default", operation_key="charge")
    moved = c.ScheduleActivity(activity_id="2", activity_type="pay", task_queue="default", operation_key="charge")

    world.do(world.turn(), keyed, moved, c.ScheduleActivity(activity_id="3", activity_type="pay", task_queue="default"))

    first, second, third = world.found(started.run_id, e.ActivityTaskScheduled)
    assert first.operation_id == second.operation_id != third.operation_id


def test_an_activity_without_timeouts_gets_a_start_to_close() -> None:
    world = World()
    started = world.start()

    world.do(world.turn(), PAY, c.ScheduleActivity(
        activity_id="2", activity_type="pay", task_queue="default", schedule_to_close=HOUR,
    ))  # fmt: skip

    assert [event.start_to_close for event in world.found(started.run_id, e.ActivityTaskScheduled)] == [10 * MINUTE, 0]


def test_a_retried_activity_leaves_one_start_with_its_last_attempt() -> None:
    world = World()
    started = world.start()
    retry = RetryPolicy(attempts_max=3, first=SECOND, factor=1.0, jitter=False)
    world.do(world.turn(), c.ScheduleActivity(activity_id="1", activity_type="pay", task_queue="default", retry=retry))
    world.fail(world.lease())
    world.pass_time(1.1)

    world.complete(world.lease("two"), worker="two")

    (event,) = world.found(started.run_id, e.ActivityTaskStarted)
    assert event.attempt == 2


@pytest.mark.parametrize(
    ("options", "timeout_type"),
    [
        ({"start_to_close": 5 * SECOND, "retry": RetryPolicy(attempts_max=1)}, "start_to_close"),
        ({"heartbeat": 5 * SECOND, "retry": RetryPolicy(attempts_max=1)}, "heartbeat"),
        ({"schedule_to_close": 5 * SECOND}, "schedule_to_close"),
    ],
    ids=["start to close", "heartbeat", "schedule to close"],
)
def test_a_timeout_of_an_activity_tells_its_kind_and_the_last_details(
    options: dict[str, int], timeout_type: str
) -> None:
    world = World()
    started = world.start()
    fields: dict[str, object] = {"activity_id": "1", "activity_type": "pay", "task_queue": "default", **options}
    world.do(world.turn(), c.ScheduleActivity(**fields))  # pyright: ignore[reportArgumentType]
    lease = world.lease()
    world.begin(lease)
    world.beat(lease, details=payload("row 7"))

    world.pass_time(5.1)

    (event,) = world.found(started.run_id, e.ActivityTaskTimedOut)
    assert (event.timeout_type, event.failure.details) == (timeout_type, (payload("row 7"),))


def test_an_activity_that_nobody_starts_in_time_has_no_start() -> None:
    world = World()
    started = world.start()
    world.do(world.turn(), c.ScheduleActivity(
        activity_id="1", activity_type="pay", task_queue="default", schedule_to_start=5 * SECOND,
    ))  # fmt: skip

    world.pass_time(5.1)

    (event,) = world.found(started.run_id, e.ActivityTaskTimedOut)
    assert (event.timeout_type, event.started_event_id) == ("schedule_to_start", 0)
    assert world.found(started.run_id, e.ActivityTaskStarted) == []


ACTIVITY: dict[str, object] = {"activity_id": "1", "activity_type": "pay", "task_queue": "default"}
DETACHED_TASK: dict[str, object] = {"place": "1", "task_type": "job", "task_queue": "default"}


@pytest.mark.parametrize(
    ("kind", "fields", "named"),
    [
        (c.ScheduleActivity, {**ACTIVITY, "priority": 77}, "priority"),
        (c.ScheduleActivity, {**ACTIVITY, "task_queue": "a\nb"}, "queue"),
        (c.ScheduleActivity, {**ACTIVITY, "activity_type": "x" * 300}, "type"),
        (c.ScheduleActivity, {**ACTIVITY, "retry": RetryPolicy(factor=0.5)}, "retry.factor"),
        (c.EnqueueDetached, {**DETACHED_TASK, "priority": 0}, "priority"),
        (c.EnqueueDetached, {**DETACHED_TASK, "delay": -1}, "delay"),
        (c.EnqueueDetached, {**DETACHED_TASK, "task_queue": ""}, "queue"),
        (c.RecordMarker, {"marker_name": ""}, "marker_name"),
        (c.UpsertSearchAttributes, {"search_attributes": {"": payload("1")}}, "search_attributes"),
        (c.ContinueAsNew, {"run_timeout": -4}, "run_timeout"),
        (c.ContinueAsNew, {"workflow_type": "\n"}, "workflow_type"),
        (c.ContinueAsNew, {"task_queue": "x" * 300}, "task_queue"),
    ],
    ids=[
        "priority", "queue", "type", "factor", "detached priority", "detached delay", "detached queue", "marker",
        "attribute", "timeout", "next type", "next queue",
    ],
)  # fmt: skip
def test_a_command_is_held_to_what_a_request_is(kind: type, fields: dict[str, object], named: str) -> None:
    world = World()
    started = world.start()

    reply = world.do(world.turn(), kind(**fields), TIMER_OF_ITS_OWN)

    assert reply.refused is not None
    assert reply.refused.code == "bad_command"
    assert named in reply.refused.fact
    assert world.kinds(started.run_id)[1:] == ["WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskFailed"]
    assert world.run_info().task_state == "backoff"


TIMER_OF_ITS_OWN = c.StartTimer(timer_id="own", start_to_fire=SECOND)
