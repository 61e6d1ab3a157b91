"""Namespaces of a shard: made, changed and deleted in order with everything else, under its fence."""

from outlast.core import limits
from outlast.core.admin import (
    CreateNamespace,
    DeleteNamespace,
    DropNamespace,
    Forgotten,
    NamespaceInfo,
    NamespaceState,
    UpdateNamespace,
)
from outlast.core.counters import RUNS, counted_by, counter_of, is_count
from outlast.core.errors import Conflict, NotFound
from outlast.core.replies import RunStatus, TaskState
from outlast.core.shard.state import Shard
from outlast.core.task import TERMINAL

DEFAULT = "default"


def create(shard: Shard, request: CreateNamespace) -> NamespaceInfo:
    """Make a namespace. The same request again gives the same answer.

    Raises:
        Conflict: there is one of this name, or there are as many as may be.
    """
    known = shard.namespaces.get(request.name)
    if known is not None:
        if known.last_request_id == request.request_id:
            return known
        being = "is being deleted" if known.state is NamespaceState.DELETING else "exists"
        raise Conflict(
            "namespace_exists", f'The namespace "{request.name}" {being}.', remedy="Choose another name, or update it."
        )
    if len(shard.namespaces) >= limits.NAMESPACES_MAX:
        raise Conflict(
            "limit_exceeded",
            f"There are {limits.NAMESPACES_MAX:,} namespaces, as many as may be.",
            remedy="Delete one that is not needed.",
        )
    return _write(
        shard,
        NamespaceInfo(
            name=request.name, version=1, settings=request.settings, created_at=shard.now, updated_at=shard.now,
            last_request_id=request.request_id,
        ),
    )  # fmt: skip


def update(shard: Shard, request: UpdateNamespace) -> NamespaceInfo:
    """Replace the settings of a namespace; one that only the engine's settings name gets a row of its own.

    Raises:
        Conflict: it is being deleted, or its version is another.
    """
    known = _changeable(shard, request.name, request.request_id, request.version)
    if known.last_request_id == request.request_id:
        return known
    return _write(
        shard,
        NamespaceInfo(
            name=known.name, version=known.version + 1, settings=request.settings,
            created_at=known.created_at or shard.now, updated_at=shard.now, last_request_id=request.request_id,
        ),
    )  # fmt: skip


def delete(shard: Shard, request: DeleteNamespace) -> NamespaceInfo:
    """Begin to delete a namespace.

    Raises:
        Conflict: it is the default one, it has open work and ``force`` is not given, or its version is another.
    """
    if request.name == DEFAULT:
        raise Conflict(
            "namespace_in_use", "The default namespace cannot be deleted.", remedy="Shorten its retention instead."
        )
    known = _changeable(shard, request.name, request.request_id, request.version)
    if known.last_request_id == request.request_id:
        return known
    runs, tasks = open_work(shard, request.name)
    if (runs or tasks) and not request.force:
        raise Conflict(
            "namespace_in_use",
            f'The namespace "{request.name}" has {runs:,} open workflows and {tasks:,} open tasks.',
            remedy="End them first, or delete with force, which ends them.",
            open_workflows=str(runs),
            open_tasks=str(tasks),
        )
    return _write(
        shard,
        NamespaceInfo(
            name=known.name, state=NamespaceState.DELETING, version=known.version + 1, settings=known.settings,
            created_at=known.created_at, updated_at=shard.now, last_request_id=request.request_id,
        ),
    )  # fmt: skip


def is_ending(shard: Shard, namespace: str) -> bool:
    """Return whether a namespace is being deleted, or is gone since this owner has the shard."""
    known = shard.namespaces.get(namespace)
    return known.state is NamespaceState.DELETING if known is not None else namespace in shard.namespaces_gone


def require_active(shard: Shard, namespace: str) -> None:
    """Refuse new work for a namespace that is being deleted or gone.

    The door may have let it in before it heard of that, and an input that waited for rows is applied long after.

    Raises:
        NotFound: it is being deleted.
    """
    if is_ending(shard, namespace):
        raise NotFound(
            "namespace_not_found",
            f'The namespace "{namespace}" is being deleted.',
            remedy="Use another one, or make it anew when it is gone.",
        )


def drop(shard: Shard, request: DropNamespace) -> Forgotten:
    """Remove the row of a namespace that is being deleted.

    Raises:
        NotFound: there is no such namespace any more.
        Conflict: it is not being deleted, or still holds runs or tasks.
    """
    known = shard.namespaces.get(request.name)
    if known is None:
        raise NotFound("namespace_not_found", f'There is no namespace "{request.name}".')
    left = sum(_held(shard, request.name).values())
    if known.state is not NamespaceState.DELETING or left:
        raise Conflict("namespace_in_use", f'The namespace "{request.name}" holds {left:,} runs and tasks.')
    del shard.namespaces[request.name]
    shard.namespaces_gone[request.name] = None
    while len(shard.namespaces_gone) > limits.NAMESPACES_MAX:
        shard.namespaces_gone.popitem(last=False)
    shard.gather.namespaces[request.name] = None
    return Forgotten()


def open_work(shard: Shard, namespace: str) -> tuple[int, int]:
    """Return how many runs and how many tasks of a namespace are open."""
    runs = tasks = 0
    for name, value in _held(shard, namespace).items():
        of, _, state = counted_by(name)
        if of == RUNS:
            runs += value if state == RunStatus.RUNNING else 0
        elif TaskState(state) not in TERMINAL:
            tasks += value
    return runs, tasks


def _held(shard: Shard, namespace: str) -> dict[str, int]:
    """Return the counters of runs and tasks of a namespace, with what this batch moves."""
    held = {name: value for (of, name), value in shard.counters.items() if of == namespace and is_count(name)}
    for (of, queue, state), by in shard.gather.moved.items():
        if of == namespace:
            name = counter_of(queue, state)
            held[name] = held.get(name, 0) + by
    return held


def _changeable(shard: Shard, name: str, request_id: str, version: int) -> NamespaceInfo:
    known = shard.namespaces.get(name) or NamespaceInfo(name=name)
    if known.last_request_id == request_id:
        return known
    if known.state is NamespaceState.DELETING:
        raise Conflict("namespace_in_use", f'The namespace "{name}" is being deleted.', remedy="Wait until it is gone.")
    if version not in {-1, known.version}:
        raise Conflict(
            "precondition_failed",
            f'The namespace "{name}" has version {known.version}; the change is for version {version}.',
            remedy="Read it again, and change what it is now.",
        )
    return known


def _write(shard: Shard, info: NamespaceInfo) -> NamespaceInfo:
    shard.namespaces_gone.pop(info.name, None)
    shard.namespaces[info.name] = info
    shard.gather.namespaces[info.name] = info
    return info
