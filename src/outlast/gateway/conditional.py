"""ETags: a caller that has the answer already is told so, and a change can name what it was made from."""

import hashlib
from typing import Final

from outlast.core.errors import Conflict
from outlast.gateway.exchange import Answer, Exchange

ANY: Final = "*"


def etag_of(body: bytes) -> str:
    """Return the tag of an answer: the same for the same bytes."""
    return f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


def with_etag(exchange: Exchange, answer: Answer, etag: str = "") -> Answer:
    """Return ``answer`` with its tag, or 304 without a body when the caller has it (If-None-Match)."""
    tag = etag or etag_of(answer.body)
    headers = (*answer.headers, ("etag", tag))
    if _matches(exchange.headers.get("if-none-match", ""), tag, weak=True):
        return Answer(304, headers=headers)
    return Answer(answer.status, answer.body, answer.content_type, headers)


def require_match(exchange: Exchange, etag: str) -> None:
    """Raise Conflict when the caller changes what is not there any more (If-Match); without the header all is well."""
    shown = exchange.headers.get("if-match")
    if shown is not None and not _matches(shown, etag, weak=False):
        raise Conflict(
            "precondition_failed",
            f"It has the tag {etag}, not {shown[:100]}.",
            remedy="Read it again, and change what is there now.",
            etag=etag,
        )


def _matches(shown: str, tag: str, *, weak: bool) -> bool:
    if shown.strip() == ANY:
        return True
    tags = [part.strip() for part in shown.split(",")]
    return tag in ([part.removeprefix("W/") for part in tags] if weak else tags)
