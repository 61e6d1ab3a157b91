"""Lists and counts through the engine: filters, cursors that are checked, pages that cost no more than they may."""

import base64
from typing import Any

import msgspec
import pytest

from outlast.core import limits
from outlast.core.errors import Invalid
from outlast.core.payload import Payload
from outlast.core.replies import RunStatus
from outlast.engine.inprocess import InProcessTransport
from outlast.protocol.transport import Count, RunsAsked, TasksAsked
from outlast.store.memory.store import MemoryStore
from tests.core.world import payload
from tests.engine.doubles import a_start, a_task, run, running


def attributes(**values: Any) -> dict[str, Payload]:
    """Return search attributes as the SDK sends them."""
    return {name: Payload("json/plain", msgspec.json.encode(value)) for name, value in values.items()}


async def three_orders(transport: InProcessTransport) -> None:
    """Start three workflows and enqueue three tasks, with labels."""
    await transport.call(a_start("o-1", tags={"plan": "pro"}, search_attributes=attributes(amount=10, colours=["red"])))
    await transport.call(a_start("o-2", tags={"plan": "free"}, search_attributes=attributes(amount=20.5, vip=True)))
    await transport.call(a_start("m-1", type="mail", search_attributes={"odd": payload("not json")}))
    await transport.call(a_task(task_id="t-1", tags={"plan": "pro"}, priority=1))
    await transport.call(a_task(task_id="t-2", queue="bulk"))
    await transport.call(a_task(task_id="t-3", delay=10**12))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["m-1", "o-2", "o-1"]),
        ("tag.plan = pro", ["o-1"]),
        ("attr.amount > 9", ["o-2", "o-1"]),
        ("attr.vip = true or attr.colours = red", ["o-2", "o-1"]),
        ("started > 1h ago and type = mail", ["m-1"]),
        ("started < 1h ago", []),
        ('id ~ "o-*" and not tag.plan = free', ["o-1"]),
    ],
)
def test_workflows_are_listed_and_counted_by_filter(query: str, expected: list[str]) -> None:
    async def work() -> None:
        async with running() as (_, transport):
            await three_orders(transport)

            page = await transport.list_runs(RunsAsked(query=query))

            assert [info.workflow_id for info in page.runs] == expected
            assert (page.next, page.short) == ("", False)
            assert await transport.count_runs(RunsAsked(query=query)) == Count(count=len(expected))

    run(work)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("tag.plan = pro", ["t-1"]),
        ("priority < 3", ["t-1"]),
        ("queue = bulk", ["t-2"]),
        ("due > 1m ahead", ["t-3"]),
        ("state = enqueued", ["t-3", "t-2", "t-1"]),
    ],
)
def test_tasks_are_listed_and_counted_by_filter(query: str, expected: list[str]) -> None:
    async def work() -> None:
        async with running() as (_, transport):
            await three_orders(transport)

            page = await transport.list_tasks(TasksAsked(query=query))

            assert [info.task_id for info in page.tasks] == expected
            assert await transport.count_tasks(TasksAsked(query=query)) == Count(count=len(expected))

    run(work)


@pytest.mark.one_store
def test_counts_without_a_filter_come_from_the_counters() -> None:
    class NoScans(MemoryStore):
        async def count_runs(self, filter: Any) -> Any:
            raise AssertionError("a scan")

        async def count_tasks(self, filter: Any) -> Any:
            raise AssertionError("a scan")

    async def work() -> None:
        async with running(NoScans()) as (_, transport):
            await three_orders(transport)

            assert await transport.count_runs() == Count(count=3)
            assert await transport.count_runs(RunsAsked(status=RunStatus.RUNNING)) == Count(count=3)
            assert await transport.count_runs(RunsAsked(status="failed")) == Count(count=0)
            assert await transport.count_tasks(TasksAsked(queue="bulk")) == Count(count=1)
            assert await transport.count_tasks(TasksAsked(state="enqueued")) == Count(count=3)

    run(work)


def test_a_cursor_is_not_disturbed_by_what_is_made_meanwhile() -> None:
    async def work() -> None:
        async with running() as (_, transport):
            for n in range(5):
                await transport.call(a_start(f"w-{n}"))
            first = await transport.list_runs(limit=2)
            await transport.call(a_start("late"))
            second = await transport.list_runs(limit=2, cursor=first.next)
            third = await transport.list_runs(limit=2, cursor=second.next)

            pages = [[info.workflow_id for info in page.runs] for page in (first, second, third)]
            assert pages == [["w-4", "w-3"], ["w-2", "w-1"], ["w-0"]]
            assert third.next == ""

    run(work)


def forged(*values: Any) -> str:
    """Return a cursor with ``values`` in it."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(values)).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    ["?", "AAAA", "a" * 5_000, "é", forged(1, "x"), forged(1, "x", b""), forged("1", "x", b"12345678"),
     forged(2**63, "x", b"12345678"), forged(1, "x", b"12345678"), forged(1, 2, 3)],
)  # fmt: skip
def test_a_forged_cursor_is_refused(cursor: str) -> None:
    async def work() -> None:
        async with running() as (_, transport):
            for listing in (transport.list_runs(cursor=cursor), transport.list_tasks(cursor=cursor)):
                with pytest.raises(Invalid) as caught:
                    await listing

                assert caught.value.code == "invalid_cursor"

    run(work)


def test_a_cursor_of_another_list_is_refused() -> None:
    async def work() -> None:
        async with running() as (_, transport):
            await three_orders(transport)
            cursor = (await transport.list_runs(limit=1)).next

            for listing in (
                transport.list_runs(RunsAsked(query="type = order"), cursor=cursor),
                transport.list_runs(RunsAsked(status="running"), cursor=cursor),
                transport.list_tasks(cursor=cursor),
            ):
                with pytest.raises(Invalid) as caught:
                    await listing

                assert caught.value.code == "invalid_cursor"

    run(work)


def test_a_filter_that_cannot_be_read_is_refused_with_its_column() -> None:
    async def work() -> None:
        async with running() as (_, transport):
            with pytest.raises(Invalid) as caught:
                await transport.count_tasks(TasksAsked(query="state = faild"))

            assert (caught.value.code, caught.value.facts) == ("invalid_query", {"column": "9"})

    run(work)


def test_a_page_comes_back_short_rather_than_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIST_SCAN_ROWS", 2)
    monkeypatch.setattr(limits, "LIST_SCANS_MAX", 3)

    async def work() -> None:
        async with running() as (_, transport):
            await transport.call(a_start("first"))
            for n in range(7):
                await transport.call(a_start(f"w-{n}"))

            page = await transport.list_runs(RunsAsked(query="id = first or id = none"))
            rest = await transport.list_runs(RunsAsked(query="id = first or id = none"), cursor=page.next)
            count = await transport.count_runs(RunsAsked(query='id ~ "w-*"'))

            assert (page.runs, page.short, bool(page.next)) == ((), True, True)
            assert ([info.workflow_id for info in rest.runs], rest.short, rest.next) == (["first"], False, "")
            assert count == Count(count=6, approximate=True)

    run(work)
