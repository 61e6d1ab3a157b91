"""Lists and counts from the app, over the engine in this process."""

import asyncio
from collections.abc import Iterator

import pytest

from outlast import App, workflow
from outlast.core.errors import Invalid
from tests.sdk.apps import eventually


@pytest.fixture
def app(store: str) -> Iterator[App]:
    made = App(store, threads=4, drain="5s")
    with made:
        yield made


def test_workflows_are_found_by_tag_and_by_what_they_set(app: App) -> None:
    @app.workflow
    async def order(amount: int) -> int:
        workflow.set_search_attributes(amount=amount, vip=amount > 15)
        return amount

    handles = [order.using(id=f"order-{n}", tags={"plan": "pro" if n % 2 else "free"}).start(n * 10) for n in range(4)]
    for handle in handles:
        handle.result(timeout="10s")

    found = [info.workflow_id for info in app.workflows.list("attr.amount >= 10 and tag.plan = pro")]
    vips = [info.workflow_id for info in app.workflows.list("attr.vip = true", limit=1)]

    assert found == ["order-3", "order-1"]
    assert vips == ["order-3"]
    assert app.workflows.count('id ~ "order-*" and state = completed').count == 4
    assert app.workflows.count(state="completed").count == 4


def test_pages_are_fetched_until_the_list_is_through(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.sdk.lists.PAGE", 3)

    @app.task
    def note(n: int) -> int:
        return n

    note.enqueue_many([(n,) for n in range(10)])
    eventually(lambda: app.tasks.count(state="succeeded").count == 10)

    async def asked() -> tuple[list[str], int]:
        listed = [info.task_id async for info in app.tasks.alist("state = succeeded")]
        return listed, (await app.tasks.acount("state = succeeded")).count

    ids = [info.task_id for info in app.tasks.list(type=note.name)]
    listed, count = asyncio.run(asked())

    assert len(set(ids)) == 10
    assert (listed, count) == (ids, 10)
    assert len(list(app.tasks.list(limit=4))) == 4
    assert list(app.tasks.list(limit=0)) == []


def test_a_filter_that_cannot_be_read_names_the_column(app: App) -> None:
    with pytest.raises(Invalid) as caught:
        list(app.workflows.list("state = faild"))

    assert caught.value.facts == {"column": "9"}


def test_lists_have_twins_to_await(app: App) -> None:
    @app.task
    def note() -> None: ...

    note.enqueue().result(timeout="10s")

    async def asked() -> tuple[int, int, int]:
        workflows = [info async for info in app.workflows.alist()]
        tasks = await app.tasks.acount("queue = default")
        runs = await app.workflows.acount("started > 1h ago")
        return len(workflows), tasks.count, runs.count

    assert asyncio.run(asked()) == (0, 1, 0)
