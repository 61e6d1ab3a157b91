"""What runs and tasks can be asked by: one table each, from which the reference page is made."""

from typing import Final

from outlast.core.replies import RunStatus, TaskState
from outlast.query.predicate import Field, Kind

STATUSES: Final = tuple(str(status.value) for status in RunStatus)
STATES: Final = tuple(str(state.value) for state in TaskState)

RUN_FIELDS: Final[dict[str, Field]] = {
    "id": Field("id", Kind.TEXT, "workflow_id"),
    "run_id": Field("run_id", Kind.TEXT, "run_id"),
    "type": Field("type", Kind.TEXT, "type"),
    "state": Field("state", Kind.CHOICE, "status", STATUSES),
    "queue": Field("queue", Kind.TEXT, "queue"),
    "build": Field("build", Kind.TEXT, "build"),
    "started": Field("started", Kind.INSTANT, "started_at"),
    "closed": Field("closed", Kind.INSTANT, "closed_at"),
    "events": Field("events", Kind.NUMBER, "events"),
}
TASK_FIELDS: Final[dict[str, Field]] = {
    "id": Field("id", Kind.TEXT, "task_id"),
    "run_id": Field("run_id", Kind.TEXT, "run_id"),
    "type": Field("type", Kind.TEXT, "type"),
    "state": Field("state", Kind.CHOICE, "state", STATES),
    "queue": Field("queue", Kind.TEXT, "queue"),
    "build": Field("build", Kind.TEXT, "build"),
    "worker": Field("worker", Kind.TEXT, "worker"),
    "attempt": Field("attempt", Kind.NUMBER, "attempt"),
    "priority": Field("priority", Kind.NUMBER, "priority"),
    "enqueued": Field("enqueued", Kind.INSTANT, "enqueued_at"),
    "due": Field("due", Kind.INSTANT, "run_at"),
    "closed": Field("closed", Kind.INSTANT, "closed_at"),
}
LABELS: Final = {
    "tag": "text: a tag that was given when it was made",
    "attr": "text, a number, or `true` or `false`: a search attribute that the workflow has set",
}


def label(group: str, name: str) -> Field:
    """Return the field of a tag or a search attribute."""
    return Field(f"{group}.{name}", Kind.LABEL, f"{group}.{name}")
