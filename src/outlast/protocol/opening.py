"""Values between people and the engine: opened on their way out, coded on their way in, by whoever was given the keys.

The engine never needs them. What cannot be opened stays as it is stored, and carries why; see ``reason_of``.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from outlast.core.carriers import payloads_in, with_payloads
from outlast.core.errors import Conflict, Invalid
from outlast.core.payload import Payload, without_data
from outlast.protocol.codecs import CODECS, CODED, ENCODING, KEY, Chain, Codec, Encrypt, Unreadable, Zstd
from outlast.protocol.keys import Keys
from outlast.protocol.seals import with_hidden, with_opened

ENCRYPT: Final = "encrypt"  # what settings call Encrypt
NAMES: Final = (Zstd.name, ENCRYPT)
ATTRIBUTES: Final = "search_attributes"

Value = TypeVar("Value")
Asked = TypeVar("Asked", bound=msgspec.Struct)


class Opener:
    """Opens and codes values by ``chain``. ``locked``: values are to be encrypted, and the keys for it are not here.

    ``hides``: whoever is shown what it gives may not see values, nor texts of errors; what is sent is coded as ever.
    """

    def __init__(self, chain: Chain | None = None, *, locked: bool = False, hides: bool = False) -> None:
        self._chain = chain or Chain(())
        self._given = chain
        self._hides = hides
        self._codes = chain is not None
        self._locked = locked

    def hiding(self) -> "Opener":
        """Return one that codes as this does, and shows nothing."""
        return Opener(self._given, locked=self._locked, hides=True)

    def open(self, value: Value) -> Value:
        """Return ``value`` with every payload that can be opened as it was before it was coded, and texts of errors too."""
        return self.open_texts(with_payloads(value, _hidden if self._hides else self._opened))

    def open_texts(self, value: Value) -> Value:
        """Return ``value`` with the texts of errors opened, and its payloads as they are: for what shows none."""
        return with_hidden(value) if self._hides else with_opened(value, self._chain)

    def code(self, request: Asked) -> Asked:
        """Return ``request`` with its values coded as the app's own are.

        Raises:
            Conflict: "payload_locked": values are to be encrypted, and there is no key.
        """
        kept = _kept_open(request)
        if self._locked and any(payload.data and id(payload) not in kept for payload in payloads_in(request)):
            raise Conflict(
                "payload_locked",
                f'Values are to be encrypted here (payloads.codecs has "{ENCRYPT}"), and there are no keys.',
                remedy="Give them with payloads.keys, or send from a program that has them.",
            )
        if not self._codes:
            return request
        chain = self._chain
        return with_payloads(request, lambda payload: payload if id(payload) in kept else chain.encode(payload))

    def _opened(self, payload: Payload) -> Payload:
        if payload.encoding != CODED or payload.blob:
            return payload
        try:
            return self._chain.decode(payload)
        except Unreadable as error:
            return without_data(payload, code=error.code, why=f"{error.fact} {error.remedy}")
        except Exception as error:  # noqa: BLE001 - a codec is anybody's code; what it says may be the value
            why = f"The value cannot be read: its codec ended with {type(error).__name__}. Correct the codec."
            return without_data(payload, code="payload_unreadable", why=why)


AS_STORED: Final = Opener()
HIDING: Final = AS_STORED.hiding()


def _hidden(payload: Payload) -> Payload:
    size = payload.size or len(payload.data)
    if not size:
        return payload
    kept = Payload(payload.encoding, metadata=payload.metadata, size=size)
    return without_data(kept, code="payload_locked", why="This token may not see values.")


def _kept_open(request: msgspec.Struct) -> set[int]:
    """Return which payload objects of ``request`` no codec may touch: things are found by what they say."""
    asked: tuple[msgspec.Struct, ...] = (request, *getattr(request, "items", ()))
    attributes = (getattr(part, ATTRIBUTES, None) for part in asked)
    return {id(payload) for payload in payloads_in([found for found in attributes if found])}


def opener_of(names: Sequence[str], keys: Keys | None) -> Opener:
    """Return what opens and codes values by the codecs that settings name. Raises Invalid.

    Without ``keys`` encrypted values stay closed, and none can be sent.
    """
    codecs: list[Codec] = []
    for name in names:
        if name == Zstd.name:
            codecs.append(Zstd())
        elif name in {ENCRYPT, Encrypt.name}:
            if keys is not None:
                codecs.append(Encrypt(keys))
        else:
            raise Invalid("invalid_request", f'There is no codec "{name}".', remedy=f"There are {' and '.join(NAMES)}.")
    encrypts = ENCRYPT in names or Encrypt.name in names
    return Opener(Chain(codecs) if codecs else None, locked=encrypts and keys is None)


def is_closed(payload: Payload) -> bool:
    """Say whether ``payload`` is coded still."""
    return payload.encoding == CODED


def codecs_of(payload: Payload) -> tuple[str, ...]:
    """Return the names of the codecs by which a closed payload was coded, in order."""
    return tuple((payload.metadata or {}).get(CODECS, b"").decode(errors="replace").split())


def key_of(payload: Payload) -> str:
    """Return the id of the key that a closed payload was encrypted with, "" for none."""
    said = (payload.metadata or {}).get(KEY)
    if said is not None:
        return said.decode(errors="replace")
    names = codecs_of(payload)
    return Encrypt.key_of(payload.data) if names and names[-1] == Encrypt.name else ""


def encoding_of(payload: Payload) -> str:
    """Return what a payload is, or will be once it is opened."""
    return (
        (payload.metadata or {}).get(ENCODING, b"").decode(errors="replace") if is_closed(payload) else payload.encoding
    )
