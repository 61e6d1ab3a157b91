"""``@app.workflow``: a function that survives its process, and the verbs that start it."""

import copy
import functools
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Final, Generic, NoReturn, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

import msgspec

from outlast.core.inputs import IfClosed, IfOpen, StartWorkflow, StartWorkflows
from outlast.core.payload import Payloads
from outlast.core.replies import Refused, WorkflowsStarted, WorkflowStarted
from outlast.sdk.ahead import Ahead
from outlast.sdk.classes import Members
from outlast.sdk.client import Client, Home, default_identity, mint
from outlast.sdk.converter import Converter
from outlast.sdk.declare import check_function, check_name, place_of, read_parameters
from outlast.sdk.definition import WorkflowDefinition, WorkflowOptions
from outlast.sdk.enclosed import awrite_in, refuse_enclosed, refuse_wait, write_in
from outlast.sdk.handle import WorkflowHandle, workflow_wait
from outlast.sdk.many import calls_of, parted
from outlast.sdk.misuse import Misuse, NotYet
from outlast.sdk.options import WorkflowDeclaration, WorkflowUsing, workflow_options
from outlast.sdk.registry import Owner
from outlast.sdk.runtime import current_runtime
from outlast.sdk.task import SomeRefused

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C")

_IF_OPEN: Final = {kind.value: kind for kind in IfOpen}
_IF_CLOSED: Final = {kind.value: kind for kind in IfClosed}


class Workflow(Generic[P, R]):
    """A declared workflow. Its verbs take the arguments of the function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        home: Home | None,
        declared: WorkflowDeclaration,
        members: Members | None = None,
    ) -> None:
        """``members`` are those of the class whose run ``function`` is."""
        check_function(function, what="workflow")
        self.function = function
        self.place = place_of(function)
        default_name = function.__name__ if members is None else members.name
        self.name = check_name(declared.get("name", default_name), what="workflow", place=self.place)
        self._members = members
        self.owner = Owner(f"workflow {self.name!r}", module=function.__module__, place=self.place, home=home)
        self._fail_on_nondeterminism = declared.get("fail_on_nondeterminism", False)
        chosen = {name: value for name, value in declared.items() if name not in {"name", "fail_on_nondeterminism"}}
        self.options = workflow_options(WorkflowOptions(), chosen, where=f"The workflow {self.name!r} ({self.place})")
        self._tx: object | None = None
        self._definition: WorkflowDefinition | None = None
        functools.update_wrapper(cast("Any", self), function)

    def __repr__(self) -> str:
        return f"<workflow {self.name!r} at {self.place}>"

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise Misuse(
            "direct_call",
            f"The workflow {self.name!r} was called directly: nothing would be durable.",
            remedy=f"Write {self.name}.start(…), or await {self.name}.execute(…) for its result.",
        )

    @property
    def definition(self) -> WorkflowDefinition:
        """Return what the engine and the worker need to know of it; raises BadDeclaration."""
        definition = self._definition
        if definition is None:
            members = self._members
            parameters, _ = read_parameters(self.function, what="workflow", of_object=members is not None)
            definition = self._definition = WorkflowDefinition(
                name=self.name,
                function=self.function,
                parameters=parameters,
                options=self.options,
                place=self.place,
                fail_on_nondeterminism=self._fail_on_nondeterminism,
                create=None if members is None else members.create,
                signals={} if members is None else members.signals,
                queries={} if members is None else members.queries,
            )
        return definition

    def using(self, **options: Unpack[WorkflowUsing]) -> "Workflow[P, R]":
        """Return the same workflow with these options for what is started through it.

        With ``tx`` it is started in a transaction of the caller's: there if and only if that commits, with its id known at once.
        """
        changed = copy.copy(self)
        chosen = {name: value for name, value in options.items() if name != "tx"}
        changed.options = workflow_options(self.options, chosen, where=f"{self.name}.using(…)")
        changed._tx = options.get("tx", self._tx)  # noqa: SLF001 - a copy of this very object
        return changed

    def start(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowHandle[R]:
        """Start a run that is durable when this returns, and return its handle.

        Raises:
            PayloadError: an argument cannot be written down; the path of the value is named.
            Refusal: the engine does not take it, for example since a run with this id is open.
        """
        if self._tx is not None:
            namespace, items = self._enclosed([(args, kwargs)])
            write_in(self._tx, namespace, items, instead=f"{self.name}.using(tx=…).astart(…)")
            return self._pending(items[0])
        client = self._client()
        request = self._request(client, args, kwargs)
        reply = client.ask(request, WorkflowStarted, instead=f"{self.name}.astart(…)")
        return self._handle(reply)

    async def astart(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowHandle[R]:
        """As ``start``, without blocking the loop."""
        if self._tx is not None:
            namespace, items = self._enclosed([(args, kwargs)])
            await awrite_in(self._tx, namespace, items)
            return self._pending(items[0])
        client = self._client()
        request = self._request(client, args, kwargs)
        return self._handle(await client.aask(request, WorkflowStarted, instead=f"{self.name}.astart(…)"))

    def start_many(self, calls: Iterable[tuple[Any, ...]]) -> list[WorkflowHandle[R]]:
        """Start a run of each tuple of arguments and return their handles in order.

        They go in requests of up to 1,000; each start has its own outcome.

        Raises:
            SomeRefused: the engine refused some; it has the handles of the others.
        """
        if self._tx is not None:
            namespace, items = self._enclosed_many(calls)
            write_in(self._tx, namespace, items, instead=f"{self.name}.using(tx=…).astart_many(…)")
            return [self._pending(item) for item in items]
        client = self._client()
        replies: list[WorkflowStarted | Refused] = []
        for chunk in self._chunks(client, calls):
            request = StartWorkflows(
                items=tuple(self._made(client.converter, client.identity, payloads) for payloads in chunk)
            )
            replies += client.ask(request, WorkflowsStarted, instead=f"{self.name}.astart_many(…)").items
        return self._handles(replies)

    async def astart_many(self, calls: Iterable[tuple[Any, ...]]) -> list[WorkflowHandle[R]]:
        """As ``start_many``, without blocking the loop."""
        if self._tx is not None:
            namespace, items = self._enclosed_many(calls)
            await awrite_in(self._tx, namespace, items)
            return [self._pending(item) for item in items]
        client = self._client()
        replies: list[WorkflowStarted | Refused] = []
        for chunk in self._chunks(client, calls):
            request = StartWorkflows(
                items=tuple(self._made(client.converter, client.identity, payloads) for payloads in chunk)
            )
            reply = await client.aask(request, WorkflowsStarted, instead=f"{self.name}.astart_many(…)")
            replies += reply.items
        return self._handles(replies)

    async def execute(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Start a run and return its result.

        Raises:
            WorkflowFailed: it failed, or was cancelled, terminated or timed out.
        """
        refuse_wait(self._tx, f"{self.name}.execute(…)")
        return await (await self.astart(*args, **kwargs)).aresult()

    def _client(self) -> Client:
        if current_runtime() is not None:
            raise NotYet(
                "child_not_yet",
                f"Workflow code starts the workflow {self.name!r}; children are for a later release.",
                remedy="Start it in a task and await that task.",
            )
        return self.owner.connect()

    def _request(self, client: Client, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StartWorkflow:
        payloads = client.converter.arguments_to_payloads(self.definition.parameters, args, kwargs)
        return self._made(client.converter, client.identity, payloads)

    def _enclosed_many(self, calls: Iterable[tuple[Any, ...]]) -> tuple[str, list[StartWorkflow]]:
        return self._enclosed([(arguments, {}) for arguments in self._calls(calls)])

    def _enclosed(self, calls: Iterable[tuple[tuple[Any, ...], dict[str, Any]]]) -> tuple[str, list[StartWorkflow]]:
        """Return the namespace and what to write into the caller's transaction."""
        refuse_enclosed(self.name, key=self.options.key)
        home = self.owner.bound()
        identity, parameters = default_identity(), self.definition.parameters
        made = [
            self._made(home.converter, identity, home.converter.arguments_to_payloads(parameters, args, kwargs))
            for args, kwargs in calls
        ]
        return home.namespace, [
            item if item.workflow_id else msgspec.structs.replace(item, workflow_id=mint()) for item in made
        ]

    def _made(self, converter: Converter, identity: str, payloads: Payloads) -> StartWorkflow:
        options = self.options
        memo = {
            name: converter.to_payload(value, path=f"memo.{name}") for name, value in (options.memo or {}).items()
        } or None
        return StartWorkflow(
            type=self.name,
            queue=options.queue,
            run_id=mint(),
            request_id=options.key or mint(),
            keyed=bool(options.key),
            workflow_id=options.id,
            input=payloads,
            if_open=_IF_OPEN[options.if_open],
            if_closed=_IF_CLOSED[options.if_closed],
            run_timeout=options.run_timeout,
            task_timeout=options.task_timeout,
            delay=options.delay,
            memo=memo,
            tags=options.tags,
            identity=identity,
            build=options.build,
        )

    def _chunks(self, client: Client, calls: Iterable[tuple[Any, ...]]) -> list[list[Payloads]]:
        """Return the arguments of all calls, written down, by request. Ids are minted as each request is sent: the engine
        knows without a look that an id is new if it is later than all it has.
        """
        write, parameters = client.converter.arguments_to_payloads, self.definition.parameters
        return parted(write(parameters, arguments, {}) for arguments in self._calls(calls))

    def _calls(self, calls: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        named = bool(self.options.id or self.options.key)
        return calls_of(calls, verb=f"{self.name}.start_many", each="run", named=named)

    def _handles(self, replies: list[WorkflowStarted | Refused]) -> list[WorkflowHandle[R]]:
        handles: dict[int, WorkflowHandle[R]] = {}
        refused: dict[int, Refused] = {}
        ids: list[tuple[str, str]] = []
        ahead = Ahead(ids, workflow_wait)
        connect, result_type = self.owner.connect, self.definition.parameters.result
        for place, reply in enumerate(replies):
            if isinstance(reply, Refused):
                refused[place] = reply
                continue
            handles[place] = WorkflowHandle(
                reply.workflow_id, reply.run_id, connect, result_type, ahead=ahead, place=len(ids)
            )
            ids.append((reply.workflow_id, reply.run_id))
        if refused:
            raise SomeRefused(handles, refused)
        return list(handles.values())

    def _handle(self, reply: WorkflowStarted) -> WorkflowHandle[R]:
        result_type = self.definition.parameters.result
        return WorkflowHandle(reply.workflow_id, reply.run_id, self.owner.connect, result_type)

    def _pending(self, item: StartWorkflow) -> WorkflowHandle[R]:
        """Return the handle of a run that is not committed yet; it may come to be the one that is open."""
        may_be_another = item.if_open is IfOpen.RETURN_EXISTING
        return WorkflowHandle(
            item.workflow_id,
            "" if may_be_another else item.run_id,
            self.owner.connect,
            self.definition.parameters.result,
            pending=True,
            start=item.request_id if may_be_another else "",
        )


class WorkflowDecorator(Protocol):
    """What ``@app.workflow(…)`` gives: takes the function."""

    @overload
    def __call__(self, function: type[C], /) -> type[C]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[Q, Coroutine[Any, Any, T]], /) -> Workflow[Q, T]: ...
