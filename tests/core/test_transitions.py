"""Each kind of event, each command and each move of a task that the catalogues allow is taken by one script."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, get_args

import pytest

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.failure import Failure, FailureKind
from outlast.core.invariants import EDGES
from outlast.core.replies import TaskState as S
from outlast.core.retry import RetryPolicy
from outlast.core.units import HOUR, SECOND
from tests.core.laws import broken_laws
from tests.core.world import World, failure, payload

QUICK = RetryPolicy(attempts_max=2, first=SECOND, factor=1.0, jitter=False)
LATER_STATES = {S.HELD, S.UNCERTAIN}  # of limits and of effects: nothing moves a task there yet


@dataclass
class Taken:
    """What the script has taken: kinds of events, commands, and moves of tasks from one stored state to another."""

    events: set[str] = field(default_factory=set[str])
    commands: set[str] = field(default_factory=set[str])
    moves: set[tuple[S, S]] = field(default_factory=set[tuple[S, S]])


def activity(number: str, **options: Any) -> c.ScheduleActivity:
    fields: dict[str, Any] = {
        "activity_id": number, "activity_type": "pay", "task_queue": "default", "retry": QUICK, **options,
    }  # fmt: skip
    return c.ScheduleActivity(**fields)


class Scenes:
    """Short scenes on one world, with an eye on what they take."""

    def __init__(self) -> None:
        self.world = World()
        self.taken = Taken()
        self.states: dict[str, S] = {}

    def look(self) -> None:
        for row in self.world.tables.tasks.values():
            self.taken.moves.add((self.states.get(row.task_id, row.state), row.state))
            self.states[row.task_id] = row.state

    @contextmanager
    def step(self) -> Generator[World]:
        yield self.world
        self.look()

    def turn(self, *commands: c.Command) -> None:
        self.taken.commands |= {type(command).__name__ for command in commands}
        with self.step() as world:
            world.do(world.turn(), *commands)

    def open_run(self, *commands: c.Command, **options: Any) -> None:
        with self.step() as world:
            world.start(f"w{world.tickets}", **options)
        self.turn(*commands)


def plain_ends(scenes: Scenes) -> None:
    scenes.open_run(
        activity("1"), c.StartTimer(timer_id="1", start_to_fire=SECOND), c.RecordMarker(marker_name="note"),
        c.UpsertSearchAttributes(search_attributes={"a": payload("1")}),
        c.EnqueueDetached(place="1", task_type="job", task_queue="default"),
    )  # fmt: skip
    with scenes.step() as world:
        leases = world.poll(turns=0).tasks
    with scenes.step() as world:
        for lease in leases:
            world.complete(lease)
        world.pass_time(1.1)
    scenes.turn(c.StartTimer(timer_id="2", start_to_fire=HOUR), c.CancelTimer(timer_id="2"), c.ContinueAsNew())
    scenes.turn(c.CompleteWorkflow())
    scenes.open_run(c.FailWorkflow(failure=failure()))
    scenes.open_run(c.CancelWorkflow())


def ends_of_activities(scenes: Scenes) -> None:
    scenes.open_run(
        activity("1", retry=RetryPolicy(attempts_max=1)), activity("2"), activity("3", schedule_to_start=SECOND)
    )
    with scenes.step() as world:
        one, two = world.poll(slots=2, turns=0).tasks
    with scenes.step() as world:
        world.pass_time(1.1)
    with scenes.step() as world:
        world.fail(one)
    scenes.turn(c.RequestCancelActivity(activity_id="2"))
    with scenes.step() as world:
        world.complete(two, i.TaskCanceled())
    scenes.turn()


def turns_that_fail(scenes: Scenes) -> None:
    with scenes.step() as world:
        world.start("failing", run_timeout=HOUR)
        world.signal(workflow_id="failing")
        world.not_done(world.turn())
        world.cancel_run("failing")
    with scenes.step() as world:
        world.terminate("failing")
        world.start("slow", run_timeout=20 * SECOND)
        world.turn()
        world.pass_time(20.1)


def moves_of_tasks(scenes: Scenes) -> None:
    for number, options in enumerate(({}, {"retry": RetryPolicy(attempts_max=1)}, {"schedule_to_close": 3 * SECOND})):
        with scenes.step() as world:
            world.enqueue(f"fails {number}", **{"retry": QUICK, **options})
        with scenes.step() as world:
            lease = world.lease()
        with scenes.step() as world:
            world.fail(lease)
        with scenes.step() as world:
            world.pass_time(1.1)
        with scenes.step() as world:
            world.pass_time(3)
    with scenes.step() as world:
        world.enqueue("returned")
    with scenes.step() as world:
        world.cancel_task("fails 0")
        lease = world.lease()
    with scenes.step() as world:
        world.give_back(lease)
    with scenes.step() as world:
        world.cancel_task("returned")
        for name in ("waits", "expires", "leased", "told"):
            world.enqueue(name, retry=QUICK, schedule_to_close=HOUR if name == "waits" else 2 * SECOND)
    with scenes.step() as world:
        leases = {lease.token.task_id: lease for lease in world.poll().tasks}
    with scenes.step() as world:
        world.fail(leases["waits"])
        slow = Failure(kind=FailureKind.APPLICATION, type="Slow", message="", next_delay=int(1.9 * SECOND))
        world.complete(leases["expires"], i.TaskFailed(failure=slow))
        world.cancel_task("told")
    with scenes.step() as world:
        world.cancel_task("waits")
        world.complete(leases["told"], i.TaskCanceled())
    with scenes.step() as world:
        world.pass_time(1.95)
    with scenes.step() as world:
        world.pass_time(1)


def tasks_brought_back(scenes: Scenes) -> None:
    for name in ("fails 1", "fails 2", "returned"):
        with scenes.step() as world:
            world.ask(i.RetryTasks(task_ids=(name,), request_id=name), replies.TasksRetried)


@pytest.fixture(scope="module")
def taken() -> Taken:
    scenes = Scenes()
    for scene in (plain_ends, ends_of_activities, turns_that_fail, moves_of_tasks, tasks_brought_back):
        scene(scenes)
    for run_id in scenes.world.tables.runs:
        scenes.taken.events |= set(scenes.world.kinds(run_id))
    assert broken_laws(scenes.world.tables) == []
    return scenes.taken


@pytest.mark.parametrize("kind", [kind.__name__ for kind in get_args(e.Event)])
def test_each_kind_of_event_is_recorded(taken: Taken, kind: str) -> None:
    assert kind in taken.events


@pytest.mark.parametrize("kind", [kind.__name__ for kind in get_args(c.Command)])
def test_each_kind_of_command_is_carried_out(taken: Taken, kind: str) -> None:
    assert kind in taken.commands


MOVES = {
    (S.ENQUEUED, S.LEASED), (S.ENQUEUED, S.CANCELED), (S.ENQUEUED, S.EXPIRED), (S.LEASED, S.ENQUEUED),
    (S.LEASED, S.RETRY_WAIT), (S.LEASED, S.SUCCEEDED), (S.LEASED, S.FAILED), (S.LEASED, S.CANCELED),
    (S.LEASED, S.EXPIRED), (S.RETRY_WAIT, S.ENQUEUED), (S.RETRY_WAIT, S.CANCELED),
    (S.FAILED, S.ENQUEUED), (S.EXPIRED, S.ENQUEUED), (S.CANCELED, S.ENQUEUED),
}  # fmt: skip


@pytest.mark.parametrize(("was", "to"), sorted(MOVES), ids=str)
def test_each_move_of_a_task_is_taken(taken: Taken, was: S, to: S) -> None:
    assert (was, to) in taken.moves


def test_no_move_is_taken_that_the_published_machine_does_not_allow(taken: Taken) -> None:
    assert [(was, to) for was, to in sorted(taken.moves) if to not in EDGES[was]] == []


def test_every_state_that_a_task_can_be_in_is_reached(taken: Taken) -> None:
    assert {state for move in taken.moves for state in move} == set(S) - LATER_STATES
