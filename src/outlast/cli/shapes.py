"""What only the command line prints with ``--json``; the rest is what REST gives (``outlast.gateway.given``).

One struct per kind of object, whose JSON Schema is a promise to scripts: fields are only ever added.
"""

import msgspec

from outlast.gateway import given
from outlast.gateway.given import AttemptOut, EventOut, NamespaceOut, TaskOut, When, WhyOut, WorkflowOut


class StartOut(msgspec.Struct, kw_only=True):
    """``started`` is false when an open run was returned; ``replayed`` when the same key had started it before."""

    id: str
    run_id: str
    started: bool
    replayed: bool
    dry_run: bool = False


class EnqueueOut(msgspec.Struct, kw_only=True):
    """``error`` says why an item of a file was not taken; then ``id`` is empty."""

    id: str
    replayed: bool
    dry_run: bool = False
    error: str = ""


class ChangeOut(msgspec.Struct, kw_only=True):
    """``changed`` is false when there was nothing to do; ``error`` says why it was refused, by its code."""

    id: str
    did: str
    changed: bool
    dry_run: bool = False
    error: str = ""


class StepOut(msgspec.Struct, kw_only=True):
    event_id: int
    kind: str
    name: str
    state: str
    began_at: When
    ended_at: When
    attempt: int
    detail: str


class WorkflowShown(msgspec.Struct, kw_only=True):
    """``events`` is filled with --raw, ``steps`` without."""

    workflow: WorkflowOut
    steps: tuple[StepOut, ...]
    events: tuple[EventOut, ...]


class TaskShown(msgspec.Struct, kw_only=True):
    task: TaskOut
    attempts: tuple[AttemptOut, ...]


class WatchedOut(msgspec.Struct, kw_only=True):
    """One piece of news: an ``event`` of a workflow, or a ``task`` as it is now. The other one is null."""

    event: EventOut | None = None
    task: TaskOut | None = None


class WhyShown(msgspec.Struct, kw_only=True):
    """What something waits for, where in the code, what came before, and what helps; ``lines`` is that for people."""

    why: WhyOut
    at: tuple[str, ...]
    before: tuple[str, ...]
    helps: tuple[str, ...]
    lines: tuple[str, ...]


class NamespaceChangeOut(msgspec.Struct, kw_only=True):
    """A namespace as it is after a change, or with ``dry_run`` as it would be."""

    namespace: NamespaceOut
    dry_run: bool = False


class SettingOut(msgspec.Struct, kw_only=True):
    """A secret's value is masked."""

    name: str
    value: str
    origin: str
    reloadable: bool
    secret: bool


class FindingOut(msgspec.Struct, kw_only=True):
    """``level`` is "ok", "note" or "problem"; ``code`` never changes its meaning."""

    code: str
    area: str
    level: str
    fact: str
    remedy: str


class WrittenOut(msgspec.Struct, kw_only=True):
    """One file of a new project."""

    path: str
    dry_run: bool = False


class MoveOut(msgspec.Struct, kw_only=True):
    """``did``: "move", "finish" (one that was cut off), "nothing" (it was moved before), "take_back". ``rows`` by kind.

    ``incarnation`` is what work goes on under: workers of an earlier one are refused.
    """

    source: str
    target: str
    did: str
    rows: dict[str, int]
    payloads: int
    incarnation: int
    dry_run: bool = False


class BackupOut(msgspec.Struct, kw_only=True):
    """``size`` is that of the file in bytes, without the payloads beside it."""

    store: str
    backup: str
    rows: dict[str, int]
    payloads: int
    size: int
    dry_run: bool = False


class RestoreOut(msgspec.Struct, kw_only=True):
    """``verified``: the backup said what must be in it, and it was. ``before``: what the replaced file is kept as."""

    backup: str
    store: str
    rows: dict[str, int]
    payloads: int
    incarnation: int
    before: str
    verified: bool
    dry_run: bool = False


class PendingOut(msgspec.Struct, kw_only=True):
    """A migration that the store lacks, and what it does."""

    number: int
    name: str
    does: str


class MigrationOut(msgspec.Struct, kw_only=True):
    """The schema that the store had, and the one it has now or, with --plan, --check or --dry-run, would have.

    ``pending`` are the migrations between the two.
    """

    store: str
    before: int
    after: int
    copy: str
    dry_run: bool = False
    pending: tuple[PendingOut, ...] = ()


class VersionOut(msgspec.Struct, kw_only=True):
    version: str
    python: str
    sqlite: str
    schema: int


def schema_of(name: str) -> str:
    """Return the JSON Schema of the struct ``name``, of this module or of what REST gives, as text."""
    schema = msgspec.json.schema(globals().get(name) or getattr(given, name))
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"
