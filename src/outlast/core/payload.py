"""User data as bytes with the name of its encoding. Nothing in the server ever opens it."""

import msgspec


class Payload(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One value of the user's, opaque to the engine.

    ``blob`` is the content hash (sha256, hex) of data kept in the blob store; ``data`` is then empty and ``size``
    says how long the data is. Payloads to 256 KB are inline and have no ``blob``.
    """

    encoding: str
    data: bytes = b""
    metadata: dict[str, bytes] | None = None
    blob: str = ""
    size: int = 0


Payloads = tuple[Payload, ...]


def size_of(payloads: "Payloads | list[Payload] | None") -> int:
    """Return how many bytes ``payloads`` take inline."""
    if not payloads:
        return 0
    return sum(len(payload.data) + 24 for payload in payloads)
