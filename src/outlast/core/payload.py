"""User data as bytes with the name of its encoding. Nothing in the server ever opens it."""

from typing import Final

import msgspec

# In the metadata of a payload whose data cannot be had, on its way to who asked for it; never stored.
WHY: Final = "outlast-why"
CODE: Final = "outlast-code"


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


def without_data(payload: Payload, *, code: str, why: str) -> Payload:
    """Return ``payload`` with the reason why its data cannot be had or read."""
    said = {WHY: why.encode(), CODE: code.encode()}
    return msgspec.structs.replace(payload, metadata={**(payload.metadata or {}), **said})


def reason_of(payload: Payload) -> tuple[str, str]:
    """Return code and reason why the data of ``payload`` cannot be had, empty where it can."""
    metadata = payload.metadata or {}
    return metadata.get(CODE, b"").decode(errors="replace"), metadata.get(WHY, b"").decode(errors="replace")
