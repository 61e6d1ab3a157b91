"""The event loop on which workflow code runs: no clock of its own, no I/O, and one order.

asyncio's own gather, wait, wait_for, timeout, TaskGroup, Event, Lock, Queue, Semaphore and sleep work on it as they are.
Three things make their order the same on every replay and in every process:

- callbacks run strictly in the order in which they were asked for;
- asyncio keeps tasks and futures in sets, so those made here hash by a number counted per loop, not by their address;
- time moves only from outside: a timer is a command to the engine, and its event calls back.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from functools import partial
from types import CodeType, CoroutineType
from typing import Any, Final, Protocol

from outlast.sdk.errors import SandboxViolation

AS_COMPLETED_CODE: Final[CodeType] = asyncio.as_completed.__code__
YIELDS_MAX: Final = 100  # of clean-up code in a run that is disposed of
TIMEOUTS: Final = frozenset({"_on_timeout", "_release_waiter"})  # what asyncio has called when a time is over
TIMED: Final = "_outlast_timed"  # the attribute of asyncio's timeouts that says what they are for
PRUNE_FROM: Final = 256  # tasks, or generators, held before finished ones are let go


# From Python 3.12 on; before, tasks of two loops on one thread do not know of each other.
_swap_current_task: Final[Callable[[Any, Any], Any] | None] = getattr(asyncio.tasks, "_swap_current_task", None)


class Abandoned(BaseException):
    """The turn was given up from outside: it did not come to rest in time."""


class Timers(Protocol):
    """What makes durable timers out of the loop's."""

    def start(self, handle: "TimerHandle", delay: float) -> str:
        """Ask for a timer that calls ``handle`` back; return its id."""
        ...

    def drop(self, timer_id: str) -> None:
        """The timer with this id is not wanted any more."""
        ...

    def now(self) -> float:
        """Return the run's own clock: seconds since it was started."""
        ...

    def lost(self, context: dict[str, Any]) -> None:
        """Take note of an error that nobody waits for."""
        ...


class _Gone:
    """The timers of a run that was disposed of. A loop that held its run would keep both until a collector looks."""

    def start(self, handle: "TimerHandle", delay: float) -> str:  # noqa: ARG002 - the protocol's
        raise Abandoned

    def drop(self, timer_id: str) -> None:
        """There is none."""

    def now(self) -> float:
        return 0.0

    def lost(self, context: dict[str, Any]) -> None:
        """Take no note: nobody would read it."""


_GONE: Final = _Gone()


class Future(asyncio.Future[Any]):
    """A future that hashes by its number in the loop."""

    __slots__ = ("number",)
    number: int

    def __hash__(self) -> int:
        return self.number


class Task(asyncio.Task[Any]):
    """A task that hashes by its number in the loop."""

    __slots__ = ("number",)
    number: int

    def __hash__(self) -> int:
        return self.number


class Handle(asyncio.Handle):
    """A callback that waits for its turn."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context) -> None:
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._context = context
        self._repr = None
        self._source_traceback = None

    def __repr__(self) -> str:
        return f"<Handle {self._callback!r}>"

    def cancel(self) -> None:
        self._cancelled = True


class TimerHandle(asyncio.TimerHandle):
    """A callback that waits for a durable timer."""

    __slots__ = ("timer_id", "timers")

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context, timers: Timers
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._context = context
        self._scheduled = True
        self._repr = None
        self._source_traceback = None
        self.timers = timers
        self.timer_id = ""

    def __repr__(self) -> str:
        return f"<TimerHandle {self.timer_id} {self._callback!r}>"

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self.timers.drop(self.timer_id)

    @property
    def waiting(self) -> object:
        """What the timer wakes: the future it resolves or the object whose method it calls."""
        if self._args and isinstance(self._args[0], asyncio.Future):
            return self._args[0]  # pyright: ignore[reportUnknownVariableType]
        return getattr(self._callback, "__self__", None)

    @property
    def summary(self) -> str:
        """What the timer is for, in words; "" for a sleep. Only for people: replays do not compare it."""
        if getattr(self._callback, "__name__", "") not in TIMEOUTS:
            return ""
        return f"timeout of {what}" if (what := getattr(self.waiting, TIMED, "")) else "timeout"


class WorkflowLoop(asyncio.AbstractEventLoop):
    """One run's loop. ``run_ready`` runs what can run and returns when everything waits for an event."""

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self.tasks: list[Task] = []
        self.numbers = 0
        self.abandoned = False
        self._ready: deque[Handle] = deque()
        self._closed = False
        self._prune_at = PRUNE_FROM
        self._generators: list[Any] = []
        self._keep_at = PRUNE_FROM

    # What asyncio asks for.

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        handle = Handle(callback, args, context if context is not None else copy_context())
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        when = self.timers.now() + delay
        handle = TimerHandle(when, callback, args, context if context is not None else copy_context(), self.timers)
        handle.timer_id = self.timers.start(handle, delay)
        return handle

    def call_at(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        return self.call_later(when - self.timers.now(), callback, *args, context=context)

    def fire(self, handle: TimerHandle) -> None:
        """The durable timer of ``handle`` has fired: its callback runs next."""
        self._ready.append(Handle(handle._callback, tuple(handle._args), handle._context))  # noqa: SLF001  # type: ignore[attr-defined]

    def create_future(self) -> Future:
        if self._closed:
            raise Abandoned  # clean-up code of a run that was disposed of must not wait for anything
        future = Future(loop=self)
        self.numbers = number = self.numbers + 1
        future.number = number
        return future

    def create_task(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None, **more: Any
    ) -> Task:
        if self._closed:
            coro.close()
            raise Abandoned
        refuse_unordered(coro)
        return self.start(coro, name=name, context=context, **more)

    def start(
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None, **more: Any
    ) -> Task:
        """As ``create_task``, for a caller that is known to start coroutines in one order."""
        self.numbers = number = self.numbers + 1
        task = Task.__new__(Task)
        task.number = number
        task.__init__(coro, loop=self, name=name or f"task-{number}", context=context, **more)  # type: ignore[misc]
        # asyncio keeps all tasks of the process in one set, where the small hashes of ours would all fall together.
        asyncio._unregister_task(task)  # noqa: SLF001
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - a run may be dropped while it waits
        self.tasks.append(task)
        if len(self.tasks) > self._prune_at:
            self.tasks = [task for task in self.tasks if not task.done()]
            self._prune_at = 2 * len(self.tasks) + PRUNE_FROM
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.timers.lost(context)

    def time(self) -> float:
        """Return the run's own clock: seconds since it was started."""
        return self.timers.now()

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self  # noqa: SLF001

    def is_closed(self) -> bool:
        return self._closed

    def get_task_factory(self) -> None:
        return None

    def get_exception_handler(self) -> None:
        return None

    # What the run asks for.

    @property
    def has_ready(self) -> bool:
        """Whether a callback waits for its turn."""
        return bool(self._ready)

    def run_ready(self) -> None:
        """Run callbacks, and those they ask for, until none is left. To be called with this loop entered."""
        ready = self._ready
        while ready:
            if self.abandoned:
                raise Abandoned
            handle = ready.popleft()
            if handle._cancelled:  # noqa: SLF001
                continue
            try:
                handle._context.run(handle._callback, *handle._args)  # noqa: SLF001  # type: ignore[attr-defined]
            except Abandoned:
                raise
            except BaseException as error:  # noqa: BLE001 - SystemExit too ends a run's task, and not the worker
                self.timers.lost({"message": "A callback raised.", "exception": error})

    def let_go(self) -> None:
        """Drop the tasks that have ended: an error in one that nobody awaits any more is told now, in its own turn."""
        if len(self.tasks) > 1:
            self.tasks = [task for task in self.tasks if not task.done()]

    def enter(self) -> "Entered":
        """Make this the thread's running loop until the returned context is left."""
        return Entered(self)

    def keep_generator(self, generator: Any) -> None:
        # Held until the run is closed: a collector that ends a generator at a moment of its own choosing would make
        # the order of commands depend on it.
        self._generators.append(generator)
        if len(self._generators) > self._keep_at:
            self._generators = [kept for kept in self._generators if kept.ag_frame is not None]
            self._keep_at = 2 * len(self._generators) + PRUNE_FROM

    @property
    def at_rest(self) -> bool:
        """Whether nothing is left that ``dispose`` would have to end."""
        return not self._ready and not self._generators and all(task.done() for task in self.tasks)

    def dispose(self) -> None:
        """End all tasks without a word. What their ``finally`` blocks ask for is refused by the closed run."""
        self._closed = True
        self._ready.clear()
        for task in self.tasks:
            coroutine: Any = task.get_coro()
            if not task.done() and coroutine is not None:
                _end(coroutine.close)
                _let_go(task)
        for generator in self._generators:
            _end(partial(generator.aclose().send, None))
        self.tasks.clear()
        self._generators.clear()
        self._ready.clear()
        self.timers = _GONE  # the run, which holds this loop


def _let_go(task: Task) -> None:
    """Have nobody told of ``task`` and it of nothing: a task and what it waits for hold each other, and the run with them."""
    waited_for: Any = getattr(task, "_fut_waiter", None)
    for future in (task, waited_for):
        for callback, _ in getattr(future, "_callbacks", None) or ():
            future.remove_done_callback(callback)


class Entered:
    """A loop as the thread's running loop; what ran before runs on afterwards."""

    __slots__ = ("_before", "_hooks", "_loop", "_task")

    def __init__(self, loop: WorkflowLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        self._before = asyncio._get_running_loop()  # noqa: SLF001
        self._task = None
        if self._before is not None and _swap_current_task is not None:
            self._task = _swap_current_task(self._before, None)
        hooks = sys.get_asyncgen_hooks()
        self._hooks = None
        if hooks.firstiter is not _keep_generator or hooks.finalizer is not None:
            self._hooks = hooks
            keep_generators()
        asyncio._set_running_loop(self._loop)  # noqa: SLF001

    def __exit__(self, *error: object) -> None:
        asyncio._set_running_loop(self._before)  # noqa: SLF001
        if self._hooks is not None:
            sys.set_asyncgen_hooks(*self._hooks)
        if self._task is not None and _swap_current_task is not None:
            _swap_current_task(self._before, self._task)


def keep_generators() -> None:
    """Have this thread's runs keep the asynchronous generators they start. A thread of runs alone does it once."""
    sys.set_asyncgen_hooks(firstiter=_keep_generator, finalizer=None)


def _keep_generator(generator: Any) -> None:
    loop = asyncio._get_running_loop()  # noqa: SLF001
    if type(loop) is WorkflowLoop:
        loop.keep_generator(generator)


def _end(close: Callable[[], object]) -> None:
    """Close a coroutine whose clean-up code may still yield a few times; what it raises is of no interest here."""
    for _ in range(YIELDS_MAX):
        try:
            close()
        except RuntimeError:
            continue  # it ignored the exit: it has yielded, and goes on at the next attempt
        except BaseException:  # noqa: BLE001 - the run lives on elsewhere
            return
        if not isinstance(close, partial):
            return


def refuse_unordered(coro: object) -> None:
    """Refuse to start a coroutine for ``asyncio.as_completed``, which starts them in the order of their addresses."""
    frame = sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if frame.f_code.co_name not in {"ensure_future", "_ensure_future"}:
        return
    for _ in range(4):
        caller = frame.f_back
        if caller is None:
            return
        frame = caller
        if frame.f_code.co_filename != AS_COMPLETED_CODE.co_filename:
            return
        if frame.f_code is AS_COMPLETED_CODE or frame.f_code.co_qualname.startswith("_AsCompletedIterator"):
            _close_all([coro, *frame.f_locals.values()])
            raise SandboxViolation(
                "asyncio.as_completed was given coroutines: it would start them in another order on each replay.",
                remedy="Write: tasks = [asyncio.create_task(c) for c in coroutines], then asyncio.as_completed(tasks).",
            )


def _close_all(values: Iterable[object]) -> None:
    """Close the coroutines among ``values`` and in their lists, so that none is reported as never awaited."""
    for value in values:
        if isinstance(value, CoroutineType):
            value.close()
        elif isinstance(value, list | tuple | set):
            _close_all(value)  # pyright: ignore[reportUnknownArgumentType]


REFUSED: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("run_in_executor", "set_default_executor", "call_soon_threadsafe", "shutdown_default_executor"),
        "A thread's progress is not recorded. Do the work in a task: await work.execute(…).",
    ),
    **dict.fromkeys(
        (
            "getaddrinfo", "getnameinfo", "create_connection", "create_server", "sendfile", "start_tls",
            "create_unix_connection", "create_unix_server", "connect_accepted_socket", "create_datagram_endpoint",
            "connect_read_pipe", "connect_write_pipe", "add_reader", "remove_reader", "add_writer", "remove_writer",
            "sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendto",
            "sock_connect", "sock_accept", "sock_sendfile",
        ),
        "What comes from a network is not recorded. Do it in a task: await fetch.execute(…).",
    ),
    **dict.fromkeys(
        ("subprocess_shell", "subprocess_exec"),
        "What a process does is not recorded. Start it in a task: await build.execute(…).",
    ),
    **dict.fromkeys(
        ("add_signal_handler", "remove_signal_handler"),
        'The process\'s signals are not the run\'s. Use Signal("name", type).receive().',
    ),
    **dict.fromkeys(
        (
            "run_forever", "run_until_complete", "stop", "close", "shutdown_asyncgens", "set_debug",
            "set_task_factory", "set_exception_handler", "default_exception_handler",
        ),
        "The run drives its own loop. Await what you want to wait for.",
    ),
}  # fmt: skip


def _refusal(name: str, remedy: str) -> Callable[..., object]:
    def refuse(_loop: WorkflowLoop, *_args: object, **_options: object) -> object:
        raise SandboxViolation(f"Workflow code called loop.{name}.", remedy=remedy)

    refuse.__name__ = name
    return refuse


for _name, _remedy in REFUSED.items():
    setattr(WorkflowLoop, _name, _refusal(_name, _remedy))


def timeout_of(what: str, seconds: float | None) -> asyncio.Timeout:
    """Return a timeout for a wait for ``what``, whose timer says so."""
    timeout = asyncio.timeout(seconds)
    setattr(timeout, TIMED, what)
    return timeout


def loop_of(timers: Timers) -> WorkflowLoop:
    """Return a fresh loop for the run that keeps ``timers``."""
    made: Any = WorkflowLoop  # the methods it refuses were added above, where type checkers do not see them
    loop: WorkflowLoop = made(timers)
    return loop


def _hash_of_gathered(future: Any) -> int:
    """Hash what ``asyncio.gather`` returns by a number of our loop; on any other loop as it always was."""
    loop = future.get_loop()
    if type(loop) is not WorkflowLoop:
        return object.__hash__(future)
    number: int | None = future.__dict__.get("number")
    if number is None:
        loop.numbers += 1
        future.number = number = loop.numbers
    return number


# gather makes its future itself and asks the loop for nothing, so this class is the one place to give it a number.
_gathering: Any = getattr(asyncio.tasks, "_GatheringFuture", None)
if _gathering is not None:
    _gathering.__hash__ = _hash_of_gathered
