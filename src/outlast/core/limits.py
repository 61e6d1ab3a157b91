"""Every fixed bound of the house, in one table, each with its reason."""

from typing import Final

from outlast.core.units import DAY, HOUR, MINUTE, SECOND, Nanos

# What users send.
NAMESPACE_NAME_MAX: Final = 63  # it stands in addresses and labels
DESCRIPTION_BYTES_MAX: Final = 1_000
PAYLOAD_INLINE_BYTES_MAX: Final = 256 * 1024  # above it data goes to the blob store: rows stay small
PAYLOAD_BYTES_MAX: Final = 2 * 1024 * 1024  # one payload; what is larger belongs in storage of the user's own
REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024  # one HTTP body
INTAKE_BODY_BYTES_MAX: Final = (
    REQUEST_BYTES_MAX - 64 * 1024
)  # one request in a caller's transaction: it fits into a body later
WORKFLOW_ID_BYTES_MAX: Final = 1000  # as Temporal allows; ids are keys of indexes
NAME_BYTES_MAX: Final = 255  # types, queues, signal names, keys' scopes
KEY_BYTES_MAX: Final = 1000
HEADERS_BYTES_MAX: Final = 32 * 1024
BATCH_ITEMS_MAX: Final = 1000  # starts or enqueues in one request
WORKER_ITEMS_MAX: Final = 10_000  # tokens or answers in one request of a worker
POLL_NAMES_MAX: Final = 1000  # queues or types that one poll names
POLL_PAIRS_MAX: Final = 10_000  # queues times types of one poll
TAGS_MAX: Final = 64  # of one run or task
LABEL_BYTES_MAX: Final = 1000  # text of a search attribute that can be found by
LABEL_VALUES_MAX: Final = 100  # values of one search attribute that is a list
WORKERS_SHOWN_MAX: Final = 1_000
QUEUES_SHOWN_MAX: Final = 1_000
QUEUE_COUNT_MAX: Final = 10_000  # ready tasks of a queue that are counted one by one
QUEUE_HEAD_ROWS: Final = 1_000  # of one type, among which the oldest is looked for
SWEEP_RUNS: Final = 50  # closed runs forgotten by one request
SWEEP_TASKS: Final = 500  # closed tasks forgotten by one request
QUERY_BYTES_MAX: Final = 4096  # text of a filter
QUERY_DEPTH_MAX: Final = 16  # brackets and nots of a filter, one in another
QUERY_TERMS_MAX: Final = 64  # comparisons of a filter
QUERY_VALUES_MAX: Final = 200  # of one `in (...)`
LIST_LIMIT_MAX: Final = 500  # rows of one page
LIST_SCAN_ROWS: Final = 2_000  # rows that a list looks at before other work has a turn
LIST_SCANS_MAX: Final = 100  # such stretches of one page or count, about a second; then the page comes back short
CURSOR_BYTES_MAX: Final = 2_000
FEED_PAGE_EVENTS: Final = 200  # of one page of the feed: read while the engine waits, so a few milliseconds
FEED_PAGE_BYTES: Final = 512 * 1024  # of the rows behind it; a page has at least one of them
FEED_ROW_ENTRIES: Final = (
    1_000  # of one stored row of the feed: a large commit has several, so that no page decodes it whole
)
FEED_COMMITS_MAX: Final = 1_000_000  # the feed goes back so many commits of its shard, and no further than FEED_AGE_MAX
FEED_PRUNED_ROWS: Final = 1_000  # stored rows of the feed that are dropped before other work has a turn
FEED_READERS_MAX: Final = 10_000  # who waits for the next event of a feed
FAILURE_TEXT_BYTES_MAX: Final = 16 * 1024  # message and trace each; cut with a marker
FAILURE_DEPTH_MAX: Final = 10
ATTEMPTS_MAX: Final = 1_000_000  # of one task; 0 stands for no bound
RETRY_FACTOR_MAX: Final = 1000  # a pause that grows faster is at its longest after one attempt anyway
GOOD_NAMES_MAX: Final = 4_096  # types and queues that were looked at and need not be again: they come with every item
SPAN_MAX: Final = Nanos(100 * 365 * DAY)  # a sleep longer than this is a mistake

STARTS_MAX: Final = 1_000_000  # of a namespace in a second, as its settings may allow
NAMESPACES_MAX: Final = 1_000  # of an engine: each is looked through by every sweep

# One run.
HISTORY_EVENTS_WARN: Final = 10_240  # from here its description warns
HISTORY_BYTES_WARN: Final = 10 * 1024 * 1024
HISTORY_EVENTS_MAX: Final = 51_200  # ends the run with a reason
HISTORY_BYTES_MAX: Final = 50 * 1024 * 1024  # as well
CONTINUE_AS_NEW_EVENTS: Final = 4_096  # from here the run is told to continue as new
CONTINUE_AS_NEW_BYTES: Final = 4 * 1024 * 1024
PARKED_BYTES_MAX: Final = 4 * 1024 * 1024  # events waiting for a started workflow task; more is Busy
COMMANDS_MAX: Final = 10_000  # of one workflow task
SIGNALS_MAX: Final = 10_000  # of one run
PUBLISHED_MAX: Final = 64  # names under which one run has published something
PUBLISHED_BYTES_MAX: Final = 4 * 1024  # one published value: it is in the run's row, which is read for every list

# One shard.
MAILBOX_MAX: Final = 20_000  # inputs waiting; new work is refused above it
MAILBOX_RESERVED: Final = 20_000  # further room that only completions and heartbeats may use
MAILBOX_BYTES_MAX: Final = 64 * 1024 * 1024  # of those inputs; completions and heartbeats may take as much again
ANSWERS_MAX: Final = 20_000  # answers that wait for one commit; what comes behind waits in the mailbox
INPUTS_HELD_MAX: Final = 20_000  # inputs that wait for rows to be read
BATCH_ROWS_MAX: Final = 20_000  # one commit: bounds its time and what a refused one throws away
BATCH_BYTES_MAX: Final = 16 * 1024 * 1024  # roughly; a row is taken with the bytes that its input had
WINDOW_MAX: Final = 10_000  # ready rows or timers of one window held in memory
WINDOW_LOW: Final = 2_000  # below it the next page is asked for
PAGE_ROWS: Final = 1_000  # rows of one load
FAIR_KEYS_MAX: Final = 10_000  # fairness keys of one queue whose passes are remembered
RUNS_CACHED_MAX: Final = 10_000  # runs in memory that nobody needs at the moment
TASKS_CACHED_MAX: Final = 30_000
STREAMS_MAX: Final = 1_000  # event streams over HTTP that are open at once
WAITERS_MAX: Final = 100_000  # callers waiting for a result
QUERIES_MAX: Final = 1_000  # queries that wait for a worker's answer
QUERIES_OF_POLL_MAX: Final = 100  # given out with one poll: they need no slot, but a thread
POLLS_MAX: Final = 10_000  # workers' requests for work that wait
POLL_ANSWERS_MAX: Final = 10_000  # answered poll ids kept, to give the same leases again
POLL_LEASES_MAX: Final = 20_000  # leases in those answers: two of the largest that a worker can ask for

NAMES_MAX: Final = 20_000  # (queue, type) pairs that workers poll for, and as many that have ready tasks in memory
QUEUES_MAX: Final = 10_000  # task queues of one namespace that have ever had a task: each has stored counters
WORKERS_MAX: Final = 10_000  # worker processes that are remembered; those that hold leases or polls come on top

DAMAGED_MAX: Final = 1_000  # rows that cannot be opened and are left out as damaged; with more the store is not served
DUE_AT_ONCE: Final = 1_000  # timers and expiries of one tick; the next goes on
TURN_WEIGHT: Final = 2_000  # entities that one turn of the loop handles: others get their turn within some 20 ms
LOADS_A_TURN: Final = 4  # pages that fill windows; loads by name come first and are not counted
DESCRIBED_MAX: Final = 100  # open activities and timers that one description lists
SUSPECT_AFTER: Final = 2  # losses in a row after which a task is run alone, so that no neighbour dies with it

# Time.
TASK_LEASE: Final = Nanos(30 * SECOND)  # renewed by the worker's own heartbeat every 10 s
SHARD_LEASE: Final = Nanos(5 * SECOND)  # of the owner of a shard in a database that several may reach
SHARD_RENEW: Final = Nanos(1 * SECOND)
SHARD_MARGIN: Final = Nanos(1 * SECOND)  # an owner stops serving this long before its lease ends
STALL: Final = Nanos(1 * SECOND)  # a pause longer than this grants every lease a fresh term (ARCHITECTURE §3)
WORKFLOW_TASK_TIMEOUT: Final = Nanos(10 * SECOND)
WORKFLOW_TASK_TIMEOUT_MAX: Final = Nanos(120 * SECOND)
WORKFLOW_TASK_BACKOFF_FIRST: Final = Nanos(1 * SECOND)  # after a failed workflow task, doubling
WORKFLOW_TASK_BACKOFF_MAX: Final = Nanos(10 * MINUTE)
STICKY_TIMEOUT: Final = Nanos(5 * SECOND)  # a run waits this long for the worker that has it in memory
FEED_AGE_MAX: Final = Nanos(7 * DAY)  # a reader that was away longer begins anew
IDEMPOTENCY_WINDOW: Final = Nanos(24 * HOUR)
START_TO_CLOSE: Final = Nanos(10 * MINUTE)
QUERY_WAIT: Final = Nanos(10 * SECOND)  # a query that does not say how long it may be held
QUERY_AGAIN: Final = Nanos(2 * SECOND)  # a worker that has not answered a query by then is not waited for alone
POLL_WAIT_MAX: Final = Nanos(60 * SECOND)
HOST_QUIET: Final = Nanos(10 * SECOND)  # a worker kept for a suspect task that does not poll so long is passed over
CANCEL_GRACE: Final = Nanos(30 * SECOND)  # a handler asked to stop has this long
POLLED_LATELY: Final = Nanos(60 * SECOND)  # a type polled within it has a worker: no poll waits longer
WORKER_LOST_ATTEMPTS_MAX: Final = 3  # attempts in a row that end with the worker: then the task fails as poison
