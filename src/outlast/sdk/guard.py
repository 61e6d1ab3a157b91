"""Keeps workflow code from reading what a replay could not read again: clock, chance, files, sockets, threads.

Nothing is patched and no module is imported twice. Two watches look only at code that runs for a run (``CURRENT`` is set):

- an audit hook, always on: files, sockets, processes and threads;
- a call watch while a turn is executed for the first time: every call of a C function that reads the clock or chance,
  however it was imported. Python 3.11 offers ``sys.setprofile`` for it, later ones ``sys.monitoring``, which costs
  nothing at a place once it is known to be harmless. A replay needs no such watch: what it repeats was watched when it
  was new, and what it does otherwise is nondeterminism.

A violation fails the turn even if the code catches it. Two ways around
the call watch are known: C code that calls such a function itself (``map(…)`` over it), and, from Python 3.12 on, a call
through a variable at a place that first ran outside workflow code. What they lead to is found when the history is replayed.
"""

import _thread
import datetime as dt
import gc
import opcode
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, Final

from outlast.sdk.definition import TaskDefinition
from outlast.sdk.errors import DirectCall, HoldsRun, SandboxViolation
from outlast.sdk.failures import PACKAGE, STDLIB, is_user_file
from outlast.sdk.runtime import CURRENT

CLOCK: Final = "Write workflow.now() or workflow.time(): the instant of the turn, the same on each replay."
SLEEP: Final = 'Write await workflow.sleep("10s"): it holds no thread and outlives the process.'
CHANCE: Final = (
    "Write workflow.random.random(), workflow.random.randint(…): seeded with the run, the same on each replay."
)
UUIDS: Final = "Write workflow.uuid(): the same on each replay."
HOST: Final = "Ask for it in a task, or once: workflow.side_effect(…) records what it was."
FILES: Final = "Read or write it in a task: await load.execute(path)."
NETWORK: Final = "Talk to it in a task: await fetch.execute(…)."
PROCESS: Final = "Start it in a task: await build.execute(…)."
THREADS: Final = "Use asyncio.gather or asyncio.TaskGroup; run blocking work in a task: await work.execute(…)."

# The C functions that read the host, by name first: a set of names is the cheapest thing to ask for each call.
FUNCTIONS: Final[dict[Any, str]] = {
    **{
        getattr(time, name): CLOCK
        for name in (
            "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time",
            "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns", "localtime",
            "gmtime", "ctime", "asctime", "strftime",
        )
        if hasattr(time, name)
    },
    **{
        getattr(os, name): remedy
        for remedy, names in (
            (CLOCK, ("times",)),
            (FILES, ("stat", "lstat", "access", "statvfs", "readlink")),
            (HOST, ("getpid", "getppid", "getcwd", "uname", "cpu_count", "getloadavg")),
        )
        for name in names
        if hasattr(os, name)
    },
    time.sleep: SLEEP,
    _thread.start_new_thread: THREADS,
    os.urandom: CHANCE,  # noqa: TID251 - named, not asked
    **({os.getrandom: CHANCE} if hasattr(os, "getrandom") else {}),
    getattr(uuid, "_generate_time_safe", None): UUIDS,
}  # fmt: skip
GIVEN: Final = {
    time.asctime: 1,
    time.strftime: 2,
}  # with so many arguments they write an instant out, and read no clock
NAMES: Final = frozenset(
    {function.__name__ for function in FUNCTIONS if function is not None}
    | {"now", "utcnow", "today", "random", "getrandbits", "seed", "getstate"}
)

EVENTS: Final[dict[str, tuple[str, str]]] = {
    "open": ("opened a file", FILES),
    "os.listdir": ("listed a directory", FILES),
    "os.scandir": ("listed a directory", FILES),
    "os.remove": ("removed a file", FILES),
    "os.rename": ("renamed a file", FILES),
    "os.mkdir": ("made a directory", FILES),
    "os.rmdir": ("removed a directory", FILES),
    "os.link": ("linked a file", FILES),
    "os.symlink": ("linked a file", FILES),
    "os.chmod": ("changed a file", FILES),
    "os.chown": ("changed a file", FILES),
    "os.utime": ("changed a file", FILES),
    "os.truncate": ("changed a file", FILES),
    "builtins.input": ("asked at the terminal", "Wait for a signal: await answer.receive()."),
    "sqlite3.connect": ("opened a database", FILES),
    "socket.__new__": ("made a socket", NETWORK),
    "socket.connect": ("connected a socket", NETWORK),
    "socket.getaddrinfo": ("looked up an address", NETWORK),
    "socket.gethostbyname": ("looked up an address", NETWORK),
    "socket.gethostname": ("asked for the host's name", HOST),
    "subprocess.Popen": ("started a process", PROCESS),
    "os.system": ("started a process", PROCESS),
    "os.posix_spawn": ("started a process", PROCESS),
    "os.exec": ("started a process", PROCESS),
    "os.fork": ("forked the process", PROCESS),
    "os.kill": ("sent a process a signal", PROCESS),
    "time.sleep": ("called time.sleep", SLEEP),
    "_thread.start_new_thread": ("started a thread", THREADS),
    "_thread.start_joinable_thread": ("started a thread", THREADS),
}

# Parts of the standard library that may read the host on the code's behalf: what they read decides nothing.
TRUSTED: Final = (
    "<frozen importlib",
    *(
        f"{STDLIB}/{name}"
        for name in (
            "logging/", "linecache.py", "tokenize.py", "traceback.py", "warnings.py", "zoneinfo/", "encodings/",
            "importlib/", "inspect.py", "locale.py", "_strptime.py", "weakref.py",
        )
    ),
)  # fmt: skip
INSTALLS_MAX: Final = 100
TOOL: Final = 3  # of sys.monitoring's ids, one that the standard library gives to nobody


def refuse_direct_call(definition: TaskDefinition) -> None:
    """Raise DirectCall if this is workflow code; to be asked when a task is called like a function."""
    runtime = CURRENT.get()
    if runtime is None:
        return
    place = _place_of(_frame())
    error = DirectCall(
        f"{definition.name}(…) was called directly inside workflow code{f' ({place})' if place else ''}: "
        "a direct call is not recorded and would run again on each replay.",
        remedy=f"Write: await {definition.function.__name__}.execute(…)",
    )
    _note(runtime, error)
    raise error


@contextmanager
def lifted() -> Generator[None]:
    """Let code read the host for a moment; for what is recorded (``side_effect``) or decides nothing (logging)."""
    token = CURRENT.set(None)
    try:
        yield
    finally:
        CURRENT.reset(token)


def install() -> None:
    """Put up the audit hook and, from Python 3.12 on, the call watch; once per process, however often it is called."""
    global _installed  # noqa: PLW0603 - a process has one audit hook for good
    if _installed:
        return
    _installed = True
    sys.addaudithook(_audit)
    if sys.version_info >= (3, 12):
        _install_monitoring()


def watch() -> bool:
    """Begin to watch calls on this thread; returns whether ``unwatch`` is to be called."""
    if sys.version_info >= (3, 12):
        return False
    present = sys.getprofile()
    return present is _profile or (present is None and _set_profile(_profile))


def unwatch() -> None:
    """End what ``watch`` began."""
    _set_profile(None)


def _set_profile(callback: Callable[[FrameType, str, Any], None] | None) -> bool:
    # While an audit hook looks at one thread's setprofile, the interpreter refuses that of any other thread. Ours take
    # turns; one that meets a stranger's is tried again.
    with _INSTALLING:
        for _ in range(INSTALLS_MAX):
            try:
                sys.setprofile(callback)
            except RuntimeError:
                continue
            return True
    return False


_installed = False
_INSTALLING: Final = threading.Lock()


def _audit(event: str, _args: tuple[Any, ...]) -> None:
    told = EVENTS.get(event)
    if told is None:
        return
    runtime = CURRENT.get()
    if runtime is None:
        return
    place = _judged(_frame())
    if place:
        _refuse(runtime, f"Workflow code {told[0]}", place, told[1])


def _profile(frame: FrameType, event: str, called: Any) -> None:
    if event == "c_call" and called.__name__ in NAMES:
        _called(frame, called, getattr(called, "__self__", None))


def _called(frame: FrameType | None, called: Any, owner: Any) -> None:
    told = _reads_host(frame, called, owner)
    if told is None:
        return
    runtime = CURRENT.get()
    if runtime is None:
        return
    place = _judged(frame)
    if place:
        if sys.getprofile() is _profile:
            _set_profile(None)
        _refuse(runtime, f"Workflow code called {told[0]}", place, told[1])


def _reads_host(frame: FrameType | None, called: Any, owner: Any) -> tuple[str, str] | None:
    name = called.__name__
    try:
        remedy = FUNCTIONS.get(called)
    except TypeError:
        remedy = None
    if remedy is not None:
        if called in GIVEN and _arguments_at(frame) >= GIVEN[called]:
            return None
        module = getattr(called, "__module__", "") or "time"
        remedy = UUIDS if frame is not None and frame.f_code.co_filename == uuid.__file__ else remedy
        return f"{'os' if module == 'posix' else module}.{name}", remedy
    if name in ("now", "utcnow", "today"):
        if isinstance(owner, type) and issubclass(owner, dt.date):
            return f"{owner.__name__}.{name}", CLOCK
        return None
    if owner is _SHARED:
        return f"random.{name}", CHANCE
    if name == "seed" and isinstance(owner, random.Random) and frame and frame.f_locals.get("a", 0) is None:
        return "random.Random() without a seed", CHANCE
    return None


def _arguments_at(frame: FrameType | None) -> int:
    """Return with how many arguments ``frame`` calls, 0 where its code does not say it (``f(*given)``)."""
    if frame is None:
        return 0
    code, at = frame.f_code.co_code, frame.f_lasti
    return code[at + 1] if opcode.opname[code[at]] in {"PRECALL", "CALL"} else 0


_SHARED: Final[Any] = getattr(random.random, "__self__")  # noqa: B009, TID251 - named, not asked; stubs do not know it


def _install_monitoring() -> None:
    monitoring: Any = getattr(sys, "monitoring")  # noqa: B009 - 3.11 has none and is not asked
    try:
        monitoring.use_tool_id(TOOL, "outlast")
    except ValueError:  # another tool has it: the audit hook and the replay check remain
        return
    disable = monitoring.DISABLE
    missing = monitoring.MISSING

    def on_call(code: CodeType, _offset: int, called: Any, first: Any) -> Any:
        name = getattr(called, "__name__", None)
        if name not in NAMES:
            # A place in workflow code stays watched: it may call through a variable, and something else next time.
            return None if CURRENT.get() is not None and _is_users(code.co_filename) else disable
        if CURRENT.get() is not None:
            owner = getattr(called, "__self__", None)
            if owner is None or owner is time:
                owner = first if first is not missing else None
            _called(_frame(), called, owner)
        return None

    monitoring.register_callback(TOOL, monitoring.events.CALL, on_call)
    monitoring.set_events(TOOL, monitoring.events.CALL)


def _frame() -> FrameType | None:
    return sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


@lru_cache(maxsize=4096)
def _is_users(file: str) -> bool:
    return is_user_file(file)


def _refuse(runtime: Any, what: str, place: str, remedy: str) -> None:
    error = SandboxViolation(f"{what} ({place}): it would be another one on each replay.", remedy=remedy)
    _note(runtime, error)
    raise error


def _note(runtime: Any, error: HoldsRun) -> None:
    report = getattr(runtime, "report", None)
    if report is not None:
        report(error)


def _judged(frame: FrameType | None) -> str:
    """Return the place of the user's frame that is to blame, "" if what is done may be done.

    The innermost frame of the user's is to blame, unless something trusted stands between it and the run: an import, a
    log handler, or the collector, which calls finalizers and ``gc.callbacks`` in the middle of anything.
    """
    place = ""
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if file.startswith(PACKAGE):
            break
        if file.startswith(TRUSTED) or code.co_name == "__del__" or _is_collecting(code):
            return ""
        if not place and is_user_file(file):
            place = f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return place


def _is_collecting(code: CodeType) -> bool:
    return any(getattr(callback, "__code__", None) is code for callback in gc.callbacks)


def _place_of(frame: FrameType | None) -> str:
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
