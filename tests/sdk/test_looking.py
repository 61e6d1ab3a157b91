"""What an app says of what there is: histories and attempts by handle, queues, workers and namespaces."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from outlast import App, Fatal, HistoryEvent, Signal, TaskError, workflow
from outlast.core.errors import Closed, Conflict, Invalid, NotFound
from outlast.core.units import DAY
from tests.sdk.apps import eventually

GO = Signal("go", str)


@pytest.fixture
def app(store: str) -> Iterator[App]:
    made = App(store, threads=4, drain="5s")
    with made:
        yield made


def kinds_of(events: list[HistoryEvent]) -> list[str]:
    return [event.kind for event in events]


def test_a_history_is_read_from_its_handle(app: App) -> None:
    @app.workflow
    async def greeting(name: str) -> str:
        return f"Hello, {name}"

    handle = greeting.using(id="g").start("Ada")
    handle.result(timeout="10s")

    events = list(handle.history())

    assert kinds_of(events)[0] == "WorkflowExecutionStarted"
    assert kinds_of(events)[-1] == "WorkflowExecutionCompleted"
    assert [event.event_id for event in events] == list(range(1, len(events) + 1))
    assert {event.run_id for event in events} == {handle.run_id}
    assert abs((datetime.now(UTC) - events[0].at).total_seconds()) < 3600
    assert kinds_of(list(handle.history(first_event_id=len(events)))) == ["WorkflowExecutionCompleted"]


def test_a_history_longer_than_a_page_is_read_whole(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.engine.reading.PAGE_EVENTS", 2)

    @app.workflow
    async def waiting() -> None:
        for _ in range(5):
            await GO.receive()

    handle = waiting.start()
    for _ in range(5):
        handle.signal(GO, "on")
    handle.result(timeout="10s")

    assert kinds_of(list(handle.history())).count("WorkflowExecutionSignaled") == 5


def test_a_watch_goes_on_until_the_run_has_closed(app: App) -> None:
    @app.workflow
    async def waiting() -> str:
        return await GO.receive()

    handle = waiting.start()
    seen: list[HistoryEvent] = []
    for event in handle.watch():
        seen.append(event)
        if event.kind == "WorkflowTaskCompleted" and "WorkflowExecutionSignaled" not in kinds_of(seen):
            handle.signal(GO, "on")

    assert kinds_of(seen)[-1] == "WorkflowExecutionCompleted"
    assert "WorkflowExecutionSignaled" in kinds_of(seen)
    assert list(handle.watch(first_event_id=len(seen) + 1)) == []


def test_a_watch_follows_a_run_that_continued_as_new(app: App) -> None:
    @app.workflow
    async def counting(n: int) -> int:
        if n:
            workflow.continue_as_new(n - 1)
        return n

    handle = counting.start(2)

    async def watched() -> list[HistoryEvent]:
        return [event async for event in handle.awatch()]

    seen = asyncio.run(watched())

    assert kinds_of(seen).count("WorkflowExecutionContinuedAsNew") == 2
    assert len({event.run_id for event in seen}) == 3
    assert kinds_of(seen)[-1] == "WorkflowExecutionCompleted"


def test_a_history_of_nothing_says_so(app: App) -> None:
    with pytest.raises(NotFound):
        list(app.get_workflow("nobody").history())


def test_attempts_tell_how_each_lease_ended(app: App) -> None:
    @app.task(max_attempts=3)
    def failing() -> None:
        raise Fatal("it is broken")

    handle = failing.enqueue()
    eventually(lambda: handle.describe().state == "failed")

    (attempt,) = handle.attempts()

    assert (attempt.attempt, attempt.outcome) == (1, "failed")
    assert "it is broken" in attempt.error_message
    assert asyncio.run(handle.aattempts()) == (attempt,)


def test_queues_say_how_much_waits(app: App) -> None:
    @app.task(queue="images")
    def resize() -> None: ...

    resize.using(delay="1h").enqueue()

    (images,) = app.queues.list().items
    empty = app.queues.describe("nothing")

    assert (images.queue, images.delayed, images.ready) == ("images", 1, 0)
    assert (empty.queue, empty.delayed) == ("nothing", 0)
    assert asyncio.run(app.queues.alist()).items == (images,)
    assert asyncio.run(app.queues.adescribe("images")) == images


def test_workers_are_those_that_poll(app: App) -> None:
    @app.task(queue="images")
    def resize() -> None: ...

    eventually(lambda: app.workers.list(queue="images").items)

    (worker,) = app.workers.list(queue="images").items

    assert "images" in worker.queues
    assert app.workers.list(queue="nothing").items == ()
    assert [one.worker for one in asyncio.run(app.workers.alist()).items] == [worker.worker]


def test_a_namespace_is_made_changed_and_deleted(app: App) -> None:
    made = app.namespaces.create("shop", retention="7d", reason="the shop opens")
    changed = app.namespaces.update("shop", description="all of it")
    named = [info.name for info in app.namespaces.list()]
    gone = app.namespaces.delete("shop", confirm="shop")

    assert (made.settings.retention, made.settings.description) == (7 * DAY, "")
    assert (changed.settings.retention, changed.settings.description) == (7 * DAY, "all of it")
    assert named == ["default", "shop"]
    assert gone.state == "deleting"


def test_a_dry_run_shows_a_namespace_as_it_would_be(app: App) -> None:
    would = app.namespaces.create("shop", retention="7d", dry_run=True)
    with pytest.raises(NotFound):
        app.namespaces.describe("shop")
    app.namespaces.create("shop")
    changed = app.namespaces.update("shop", starts_per_second=5.0, dry_run=True)
    left = app.namespaces.delete("shop", confirm="shop", dry_run=True)

    assert would.settings.retention == 7 * DAY
    assert changed.settings.starts_per_second == 5.0
    assert (left.state, app.namespaces.describe("shop").settings.starts_per_second) == ("active", 0.0)


def test_a_namespace_that_is_there_is_not_made_again(app: App) -> None:
    app.namespaces.create("shop")

    with pytest.raises(Conflict):
        app.namespaces.create("shop")
    with pytest.raises(Invalid):
        app.namespaces.delete("shop", confirm="shpo")


def test_verbs_about_namespaces_have_twins_to_await(app: App) -> None:
    async def asked() -> tuple[str, str, float, int, str]:
        made = await app.namespaces.acreate("shop", description="new")
        changed = await app.namespaces.aupdate("shop", starts_per_second=2)
        described = await app.namespaces.adescribe("shop")
        listed = await app.namespaces.alist()
        gone = await app.namespaces.adelete("shop", confirm="shop")
        return made.name, described.settings.description, changed.settings.starts_per_second, len(listed), gone.state

    assert asyncio.run(asked()) == ("shop", "new", 2, 2, "deleting")


def test_a_failed_task_is_brought_back_by_its_handle(app: App) -> None:
    broken = [True]

    @app.task(max_attempts=1)
    def fragile(n: int) -> int:
        if broken:
            raise ValueError("not yet")
        return n

    (handle,) = fragile.enqueue_many([(7,)])
    with pytest.raises(TaskError):
        handle.result(timeout="10s")

    broken.clear()
    assert handle.retry("it is mended")
    assert handle.result(timeout="10s") == 7
    assert [attempt.outcome for attempt in handle.attempts()] == ["failed", "retried", "succeeded"]
    with pytest.raises(Closed):
        asyncio.run(handle.aretry())


def test_tasks_that_failed_are_brought_back_by_a_filter(app: App) -> None:
    broken = [True]

    @app.task(max_attempts=1)
    def fragile(n: int) -> int:
        if broken:
            raise ValueError("not yet")
        return n

    handles = fragile.enqueue_many([(n,) for n in range(3)])
    eventually(lambda: app.tasks.count(state="failed").count == 3)

    would = app.tasks.retry(type=fragile.name, dry_run=True)
    broken.clear()
    first = app.tasks.retry("closed > 1h ago", limit=1, reason="it is mended")
    rest = asyncio.run(app.tasks.aretry())

    assert (set(would.ids), would.more) == ({handle.id for handle in handles}, False)
    assert (len(first.ids), first.more) == (1, True)
    assert {*first.ids, *rest.ids} == set(would.ids)
    assert [app.get_task(handle.id).result(timeout="10s") for handle in handles] == [0, 1, 2]
