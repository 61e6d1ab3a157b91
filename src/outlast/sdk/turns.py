"""The worker's turns of workflow code: which threads execute them, which runs stay in memory, what is answered.

Lives on the worker's loop. A run goes on from memory only if the engine has acknowledged exactly what this worker said
about it last; in any other case it is rebuilt from its history.
"""

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from outlast.core.commands import ContinueAsNew
from outlast.core.errors import Refusal, Unavailable
from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import (
    AnswerQueries,
    CompleteWorkflowTasks,
    QueryAnswer,
    ReturnTasks,
    WorkflowTaskDone,
    WorkflowTaskNotDone,
    WorkflowToken,
)
from outlast.core.limits import BATCH_ITEMS_MAX, REQUEST_BYTES_MAX
from outlast.core.replies import QueryTask, WorkflowTask, WorkflowTaskReply, WorkflowTasksReply
from outlast.protocol.transport import Transport
from outlast.sdk.attempt import recorded
from outlast.sdk.batching import Sender
from outlast.sdk.client import mint
from outlast.sdk.converter import Converter
from outlast.sdk.definition import WorkflowDefinition
from outlast.sdk.errors import HistoryGap, HoldsRun, WorkflowTaskFailure
from outlast.sdk.failures import told
from outlast.sdk.history import whole_history
from outlast.sdk.pause import Pause
from outlast.sdk.pool import Hands
from outlast.sdk.queries import QueriesInHand, events_of
from outlast.sdk.registry import Registry
from outlast.sdk.replay import WorkflowRun
from outlast.sdk.turnpool import InHand, TurnInHand, TurnPool

LOGGER: Final = logging.getLogger("outlast.worker")
PASSING: Final = frozenset({"workflow_task_lost", "unhandled_command"})  # refusals that are not the code's fault

SDK: Final = "outlast-python/0.1.0"
PAUSE_FIRST: Final = 0.05
PAUSE_MAX: Final = 5.0
RETURN_TIMEOUT: Final = 2.0
SAY_TIMEOUT: Final = 5.0  # seconds for the answer to a query: then the caller has had none
IDLE: Final = 5.0  # seconds without a turn after which a run in memory makes room for another
DEADLOCK_REMEDY: Final = "Put what takes long into a task: workflow code only decides what comes next."
DRAIN_LOOK: Final = 0.05  # seconds after which to look again whether every turn has ended
LARGE_ITEM: Final = 4096  # bytes a turn's answer is taken to be, beyond the payloads in it


@dataclass(slots=True)
class Cached:
    """A run in memory, and the last event of its history that it has seen acknowledged."""

    run: WorkflowRun
    last_event_id: int
    since: float  # monotonic seconds of its last turn


@dataclass(slots=True)
class Answer:
    """What is said about one workflow task; ``run`` is kept if the engine takes it and the run goes on."""

    item: WorkflowTaskDone | WorkflowTaskNotDone
    run: WorkflowRun | None
    keep: bool
    size: int


class Turns:
    """Every workflow task this worker has."""

    def __init__(
        self,
        registry: Registry,
        transport: Transport,
        converter: Converter,
        *,
        worker: str,
        identity: str,
        build: str,
        slots: int,
        runs_cached: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._registry = registry
        self._transport = transport
        self._converter = converter
        self._worker = worker
        self._identity = identity
        self._build = build
        self._slots = slots
        self._runs_cached = runs_cached
        self._loop = loop
        self._held = 0
        self._changed = asyncio.Event()
        self._cache: OrderedDict[str, Cached] = OrderedDict()
        # Runs whose last answer is under way, or that are being asked, and what came meanwhile.
        self._saying: dict[str, list[WorkflowTask | QueryTask] | None] = {}
        self._reading: set[asyncio.Task[None]] = set()
        self._finished: deque[InHand] = deque()
        self._pool = TurnPool(self._finished, Hands(loop, self._collect))
        self._answers = Sender(self._answer, items_max=BATCH_ITEMS_MAX, bytes_max=REQUEST_BYTES_MAX // 2, size=_size_of)

    @property
    def leaked(self) -> int:
        """How many threads are stuck in workflow code that was given up."""
        return self._pool.leaked

    @property
    def cached(self) -> int:
        """How many runs are in memory."""
        return len(self._cache)

    def loops(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        """Return what the worker keeps running, by name."""
        answer = ("answer", self._answers.run)  # two calls in flight, as with completions of tasks
        return [answer, answer, ("deadlocks", self._watch)]

    def room(self) -> int:
        """Return how many workflow tasks may be asked for now."""
        return self._slots - self._held

    async def freed(self, *, timeout: float | None) -> None:
        """Return when there may be room again."""
        self._changed.clear()
        if timeout is None and self.room() > 0:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout)

    def wake(self) -> None:
        """Have whoever waits for room look again."""
        self._changed.set()

    def take(self, tasks: tuple[WorkflowTask, ...]) -> None:
        """Have the turns executed."""
        self._held += len(tasks)
        ready: list[WorkflowTask] = []
        for task in tasks:
            if task.run_id in self._saying:
                # The engine has taken the last answer, or this task would not be here; its reply is about to come in.
                self._put_off(task.run_id, task)
            else:
                ready.append(task)
        self._pool.submit([item for task in ready if (item := self._begin(task)) is not None])

    def _put_off(self, run_id: str, task: WorkflowTask | QueryTask) -> None:
        waiting = self._saying[run_id]
        if waiting is None:
            self._saying[run_id] = [task]
        else:
            waiting.append(task)

    def take_unstarted(self) -> list[WorkflowToken]:
        """Return the tokens of what has not begun, which will not begin any more."""
        tokens: list[WorkflowToken] = []
        unstarted = self._pool.take_unstarted()  # a question among them is asked another worker in good time
        tokens += [item.task.token for item in unstarted if isinstance(item, TurnInHand)]
        for run_id, waiting in self._saying.items():
            if waiting:
                tokens += [task.token for task in waiting if isinstance(task, WorkflowTask)]
                self._saying[run_id] = None
        self._release(len(tokens))
        return tokens

    async def drained(self) -> None:
        """Return when every turn that had begun has been answered for."""
        while self._pool.busy or self._reading or self._finished:
            await self.freed(timeout=DRAIN_LOOK)
        await self._answers.drained()

    def close(self) -> None:
        """Drop the runs in memory and end the threads, as far as they are idle."""
        while self._cache:
            self._pool.close_run(self._cache.popitem()[1].run)
        self._pool.close()

    def _begin(self, task: WorkflowTask) -> TurnInHand | None:
        """Return what is to be executed for ``task``; None while its history is read first, or if it goes back."""
        definition = self._registry.workflow(task.type)
        if definition is None:
            self._release()
            request = ReturnTasks(tokens=(), workflow_tokens=(task.token,), worker=self._worker)
            self._spawn(self._hand_back(request))
            return None
        cached = self._cache.pop(task.run_id, None)
        if cached is not None and not (
            task.first_event_id > 1
            and task.previous_event_id == cached.last_event_id
            and task.first_event_id == cached.last_event_id + 1
        ):
            self._pool.close_run(cached.run)
            cached = None
        if cached is None and task.first_event_id > 1:
            self._spawn(self._read(task, from_event_id=1))
        elif task.next_event_id_to_read > 0:
            self._spawn(self._read(task, from_event_id=task.first_event_id, run=None if cached is None else cached.run))
        else:
            return self._in_hand(task, definition, None if cached is None else cached.run)
        return None

    def _in_hand(self, task: WorkflowTask, definition: WorkflowDefinition, run: WorkflowRun | None) -> TurnInHand:
        return TurnInHand(task, definition, self._converter, run, namespace=self._transport.namespace)

    async def _read(self, task: WorkflowTask, *, from_event_id: int, run: WorkflowRun | None = None) -> None:
        """Complete the events of ``task`` from its history, then have it executed."""
        try:
            whole = await whole_history(self._transport, task, from_event_id=from_event_id)
        except HistoryGap as error:
            self._release()
            self._saying.setdefault(task.run_id)
            self._answers.put([self._not_done(task, error.cause, recorded(error), run)])
            return
        except Refusal as error:
            LOGGER.warning("history_unread workflow=%s run=%s code=%s", task.workflow_id, task.run_id, error.code)
            self._release()  # the task times out, and is offered again
            if run is not None:
                self._pool.close_run(run)
            return
        definition = self._registry.workflow(task.type)
        if definition is not None:
            self._pool.submit([self._in_hand(whole, definition, run)])

    def _collect(self) -> None:
        answers: list[Answer] = []
        while self._finished:
            item = self._finished.popleft()
            if isinstance(item, QueriesInHand):
                self._asked(item)
                continue
            if isinstance(item.error, HistoryGap) and item.task.first_event_id > 1:
                if item.run is not None:
                    self._pool.close_run(item.run)
                self._spawn(self._read(item.task, from_event_id=1))  # once: the whole history begins with event 1
                continue
            self._saying.setdefault(item.task.run_id)
            answers.append(self._answer_to(item))
        if answers:
            self._release(len(answers))
            self._answers.put(answers)

    def _answer_to(self, item: TurnInHand) -> Answer:
        task = item.task
        turn = item.turn
        if turn is not None:
            keep = not turn.closed and self._may_keep()
            done = WorkflowTaskDone(
                token=task.token,
                commands=turn.commands,
                cached=keep,
                identity=self._identity,
                build=self._build,
                sdk=SDK,
                places=turn.places,
            )
            return Answer(done, item.run, keep, LARGE_ITEM + sum(map(_bytes_of, turn.commands)))
        error = item.error or AssertionError("a turn ended with neither commands nor an error")
        cause = error.cause if isinstance(error, HoldsRun) else "workflow_worker_unhandled_failure"
        failure = error.failure if isinstance(error, WorkflowTaskFailure) else recorded(error)
        said = told(self._converter.logged(error, failure), failure)
        LOGGER.warning(
            "workflow_task_failed workflow=%s run=%s cause=%s error=%s", task.workflow_id, task.run_id, cause, said
        )
        return self._not_done(task, cause, failure, item.run)

    def _may_keep(self) -> bool:
        """Say whether there is room for a run: more open runs than that must not push each other out in turn."""
        if len(self._cache) < self._runs_cached:
            return True
        oldest = next(iter(self._cache.values()), None)
        return oldest is not None and time.monotonic() - oldest.since > IDLE

    def _not_done(self, task: WorkflowTask, cause: str, failure: Failure, run: WorkflowRun | None) -> Answer:
        sealed = self._converter.sealed(failure)
        item = WorkflowTaskNotDone(
            token=task.token, cause=cause, failure=sealed, identity=self._identity, build=self._build
        )
        return Answer(item, run, keep=False, size=2 * LARGE_ITEM)

    async def _answer(self, answers: list[Answer]) -> None:
        """Say what became of turns until it is answered for; drop from memory what was not taken."""
        ordered: list[Answer] = []
        failed: list[Answer] = []
        done: list[WorkflowTaskDone] = []
        not_done: list[WorkflowTaskNotDone] = []
        for answer in answers:
            item = answer.item
            if isinstance(item, WorkflowTaskDone):
                ordered.append(answer)
                done.append(item)
            else:
                failed.append(answer)
                not_done.append(item)
        ordered += failed
        request = CompleteWorkflowTasks(
            worker=self._worker,
            done=tuple(done),
            not_done=tuple(not_done),
            new_run_ids=tuple([mint() if _continues(item) else "" for item in done]),
        )
        try:
            reply = await self._answered(request)
        except Refusal as error:
            if isinstance(error, Unavailable):
                raise
            await self._answer_apart(answers, error)
            return
        for answer, said in zip(ordered, (*reply.done, *reply.not_done), strict=True):
            self._settle(answer, said)

    async def _answer_apart(self, answers: list[Answer], error: Refusal) -> None:
        """The request as a whole was refused for good: find the item that is to blame, spare the others."""
        if len(answers) > 1:
            half = len(answers) // 2
            await self._answer(answers[:half])
            await self._answer(answers[half:])
            return
        answer = answers[0]
        LOGGER.warning("turn_refused run=%s code=%s fact=%s", answer.item.token.run_id, error.code, error.fact)
        if isinstance(answer.item, WorkflowTaskDone):
            failure = Failure(kind=FailureKind.SERVER, type=error.code, message=error.fact)
            item = WorkflowTaskNotDone(
                token=answer.item.token, cause="bad_command", failure=failure, identity=self._identity
            )
            if answer.run is not None:
                self._pool.close_run(answer.run)
            await self._answer([Answer(item, None, keep=False, size=LARGE_ITEM)])
            return
        self._settle(answer, WorkflowTaskReply())

    def _settle(self, answer: Answer, reply: WorkflowTaskReply) -> None:
        run_id = answer.item.token.run_id
        taken = reply.refused is None and isinstance(answer.item, WorkflowTaskDone)
        if reply.refused is not None:
            level = logging.INFO if reply.refused.code in PASSING else logging.WARNING
            LOGGER.log(level, "turn_refused run=%s code=%s fact=%s", run_id, reply.refused.code, reply.refused.fact)
        if taken and answer.keep and answer.run is not None and reply.last_event_id > 0:
            self._cache[run_id] = Cached(answer.run, reply.last_event_id, time.monotonic())
            if len(self._cache) > self._runs_cached:
                self._pool.close_run(self._cache.popitem(last=False)[1].run)
        elif answer.run is not None:
            self._pool.close_run(answer.run)
        self._go_on(run_id)

    def _go_on(self, run_id: str) -> None:
        """Do what came for a run while it was spoken of. A turn comes before questions: they go to what it makes."""
        waiting = self._saying.pop(run_id, None)
        if not waiting:
            return
        turns = [task for task in waiting if isinstance(task, WorkflowTask)]
        questions = tuple(task for task in waiting if isinstance(task, QueryTask))
        self._pool.submit([item for task in turns if (item := self._begin(task)) is not None])
        if not turns:
            self.ask(questions)  # else the engine, which gets no answer, asks again

    # Questions to runs.

    def ask(self, queries: tuple[QueryTask, ...]) -> None:
        """Have the runs asked."""
        of_run: dict[str, list[QueryTask]] = {}
        for query in queries:
            run_id = query.token.run_id
            if run_id in self._saying:
                self._put_off(run_id, query)
            else:
                of_run.setdefault(run_id, []).append(query)
        for run_id, asked in of_run.items():
            definition = self._registry.workflow(asked[0].type)
            if definition is None:
                continue
            cached = self._cache.get(run_id)
            if cached is not None and cached.last_event_id == asked[-1].last_event_id:
                del self._cache[run_id]
                self._saying[run_id] = None  # until it is back: its next turn waits
                self._pool.submit([self._questions(asked, definition, cached.run)])
            else:
                self._spawn(self._ask_rebuilt(asked, definition))

    def _questions(
        self, asked: list[QueryTask], definition: WorkflowDefinition, run: WorkflowRun | None, events: Any = ()
    ) -> QueriesInHand:
        namespace = self._transport.namespace
        return QueriesInHand(asked, definition, self._converter, run, namespace=namespace, events=events)

    async def _ask_rebuilt(self, asked: list[QueryTask], definition: WorkflowDefinition) -> None:
        try:
            events = await events_of(self._transport, max(asked, key=lambda query: query.last_event_id))
        except (HistoryGap, Refusal) as error:  # the engine asks again
            LOGGER.warning("history_unread workflow=%s error=%s", asked[0].workflow_id, error)
            return
        self._pool.submit([self._questions(asked, definition, None, events)])

    def _asked(self, item: QueriesInHand) -> None:
        run_id = item.queries[0].token.run_id
        if item.kept and item.run is not None:
            self._cache[run_id] = Cached(item.run, item.queries[-1].last_event_id, time.monotonic())
            self._go_on(run_id)
        elif item.run is not None:
            self._pool.close_run(item.run)
        self._spawn(self._say(item.answers))

    async def _say(self, answers: list[QueryAnswer]) -> None:
        try:
            await self._transport.call(AnswerQueries(worker=self._worker, items=tuple(answers)), timeout=SAY_TIMEOUT)
        except Refusal as error:
            if len(answers) > 1:
                for answer in answers:
                    await self._say([answer])
            elif answers[0].failure is None and not isinstance(error, Unavailable):
                failure = Failure(kind=FailureKind.SERVER, type=error.code, message=error.fact)
                await self._say([QueryAnswer(token=answers[0].token, failure=failure)])
            else:
                LOGGER.warning("query_unanswered code=%s fact=%s", error.code, error.fact)

    async def _answered(self, request: CompleteWorkflowTasks) -> WorkflowTasksReply:
        pause = Pause(PAUSE_FIRST, PAUSE_MAX)
        while True:
            try:
                reply: Any = await self._transport.call(request, timeout=None)
            except Unavailable as error:
                LOGGER.info("engine_unavailable request=CompleteWorkflowTasks code=%s", error.code)
            else:
                if isinstance(reply, WorkflowTasksReply):
                    return reply
                raise Unavailable("internal", f"The answer to CompleteWorkflowTasks is a {type(reply).__name__}.")
            await pause.wait()

    async def _watch(self) -> None:
        """Give up turns that do not end: answer for them, and replace their threads."""
        while True:
            await asyncio.sleep(self._pool.look_again)
            for item, stack in self._pool.give_up_stuck(time.monotonic()):
                if isinstance(item, QueriesInHand):
                    self._give_up_asking(item, stack)
                    continue
                task = item.task
                LOGGER.error("deadlock_detected workflow=%s run=%s\n%s", task.workflow_id, task.run_id, stack)
                failure = Failure(
                    kind=FailureKind.APPLICATION,
                    type="DeadlockDetected",
                    message=f"The code of workflow {task.type!r} did not come to an await within {item.limit:.1f} s.",
                    trace=stack,
                    info={"remedy": DEADLOCK_REMEDY},
                )
                self._release()
                self._saying.setdefault(task.run_id)
                # The run itself stays with its thread: it can be closed when that comes back.
                self._answers.put([self._not_done(task, "deadlock_detected", failure, None)])

    def _give_up_asking(self, item: QueriesInHand, stack: str) -> None:
        first = item.queries[0]
        LOGGER.error("query_stuck workflow=%s query=%s\n%s", first.workflow_id, first.name, stack)
        item.fail(TimeoutError(f"The query {first.name!r} did not return within {item.limit:.1f} s."))
        if item.kept:
            self._go_on(first.token.run_id)  # without the run in memory, which stays with its thread
        self._spawn(self._say(item.answers))

    def _release(self, count: int = 1) -> None:
        self._held -= count
        self._changed.set()

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = self._loop.create_task(work, name="outlast-turns")
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _hand_back(self, request: ReturnTasks) -> None:
        try:
            await self._transport.call(request, timeout=RETURN_TIMEOUT)
        except Refusal as error:  # the task times out, and is offered again
            LOGGER.warning("return_failed workflow_tasks=%d error=%s", len(request.workflow_tokens), error)


def _size_of(answer: Answer) -> int:
    return answer.size


def _bytes_of(command: msgspec.Struct) -> int:
    size = 200
    for payload in getattr(command, "input", None) or getattr(command, "result", None) or ():
        size += len(payload.data)
    return size


def _continues(done: WorkflowTaskDone) -> bool:
    """Say whether the run goes on as a new one, which needs an id."""
    return bool(done.commands) and type(done.commands[-1]) is ContinueAsNew
