"""How a worker plays workflow turns: with the run in memory where it has it, from the history where it has not."""

from collections.abc import Callable
from dataclasses import dataclass, field

from outlast.core.commands import Command
from outlast.core.events import CLOSING, Timed
from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import (
    AnswerQueries,
    CompleteWorkflowTasks,
    QueryAnswer,
    WorkflowTaskDone,
    WorkflowTaskNotDone,
    WorkflowToken,
)
from outlast.core.replies import QueryTask, Refused, Reply, WorkflowTask, WorkflowTasksReply
from outlast.core.units import MILLISECOND, SECOND
from outlast.sim.calls import Caller
from outlast.sim.coverage import Coverage
from outlast.sim.faults import FaultLog, Faults
from outlast.sim.histories import Histories
from outlast.sim.kernel import Process
from outlast.sim.program import Interpreter, Nondeterminism, payload, replay, signals_shown
from outlast.sim.violation import Violation, require


@dataclass(slots=True, eq=False)
class Cached:
    """A run that this worker has in memory, as far as the history's end that was acknowledged to it."""

    run: Interpreter
    last_event_id: int
    acknowledged: bool = False
    history: list[Timed] = field(default_factory=list[Timed])


class Player:
    """The half of a worker that runs programs."""

    def __init__(
        self,
        process: Process,
        caller: Caller,
        *,
        coverage: Coverage,
        faults: Faults,
        log: FaultLog,
        cache_max: int,
        mint: Callable[[str], str],
        freed: Callable[[str], None],
    ) -> None:
        self.process = process
        self.mint = mint
        self._caller = caller
        self._histories = Histories(caller, coverage)
        self._coverage = coverage
        self._faults = faults
        self._log = log
        self._cache_max = cache_max
        self._freed = freed
        self._chance = process.kernel.stream(process.name, "player")
        self.forget_all("")

    def forget_all(self, name: str) -> None:
        """Begin with an empty memory, as the process called ``name`` does."""
        self.name = name
        self.turns = 0
        self._cache: dict[tuple[str, str], Cached] = {}
        self._seen: dict[WorkflowToken, None] = {}

    def take(self, namespace: str, task: WorkflowTask) -> None:
        """Play a turn, unless it is one that was taken already: the same poll, answered again."""
        if task.token in self._seen:
            return
        self._seen[task.token] = None
        self.turns += 1
        span = int(self._chance.expovariate(1.0) * 3 * MILLISECOND)
        self.process.after(span, "turn taken", self._turn, namespace, task)

    def ask(self, namespace: str, query: QueryTask) -> None:
        """Answer a query with how many signals the code has been shown, and whether the run is open."""

        def fetched(events: tuple[Timed, ...] | None) -> None:
            if events is None:
                return  # nothing is answered: it is asked again
            require(len(events) >= query.last_event_id, 6, "query_of_uncommitted_events",
                    f"{query.token.run_id}: {len(events)} of {query.last_event_id}")  # fmt: skip
            self._coverage.hit("query_asked")
            said = payload([signals_shown(events), not isinstance(events[-1][1], CLOSING)])
            answer = AnswerQueries(worker=self.name, items=(QueryAnswer(token=query.token, result=(said,)),))
            self._caller.call(namespace, answer, lambda _: None, patience=SECOND, attempts_max=2)

        self._histories.of_query(namespace, query, fetched)

    def _turn(self, namespace: str, task: WorkflowTask) -> None:
        key = (namespace, task.run_id)
        if self._faults.live and self._chance.random() < self._faults.cache_drop and self._cache:
            self._log.hit("cache_drop")
            self._cache.pop(key, None)
        cached = self._cache.get(key)
        if task.first_event_id == 1:
            self._cache.pop(key, None)
            self._read(namespace, task, None, from_event_id=1)
        elif cached is not None and cached.acknowledged and cached.last_event_id == task.first_event_id - 1:
            self._coverage.hit("sticky_used")
            # From here on memory is ahead of the history, so it is good for nothing else until the answer has come.
            del self._cache[key]
            self._read(namespace, task, cached, from_event_id=task.first_event_id)
        else:
            self._cache.pop(key, None)
            self._coverage.hit("cache_missed")
            self._read(namespace, task, None, from_event_id=1)

    def _read(self, namespace: str, task: WorkflowTask, cached: Cached | None, *, from_event_id: int) -> None:
        """Play the turn once all events from ``from_event_id`` on are here."""
        if task.next_event_id_to_read:
            self._coverage.hit("history_came_in_part")
        elif task.first_event_id == from_event_id:
            self._play(namespace, task, cached)
            return

        def completed(whole: WorkflowTask | None) -> None:
            if whole is None:
                self._turn_over(namespace)  # nothing is answered: the task times out
            else:
                self._play(namespace, whole, cached)

        self._histories.complete(namespace, task, completed, from_event_id=from_event_id)

    def _play(self, namespace: str, task: WorkflowTask, cached: Cached | None) -> None:
        events = list(task.events)
        try:
            if cached is None:
                require(len(events) == task.started_event_id, 30, "task_shows_wrong_events",
                        f"{task.run_id}: {len(events)} for {task.started_event_id}")  # fmt: skip
                run, commands = replay(events)
            else:
                run = cached.run
                for place, (_, event) in enumerate(events, start=task.first_event_id):
                    run.feed(place, event)
                require(task.first_event_id + len(events) - 1 == task.started_event_id, 30, "task_shows_wrong_events",
                        f"{task.run_id}: {task.first_event_id}+{len(events)} for {task.started_event_id}")  # fmt: skip
                commands = run.turn()
        except Nondeterminism as error:
            raise Violation(34, "nondeterminism", f"{task.run_id}: {error}") from error
        if self._faults.live and self._chance.random() < self._faults.workflow_task_stuck:
            self._log.hit("workflow_task_stuck")
            self._cache.pop((namespace, task.run_id), None)
            self.process.after(
                int(self._chance.uniform(0.5, 2.0) * (task.timeout or SECOND)), "stuck turn",
                self._complete, namespace, task, run, commands,
            )  # fmt: skip
        elif self._faults.live and self._chance.random() < self._faults.workflow_task_failed:
            self._log.hit("workflow_task_failed")
            self._fail(namespace, task)
        else:
            self._complete(namespace, task, run, commands)

    def _complete(self, namespace: str, task: WorkflowTask, run: Interpreter, commands: tuple[Command, ...]) -> None:
        keep = self._cache_max > 0 and not run.closed
        cached = Cached(run, task.started_event_id + 1 + len(commands))
        if keep:
            self._cache[(namespace, task.run_id)] = cached
            while len(self._cache) > self._cache_max:
                del self._cache[next(iter(self._cache))]
        done = WorkflowTaskDone(token=task.token, commands=commands, cached=keep)
        request = CompleteWorkflowTasks(worker=self.name, done=(done,), new_run_ids=(self.mint("run"),))

        def answered(reply: Reply | None) -> None:
            self._turn_over(namespace)
            if not isinstance(reply, WorkflowTasksReply) or reply.done[0].refused is not None:
                self._cache.pop((namespace, task.run_id), None)
                if isinstance(reply, WorkflowTasksReply) and reply.done[0].refused is not None:
                    self._refused(task, reply.done[0].refused)
                return
            for place, command in enumerate(commands, start=task.started_event_id + 2):
                run.echo(place, command)
            require(reply.done[0].last_event_id == cached.last_event_id, 34, "turn_ends_elsewhere",
                    f"{task.run_id}: {reply.done[0].last_event_id}, expected {cached.last_event_id}")  # fmt: skip
            cached.acknowledged = True
            for won in run.won:
                self._coverage.hit("wait_signal_won" if won == "signal" else "wait_timeout_won")
            run.won.clear()

        self._caller.call(namespace, request, answered, patience=SECOND, attempts_max=4)

    def _refused(self, task: WorkflowTask, refused: Refused) -> None:
        if refused.code == "unhandled_command":
            self._coverage.hit("unhandled_command")
        elif refused.code in ("workflow_task_lost", "workflow_closed", "workflow_not_found"):
            self._coverage.hit("workflow_task_stale")
        else:
            raise Violation(34, "turn_refused", f"{task.run_id}: {refused.code}: {refused.fact}")

    def _fail(self, namespace: str, task: WorkflowTask) -> None:
        self._cache.pop((namespace, task.run_id), None)
        failure = Failure(kind=FailureKind.APPLICATION, type="Bug", message="The worker had a bad day.")
        item = WorkflowTaskNotDone(token=task.token, cause="workflow_worker_unhandled_failure", failure=failure)
        request = CompleteWorkflowTasks(worker=self.name, not_done=(item,))
        self._caller.call(namespace, request, lambda _: self._turn_over(namespace), patience=SECOND, attempts_max=2)

    def _turn_over(self, namespace: str) -> None:
        self.turns = max(0, self.turns - 1)
        self._freed(namespace)
