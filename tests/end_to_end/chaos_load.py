"""What the clients of the chaos run do: keep pieces of work in flight, and note every request and what became of it."""

import asyncio
import itertools
import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import uuid_utils

from outlast.core.errors import Refusal, Unavailable
from outlast.core.failure import Failure
from outlast.core.inputs import (
    AwaitTask,
    AwaitWorkflow,
    CancelWorkflow,
    EnqueueTask,
    Request,
    SignalWorkflow,
    StartWorkflow,
)
from outlast.core.payload import Payload
from outlast.core.replies import (
    Accepted,
    TaskEnqueuedReply,
    TaskOutcomeReply,
    TaskState,
    WorkflowOutcome,
    WorkflowStarted,
)
from outlast.core.retry import RetryPolicy
from outlast.core.units import SECOND
from outlast.protocol.transport import RunsAsked, TasksAsked
from outlast.sdk.converter import Converter
from outlast.sdk.http import HttpTransport
from tests.end_to_end.chaos_ledger import Ledger

R = TypeVar("R")

ENDLESS = RetryPolicy(attempts_max=0, first=SECOND // 50, longest=SECOND // 5)
ONE_ATTEMPT = RetryPolicy(attempts_max=1)
WORDS = 3  # signals that a listener waits for
TOO_OFTEN = 40  # answers lost in a row before a request is taken for lost: an engine is back long before


class Missing(Exception):
    """What was acknowledged is not there."""


class Load:
    """``slots`` clients, each with one piece of work after another, until ``drain``."""

    def __init__(self, address: str, ledger: Ledger, *, slots: int, rng: random.Random) -> None:
        self.ledger = ledger
        self.in_flight = 0  # pieces that are acknowledged and have not been seen to end
        self.pieces = 0
        self.acked = 0
        self.unknown = 0
        self._transport = HttpTransport(address)
        self._converter = Converter()
        self._rng = rng
        self._slots = slots
        self._draining = False
        self._numbers = itertools.count(1)
        self._requests = itertools.count(1)
        self._tasks: list[asyncio.Task[None]] = []
        self.faults: list[str] = []

    def start(self) -> None:
        """Begin."""
        self._tasks = [asyncio.create_task(self._slot(), name=f"slot-{n}") for n in range(self._slots)]

    async def drain(self, within: float) -> int:
        """Begin nothing more, wait for what is in flight, return how many pieces have not ended in time."""
        self._draining = True
        _, late = await asyncio.wait(self._tasks, timeout=within)
        for task in late:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return len(late)

    async def open_left(self) -> int:
        """Return how many runs and tasks the engine has open: those whose start nobody saw acknowledged, for instance."""
        runs = await self._transport.list_runs(RunsAsked(status="running"), limit=500)
        states = (TaskState.ENQUEUED, TaskState.LEASED, TaskState.RETRY_WAIT, TaskState.HELD)
        tasks = [await self._transport.list_tasks(TasksAsked(state=state), limit=500) for state in states]
        return len(runs.runs) + sum(len(page.tasks) for page in tasks)

    async def close(self) -> None:
        await self._transport.close()

    async def _slot(self) -> None:
        kinds: list[tuple[Callable[[str], Awaitable[None]], int]] = [
            (self._task, 30),
            (self._delayed, 15),
            (self._once, 10),
            (self._flow, 25),
            (self._listener, 15),
            (self._sleeper, 5),
        ]
        run = [kind for kind, _ in kinds]
        weights = [weight for _, weight in kinds]
        while not self._draining:
            (piece,) = self._rng.choices(run, weights)
            name = f"{piece.__name__.strip('_')}-{next(self._numbers)}"
            self.pieces += 1
            try:
                await piece(name)
            except Missing as fault:
                self.faults.append(str(fault))
                self.ledger.write("fault", piece=name, fault=str(fault))

    # --- the pieces ---------------------------------------------------------------------------------------------------

    async def _task(self, name: str) -> None:
        await self._one_task(name, "apply", ENDLESS, delay=0.0)

    async def _delayed(self, name: str) -> None:
        await self._one_task(name, "apply", ENDLESS, delay=self._rng.uniform(0.1, 1.0))

    async def _once(self, name: str) -> None:
        await self._one_task(name, "once", ONE_ATTEMPT, delay=0.0)

    async def _one_task(self, name: str, type: str, retry: RetryPolicy, *, delay: float) -> None:
        seconds = self._rng.uniform(0.02, 0.5)

        def request() -> EnqueueTask:
            return EnqueueTask(
                task_id=str(uuid_utils.uuid7()),
                type=type,
                queue="default",
                key=name,
                input=self._input(name, seconds),
                retry=retry,
                delay=int(delay * SECOND),
                start_to_close=20 * SECOND,
                identity="chaos",
            )

        self.ledger.write("piece", name=name, kind=type, delay=delay)
        first = request()
        reply = await self._ask(first, TaskEnqueuedReply, piece=name, creates=True, may_give_up=True)
        if reply is None:
            return
        if self._rng.random() < 0.2:
            again = await self._ask(request(), TaskEnqueuedReply, piece=name)
            if again is not None and again.task_id != reply.task_id:
                raise Missing(f"{name}: one key gave the tasks {reply.task_id} and {again.task_id}")
        async with self._flying():
            outcome = await self._ask(AwaitTask(task_id=reply.task_id), TaskOutcomeReply, piece=name)
        if outcome is not None:
            self._note_end(name, outcome.state, outcome.result, outcome.failure)

    async def _flow(self, name: str) -> None:
        pauses = [round(self._rng.uniform(0.05, 0.6), 3) for _ in range(self._rng.randint(1, 3))]
        start = self._start("flow", name, pauses)
        self.ledger.write("piece", name=name, kind="flow", pauses=pauses)
        if await self._ask(start, WorkflowStarted, piece=name, creates=True, may_give_up=True) is None:
            return
        if self._rng.random() < 0.2:
            await self._ask(start, WorkflowStarted, piece=name)
        await self._end(name)

    async def _listener(self, name: str) -> None:
        self.ledger.write("piece", name=name, kind="listener")
        await self._ask(self._start("listener", name, WORDS), WorkflowStarted, piece=name, creates=True)
        async with self._flying():
            for n in range(WORDS):
                await asyncio.sleep(self._rng.uniform(0.0, 0.4))
                word = f"{name}.{n}"
                signal = SignalWorkflow(
                    workflow_id=name,
                    name="word",
                    request_id=uuid.uuid4().hex,
                    input=self._input(word),
                    identity="chaos",
                )
                await self._ask(signal, Accepted, piece=name)
                self.ledger.write("said", piece=name, word=word)
                if self._rng.random() < 0.2 and n + 1 < WORDS:
                    await self._ask(signal, Accepted, piece=name)  # a repeat with the same id is the same word
        await self._end(name)

    async def _sleeper(self, name: str) -> None:
        self.ledger.write("piece", name=name, kind="sleeper")
        await self._ask(self._start("sleeper", name), WorkflowStarted, piece=name, creates=True)
        async with self._flying():
            await asyncio.sleep(self._rng.uniform(0.0, 1.5))
            cancel = CancelWorkflow(workflow_id=name, request_id=uuid.uuid4().hex, reason="enough")
            await self._ask(cancel, Accepted, piece=name)
        await self._end(name)

    def _start(self, type: str, name: str, *args: Any) -> StartWorkflow:
        return StartWorkflow(
            type=type,
            queue="default",
            run_id=str(uuid_utils.uuid7()),
            request_id=uuid.uuid4().hex,
            workflow_id=name,
            input=self._input(name, *args),
            identity="chaos",
        )

    def _input(self, *args: Any) -> tuple[Payload, ...]:
        return tuple(self._converter.to_payload(arg, path="argument") for arg in args)

    async def _end(self, name: str) -> None:
        async with self._flying():
            outcome = await self._ask(AwaitWorkflow(workflow_id=name), WorkflowOutcome, piece=name)
        if outcome is not None:
            self._note_end(name, outcome.status, outcome.result, outcome.failure)

    def _note_end(self, name: str, status: str, result: tuple[Payload, ...], failure: Failure | None) -> None:
        value = self._converter.from_payload(result[0]) if result else None
        kind = failure.kind if failure is not None else ""
        self.ledger.write("ended", piece=name, status=status, value=value, failure=kind)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _ask(
        self, request: Request, kind: type[R], *, piece: str, creates: bool = False, may_give_up: bool = False
    ) -> R | None:
        """Return the reply, sending again until there is one; None after giving up, which leaves it unknown.

        Raises:
            Missing: what was acknowledged before is refused.
        """
        n = next(self._requests)
        what = type(request).__name__
        self.ledger.write("invoked", n=n, piece=piece, request=what, creates=creates)
        held = isinstance(request, AwaitTask | AwaitWorkflow)
        for _ in range(TOO_OFTEN):
            try:
                reply = await self._transport.call(request, timeout=None if held else self._rng.uniform(0.3, 2.0))
            except Unavailable:
                self.ledger.write("unknown", n=n, piece=piece)
                self.unknown += 1
                if may_give_up and self._rng.random() < 0.1:
                    return None
                continue
            except Refusal as refusal:
                self.ledger.write("refused", n=n, piece=piece, code=refusal.code)
                raise Missing(f"{piece}: {what} is refused: {refusal.code}: {refusal.fact}") from None
            self.acked += 1
            self.ledger.write("ok", n=n, piece=piece, request=what, creates=creates)
            if not isinstance(reply, kind):
                raise Missing(f"{piece}: the answer to {what} is {reply!r}")
            return reply
        raise Missing(f"{piece}: {what} got no answer {TOO_OFTEN} times")

    def _flying(self) -> "Flying":
        return Flying(self)


class Flying:
    """While it is held, one more piece is in flight."""

    def __init__(self, load: Load) -> None:
        self._load = load

    async def __aenter__(self) -> None:
        self._load.in_flight += 1

    async def __aexit__(self, *_: object) -> None:
        self._load.in_flight -= 1
