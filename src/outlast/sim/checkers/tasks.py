"""Tasks, leases and retries: invariants 19 to 29 and 53, 54."""

from collections import Counter

from outlast.core import codec
from outlast.core.inputs import CompleteTasks, Heartbeat, RetryTasks, ReturnTasks
from outlast.core.invariants import EDGES, task_findings, waker_of
from outlast.core.replies import CompletionsReply, HeartbeatReply, TaskState
from outlast.core.task import TERMINAL
from outlast.core.units import SECOND, Fence
from outlast.core.writes import AttemptRow, TaskRow
from outlast.sim.mirror import Change
from outlast.sim.node import Node, Ticket
from outlast.sim.scene import Scene
from outlast.sim.violation import Violation, require

Token = tuple[str, int]
_ENDED_BY_HOLDER = ("succeeded", "failed", "canceled")
_LOST_MAX = 6  # losses in a row before a task must have been given up: suspect after two, then three alone


class Tasks:
    """Watches every task's row."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._completed: dict[Token, None] = {}  # the holder's word has reached an owner
        self._returned: dict[Token, None] = {}
        self._promised: dict[Token, int] = {}  # until when the holder was told that it has the lease
        self._heard: dict[Token, int] = {}  # when an owner last heard of the holder, by that owner's clock
        self._asked_back: dict[str, set[str]] = {}  # task -> ids of the requests to bring it back
        self._times_back: Counter[str] = Counter()  # task -> how often it came back; both begin anew when keys are over
        self._fence_of: dict[Token, Fence] = {}
        self._verdicts: dict[tuple[Token, str], str] = {}
        self._grace: dict[Fence, list[tuple[int, int]]] = {}  # (owner's instant of a fresh start, leases due before it)

    # -- what goes in and out --

    def served(self, node: Node) -> None:
        """Note a take-over: every lease gets a fresh term."""
        assert node.claim is not None
        now = node.clock.now()
        self._grace[node.claim.fence] = [(now, now)]

    def resumed(self, node: Node, paused_for: int) -> None:
        """Note a stall: leases that ran out well before its end get a fresh term."""
        stall = self._scene.config.knobs.stall
        if node.claim is not None and paused_for > stall + SECOND // 10:
            now = node.clock.now()
            self._grace[node.claim.fence].append((now, now - stall - SECOND // 10))

    def handled(self, node: Node, ticket: Ticket) -> None:
        """Note what workers have said to an owner."""
        request = ticket.request
        if isinstance(request, Heartbeat):
            for beat in request.items:
                self._heard[beat.token.task_id, beat.token.lease] = node.clock.now()
        if isinstance(request, CompleteTasks):
            for item in request.items:
                self._completed[item.token.task_id, item.token.lease] = None
        elif isinstance(request, RetryTasks):
            for task_id in request.task_ids:
                self._asked_back.setdefault(task_id, set()).add(request.request_id)
        elif isinstance(request, ReturnTasks):
            for token in request.tokens:
                self._returned[token.task_id, token.lease] = None

    def answered(self, ticket: Ticket, reply: object) -> None:
        """Check what is said about leases."""
        request = ticket.request
        if isinstance(request, CompleteTasks) and isinstance(reply, CompletionsReply):
            for item, refused in zip(request.items, reply.items, strict=True):
                self._completion(
                    (item.token.task_id, item.token.lease), str(item.outcome), refused.code if refused else ""
                )
        elif isinstance(request, Heartbeat) and isinstance(reply, HeartbeatReply):
            for beat, answer in zip(request.items, reply.items, strict=True):
                if answer.action != "stop":
                    self._extended((beat.token.task_id, beat.token.lease), answer.lease_until)

    def _completion(self, token: Token, outcome: str, code: str) -> None:
        known = self._verdicts.get((token, outcome))
        row = self._scene.mirror.tasks.get(token[0])
        if known is not None:
            # A recorded failure is forgotten once the next attempt has begun; a lost lease never becomes good again.
            forgotten = not known and row is not None and row.lease > token[1]
            require(known == code or forgotten, 23, "completion_answers_differ", f"{token}: {known!r}, then {code!r}")
            if not code:
                self._scene.coverage.hit("completion_repeated")
        self._verdicts.setdefault((token, outcome), code)
        if code:
            return
        require(row is not None, 1, "completion_of_nothing", token)
        ended = any(attempt.lease == token[1] and not attempt.late for attempt in self._attempts(token[0]))
        require(ended, 1, "completion_acknowledged_early", token)

    def _extended(self, token: Token, until: int) -> None:
        mirror = self._scene.mirror
        row, before = mirror.tasks.get(token[0]), self._promised.get(token, 0)
        require(
            until >= before - 2 * self._scene.config.skew,
            24,
            "heartbeat_shortened_a_lease",
            f"{token}: {until} after {before}",
        )
        if row is not None and row.lease == token[1] and row.state is TaskState.LEASED:
            deadline = mirror.statuses[token[0]].attempt_deadline
            require(
                not deadline or until <= deadline, 24, "lease_past_start_to_close", f"{token}: {until} > {deadline}"
            )
        if until > before:
            self._scene.coverage.hit("heartbeat_extended")
        self._promised[token] = until

    # -- what is committed --

    def committed(self, change: Change) -> None:
        """Check each task that a commit has moved."""
        for old, new in change.tasks:
            spec = self._scene.mirror.specs[new.task_id]
            for finding in task_findings(new, spec, self._attempts(new.task_id)):
                raise Violation(finding.number, finding.code, finding.detail)
            if old is not None:
                self._moved(change, old, new)
            self._leased(change, old, new)
            timers = self._scene.mirror.timers_of.get(new.task_id, {}).values()
            require(waker_of(new, timers), 20, "orphan_task", f"{new.task_id} is {new.state} and nothing will wake it")
            self._notice(old, new)
        for row in change.batch.attempts:
            if not row.late:
                self._ended(change, row)

    def _moved(self, change: Change, old: TaskRow, new: TaskRow) -> None:
        # A lease may be given and end within one commit, when that commit is late.
        back = any(
            row.task_id == new.task_id and row.outcome == "retried" and row.lease > old.lease
            for row in change.batch.attempts
        )
        before = TaskState.LEASED if new.lease > old.lease and (back or old.state not in TERMINAL) else old.state
        require(new.state in EDGES[before], 19, "forbidden_move", f"{new.task_id}: {old.state} to {new.state}")
        if old.state in TERMINAL and not back:
            require((old.closed_at, old.reason, old.attempt) == (new.closed_at, new.reason, new.attempt), 19,
                    "terminal_state_changed", new.task_id)  # fmt: skip
        require(new.lease >= old.lease, 22, "lease_number_went_back", f"{new.task_id}: {old.lease} to {new.lease}")
        if old.state is not TaskState.LEASED or (new.state is TaskState.LEASED and new.lease == old.lease):
            if old.state is TaskState.LEASED:
                require(new.lease_until >= old.lease_until, 24, "lease_shortened", new.task_id)
                require(new.attempt == old.attempt, 21, "attempt_changed_in_lease", new.task_id)
            return
        ended = any(
            row.task_id == new.task_id and row.lease == old.lease and not row.late for row in change.batch.attempts
        )
        # Cancel from outside, the end of the run and a passed deadline take a lease without a word of its holder.
        require(ended or new.state in (TaskState.CANCELED, TaskState.EXPIRED), 22, "lease_vanished",
                f"{new.task_id} lease {old.lease}: now {new.state} at lease {new.lease}")  # fmt: skip

    def _leased(self, change: Change, old: TaskRow | None, new: TaskRow) -> None:
        if new.state is not TaskState.LEASED or (old is not None and old.lease == new.lease):
            return
        mirror = self._scene.mirror
        spec, status = mirror.specs[new.task_id], mirror.statuses[new.task_id]
        token = (new.task_id, new.lease)
        self._fence_of[token] = change.batch.fence
        skew = self._scene.config.skew
        require(new.lease == (old.lease if old else 0) + 1 or len(self._attempts(new.task_id)) >= new.lease - 1, 21,
                "lease_skipped", f"{token} after {old.lease if old else 0}")  # fmt: skip
        # A lease and the request to cancel may meet in one commit; one that was committed before forbids the lease.
        before = codec.decode_status(old.status) if old is not None else None
        canceled = before is not None and before.cancel_requested and before.retries == status.retries
        require(not canceled, 28, "leased_after_cancel", token)
        require(
            status.started_at >= new.run_at,
            25,
            "started_before_due",
            f"{token}: {new.run_at - status.started_at} early",
        )
        require(change.now >= new.run_at - skew, 40, "started_early", f"{token}: {new.run_at - change.now} early")
        start_by, close_by = self._ends_of(new.task_id)
        require(not close_by or status.started_at < close_by, 25, "started_after_close_by", token)
        require(
            not start_by or status.started_at <= start_by or new.attempt > 1,
            25,
            "started_after_start_by",
            token,
        )
        require(status.lost_in_a_row <= _LOST_MAX, 27, "poison_not_quarantined", f"{token}: {status.lost_in_a_row}")
        last = next(
            (
                row
                for row in reversed(self._attempts(new.task_id))
                if not row.late and row.outcome in ("failed", "retried")
            ),
            None,
        )
        if last is not None and last.outcome == "failed":
            require(last.error_type not in spec.retry.final_types, 26, "final_failure_retried", token)

    def _ended(self, change: Change, row: AttemptRow) -> None:
        token = (row.task_id, row.lease)
        outcome = row.outcome
        require(row.ended_at <= change.batch.at, 25, "ended_in_the_future", f"{token}: {row.ended_at}")
        if outcome in _ENDED_BY_HOLDER:
            if token not in self._completed:
                task = self._scene.mirror.tasks[row.task_id]
                require(outcome == "canceled" and task.state is TaskState.CANCELED, 22, "ended_without_its_holder",
                        f"{token} {outcome}")  # fmt: skip
        elif outcome == "retried":
            self._brought_back(row)
        elif outcome == "returned":
            self._scene.coverage.hit("lease_returned")
            if token not in self._returned:
                self._expired(row, token)  # a task whose handler surely never began goes back at its lease's end
        elif outcome == "worker_lost" or outcome.startswith("timeout"):
            self._expired(row, token)
        self._backoff(row)

    def _brought_back(self, row: AttemptRow) -> None:
        """Check that a task came back for a request, and once for each."""
        self._scene.coverage.hit("task_brought_back")
        self._times_back[row.task_id] += 1
        times = self._times_back[row.task_id]
        asked = len(self._asked_back.get(row.task_id, ()))
        require(times <= asked, 3, "brought_back_too_often", f"{row.task_id}: {times} times for {asked} requests")

    def _ends_of(self, task_id: str) -> tuple[int, int]:
        """Return the instants by which a task must have begun and ended, 0 for none."""
        spec, status = self._scene.mirror.specs[task_id], self._scene.mirror.statuses[task_id]
        return (status.start_by, status.close_by) if status.retries else (spec.start_by, spec.close_by)

    def _expired(self, row: AttemptRow, token: Token) -> None:
        scene, mirror = self._scene, self._scene.mirror
        spec = mirror.specs[row.task_id]
        slack = 2 * scene.config.skew
        kind = row.outcome.removeprefix("timeout:")
        if kind == "start_to_close":
            if mirror.statuses[row.task_id].cancel_requested:
                return  # its time was cut when it was asked to stop
            least = row.started_at + spec.start_to_close
            scene.coverage.hit("start_to_close")
        elif kind == "heartbeat":
            least = row.started_at + spec.heartbeat
            scene.coverage.hit("heartbeat_timeout")
        elif kind in ("schedule_to_close", "schedule_to_start"):
            return
        else:
            term = self._term(spec.start_to_close)
            if kind == "returned" and spec.heartbeat:
                term = min(term, spec.heartbeat)
            promised = 0 if kind == "returned" else self._promised.get(token, 0) - slack
            least = max(row.started_at + term, promised)
            scene.coverage.hit("lease_expired")
        require(
            row.ended_at >= least,
            22,
            "lease_taken_early",
            f"{token} {row.outcome}: {(least - row.ended_at) / 1e6:.1f} ms",
        )
        if kind == "start_to_close":
            return
        fence = mirror.fence
        for fresh, due_before in self._grace.get(fence, ()):
            taken_over = due_before == fresh
            concerned = self._fence_of.get(token, fence) != fence if taken_over else least < due_before
            if concerned and row.ended_at >= fresh and self._heard.get(token, 0) < fresh:
                term = fresh + self._term(0) - slack
                require(row.ended_at >= term, 22, "lease_taken_in_grace",
                        f"{token} {row.outcome}: {(term - row.ended_at) / 1e6:.1f} ms, take-over {taken_over}")  # fmt: skip
                scene.coverage.hit("lease_over_takeover" if taken_over else "lease_over_stall")

    def _term(self, start_to_close: int) -> int:
        lease = self._scene.config.knobs.task_lease
        return min(lease, start_to_close) if start_to_close else lease

    def _backoff(self, row: AttemptRow) -> None:
        task = self._scene.mirror.tasks[row.task_id]
        if task.state is not TaskState.RETRY_WAIT or task.lease != row.lease or row.outcome == "returned":
            return
        policy = self._scene.mirror.specs[row.task_id].retry
        status = self._scene.mirror.statuses[row.task_id]
        longest = min(int(policy.first * policy.factor ** (row.attempt - 1)), policy.longest)
        if status.failure is not None and status.failure.next_delay is not None:
            longest = max(longest, status.failure.next_delay)
        pause = task.run_at - row.ended_at
        require(0 <= pause <= longest, 26, "backoff_outside_policy", f"{row.task_id}: {pause} of {longest}")
        require(not policy.attempts_max or row.attempt < policy.attempts_max, 26, "retried_beyond_policy", row.task_id)

    def _notice(self, old: TaskRow | None, new: TaskRow) -> None:
        hit = self._scene.coverage.hit
        if old is not None and old.state is not new.state:
            if new.state is TaskState.RETRY_WAIT:
                hit("activity_retried")
            elif new.state is TaskState.EXPIRED and new.reason in ("schedule_to_start", "schedule_to_close"):
                hit(new.reason)
                due = self._ends_of(new.task_id)[new.reason == "schedule_to_close"]
                # An attempt that fails ends its task when the next one could not begin in time.
                early = new.closed_at < due and old.state is not TaskState.LEASED and old.lease == new.lease
                require(not early, 25, "expired_early", f"{new.task_id} {new.reason}: {due - new.closed_at}")
            elif new.state is TaskState.FAILED:
                hit("activity_failed_final" if new.reason == "non_retryable_failure" else "attempts_used_up")
                if self._scene.mirror.statuses[new.task_id].lost_in_a_row >= 3:
                    hit("poison_failed")
            elif new.state is TaskState.CANCELED and old.state is TaskState.LEASED:
                hit("activity_canceled_by_worker")
            elif new.state is TaskState.CANCELED and new.run_id:
                hit("activity_canceled_unstarted")
        if old is None and new.run_at > new.enqueued_at:
            hit("delayed_task")
        if self._scene.mirror.statuses[new.task_id].lost_in_a_row >= 2:
            hit("lease_expired_twice")

    def _attempts(self, task_id: str) -> list[AttemptRow]:
        return sorted(self._scene.mirror.attempts.get(task_id, ()), key=lambda row: (row.lease, row.late))

    # -- at the end --

    def finish(self) -> None:
        """Check what handlers did against what was committed."""
        mirror = self._scene.mirror
        once: dict[tuple[str, int], int] = {}
        for handler_run in self._scene.ledger.handler_runs:
            row = mirror.tasks.get(handler_run.task_id)
            require(row is not None and row.lease >= handler_run.lease, 53, "ran_without_a_lease", handler_run)
            require(row is not None and handler_run.operation_id in ("", self._operation_id(row)), 54, "operation_id_differs",
                    handler_run)  # fmt: skip
            if handler_run.once:
                key = (handler_run.task_id, self._lives(handler_run.task_id, handler_run.lease))
                once[key] = once.get(key, 0) + 1
        twice = [key for key, count in once.items() if count > 1]
        require(not twice, 59, "once_only_task_ran_twice", twice)

    def _lives(self, task_id: str, lease: int) -> int:
        """Return how often the task had been brought back before this lease."""
        return sum(row.outcome == "retried" and row.lease < lease for row in self._attempts(task_id))

    def _operation_id(self, row: TaskRow) -> str:
        return self._scene.mirror.specs[row.task_id].operation_id
