"""The knobs of a shard. They are settings, not code: simulation turns them, production leaves them."""

from dataclasses import dataclass

from outlast.core import limits


@dataclass(slots=True, frozen=True, kw_only=True)
class ShardConfig:
    """Spans in nanoseconds. ``shard_lease`` 0 means that ownership does not run out (an OS lock holds it)."""

    task_lease: int = limits.TASK_LEASE
    shard_lease: int = 0
    shard_renew: int = limits.SHARD_RENEW
    shard_margin: int = limits.SHARD_MARGIN
    stall: int = limits.STALL
    sticky_timeout: int = limits.STICKY_TIMEOUT
    workflow_task_timeout: int = limits.WORKFLOW_TASK_TIMEOUT
    backoff_first: int = limits.WORKFLOW_TASK_BACKOFF_FIRST
    backoff_max: int = limits.WORKFLOW_TASK_BACKOFF_MAX
    idempotency_window: int = limits.IDEMPOTENCY_WINDOW
    feed_age: int = limits.FEED_AGE_MAX
    batch_rows_max: int = limits.BATCH_ROWS_MAX
    answers_max: int = limits.ANSWERS_MAX
    inputs_held_max: int = limits.INPUTS_HELD_MAX
    batch_bytes_max: int = limits.BATCH_BYTES_MAX
    window_max: int = limits.WINDOW_MAX
    window_low: int = limits.WINDOW_LOW
    page_rows: int = limits.PAGE_ROWS
    names_max: int = limits.NAMES_MAX
    queues_max: int = limits.QUEUES_MAX
    workers_max: int = limits.WORKERS_MAX
    fair_keys_max: int = limits.FAIR_KEYS_MAX
    runs_cached_max: int = limits.RUNS_CACHED_MAX
    tasks_cached_max: int = limits.TASKS_CACHED_MAX
    dedup_cached_max: int = limits.TASKS_CACHED_MAX
    waiters_max: int = limits.WAITERS_MAX
    queries_max: int = limits.QUERIES_MAX
    polls_max: int = limits.POLLS_MAX
    poll_answers_max: int = limits.POLL_ANSWERS_MAX
    poll_leases_max: int = limits.POLL_LEASES_MAX
    continue_as_new_events: int = limits.CONTINUE_AS_NEW_EVENTS
    history_events_max: int = limits.HISTORY_EVENTS_MAX
    parked_bytes_max: int = limits.PARKED_BYTES_MAX
    signals_max: int = limits.SIGNALS_MAX
