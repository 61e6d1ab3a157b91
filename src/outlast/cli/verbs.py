"""The table of commands, in the order in which help shows them."""

from typing import Final

from outlast.cli.verb import (
    CHANGE,
    DRY_RUN,
    IDS,
    JSON,
    OUTPUT,
    PLACE,
    QUIET,
    WATCH,
    WHERE,
    Option,
    Verb,
    option,
)
from outlast.cli.verbs_run import BEGIN_VERBS, LOOK_VERBS, RUN_VERBS

_TYPE: Final = option("--type", default="", metavar="NAME", help="only of this type")
_LIMIT: Final = option("--limit", type=int, default=50, metavar="N", help="at most this many (default: 50)")
_STATUS: Final = option(
    "--status", default="", metavar="NAME", help="only with this status: running, completed, failed, …"
)
_STATE: Final = option("--state", default="", metavar="NAME", help="only in this state: enqueued, leased, failed, …")
_TASK_QUEUE: Final = option("--queue", default="", metavar="NAME", help="only of this queue")
_FILTER: Final = (
    option("--query", default="", metavar="FILTER", help="filter, for example: state = failed and tag.plan = pro"),
    option("--tag", action="append", default=[], metavar="NAME=VALUE", help="only with this tag; may be given again"),
    option("--since", default="", metavar="TIME", help="only what began since: 2h, 3d, 2026-11-30T08:00:00Z"),
)
_RUN_FILTER: Final = (_TYPE, _STATUS, *_FILTER)
_TASK_FILTER: Final = (
    _TYPE,
    _STATE,
    _TASK_QUEUE,
    option("--run", default="", metavar="RUN_ID", help="activities of a run"),
    *_FILTER,
)
_RUN: Final = option("--run", default="", metavar="RUN_ID", help="an earlier run")
_WAIT: Final = option("--wait", nargs="?", const="", default=None, metavar="TIME", help="wait for the result")
_ARGS: Final = option(
    "args", nargs="*", default=[], metavar="JSON", help="arguments, each as JSON: 3, true, '\"text\"', '{\"a\": 1}'"
)
_TAG: Final = option("--tag", action="append", default=[], metavar="NAME=VALUE", help="a tag; may be given again")
_DELAY: Final = option("--delay", default="0", metavar="TIME", help="begin after this time")

_START: Final[tuple[Option, ...]] = (
    option("type", metavar="TYPE", help="type of the workflow"),
    _ARGS,
    option("--id", default="", metavar="ID", help="workflow id (default: a fresh one)"),
    option("--queue", default="default", metavar="NAME", help="queue (default: default)"),
    option("--key", default="", metavar="KEY", help="idempotency key: the same key starts once"),
    option("--if-open", default="fail", choices=("fail", "return_existing", "terminate"), help="when the id is running"),
    option("--if-closed", default="allow", choices=("allow", "allow_if_failed", "reject"), help="when the id has ended"),
    option("--run-timeout", default="0", metavar="TIME", help="longest life of the run"),
    _DELAY, _TAG, _WAIT, DRY_RUN, *WHERE, JSON, QUIET,
)  # fmt: skip
_ENQUEUE: Final[tuple[Option, ...]] = (
    option("type", metavar="TYPE", nargs="?", default="", help="type of the task"),
    _ARGS,
    option("--file", default="", metavar="FILE", help='JSON lines {"type", "args", "queue", "key", …}; - for stdin'),
    option("--queue", default="default", metavar="NAME", help="queue (default: default)"),
    option("--key", default="", metavar="KEY", help="idempotency key: the same key enqueues once"),
    option("--max-attempts", type=int, default=0, metavar="N", help="attempts before it counts as failed"),
    option("--timeout", default="0", metavar="TIME", help="longest attempt (default: 10m)"),
    option("--priority", type=int, default=3, metavar="N", help="1 is first, 5 is last (default: 3)"),
    _DELAY, _TAG, _WAIT, DRY_RUN, *WHERE, JSON, QUIET,
)  # fmt: skip

_WORKFLOWS: Final = (
    Verb(
        ("workflow", "start"), "Start a workflow.", "starting:start", _START, "StartOut",
        ("outlast workflow start order '{\"id\": 7}' --id order-7", "outlast workflow start order 7 --wait"),
    ),
    Verb(
        ("workflow", "list"), "List workflows, newest first.", "workflow:list_",
        (*_RUN_FILTER, _LIMIT, *WATCH, *WHERE, *OUTPUT), "WorkflowOut",
        ("outlast workflow list --status running --type order -o id | outlast workflow cancel - --dry-run",),
    ),
    Verb(
        ("workflow", "count"), "Count workflows.", "workflow:count", (*_RUN_FILTER, *WHERE, JSON, QUIET), "CountOut"
    ),
    Verb(
        ("workflow", "show"), "Show a workflow by its steps.", "workflow:show",
        (
            option("id", metavar="ID", help="workflow id"),
            _RUN,
            option("--raw", action="store_true", help="every event"),
            *WATCH, *WHERE, JSON, QUIET,
        ), "WorkflowShown",
    ),
    Verb(
        ("workflow", "history"), "Print the events of a run.", "workflow:history",
        (
            option("id", metavar="ID", help="workflow id"),
            _RUN,
            option("--from", dest="first", type=int, default=1, metavar="EVENT", help="begin with this event"),
            option("--follow", action="store_true", help="go on until the run has ended"),
            *WHERE, JSON, QUIET,
        ), "EventOut",
    ),
    Verb(
        ("workflow", "result"), "Wait for a workflow's result, and print it.", "results:of_workflow",
        (option("id", metavar="ID", help="workflow id"), _RUN, _WAIT, *WHERE, JSON, QUIET), "OutcomeOut",
    ),
    Verb(
        ("workflow", "signal"), "Send a workflow a signal.", "changing:signal",
        (
            option("id", metavar="ID", help="workflow id; - reads ids from stdin"),
            option("name", metavar="NAME", help="name of the signal"),
            option("value", nargs="?", default="", metavar="JSON", help="its value, as JSON"),
            *CHANGE, *WHERE,
        ), "ChangeOut", ("outlast workflow signal order-7 approve '{\"by\": \"ada\"}'",),
    ),
    Verb(
        ("workflow", "query"), "Ask a workflow's code, and print what it says.", "asking:query",
        (
            option("id", metavar="ID", help="workflow id"),
            option("name", metavar="NAME", help="name of the query"),
            _ARGS, _RUN, *WHERE, JSON, QUIET,
        ), "AnsweredOut", ("outlast workflow query cart-ann count",),
    ),
    Verb(
        ("workflow", "cancel"), "Ask workflows to stop in good order.", "changing:cancel", (IDS, *CHANGE, *WHERE), "ChangeOut"
    ),
    Verb(
        ("workflow", "terminate"), "End workflows at once; their code is not asked.", "changing:terminate",
        (IDS, *CHANGE, *WHERE), "ChangeOut",
    ),
)  # fmt: skip

_TASKS: Final = (
    Verb(
        ("task", "enqueue"), "Enqueue a task, or many from a file.", "starting:enqueue", _ENQUEUE, "EnqueueOut",
        ("outlast task enqueue resize '\"cat.png\"' --queue images", "outlast task enqueue --file tasks.jsonl"),
    ),
    Verb(
        ("task", "list"), "List tasks, newest first.", "task:list_",
        (*_TASK_FILTER, _LIMIT, *WATCH, *WHERE, *OUTPUT), "TaskOut",
    ),
    Verb(("task", "count"), "Count tasks.", "task:count", (*_TASK_FILTER, *WHERE, JSON, QUIET), "CountOut"),
    Verb(
        ("task", "show"), "Show a task and its attempts.", "task:show",
        (option("id", metavar="ID", help="task id"), *WATCH, *WHERE, JSON, QUIET), "TaskShown",
    ),
    Verb(
        ("task", "attempts"), "List how the leases of a task ended.", "task:attempts",
        (option("id", metavar="ID", help="task id"), *WHERE, JSON, QUIET), "AttemptOut",
    ),
    Verb(
        ("task", "result"), "Wait for a task's result, and print it.", "results:of_task",
        (option("id", metavar="ID", help="task id"), _WAIT, *WHERE, JSON, QUIET), "TaskOutcomeOut",
    ),
    Verb(
        ("task", "retry"), "Bring tasks back that failed, expired or were cancelled.", "changing:retry_task",
        (
            option("ids", nargs="*", metavar="ID", help="ids; - reads them from stdin; none: those that a filter finds"),
            _TYPE, _STATE, _TASK_QUEUE, *_FILTER,
            option("--limit", type=int, default=1000, metavar="N", help="at most this many of a filter (default: 1000)"),
            *CHANGE, *WHERE,
        ), "ChangeOut",
        (
            "outlast task retry --type charge --since 2h --reason 'the bank is back' --dry-run",
            "outlast task list --state failed -o id | outlast task retry - --yes",
        ),
    ),
    Verb(("task", "cancel"), "Ask tasks to stop.", "changing:cancel_task", (IDS, *CHANGE, *WHERE), "ChangeOut"),
)  # fmt: skip

_NAMED: Final = option("name", metavar="NAMESPACE", help="its name")
_SETTINGS: Final = (
    option("--description", metavar="TEXT", help="what it is for"),
    option("--retention", metavar="TIME", help="how long closed runs and tasks are kept: 30d, forever"),
    option("--payload-bytes", type=int, metavar="N", help="largest payload; 0 for the bound of the house"),
    option("--starts-per-second", type=float, metavar="N", help="workflows and tasks begun, together; 0 for no limit"),
    option("--starts-burst", type=int, metavar="N", help="how many of them may come at once"),
)
_NAMESPACE_CHANGE: Final = (
    option("--reason", default="", metavar="TEXT", help="why; it is recorded"), DRY_RUN, *PLACE, JSON, QUIET,
)  # fmt: skip
_NAMESPACES: Final = (
    Verb(("namespace", "list"), "List the namespaces.", "namespace:list_", (*PLACE, *OUTPUT), "NamespaceOut"),
    Verb(("namespace", "show"), "Show a namespace.", "namespace:show", (_NAMED, *PLACE, JSON, QUIET), "NamespaceOut"),
    Verb(
        ("namespace", "create"), "Make a namespace.", "namespace:create", (_NAMED, *_SETTINGS, *_NAMESPACE_CHANGE),
        "NamespaceChangeOut", ("outlast namespace create shop --retention 7d",),
    ),
    Verb(
        ("namespace", "update"), "Change what is named of a namespace, and leave the rest.", "namespace:update",
        (_NAMED, *_SETTINGS, *_NAMESPACE_CHANGE), "NamespaceChangeOut",
    ),
    Verb(
        ("namespace", "delete"), "Delete a namespace and what it holds.", "namespace:delete",
        (
            _NAMED,
            option("--confirm", default="", metavar="NAME", help="its name once more"),
            option("--force", action="store_true", help="also when runs or tasks are open: they are ended"),
            *_NAMESPACE_CHANGE,
        ), "NamespaceChangeOut",
    ),
)  # fmt: skip
_CAPACITY: Final = (
    Verb(
        ("queue", "list"), "List the queues with open work, and how full they are.", "queue:list_",
        (option("--queue", default="", metavar="NAME", help="only this one"), *WATCH, *WHERE, *OUTPUT), "QueueOut",
    ),
    Verb(
        ("queue", "show"), "Show how full a queue is, also an empty one.", "queue:show",
        (option("name", metavar="QUEUE", help="its name"), *WATCH, *WHERE, JSON, QUIET), "QueueOut",
    ),
    Verb(
        ("worker", "list"), "List who polls.", "queue:workers",
        (option("--queue", default="", metavar="NAME", help="only of this queue"), *WATCH, *WHERE, *OUTPUT), "WorkerOut",
    ),
)  # fmt: skip

VERBS: Final = (*BEGIN_VERBS, *RUN_VERBS, *_WORKFLOWS, *_TASKS, *_CAPACITY, *_NAMESPACES, *LOOK_VERBS)
