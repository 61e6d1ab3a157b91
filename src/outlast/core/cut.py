"""Cuts failures down to what is kept of one, before they are stored: whoever sent them, and whatever they put into them.

A failure is the only word on an attempt that has ended: refused for its size, it would leave the attempt to its lease.
"""

from typing import Final

import msgspec

from outlast.core import limits
from outlast.core.commands import Command, FailWorkflow, RecordMarker
from outlast.core.failure import Failure
from outlast.core.inputs import (
    AnswerQueries,
    CompleteTasks,
    CompleteWorkflowTasks,
    Completion,
    QueryAnswer,
    Request,
    TaskFailed,
    WorkflowTaskDone,
    WorkflowTaskNotDone,
)

CUT: Final = "… [cut, {} characters in all]"
_replace = msgspec.structs.replace


def cut(text: str, bytes_max: int = limits.FAILURE_TEXT_BYTES_MAX) -> str:
    """Return ``text`` in at most ``bytes_max`` bytes of UTF-8, with a mark where it was cut."""
    if len(text) * 4 <= bytes_max:
        return text
    data = text[: bytes_max + 1].encode()
    if len(data) <= bytes_max:
        return text
    mark = CUT.format(len(text))
    return data[: max(0, bytes_max - len(mark.encode()))].decode("utf-8", "ignore") + mark


def cut_failure(failure: Failure) -> Failure:
    """Return ``failure`` as it is kept, itself where it is small: each text cut with a mark, causes no deeper than may be."""
    chain: list[Failure] = []
    each: Failure | None = failure
    while each is not None and len(chain) < limits.FAILURE_DEPTH_MAX:
        chain.append(each)
        each = each.cause
    if each is None and all(map(_is_small, chain)):
        return failure
    kept: Failure | None = None
    for each in reversed(chain):
        kept = _replace(
            each,
            type=cut(each.type, limits.NAME_BYTES_MAX),
            message=cut(each.message),
            trace=cut(each.trace),
            info=_few(each.info),
            cause=kept,
        )
    return kept or failure


def with_failures_cut(request: Request) -> Request:
    """Return ``request`` with the failures that a worker tells of as they are kept; itself where there is nothing to cut."""
    match request:
        case CompleteTasks() if any(type(item.outcome) is TaskFailed for item in request.items):
            return _replace(request, items=tuple(map(_completion, request.items)))
        case CompleteWorkflowTasks():
            done = tuple(map(_done, request.done))
            return _replace(request, done=done, not_done=tuple(map(_not_done, request.not_done)))
        case AnswerQueries():
            return _replace(request, items=tuple(map(_answer, request.items)))
        case _:
            return request


def _is_small(failure: Failure) -> bool:
    size = len(failure.message) + len(failure.trace)
    if failure.info:
        size += sum(len(name) + len(value) for name, value in failure.info.items())
    return size * 4 <= limits.FAILURE_TEXT_BYTES_MAX and len(failure.type) * 4 <= limits.NAME_BYTES_MAX


def _few(info: dict[str, str]) -> dict[str, str]:
    """Return the facts of ``info`` that fit, in their order."""
    room, kept = limits.FAILURE_TEXT_BYTES_MAX, dict[str, str]()
    for name, value in info.items():
        room -= len(name.encode()) + len(value.encode())
        if room < 0:
            break
        kept[name] = value
    return kept


def _completion(item: Completion) -> Completion:
    outcome = item.outcome
    if type(outcome) is not TaskFailed:
        return item
    kept = cut_failure(outcome.failure)
    return item if kept is outcome.failure else _replace(item, outcome=TaskFailed(failure=kept))


def _done(done: WorkflowTaskDone) -> WorkflowTaskDone:
    if not any(isinstance(each, FailWorkflow | RecordMarker) and each.failure is not None for each in done.commands):
        return done
    return _replace(done, commands=tuple(map(_command, done.commands)))


def _command(command: Command) -> Command:
    if isinstance(command, FailWorkflow | RecordMarker) and command.failure is not None:
        return _replace(command, failure=cut_failure(command.failure))
    return command


def _not_done(not_done: WorkflowTaskNotDone) -> WorkflowTaskNotDone:
    return _replace(not_done, failure=cut_failure(not_done.failure), cause=cut(not_done.cause, limits.NAME_BYTES_MAX))


def _answer(answer: QueryAnswer) -> QueryAnswer:
    if answer.failure is None:
        return answer
    return _replace(answer, failure=cut_failure(answer.failure))
