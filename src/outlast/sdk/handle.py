"""What enqueue and start give: a name for the thing, its result, and the few words one can say to it."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from outlast.core.errors import Refusal
from outlast.core.inputs import (
    AwaitTask,
    AwaitWorkflow,
    CancelTask,
    CancelWorkflow,
    DescribeTask,
    DescribeWorkflow,
    QueryWorkflow,
    SignalWorkflow,
    TerminateWorkflow,
)
from outlast.core.replies import (
    Accepted,
    QueryAnswered,
    Refused,
    RunStatus,
    TaskInfo,
    TaskOutcomeReply,
    TasksRetried,
    TaskState,
    WorkflowInfo,
    WorkflowOutcome,
)
from outlast.protocol.errors import exception_of
from outlast.protocol.transport import Attempt
from outlast.sdk.ahead import Ahead
from outlast.sdk.classes import QueryMethod, SignalMethod
from outlast.sdk.client import Client, mint, retry_request, seconds
from outlast.sdk.declare import read_parameters
from outlast.sdk.durations import Duration
from outlast.sdk.errors import BadArguments, NotPublished
from outlast.sdk.misuse import Misuse
from outlast.sdk.outcomes import query_error, task_error, workflow_error
from outlast.sdk.pending import send_pending
from outlast.sdk.recorded import HistoryEvent, Reading
from outlast.sdk.signals import Signal

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")


class Handle(Protocol[R_co]):
    """Something durable that will have a result of type R: a task or a run of a workflow."""

    @property
    def id(self) -> str:
        """The id of the task, or of the workflow."""
        ...

    def result(self, timeout: Duration | None = None) -> R_co:
        """Return the result, waiting for the end. Raises TaskError or WorkflowFailed, TimeoutError after ``timeout``."""
        ...

    async def aresult(self, timeout: Duration | None = None) -> R_co:
        """As ``result``, without blocking the loop."""
        ...

    def cancel(self, reason: str = "") -> bool:
        """Ask it to stop. Return False when it had been asked before."""
        ...

    async def acancel(self, reason: str = "") -> bool:
        """As ``cancel``, without blocking the loop."""
        ...


class TaskHandle(Generic[R]):
    """A standalone task that is durable already. It holds nothing open and may be thrown away."""

    __slots__ = ("_ahead", "_connect", "_pending", "_place", "_result_type", "id")

    def __init__(
        self,
        id: str,
        connect: Callable[[], Client],
        result_type: Any = Any,
        *,
        ahead: Ahead | None = None,
        place: int = 0,
        pending: bool = False,
    ) -> None:
        """``ahead`` has the waits of the batch that the task came in, there at ``place``. ``pending``: not taken yet."""
        self.id = id
        self._connect = connect
        self._result_type = result_type
        self._ahead = ahead
        self._place = place
        self._pending = pending

    def __repr__(self) -> str:
        return f"<task {self.id}>"

    def result(self, timeout: Duration | None = None) -> R:
        """Return what the task returned, waiting for its end; None waits for ever.

        Raises:
            TaskError: it failed, was cancelled or expired; the cause is the exception it ended with.
            TimeoutError: it has not ended in time. It goes on.
        """
        client = self._connect()
        limit = seconds(timeout)
        client.portal.check("handle.aresult()", blocking=True)
        reply = None if self._ahead is None else self._ahead.ready(self._place)
        if not isinstance(reply, TaskOutcomeReply):
            try:
                reply = client.portal.run(self._ended(client, limit), instead="handle.aresult()")
            except (Refusal, TimeoutError) as error:
                raise _late(error, f"Task {self.id}", limit) from None
        return self._read(reply, client)

    async def aresult(self, timeout: Duration | None = None) -> R:
        """As ``result``, without blocking the loop."""
        client = self._connect()
        limit = seconds(timeout)
        try:
            reply = await client.arun(self._ended(client, limit), instead="handle.aresult()")
        except (Refusal, TimeoutError) as error:
            raise _late(error, f"Task {self.id}", limit) from None
        return self._read(reply, client)

    async def _ended(self, client: Client, limit: float | None) -> TaskOutcomeReply:
        began = time.monotonic()
        if self._ahead is not None:
            reply = await self._ahead.reply(self._place, client, limit)
            if isinstance(reply, TaskOutcomeReply):
                return reply
        left = None if limit is None else max(0.0, began + limit - time.monotonic())
        send = send_pending if self._pending else Client.send
        return await send(client, AwaitTask(task_id=self.id), TaskOutcomeReply, left)

    def cancel(self, reason: str = "") -> bool:
        """Ask the task to stop. Return False when it had ended or was asked before."""
        client = self._connect()
        request = CancelTask(task_id=self.id, reason=reason, identity=client.identity)
        return client.ask(request, Accepted, instead="handle.acancel()").changed

    async def acancel(self, reason: str = "") -> bool:
        """As ``cancel``, without blocking the loop."""
        client = self._connect()
        request = CancelTask(task_id=self.id, reason=reason, identity=client.identity)
        return (await client.aask(request, Accepted, instead="handle.acancel()")).changed

    def describe(self) -> TaskInfo:
        """Return what is known of the task: state, attempt, last failure, and why it waits."""
        client = self._connect()
        return client.converter.opened(
            client.ask(DescribeTask(task_id=self.id), TaskInfo, instead="handle.adescribe()")
        )

    async def adescribe(self) -> TaskInfo:
        """As ``describe``, without blocking the loop."""
        client = self._connect()
        return client.converter.opened(
            await client.aask(DescribeTask(task_id=self.id), TaskInfo, instead="handle.adescribe()")
        )

    def retry(self, reason: str = "") -> bool:
        """Bring the task back after it failed, expired or was cancelled: it begins anew. Return False when it has not ended.

        Raises Closed for one that has succeeded, Invalid for an activity, whose run knows of its end.
        """
        client = self._connect()
        reply = client.ask(retry_request(client, (self.id,), reason), TasksRetried, instead="handle.aretry(…)")
        return self._brought_back(reply)

    async def aretry(self, reason: str = "") -> bool:
        """As ``retry``, without blocking the loop."""
        client = self._connect()
        request = retry_request(client, (self.id,), reason)
        return self._brought_back(await client.aask(request, TasksRetried, instead="handle.aretry(…)"))

    def _brought_back(self, reply: TasksRetried) -> bool:
        (item,) = reply.items
        if isinstance(item, Refused):
            raise exception_of(item)
        self._ahead = None  # it has another end now
        return item.changed

    def attempts(self) -> tuple[Attempt, ...]:
        """Return how the leases of the task ended, in order: who had them, when, and with what error."""
        client = self._connect()
        reading = client.transport.read_attempts(self.id)
        return client.converter.opened(client.portal.run(reading, instead="handle.aattempts()"))

    async def aattempts(self) -> tuple[Attempt, ...]:
        """As ``attempts``, without blocking the loop."""
        client = self._connect()
        reading = client.transport.read_attempts(self.id)
        return client.converter.opened(await client.arun(reading, instead="handle.aattempts()"))

    def _read(self, reply: TaskOutcomeReply, client: Client) -> R:
        if reply.state is not TaskState.SUCCEEDED:
            raise task_error(client.converter.opened(reply))
        if not reply.result:
            return None  # type: ignore[return-value]  # pyright: ignore[reportReturnType] - what a function without return gives
        value: R = client.converter.from_payload(reply.result[0], self._result_type, path="result")
        return value


class WorkflowHandle(Generic[R]):
    """A run of a workflow, or, without ``run_id``, whichever run of its workflow id is open or was the last."""

    __slots__ = ("_ahead", "_connect", "_pending", "_place", "_result_type", "_start", "id", "run_id")

    def __init__(
        self,
        id: str,
        run_id: str,
        connect: Callable[[], Client],
        result_type: Any = Any,
        *,
        ahead: Ahead | None = None,
        place: int = 0,
        pending: bool = False,
        start: str = "",
    ) -> None:
        """``ahead`` has the waits of the batch that the run came in, there at ``place``. ``pending``: not taken yet.

        ``start``: the id of the request by which it will be known which run it came to be.
        """
        self.id = id
        self.run_id = run_id
        self._connect = connect
        self._result_type = result_type
        self._ahead = ahead
        self._place = place
        self._pending = pending
        self._start = start

    def __repr__(self) -> str:
        return f"<workflow {self.id} run {self.run_id}>" if self.run_id else f"<workflow {self.id}>"

    def result(self, timeout: Duration | None = None) -> R:
        """Return what the workflow returned, waiting for its end over continued runs; None waits for ever.

        Raises:
            WorkflowFailed: it failed, or was cancelled, terminated or timed out; the cause is what it ended with.
            TimeoutError: it has not ended in time. It goes on.
        """
        client = self._connect()
        limit = seconds(timeout)
        client.portal.check("handle.aresult()", blocking=True)
        reply = None if self._ahead is None else self._ahead.ready(self._place)
        if not isinstance(reply, WorkflowOutcome) or reply.new_run_id:
            try:
                reply = client.portal.run(self._closed(client, limit), instead="handle.aresult()")
            except (Refusal, TimeoutError) as error:
                raise _late(error, f"Workflow {self.id}", limit) from None
        return self._read(reply, client)

    async def aresult(self, timeout: Duration | None = None) -> R:
        """As ``result``, without blocking the loop."""
        client = self._connect()
        limit = seconds(timeout)
        try:
            reply = await client.arun(self._closed(client, limit), instead="handle.aresult()")
        except (Refusal, TimeoutError) as error:
            raise _late(error, f"Workflow {self.id}", limit) from None
        return self._read(reply, client)

    async def _closed(self, client: Client, limit: float | None) -> WorkflowOutcome:
        """Return how the last run of a chain ended, having waited for each; on the client's loop."""
        ends = None if limit is None else time.monotonic() + limit
        reply = None if self._ahead is None else await self._ahead.reply(self._place, client, limit)
        send = send_pending if self._pending else Client.send
        if self._start and not self.run_id:  # the latest run may be one that ended before the start was taken
            asked = DescribeWorkflow(workflow_id=self.id, start_request_id=self._start)
            self.run_id = (await send(client, asked, WorkflowInfo, limit)).run_id
        run_id = self.run_id
        while True:
            if not isinstance(reply, WorkflowOutcome):
                left = None if ends is None else max(0.0, ends - time.monotonic())
                reply = await send(client, AwaitWorkflow(workflow_id=self.id, run_id=run_id), WorkflowOutcome, left)
            if not reply.new_run_id:
                return reply
            run_id, reply = reply.new_run_id, None

    @overload
    def signal(self, signal: Signal[S], value: S, /) -> None: ...
    @overload
    def signal(self, signal: SignalMethod[P], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    def signal(self, signal: Any, /, *args: Any, **kwargs: Any) -> None:
        """Send a signal; it is durable when this returns."""
        client = self._connect()
        client.ask(self._signal(client, signal, args, kwargs), Accepted, instead="handle.asignal(…)")

    @overload
    async def asignal(self, signal: Signal[S], value: S, /) -> None: ...
    @overload
    async def asignal(self, signal: SignalMethod[P], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    async def asignal(self, signal: Any, /, *args: Any, **kwargs: Any) -> None:
        """As ``signal``, without blocking the loop."""
        client = self._connect()
        await client.aask(self._signal(client, signal, args, kwargs), Accepted, instead="handle.asignal(…)")

    @overload
    def query(self, query: QueryMethod[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def query(self, query: str, /, *args: Any) -> Any: ...
    def query(self, query: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return what the run's code says: a worker calls the method, once all that was recorded has been shown to it.

        Raises:
            QueryFailed: the method raised, or there is none of that name.
            Unavailable: no worker has answered within 10 seconds.
            Conflict: the code fails at each try, so that it cannot be asked.
        """
        client = self._connect()
        reply = client.ask(self._query(client, query, args, kwargs), QueryAnswered, instead="handle.aquery(…)")
        return self._said(client, query, reply)

    @overload
    async def aquery(self, query: QueryMethod[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def aquery(self, query: str, /, *args: Any) -> Any: ...
    async def aquery(self, query: Any, /, *args: Any, **kwargs: Any) -> Any:
        """As ``query``, without blocking the loop."""
        client = self._connect()
        request = self._query(client, query, args, kwargs)
        return self._said(client, query, await client.aask(request, QueryAnswered, instead="handle.aquery(…)"))

    def published(self, name: str, type: Any = Any) -> Any:
        """Return what the code has published under ``name``, as ``type``; no worker is needed.

        Raises:
            NotPublished: nothing, or not yet.
        """
        return self._published(self._connect(), self.describe(), name, type)

    async def apublished(self, name: str, type: Any = Any) -> Any:
        """As ``published``, without blocking the loop."""
        return self._published(self._connect(), await self.adescribe(), name, type)

    def cancel(self, reason: str = "") -> bool:
        """Ask the run to stop; its code may tidy up. Return False when it had been asked before."""
        client = self._connect()
        return client.ask(self._cancel(client, reason), Accepted, instead="handle.acancel()").changed

    async def acancel(self, reason: str = "") -> bool:
        """As ``cancel``, without blocking the loop."""
        client = self._connect()
        return (await client.aask(self._cancel(client, reason), Accepted, instead="handle.acancel()")).changed

    def terminate(self, reason: str = "") -> None:
        """End the run now; its code gets no word in it."""
        client = self._connect()
        client.ask(self._terminate(client, reason), Accepted, instead="handle.aterminate()")

    async def aterminate(self, reason: str = "") -> None:
        """As ``terminate``, without blocking the loop."""
        client = self._connect()
        await client.aask(self._terminate(client, reason), Accepted, instead="handle.aterminate()")

    def describe(self) -> WorkflowInfo:
        """Return what is known of the run: status, what it waits for, and why it does not move."""
        request = DescribeWorkflow(workflow_id=self.id, run_id=self.run_id)
        client = self._connect()
        return client.converter.opened(client.ask(request, WorkflowInfo, instead="handle.adescribe()"))

    async def adescribe(self) -> WorkflowInfo:
        """As ``describe``, without blocking the loop."""
        request = DescribeWorkflow(workflow_id=self.id, run_id=self.run_id)
        client = self._connect()
        return client.converter.opened(await client.aask(request, WorkflowInfo, instead="handle.adescribe()"))

    def history(self, first_event_id: int = 1) -> Iterator[HistoryEvent]:
        """Yield the events recorded so far, in order; pages are fetched as they are needed."""
        return self._reading(first_event_id, follow=False, instead="handle.ahistory(…)").events()

    def ahistory(self, first_event_id: int = 1) -> AsyncIterator[HistoryEvent]:
        """As ``history``, for ``async for``."""
        return self._reading(first_event_id, follow=False, instead="handle.ahistory(…)").aevents()

    def watch(self, first_event_id: int = 1) -> Iterator[HistoryEvent]:
        """Yield the events as they are committed until the run has closed; one that continued as new goes on in the next."""
        return self._reading(first_event_id, follow=True, instead="handle.awatch(…)").events()

    def awatch(self, first_event_id: int = 1) -> AsyncIterator[HistoryEvent]:
        """As ``watch``, for ``async for``."""
        return self._reading(first_event_id, follow=True, instead="handle.awatch(…)").aevents()

    def _reading(self, first_event_id: int, *, follow: bool, instead: str) -> Reading:
        return Reading(self._connect, self.id, self.run_id, first_event_id, follow, instead)

    def _signal(self, client: Client, signal: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SignalWorkflow:
        converter = client.converter
        if isinstance(signal, SignalMethod):
            name = signal.name
            parameters, _ = read_parameters(signal.function, what="signal", of_object=True)
            payloads = converter.arguments_to_payloads(parameters, args, kwargs)
        elif isinstance(signal, Signal):
            name = signal.name
            if len(args) != 1 or kwargs:
                said = f'Signal "{name}" takes one value; {len(args) + len(kwargs)} were given.'
                raise BadArguments(said, remedy="Give several in one, as a dataclass has them.")
            payloads = (converter.to_payload(args[0], path=name, declared=signal.type),)
        else:
            raise Misuse(
                "not_a_signal",
                f"handle.signal(…) was given {signal!r}.",
                remedy='Give the Signal: paid = Signal("paid"), then handle.signal(paid, value); of a class the method.',
            )
        return SignalWorkflow(
            workflow_id=self.id,
            run_id=self.run_id,
            name=name,
            request_id=mint(),
            input=payloads,
            identity=client.identity,
        )

    def _query(self, client: Client, query: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> QueryWorkflow:
        if isinstance(query, QueryMethod):
            name = query.name
            parameters, _ = read_parameters(query.function, what="query", of_object=True)
            payloads = client.converter.arguments_to_payloads(parameters, args, kwargs)
        elif isinstance(query, str):
            name = query
            if kwargs:
                said = f'Query "{name}" is given by its name, and {", ".join(kwargs)} by theirs.'
                raise BadArguments(said, remedy="Give values in order, or the method itself in place of its name.")
            payloads = tuple(client.converter.to_payload(value, path=f"{name}[{n}]") for n, value in enumerate(args))
        else:
            raise Misuse(
                "not_a_query",
                f"handle.query(…) was given {query!r}.",
                remedy='Give the method: handle.query(Cart.count), or its name: handle.query("count").',
            )
        return QueryWorkflow(
            workflow_id=self.id, run_id=self.run_id, name=name, input=payloads, identity=client.identity
        )

    def _said(self, client: Client, query: object, reply: QueryAnswered) -> Any:
        if reply.failure is not None:
            raise query_error(client.converter.opened(reply.failure), self.id)
        if not reply.result:
            return None
        result_type: Any = Any
        if isinstance(query, QueryMethod):
            result_type = read_parameters(query.function, what="query", of_object=True)[0].result
        return client.converter.from_payload(reply.result[0], result_type, path="result")

    def _published(self, client: Client, info: WorkflowInfo, name: str, type: Any) -> Any:
        payload = (info.published or {}).get(name)
        if payload is None:
            names = ", ".join(sorted(info.published or ())) or "nothing"
            raise NotPublished(
                f"Run {info.run_id} of {info.workflow_id} has not published {name!r}.",
                remedy=f"It has published: {names}.",
            )
        return client.converter.from_payload(payload, type, path=name)

    def _cancel(self, client: Client, reason: str) -> CancelWorkflow:
        return CancelWorkflow(
            workflow_id=self.id, run_id=self.run_id, request_id=mint(), reason=reason, identity=client.identity
        )

    def _terminate(self, client: Client, reason: str) -> TerminateWorkflow:
        return TerminateWorkflow(
            workflow_id=self.id, run_id=self.run_id, request_id=mint(), reason=reason, identity=client.identity
        )

    def _read(self, reply: WorkflowOutcome, client: Client) -> R:
        if reply.status is not RunStatus.COMPLETED:
            raise workflow_error(client.converter.opened(reply))
        if not reply.result:
            return None  # type: ignore[return-value]  # pyright: ignore[reportReturnType] - what a function without return gives
        value: R = client.converter.from_payload(reply.result[0], self._result_type, path="result")
        return value


def task_wait(id: str) -> AwaitTask:
    """Return the wait for a task by its id."""
    return AwaitTask(task_id=id)


def workflow_wait(ids: tuple[str, str]) -> AwaitWorkflow:
    """Return the wait for a run by its workflow id and its own."""
    return AwaitWorkflow(workflow_id=ids[0], run_id=ids[1])


def _late(error: Refusal | TimeoutError, what: str, limit: float | None) -> Exception:
    if isinstance(error, Refusal) and error.code != "timeout":
        return error
    return TimeoutError(
        f"{what} has not ended within {limit:g} s; it is still open; outlast why says what it waits for."
        if limit is not None
        else str(error)
    )
