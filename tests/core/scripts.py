"""Scripts of inputs, faults and passing time, drawn by hypothesis and played on a world; and what plays them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from outlast.core import commands as c
from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.retry import RetryPolicy
from outlast.core.units import SECOND
from outlast.core.writes import CommitOutcome
from tests.core.world import World, enqueue_of, failure, payload

Move = tuple[Any, ...]

RETRIES = (
    RetryPolicy(attempts_max=3, first=SECOND, factor=2.0),
    RetryPolicy(attempts_max=1),
    RetryPolicy(attempts_max=0, first=SECOND, factor=1.0, jitter=False),
)
TASK_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"retry": RETRIES[0]},
    {"retry": RETRIES[1]},
    {"retry": RETRIES[2], "start_to_close": 5 * SECOND},
    {"delay": 4 * SECOND},
    {"schedule_to_start": 3 * SECOND},
    {"schedule_to_close": 8 * SECOND, "retry": RETRIES[2]},
    {"heartbeat": 2 * SECOND, "retry": RETRIES[0]},
    {"priority": 1, "fairness_key": "a"},
    {"delay": 2 * SECOND, "schedule_to_start": 2 * SECOND, "schedule_to_close": 5 * SECOND},
)
RUN_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"if_open": i.IfOpen.TERMINATE},
    {"if_open": i.IfOpen.RETURN_EXISTING},
    {"delay": 3 * SECOND},
    {"run_timeout": 20 * SECOND},
    {"if_closed": i.IfClosed.ALLOW_IF_FAILED, "task_timeout": 2 * SECOND},
)
OUTCOMES: tuple[i.TaskOutcome, ...] = (
    i.TaskSucceeded(result=(payload("1"),)),
    i.TaskFailed(failure=failure()),
    i.TaskFailed(failure=failure("final", final=True)),
    i.TaskCanceled(),
)
COMMANDS = (
    "schedule", "schedule", "schedule", "timer", "timer", "cancel activity", "cancel timer", "marker", "upsert",
    "detached", "complete", "fail", "cancel", "continue",
)  # fmt: skip

small = st.integers(0, 3)


def id_of(kind: str, n: int) -> str:
    """Return the ``n``-th id of a kind: of the shape that grows with time, or of another."""
    return f"{n + 1:08x}-0000-7000-8000-0000000000{ord(kind):02x}" if n % 2 else f"{kind}{n}"


_requests = st.one_of(
    st.tuples(st.just("start"), small, st.sampled_from(RUN_OPTIONS)),
    st.tuples(st.just("signal"), small, small),
    st.tuples(st.sampled_from(["cancel_run", "terminate", "await_run"]), small),
    st.tuples(st.just("enqueue"), st.integers(0, 9), st.sampled_from(TASK_OPTIONS)),
    st.tuples(st.sampled_from(["cancel_task", "await_task"]), st.integers(0, 9)),
    st.tuples(st.just("retry_task"), st.integers(0, 9), small),
)
_work = st.one_of(
    st.tuples(st.just("poll"), st.integers(0, 2), small, small, st.sampled_from([0, 30])),
    st.tuples(st.just("turn"), small, st.lists(st.sampled_from(COMMANDS), max_size=3), st.booleans(), st.booleans()),
    st.tuples(st.sampled_from(["fail_turn", "return_turn"]), small),
    st.tuples(st.just("answer"), small, st.sampled_from(OUTCOMES)),
    st.tuples(st.sampled_from(["beat", "begin", "return_lease", "forget"]), small),
    st.tuples(st.just("stop_worker"), st.integers(0, 2)),
)
_time = st.tuples(st.sampled_from(["pass_time", "stall"]), st.sampled_from([0.2, 1.1, 3.0, 6.0, 31.0]))
_faults = st.tuples(
    st.sampled_from(["restart", "hold_commits", "release", "lose_commit", "apply_and_lose", "hold_loads", "hand_in"])
)
moves = st.one_of(_requests, _work, _work, _time, _requests, _faults)
calm_moves = st.one_of(_requests, _work, _work, _time, st.tuples(st.just("restart")))
scripts = st.one_of(st.lists(moves, max_size=40), st.lists(moves, min_size=40, max_size=100))
calm_scripts = st.one_of(st.lists(calm_moves, max_size=40), st.lists(calm_moves, min_size=40, max_size=100))


@dataclass
class Player:
    """Plays a script on a world, as clients, workers and fate would. Names of things are numbers, modulo what there is."""

    world: World
    leases: list[replies.TaskLease] = field(default_factory=list[replies.TaskLease])
    turns: list[replies.WorkflowTask] = field(default_factory=list[replies.WorkflowTask])
    polls: list[object] = field(default_factory=list[object])
    all_tickets: list[object] = field(default_factory=list[object])
    forgotten: set[object] = field(default_factory=set[object])
    made: int = 0
    one_by_one: bool = False  # workers ask for one thing of one kind: what they get does not hang on what memory holds
    after_each: Callable[[], None] = lambda: None

    def play(self, script: list[Move]) -> None:
        for name, *arguments in script:
            getattr(self, f"_{name}")(*arguments)
            self._gather()
            if self.one_by_one:
                self.world.now += 1  # which of two that are due at one instant comes first hangs on what memory holds
            self.after_each()

    def finish(self) -> None:
        """Let everything come to rest: no more faults, and one worker that succeeds in all it does."""
        self._calm()
        for _ in range(60):
            rows = self.world.tables
            if all(row.closed_at for row in (*rows.runs.values(), *rows.tasks.values())):
                return
            self.leases, self.turns = [], []
            idle = [row for row in rows.runs.values() if not row.closed_at and not row.ready_at]
            for row in idle:
                key = f"end{self._new()}"
                self._send(i.SignalWorkflow(workflow_id=row.workflow_id, name="end", request_id=key))
            self._send(self._poll_request("last", 50, 50, 0))
            self.world.pass_time(0.001)
            self._gather()
            self._complete_all()
            self.world.pass_time(7)

    # Clients.

    def _send(self, request: i.Request) -> object:
        ticket = self.world.send(request)
        self.all_tickets.append(ticket)
        return ticket

    def _new(self) -> int:
        self.made += 1
        return self.made

    def _start(self, n: int, options: dict[str, Any]) -> None:
        number = self._new()
        run_id, request_id = id_of("r", number), id_of("s", number)
        self._send(
            i.StartWorkflow(
                type=f"type{n}", queue="default", run_id=run_id, request_id=request_id, workflow_id=f"w{n}", **options
            )
        )

    def _signal(self, n: int, key: int) -> None:
        self._send(i.SignalWorkflow(workflow_id=f"w{n}", name=f"signal{key}", request_id=id_of("k", key)))

    def _cancel_run(self, n: int) -> None:
        self._send(i.CancelWorkflow(workflow_id=f"w{n}", request_id="c"))

    def _terminate(self, n: int) -> None:
        self._send(i.TerminateWorkflow(workflow_id=f"w{n}", request_id="t"))

    def _await_run(self, n: int) -> None:
        self._send(i.AwaitWorkflow(workflow_id=f"w{n}"))

    def _enqueue(self, n: int, options: dict[str, Any]) -> None:
        self._send(enqueue_of(id_of("t", n), **options))

    def _cancel_task(self, n: int) -> None:
        self._send(i.CancelTask(task_id=id_of("t", n)))

    def _retry_task(self, n: int, key: int) -> None:
        self._send(i.RetryTasks(task_ids=(id_of("t", n),), request_id=id_of("b", key)))

    def _await_task(self, n: int) -> None:
        self._send(i.AwaitTask(task_id=id_of("t", n)))

    # Workers.

    def _poll_request(self, worker: str, slots: int, turns: int, wait: int) -> i.Poll:
        return i.Poll(
            poll_id=f"p{self._new()}",
            worker=worker,
            queues=("default",),
            task_types=("job", "pay"),
            workflow_types=tuple(f"type{n}" for n in range(4)),
            slots=slots,
            workflow_slots=turns,
            wait=wait * SECOND,
        )

    def _poll(self, worker: int, slots: int, turns: int, wait: int) -> None:
        if self.one_by_one:
            self._poll_for_one(worker, slots, turns)
            return
        self.polls.append(self._send(self._poll_request(f"worker{worker}", slots, turns, wait)))

    def _poll_for_one(self, worker: int, slots: int, turns: int) -> None:
        poll = self._poll_request(f"worker{worker}", int(slots > 0), int(slots == 0), 30)
        types = (f"type{turns}",) if slots == 0 else ()
        ticket = self._send(msgspec.structs.replace(poll, workflow_types=types))
        if ticket not in self.world.answers:
            self.world.forget(ticket)
            self.forgotten.add(ticket)

    def _gather(self) -> None:
        for ticket in self.all_tickets[-200:]:
            reply = self.world.answers.get(ticket)
            if isinstance(reply, replies.Work) and ticket not in self.forgotten:
                self.forgotten.add(ticket)
                self.leases += reply.tasks
                self.turns += reply.workflow_tasks

    def _turn(self, n: int, names: list[str], cached: bool, more: bool) -> None:
        if not self.turns:
            return
        turn = self.turns.pop(n % len(self.turns))
        commands = self._commands(turn, names)
        done = i.WorkflowTaskDone(token=turn.token, commands=commands, cached=cached, force_new=more)
        self._send(i.CompleteWorkflowTasks(worker="worker0", done=(done,), new_run_ids=(id_of("n", self._new()),)))

    def _commands(self, turn: replies.WorkflowTask, names: list[str]) -> tuple[c.Command, ...]:
        run = self.world.core.shard.runs.get(turn.run_id)
        open_activities = [open_.activity_id for open_ in run.state.activities.values()] if run else []
        open_timers = list(run.state.timers) if run else []
        commands: list[c.Command] = []
        for name in names:
            number = str(self._new())
            match name:
                case "schedule":
                    options = TASK_OPTIONS[self.made % len(TASK_OPTIONS)]
                    known = {key: options[key] for key in options if key not in {"delay", "fairness_key"}}
                    commands.append(
                        c.ScheduleActivity(activity_id=number, activity_type="pay", task_queue="default", **known)
                    )
                case "timer":
                    commands.append(c.StartTimer(timer_id=number, start_to_fire=self.made % 5 * SECOND))
                case "cancel activity" if open_activities:
                    commands.append(c.RequestCancelActivity(activity_id=open_activities.pop()))
                case "cancel timer" if open_timers:
                    commands.append(c.CancelTimer(timer_id=open_timers.pop()))
                case "marker":
                    commands.append(c.RecordMarker(marker_name="note"))
                case "upsert":
                    commands.append(c.UpsertSearchAttributes(search_attributes={"a": payload(number)}))
                case "detached":
                    commands.append(c.EnqueueDetached(place=number, task_type="job", task_queue="default"))
                case "complete":
                    commands.append(c.CompleteWorkflow())
                case "fail":
                    commands.append(c.FailWorkflow(failure=failure()))
                case "cancel":
                    commands.append(c.CancelWorkflow())
                case "continue":
                    commands.append(c.ContinueAsNew())
                case _:
                    pass
        return tuple(commands)

    def _fail_turn(self, n: int) -> None:
        if self.turns:
            turn = self.turns.pop(n % len(self.turns))
            item = i.WorkflowTaskNotDone(token=turn.token, cause="workflow_worker_unhandled_failure", failure=failure())
            self._send(i.CompleteWorkflowTasks(worker="worker0", not_done=(item,)))

    def _return_turn(self, n: int) -> None:
        if self.turns:
            turn = self.turns.pop(n % len(self.turns))
            self._send(i.ReturnTasks(tokens=(), workflow_tokens=(turn.token,), worker="worker0"))

    def _answer(self, n: int, outcome: i.TaskOutcome) -> None:
        if self.leases:
            lease = self.leases[n % len(self.leases)]  # it stays: a second answer may follow
            self._send(i.CompleteTasks(items=(i.Completion(token=lease.token, outcome=outcome),), worker="worker0"))

    def _beat(self, n: int) -> None:
        if self.leases:
            item = i.HeartbeatItem(token=self.leases[n % len(self.leases)].token, details=payload("7"), progress=True)
            self._send(i.Heartbeat(items=(item,), worker="worker0"))

    def _begin(self, n: int) -> None:
        if self.leases:
            self._send(i.Begin(tokens=(self.leases[n % len(self.leases)].token,), worker="worker0"))

    def _return_lease(self, n: int) -> None:
        if self.leases:
            lease = self.leases.pop(n % len(self.leases))
            self._send(i.ReturnTasks(tokens=(lease.token,), worker="worker0"))

    def _forget(self, n: int) -> None:
        waiting = [ticket for ticket in self.all_tickets if ticket not in self.world.answers]
        if waiting:
            ticket = waiting[n % len(waiting)]
            self.forgotten.add(ticket)
            self.world.forget(ticket)

    def _stop_worker(self, worker: int) -> None:
        self._send(i.StopWorker(worker=f"worker{worker}"))

    def _complete_all(self) -> None:
        for lease in self.leases:
            self._send(i.Begin(tokens=(lease.token,), worker="last"))
            item = i.Completion(token=lease.token, outcome=i.TaskSucceeded())
            self._send(i.CompleteTasks(items=(item,), worker="last"))
        for turn in self.turns:
            done = i.WorkflowTaskDone(token=turn.token, commands=(c.CompleteWorkflow(),))
            self._send(i.CompleteWorkflowTasks(worker="last", done=(done,)))

    # Time and fate.

    def _pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    def _stall(self, seconds: float) -> None:
        if self.one_by_one:
            self.world.pass_time(seconds)  # of what has become due in one stretch, what memory holds comes first
            return
        self.world.stall(seconds)
        self.world.tick()

    def _restart(self) -> None:
        self.world.hold_commits = False
        self.world.hold_loads = False
        self._leave_unanswered()
        self.world.restart()

    def _leave_unanswered(self) -> None:
        self.forgotten |= {ticket for ticket in self.all_tickets if ticket not in self.world.answers}

    def _hold_commits(self) -> None:
        self.world.hold_commits = True

    def _release(self) -> None:
        self.world.hold_commits = False
        if self.world.held is not None:
            self.world.release()

    def _lose_commit(self) -> None:
        if self.world.held is not None:
            self.world.hold_commits = False
            self.world.release(CommitOutcome.REFUSED)
            self._restart()

    def _apply_and_lose(self) -> None:
        if self.world.held is not None:
            self.world.tables.apply(self.world.held)
            self.world.hold_commits = False
            self.world.release(CommitOutcome.UNKNOWN)
            self._restart()

    def _hold_loads(self) -> None:
        self.world.hold_loads = True

    def _hand_in(self) -> None:
        self.world.hold_loads = False
        self.world.hand_in()

    def _calm(self) -> None:
        self._hand_in()
        self._release()
