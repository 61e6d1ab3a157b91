"""Commands on a PostgreSQL database that no engine serves: reads directly, changes with the lease, no password shown."""

import asyncio
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest

from outlast.core import limits
from outlast.core.units import SECOND
from outlast.server.embedded import start
from outlast.server.stores import shown
from outlast.store.base import StoreError
from tests.cli.conftest import Command, rows
from tests.store.cluster import Cluster


@pytest.fixture
def database(cluster: Cluster) -> Generator[str]:
    """The address of a store in which nothing is."""
    with cluster.database() as url:
        yield f"{url}&allow_weak_durability=yes"


class Opened(NamedTuple):
    """An open transaction."""

    pid: int
    end: Callable[[], object]


def name_of(url: str) -> str:
    """Return the name of the database at ``url``."""
    return url.split("/")[3].split("?", maxsplit=1)[0]


@pytest.mark.slow
def test_work_is_started_and_found_without_a_server(database: str, folder: Path, outlast: Command) -> None:
    code, _, err = outlast("workflow", "start", "order", "--id", "order-7", "--store", database)
    assert code == 0, err

    code, out, err = outlast("workflow", "list", "--store", database, "--json")

    assert code == 0, err
    assert [row["id"] for row in rows(out)] == ["order-7"]


def test_doctor_says_that_a_database_may_lose_commits(database: str, folder: Path, outlast: Command) -> None:
    code, out, _ = outlast("doctor", "--store", database)

    assert code != 0
    assert "may lose acknowledged commits: fsync is off" in out


def test_doctor_says_what_of_a_transaction_could_not_be_taken(
    cluster: Cluster, database: str, folder: Path, outlast: Command
) -> None:
    row = "INSERT INTO outlast.intake (namespace, id, form, body, trouble) VALUES ('default', 'a', 'said', '{}', 'no such: x')"
    cluster.run(row, database=name_of(database))

    _, out, _ = outlast("doctor", "--store", database)

    assert "1 could not be taken; the first: no such: x" in out


@pytest.fixture
def opened(cluster: Cluster, database: str) -> Generator[Opened]:
    """A session of somebody else in the same database, in an open transaction that has read something."""
    with asyncio.Runner() as runner:
        session = runner.run(
            asyncpg.connect(cluster.url(name_of(database)), server_settings={"application_name": "report"})
        )
        runner.run(session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ"))
        runner.run(session.execute("SELECT count(*) FROM outlast.tasks"))
        yield Opened(session.get_server_pid(), lambda: runner.run(session.execute("COMMIT")))
        runner.run(session.close())


def test_doctor_says_who_has_had_a_transaction_open_for_long(
    database: str, folder: Path, outlast: Command, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> list[dict[str, str]]:
        lines = rows(outlast("doctor", "--store", database, "--json")[1])
        return [line for line in lines if line["code"] == "vacuum_held_back"]

    assert found() == []  # it may be a report, or a backup
    monkeypatch.setattr("outlast.store.postgres.vacuum.OPEN_MIN", 0)

    (told,) = found()

    assert told["level"] == "problem"
    assert told["fact"].startswith(
        f"session {opened.pid} of outlast (report, idle in transaction) has had a transaction open"
    )
    assert told["remedy"].endswith(f"SELECT pg_terminate_backend({opened.pid})")
    opened.end()
    assert found() == []


@pytest.mark.slow
def test_an_engine_that_has_the_database_is_named_and_its_server_asked_for(
    database: str, folder: Path, outlast: Command
) -> None:
    outlast("workflow", "start", "order", "--id", "order-7", "--store", database)
    engine = start(database, serve=False)
    try:
        _, checkup, _ = outlast("doctor", "--store", database)
        _, why, _ = outlast("why", "order-7", "--store", database)
        asked = [
            outlast(*argv, "--store", database)
            for argv in (
                ("worker", "list"),
                ("workflow", "result", "order-7", "--wait", "1s"),
                ("task", "enqueue", "mail"),
            )
        ]
    finally:
        engine.stop()
    _, later, _ = outlast("doctor", "--store", database)

    assert "has this store; it was not asked" in checkup
    assert "--server URL" in checkup
    assert "no engine" not in checkup
    assert "none runs" not in why
    for code, _, err in asked:
        assert code != 0
        assert "--server URL, or OUTLAST_SERVER" in err
    assert "no engine is running" in later


def test_migrate_finds_a_database_of_this_version_in_order(database: str, folder: Path, outlast: Command) -> None:
    code, out, _ = outlast("migrate", "--check", "--store", database)

    assert code == 0
    assert "nothing to do" in out


def test_a_database_without_a_store_is_said_to_have_none(cluster: Cluster, folder: Path, outlast: Command) -> None:
    name = cluster.empty_database()
    code, _, err = outlast("task", "list", "--store", f"{cluster.url(name)}&allow_weak_durability=yes")
    cluster.drop(name)

    assert code != 0
    assert "holds no store of Outlast" in err


@pytest.mark.parametrize(
    "store",
    [
        "postgresql://me:hush-hush@127.0.0.1:1/work",
        "postgresql://me:a@hush-hush@127.0.0.1:1/work",
        "postgresql://me@127.0.0.1:1/work?password=hush-hush",
    ],
)
def test_a_password_in_an_address_is_never_shown(store: str, folder: Path, outlast: Command) -> None:
    shows = [("config", "show"), ("config", "show", "--json"), ("task", "list"), ("doctor",)]
    said = [outlast(*argv, "--store", store) for argv in shows]

    assert "hush" not in "".join(map(str, said)) + shown(store)
    assert "***" in said[0][1]


@pytest.mark.slow
def test_a_second_engine_waits_for_the_lease_and_names_who_has_it(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SHARD_LEASE", 3 * SECOND)
    first = start(database, serve=False)
    monkeypatch.setattr("outlast.server.assemble.owner_name", lambda: "somebody else")
    try:
        with pytest.raises(StoreError, match="Shard 0 is held by") as caught:
            start(database, serve=False)
    finally:
        first.stop()

    assert caught.value.code == "not_owner"
    start(database, serve=False).stop()  # what stops cleanly gives the shard back
