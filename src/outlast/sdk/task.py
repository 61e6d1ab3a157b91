"""``@task``: a function that the engine runs later, again after a failure, and never loses."""

import copy
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

import msgspec

from outlast.core.inputs import EnqueueTask, EnqueueTasks
from outlast.core.limits import START_TO_CLOSE
from outlast.core.payload import Payloads
from outlast.core.replies import Refused, TaskEnqueuedReply, TasksEnqueued
from outlast.protocol.errors import exception_of
from outlast.sdk import guard
from outlast.sdk.ahead import Ahead
from outlast.sdk.client import Client, Home, default_identity, mint
from outlast.sdk.context import TaskContext
from outlast.sdk.converter import Converter
from outlast.sdk.declare import check_function, check_name, place_of, read_parameters
from outlast.sdk.definition import TaskDefinition, TaskOptions
from outlast.sdk.enclosed import awrite_in, refuse_enclosed, refuse_wait, write_in
from outlast.sdk.handle import TaskHandle, task_wait
from outlast.sdk.many import calls_of, parted
from outlast.sdk.misuse import Blocked, Misuse, NotYet
from outlast.sdk.options import TaskDeclaration, TaskUsing, task_options, unknown
from outlast.sdk.registry import Owner
from outlast.sdk.runtime import current_runtime
from outlast.sdk.unawaited import to_await

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")


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
        self._tx: object | None = None
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
        """Return the same task with these options for what is enqueued or executed through it.

        With ``tx`` it is enqueued in a transaction of the caller's: there if and only if that commits, with its id known at once.
        """
        changed = copy.copy(self)
        chosen = {name: value for name, value in options.items() if name != "tx"}
        changed.options = task_options(self.options, chosen, where=f"{self.name}.using(…)")
        changed._tx = options.get("tx", self._tx)  # noqa: SLF001 - a copy of this very object
        if changed._definition is not None:  # noqa: SLF001 - a copy of this very object
            changed._definition = replace(changed._definition, options=changed.options)  # noqa: SLF001 - as above
        return changed

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """Make a task of it that is durable when this returns, and return its handle.

        Raises:
            PayloadError: an argument cannot be written down; the path of the value is named.
            Refusal: the engine does not take it.
        """
        if self._tx is not None:
            namespace, items = self._enclosed([(args, kwargs)])
            write_in(self._tx, namespace, items, instead=f"{self.name}.using(tx=…).aenqueue(…)")
            return self._handle(items[0].task_id, pending=True)
        client = self._client("aenqueue")
        request = self._request(client, args, kwargs)
        reply = client.ask(request, TaskEnqueuedReply, instead=f"{self.name}.aenqueue(…)")
        return self._handle(reply.task_id)

    @to_await
    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """As ``enqueue``, without blocking the loop. In workflow code: one that outlives the run."""
        if self._tx is not None:
            namespace, items = self._enclosed([(args, kwargs)])
            await awrite_in(self._tx, namespace, items)
            return self._handle(items[0].task_id, pending=True)
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
        if self._tx is not None:
            namespace, items = self._enclosed_many(calls)
            write_in(self._tx, namespace, items, instead=f"{self.name}.using(tx=…).aenqueue_many(…)")
            return [self._handle(item.task_id, pending=True) for item in items]
        client = self._client("aenqueue_many")
        chunks = self._chunks(client, calls)
        replies: list[TaskEnqueuedReply | Refused] = []
        for chunk in chunks:
            request = EnqueueTasks(items=tuple(self._made(client.identity, payloads) for payloads in chunk))
            replies += client.ask(request, TasksEnqueued, instead=f"{self.name}.aenqueue_many(…)").items
        return self._handles(replies)

    @to_await
    async def aenqueue_many(self, calls: Iterable[tuple[Any, ...]]) -> list[TaskHandle[R]]:
        """As ``enqueue_many``, without blocking the loop."""
        if self._tx is not None:
            namespace, items = self._enclosed_many(calls)
            await awrite_in(self._tx, namespace, items)
            return [self._handle(item.task_id, pending=True) for item in items]
        client = self._client("aenqueue")
        chunks = self._chunks(client, calls)
        replies: list[TaskEnqueuedReply | Refused] = []
        for chunk in chunks:
            request = EnqueueTasks(items=tuple(self._made(client.identity, payloads) for payloads in chunk))
            reply = await client.aask(request, TasksEnqueued, instead=f"{self.name}.aenqueue_many(…)")
            replies += reply.items
        return self._handles(replies)

    @to_await
    async def execute(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it durably and return its result. In workflow code: as an activity of the run.

        Raises:
            TaskError: it failed, was cancelled or expired.
        """
        refuse_wait(self._tx, f"{self.name}.execute(…)")
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
        return self._made(client.identity, self._write(client.converter, args, kwargs))

    def _enclosed_many(self, calls: Iterable[tuple[Any, ...]]) -> tuple[str, list[EnqueueTask]]:
        return self._enclosed([(arguments, {}) for arguments in self._calls(calls)])

    def _enclosed(self, calls: Iterable[tuple[tuple[Any, ...], dict[str, Any]]]) -> tuple[str, list[EnqueueTask]]:
        """Return the namespace and what to write into the caller's transaction. The id of each is its idempotency key."""
        refuse_enclosed(self.name, key=self.options.key)
        home = self.owner.bound()
        identity = default_identity()
        made = [self._made(identity, self._write(home.converter, args, kwargs)) for args, kwargs in calls]
        return home.namespace, [msgspec.structs.replace(item, key=item.task_id) for item in made]

    def _made(self, identity: str, payloads: Payloads) -> EnqueueTask:
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
            identity=identity,
        )

    def _write(self, converter: Converter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Payloads:
        return converter.arguments_to_payloads(self.definition.parameters, args, kwargs)

    def _chunks(self, client: Client, calls: Iterable[tuple[Any, ...]]) -> list[list[Payloads]]:
        """Return the arguments of all calls, written down, by request. Ids are minted as each request is sent: the engine
        knows without a look that an id is new if it is later than all it has.
        """
        return parted(self._write(client.converter, arguments, {}) for arguments in self._calls(calls))

    def _calls(self, calls: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        named = bool(self.options.id or self.options.key)
        return calls_of(calls, verb=f"{self.name}.enqueue_many", each="task", named=named)

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

    def _handle(self, task_id: str, *, pending: bool = False) -> TaskHandle[R]:
        return TaskHandle(task_id, self.owner.connect, self.definition.parameters.result, pending=pending)


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
