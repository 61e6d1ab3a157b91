"""The table in which callers' transactions leave tasks and runs in the engine's own PostgreSQL, and its SQL functions."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

import asyncpg
import pytest
import uuid_utils

from outlast.core.inputs import EnqueueTask, StartWorkflow
from outlast.protocol import intake
from outlast.protocol.intake import IntakeRow, item_of
from outlast.protocol.intake_sql import statements_of
from outlast.store.migrate import migrations_in
from outlast.store.postgres import intake as of_postgres
from outlast.store.postgres.store import PostgresStore
from tests.store.cluster import Cluster

T = TypeVar("T")
ROW = "INSERT INTO outlast.intake (namespace, id, form, body) VALUES ('{}', '{}', 'request', '{}')"


@dataclass
class Database:
    """A database with our schema, and its open store."""

    cluster: Cluster
    url: str

    @property
    def name(self) -> str:
        return self.url.split("/")[3].split("?")[0]

    def run(self, *statements: str) -> list[Any]:
        return self.cluster.run(*statements, database=self.name)

    def by_store(self, work: Callable[[PostgresStore], Awaitable[T]]) -> T:
        async def opened() -> T:
            store = PostgresStore(self.url, allow_weak=True)
            await store.open()
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(opened())

    def offered(self, *without: str, rows_max: int = 100) -> list[IntakeRow]:
        return list(self.by_store(lambda store: store.intake.offer(rows_max, without=without)))

    def settle(self, *taken: int, troubles: dict[int, str] | None = None) -> None:
        self.by_store(lambda store: store.intake.settle(taken, troubles or {}))


@pytest.fixture
def database(cluster: Cluster) -> Generator[Database]:
    with cluster.database() as url:
        yield Database(cluster, url)


def test_rows_are_offered_in_order_and_again_until_they_are_settled(database: Database) -> None:
    database.run(*(ROW.format("default", name, name) for name in "cab"))

    first = database.offered()
    second = database.offered(rows_max=2)

    assert [row.body for row in first] == [b"c", b"a", b"b"]
    assert [row.place for row in second] == [row.place for row in first[:2]]
    assert all(row.waited > 0 for row in second)
    database.settle(first[0].place, troubles={first[1].place: "no\0 good"})
    assert [row.body for row in database.offered()] == [b"b"]
    assert [tuple(row) for row in database.run("SELECT id, trouble FROM outlast.intake ORDER BY place")] == [
        ("a", "no good"), ("b", ""),
    ]  # fmt: skip


def test_what_has_not_committed_is_not_offered_and_what_comes_late_is(database: Database) -> None:
    async def main() -> tuple[list[bytes], list[bytes]]:
        store = PostgresStore(database.url, allow_weak=True)
        await store.open()
        early = await asyncpg.connect(database.url)
        transaction = early.transaction()
        await transaction.start()
        await early.execute(ROW.format("default", "early", "early"))
        database_run = await asyncpg.connect(database.url)
        await database_run.execute(ROW.format("default", "late", "late"))
        before = await store.intake.offer(100, without=())
        await store.intake.settle([row.place for row in before], {})
        await transaction.commit()
        after = await store.intake.offer(100, without=())
        for session in (early, database_run):
            await session.close()
        await store.close()
        return [row.body for row in before], [row.body for row in after]

    assert asyncio.run(main()) == ([b"late"], [b"early"])


def test_namespaces_that_are_held_back_are_passed_over(database: Database) -> None:
    database.run(ROW.format("slow", "a", "a"), ROW.format("default", "b", "b"))

    assert [row.body for row in database.offered("slow", "other")] == [b"b"]


def test_rows_are_offered_up_to_so_many_bytes_and_at_least_one(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_postgres, "READ_BYTES", 10)
    database.run(*(ROW.format("default", name, name * 8) for name in "abc"))

    assert [row.body for row in database.offered()] == [b"a" * 8, b"b" * 8]


def test_rows_are_found_without_a_join_which_a_planner_may_make_the_square_of_them(database: Database) -> None:
    async def main() -> str:
        session = await asyncpg.connect(database.url)
        offer = statements_of("outlast", which="<> ALL($4::text[])").offer
        lines = await session.fetch(f"EXPLAIN {offer}", 0, 10, 1000, ["slow"])
        await session.close()
        return "\n".join(line[0] for line in lines)

    plan = asyncio.run(main())

    assert "Index Scan" in plan or "Bitmap" in plan or "Seq Scan" in plan
    assert "Join" not in plan
    assert "Nested Loop" not in plan


def test_a_row_that_somebody_else_hands_over_is_passed_over(database: Database) -> None:
    database.run(ROW.format("default", "a", "a"), ROW.format("default", "b", "b"))

    async def main() -> list[bytes]:
        other = await asyncpg.connect(database.url)
        async with other.transaction():
            await other.execute("SELECT 1 FROM outlast.intake WHERE id = 'a' FOR UPDATE")
            store = PostgresStore(database.url, allow_weak=True)
            await store.open()
            rows = await store.intake.offer(100, without=())
            await store.close()
        await other.close()
        return [row.body for row in rows]

    assert asyncio.run(main()) == [b"b"]


def test_a_body_that_no_engine_would_take_cannot_be_written(database: Database) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        database.run(
            "INSERT INTO outlast.intake (namespace, id, form, body) VALUES ('d', 'a', 'r', repeat('x', 4194305)::bytea)"
        )


def test_a_store_of_the_version_before_gets_the_table(cluster: Cluster) -> None:
    first = migrations_in("outlast.store.postgres")[0]
    name = cluster.empty_database()
    before = Database(cluster, cluster.url(name))

    async def make() -> None:
        session = await asyncpg.connect(before.url)
        await session.execute(first.sql)
        await session.execute(
            "INSERT INTO outlast.migrations (number, name, checksum) VALUES (1, $1, $2)", first.name, first.checksum
        )
        await session.execute(
            "INSERT INTO outlast.meta (incarnation, timeline, cluster, number) SELECT 1, 1, "
            "(SELECT system_identifier FROM pg_control_system()), "
            "(SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        await session.close()

    asyncio.run(make())
    assert before.offered() == []
    cluster.drop(name)


# --- SQL functions ----------------------------------------------------------------------------------------------------


def test_an_id_of_sql_sorts_by_time_like_those_of_the_sdk(database: Database) -> None:
    earlier = str(uuid_utils.uuid7())
    ((made,),) = database.run("SELECT outlast.new_id()")

    assert uuid_utils.UUID(made).version == 7
    assert earlier[:13] <= made[:13] <= str(uuid_utils.uuid7())[:13]


def test_sql_enqueues_a_task_with_all_its_options(database: Database) -> None:
    ((id,),) = database.run(
        "SELECT outlast.enqueue('thumbnail', '{\"url\": \"s3://a\"}', queue => 'images', delay => '90 s', priority => 1, "
        "timeout => '1 minute', max_attempts => 2, tags => '{\"plan\": \"pro\"}')"
    )

    (row,) = database.offered()
    item = item_of(row)
    assert isinstance(item, EnqueueTask)
    assert (item.task_id, item.key, item.type, item.queue, item.priority) == (id, id, "thumbnail", "images", 1)
    assert (item.delay, item.start_to_close, item.tags) == (90_000_000_000, 60_000_000_000, {"plan": "pro"})
    assert item.retry is not None
    assert item.retry.attempts_max == 2
    assert [payload.data for payload in item.input] == [b'{"url": "s3://a"}']
    assert item.identity == f"outlast@{database.name}"


def test_sql_starts_a_workflow_with_an_id_of_its_own(database: Database) -> None:
    ((id,),) = database.run("SELECT outlast.start('order', '[7]', id => 'order-7', if_open => 'return_existing')")

    (row,) = database.offered()
    item = item_of(row)
    assert isinstance(item, StartWorkflow)
    assert (id, item.workflow_id, item.type, item.if_open.value) == ("order-7", "order-7", "order", "return_existing")
    assert item.run_id != item.request_id


def test_a_trigger_enqueues_in_the_transaction_that_fires_it(database: Database) -> None:
    database.run(
        "CREATE TABLE IF NOT EXISTS public.paid (id integer)",
        "CREATE OR REPLACE FUNCTION public.tell() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM outlast.enqueue('mail', to_json(NEW.id)); RETURN NEW; END $$",
        "CREATE OR REPLACE TRIGGER told AFTER INSERT ON public.paid FOR EACH ROW EXECUTE FUNCTION public.tell()",
        "INSERT INTO public.paid VALUES (7)",
    )

    (row,) = database.offered()
    assert [payload.data for payload in item_of(row).input] == [b"7"]


@pytest.mark.parametrize(
    "call",
    [
        "enqueue('')",
        "enqueue(NULL)",
        "enqueue('mail', NULL)",
        "enqueue('mail', queue => '')",
        "enqueue('mail', id => '')",
        "enqueue('mail', namespace => repeat('x', 64))",
        "enqueue('mail', delay => '-1 s')",
        "enqueue('mail', priority => 9)",
        "enqueue('mail', timeout => '0')",
        "enqueue('mail', max_attempts => -1)",
        "enqueue('mail', to_json(repeat('x', 2097152)))",
        "start('order', if_open => 'maybe')",
        "start('order', if_closed => NULL)",
    ],
)
def test_what_sql_asks_in_vain_is_refused_in_its_own_transaction(call: str, database: Database) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError) as caught:
        database.run(f"SELECT outlast.{call}")

    assert caught.value.hint
    assert database.offered() == []


def test_a_user_needs_only_the_right_to_write_rows(database: Database) -> None:
    database.run("DROP ROLE IF EXISTS clerk", "CREATE ROLE clerk LOGIN")
    database.run("GRANT USAGE ON SCHEMA outlast TO clerk", "GRANT INSERT ON outlast.intake TO clerk")

    database.cluster.run("SELECT outlast.enqueue('mail')", database=database.name, user="clerk")

    assert len(database.offered()) == 1
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        database.cluster.run("SELECT * FROM outlast.tasks", database=database.name, user="clerk")
    database.run("DROP OWNED BY clerk", "DROP ROLE clerk")


def test_the_bound_of_a_body_is_within_that_of_the_table() -> None:
    assert intake.INTAKE_BODY_BYTES_MAX <= 4_194_304
