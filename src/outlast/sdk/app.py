"""``App``: what holds a program's tasks and workflows, and starts an engine and a worker for them in this process."""

import asyncio
import atexit
import functools
import logging
import os
import signal
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from types import FrameType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack, overload

from outlast.core.errors import Invalid, Refusal
from outlast.core.limits import NAME_BYTES_MAX
from outlast.protocol.addresses import masked
from outlast.protocol.transport import Transport
from outlast.sdk.capacity import Queues, Workers
from outlast.sdk.classes import members_of
from outlast.sdk.client import Client
from outlast.sdk.context import TaskContext
from outlast.sdk.converter import Converter
from outlast.sdk.durations import Duration, seconds_of
from outlast.sdk.engine import RunningEngine, StartEngine, find_engine, place_beside, rooted
from outlast.sdk.feed import CommittedEvent, Follower
from outlast.sdk.handle import TaskHandle, WorkflowHandle
from outlast.sdk.importing import refuse_start_at_import, user_place
from outlast.sdk.include import Includes
from outlast.sdk.lists import Tasks, Workflows
from outlast.sdk.misuse import Misuse, NotStarted, UnknownOption
from outlast.sdk.namespaces import Namespaces
from outlast.sdk.options import TaskDeclaration, WorkerOptions, WorkflowDeclaration, check_text, worker_options
from outlast.sdk.portal import Portal, forked
from outlast.sdk.registry import Registry
from outlast.sdk.task import AsyncTask, SyncTask, TaskDecorator, declare_task
from outlast.sdk.workflows import Workflow, WorkflowDecorator

if TYPE_CHECKING:
    from outlast.protocol.codecs import Codec
    from outlast.sdk.outbox import Outboxes
    from outlast.sdk.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

LOGGER: Final = logging.getLogger("outlast")
DRAIN: Final = "60s"
STORE_VARIABLE: Final = "OUTLAST_STORE"
TOKEN_VARIABLE: Final = "OUTLAST_TOKEN"  # noqa: S105 - the name of a variable


class App:
    """A program's tasks and workflows, and the way to the engine that runs them.

    ``store`` is "sqlite:///FILE", "postgresql://HOST/DATABASE", "memory:", or "http://HOST:PORT" of a server; by
    default $OUTLAST_STORE, else the file
    outlast.db beside the file that makes the app. ``include`` names modules whose ``@task`` functions belong to it.
    ``namespace`` is the world it speaks of. ``queues`` are those its worker polls, by default all that it declares;
    ``threads`` and ``coroutines`` how many plain functions (by default four a core) and coroutines it runs at once;
    ``drain`` how long they are waited for at the end (60 seconds); ``build`` the name of the code it runs.
    ``codecs`` stand between values and the wire, as [Zstd(), Encrypt(keys)].
    ``converter`` writes and reads values in place of the default, as Pickle(i_understand=True) for what has no JSON form.
    ``outboxes`` are databases of yours whose transactions enqueue: the app hands over what they have committed.
    ``with app:`` starts the engine and a worker here and stops both in good order; for a server only a client is started,
    unless ``worker=True``.
    ``workflows``, ``tasks``, ``queues``, ``workers`` and ``namespaces`` say what there is, for as long as the app is connected.
    """

    def __init__(
        self,
        store: str | None = None,
        *,
        include: Sequence[str | ModuleType] = (),
        namespace: str = "default",
        worker: bool | None = None,
        queues: Sequence[str] = (),
        threads: int | None = None,
        coroutines: int = 200,
        drain: Duration = DRAIN,
        build: str = "",
        codecs: "Sequence[Codec]" = (),
        converter: Converter | None = None,
        outboxes: Sequence[str] = (),
    ) -> None:
        file, line = user_place()
        self.place = f"{file}:{line}"
        self.store = store or os.environ.get(STORE_VARIABLE) or place_beside(file)
        if not isinstance(self.store, str) or not self.store.startswith(  # pyright: ignore[reportUnnecessaryIsInstance] - users may not check types
            ("sqlite:", "memory:", "postgresql:", "postgres:", "http://", "https://")
        ):
            raise UnknownOption(
                "bad_store",
                f"The store is {masked(str(self.store))!r}.",
                remedy='Give "sqlite:///FILE", "postgresql://HOST/DATABASE", "memory:", or "http://HOST:PORT" of a server.',
            )
        self.store = rooted(self.store)
        self.namespace = check_text("namespace", namespace, NAME_BYTES_MAX)
        self.converter = _converter(converter, codecs)
        self.registry = Registry()
        self.is_remote = self.store.startswith("http")
        self._wants_worker = (not self.is_remote) if worker is None else worker
        self._drain = seconds_of(drain, name="drain")
        self._options = worker_options(queues, threads=threads, coroutines=coroutines, build=build)
        self.start_engine: StartEngine | None = None  # in place of the installed one
        self._outboxes = _outboxes(outboxes, namespace=self.namespace, store=self.store)
        self._includes = Includes(include, self, self.registry)
        self._lock = threading.RLock()
        self._starts = 0
        self._engine: RunningEngine | None = None
        self._portal: Portal | None = None
        self._client: Client | None = None
        self._worker: Worker | None = None
        self._left: tuple[object, ...] = ()  # to the process that this one was forked off
        _apps.add(self)
        self.workflows: Final = Workflows(self.connect)
        self.tasks: Final = Tasks(self.connect)
        self.queues: Final = Queues(self.connect)
        self.workers: Final = Workers(self.connect)
        self.namespaces: Final = Namespaces(self.connect)

    def __repr__(self) -> str:
        return f"<App {masked(self.store)} namespace {self.namespace} at {self.place}>"

    # Declaring.

    @overload
    def task(  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
        self, function: Callable[Concatenate[TaskContext, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[TaskContext, P], R], /) -> SyncTask[P, R]: ...
    @overload
    def task(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(self, /, **options: Unpack[TaskDeclaration]) -> TaskDecorator: ...
    def task(self, function: Callable[..., Any] | None = None, /, **options: Unpack[TaskDeclaration]) -> Any:
        """Declare a task: plain functions run in threads, coroutines on a loop of their own.

        Raises:
            BadDeclaration: the function cannot be a task, or its name is taken.
            UnknownOption: there is no such option, or it cannot have that value.
        """
        if function is None:
            return functools.partial(self._declare_task, declared=options)
        return self._declare_task(function, declared=options)

    @overload
    def workflow(self, function: type[C], /) -> type[C]: ...  # type: ignore[overload-overlap]
    @overload
    def workflow(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
    @overload
    def workflow(self, /, **options: Unpack[WorkflowDeclaration]) -> WorkflowDecorator: ...
    def workflow(self, function: Callable[..., Any] | None = None, /, **options: Unpack[WorkflowDeclaration]) -> Any:
        """Declare a workflow: an ``async def``, or a class with one, that survives its process. Raises as ``task``."""
        if function is None:
            return functools.partial(self._declare_workflow, declared=options)
        return self._declare_workflow(function, declared=options)

    def _declare_task(self, function: Callable[..., Any], *, declared: TaskDeclaration) -> Any:
        try:
            declared_task = declare_task(function, home=self, declared=declared)
        except Misuse as error:
            raise error.with_traceback(
                None
            ) from error.__cause__  # the line that declares it is what is wrong, none of ours
        self.registry.add_task(declared_task)
        self._declared()
        return declared_task

    def _declare_workflow(self, function: Callable[..., Any], *, declared: WorkflowDeclaration) -> Any:
        try:
            members = members_of(function) if isinstance(function, type) else None
            run = function if members is None else members.run
            declared_workflow = Workflow[..., Any](run, home=self, declared=declared, members=members)
        except Misuse as error:
            raise error.with_traceback(None) from error.__cause__  # as of a task
        self.registry.add_workflow(declared_workflow)
        self._declared()
        if members is None:
            return declared_workflow
        setattr(function, members.attribute, declared_workflow)
        return function

    def _declared(self) -> None:
        if self._worker is not None:
            self._worker.refresh()

    # Asking.

    def get_task(self, id: str) -> TaskHandle[Any]:
        """Return the handle of a task by its id, without asking whether there is one."""
        return TaskHandle(id, self.connect)

    def get_workflow(self, id: str, run_id: str = "") -> WorkflowHandle[Any]:
        """Return the handle of a workflow by its id: of one run, or of whichever is open or was the last."""
        return WorkflowHandle(id, run_id, self.connect)

    def feed(self, after: str = "", *, follow: bool = True) -> Iterator[CommittedEvent]:
        """Yield what is committed in the app's namespace, in order: events of histories, and of tasks.

        Each event has a ``cursor``; given as ``after`` it goes on behind that event, none left out and none twice, also after
        the engine was killed. Without it the feed begins with the oldest event that is kept, with "now" at its end. It goes on
        for ever, or with ``follow=False`` to what is the end at the moment.

        Raises:
            Invalid: "cursor_expired" when events behind ``after`` are not kept any more, "invalid_cursor" for a cursor of
                another store or namespace.
        """
        return Follower(self.connect, after, follow).events()

    def afeed(self, after: str = "", *, follow: bool = True) -> AsyncIterator[CommittedEvent]:
        """Yield what ``feed`` does, for ``async for``."""
        return Follower(self.connect, after, follow).aevents()

    def connect(self) -> Client:
        """Return the way to the engine; for a server it is opened by the first call.

        Raises:
            NotStarted: the app has no engine at the moment.
        """
        client = self._client
        if client is not None:
            return client
        if not self.is_remote:
            if self._left:
                raise forked()
            raise NotStarted(
                "app_not_started",
                f"The app of {self.place} has not been started, so nothing can take this.",
                remedy="Put the call within `with app:`, or call app.start() before it.",
            )
        with self._lock:
            if self._client is None:
                self._open()
            assert self._client is not None
            return self._client

    @property
    def address(self) -> str:
        """Where other processes reach the engine; empty for one in memory or one that is not started.

        It is known a moment after the start: who asks sooner waits for it.
        """
        return self.store if self.is_remote else (self._engine.address if self._engine is not None else "")

    @property
    def worker(self) -> "Worker | None":
        """The worker in this process, while there is one."""
        return self._worker

    # Starting and stopping.

    def start(self) -> None:
        """Start the engine and the worker; ``stop`` ends them. Starting twice needs stopping twice.

        Raises:
            StartedAtImport: a command is importing the module for its tasks and workflows.
            BadDeclaration: something declared cannot be read.
        """
        refuse_start_at_import()
        with self._lock:
            self._starts += 1
            if self._starts > 1:
                return
            try:
                self._includes.resolve()
                self.registry.check()
                if self._client is None:
                    self._open()
                if self._wants_worker:
                    self._start_worker(self._options)
                if self._outboxes is not None:
                    assert self._client is not None
                    self._outboxes.start(self._client)
            except BaseException:
                self._starts = 0
                self._close()
                raise
        LOGGER.info(
            "started %s=%s tasks=%d workflows=%d",
            "server" if self.is_remote else "store",
            self.store,
            len(self.registry.tasks),
            len(self.registry.workflows),
        )

    def stop(self) -> None:
        """Stop in good order: take nothing new, let handlers end, see their results acknowledged, close the store."""
        with self._lock:
            if self._starts == 0:
                self._close()
                return
            self._starts -= 1
            if self._starts == 0:
                self._close()

    def run(self) -> None:
        """Run the engine and a worker until SIGINT or SIGTERM, then stop in good order.

        Raises:
            Refusal: the worker cannot go on: wrong credentials, or no such namespace.
        """
        refuse_start_at_import()
        self._wants_worker = True
        ended = threading.Event()
        before = _catch(ended)
        try:
            with self:
                worker = self._worker
                while not ended.wait(0.5):
                    if worker is not None and worker.error is not None:
                        raise worker.error
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        refuse_start_at_import()
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    def start_worker(self, server: str, *, queues: Sequence[str] = (), threads: int | None = None) -> None:
        """Work for the server at ``server``, whatever store the app names; for commands. ``stop`` ends it."""
        with self._lock:
            self.store = server
            self.is_remote = True
            self._wants_worker = True
            self._options = WorkerOptions(
                queues=tuple(queues) or self._options.queues,
                threads=self._options.threads if threads is None else threads,
                coroutines=self._options.coroutines,
                build=self._options.build,
            )
            self.start()

    def _open(self) -> None:
        portal = Portal("outlast-client", fast=True)
        self._portal = portal
        transport: Transport
        if self.is_remote:
            from outlast.sdk.http import HttpTransport  # noqa: PLC0415 - aiohttp is slow to load

            transport = HttpTransport(self.store, namespace=self.namespace, token=os.environ.get(TOKEN_VARIABLE, ""))
        else:
            self._engine = (self.start_engine or find_engine())(self.store, namespace=self.namespace)
            transport = self._engine.transport
        if transport.namespace != self.namespace:
            raise Invalid(
                "wrong_namespace", f"The engine serves {transport.namespace!r}, the app is for {self.namespace!r}."
            )
        self._client = Client(transport, self.converter, portal)
        atexit.register(self._close_at_exit)

    def _start_worker(self, options: WorkerOptions) -> None:
        assert self._client is not None
        assert self._portal is not None
        from outlast.sdk.worker import Worker  # noqa: PLC0415 - it brings replay, which a mere client does not need

        worker = Worker(self.registry, self._client.transport, self.converter, options=options, portal=self._portal)
        worker.start()
        self._worker = worker

    def _close_at_exit(self) -> None:
        """Close what a program left open: connections of a client, or an app that was started and never stopped."""
        try:
            self._close()
        except (Refusal, RuntimeError, TimeoutError) as error:
            LOGGER.warning("not_closed error=%s", error)

    def _close(self) -> None:
        atexit.unregister(self._close_at_exit)
        worker, portal, client, engine = self._worker, self._portal, self._client, self._engine
        self._worker = self._portal = self._client = self._engine = None
        try:
            if self._outboxes is not None:
                self._outboxes.stop()
            if worker is not None:
                worker.stop(self._drain)
        finally:
            if client is not None and portal is not None:
                portal.submit(client.transport.close()).result(timeout=10)
            if portal is not None:
                portal.close()
            if engine is not None:
                engine.stop()

    def _forget_parents(self) -> None:
        """Begin anew in a child of a fork: the threads are not here, and the connections are the parent's to close."""
        if self._portal is None:
            return
        atexit.unregister(self._close_at_exit)
        self._portal.forget_parents()
        if self._outboxes is not None:
            self._outboxes.forget_parents()
        # Kept, since to drop a connection would close it.
        self._left = (*self._left, self._worker, self._portal, self._client, self._engine)
        self._worker = self._portal = self._client = self._engine = None
        self._lock = threading.RLock()  # another thread may have held it
        self._starts = 0


def _forget_in_child() -> None:
    for app in list(_apps):
        app._forget_parents()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


_apps: "weakref.WeakSet[App]" = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def _outboxes(addresses: Sequence[str], *, namespace: str, store: str) -> "Outboxes | None":
    if not addresses:
        return None
    from outlast.sdk.outbox import Outboxes  # noqa: PLC0415 - most apps have none

    return Outboxes(addresses, namespace=namespace, store=store)


def _converter(inner: Converter | None, codecs: "Sequence[Codec]") -> Converter:
    inner = inner or Converter()
    if not codecs:
        return inner
    from outlast.protocol.codecs import Chain  # noqa: PLC0415 - most apps have none
    from outlast.sdk.coded import CodedConverter  # noqa: PLC0415 - as above

    return CodedConverter(inner, Chain(codecs))


def _catch(ended: threading.Event) -> dict[int, Any]:
    """Have SIGINT and SIGTERM set ``ended``, and return the handlers there were. Only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        return {}

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    return {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
