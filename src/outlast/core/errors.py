"""Why an input is refused.

Refusal                     what a reply carries: code, fact, remedy
├── Rejected                the caller must change something; nothing was recorded
│   ├── Invalid, TooLarge, NotFound, Conflict, Closed, LeaseLost, Denied
└── Unavailable             try again; nothing was recorded
    ├── Busy, SteppedDown, StoreFull
InvariantBroken             our mistake: the shard steps down and reloads

Codes are a closed list (``CODES``); a code never changes its meaning.
"""

from typing import Final

CODES: Final[dict[str, str]] = {
    "invalid_request": "The request does not have the shape or range that it must have.",
    "invalid_query": "The filter of a list cannot be read.",
    "invalid_cursor": "The cursor is not one that a list gave.",
    "cursor_expired": "What follows the cursor is not kept any more.",
    "unknown_field": "The request has a field that is not known.",
    "payload_too_large": "A payload is over the limit.",
    "payload_locked": "A value is or is to be encrypted, and the key is not here.",
    "payload_unreadable": "A stored value cannot be decoded.",
    "body_too_large": "The body of the request is over the limit.",
    "malformed_body": "The body cannot be decoded.",
    "unsupported_encoding": "The content type is not one that is served.",
    "namespace_not_found": "There is no such namespace.",
    "wrong_namespace": "The request names another namespace than the one it came in by.",
    "namespace_exists": "There is a namespace of this name.",
    "namespace_in_use": "The namespace cannot be deleted or changed as it is now.",
    "workflow_not_found": "There is no such workflow or run.",
    "task_not_found": "There is no such task.",
    "route_not_found": "There is no such address.",
    "method_not_allowed": "The address does not take this method.",
    "workflow_already_open": "A run with this workflow id is open.",
    "workflow_id_reuse_refused": "The id policy does not allow another run of this workflow id.",
    "task_already_exists": "A task with this id exists and was made by another request.",
    "idempotency_key_reused": "The key was used for another request.",
    "workflow_held": "The code of the run fails at each try, so that it can neither go on nor be asked.",
    "query_unanswered": "No worker has answered the query in time.",
    "workflow_closed": "The run has ended.",
    "task_closed": "The task has ended.",
    "lease_lost": "The lease has ended or belongs to somebody else; what is said under it changes nothing.",
    "already_completed": "The attempt was answered already, with another answer.",
    "workflow_task_lost": "The workflow task was given to somebody else or has timed out.",
    "bad_command": "A command of a workflow task cannot be carried out.",
    "unhandled_command": "The run was to be closed while something it has not seen had arrived.",
    "nondeterminism": "Workflow code and its history disagree.",
    "limit_exceeded": "A fixed bound was reached.",
    "busy": "The shard has as much waiting as it may.",
    "unavailable": "The shard is not served at the moment.",
    "not_owner": "Another node owns the shard.",
    "store_full": "The disk or the database is full.",
    "store_locked": "Another engine has the store.",
    "store_newer": "The store was written by a newer version.",
    "store_misplaced": "The place where large payloads are kept is not as the settings say.",
    "store_moved": "The work of the store was moved to another.",
    "store_set_aside": "The store is a backup, or has not been filled to its end: it is not worked on.",
    "store_damaged": "The store cannot be read.",
    "timeout": "The answer did not come in time.",
    "denied": "The principal may not do this.",
    "unauthenticated": "The request does not say who calls.",
    "rate_limited": "The caller has asked more often than it may.",
    "precondition_failed": "The thing has changed since it was read.",
    "not_acceptable": "The address does not give what the caller takes.",
    "query_failed": "The run's code raised when it was asked, or has no such query.",
    "too_many_streams": "As many streams are open as may be.",
    "internal": "A fault of ours; it was logged.",
}


class Refusal(Exception):
    """An input that was not taken. ``code`` is for programs, ``fact`` and ``remedy`` for people."""

    def __init__(self, code: str, fact: str, *, remedy: str = "", **facts: str) -> None:
        super().__init__(fact)
        self.code = code
        self.fact = fact
        self.remedy = remedy
        self.facts = facts

    def __str__(self) -> str:
        return f"{self.fact} {self.remedy}".strip()


class Rejected(Refusal):
    """The caller must change something; nothing was recorded."""


class Invalid(Rejected):
    """The request itself is wrong."""


class TooLarge(Rejected):
    """Something is over a fixed bound."""


class NotFound(Rejected):
    """No such thing, or not in this namespace."""


class Conflict(Rejected):
    """The state of things does not allow it."""


class Closed(Rejected):
    """It has ended."""


class LeaseLost(Rejected):
    """The token is stale: it changes nothing, now and always."""


class Denied(Rejected):
    """The principal may not do this."""


class Unavailable(Refusal):
    """Try again; nothing was recorded."""


class Busy(Unavailable):
    """As much is waiting as may wait."""


class SteppedDown(Unavailable):
    """The owner dropped the shard and reloads it."""


class StoreFull(Unavailable):
    """The disk or the database is full."""


class InvariantBroken(AssertionError):
    """A promise of ours does not hold; the shard must not go on in this state."""

    def __init__(self, code: str, **facts: object) -> None:
        super().__init__(f"{code}: " + ", ".join(f"{name}={value!r}" for name, value in facts.items()))
        self.code = code
        self.facts = facts


def invariant(condition: object, code: str, **facts: object) -> None:
    """Stop the shard unless ``condition`` holds. Stays on under ``python -O``, as ``assert`` would not."""
    if not condition:
        raise InvariantBroken(code, **facts)
