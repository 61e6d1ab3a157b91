"""Commands on a PostgreSQL database that no engine serves: reads directly, changes with the lease, no password shown."""

from collections.abc import Generator
from pathlib import Path

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


def test_a_password_in_an_address_is_never_shown(folder: Path, outlast: Command) -> None:
    store = "postgresql://me:hush-hush@127.0.0.1:1/work"

    said = [*outlast("config", "show", "--store", store), *outlast("task", "list", "--store", store)]

    assert "hush" not in "".join(map(str, said))
    assert "postgresql://me:***@127.0.0.1:1/work" in shown(store)


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
