"""The closed list of refusals: code -> HTTP status, exception, way out. And a refusal to its wire form and back."""

from dataclasses import dataclass
from typing import Final

from outlast.core import errors
from outlast.core.replies import Refused


@dataclass(slots=True, frozen=True)
class Kind:
    """What is the same for every refusal of one code. ``remedy`` is said where the refusal itself knows no better one."""

    status: int
    exception: type[errors.Refusal]
    remedy: str

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return issubclass(self.exception, errors.Unavailable)


KINDS: Final[dict[str, Kind]] = {
    "invalid_request": Kind(400, errors.Invalid, "Correct what is named."),
    "invalid_query": Kind(400, errors.Invalid, "Correct the filter at the column that is named."),
    "invalid_cursor": Kind(400, errors.Invalid, "Use the cursor that the last page of the same list gave, or none."),
    "cursor_expired": Kind(
        410, errors.Invalid, "Begin anew without a cursor; what was missed is in histories and lists."
    ),
    "unknown_field": Kind(400, errors.Invalid, "Leave the field out, or write the name that was meant."),
    "payload_too_large": Kind(413, errors.TooLarge, "Keep large data in storage of your own and pass a reference."),
    "payload_locked": Kind(409, errors.Conflict, "Give the keys with payloads.keys, or use a program that has them."),
    "payload_unreadable": Kind(409, errors.Conflict, "Give the codecs and keys by which it was written."),
    "body_too_large": Kind(413, errors.TooLarge, "Send fewer items at a time."),
    "malformed_body": Kind(400, errors.Invalid, "Correct the body at the place named."),
    "unsupported_encoding": Kind(415, errors.Invalid, "Send JSON, not compressed, and say so in Content-Type."),
    "namespace_not_found": Kind(
        404, errors.NotFound, "List what there is: outlast namespace list, or GET /api/v1/namespaces."
    ),
    "wrong_namespace": Kind(403, errors.Denied, "Ask in the namespace that the thing is in."),
    "namespace_exists": Kind(409, errors.Conflict, "Choose another name."),
    "namespace_in_use": Kind(409, errors.Conflict, "End what is open in it, or delete it with force."),
    "workflow_not_found": Kind(404, errors.NotFound, "List what there is with GET /api/v1/workflows."),
    "task_not_found": Kind(404, errors.NotFound, "Look at the id: tasks are found by id, not by key."),
    "route_not_found": Kind(404, errors.NotFound, "Look at the address: /api/openapi.json lists all of them."),
    "method_not_allowed": Kind(405, errors.Invalid, "Use a method that the header Allow names."),
    "workflow_already_open": Kind(409, errors.Conflict, 'Use another id, or if_open="return_existing".'),
    "workflow_id_reuse_refused": Kind(409, errors.Conflict, 'Use another id, or if_closed="allow".'),
    "task_already_exists": Kind(409, errors.Conflict, "Use another id, or none: one is made."),
    "idempotency_key_reused": Kind(409, errors.Conflict, "Use a new key for a new request."),
    "workflow_held": Kind(409, errors.Conflict, "Start a worker whose code does not fail."),
    # 409, not 5xx: the server is well, and what is missing is a worker.
    "query_unanswered": Kind(409, errors.Unavailable, "Look whether a worker polls, then ask again."),
    "workflow_closed": Kind(409, errors.Closed, "Start it anew, or read its result."),
    "task_closed": Kind(409, errors.Closed, "Enqueue it anew, or read its result."),
    "lease_lost": Kind(409, errors.LeaseLost, "Stop: what is done under this lease counts for nothing."),
    "already_completed": Kind(409, errors.LeaseLost, "Stop: the first answer stands."),
    "workflow_task_lost": Kind(409, errors.LeaseLost, "Drop the run from memory and go on with the next task."),
    "bad_command": Kind(400, errors.Invalid, "Correct the workflow's code."),
    "unhandled_command": Kind(409, errors.Conflict, "Let the workflow see what has arrived, then close it."),
    "nondeterminism": Kind(409, errors.Conflict, "Run the code that made the history, or reset the run."),
    "limit_exceeded": Kind(413, errors.TooLarge, "Send less at a time."),
    "busy": Kind(429, errors.Busy, "Wait as long as Retry-After says, then send the same request again."),
    "unavailable": Kind(503, errors.SteppedDown, "Send the same request again, with the same key."),
    "not_owner": Kind(503, errors.SteppedDown, "Send the same request again, with the same key."),
    "store_full": Kind(503, errors.StoreFull, "Make room on the disk; nothing else is needed."),
    "store_locked": Kind(503, errors.Unavailable, "Stop the other engine, or use it."),
    "store_newer": Kind(503, errors.Unavailable, "Install the version that wrote the store, or a newer one."),
    "store_misplaced": Kind(503, errors.Unavailable, "Correct the settings blobs and s3, then start the engine again."),
    "store_moved": Kind(503, errors.Unavailable, "Use the store that is named."),
    "store_set_aside": Kind(503, errors.Unavailable, "Use another store, or let what fills it come to its end."),
    "store_damaged": Kind(503, errors.Unavailable, "Restore the store from its copy."),
    "timeout": Kind(504, errors.Unavailable, "Ask again with the same key: it happens once."),
    "denied": Kind(403, errors.Denied, "Ask whoever gives out tokens for the role that is named."),
    "unauthenticated": Kind(401, errors.Denied, "Send Authorization: Bearer, with a token of this server."),
    "rate_limited": Kind(429, errors.Busy, "Wait as long as Retry-After says, then send the same request again."),
    "precondition_failed": Kind(412, errors.Conflict, "Read it again, and change what is there now."),
    "not_acceptable": Kind(406, errors.Invalid, "Take application/json."),
    "query_failed": Kind(409, errors.Conflict, "Look at the name and the input, then at the query method."),
    "too_many_streams": Kind(429, errors.Busy, "Close streams that are not read, or ask page by page."),
    "internal": Kind(500, errors.Unavailable, "Look for the request id in the engine's log."),
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
    known = KINDS.get(refused.code)
    kind = known.exception if known else errors.Unavailable if refused.retryable else errors.Rejected
    return kind(refused.code, refused.fact, remedy=refused.remedy, **refused.facts)
