"""A small engine in memory behind the Transport protocol, for tests of the worker: what it does is seen and can be bent.

Deterministic: no leases expire by themselves and nothing is retried unless a test says so.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from outlast.core import commands, events, inputs, replies
from outlast.core.admin import NamespaceInfo
from outlast.core.failure import Failure
from outlast.core.payload import Payload, Payloads
from outlast.core.replies import TaskState
from outlast.protocol.errors import exception_of
from outlast.protocol.transport import (
    ANY_RUNS,
    ANY_TASKS,
    Attempt,
    Count,
    FeedPage,
    HistoryPage,
    Listing,
    Queues,
    RunsAsked,
    TasksAsked,
)

LEASE = 30_000_000_000


@dataclass(slots=True)
class FakeTask:
    """A task: waiting, leased or ended."""

    request: inputs.EnqueueTask
    attempt: int = 0
    lease: int = 0
    state: TaskState = TaskState.ENQUEUED
    details: Payload | None = None
    result: Payloads = ()
    failure: Failure | None = None
    cancel_requested: bool = False
    workflow_id: str = ""
    run_id: str = ""
    scheduled_event_id: int = 0
    outcomes: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class FakeRun:
    """A run: its history, and whether it wants a turn."""

    workflow_id: str
    run_id: str
    type: str
    queue: str
    history: list[events.Timed] = field(default_factory=list)
    ready: bool = True
    dispatch: int = 0
    started: bool = False
    attempt: int = 1
    sticky_from: int = 0  # the last event the worker that has the run in memory has seen
    status: replies.RunStatus = replies.RunStatus.RUNNING
    result: Payloads = ()
    failure: Failure | None = None
    not_done: list[inputs.WorkflowTaskNotDone] = field(default_factory=list)
    first_ids: list[int] = field(default_factory=list)  # first_event_id of each dispatch
    parked: list[Callable[[], list[events.Timed]]] = field(default_factory=list)

    def arrived(self, make: Callable[[], list[events.Timed]]) -> None:
        """Add events to the history; while a turn is out they wait for its end, as their ids do."""
        if self.started:
            self.parked.append(make)
        else:
            self.history.extend(make())
            self.ready = True

    def flush(self) -> None:
        """A turn has ended: what waited goes into the history."""
        parked, self.parked = self.parked, []
        for make in parked:
            self.arrived(make)


class FakeEngine:
    """Answers requests from memory. ``before(request)`` may delay, raise, or return a reply in place of its own."""

    def __init__(self, *, lease: int = LEASE) -> None:
        self.namespace = "default"
        self.lease = lease
        self.tasks: dict[str, FakeTask] = {}
        self.runs: dict[str, FakeRun] = {}
        self.requests: list[inputs.Request] = []
        self.polls: dict[str, replies.Work] = {}
        self.before: Callable[[inputs.Request], Awaitable[replies.Reply | None]] | None = None
        self.after: Callable[[inputs.Request, replies.Reply], Awaitable[None]] | None = None
        self.begin_needed = False
        self.forget_runs = False  # dispatch as if no worker had a run in memory
        self.history_in_pages = 0  # > 0: a workflow task carries so many events at most
        self.retries = 0  # how many failed attempts of a task are followed by another
        self.heartbeat_action = "continue"
        self.stopped: set[str] = set()
        self._moved = asyncio.Condition()

    async def call(self, request: inputs.Request, *, timeout: float | None = None) -> replies.Reply:
        self.requests.append(request)
        try:
            async with asyncio.timeout(timeout):
                reply = await self.before(request) if self.before is not None else None
                if reply is None:
                    reply = await self._answer(request)
                if self.after is not None:
                    await self.after(request, reply)
        except TimeoutError:
            raise exception_of(replies.Refused(code="timeout", fact="No answer in time.", retryable=True)) from None
        if isinstance(reply, replies.Refused):
            raise exception_of(reply)
        return reply

    async def read_history(
        self, workflow_id: str, run_id: str, *, first_event_id: int = 1, wait: float = 0.0
    ) -> HistoryPage:
        history = self.runs[run_id].history
        size = self.history_in_pages or len(history)
        page = tuple(history[first_event_id - 1 : first_event_id - 1 + size])
        following = first_event_id + len(page)
        return HistoryPage(
            workflow_id=workflow_id,
            run_id=run_id,
            first_event_id=first_event_id,
            events=page,
            next_event_id=following if following <= len(history) else 0,
        )

    async def read_attempts(self, task_id: str) -> tuple[Attempt, ...]:
        return ()

    async def list_runs(self, asked: RunsAsked = ANY_RUNS, *, cursor: str = "", limit: int = 50) -> Listing:
        return Listing()

    async def count_runs(self, asked: RunsAsked = ANY_RUNS) -> Count:
        return Count(count=0)

    async def list_tasks(self, asked: TasksAsked = ANY_TASKS, *, cursor: str = "", limit: int = 50) -> Listing:
        return Listing()

    async def count_tasks(self, asked: TasksAsked = ANY_TASKS) -> Count:
        return Count(count=0)

    async def list_queues(self, *, queue: str = "") -> Queues:
        return Queues()

    async def list_namespaces(self) -> tuple[NamespaceInfo, ...]:
        return ()

    async def read_feed(self, *, after: str = "", limit: int = 100, wait: float = 0.0) -> FeedPage:
        return FeedPage()

    async def close(self) -> None:
        return None

    def sent(self, kind: type[Any]) -> list[Any]:
        """Return the requests of one kind, in order of arrival."""
        return [request for request in self.requests if isinstance(request, kind)]

    async def until(self, holds: Callable[[], object]) -> None:
        """Return when ``holds()`` is true, looking after each request."""
        async with self._moved:
            await self._moved.wait_for(holds)

    async def _answer(self, request: inputs.Request) -> replies.Reply:
        if isinstance(request, inputs.Poll):
            return await self._poll(request)
        if isinstance(request, inputs.AwaitTask):
            task = self.tasks[request.task_id]
            await self.until(lambda: task.state in {TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELED})
            return replies.TaskOutcomeReply(
                task_id=request.task_id,
                state=task.state,
                attempt=task.attempt,
                result=task.result,
                failure=task.failure,
            )
        if isinstance(request, inputs.AwaitWorkflow):
            run = self._run_of(request.workflow_id)
            await self.until(lambda: run.status is not replies.RunStatus.RUNNING)
            return replies.WorkflowOutcome(
                workflow_id=run.workflow_id,
                run_id=run.run_id,
                status=run.status,
                result=run.result,
                failure=run.failure,
            )
        reply = self._change(request)
        async with self._moved:
            self._moved.notify_all()
        return reply

    def _change(self, request: inputs.Request) -> replies.Reply:
        match request:
            case inputs.EnqueueTask():
                return self._enqueue(request)
            case inputs.EnqueueTasks():
                return replies.TasksEnqueued(items=tuple(map(self._enqueue, request.items)))
            case inputs.CancelTask():
                task = self.tasks[request.task_id]
                task.cancel_requested = True
                if task.state is TaskState.ENQUEUED:
                    task.state = TaskState.CANCELED
                return replies.Accepted()
            case inputs.StartWorkflow():
                return self._start(request)
            case inputs.SignalWorkflow():
                run = self._run_of(request.workflow_id)
                signaled = events.WorkflowExecutionSignaled(signal_name=request.name, input=request.input)
                run.arrived(lambda: [(0, signaled)])
                return replies.Accepted()
            case inputs.Begin():
                return replies.Begun(items=tuple(None for _ in request.tokens))
            case inputs.Heartbeat():
                return replies.HeartbeatReply(items=tuple(map(self._beat, request.items)))
            case inputs.CompleteTasks():
                return replies.CompletionsReply(items=tuple(map(self._complete, request.items)))
            case inputs.ReturnTasks():
                for token in request.tokens:
                    self.tasks[token.task_id].state = TaskState.ENQUEUED
                    self.tasks[token.task_id].attempt -= 1
                for workflow_token in request.workflow_tokens:
                    self.runs[workflow_token.run_id].started = False
                return replies.Accepted()
            case inputs.CompleteWorkflowTasks():
                return self._turns(request)
            case inputs.StopWorker():
                self.stopped.add(request.worker)
                return replies.Accepted()
            case _:
                return replies.Refused(code="invalid_request", fact=f"{type(request).__name__} is not faked.")

    # Tasks.

    def _enqueue(self, request: inputs.EnqueueTask) -> replies.TaskEnqueuedReply | replies.Refused:
        for known in self.tasks.values():
            if known.request.key == request.key:
                return replies.TaskEnqueuedReply(task_id=known.request.task_id, replayed=True)
        if request.task_id in self.tasks:
            return replies.Refused(code="task_already_exists", fact="There is such a task.")
        self.tasks[request.task_id] = FakeTask(request)
        return replies.TaskEnqueuedReply(task_id=request.task_id)

    def _beat(self, item: inputs.HeartbeatItem) -> replies.HeartbeatAnswer:
        task = self.tasks[item.token.task_id]
        if task.lease != item.token.lease or task.state is not TaskState.LEASED:
            return replies.HeartbeatAnswer(action="stop")
        if item.details is not None:
            task.details = item.details
        return replies.HeartbeatAnswer(action="cancel" if task.cancel_requested else self.heartbeat_action)

    def _complete(self, item: inputs.Completion) -> replies.Refused | None:
        task = self.tasks[item.token.task_id]
        if task.lease != item.token.lease or task.state is not TaskState.LEASED:
            same = task.outcomes and task.outcomes[-1] == item.outcome
            return None if same else replies.Refused(code="lease_lost", fact="The lease is lost.")
        task.outcomes.append(item.outcome)
        if item.details is not None:
            task.details = item.details
        match item.outcome:
            case inputs.TaskSucceeded():
                task.state, task.result = TaskState.SUCCEEDED, item.outcome.result
            case inputs.TaskFailed():
                again = not item.outcome.failure.final and task.attempt <= self.retries
                task.state, task.failure = (TaskState.ENQUEUED if again else TaskState.FAILED), item.outcome.failure
            case inputs.TaskCanceled():
                task.state = TaskState.CANCELED
        if task.run_id and task.state is TaskState.SUCCEEDED:
            run = self.runs[task.run_id]
            run.arrived(lambda: _ended(run, task))
        return None

    async def _poll(self, poll: inputs.Poll) -> replies.Reply:
        known = self.polls.get(poll.poll_id)
        if known is not None:
            return known
        loop = asyncio.get_running_loop()
        ends = loop.time() + poll.wait / 1e9
        while True:
            if poll.worker in self.stopped:
                return replies.Work()
            work = self._work_for(poll)
            if work.tasks or work.workflow_tasks:
                self.polls[poll.poll_id] = work
                return work
            try:
                async with asyncio.timeout_at(ends), self._moved:
                    await self._moved.wait()
            except TimeoutError:
                return replies.Work()

    def _work_for(self, poll: inputs.Poll) -> replies.Work:
        ready = [
            task
            for task in self.tasks.values()
            if task.state is TaskState.ENQUEUED
            and task.request.type in poll.task_types
            and task.request.queue in poll.queues
        ]
        wanting = [
            run
            for run in self.runs.values()
            if run.ready and not run.started and run.type in poll.workflow_types and run.queue in poll.queues
        ]
        return replies.Work(
            tasks=tuple(map(self._lease, ready[: poll.slots])),
            workflow_tasks=tuple(map(self._dispatch, wanting[: poll.workflow_slots])),
        )

    def _lease(self, task: FakeTask) -> replies.TaskLease:
        task.state = TaskState.LEASED
        task.lease += 1
        task.attempt += 1
        return replies.TaskLease(
            token=inputs.TaskToken(task.request.task_id, task.lease),
            type=task.request.type,
            queue=task.request.queue,
            attempt=task.attempt,
            attempts_max=5,
            input=task.request.input,
            operation_id=f"op_{task.request.task_id}",
            workflow_id=task.workflow_id,
            run_id=task.run_id,
            lease=self.lease,
            heartbeat=task.request.heartbeat,
            details=task.details,
            last_failure=task.failure,
            begin_needed=self.begin_needed,
        )

    # Runs.

    def _run_of(self, workflow_id: str) -> FakeRun:
        return next(run for run in self.runs.values() if run.workflow_id == workflow_id)

    def _start(self, request: inputs.StartWorkflow) -> replies.Reply:
        workflow_id = request.workflow_id or request.request_id
        run = FakeRun(workflow_id, request.run_id, request.type, request.queue)
        run.history.append(
            (
                1,
                events.WorkflowExecutionStarted(
                    workflow_type=request.type,
                    task_queue=request.queue,
                    input=request.input,
                    run_id=request.run_id,
                    original_run_id=request.run_id,
                    first_run_id=request.run_id,
                ),
            )
        )
        self.runs[request.run_id] = run
        return replies.WorkflowStarted(workflow_id=workflow_id, run_id=request.run_id)

    def _pair(self, run: FakeRun) -> tuple[events.Timed, events.Timed]:
        scheduled = len(run.history) + 1
        return (
            (1, events.WorkflowTaskScheduled(task_queue=run.queue)),
            (1, events.WorkflowTaskStarted(scheduled_event_id=scheduled)),
        )

    def _dispatch(self, run: FakeRun) -> replies.WorkflowTask:
        run.started, run.ready = True, False
        run.dispatch += 1
        first = 1 if self.forget_runs or not run.sticky_from else run.sticky_from + 1
        run.first_ids.append(first)
        shown = run.history[first - 1 :]
        cut = self.history_in_pages and len(shown) > self.history_in_pages
        if cut:
            shown = shown[: self.history_in_pages]
        return replies.WorkflowTask(
            token=inputs.WorkflowToken(run.run_id, 1, 1, run.dispatch),
            workflow_id=run.workflow_id,
            run_id=run.run_id,
            original_run_id=run.run_id,
            type=run.type,
            queue=run.queue,
            attempt=run.attempt,
            first_event_id=first,
            started_event_id=len(run.history) + 2,
            previous_event_id=run.sticky_from,
            events=(*shown, *self._pair(run)),
            timeout=10_000_000_000,
            next_event_id_to_read=first + len(shown) if cut else 0,
        )

    def _turns(self, request: inputs.CompleteWorkflowTasks) -> replies.Reply:
        return replies.WorkflowTasksReply(
            done=tuple(map(self._turn_done, request.done)), not_done=tuple(map(self._turn_not_done, request.not_done))
        )

    def _turn_not_done(self, item: inputs.WorkflowTaskNotDone) -> replies.WorkflowTaskReply:
        run = self.runs[item.token.run_id]
        run.not_done.append(item)
        run.started = False
        run.sticky_from = 0
        run.flush()
        return replies.WorkflowTaskReply()

    def _turn_done(self, item: inputs.WorkflowTaskDone) -> replies.WorkflowTaskReply:
        run = self.runs[item.token.run_id]
        if item.token.dispatch != run.dispatch or not run.started:
            return replies.WorkflowTaskReply(
                refused=replies.Refused(code="workflow_task_lost", fact="It was given to somebody else.")
            )
        run.started = False
        run.history.extend(self._pair(run))
        started = len(run.history)
        run.history.append((1, events.WorkflowTaskCompleted(scheduled_event_id=started - 1, started_event_id=started)))
        for command in item.commands:
            self._apply(run, command)
        run.sticky_from = len(run.history) if item.cached else 0
        last_event_id = len(run.history)
        run.flush()
        return replies.WorkflowTaskReply(last_event_id=last_event_id)

    def _apply(self, run: FakeRun, command: commands.Command) -> None:
        match command:
            case commands.ScheduleActivity():
                self._schedule(run, command)
            case commands.CompleteWorkflow():
                run.status, run.result = replies.RunStatus.COMPLETED, command.result
                run.history.append((1, events.WorkflowExecutionCompleted(result=command.result)))
            case commands.FailWorkflow():
                run.status, run.failure = replies.RunStatus.FAILED, command.failure
                run.history.append((1, events.WorkflowExecutionFailed(failure=command.failure)))
            case _:
                raise AssertionError(f"{command} is not faked")

    def _schedule(self, run: FakeRun, command: commands.ScheduleActivity) -> None:
        run.history.append(
            (
                1,
                events.ActivityTaskScheduled(
                    activity_id=command.activity_id,
                    activity_type=command.activity_type,
                    task_queue=command.task_queue,
                    input=command.input,
                    retry=command.retry or inputs.RetryPolicy(),
                ),
            )
        )
        event_id = len(run.history)
        task_id = f"{run.run_id}:{event_id}"
        request = inputs.EnqueueTask(
            task_id=task_id, type=command.activity_type, queue=command.task_queue, key=task_id, input=command.input
        )
        self.tasks[task_id] = FakeTask(
            request, workflow_id=run.workflow_id, run_id=run.run_id, scheduled_event_id=event_id
        )


def _ended(run: FakeRun, task: FakeTask) -> list[events.Timed]:
    started = events.ActivityTaskStarted(scheduled_event_id=task.scheduled_event_id)
    completed = events.ActivityTaskCompleted(
        scheduled_event_id=task.scheduled_event_id, started_event_id=len(run.history) + 1, result=task.result
    )
    return [(0, started), (0, completed)]
