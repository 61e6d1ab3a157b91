"""Acknowledgement and durability: invariants 1 to 7 and 77.

Each answer is looked at in the moment in which the core lets it go: what it tells of must be among the committed rows
then. The ledgers of the clients are gone through at the end.
"""

from collections import Counter

from outlast.core import inputs as i
from outlast.core import replies
from outlast.core.codec import decode_fixed
from outlast.core.replies import RunStatus, TaskState
from outlast.core.task import TERMINAL
from outlast.core.writes import RunRow
from outlast.sim.ledger import Entry
from outlast.sim.node import Ticket
from outlast.sim.scene import Scene
from outlast.sim.violation import require

_FAILED = frozenset({"failed", "canceled", "terminated", "timed_out"})


class Durability:
    """Watches every answer."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._works: dict[str, tuple[set[tuple[str, int]], set[tuple[str, int, int]]]] = {}
        self._started: dict[tuple[str, str, str], str] = {}
        self._seen: dict[tuple[str, str], None] = {}
        self._keys: dict[tuple[str, str], str] = {}
        self._fingerprints: dict[tuple[str, str], str] = {}

    # -- each answer --

    def handled(self, ticket: Ticket) -> None:
        """Note repeats of what has not committed yet."""
        request, mirror = ticket.request, self._scene.mirror
        if isinstance(request, i.StartWorkflow):
            key = (request.request_id, str(mirror.fence))
            if key in self._seen and request.run_id not in mirror.runs:
                self._scene.coverage.hit("duplicate_start_gated")
            self._seen[key] = None
        elif isinstance(request, i.EnqueueTask) and request.key:
            key = (request.key, str(mirror.fence))
            if (
                key in self._seen
                and request.task_id not in mirror.tasks
                and (ticket.namespace, request.key) not in self._keys
            ):
                self._scene.coverage.hit("duplicate_enqueue_gated")
            self._seen[key] = None

    def answered(self, ticket: Ticket, reply: replies.Reply) -> None:
        """Check that what ``reply`` says is committed."""
        request, namespace = ticket.request, ticket.namespace
        match reply:
            case replies.WorkflowStarted():
                assert isinstance(request, i.StartWorkflow)
                self._start(namespace, request, reply)
            case replies.WorkflowsStarted():
                assert isinstance(request, i.StartWorkflows)
                for item, part in zip(request.items, reply.items, strict=True):
                    if isinstance(part, replies.WorkflowStarted):
                        self._start(namespace, item, part)
                    else:
                        self._start_refused(item, part)
            case replies.TaskEnqueuedReply():
                assert isinstance(request, i.EnqueueTask)
                self._enqueue(namespace, request, reply)
            case replies.TasksEnqueued():
                assert isinstance(request, i.EnqueueTasks)
                for wanted, given in zip(request.items, reply.items, strict=True):
                    if isinstance(given, replies.TaskEnqueuedReply):
                        self._enqueue(namespace, wanted, given)
            case replies.Accepted():
                self._accepted(namespace, request)
            case _:
                self._answered_more(ticket, reply)

    def _answered_more(self, ticket: Ticket, reply: replies.Reply) -> None:
        request = ticket.request
        match reply:
            case replies.Work():
                assert isinstance(request, i.Poll)
                self._work(request, reply)
            case replies.TasksRetried():
                assert isinstance(request, i.RetryTasks)
                for task_id, answer in zip(request.task_ids, reply.items, strict=True):
                    if isinstance(answer, replies.Accepted) and answer.changed:
                        require(self._came_back(task_id), 1, "retry_acknowledged_early", task_id)
            case replies.Begun():
                assert isinstance(request, i.Begin)
                for token, refused in zip(request.tokens, reply.items, strict=True):
                    if refused is None:
                        row = self._scene.mirror.tasks[token.task_id]
                        begun = row.lease > token.lease or self._scene.mirror.statuses[token.task_id].begun
                        require(begun or row.state in TERMINAL, 1, "begin_acknowledged_early", token)
            case replies.WorkflowTasksReply():
                assert isinstance(request, i.CompleteWorkflowTasks)
                self._turns(request, reply)
            case replies.WorkflowInfo():
                self._info(reply)
            case replies.WorkflowOutcome():
                self._outcome(reply)
            case replies.TaskInfo():
                # A read may see what one commit has passed through, never what no commit has reached.
                known = self._scene.mirror.tasks.get(reply.task_id)
                if self._came_back(reply.task_id):
                    return  # it goes through the same states again
                if reply.task_id in self._scene.mirror.gone:
                    return
                reached = known is not None and known.attempt >= reply.attempt - (known.state is TaskState.ENQUEUED)
                ended = reply.state not in TERMINAL or (known is not None and known.state is reply.state)
                require(reached and ended, 6, "read_of_uncommitted_task",
                        f"{reply.task_id}: {reply.state} attempt {reply.attempt}")  # fmt: skip
            case replies.TaskOutcomeReply():
                ended_task = self._scene.mirror.tasks.get(reply.task_id)
                if reply.task_id in self._scene.mirror.gone:
                    return
                is_so = ended_task is not None and ended_task.state is reply.state and ended_task.state in TERMINAL
                is_so = is_so or self._came_back(reply.task_id)
                require(is_so, 1, "task_outcome_early",
                        f"{reply.task_id}: {reply.state}")  # fmt: skip
                self._scene.coverage.hit("await_answered")
            case _:
                pass

    def refused(self, ticket: Ticket, reply: replies.Refused) -> None:
        """Check that a refusal of a start speaks of a run that is committed, and that its policy asks for it."""
        hit = self._scene.coverage.hit
        match ticket.request:
            case i.StartWorkflow() as request:
                self._start_refused(request, reply)
            case i.SignalWorkflow() if reply.code == "limit_exceeded":
                hit("signals_limit")
            case i.SignalWorkflow() if reply.code == "busy":
                hit("parked_limit")
            case i.QueryWorkflow() if reply.code == "query_unanswered":
                hit("query_unanswered")
            case i.Poll() if reply.code == "busy":
                hit("polls_limit")
            case _:
                pass

    def _start_refused(self, request: i.StartWorkflow, reply: replies.Refused) -> None:
        if reply.code not in {"workflow_already_open", "workflow_id_reuse_refused"}:
            return
        if reply.facts.get("run_id", "") in self._scene.mirror.gone:
            return
        row = self._scene.mirror.runs.get(reply.facts.get("run_id", ""))
        require(row is not None, 6, "refused_for_uncommitted_run", f"{request.run_id}: {reply.fact}")
        assert row is not None
        if reply.code == "workflow_already_open":
            require(request.if_open is i.IfOpen.FAIL, 32, "refused_against_policy", f"{request.if_open}: {reply.fact}")
            return
        failed = row.status in _FAILED
        allowed = request.if_closed is i.IfClosed.ALLOW or (request.if_closed is i.IfClosed.ALLOW_IF_FAILED and failed)
        require(not allowed, 32, "refused_against_policy", f"{request.if_closed}: {reply.fact}")

    def _allowed(self, request: i.StartWorkflow, row: RunRow) -> None:
        """Check that the run before let this one begin."""
        if (row.namespace, row.workflow_id) in self._scene.mirror.gone_names:
            return  # the run before it may have been forgotten in the same commit
        before = [
            other
            for other in self._runs_of(row.namespace, row.workflow_id)
            if other.opened_no < row.opened_no and other.run_id != row.run_id
        ]
        if not before:
            return
        last = max(before, key=lambda other: other.opened_no)
        require(last.closed_at, 32, "started_beside_an_open_run", f"{row.run_id} beside {last.run_id}")
        if request.if_closed is i.IfClosed.REJECT:
            replaced = last.status == replies.RunStatus.TERMINATED.value and request.if_open is i.IfOpen.TERMINATE
            require(replaced, 32, "started_against_policy", f"{row.run_id} after {last.run_id}, {last.status}")
        elif request.if_closed is i.IfClosed.ALLOW_IF_FAILED:
            require(
                last.status in _FAILED, 32, "started_against_policy", f"{row.run_id} after {last.run_id}, {last.status}"
            )

    def _start(self, namespace: str, request: i.StartWorkflow, reply: replies.WorkflowStarted) -> None:
        hit = self._scene.coverage.hit
        row = self._scene.mirror.runs.get(reply.run_id)
        require(
            row is not None or reply.run_id in self._scene.mirror.gone,
            1 if not reply.replayed else 4,
            "start_acknowledged_early",
            reply.run_id,
        )
        key = (namespace, reply.workflow_id, request.request_id)
        known = self._started.setdefault(key, reply.run_id)
        require(known == reply.run_id, 5, "one_request_two_runs", f"{key}: {known} and {reply.run_id}")
        if reply.started and not reply.replayed and row is not None:
            self._allowed(request, row)
        if reply.replayed:
            hit("duplicate_start_replayed")
        if not reply.started:
            hit("start_returned_existing")
        if request.delay and reply.started:
            hit("delayed_start")

    def _enqueue(self, namespace: str, request: i.EnqueueTask, reply: replies.TaskEnqueuedReply) -> None:
        row = self._scene.mirror.tasks.get(reply.task_id)
        require(
            row is not None or reply.task_id in self._scene.mirror.gone,
            1 if not reply.replayed else 4,
            "enqueue_acknowledged_early",
            reply.task_id,
        )
        if not request.key:
            return
        if self._keys.get((namespace, request.key)) in self._scene.mirror.gone:
            # A key that is over names its task for as long as that is there, and is free afterwards.
            del self._keys[namespace, request.key]
            self._fingerprints.pop((namespace, request.key), None)
        known = self._keys.setdefault((namespace, request.key), reply.task_id)
        require(known == reply.task_id, 5, "one_key_two_tasks", f"{request.key}: {known} and {reply.task_id}")
        body = str((request.type, request.queue, request.input))
        first = self._fingerprints.setdefault((namespace, request.key), body)
        require(first == body, 5, "key_used_for_two_requests", request.key)
        if reply.replayed:
            self._scene.coverage.hit("duplicate_enqueue_replayed")

    def _accepted(self, namespace: str, request: i.ShardRequest) -> None:
        mirror = self._scene.mirror
        match request:
            case i.SignalWorkflow():
                key = (namespace, request.workflow_id, request.request_id)
                require(key in mirror.signal_ids, 1, "signal_acknowledged_early", key)
            case i.CancelWorkflow() | i.TerminateWorkflow():
                run_ids = [row.run_id for row in self._runs_of(namespace, request.workflow_id)]
                asked = any(self._was_asked(run_id) for run_id in run_ids)
                asked = asked or (namespace, request.workflow_id) in mirror.gone_names
                require(asked, 1, "cancel_acknowledged_early", (namespace, request.workflow_id))
            case i.CancelTask():
                if request.task_id in mirror.gone:
                    return
                row = mirror.tasks.get(request.task_id)
                require(row is not None, 1, "cancel_of_nothing", request.task_id)
                asked = mirror.statuses[request.task_id].cancel_requested
                require(
                    asked or (row is not None and row.state in TERMINAL) or self._came_back(request.task_id),
                    1,
                    "cancel_acknowledged_early",
                    request.task_id,
                )
            case _:
                pass

    def _came_back(self, task_id: str) -> bool:
        return any(row.outcome == "retried" for row in self._scene.mirror.attempts.get(task_id, ()))

    def _was_asked(self, run_id: str) -> bool:
        mirror = self._scene.mirror
        if mirror.states[run_id].cancel_requested or mirror.runs[run_id].status != RunStatus.RUNNING.value:
            return True
        return any(
            type(event).__name__ == "WorkflowExecutionCancelRequested" for _, event in mirror.parked_events(run_id)
        )

    def _runs_of(self, namespace: str, workflow_id: str) -> list[RunRow]:
        return [
            row for row in self._scene.mirror.runs.values()
            if row.namespace == namespace and row.workflow_id == workflow_id
        ]  # fmt: skip

    def _work(self, request: i.Poll, reply: replies.Work) -> None:
        mirror, hit = self._scene.mirror, self._scene.coverage.hit
        for lease in reply.tasks:
            row = mirror.tasks.get(lease.token.task_id)
            known = row is not None and row.lease >= lease.token.lease
            require(known, 6, "dispatched_before_commit", lease.token)
        for task in reply.workflow_tasks:
            row_ = mirror.runs.get(task.run_id)
            require(row_ is not None, 6, "turn_before_commit", task.token)
            shown = task.started_event_id - 2
            committed = len(mirror.history.get(task.run_id, ()))
            require(committed >= shown, 6, "turn_before_commit", f"{task.run_id} shows {shown} of {committed}")
            if task.events:
                stored = mirror.history[task.run_id][task.first_event_id - 1 : shown]
                require(list(task.events[:-2]) == stored, 6, "turn_shows_other_events", task.run_id)
            require(len(task.events) in (0, task.started_event_id - task.first_event_id + 1), 30, "turn_shows_wrong_events",
                    f"{task.run_id}: {len(task.events)} from {task.first_event_id} to {task.started_event_id}")  # fmt: skip
            if task.attempt > 1:
                hit("workflow_task_retried")
        if not reply.tasks and not reply.workflow_tasks:
            hit("poll_empty")
            return
        leases = {(lease.token.task_id, lease.token.lease) for lease in reply.tasks}
        turns = {(task.run_id, task.token.epoch, task.token.dispatch) for task in reply.workflow_tasks}
        before = self._works.setdefault(request.poll_id, (leases, turns))
        if before[0] is not leases:
            if before[0] & leases or before[1] & turns:
                hit("poll_repeated")
            before[0].update(leases)
            before[1].update(turns)
        require(len(before[0]) <= request.slots or not request.slots or self._reclaimed(before[0], request), 22,
                "poll_got_more_than_its_slots", f"{request.poll_id}: {sorted(before[0])}")  # fmt: skip

    def _reclaimed(self, leases: set[tuple[str, int]], request: i.Poll) -> bool:
        live = [
            token for token in leases
            if (row := self._scene.mirror.tasks[token[0]]).state is TaskState.LEASED and row.lease == token[1]
        ]  # fmt: skip
        forgetful = self._scene.config.knobs.poll_answers_max < 1000
        return forgetful or len(live) <= request.slots

    def _turns(self, request: i.CompleteWorkflowTasks, reply: replies.WorkflowTasksReply) -> None:
        for done, answer in zip(request.done, reply.done, strict=True):
            if answer.refused is None:
                committed = len(self._scene.mirror.history.get(done.token.run_id, ()))
                require(committed >= answer.last_event_id, 1, "turn_acknowledged_early",
                        f"{done.token.run_id}: {answer.last_event_id} of {committed}")  # fmt: skip

    def _info(self, reply: replies.WorkflowInfo) -> None:
        if reply.run_id in self._scene.mirror.gone:
            return
        committed = len(self._scene.mirror.history.get(reply.run_id, ()))
        require(
            reply.events <= committed, 6, "read_of_uncommitted_run", f"{reply.run_id}: {reply.events} of {committed}"
        )

    def _outcome(self, reply: replies.WorkflowOutcome) -> None:
        if reply.run_id in self._scene.mirror.gone:
            return
        row = self._scene.mirror.runs.get(reply.run_id)
        require(row is not None and row.status == reply.status.value, 1, "outcome_before_commit", reply.run_id)
        require(reply.status is not replies.RunStatus.CONTINUED_AS_NEW, 35, "caller_not_handed_on", reply.run_id)
        self._scene.coverage.hit("await_answered")

    # -- the ledger --

    def finish(self) -> None:
        """Go through what clients were told."""
        mirror = self._scene.mirror
        runs_by_request: Counter[tuple[str, str, str]] = Counter()
        for row in mirror.runs.values():
            fixed = decode_fixed(row.fixed)
            if fixed.start_request_id and not fixed.previous_run_id:
                runs_by_request[row.namespace, row.workflow_id, fixed.start_request_id] += 1
        doubled = [key for key, count in runs_by_request.items() if count > 1]
        require(not doubled, 3, "one_request_two_runs", doubled)
        tasks_by_key: Counter[tuple[str, str]] = Counter()
        for task_id, spec in mirror.specs.items():
            if spec.key:
                tasks_by_key[mirror.tasks[task_id].namespace, spec.key] += 1
        doubled_keys = [key for key, count in tasks_by_key.items() if count > 1]
        require(not doubled_keys, 3, "one_key_two_tasks", doubled_keys)
        for entry in self._scene.ledger.entries:
            self._entry(entry)

    def _entry(self, entry: Entry) -> None:
        mirror, reply, request = self._scene.mirror, entry.reply, entry.request
        if getattr(reply, "run_id", "") in mirror.gone or getattr(reply, "task_id", "") in mirror.gone:
            return
        match reply:
            case replies.WorkflowStarted():
                row = mirror.runs.get(reply.run_id)
                require(
                    row is not None and row.status != RunStatus.RUNNING.value, 1, "acked_run_not_closed", reply.run_id
                )
            case replies.TaskEnqueuedReply():
                task = mirror.tasks.get(reply.task_id)
                require(task is not None and task.state in TERMINAL, 1, "acked_task_not_closed", reply.task_id)
            case replies.WorkflowOutcome():
                row = mirror.runs.get(reply.run_id)
                require(row is not None and row.status == reply.status.value, 33, "outcome_changed", reply.run_id)
            case replies.TaskOutcomeReply():
                task = mirror.tasks.get(reply.task_id)
                is_so = task is not None and (task.state is reply.state or self._came_back(reply.task_id))
                require(is_so, 19, "terminal_state_changed", reply.task_id)
            case replies.Refused() if entry.attempts == 1 and self._one_copy() and isinstance(request, i.StartWorkflow):
                require(request.run_id not in mirror.runs, 2, "refused_start_exists", request.run_id)
            case replies.Refused() if entry.attempts == 1 and self._one_copy() and isinstance(request, i.EnqueueTask):
                require(request.task_id not in mirror.tasks, 2, "refused_task_exists", request.task_id)
            case replies.WorkflowInfo():
                seen = [events for number, events in mirror.versions.get(reply.run_id, []) if number <= entry.floor]
                require(not seen or reply.events >= seen[-1], 7, "stale_read",
                        f"{reply.run_id}: {reply.events} events, {seen[-1:]} were acknowledged")  # fmt: skip
            case _:
                pass

    def _one_copy(self) -> bool:
        faults = self._scene.config.faults
        return not (faults.net_double or faults.net_late)
