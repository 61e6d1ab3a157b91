"""Code -> HTTP status -> exception: the one table. And a refusal to its wire form and back."""

from typing import Final

from outlast.core import errors
from outlast.core.replies import Refused

TABLE: Final[dict[str, tuple[int, type[errors.Refusal]]]] = {
    "invalid_request": (400, errors.Invalid),
    "invalid_query": (400, errors.Invalid),
    "invalid_cursor": (400, errors.Invalid),
    "unknown_field": (400, errors.Invalid),
    "payload_too_large": (413, errors.TooLarge),
    "body_too_large": (413, errors.TooLarge),
    "malformed_body": (400, errors.Invalid),
    "unsupported_encoding": (415, errors.Invalid),
    "namespace_not_found": (404, errors.NotFound),
    "wrong_namespace": (403, errors.Denied),
    "workflow_not_found": (404, errors.NotFound),
    "task_not_found": (404, errors.NotFound),
    "route_not_found": (404, errors.NotFound),
    "method_not_allowed": (405, errors.Invalid),
    "workflow_already_open": (409, errors.Conflict),
    "workflow_id_reuse_refused": (409, errors.Conflict),
    "task_already_exists": (409, errors.Conflict),
    "idempotency_key_reused": (409, errors.Conflict),
    "workflow_closed": (409, errors.Closed),
    "task_closed": (409, errors.Closed),
    "lease_lost": (409, errors.LeaseLost),
    "already_completed": (409, errors.LeaseLost),
    "workflow_task_lost": (409, errors.LeaseLost),
    "bad_command": (400, errors.Invalid),
    "unhandled_command": (409, errors.Conflict),
    "nondeterminism": (409, errors.Conflict),
    "limit_exceeded": (413, errors.TooLarge),
    "busy": (429, errors.Busy),
    "unavailable": (503, errors.SteppedDown),
    "not_owner": (503, errors.SteppedDown),
    "store_full": (503, errors.StoreFull),
    "store_locked": (503, errors.Unavailable),
    "store_newer": (503, errors.Unavailable),
    "store_damaged": (503, errors.Unavailable),
    "timeout": (504, errors.Unavailable),
    "denied": (403, errors.Denied),
    "internal": (500, errors.Unavailable),
}


def refused(refusal: errors.Refusal) -> Refused:
    """Return the wire form of ``refusal``."""
    return Refused(
        code=refusal.code,
        fact=refusal.fact,
        remedy=refusal.remedy,
        facts=refusal.facts,
        retryable=isinstance(refusal, errors.Unavailable),
    )


def exception_of(refused: Refused) -> errors.Refusal:
    """Return the exception that ``refused`` stands for; an unknown code becomes the family it claims to be of."""
    _, kind = TABLE.get(refused.code, (500, errors.Unavailable if refused.retryable else errors.Rejected))
    return kind(refused.code, refused.fact, remedy=refused.remedy, **refused.facts)
