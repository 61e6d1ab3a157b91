"""``@task``: a function that the engine runs later, again after a failure, and never loses."""

import copy
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from outlast.core.inputs import EnqueueTask, EnqueueTasks
from outlast.core.limits import BATCH_ITEMS_MAX, PAYLOAD_INLINE_BYTES_MAX, REQUEST_BYTES_MAX, START_TO_CLOSE
from outlast.core.payload import Payloads, size_of
from outlast.core.replies import Refused, TaskEnqueuedReply, TasksEnqueued
from outlast.protocol.errors import exception_of
from outlast.sdk import guard
from outlast.sdk.ahead import Ahead
from outlast.sdk.client import Client, Home, mint
from outlast.sdk.context import TaskContext
from outlast.sdk.converter import Converter
from outlast.sdk.declare import check_function, check_name, place_of, read_parameters
from outlast.sdk.definition import TaskDefinition, TaskOptions
from outlast.sdk.handle import TaskHandle, task_wait
from outlast.sdk.misuse import BadDeclaration, Blocked, Misuse, NotYet
from outlast.sdk.options import TaskDeclaration, TaskUsing, task_options, unknown
from outlast.sdk.registry import Owner
from outlast.sdk.runtime import current_runtime

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")

REQUEST_BYTES: Final = REQUEST_BYTES_MAX // 2  # of one request of many: room for ids, names and framing


class SomeRefused(Misuse):
    """Some items of a batch were refused. ``handles`` are those of the others, by place; ``refused`` says why."""

    def __init__(self, handles: dict[int, Any], refused: dict[int, Refused]) -> None:
        self.handles = handles
        self.refused = refused
        self.indexes = sorted(refused)
        first = refused[self.indexes[0]]
        places = ", ".join(map(str, self.indexes[:20])) + (" …" if len(self.indexes) > 20 else "")  # noqa: PLR2004 - for the eye
        super().__init__(
            "some_refused",
            f"{len(refused)} of {len(refused) + len(handles)} items were refused, at {places}. "
            f"At {self.indexes[0]}: {first.fact}",
            remedy=f"{first.remedy} The others are accepted: .handles has them by place, .refused the reasons.".strip(),
        )


class Task(Generic[P, R]):
    """A declared task. Its verbs take the arguments of the function, without a leading TaskContext."""

    def __init__(self, function: Callable[..., Any], *, home: Home | None, declared: TaskDeclaration) -> None:
        check_function(function, what="task")
        self.function = function
        self.place = place_of(function)
        self.name = check_name(declared.get("name", function.__name__), what="task", place=self.place)
        where = f"The task {self.name!r} ({self.place})"
        executor = declared.get("executor", "auto")
        if executor == "process":
            raise NotYet(
                "executor_not_yet",
                f"{where} asks for executor='process'.",
                remedy="Leave it out: plain functions run in threads, coroutines on a loop of their own.",
            )
        if executor != "auto":
            raise unknown(f"executor={executor}", TaskDeclaration.__annotations__, where=where)
        self.owner = Owner(f"task {self.name!r}", module=function.__module__, place=self.place, home=home)
        chosen = {name: value for name, value in declared.items() if name not in {"name", "executor"}}
        self.options = task_options(TaskOptions(), chosen, where=where)
        self._definition: TaskDefinition | None = None
        functools.update_wrapper(cast("Any", self), function)

    def __repr__(self) -> str:
        return f"<task {self.name!r} at {self.place}>"

    @property
    def definition(self) -> TaskDefinition:
        """Return what the engine and the worker need to know of it; raises BadDeclaration."""
        definition = self._definition
        if definition is None:
            parameters, takes_context = read_parameters(self.function, what="task")
            definition = self._definition = TaskDefinition(
                name=self.name,
                function=self.function,
                is_async=inspect.iscoroutinefunction(self.function),
                takes_context=takes_context,
                parameters=parameters,
                options=self.options,
                place=self.place,
            )
        return definition

    def using(self, **options: Unpack[TaskUsing]) -> "Task[P, R]":
        """Return the same task with these options for what is enqueued or executed through it."""
        changed = copy.copy(self)
        changed.options = task_options(self.options, options, where=f"{self.name}.using(…)")
        if changed._definition is not None:  # noqa: SLF001 - a copy of this very object
            changed._definition = replace(changed._definition, options=changed.options)  # noqa: SLF001 - as above
        return changed

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """Make a task of it that is durable when this returns, and return its handle.

        Raises:
            PayloadError: an argument cannot be written down; the path of the value is named.
            Refusal: the engine does not take it.
        """
        client = self._client("aenqueue")
        request = self._request(client, args, kwargs)
        reply = client.ask(request, TaskEnqueuedReply, instead=f"{self.name}.aenqueue(…)")
        return self._handle(reply.task_id)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """As ``enqueue``, without blocking the loop. In workflow code: one that outlives the run."""
        runtime = current_runtime()
        if runtime is not None:
            return self._handle(runtime.enqueue_detached(self.definition, args, kwargs, self.options))
        client = self.owner.connect()
        request = self._request(client, args, kwargs)
        reply = await client.aask(request, TaskEnqueuedReply, instead=f"{self.name}.aenqueue(…)")
        return self._handle(reply.task_id)

    def enqueue_many(self, calls: Iterable[tuple[Any, ...]]) -> list[TaskHandle[R]]:
        """Make a task of each tuple of arguments and return their handles in order.

        They go in requests of up to 1,000; each item has its own outcome.

        Raises:
            SomeRefused: the engine refused some; it has the handles of the others.
        """
        client = self._client("aenqueue_many")
        chunks = self._chunks(client, calls)
        replies: list[TaskEnqueuedReply | Refused] = []
        for chunk in chunks:
            request = EnqueueTasks(items=tuple(self._made(client, payloads) for payloads in chunk))
            replies += client.ask(request, TasksEnqueued, instead=f"{self.name}.aenqueue_many(…)").items
        return self._handles(replies)

    async def aenqueue_many(self, calls: Iterable[tuple[Any, ...]]) -> list[TaskHandle[R]]:
        """As ``enqueue_many``, without blocking the loop."""
        client = self._client("aenqueue")
        chunks = self._chunks(client, calls)
        replies: list[TaskEnqueuedReply | Refused] = []
        for chunk in chunks:
            request = EnqueueTasks(items=tuple(self._made(client, payloads) for payloads in chunk))
            reply = await client.aask(request, TasksEnqueued, instead=f"{self.name}.aenqueue_many(…)")
            replies += reply.items
        return self._handles(replies)

    async def execute(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it durably and return its result. In workflow code: as an activity of the run.

        Raises:
            TaskError: it failed, was cancelled or expired.
        """
        runtime = current_runtime()
        if runtime is not None:
            result: R = await runtime.execute_activity(self.definition, args, kwargs, self.options)
            return result
        return await (await self.aenqueue(*args, **kwargs)).aresult()

    def _client(self, twin: str) -> Client:
        if current_runtime() is not None:
            raise Blocked(
                "blocking_call_in_workflow",
                f"Workflow code called a blocking verb of the task {self.name!r}.",
                remedy=f"Write: await {self.name}.execute(…) for its result, or await {self.name}.{twin}(…) for one that "
                "outlives the run.",
            )
        return self.owner.connect()

    def _request(self, client: Client, args: tuple[Any, ...], kwargs: dict[str, Any]) -> EnqueueTask:
        return self._made(client, self._write(client.converter, args, kwargs))

    def _made(self, client: Client, payloads: Payloads) -> EnqueueTask:
        options = self.options
        minted = mint()
        return EnqueueTask(
            task_id=options.id or minted,
            type=self.name,
            queue=options.queue,
            key=options.key or minted,
            input=payloads,
            retry=options.retry,
            delay=options.delay,
            start_to_close=START_TO_CLOSE if options.start_to_close is None else options.start_to_close,
            schedule_to_start=options.schedule_to_start,
            schedule_to_close=options.schedule_to_close,
            heartbeat=options.heartbeat,
            priority=options.priority,
            fairness_key=options.fairness_key,
            tags=options.tags,
            identity=client.identity,
        )

    def _write(self, converter: Converter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Payloads:
        return converter.arguments_to_payloads(self.definition.parameters, args, kwargs)

    def _chunks(self, client: Client, calls: Iterable[tuple[Any, ...]]) -> list[list[Payloads]]:
        """Return the arguments of all calls, written down, by request. Ids are minted as each request is sent: the engine
        knows without a look that an id is new if it is later than all it has.
        """
        if self.options.id or self.options.key:
            raise BadDeclaration(
                "one_id_for_many",
                f"{self.name}.enqueue_many(…) was given one id or key for many tasks.",
                remedy="Leave id and key out of .using(…); each task gets its own.",
            )
        chunks: list[list[Payloads]] = []
        room = 0
        for place, arguments in enumerate(calls):
            if not isinstance(arguments, tuple):  # pyright: ignore[reportUnnecessaryIsInstance] - users may not check types
                raise BadDeclaration(
                    "not_a_tuple",
                    f"Item {place} of {self.name}.enqueue_many(…) is {arguments!r}.",
                    remedy="Give a tuple of arguments for each task, also for a single one: [(1,), (2,)].",
                )
            payloads = self._write(client.converter, arguments, {})
            size = min(size_of(payloads), PAYLOAD_INLINE_BYTES_MAX * len(payloads) + 1) + 200
            if not chunks or len(chunks[-1]) >= BATCH_ITEMS_MAX or size > room:
                chunks.append([])
                room = REQUEST_BYTES
            chunks[-1].append(payloads)
            room -= size
        return chunks

    def _handles(self, replies: list[TaskEnqueuedReply | Refused]) -> list[TaskHandle[R]]:
        handles: dict[int, TaskHandle[R]] = {}
        refused: dict[int, Refused] = {}
        ids: list[str] = []
        ahead = Ahead(ids, task_wait)
        connect, result_type = self.owner.connect, self.definition.parameters.result
        for place, reply in enumerate(replies):
            if isinstance(reply, Refused):
                refused[place] = reply
            else:
                handles[place] = TaskHandle(reply.task_id, connect, result_type, ahead=ahead, place=len(ids))
                ids.append(reply.task_id)
        if refused and not handles and len(replies) == 1:
            raise exception_of(refused[0])
        if refused:
            raise SomeRefused(handles, refused)
        return list(handles.values())

    def _handle(self, task_id: str) -> TaskHandle[R]:
        return TaskHandle(task_id, self.owner.connect, self.definition.parameters.result)


class SyncTask(Task[P, R]):
    """A declared task whose function is a plain ``def``: a plain call runs it here, with no durability."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = call_plainly(self.definition, args, kwargs)
        return result


class AsyncTask(Task[P, R]):
    """A declared task whose function is ``async def``: a plain call gives its coroutine, with no durability."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        result: Coroutine[Any, Any, R] = call_plainly(self.definition, args, kwargs)
        return result


def call_plainly(definition: TaskDefinition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function here; a TaskContext that stands alone is supplied. Raises DirectCall in workflow code."""
    if current_runtime() is not None:
        guard.refuse_direct_call(definition)
    if definition.takes_context and not (args and isinstance(args[0], TaskContext)):
        return definition.function(TaskContext.for_test(), *args, **kwargs)
    return definition.function(*args, **kwargs)


class TaskDecorator(Protocol):
    """What ``@task(…)`` gives: takes the function."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
        self, function: Callable[Concatenate[TaskContext, Q], Coroutine[Any, Any, T]], /
    ) -> AsyncTask[Q, T]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[TaskContext, Q], T], /) -> SyncTask[Q, T]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Q, Coroutine[Any, Any, T]], /
    ) -> AsyncTask[Q, T]: ...
    @overload
    def __call__(self, function: Callable[Q, T], /) -> SyncTask[Q, T]: ...


@overload
def task(  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
    function: Callable[Concatenate[TaskContext, P], Coroutine[Any, Any, R]], /
) -> AsyncTask[P, R]: ...
@overload
def task(function: Callable[Concatenate[TaskContext, P], R], /) -> SyncTask[P, R]: ...
@overload
def task(  # type: ignore[overload-overlap]
    function: Callable[P, Coroutine[Any, Any, R]], /
) -> AsyncTask[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> SyncTask[P, R]: ...
@overload
def task(**options: Unpack[TaskDeclaration]) -> TaskDecorator: ...
def task(function: Callable[..., Any] | None = None, /, **options: Unpack[TaskDeclaration]) -> Any:
    """Declare a task that belongs to no app yet: ``App(include=[its module])`` takes it up."""
    if function is None:
        return functools.partial(declare_task, home=None, declared=options)
    return declare_task(function, home=None, declared=options)


def declare_task(function: Callable[..., Any], *, home: Home | None, declared: TaskDeclaration) -> Task[..., Any]:
    """Return ``function`` as a task of ``home``."""
    if inspect.iscoroutinefunction(function):
        return AsyncTask[..., Any](function, home=home, declared=declared)
    return SyncTask[..., Any](function, home=home, declared=declared)
