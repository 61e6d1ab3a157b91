"""Rare things that must happen now and then. A harness in which one never happens does not test it, however green."""

from collections import Counter
from typing import Final

POINTS: Final[dict[str, str]] = {}


def _declare(**points: str) -> None:
    POINTS.update(points)


_declare(
    takeover="a node took over from another one whose lease had run out",
    reclaim="a node claimed again after stepping down",
    zombie_fenced="a paused owner's batch came after a higher fence and was refused",
    unknown_applied="a commit of unknown outcome had been applied",
    unknown_lost="a commit of unknown outcome never happened",
    unknown_late_applied="a commit of unknown outcome was applied after its owner had given it up",
    unknown_late_fenced="a late commit met a higher fence and was refused",
    commit_full="a commit found the disk full",
    batch_gathered="a batch held the work of at least five inputs",
    shard_lease_renewed="a commit renewed the shard's lease",
    claim_refused="a claim found the lease of another owner",
    duplicate_start_replayed="a repeated start got its first answer",
    duplicate_start_gated="a repeated start came while the first copy was not committed",
    duplicate_enqueue_replayed="a repeated enqueue got its first answer",
    duplicate_enqueue_gated="a repeated enqueue came while the first copy was not committed",
    key_reused_refused="another request under a used key was refused",
    start_refused_open="a start was refused because a run was open",
    start_returned_existing="a start returned the run that was open",
    start_terminated_existing="a start terminated the run that was open",
    start_refused_closed="a start was refused because of the last run",
    signal_repeated="a repeated signal changed nothing",
    signal_refused_closed="a signal to a closed run was refused",
    signal_parked="a signal was parked while a workflow task was started",
    parked_flushed_by_task="a completed workflow task flushed parked events",
    parked_flushed_at_load="a new owner flushed parked events",
    timer_parked="a timer fired while a workflow task was started",
    parked_timer_canceled="a timer was canceled whose firing was parked",
    unhandled_command="a run could not be closed because something had arrived",
    workflow_task_timed_out="a workflow task was not answered in time",
    workflow_task_retried="a workflow task completed at attempt two or later",
    workflow_task_stale="an answer to a workflow task came too late",
    sticky_used="a worker went on with a run it had in memory",
    sticky_timeout="a run left the worker that had it in memory",
    cache_missed="a worker had to read the history it had forgotten",
    history_came_in_part="a workflow task came with the first page of its history alone",
    history_read_in_pages="a worker read a history in more than one page",
    continued_as_new="a run continued as new",
    continued_with_signals="a run continued as new and carried signals over",
    run_canceled="a run ended as canceled",
    run_terminated="a run was terminated",
    run_timed_out="a run reached its timeout",
    run_failed="a run failed",
    history_limit="a run was ended because its history had grown too long",
    signals_limit="a signal was refused because the run had taken as many as it may",
    polls_limit="a poll was refused because as many were held as may be",
    parked_limit="a signal was put off because too much was parked",
    terminate_during_task="a run was terminated while a worker had its workflow task",
    activity_canceled_unstarted="an activity was canceled before it was started",
    activity_canceled_by_worker="a worker stopped an activity because it was asked to",
    activity_retried="an activity or task was retried",
    activity_failed_final="an attempt failed for good at once",
    attempts_used_up="a task failed because its attempts were used up",
    lease_expired="a lease ran out without an answer",
    lease_expired_twice="two leases of one task in a row ran out",
    poison_failed="a task failed because it lost its workers",
    completion_after_expiry="an answer after the lease's end was refused",
    completion_repeated="a repeated answer got the winning answer",
    heartbeat_extended="a heartbeat extended a lease",
    heartbeat_after_loss="a heartbeat of a lost lease was told to stop",
    heartbeat_cancel="a heartbeat brought the request to cancel",
    start_to_close="an attempt ran over start-to-close",
    schedule_to_start="a task was not started in time",
    schedule_to_close="a task was not closed in time",
    heartbeat_timeout="an attempt missed its heartbeats",
    task_brought_back="a task that had ended without success was brought back",
    closed_and_brought_back="a task ended and was brought back within one commit",
    lease_returned="a lease was handed back uncounted",
    begin_acknowledged="a task with one attempt began after its word was stored",
    begin_refused="a begin came too late",
    poll_repeated="a repeated poll got the same leases",
    poll_empty="a poll ended without work",
    lease_over_takeover="a lease was kept over a change of owner",
    lease_over_stall="a lease outlived its stored end because the owner had stalled",
    window_continued="more tasks were ready than the window holds, and its next page was read",
    task_reloaded="a task was read from the store again",
    run_reloaded="a run was read from the store again",
    wait_signal_won="a waited-for signal came before its timeout",
    wait_timeout_won="the timeout came before the waited-for signal",
    delayed_start="a run was started with a delay",
    delayed_task="a task was enqueued with a delay",
    detached_enqueued="workflow code enqueued a task that outlives its run",
    await_answered="a waiting caller got a result",
    await_followed="a waiting caller was handed on to the next run of the chain",
    query_asked="a worker answered a query",
    query_answered="a caller got the answer to a query",
    query_unanswered="a query was refused because no worker had answered in time",
    all_nodes_down="no node was up",
    worker_gone_mid_task="a worker crashed with a task in its hands",
    worker_zombie_answered="a worker answered after a pause beyond its lease",
    feed_reader_crashed="a reader of the feed lost what it had not worked off and went on from its cursor",
    feed_resumed_within_a_commit="a reader of the feed went on behind an event that was not the last of its commit",
    feed_page_was_full="a page of the feed ended at its bounds",
    feed_pruned="the beginning of a feed was dropped",
    feed_cursor_expired="a cursor was refused because events behind it had been dropped",
    run_forgotten="a run that closed long ago was forgotten",
    task_forgotten="a task that closed long ago was forgotten",
    forgotten_id_used_again="a workflow was started under the id of one that was forgotten",
    asked_for_forgotten="somebody asked for what was forgotten",
    clock_behind="a node's clock was behind what the shard had seen",
)


class Coverage:
    """Counts of the declared points."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def hit(self, point: str) -> None:
        """Count one occurrence of a declared point."""
        assert point in POINTS, point
        self.counts[point] += 1
