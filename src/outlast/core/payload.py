"""User data as bytes with the name of its encoding. Nothing in the server ever opens it."""

from typing import Final

import msgspec

# In the metadata of a payload whose data cannot be had, on its way to who asked for it; never stored.
WHY: Final = "outlast-why"
CODE: Final = "outlast-code"
SCHEMA: Final = "schema"  # in the metadata of a value: the hash of the JSON schema of the type it was written as


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
    size = 0
    for payload in payloads:
        size += len(payload.data) + 24
    return size


def without_data(payload: Payload, *, code: str, why: str) -> Payload:
    """Return ``payload`` with the reason why its data cannot be had or read."""
    said = {WHY: why.encode(), CODE: code.encode()}
    return msgspec.structs.replace(payload, metadata={**(payload.metadata or {}), **said})


def is_withheld(payload: Payload) -> bool:
    """Say whether ``payload`` came without its data since who asked may not see it."""
    return bool(payload.size) and not payload.data and not payload.blob


def reason_of(payload: Payload) -> tuple[str, str]:
    """Return code and reason why the data of ``payload`` cannot be had, empty where it can."""
    metadata = payload.metadata or {}
    return metadata.get(CODE, b"").decode(errors="replace"), metadata.get(WHY, b"").decode(errors="replace")


def told_apart(payloads: Payloads) -> Payloads:
    """Return what tells values from others: without the hash of a schema, as a type may change and the value be the same."""
    if not any(payload.metadata and SCHEMA in payload.metadata for payload in payloads):
        return payloads
    return tuple([_without_schema(payload) for payload in payloads])


def _without_schema(payload: Payload) -> Payload:
    left = {name: said for name, said in (payload.metadata or {}).items() if name != SCHEMA}
    return msgspec.structs.replace(payload, metadata=left or None)
