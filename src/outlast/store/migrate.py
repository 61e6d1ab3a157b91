"""The one runner of migrations: numbered files, forward only, each in a transaction, with its checksum kept.

A database remembers which files made it. A file that has changed since, or a number that this version does not have, is
refused before anything is touched.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, Protocol

from outlast.store.base import StoreError

NAME: Final = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")

BOOKKEEPING: Final = """
CREATE TABLE migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at INTEGER NOT NULL -- seconds since 1970, by the database's clock
) STRICT;
CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('incarnation', 1);
"""


@dataclass(slots=True, frozen=True, kw_only=True)
class Migration:
    """One step of the schema."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """The SHA-256 of the statements, without regard to line ends."""
        return hashlib.sha256("\n".join(self.sql.splitlines()).encode()).hexdigest()

    @property
    def does(self) -> str:
        """What it does, in the first sentence of its file."""
        words: list[str] = []
        for line in self.sql.splitlines():
            said = line.removeprefix("--").strip()
            if not line.startswith("--") or not said:
                break
            words.append(said)
        return f"{' '.join(words).partition('. ')[0].removesuffix('.')}."


class Database(Protocol):
    """What the runner asks of a database."""

    def applied(self) -> dict[int, str]:
        """Return the checksums of the migrations it has, by number; empty for a new database."""
        ...

    def run(self, script: str, *, record: Migration) -> None:
        """Run ``script`` and record the migration, in one transaction."""
        ...


def migrations_in(package: str) -> list[Migration]:
    """Return the migrations of a store's package, in order; the numbers are dense from 1."""
    found: list[Migration] = []
    for entry in files(package).joinpath("migrations").iterdir():
        if match := NAME.match(entry.name):
            sql = entry.read_text(encoding="utf-8")
            found.append(Migration(number=int(match[1]), name=match[2], sql=sql))
    found.sort(key=lambda migration: migration.number)
    return found


def migrate(
    database: Database, migrations: list[Migration], *, keep_copy: Callable[[int], None] | None = None
) -> list[int]:
    """Bring ``database`` to the newest schema; return the numbers that were run.

    ``keep_copy`` is called with the first number before an existing database is changed. Raises StoreError: "store_newer"
    for a database of a newer version, "store_damaged" for one that other files than ours have made.
    """
    applied = database.applied()
    missing = missing_of(applied, migrations)
    if missing and applied and keep_copy is not None:
        keep_copy(missing[0].number)
    for migration in missing:
        script = migration.sql if migration.number > 1 else BOOKKEEPING + migration.sql
        database.run(script, record=migration)
    return [migration.number for migration in missing]


def missing_of(applied: dict[int, str], migrations: list[Migration]) -> list[Migration]:
    """Return those of ``migrations`` that a database with ``applied`` lacks, in order. Raises StoreError as ``migrate``."""
    known = {migration.number: migration for migration in migrations}
    _refuse_newer(applied, known)
    for number, checksum in sorted(applied.items()):
        if known[number].checksum != checksum:
            raise StoreError(
                "store_damaged",
                f"Migration {number} of the database is not the one of this version.",
                remedy="Start the version that made the database, or restore the last backup.",
            )
    return [migration for migration in migrations if migration.number not in applied]


def _refuse_newer(applied: dict[int, str], known: dict[int, Migration]) -> None:
    newest, ours = max(applied, default=0), max(known, default=0)
    if newest > ours:
        raise StoreError(
            "store_newer",
            f"The database has schema {newest}; this version of Outlast knows schemas up to {ours}.",
            remedy="Start a newer version of Outlast, or restore a backup made before the upgrade.",
        )
