"""What the body of a keyed request is told from others by."""

import hashlib

import msgspec

_ORDERED = msgspec.json.Encoder(order="sorted")


def fingerprint(body: bytes) -> str:
    """Return the same text for the same JSON, however its keys are ordered and its space is set."""
    return hashlib.blake2b(_ORDERED.encode(msgspec.json.decode(body)), digest_size=12).hexdigest()
