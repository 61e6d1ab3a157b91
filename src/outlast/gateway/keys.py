"""What the body of a keyed request is told from others by."""

import hashlib
from typing import Final

import msgspec

from outlast.gateway.reading import UNREADABLE, malformed

_ORDERED: Final = msgspec.json.Encoder(order="sorted")


def fingerprint(body: bytes) -> str:
    """Return the same text for the same JSON, however its keys are ordered and its space is set.

    Raises Invalid for a body that is no JSON throughout: parts of a batch are only skipped over until each is looked at.
    """
    try:
        whole = msgspec.json.decode(body)
    except UNREADABLE as error:
        raise malformed(error) from None
    return hashlib.blake2b(_ORDERED.encode(whole), digest_size=12).hexdigest()
