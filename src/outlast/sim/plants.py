"""Bugs that are planted on purpose, one at a time, to prove that the simulation finds them.

Each is a patch for the life of one run, taken back afterwards; there is no trace of it in the code that it breaks. A bug that
the simulation no longer finds is a fault of the simulation.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from outlast.core import replies
from outlast.core.events import TimerFired
from outlast.core.machines import task as task_machine
from outlast.core.shard import (
    attempts,
    dedup,
    due,
    enqueue,
    forget,
    gate,
    gather,
    histories,
    loading,
    matching,
    queries,
    readiness,
    runs,
    state,
    tasks,
    turns,
    window,
)
from outlast.core.shard.admitted import TimerDue
from outlast.core.shard.core import ShardCore
from outlast.core.shard.outputs import Answer
from outlast.core.units import MILLISECOND
from outlast.core.writes import Batch, CommitOutcome, LoadLeasedTasks, LoadTimers, Page
from outlast.engine import reading
from outlast.sim import disk as disk_module
from outlast.sim.planting import PLANTS, Patches, plant, planted
from outlast.store.memory import reading as memory_reading
from outlast.store.memory.tables import Tables

__all__ = ["PLANTS", "planted"]

# --- the store -----------------------------------------------------------------------------------------------------------


def _forced(tables: Tables, batch: Batch, apply: Callable[[Tables, Batch], CommitOutcome]) -> CommitOutcome:
    """Apply ``batch`` as if its fence were the current one."""
    held = tables.held
    tables.held = held._replace(fence=batch.fence, last_number=batch.number - 1)
    outcome = apply(tables, batch)
    tables.held = held._replace(last_number=max(held.last_number, batch.number))
    return outcome


@plant("the store does not look at the fence")
def _no_fence(patches: Patches) -> None:
    def apply(self: Tables, batch: Batch) -> CommitOutcome:
        return _forced(self, batch, before)

    before = patches.put(Tables, "apply", apply)


@plant("the fence is read when the batch is sent, and not locked until it is applied")
def _fence_by_read(patches: Patches) -> None:
    def commit(self: disk_module.Disk, process: Any, owner: str, batch: Batch, done: Any) -> None:
        if batch.fence == self.tables.held.fence:
            seen[id(self.tables), batch.number, batch.fence] = None
        send(self, process, owner, batch, done)

    def apply(self: Tables, batch: Batch) -> CommitOutcome:
        if (id(self), batch.number, batch.fence) in seen:
            return _forced(self, batch, before)
        outcome: CommitOutcome = before(self, batch)
        return outcome

    seen: dict[tuple[Any, ...], None] = {}
    send = patches.put(disk_module.Disk, "commit", commit)
    before = patches.put(Tables, "apply", apply)


# --- gating --------------------------------------------------------------------------------------------------------------


def _early(patches: Patches, which: Callable[[replies.Reply], bool]) -> None:
    def answer(self: gate.Gate, outputs: list[Any], ticket: object, reply: replies.Reply, *, saw: int) -> None:
        if which(reply):
            outputs.append(Answer(ticket, reply))
        else:
            before(self, outputs, ticket, reply, saw=saw)

    before = patches.put(gate.Gate, "answer", answer)


@plant("starts and enqueues are acknowledged before their batch has committed")
def _ack_before_commit(patches: Patches) -> None:
    _early(patches, lambda reply: isinstance(reply, replies.WorkflowStarted | replies.TaskEnqueuedReply))


@plant("a repeated request is acknowledged while its first copy has not committed")
def _early_duplicate_ack(patches: Patches) -> None:
    def early(reply: replies.Reply) -> bool:
        if isinstance(reply, replies.Accepted):
            return not reply.changed
        return isinstance(reply, replies.WorkflowStarted | replies.TaskEnqueuedReply) and reply.replayed

    _early(patches, early)


@plant("work is given out before the batch that leases it has committed")
def _dispatch_before_commit(patches: Patches) -> None:
    _early(patches, lambda reply: isinstance(reply, replies.Work))


# --- doubt ---------------------------------------------------------------------------------------------------------------


@plant("after a commit of unknown outcome the owner goes on as if it were done")
def _carry_on_after_unknown(patches: Patches) -> None:
    def on_commit(self: ShardCore, number: int, outcome: CommitOutcome, *, now: int) -> None:
        before(self, number, CommitOutcome.DONE if outcome is CommitOutcome.UNKNOWN else outcome, now=now)

    before = patches.put(ShardCore, "on_commit", on_commit)


@plant("a commit of unknown outcome is told to callers as a definite failure")
def _unknown_taken_as_failed(patches: Patches) -> None:
    def take_outputs(self: ShardCore) -> list[Any]:
        outputs: list[Any] = before(self)
        if not self.shard.stepped_down.endswith("unknown"):
            return outputs
        failed = replies.Refused(code="internal", fact="The commit failed.", retryable=False)
        return [Answer(item.ticket, failed) if isinstance(item, Answer) else item for item in outputs]

    before = patches.put(ShardCore, "take_outputs", take_outputs)


# --- recovery ------------------------------------------------------------------------------------------------------------


def _change_page(patches: Patches, change: Callable[[Any, Page], None]) -> None:
    def take_in(shard: Any, pages: Any, load_id: int, page: Page) -> Any:
        change(pages.asked[load_id].load, page)
        return before(shard, pages, load_id, page)

    before = patches.put(loading, "take_in", take_in)


@plant("a new owner does not watch the leases that it finds")
def _recovery_forgets_leases(patches: Patches) -> None:
    def change(load: Any, page: Page) -> None:
        if isinstance(load, LoadLeasedTasks):
            page.tasks.clear()

    _change_page(patches, change)


@plant("a new owner puts the leased tasks that it finds back to ready")
def _recovery_resets_leases(patches: Patches) -> None:
    def adopt(shard: Any, task: Any) -> Any:
        known = task.task_id in shard.tasks
        adopted = before(shard, task)
        if not known and task.state is replies.TaskState.LEASED:
            holder = task.worker
            row = task_machine.attempt_row(task, "returned", now=shard.now)
            task_machine.hand_back(task)
            attempts._back_to_queue(shard, task, row, holder)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        return adopted

    before = patches.put(loading, "adopt", adopt)


@plant("timers are not read again by a new owner")
def _timer_lost_at_reload(patches: Patches) -> None:
    def change(load: Any, page: Page) -> None:
        if isinstance(load, LoadTimers):
            page.timers.clear()

    _change_page(patches, change)


@plant("what was parked is forgotten by a new owner")
def _parked_dropped(patches: Patches) -> None:
    def flush(shard: Any, run: Any, **_: Any) -> list[Any]:
        histories.drop_parked(shard, run)
        return []

    patches.put(loading, "flush_parked", flush)


@plant("the window on ready tasks forgets that more is in the store")
def _window_low_water_off(patches: Patches) -> None:
    def evict(self: window.Window[Any], *, number: int) -> list[Any]:
        dropped: list[Any] = before(self, number=number)
        if dropped:
            self.low = None
            self.left_out.clear()
        return dropped

    before = patches.put(window.Window, "evict", evict)


@plant("what is dropped from a window is not remembered as missing from a page that is on its way")
def _evicted_rows_unnoted(patches: Patches) -> None:
    def evict(self: window.Window[Any], *, number: int) -> list[Any]:
        noted = len(self.left_out)
        dropped: list[Any] = before(self, number=number)
        while len(self.left_out) > noted:
            self.left_out.pop()
        return dropped

    before = patches.put(window.Window, "evict", evict)


# --- leases and attempts -------------------------------------------------------------------------------------------------


@plant("a completion is taken whatever lease its token is of")
def _lease_check_off(patches: Patches) -> None:
    def check(task: Any, token: Any) -> None:
        if task.state is not replies.TaskState.LEASED:
            before(task, token)

    before = patches.put(task_machine, "check", check)


@plant("an attempt is not counted when its lease is given")
def _attempt_not_counted(patches: Patches) -> None:
    def lease(task: Any, **given: Any) -> None:
        before(task, **given)
        if task.attempt > 1:
            task.attempt -= 1

    before = patches.put(task_machine, "lease", lease)


@plant("leases expire by their stored end although the engine stood still or has just taken over")
def _expiry_ignores_stall(patches: Patches) -> None:
    def end_after_stall(self: Any, end: int, *, since: int, term: int) -> int:
        del self, since, term
        return end

    patches.put(state.Shard, "end_after_stall", end_after_stall)


@plant("that a handler has begun is not stored")
def _begin_not_stored(patches: Patches) -> None:
    def begin(task: Any) -> bool:
        del task
        return False

    patches.put(task_machine, "begin", begin)


@plant("a heartbeat may set the end of a lease back")
def _heartbeat_shortens(patches: Patches) -> None:
    def heartbeat(task: Any, item: Any, *, now: int, span: int) -> bool:
        before(task, item, now=now, span=span)
        task.lease_until = now + span // 4
        return True

    before = patches.put(task_machine, "heartbeat", heartbeat)


@plant("a task that was canceled is retried")
def _cancel_forgotten_at_retry(patches: Patches) -> None:
    def after_failure(task: Any, failure: Any, *, now: int) -> Any:
        asked, task.status.cancel_requested = task.status.cancel_requested, False
        settled = before(task, failure, now=now)
        task.status.cancel_requested = asked
        return settled

    before = patches.put(task_machine, "after_failure", after_failure)


@plant("a request to bring a task back does it again when it comes again")
def _retry_repeated(patches: Patches) -> None:
    def find(shard: Any, namespace: str, scope: str, key: str) -> Any:
        return None if scope.startswith("retry/") else before(shard, namespace, scope, key)

    before = patches.put(dedup, "find", find)


# --- runs ----------------------------------------------------------------------------------------------------------------


@plant("a repeated signal is recorded again")
def _signal_dedup_off(patches: Patches) -> None:
    def find(shard: Any, namespace: str, scope: str, key: str) -> Any:
        return None if scope.startswith("signal/") else before(shard, namespace, scope, key)

    before = patches.put(dedup, "find", find)


@plant("a timer whose firing is parked fires again")
def _timer_rearmed_twice(patches: Patches) -> None:
    def fire(shard: Any, run: Any, row: Any) -> None:
        before(shard, run, row)
        timer_id = row.timer_id.split(runs.USER_TIMER, 1)[1]
        if run.open and timer_id in run.state.timers and run.turn is not None:
            opened = run.state.timers[timer_id].started_event_id
            histories.append(shard, run, TimerFired(timer_id=timer_id, started_event_id=opened))

    before = patches.put(turns, "fire", fire)


@plant("timers fire a little early")
def _timer_early(patches: Patches) -> None:
    def collect(shard: Any) -> Any:
        found = before(shard)
        timers = shard.timers
        while timers.heap and timers.heap[0][0][0] <= shard.now + 900 * MILLISECOND:
            row = timers.pop()
            found.append(TimerDue(row.fire_at, row.timer_id, row.kind, row.target))
        return found

    before = patches.put(due, "collect", collect)


@plant("a workflow task is taken from whoever answers, whatever its dispatch number")
def _stale_workflow_token_accepted(patches: Patches) -> None:
    def find_turn(shard: Any, token: Any, namespace: str) -> Any:
        run = shard.runs.get(token.run_id)
        if run is not None and run.turn is not None and run.namespace == namespace:
            return run
        return before(shard, token, namespace)

    before = patches.put(turns, "find_turn", find_turn)


@plant("events that were parked are given ids that are in use")
def _late_event_ids_reused(patches: Patches) -> None:
    def flush(shard: Any, run: Any, **given: Any) -> Any:
        parked = len(run.parked)
        flushed = before(shard, run, **given)
        if parked > 1:
            run.next_event_id -= 1
        return flushed

    before = histories.flush_parked
    for module in (turns, runs, loading):
        patches.put(module, "flush_parked", flush)


@plant("a run that continues as new drops the signals that it has not received")
def _continue_drops_signals(patches: Patches) -> None:
    def continue_run(shard: Any, old: Any, closed: Any, carried: list[Any]) -> Any:
        return before(shard, old, closed, carried[1:])

    before = patches.put(runs, "continue_run", continue_run)


@plant("a run is closed though a signal has arrived that it has not seen")
def _closed_over_unseen_signal(patches: Patches) -> None:
    def has_unseen(run: Any, closing: Any) -> bool:
        del run, closing
        return False

    patches.put(turns, "_has_unseen", has_unseen)


@plant("a counter is not moved when a task is canceled")
def _counter_forgotten(patches: Patches) -> None:
    def count_task(self: Any, task: Any, was: Any) -> None:
        if task.state is not replies.TaskState.CANCELED:
            before(self, task, was)

    before = patches.put(state.Shard, "count_task", count_task)


@plant("a poll that is asked again gets other work beside what it has")
def _poll_forgotten(patches: Patches) -> None:
    def answer_again(shard: Any, key: Any, poll_id: Any) -> None:
        del shard, key, poll_id

    patches.put(matching, "_answer_again", answer_again)


@plant("the end of an activity is not told to its run when it is canceled")
def _activity_end_untold(patches: Patches) -> None:
    def after_close(shard: Any, task: Any, settled: Any, **given: Any) -> None:
        if task.run_id and task.state is replies.TaskState.EXPIRED:
            return
        before(shard, task, settled, **given)

    before = patches.put(tasks, "after_close", after_close)


@plant("a task is made ready before its delay or backoff is over")
def _ready_too_early(patches: Patches) -> None:
    def add(shard: Any, task: Any, *, delay: int) -> None:
        before(shard, task, delay=delay)
        if delay:
            readiness.make_ready(shard, task)

    before = readiness.add
    patches.put(enqueue, "add", add)


@plant("the feed tells the end of a task again with the next commit")
def _feed_tells_twice(patches: Patches) -> None:
    def begin_next(self: Any) -> None:
        closed = self.closed
        before(self)
        self.closed = closed if len(closed) == 1 else []

    before = patches.put(gather.Gather, "_begin_next", begin_next)


@plant("the feed leaves out the ends of leases that ran out")
def _feed_leaves_out_lost(patches: Patches) -> None:
    def changes(self: Any, batch: Any) -> Any:
        lost = [row for row in self.attempts if row.outcome == "worker_lost"]
        for row in lost:
            row.late = 1
        found = before(self, batch)
        for row in lost:
            row.late = 0
        return found

    before = patches.put(gather.Gather, "_changes", changes)


@plant("a reader of the feed that goes on within a page of a history misses the rest of the page")
def _feed_skips_rest(patches: Patches) -> None:
    def entries_of(rows: Any, *, after: Any, events_max: int) -> Any:
        found = before(rows, after=after, events_max=events_max)
        return [entry for entry in found if (entry.number, entry.before) >= after]

    before = patches.put(memory_reading, "entries_of", entries_of)


@plant("the feed tells the ends of tasks behind all else that a commit did to them")
def _feed_tells_ends_last(patches: Patches) -> None:
    def changes(self: Any, batch: Any) -> Any:
        self.closed = [(end, len(self.attempts)) for end, _ in self.closed]
        return before(self, batch)

    before = patches.put(gather.Gather, "_changes", changes)


@plant("a history that does not fit on a page is given out as if it were whole")
def _history_cut_short(patches: Patches) -> None:
    def with_events(task: Any, history: Any, *, next_event_id_to_read: int = 0) -> Any:
        del next_event_id_to_read
        return before(task, history)

    before = patches.put(reading, "with_events", with_events)


@plant("a query is answered before the code has been shown what had arrived")
def _query_of_the_past(patches: Patches) -> None:
    def ready(shard: Any, query: Any) -> Any:
        return shard.runs.get(query.run_id)

    patches.put(queries, "_ready", ready)


@plant("retention forgets a run that is open")
def _open_run_forgotten(patches: Patches) -> None:
    def forget_run(shard: Any, run_id: str, bound: int, namespace: str) -> bool:
        run = shard.runs.get(run_id)
        if run is None or not run.open:
            done: bool = before(shard, run_id, bound, namespace)
            return done
        run.status, run.closed_at = replies.RunStatus.TERMINATED, 1
        return bool(before(shard, run_id, bound, namespace))

    before = patches.put(forget, "_forget_run", forget_run)


@plant("retention forgets what its key still names")
def _forgotten_within_the_window(patches: Patches) -> None:
    def forget_all(shard: Any, request: Any, *, namespace: str) -> Any:
        config, shard.config = shard.config, replace(shard.config, idempotency_window=0)
        try:
            return before(shard, request, namespace=namespace)
        finally:
            shard.config = config

    before = patches.put(forget, "forget", forget_all)


@plant("a page that was read before brings back what was forgotten")
def _forgotten_comes_back(patches: Patches) -> None:
    def forget_task(shard: Any, task_id: str, bound: int, namespace: str) -> Any:
        done = before(shard, task_id, bound, namespace)
        shard.forgotten.pop(task_id, None)
        return done

    before = patches.put(forget, "_forget_task", forget_task)
