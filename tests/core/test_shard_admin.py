"""Namespaces and forgetting at the shard: what is refused, what is written, and that nothing comes back from an old page."""

from typing import Any

import pytest

from outlast.core import inputs as i
from outlast.core.admin import (
    CreateNamespace,
    DeleteNamespace,
    DescribeWorkers,
    DropNamespace,
    Forget,
    Forgotten,
    NamespaceInfo,
    NamespaceSettings,
    NamespaceState,
    UpdateNamespace,
    WorkersInfo,
)
from outlast.core.replies import Refused, TaskEnqueuedReply, TaskInfo, WorkflowInfo, WorkflowStarted
from outlast.core.shard.config import ShardConfig
from outlast.core.units import DAY, FOREVER, HOUR
from tests.core.world import World, enqueue_of

BRIEF = ShardConfig(idempotency_window=1)  # keys are over as soon as time has passed at all
SETTINGS = NamespaceSettings(description="for orders", retention=DAY)


def create(world: World, name: str = "shop", request_id: str = "r1") -> NamespaceInfo:
    """Make a namespace."""
    return world.ask(CreateNamespace(name=name, request_id=request_id, settings=SETTINGS), NamespaceInfo)


def code_of(world: World, request: i.ShardRequest, **where: Any) -> str:
    """Return why a request is refused."""
    return world.ask(request, Refused, **where).code


def test_a_namespace_is_there_after_a_restart() -> None:
    world = World()
    made = create(world)
    world.restart()

    again = world.ask(CreateNamespace(name="shop", request_id="r1"), NamespaceInfo)

    assert (made.version, made.settings, made.created_at) == (1, SETTINGS, world.tables.namespaces["shop"].created_at)
    assert again == made == world.tables.namespaces["shop"]


def test_a_name_is_given_once() -> None:
    world = World()
    create(world)

    assert code_of(world, CreateNamespace(name="shop", request_id="r2")) == "namespace_exists"


def test_an_update_needs_the_version_that_it_was_read_with() -> None:
    world = World()
    create(world)
    change = UpdateNamespace(name="shop", request_id="r2", settings=NamespaceSettings(retention=HOUR), version=1)

    changed = world.ask(change, NamespaceInfo)
    repeated = world.ask(change, NamespaceInfo)
    stale = UpdateNamespace(name="shop", request_id="r3", settings=SETTINGS, version=1)

    assert (changed.version, changed.settings.retention) == (2, HOUR)
    assert repeated == changed
    assert code_of(world, stale) == "precondition_failed"


def test_a_namespace_of_the_settings_gets_a_row_with_its_first_change() -> None:
    world = World()

    changed = world.ask(UpdateNamespace(name="default", request_id="r1", settings=SETTINGS), NamespaceInfo)

    assert (changed.version, changed.settings) == (1, SETTINGS)
    assert world.tables.namespaces["default"] == changed


def test_the_default_namespace_cannot_be_deleted() -> None:
    request = DeleteNamespace(name="default", request_id="r1", confirm="default", force=True)

    assert code_of(World(), request) == "namespace_in_use"


def test_open_work_keeps_a_namespace_from_being_deleted_unless_forced() -> None:
    world = World()
    create(world)
    world.send(enqueue_of("t-1"), namespace="shop")

    refused = world.ask(DeleteNamespace(name="shop", request_id="r2", confirm="shop"), Refused)
    forced = world.ask(DeleteNamespace(name="shop", request_id="r3", confirm="shop", force=True), NamespaceInfo)

    assert (refused.code, refused.facts) == ("namespace_in_use", {"open_workflows": "0", "open_tasks": "1"})
    assert forced.state is NamespaceState.DELETING
    assert code_of(world, UpdateNamespace(name="shop", request_id="r4", settings=SETTINGS)) == "namespace_in_use"
    assert code_of(world, CreateNamespace(name="shop", request_id="r5")) == "namespace_exists"


def test_a_namespace_goes_only_when_nothing_is_left_in_it() -> None:
    world = World()
    create(world)
    world.send(enqueue_of("t-1"), namespace="shop")
    world.ask(DeleteNamespace(name="shop", request_id="r2", confirm="shop", force=True), NamespaceInfo)
    early = code_of(world, DropNamespace(name="shop"))
    world.send(i.CancelTask(task_id="t-1"), namespace="shop")
    still = code_of(world, DropNamespace(name="shop"))
    world.ask(Forget(tasks=("t-1",), closed_before=FOREVER), Forgotten, namespace="shop")

    world.ask(DropNamespace(name="shop"), Forgotten)

    assert (early, still) == ("namespace_in_use", "namespace_in_use")
    assert world.tables.namespaces == {}
    assert not [key for key in world.tables.counters if key[0] == "shop"]
    assert create(world, request_id="r6").version == 1


def forget(world: World, **what: Any) -> Forgotten:
    """Forget what closed until now, in a world of brief keys."""
    world.now += 2
    request = Forget(closed_before=world.now, **what)
    return world.ask(request, Forgotten)


def test_a_closed_run_is_forgotten_with_all_that_belongs_to_it() -> None:
    world = World(config=BRIEF)
    started = world.ask(
        i.StartWorkflow(type="order", queue="q", run_id="r-1", request_id="s-1", workflow_id="w-1", tags={"a": "b"}),
        WorkflowStarted,
    )
    world.send(i.TerminateWorkflow(workflow_id="w-1", request_id="x"))

    done = forget(world, runs=(started.run_id,))

    tables = world.tables
    assert done == Forgotten(runs=1)
    assert (tables.runs, tables.history, tables.parked, tables.labels, tables.latest_runs) == ({}, {}, {}, {}, {})
    assert code_of(world, i.DescribeWorkflow(workflow_id="w-1")) == "workflow_not_found"
    assert tables.counters["default", "runs:terminated"] == 0


def test_what_is_open_or_closed_later_is_not_forgotten() -> None:
    world = World(config=BRIEF)
    world.ask(i.StartWorkflow(type="o", queue="q", run_id="r-1", request_id="s", workflow_id="w"), WorkflowStarted)
    for task in ("t-open", "t-late", "t-ended"):
        world.send(enqueue_of(task))
    world.send(i.CancelTask(task_id="t-ended"))
    world.now += DAY
    bound = world.now
    world.send(i.CancelTask(task_id="t-late"))
    world.now += DAY

    named = Forget(runs=("r-1", "none"), tasks=("t-open", "t-late", "t-ended", "none"), closed_before=bound)
    other = world.ask(named, Forgotten, namespace="other")
    done = world.ask(named, Forgotten)

    assert (other, done) == (Forgotten(), Forgotten(tasks=1))
    assert set(world.tables.runs) == {"r-1"}
    assert set(world.tables.tasks) == {"t-open", "t-late"}


def test_a_task_is_forgotten_out_of_the_counters_too() -> None:
    world = World(config=BRIEF)
    world.send(enqueue_of("t-1"))
    world.send(i.CancelTask(task_id="t-1"))
    world.restart()

    done = forget(world, tasks=("t-1",))
    again = forget(world, tasks=("t-1",))

    assert (done, again) == (Forgotten(tasks=1), Forgotten())
    assert world.tables.counters["default", "tasks:default:canceled"] == 0
    assert code_of(world, i.DescribeTask(task_id="t-1")) == "task_not_found"


def test_a_page_from_before_does_not_bring_back_what_was_forgotten() -> None:
    world = World(config=BRIEF)
    world.ask(i.StartWorkflow(type="o", queue="q", run_id="r-1", request_id="s", workflow_id="w"), WorkflowStarted)
    world.send(i.TerminateWorkflow(workflow_id="w", request_id="x"))
    world.send(enqueue_of("t-1"))
    world.send(i.CancelTask(task_id="t-1"))

    world.now += 2
    world.hold_commits = True
    ticket = world.send(Forget(runs=("r-1",), tasks=("t-1",), closed_before=FOREVER))
    run = world.send(i.DescribeWorkflow(workflow_id="w"))  # the store still has the rows that its page is made of
    task = world.send(i.DescribeTask(task_id="t-1"))
    world.hold_commits = False
    world.release()

    assert world.answers[ticket] == Forgotten(runs=1, tasks=1)
    assert not isinstance(world.answers[run], WorkflowInfo)
    assert not isinstance(world.answers[task], TaskInfo)
    assert "r-1" not in world.core.shard.runs
    assert "t-1" not in world.core.shard.tasks


def test_a_workflow_id_can_be_used_while_its_last_run_is_being_forgotten() -> None:
    world = World(config=BRIEF)
    start = i.StartWorkflow(type="o", queue="q", run_id="r-1", request_id="s", workflow_id="w")
    world.ask(start, WorkflowStarted)
    world.send(i.TerminateWorkflow(workflow_id="w", request_id="x"))

    world.now += 2
    world.hold_commits = True
    world.send(Forget(runs=("r-1",), closed_before=FOREVER))
    again = world.send(i.StartWorkflow(type="o", queue="q", run_id="r-2", request_id="s2", workflow_id="w"))
    world.hold_commits = False
    world.release()

    assert isinstance(world.answers[again], WorkflowStarted)
    assert set(world.tables.runs) == {"r-2"}


def test_workers_are_described_by_their_last_poll() -> None:
    world = World()
    world.send(i.Poll(poll_id="p1", worker="one", queues=("a",), task_types=("t",), slots=3, wait=HOUR, build="v1"))
    world.now += 1
    world.send(i.Poll(poll_id="p2", worker="two", queues=("b",), workflow_types=("w",), workflow_slots=2, wait=HOUR))
    world.send(i.Poll(poll_id="p3", worker="far", queues=("b",), slots=1, wait=HOUR), namespace="other")

    found = world.ask(DescribeWorkers(), WorkersInfo)
    of_a = world.ask(DescribeWorkers(queue="a"), WorkersInfo)

    assert [info.worker for info in found.items] == ["two", "one"]
    (one,) = of_a.items
    assert (one.build, one.queues, one.task_types, one.slots, one.polls) == ("v1", ("a",), ("t",), 3, 1)
    assert one.seen_at < found.items[0].seen_at


def test_a_worker_that_polls_for_each_kind_apart_is_described_with_all_of_them() -> None:
    world = World()
    world.send(i.Poll(poll_id="p1", worker="one", queues=("a",), task_types=("t", "s"), slots=3, wait=HOUR))
    world.send(i.Poll(poll_id="p2", worker="one", queues=("a",), task_types=("co",), slots=200, wait=HOUR))
    world.send(i.Poll(poll_id="p3", worker="one", queues=("a",), workflow_types=("w",), workflow_slots=2, wait=HOUR))

    (one,) = world.ask(DescribeWorkers(), WorkersInfo).items

    assert (one.task_types, one.workflow_types) == (("co", "s", "t"), ("w",))
    assert (one.slots, one.workflow_slots, one.polls) == (203, 2, 3)


def test_a_worker_is_described_by_as_many_kinds_of_poll_as_are_kept() -> None:
    world = World()
    for number in range(9):
        world.send(i.Poll(poll_id=f"p{number}", worker="one", queues=("a",), task_types=(f"t{number}",), wait=HOUR))

    (one,) = world.ask(DescribeWorkers(), WorkersInfo).items

    assert one.task_types == ("t6", "t7", "t8")


@pytest.mark.parametrize("kept", ["runs", "tasks"])
def test_a_shard_forgets_that_it_has_forgotten(kept: str) -> None:
    world = World(config=BRIEF)
    world.send(enqueue_of("t-1"))
    world.send(i.CancelTask(task_id="t-1"))
    forget(world, tasks=("t-1",))
    world.send(enqueue_of(f"later-{kept}"))

    assert not world.core.shard.forgotten


def test_a_page_of_ready_tasks_brings_nothing_back_that_was_forgotten() -> None:
    world = World(config=ShardConfig(idempotency_window=1, window_max=2, window_low=1, page_rows=2))
    for n in range(4):
        world.enqueue(f"t{n}")
    world.hold_loads = True
    first = world.lease()  # the window runs short, and the page of the tasks behind it is asked for
    assert world.pages
    world.cancel_task("t3")
    assert forget(world, tasks=("t3",)) == Forgotten(tasks=1)
    world.hold_loads = False

    world.hand_in()

    assert first.token.task_id == "t0"
    assert world.ready_tasks() == ["t1", "t2"]
    assert "t3" not in world.tables.tasks


def test_a_namespace_that_is_being_deleted_takes_no_more_work() -> None:
    world = World()
    create(world)
    first = enqueue_of("t-1")
    world.ask(first, TaskEnqueuedReply, namespace="shop")
    world.ask(DeleteNamespace(name="shop", request_id="r2", confirm="shop", force=True), NamespaceInfo)
    start = i.StartWorkflow(type="order", queue="default", run_id="run-9", request_id="s-9", workflow_id="w")

    refused = [
        code_of(world, enqueue_of("t-2"), namespace="shop"),
        code_of(world, start, namespace="shop"),
    ]
    again = world.ask(first, TaskEnqueuedReply, namespace="shop")

    assert refused == ["namespace_not_found", "namespace_not_found"]
    assert again.replayed
    assert set(world.tables.tasks) == {"t-1"}


def test_nothing_is_forgotten_while_its_key_still_binds() -> None:
    world = World()
    start = i.StartWorkflow(type="order", queue="q", run_id="r-1", request_id="s-1")
    first = world.ask(start, WorkflowStarted)
    world.send(i.TerminateWorkflow(workflow_id=first.workflow_id, request_id="x"))
    world.send(enqueue_of("t-1"))
    world.send(i.CancelTask(task_id="t-1"))
    world.now += DAY - 1

    early = world.ask(Forget(runs=("r-1",), tasks=("t-1",), closed_before=FOREVER), Forgotten)
    again = world.ask(start, WorkflowStarted)
    world.now += 2
    late = world.ask(Forget(runs=("r-1",), tasks=("t-1",), closed_before=FOREVER), Forgotten)

    assert (early, late) == (Forgotten(), Forgotten(runs=1, tasks=1))
    assert (again.run_id, again.replayed) == ("r-1", True)


def test_a_namespace_that_ends_takes_keys_along() -> None:
    world = World()
    create(world)
    world.ask(enqueue_of("t-1"), TaskEnqueuedReply, namespace="shop")
    world.send(i.CancelTask(task_id="t-1"), namespace="shop")
    world.ask(DeleteNamespace(name="shop", request_id="r2", confirm="shop"), NamespaceInfo)

    done = world.ask(Forget(tasks=("t-1",), closed_before=FOREVER), Forgotten, namespace="shop")

    assert done == Forgotten(tasks=1)


def test_a_start_that_waited_for_rows_does_not_enter_a_namespace_that_is_gone() -> None:
    world = World()
    create(world)
    world.hold_loads = True
    start = i.StartWorkflow(type="order", queue="default", run_id="r-1", request_id="s-1", workflow_id="w")
    waiting = world.send(start, namespace="shop")
    assert world.pages
    world.ask(DeleteNamespace(name="shop", request_id="r2", confirm="shop"), NamespaceInfo)
    world.ask(DropNamespace(name="shop"), Forgotten)

    world.hand_in()

    reply = world.answers[waiting]
    assert isinstance(reply, Refused)
    assert reply.code == "namespace_not_found"
    assert world.tables.runs == {}
    assert not any(value for (namespace, _), value in world.tables.counters.items() if namespace == "shop")


def test_a_namespace_that_is_made_again_takes_work_again() -> None:
    world = World()
    create(world)
    world.ask(DeleteNamespace(name="shop", request_id="r2", confirm="shop"), NamespaceInfo)
    world.ask(DropNamespace(name="shop"), Forgotten)

    create(world, request_id="r3")

    assert world.ask(enqueue_of("t-1"), TaskEnqueuedReply, namespace="shop").task_id == "t-1"
