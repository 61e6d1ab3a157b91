"""Namespaces and workers: the requests about them, their replies, and what the engine's own housekeeping asks of a shard.

They cross the wire like ``outlast.core.inputs``: fields are only ever appended, each with a default. ``Housekeeping`` does not
cross it: only the engine itself may forget what has been stored.
"""

from enum import StrEnum

import msgspec

from outlast.core.units import DAY

RETENTION = 30 * DAY


class NamespaceState(StrEnum):
    ACTIVE = "active"
    DELETING = "deleting"  # nothing is taken any more, and what it holds is being removed


class NamespaceSettings(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """What a namespace may do and for how long it keeps. Spans in nanoseconds; 0 for no limit of its own."""

    description: str = ""
    retention: int = RETENTION  # how long closed runs and tasks are kept; 0 for ever
    payload_bytes_max: int = 0  # of one payload; never above the bound of the house
    starts_per_second: float = 0.0  # workflows started and tasks enqueued, together
    starts_burst: int = 0  # how many of them may come at once; 0 for those of one second


class CreateNamespace(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="create_namespace", tag_field="kind", kw_only=True
):
    name: str
    request_id: str
    settings: NamespaceSettings = NamespaceSettings()
    identity: str = ""


class UpdateNamespace(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="update_namespace", tag_field="kind", kw_only=True
):
    """Replace the settings. ``version``: only if they still are those of that version; -1 for any."""

    name: str
    request_id: str
    settings: NamespaceSettings
    version: int = -1
    identity: str = ""


class DeleteNamespace(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="delete_namespace", tag_field="kind", kw_only=True
):
    """Take nothing more for the namespace and remove what it holds. ``confirm`` repeats the name.

    Refused while it has open runs or tasks, unless ``force``: then those are ended.
    """

    name: str
    request_id: str
    confirm: str
    force: bool = False
    version: int = -1
    identity: str = ""


class NamespaceInfo(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="namespace_info", tag_field="kind", kw_only=True
):
    """``version`` rises with every change; it is 0 for a namespace that only the engine's settings name."""

    name: str
    state: NamespaceState = NamespaceState.ACTIVE
    version: int = 0
    settings: NamespaceSettings = NamespaceSettings()
    created_at: int = 0
    updated_at: int = 0
    last_request_id: str = ""


class DescribeWorkers(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="describe_workers", tag_field="kind", kw_only=True
):
    """Ask who polls; ``queue`` for those of one queue."""

    queue: str = ""


class WorkerInfo(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """A worker process, as its last polls said. ``slots`` are free ones; ``polls`` are held for it at this moment."""

    worker: str
    identity: str = ""
    build: str = ""
    queues: tuple[str, ...] = ()
    task_types: tuple[str, ...] = ()
    workflow_types: tuple[str, ...] = ()
    slots: int = 0
    workflow_slots: int = 0
    leases: int = 0
    polls: int = 0
    seen_at: int = 0
    stopped: bool = False


class WorkersInfo(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="workers_info", tag_field="kind", kw_only=True
):
    """Workers heard of since the engine has the shard, those seen last first. ``more``: there are others."""

    items: tuple[WorkerInfo, ...] = ()
    more: bool = False


class Forget(msgspec.Struct, frozen=True, kw_only=True):
    """Remove runs and tasks that closed before an instant, with all that belongs to them. Others are left as they are."""

    runs: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    closed_before: int


class DropNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """Remove a namespace that is being deleted and has nothing left."""

    name: str


class Forgotten(
    msgspec.Struct, frozen=True, array_like=True, gc=False, tag="forgotten", tag_field="kind", kw_only=True
):
    runs: int = 0
    tasks: int = 0


Housekeeping = Forget | DropNamespace
AdminRequest = CreateNamespace | UpdateNamespace | DeleteNamespace | DescribeWorkers
AdminReply = NamespaceInfo | WorkersInfo | Forgotten
