"""``outlast workflow start`` and ``outlast task enqueue``, the latter also for a file of many."""

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec
import uuid_utils

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.printing import json_line, mode_of, put, talk
from outlast.cli.reach import Look, reached
from outlast.cli.results import task_result, workflow_result
from outlast.cli.shapes import EnqueueOut, StartOut
from outlast.cli.text import clean, span
from outlast.cli.unpolled import Wanted, tell_unpolled
from outlast.cli.values import payload_of, span_of, tags_of
from outlast.core.errors import Conflict, Invalid, Refusal
from outlast.core.inputs import EnqueueTask, EnqueueTasks, IfClosed, IfOpen, StartWorkflow
from outlast.core.limits import REQUEST_BYTES_MAX, START_TO_CLOSE
from outlast.core.payload import Payload, Payloads
from outlast.core.replies import Refused, TaskEnqueuedReply, TasksEnqueued, WorkflowStarted
from outlast.core.retry import RetryPolicy
from outlast.gateway.values import JSON_PLAIN

IDENTITY: Final = "cli"
OTHER_WAYS: Final = {
    "workflow_already_open": "Use another --id, or --if-open return_existing or terminate.",
    "workflow_id_reuse_refused": "Use another --id, or --if-closed allow.",
}
CHUNK: Final = 500  # items of a file in one request
PROGRESS_EVERY: Final = 0.5  # seconds


class Line(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One line of a file of tasks."""

    type: str
    args: tuple[msgspec.Raw, ...] = ()
    queue: str = ""
    key: str = ""
    delay: str | float = 0
    timeout: str | float = 0
    priority: int = 3
    max_attempts: int = 0
    tags: dict[str, str] | None = None


def start(arguments: Arguments) -> int:
    """Start a workflow, and with --wait print its result."""
    request = StartWorkflow(
        type=arguments.type,
        queue=arguments.queue,
        run_id=new_id(),
        request_id=arguments.key or new_id(),
        workflow_id=arguments.id,
        input=_inputs(arguments.args),
        if_open=IfOpen(arguments.if_open),
        if_closed=IfClosed(arguments.if_closed),
        run_timeout=span_of(arguments.run_timeout, what="--run-timeout"),
        delay=span_of(arguments.delay, what="--delay"),
        tags=tags_of(arguments.tag),
        identity=IDENTITY,
    )
    return asyncio.run(_start(arguments, request))


async def _start(arguments: Arguments, request: StartWorkflow) -> int:
    if arguments.dry_run:
        out = StartOut(id=request.workflow_id, run_id="", started=True, replayed=False, dry_run=True)
        said = f'would start {request.workflow_id or "a workflow"} of type "{request.type}" on queue "{request.queue}"'
        async with reached(arguments):
            put(json_line(out) if mode_of(arguments) == "json" else f"{clean(said)}\n")
        return exits.DONE
    async with reached(arguments, write=True) as look:
        try:
            reply = await look.send(request)
        except Conflict as error:
            raise Conflict(error.code, error.fact, remedy=OTHER_WAYS.get(error.code, error.remedy)) from error
        assert isinstance(reply, WorkflowStarted)
        out = StartOut(id=reply.workflow_id, run_id=reply.run_id, started=reply.started, replayed=reply.replayed)
        was = "was running" if not reply.started else "had been started by this key" if reply.replayed else "started"
        said = f"{clean(reply.workflow_id)} {was}, run {reply.run_id}"
        if arguments.wait is None:
            put(json_line(out) if mode_of(arguments) == "json" else f"{said}\n")
        else:
            talk(arguments, said)
        if not reply.polled:
            await tell_unpolled(arguments, look, {Wanted("workflow", request.queue, request.type)})
        if arguments.wait is None:
            return exits.DONE
        return await workflow_result(arguments, look, reply.workflow_id, reply.run_id)


def enqueue(arguments: Arguments) -> int:
    """Enqueue one task, or one for each line of a file."""
    if arguments.file:
        if arguments.type or arguments.wait is not None:
            raise Invalid("invalid_request", "--file is given beside a type or --wait.", remedy="Give one of them.")
        return asyncio.run(_enqueue_file(arguments))
    if not arguments.type:
        raise Invalid("invalid_request", "There is no type.", remedy="Write: outlast task enqueue TYPE, or --file FILE")
    request = _task(
        arguments,
        Line(
            type=arguments.type,
            queue=arguments.queue,
            key=arguments.key,
            delay=arguments.delay,
            timeout=arguments.timeout,
            priority=arguments.priority,
            max_attempts=arguments.max_attempts,
            tags=tags_of(arguments.tag),
        ),
        _inputs(arguments.args),
    )
    return asyncio.run(_enqueue(arguments, request))


async def _enqueue(arguments: Arguments, request: EnqueueTask) -> int:
    if arguments.dry_run:
        out = EnqueueOut(id="", replayed=False, dry_run=True)
        async with reached(arguments):
            said = f'would enqueue a task of type "{request.type}" on queue "{request.queue}"'
            put(json_line(out) if mode_of(arguments) == "json" else f"{clean(said)}\n")
        return exits.DONE
    async with reached(arguments, write=True) as look:
        reply = await look.send(request)
        assert isinstance(reply, TaskEnqueuedReply)
        out = EnqueueOut(id=reply.task_id, replayed=reply.replayed)
        was = "had been enqueued by this key" if reply.replayed else "enqueued"
        if arguments.wait is None:
            put(json_line(out) if mode_of(arguments) == "json" else f"{reply.task_id} {was}\n")
        else:
            talk(arguments, f"{reply.task_id} {was}")
        if not reply.polled:
            await tell_unpolled(arguments, look, {Wanted("task", request.queue, request.type)})
        if arguments.wait is None:
            return exits.DONE
        return await task_result(arguments, look, reply.task_id)


async def _enqueue_file(arguments: Arguments) -> int:
    """Send a file in chunks; the last sentence says how many were taken."""
    file: TextIO = sys.stdin if arguments.file == "-" else _opened(arguments.file)
    done = refused = 0
    unpolled: set[Wanted] = set()
    began = said_at = time.monotonic()
    with file:
        async with reached(arguments, write=not arguments.dry_run) as look:
            for chunk in _chunks(_read(arguments, file)):
                outs = await _sent(arguments, look, chunk, unpolled)
                refused += sum(1 for out in outs if out.error)
                done += sum(1 for out in outs if not out.error)
                _tell(arguments, outs)
                if sys.stderr.isatty() and time.monotonic() - said_at > PROGRESS_EVERY:
                    said_at = time.monotonic()
                    talk(arguments, f"{done:,} enqueued, {refused:,} refused, {done / (said_at - began):,.0f}/s")
            await tell_unpolled(arguments, look, unpolled)
    verb = "would enqueue" if arguments.dry_run else "enqueued"
    rest = f", {refused:,} refused" if refused else ""
    talk(arguments, f"{verb} {done:,} tasks in {span(int((time.monotonic() - began) * 1e9))}{rest}")
    return exits.REFUSED if refused else exits.DONE


async def _sent(arguments: Arguments, look: Look, chunk: list[EnqueueTask], unpolled: set[Wanted]) -> list[EnqueueOut]:
    """Send one chunk and add to ``unpolled`` what of it nobody polls for."""
    if arguments.dry_run:
        return [EnqueueOut(id="", replayed=False, dry_run=True) for _ in chunk]
    reply = await look.send(EnqueueTasks(items=tuple(chunk)), wait=None)
    assert isinstance(reply, TasksEnqueued)
    unpolled |= {
        Wanted("task", item.queue, item.type)
        for item, said in zip(chunk, reply.items, strict=True)
        if not isinstance(said, Refused) and not said.polled
    }
    return [
        EnqueueOut(id="", replayed=False, error=item.code)
        if isinstance(item, Refused)
        else EnqueueOut(id=item.task_id, replayed=item.replayed)
        for item in reply.items
    ]


def _tell(arguments: Arguments, outs: list[EnqueueOut]) -> None:
    json = mode_of(arguments) == "json"
    put("".join(json_line(out) if json else f"{out.id}\n" for out in outs if json or out.id))


def _opened(name: str) -> TextIO:
    try:
        return Path(name).open(encoding="utf-8")
    except OSError as error:
        raise Invalid(
            "invalid_request", f"{name} cannot be read: {error.strerror}.", remedy="Check the path."
        ) from None


def _read(arguments: Arguments, file: TextIO) -> Iterator[EnqueueTask]:
    for number, text in _lines(arguments, file):
        if not text.strip():
            continue
        try:
            line = msgspec.json.decode(text, type=Line)
            inputs = tuple(Payload(JSON_PLAIN, bytes(raw)) for raw in line.args)
            for item in inputs:
                msgspec.json.decode(item.data)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Invalid(
                "invalid_request",
                f"Line {number} of {arguments.file} is no task: {error}.",
                remedy='Write {"type": "resize", "args": ["cat.png"]} on one line; what stood above it is enqueued.',
            ) from None
        try:
            yield _task(arguments, line, inputs)
        except Refusal as error:
            raise Invalid(error.code, f"Line {number} of {arguments.file}: {error.fact}", remedy=error.remedy) from None


def _lines(arguments: Arguments, file: TextIO) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        for number, text in enumerate(file, 1):
            yield number, text
    except UnicodeDecodeError:
        raise Invalid(
            "invalid_request",
            f"{arguments.file} is no UTF-8 behind line {number}.",
            remedy="Write it in UTF-8; what stands in the lines before may be enqueued.",
        ) from None


def _chunks(items: Iterator[EnqueueTask]) -> Iterator[list[EnqueueTask]]:
    chunk: list[EnqueueTask] = []
    size = 0
    for item in items:
        length = sum(len(payload.data) for payload in item.input) + len(item.type)
        if chunk and (len(chunk) == CHUNK or size + length > REQUEST_BYTES_MAX // 4):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += length
    if chunk:
        yield chunk


def _task(arguments: Arguments, line: Line, inputs: Payloads) -> EnqueueTask:
    return EnqueueTask(
        task_id=new_id(),
        type=line.type,
        queue=line.queue or arguments.queue,
        key=line.key,
        input=inputs,
        retry=RetryPolicy(attempts_max=line.max_attempts) if line.max_attempts else None,
        delay=_span(line.delay, "delay"),
        start_to_close=_span(line.timeout, "timeout") or START_TO_CLOSE,
        priority=line.priority,
        tags=line.tags,
        identity=IDENTITY,
    )


def _span(value: str | float, what: str) -> int:
    return span_of(str(value), what=what)


def _inputs(given: list[Any]) -> Payloads:
    return tuple(payload_of(text, what=f"Argument {number}") for number, text in enumerate(given, 1))


def new_id() -> str:
    """Return a fresh id."""
    return str(uuid_utils.uuid7())
