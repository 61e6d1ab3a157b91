"""Rows that a caller's own transaction left for an engine, and how they are handed over: each comes to be once.

A row is a request with its ids in it, so that a repeat of it is known. Before a row goes out it is noted durably that it does;
with that the caller's own commit, which came before, is durable too, whatever settings it was made with. After the answer the
row is dropped. Whoever stops in between hands it over again, and the engine knows it, if it is not too long ago.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from outlast.core.errors import Invalid, Refusal, TooLarge
from outlast.core.inputs import (
    DescribeTask,
    DescribeWorkflow,
    EnqueueTask,
    EnqueueTasks,
    IfClosed,
    IfOpen,
    Request,
    StartWorkflow,
    StartWorkflows,
)
from outlast.core.limits import (
    BATCH_ITEMS_MAX,
    IDEMPOTENCY_WINDOW,
    INTAKE_BODY_BYTES_MAX,
    NAME_BYTES_MAX,
    REQUEST_BYTES_MAX,
    SPAN_MAX,
    START_TO_CLOSE,
)
from outlast.core.payload import Payload
from outlast.core.replies import Refused, Reply, TaskInfo, TasksEnqueued, WorkflowInfo, WorkflowsStarted
from outlast.core.retry import RetryPolicy
from outlast.core.units import SECOND
from outlast.core.validation import measure, require_small_payloads, validate
from outlast.protocol.errors import refused

Item = EnqueueTask | StartWorkflow
Ask = Callable[[Request, str], Awaitable[Reply]]
"""Send a request in a namespace and return the reply; a refusal comes as one."""

REQUEST: Final = "request"  # the form of rows that the SDK writes: the request itself, as MessagePack
SAID: Final = "said"  # the form of rows that SQL functions write: JSON, as ``Said``
READ_MAX: Final = 1000  # rows of one hand-over
READ_BYTES: Final = 16 * 1024 * 1024  # of their bodies, about
ROOM: Final = REQUEST_BYTES_MAX // 2  # bytes of one request of many
DOUBT_AFTER: Final = IDEMPOTENCY_WINDOW / SECOND / 2
"""Seconds after which a row that may have been handed over is asked about first: the engine might have forgotten it."""

# What is wrong with who asks, and not with what is asked: the rows stay as they are.
_OF_THE_ASKER: Final = frozenset({"denied", "unauthenticated", "wrong_namespace"})
# Those of one namespace for a while. Nothing is recorded with them, but what an earlier hand-over did they do not say: they are
# said before ids are looked at. So a row that was once noted as handed over stays so.
_OF_A_BUSY_NAMESPACE: Final = frozenset({"busy", "rate_limited"})
_REQUEST_ENCODER: Final = msgspec.msgpack.Encoder()
_REQUEST_DECODER: Final[msgspec.msgpack.Decoder[Item]] = msgspec.msgpack.Decoder(Item)


class IntakeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A task to make or a run to start. ``waited``: seconds since it was first handed over, 0 for never before."""

    place: int
    namespace: str
    form: str
    body: bytes
    waited: float = 0.0


class Intake(Protocol):
    """Where rows are kept."""

    async def offer(self, rows_max: int, *, without: Collection[str]) -> Sequence[IntakeRow]:
        """Return the oldest rows that nothing is wrong with, noted durably as handed over; none of namespaces ``without``."""
        ...

    async def settle(self, taken: Sequence[int], troubles: Mapping[int, str]) -> None:
        """Drop the rows at the places ``taken``, set others aside with what is wrong with them."""
        ...


class Said(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an SQL function was given. Spans in seconds; ``input`` is an array of arguments, or the only one."""

    kind: str
    id: str
    type: str
    input: msgspec.Raw = msgspec.Raw(b"[]")
    queue: str = "default"
    delay: float = 0
    tags: dict[str, str] | None = None
    identity: str = ""
    priority: int = 3
    timeout: float = 0
    max_attempts: int | None = None
    run_id: str = ""
    request_id: str = ""
    if_open: IfOpen = IfOpen.FAIL
    if_closed: IfClosed = IfClosed.ALLOW


_SAID_DECODER: Final = msgspec.json.Decoder(Said)
_ARGUMENTS: Final = msgspec.json.Decoder(tuple[msgspec.Raw, ...])


def body_of(item: Item) -> bytes:
    """Return the stored form of a request. Raises Invalid or TooLarge for one that the engine would not take."""
    check(item)
    return _REQUEST_ENCODER.encode(item)


def check(item: Item) -> None:
    """Raise Invalid or TooLarge unless the engine's door would let ``item`` in."""
    size = measure(item)
    validate(item)
    require_small_payloads(item)
    if size > INTAKE_BODY_BYTES_MAX:
        raise TooLarge(
            "body_too_large",
            f"The request has {size:,} bytes; {INTAKE_BODY_BYTES_MAX:,} are allowed in a transaction.",
            remedy="Keep large data in storage of your own and pass a reference to it.",
        )


def item_of(row: IntakeRow) -> Item:
    """Return the request of a row, which the engine's door has still to look at. Raises Invalid for one that is none."""
    try:
        if row.form == REQUEST:
            item = _REQUEST_DECODER.decode(row.body)
        elif row.form == SAID:
            item = _item_said(_SAID_DECODER.decode(row.body))
        else:
            raise Invalid(
                "invalid_request",
                f"The row has the form {row.form!r}, which this version does not know.",
                remedy="Start the version that wrote it, or a newer one.",
            )
    except Invalid:
        raise
    except Exception as error:  # noqa: BLE001 - as one that is nested too deeply: all of it is the trouble of this row alone
        raise Invalid(
            "invalid_request",
            f"The row cannot be read: {type(error).__name__}: {error}.",
            remedy="Write it anew.",
        ) from None
    return item


def _item_said(said: Said) -> Item:
    whole = bytes(said.input).strip()
    arguments = _ARGUMENTS.decode(whole) if whole.startswith(b"[") else (msgspec.Raw(whole),)
    payloads = tuple(Payload("json/plain", bytes(argument)) for argument in arguments)
    if said.kind == "task":
        return EnqueueTask(
            task_id=said.id,
            key=said.id,
            type=said.type,
            queue=said.queue,
            input=payloads,
            delay=_span(said.delay),
            start_to_close=_span(said.timeout) or START_TO_CLOSE,
            priority=said.priority,
            retry=None if said.max_attempts is None else RetryPolicy(attempts_max=said.max_attempts),
            tags=said.tags,
            identity=said.identity,
        )
    if said.kind == "workflow":
        return StartWorkflow(
            workflow_id=said.id,
            run_id=said.run_id,
            request_id=said.request_id,
            type=said.type,
            queue=said.queue,
            input=payloads,
            delay=_span(said.delay),
            if_open=said.if_open,
            if_closed=said.if_closed,
            tags=said.tags,
            identity=said.identity,
        )
    raise Invalid("invalid_request", f"The row is of the kind {said.kind[:NAME_BYTES_MAX]!r}.", remedy="Write it anew.")


def _span(seconds: float) -> int:
    """Return nanoseconds; what is out of range stays so, for the check that follows."""
    return int(max(-1.0, min(seconds, 2.0 * SPAN_MAX / SECOND)) * SECOND)


@dataclass(slots=True)
class HandedOver:
    """What became of some rows, by place.

    ``busy``: namespaces that take nothing at the moment, and why. ``later``: why nothing can be handed over now, "" if it can.
    """

    offered: int = 0
    taken: list[int] = field(default_factory=list[int])
    troubles: dict[int, str] = field(default_factory=dict[int, str])
    busy: dict[str, str] = field(default_factory=dict[str, str])
    later: str = ""

    @property
    def more(self) -> bool:
        """Whether there may be further rows that can be handed over at once."""
        return self.offered > 0 and not self.later


async def hand_over(intake: Intake, ask: Ask, *, without: Collection[str] = ()) -> HandedOver:
    """Hand the oldest rows over, in order within each namespace and kind, and settle what was answered.

    Raises what ``intake`` raises; Refusal when it is the asker who is refused. Rows without an answer stay as they are.
    """
    rows = await intake.offer(READ_MAX, without=without)
    done = HandedOver(offered=len(rows))
    if not rows:
        return done
    try:
        for group in _groups(rows, done):
            if group.namespace in done.busy:
                continue
            await _ask_for(group, ask, done)
            if done.later:
                break
    finally:
        if done.taken or done.troubles:
            await intake.settle(done.taken, done.troubles)
    return done


@dataclass(slots=True)
class _Group:
    """Rows that go in one request."""

    namespace: str
    items: list[Item]
    places: list[int]
    doubtful: bool = False
    size: int = 0


def _groups(rows: Sequence[IntakeRow], done: HandedOver) -> list[_Group]:
    open_groups: dict[tuple[str, type], _Group] = {}
    groups: list[_Group] = []
    for row in rows:
        try:
            item = item_of(row)
        except Invalid as fault:
            _note(refused(fault), row.namespace, row.place, done)
            continue
        if row.waited > DOUBT_AFTER:
            groups.append(_Group(row.namespace, [item], [row.place], doubtful=True))
            continue
        key = (row.namespace, type(item))
        group = open_groups.get(key)
        if group is None or len(group.items) >= BATCH_ITEMS_MAX or group.size + len(row.body) > ROOM:
            group = open_groups[key] = _Group(row.namespace, [], [])
            groups.append(group)
        group.items.append(item)
        group.places.append(row.place)
        group.size += len(row.body)
    return groups


async def _ask_for(group: _Group, ask: Ask, done: HandedOver) -> None:
    """Hand one group over and note what became of it."""
    if group.doubtful:
        await _ask_about(group, ask, done)
        return
    reply = await ask(_request_of(group.items), group.namespace)
    if isinstance(reply, TasksEnqueued | WorkflowsStarted):
        for place, item in zip(group.places, reply.items, strict=True):
            if not isinstance(item, Refused):
                done.taken.append(place)
            else:
                _note(item, group.namespace, place, done)
    elif len(group.items) == 1 or _is_of_all(reply):
        for place in group.places:
            _note(reply, group.namespace, place, done)
    else:
        # One of them may be what the rest is refused for.
        for alone, place in zip(group.items, group.places, strict=True):
            await _ask_for(_Group(group.namespace, [alone], [place]), ask, done)
            if done.later or done.busy:
                return


def _request_of(items: Sequence[Item]) -> EnqueueTasks | StartWorkflows:
    tasks = tuple(item for item in items if isinstance(item, EnqueueTask))
    return (
        EnqueueTasks(items=tasks)
        if tasks
        else StartWorkflows(items=tuple(item for item in items if isinstance(item, StartWorkflow)))
    )


async def _ask_about(group: _Group, ask: Ask, done: HandedOver) -> None:
    """Find out what became of a row that was handed over so long ago that the engine may have forgotten it."""
    (item,), (place,) = group.items, group.places
    reply = await ask(_about(item), group.namespace)
    if isinstance(reply, Refused) and reply.code in {"task_not_found", "workflow_not_found"}:
        done.troubles[place] = (
            f"It was handed over more than {DOUBT_AFTER / 3600:g} hours ago and its answer was lost; the engine does not know it "
            "now, so that it was either never taken or has ended and was forgotten. Look at what it was to do, then drop it, or "
            "set offered_at to null and trouble to '' to have it handed over again."
        )
    elif isinstance(reply, Refused):
        _note(reply, group.namespace, place, done)
    elif _is_of(reply, item):
        done.taken.append(place)
    else:
        done.troubles[place] = (
            f"It was handed over more than {DOUBT_AFTER / 3600:g} hours ago and its answer was lost; under its id the engine has "
            "another one now, of another type. Look at both, then drop it, or write it anew under another id."
        )


def _about(item: Item) -> DescribeTask | DescribeWorkflow:
    if isinstance(item, EnqueueTask):
        return DescribeTask(task_id=item.task_id)
    workflow_id = item.workflow_id or f"w-{item.request_id}"
    if item.if_open is IfOpen.RETURN_EXISTING:  # it may have come to be a run that was open
        return DescribeWorkflow(workflow_id=workflow_id, start_request_id=item.request_id)
    return DescribeWorkflow(workflow_id=workflow_id, run_id=item.run_id)


def _is_of(reply: Reply, item: Item) -> bool:
    """Say whether what is known under an id came of ``item``, as far as is told: its input is not."""
    if isinstance(item, EnqueueTask):
        return isinstance(reply, TaskInfo) and reply.type == item.type and not reply.workflow_id
    return isinstance(reply, WorkflowInfo) and reply.type == item.type


def _is_of_all(reply: Reply) -> bool:
    """Say whether a refusal is about none of the rows in particular."""
    return isinstance(reply, Refused) and (
        reply.retryable or reply.code in _OF_THE_ASKER or reply.code == "namespace_not_found"
    )


def _note(reply: Reply, namespace: str, place: int, done: HandedOver) -> None:
    """Note the refusal of one row. Raises Refusal when it is the asker who is refused."""
    if not isinstance(reply, Refused):
        raise Invalid("internal", f"The answer is a {type(reply).__name__}.", remedy="Use a server of this version.")
    if reply.code in _OF_THE_ASKER:
        raise Refusal(reply.code, reply.fact, remedy=reply.remedy)
    said = f"{reply.code}: {reply.fact} {reply.remedy}".strip()
    if not reply.retryable:
        done.troubles[place] = said
    elif reply.code in _OF_A_BUSY_NAMESPACE:
        done.busy[namespace] = said
    else:
        done.later = said
