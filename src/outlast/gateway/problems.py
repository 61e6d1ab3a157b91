"""Refusals as HTTP answers: problem+json (RFC 9457) for people and REST, MessagePack for workers."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from outlast.core.errors import CODES
from outlast.core.replies import Refused
from outlast.gateway.exchange import Answer
from outlast.protocol.errors import KINDS
from outlast.protocol.wire import MSGPACK, encode

PROBLEM: Final = "application/problem+json"
RETRY_AFTER: Final = "1"  # seconds, where the refusal knows no better
PAGES: Final = "/errors/"  # below it each code has a page
TOO_MANY: Final = 429
AWAY: Final = 503

# Facts that say where in the request, or belong into a header: they are not repeated among the facts.
_ELSEWHERE: Final = frozenset({"pointer", "parameter", "allow", "retry_after", "etag"})


class FaultOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One fault: where in the body (a JSON pointer) or in the query, and what."""

    detail: str
    pointer: str = ""
    parameter: str = ""


class Problem(msgspec.Struct, kw_only=True, frozen=True):
    """Why a request was refused. A refused request has left no trace."""

    type: Annotated[str, Meta(description="The page of the code, on this server.")]
    title: Annotated[str, Meta(description="What the code means.")]
    status: int
    detail: Annotated[str, Meta(description="The fact, with the values.")]
    code: Annotated[str, Meta(extra_json_schema={"enum": sorted(CODES)})]
    remedy: Annotated[str, Meta(description="What to do.")]
    retryable: Annotated[bool, Meta(description="Whether the same request may succeed later.")]
    request_id: str
    errors: tuple[FaultOut, ...] = ()
    facts: dict[str, str] = {}


def status_of(code: str) -> int:
    """Return the HTTP status of a refusal's code."""
    return KINDS[code].status if code in KINDS else KINDS["internal"].status


def problem(refused: Refused, *, request_id: str = "", msgpack: bool = False) -> Answer:
    """Return ``refused`` as an answer."""
    status = status_of(refused.code)
    headers = tuple(_headers_of(refused, status))
    if msgpack:
        return Answer(status, encode(refused), MSGPACK, headers)
    return Answer(status, encode(problem_of(refused, request_id), json=True), PROBLEM, headers)


def problem_of(refused: Refused, request_id: str) -> Problem:
    """Return the body of a refusal."""
    kind = KINDS.get(refused.code, KINDS["internal"])
    facts = refused.facts
    faults: list[FaultOut] = []
    if "pointer" in facts or "parameter" in facts:
        faults.append(
            FaultOut(detail=refused.fact, pointer=facts.get("pointer", ""), parameter=facts.get("parameter", ""))
        )
    return Problem(
        type=PAGES + refused.code,
        title=CODES.get(refused.code, refused.code),
        status=kind.status,
        detail=refused.fact,
        code=refused.code,
        remedy=refused.remedy or kind.remedy,
        retryable=refused.retryable,
        request_id=request_id,
        errors=tuple(faults),
        facts={name: value for name, value in facts.items() if name not in _ELSEWHERE},
    )


def _headers_of(refused: Refused, status: int) -> list[tuple[str, str]]:
    headers: list[tuple[str, str]] = []
    if status in {TOO_MANY, AWAY}:
        headers.append(("retry-after", refused.facts.get("retry_after", RETRY_AFTER)))
    if "allow" in refused.facts:
        headers.append(("allow", refused.facts["allow"]))
    if "etag" in refused.facts:
        headers.append(("etag", refused.facts["etag"]))
    if refused.code == "rate_limited" and "limit" in refused.facts:
        facts = refused.facts
        headers += [
            ("ratelimit-limit", facts.get("limit", "")),
            ("ratelimit-remaining", facts.get("remaining", "0")),
            ("ratelimit-reset", facts.get("retry_after", RETRY_AFTER)),
        ]
    if refused.code == "unauthenticated":
        headers.append(("www-authenticate", 'Bearer realm="outlast"'))
    if refused.code == "unsupported_encoding":
        headers.append(("accept-encoding", "identity"))
    return headers


def page_of(code: str) -> str:
    """Return the page of a code, as text."""
    kind = KINDS[code]
    again = "The same request may succeed later." if kind.retryable else "The same request is refused again."
    return f"{code}\n\n{CODES[code]}\n\nStatus {kind.status}. {again}\nWhat to do: {kind.remedy}\n"


def table() -> list[dict[str, Any]]:
    """Return the closed list of codes: code, status, title, remedy, retryable."""
    return [
        {
            "code": code,
            "status": kind.status,
            "title": CODES[code],
            "remedy": kind.remedy,
            "retryable": kind.retryable,
            "type": PAGES + code,
        }
        for code, kind in sorted(KINDS.items())
    ]
