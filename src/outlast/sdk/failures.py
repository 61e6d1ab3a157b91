"""Exceptions to stored failures and back.

Nothing an exception does can keep its failure from being recorded: a message that cannot be read, is huge or holds
what a database refuses is replaced, cut or cleaned, and the name of its class is kept.
"""

import asyncio
import sys
import traceback
from types import TracebackType
from typing import Any, Final

import msgspec

from outlast.core import limits
from outlast.core.cut import CUT
from outlast.core.failure import Failure, FailureKind
from outlast.protocol.traces import frames_of
from outlast.sdk import exceptions as errors
from outlast.sdk.durations import nanos_of

LOGGED_BYTES_MAX: Final = 1_000  # of an error's message in a log, which people read and programs store line by line
FRAMES_MAX: Final = 40
PACKAGE: Final = __file__.rsplit("/sdk/", 1)[0]
_SHOWN: Final[set[str]] = set()  # files of the package whose code is told as users' code is

_CLASSES: Final[dict[tuple[type, type], type]] = {}


def type_name(cls: type) -> str:
    """Return the name under which an error class is recorded and by which ``never_for`` finds it."""
    return clean(getattr(cls, "__name__", "Exception"), limits.NAME_BYTES_MAX)


def clean(text: str, bytes_max: int = limits.FAILURE_TEXT_BYTES_MAX) -> str:
    """Return ``text`` as any store takes it: no NUL, no lone surrogate, at most ``bytes_max`` bytes of UTF-8."""
    whole = len(text)
    data = text[:bytes_max].encode("utf-8", "backslashreplace").replace(b"\0", b"\\x00")
    if whole <= bytes_max and len(data) <= bytes_max:
        return data.decode()
    mark = CUT.format(whole)
    return data[: max(0, bytes_max - len(mark.encode()))].decode("utf-8", "ignore") + mark


def logged(error: BaseException | str) -> str:
    """Return what a log says of an error, or of its message: cut with a mark. The whole is kept with the failure."""
    return clean(error if isinstance(error, str) else _message_of(error), LOGGED_BYTES_MAX)


def failure_of(exception: BaseException, *, depth: int = 0) -> Failure:
    """Return ``exception`` as it is stored: bounded, readable by any store, the user's own frames first.

    ``final`` is set for Fatal and for values that cannot be written; ``next_delay`` for RetryableError.
    """
    if isinstance(exception, errors.TaskError) and depth == 0 and not exception.__traceback__:
        return exception.failure
    kind = FailureKind.CANCELED if isinstance(exception, asyncio.CancelledError) else FailureKind.APPLICATION
    return Failure(
        kind=kind,
        type=_recorded_type(exception),
        message=clean(_message_of(exception)),
        trace=clean(_trace_of(exception)),
        final=isinstance(exception, errors.Fatal | errors.NotSerializable | errors.PayloadTooLarge),
        cause=_cause_of(exception, depth),
        next_delay=_next_delay_of(exception),
        info=_info_of(exception),
    )


def exception_of(failure: Failure, *, task: str = "", attempt: int = 0) -> Exception:
    """Return what to raise for ``failure`` in the code that waited: a TaskError, with the failure's cause as its cause."""
    inner = failure.cause if failure.kind is FailureKind.ACTIVITY and failure.cause else failure
    attempt = attempt or _number(failure.info.get("attempt", ""))
    base = {
        FailureKind.TIMEOUT: errors.TimedOut,
        FailureKind.CANCELED: errors.Canceled,
        FailureKind.WORKER_LOST: errors.WorkerLost,
    }.get(inner.kind, errors.TaskError)
    cls = _class_of(inner, base)
    plain = f"{inner.type}: {inner.message}" if inner.type else inner.message
    text = inner.message if cls is not base else plain
    raised = _made(cls, text, inner, task, attempt) or base(plain, failure=inner, task=task, attempt=attempt)
    if inner.cause is not None:
        raised.__cause__ = exception_of(inner.cause)
    return raised


def _number(text: str) -> int:
    """Return the number that ``text`` is; 0 for what is none, which a worker that is not ours may have written."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0  # noqa: PLR2004 - nine digits


def told(error: BaseException | str, failure: Failure) -> str:
    """Return what a log says of a failure: the error, where in the user's code it was, and what to do about it."""
    said = logged(error)
    place = next((frame.place for frame in frames_of(failure)), "")
    if place and place not in said:
        said += f" at={place}"
    return f"{said} {failure.remedy}".rstrip()


def user_place(trace: TracebackType | None) -> str:
    """Return "file:line" of the innermost frame of ``trace`` that is the user's, "" for none."""
    place = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if is_user_file(file):
            place = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def show_code_of(file: str) -> None:
    """Have code of ``file``, which comes with the package, told as a user's own is: where it waits and where it fails."""
    _SHOWN.add(file)


def is_user_file(file: str) -> bool:
    """Say whether code of ``file`` is the user's own rather than ours, the standard library's or the interpreter's."""
    if file in _SHOWN:
        return True
    return not file.startswith((PACKAGE, "<frozen")) and not file.startswith(STDLIB_PLAIN)


STDLIB: Final = asyncio.__file__.rsplit("/asyncio/", 1)[0]
STDLIB_PLAIN: Final = tuple(f"{STDLIB}/{name}" for name in sorted(sys.stdlib_module_names))


def _recorded_type(exception: BaseException) -> str:
    if isinstance(exception, errors.TaskError):
        return clean(exception.type, limits.NAME_BYTES_MAX)
    return type_name(type(exception))


def _message_of(exception: BaseException) -> str:
    try:
        return str(exception)
    except Exception as broken:  # noqa: BLE001 - the user's __str__ may raise anything, and the failure must be kept
        return f"(its message cannot be read: __str__ raised {type_name(type(broken))})"


def _trace_of(exception: BaseException) -> str:
    try:
        frames = traceback.extract_tb(exception.__traceback__, limit=-FRAMES_MAX)
        mine = [frame for frame in frames if is_user_file(frame.filename)]
        return "".join(traceback.format_list(mine or frames))
    except Exception as broken:  # noqa: BLE001 - as above: a trace that cannot be made must not lose the failure
        return f"(its trace cannot be read: {type_name(type(broken))})"


def _cause_of(exception: BaseException, depth: int) -> Failure | None:
    if depth + 1 >= limits.FAILURE_DEPTH_MAX:
        return None
    if isinstance(exception, errors.TaskError):
        return _trimmed(exception.failure, depth + 1)  # with the trace from the worker where it happened
    cause = exception.__cause__ or (None if exception.__suppress_context__ else exception.__context__)
    if cause is None or cause is exception:
        return None
    return failure_of(cause, depth=depth + 1)


def _trimmed(failure: Failure, depth: int) -> Failure | None:
    """Return ``failure`` without the causes that would lie deeper than failures may."""
    if depth >= limits.FAILURE_DEPTH_MAX:
        return None
    if failure.cause is None:
        return failure
    return msgspec.structs.replace(failure, cause=_trimmed(failure.cause, depth + 1))


def _next_delay_of(exception: BaseException) -> int | None:
    if not isinstance(exception, errors.RetryableError) or exception.next_delay is None:
        return None
    try:
        return nanos_of(exception.next_delay, name="next_delay")
    except errors.InvalidDuration:
        return None


def _info_of(exception: BaseException) -> dict[str, str]:
    cls = type(exception)
    info = {"class": clean(f"{cls.__module__}:{cls.__qualname__}", limits.NAME_BYTES_MAX)}
    if isinstance(exception, errors.TaskError):
        info = dict(exception.failure.info)
        info["task"] = exception.task
        info["attempt"] = str(exception.attempt)
    if isinstance(exception, errors.OutlastError) and exception.code:
        info["code"] = exception.code
        if exception.remedy:
            info["remedy"] = clean(exception.remedy, 1024)
    return info


def _class_of(failure: Failure, base: type[errors.TaskError]) -> type[Exception]:
    """Return a class that is both ``base`` and the class that was raised, if that is loaded in this process."""
    module, _, qualname = failure.info.get("class", "").partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split(".") if found is not None else ():
        found = getattr(found, part, None)
    if not isinstance(found, type) or not issubclass(found, Exception) or issubclass(found, errors.OutlastError):
        return base
    key = (base, found)
    if key not in _CLASSES:
        try:
            _CLASSES[key] = type(found.__name__, (base, found), {"__module__": found.__module__})
        except TypeError:  # two classes whose instances are laid out differently
            _CLASSES[key] = base
    return _CLASSES[key]


def _made(cls: type[Exception], text: str, failure: Failure, task: str, attempt: int) -> Exception | None:
    """Make an instance without the user's ``__init__``, whose arguments nobody has any more."""
    plain = errors.TaskError(text, failure=failure, task=task, attempt=attempt)
    try:
        made = cls.__new__(cls, text)
        made.__dict__.update(plain.__dict__)
        made.args = (text,)
    except Exception:  # noqa: BLE001 - a class that cannot be made so is raised as a plain TaskError
        return None
    return made
