"""Refusals as HTTP answers: problem+json (RFC 9457) for people and REST, MessagePack for workers."""

from typing import Final

from outlast.core.errors import CODES
from outlast.core.replies import Refused
from outlast.gateway.exchange import Answer
from outlast.protocol.errors import TABLE
from outlast.protocol.wire import MSGPACK, encode

PROBLEM: Final = "application/problem+json"
RETRY_AFTER: Final = "1"  # seconds


def status_of(code: str) -> int:
    """Return the HTTP status of a refusal's code."""
    return TABLE[code][0] if code in TABLE else 500


def problem(refused: Refused, *, msgpack: bool = False) -> Answer:
    """Return ``refused`` as an answer."""
    status = status_of(refused.code)
    again = (("retry-after", RETRY_AFTER),) if status in {429, 503} else ()
    if msgpack:
        return Answer(status, encode(refused), MSGPACK, again)
    body = {
        "type": f"urn:outlast:error:{refused.code}",
        "title": CODES.get(refused.code, refused.code),
        "status": status,
        "detail": refused.fact,
        "code": refused.code,
        "remedy": refused.remedy,
        "retryable": refused.retryable,
        **({"facts": refused.facts} if refused.facts else {}),
    }
    return Answer(status, encode(body, json=True), PROBLEM, again)
