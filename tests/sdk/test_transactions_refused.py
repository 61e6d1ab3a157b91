"""What cannot be enqueued in a transaction is refused where it is written, with the way out."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
import sqlalchemy
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outlast import App
from outlast.sdk.misuse import BadDeclaration, Misuse, UnknownOption


def refusal(work: Callable[[], object]) -> Misuse:
    with pytest.raises(Misuse) as caught:
        work()
    assert caught.value.remedy
    return caught.value


def test_a_connection_that_is_none_is_refused_with_those_that_are(unstarted: Any) -> None:
    found = refusal(lambda: unstarted.using(tx=object()).enqueue("ann"))

    assert (found.code, "psycopg" in found.remedy) == ("unknown_connection", True)


def test_a_connection_without_a_transaction_is_refused(unstarted: Any) -> None:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        found = refusal(lambda: unstarted.using(tx=connection).enqueue("ann"))

    assert found.code == "no_transaction"


class CommitsEach(sqlite3.Connection):
    """As ``sqlite3.connect(autocommit=True)`` gives one from Python 3.12 on."""

    autocommit = True  # pyright: ignore[reportIncompatibleUnannotatedOverride,reportAssignmentType]


def test_a_connection_that_commits_each_statement_is_refused(unstarted: Any) -> None:
    with contextlib.closing(sqlite3.connect(":memory:", factory=CommitsEach)) as connection:
        assert connection.isolation_level is not None
        found = refusal(lambda: unstarted.using(tx=connection).enqueue("ann"))

    assert found.code == "no_transaction"


@pytest.mark.parametrize("connected", [False, True])
def test_an_engine_of_sqlalchemy_that_commits_each_statement_is_refused(unstarted: Any, connected: bool) -> None:
    engine = sqlalchemy.create_engine("sqlite://", isolation_level="AUTOCOMMIT")

    with engine.connect() if connected else Session(engine) as tx:
        found = refusal(lambda: unstarted.using(tx=tx).enqueue("ann"))

    assert found.code == "no_transaction"
    engine.dispose()


def test_an_asynchronous_engine_of_sqlalchemy_that_commits_each_statement_is_refused(unstarted: Any) -> None:
    async def main() -> Misuse:
        engine = create_async_engine("sqlite+aiosqlite://", isolation_level="AUTOCOMMIT")
        try:
            async with AsyncSession(engine) as session:
                with pytest.raises(Misuse) as caught:
                    await unstarted.using(tx=session).aenqueue("ann")
        finally:
            await engine.dispose()
        return caught.value

    assert asyncio.run(main()).code == "no_transaction"


def test_a_level_of_the_connection_counts_before_that_of_its_engine(unstarted: Any) -> None:
    engine = sqlalchemy.create_engine("sqlite://", isolation_level="AUTOCOMMIT")

    with engine.connect().execution_options(isolation_level="SERIALIZABLE") as tx:
        found = refusal(lambda: unstarted.using(tx=tx).enqueue("ann"))

    assert found.code == "no_outbox"  # the next that is looked at
    engine.dispose()


def test_a_listener_that_begins_is_a_transaction_in_sqlalchemy(unstarted: Any) -> None:
    """Given sqlite3 without transactions of its own, when SQLAlchemy is told to write BEGIN, then there is one."""
    engine = sqlalchemy.create_engine("sqlite://", connect_args={"isolation_level": None})

    with engine.connect() as tx:
        assert refusal(lambda: unstarted.using(tx=tx).enqueue("ann")).code == "no_transaction"

    def begin(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    event.listen(engine, "begin", begin)  # pyright: ignore[reportUnknownMemberType]
    with engine.begin() as tx:
        assert refusal(lambda: unstarted.using(tx=tx).enqueue("ann")).code == "no_outbox"
    engine.dispose()


def test_a_database_without_an_outbox_is_refused_with_how_it_gets_one(unstarted: Any) -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        found = refusal(lambda: unstarted.using(tx=connection).enqueue("ann"))

    assert (found.code, "outboxes=" in found.remedy) == ("no_outbox", True)


def test_an_asynchronous_connection_is_refused_by_a_blocking_verb(unstarted: Any) -> None:
    found = refusal(lambda: unstarted.using(tx=aiosqlite.Connection(lambda: None, 64)).enqueue("ann"))  # type: ignore[arg-type,return-value]

    assert (found.code, "aenqueue" in found.remedy) == ("async_connection", True)


def test_a_key_in_a_transaction_is_refused_as_it_names_no_task(unstarted: Any) -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection, pytest.raises(BadDeclaration, match="key"):
        unstarted.using(tx=connection, key="order-7").enqueue("ann")


def test_a_result_is_not_waited_for_within_the_transaction(unstarted: Any) -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        found = refusal(lambda: asyncio.run(unstarted.using(tx=connection).execute("ann")))

    assert found.code == "waits_for_itself"


@pytest.mark.parametrize(
    "address", ["postgres", "sqlite:///:memory:", "sqlite:shop.db", "mysql://shop", "postgresql://[::1/x", 5]
)
def test_an_address_that_can_be_no_outbox_is_refused(address: Any) -> None:
    with pytest.raises(UnknownOption, match="outbox"):
        App("memory:", outboxes=[address])


@pytest.mark.parametrize("secret", ["?user=me&password=s3cret", "?pass%77ord=s3cret", "?sslpassword=s3c#s3cret"])
def test_a_secret_in_an_address_that_is_refused_is_not_shown(secret: str) -> None:
    with pytest.raises(UnknownOption) as caught:
        App("memory:", outboxes=[f"mysql://me:s3cret@s3cret@h/db{secret}"])

    assert "s3c" not in str(caught.value)
    assert "mysql://me:***@h/db" in str(caught.value)


@pytest.mark.parametrize(
    "written", ["{0}/work.db", "{0}/./work.db", "{0}/../{1}/work.db", "work.db", "./work.db", "link.db"]
)
@pytest.mark.parametrize("is_there", [True, False])
def test_the_engines_own_file_can_be_no_outbox(
    written: str, is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.db").symlink_to(tmp_path / "work.db")
    if is_there:
        (tmp_path / "work.db").touch()

    with pytest.raises(UnknownOption, match="store of the engine"):
        App(f"sqlite:///{tmp_path}/work.db", outboxes=[f"sqlite:///{written.format(tmp_path, tmp_path.name)}"])
