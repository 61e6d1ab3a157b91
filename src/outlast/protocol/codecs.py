"""Codecs: what becomes of payloads between the converter and the wire. The engine sees only what comes out of them.

A chain is applied in order when a value is written and in reverse when it is read. A coded payload says by whom it was
coded, so that values written before a codec was added, or while another key was current, are read as ever.
"""

import hmac
import threading
from collections.abc import Sequence
from typing import Any, Final, Protocol

import zstandard

from outlast.core.errors import Conflict, Invalid, Refusal
from outlast.core.limits import PAYLOAD_BYTES_MAX
from outlast.core.payload import Payload
from outlast.protocol.keys import Keys, check_key

CODED: Final = "binary/coded"
ENCODING: Final = "encoding"  # in the metadata of what is coded: what it is once it is decoded
CODECS: Final = "codecs"  # and by which codecs it was coded, in order
KEY: Final = "key"  # and the id of the key it was encrypted with
NONCE_BYTES: Final = 12
COMPRESS_FROM: Final = 256  # bytes; below it the gain is smaller than what is said of it
EXPANDED_BYTES_MAX: Final = PAYLOAD_BYTES_MAX  # what compressed data may say that it expands to


class Unreadable(Exception):
    """A coded payload cannot be read; ``remedy`` says what is missing. ``code``: "payload_locked" where that is a key."""

    def __init__(self, fact: str, *, remedy: str, code: str = "payload_unreadable") -> None:
        super().__init__(fact)
        self.fact = fact
        self.remedy = remedy
        self.code = code


class Codec(Protocol):
    """One step of a chain. The same data must always become the same bytes: replays and idempotency keys compare them."""

    name: str

    def encode(self, data: bytes, about: bytes) -> bytes | None:
        """Return ``data`` coded, None to leave it as it is. ``about`` says what it is, and is to be bound to it."""
        ...

    def decode(self, data: bytes, about: bytes) -> bytes:
        """Return what ``encode`` was given. Raises Unreadable."""
        ...


class Zstd:
    """Compresses values of at least 256 bytes, where that makes them smaller."""

    name = "zstd"

    def __init__(self, level: int = 3) -> None:
        self._level = level
        self._local = threading.local()

    def encode(self, data: bytes, about: bytes) -> bytes | None:
        del about
        if len(data) < COMPRESS_FROM:
            return None
        compressor: zstandard.ZstdCompressor | None = getattr(self._local, "compressor", None)
        if compressor is None:
            compressor = self._local.compressor = zstandard.ZstdCompressor(level=self._level)
        smaller = compressor.compress(data)
        return smaller if len(smaller) < len(data) else None

    def decode(self, data: bytes, about: bytes) -> bytes:
        del about
        decompressor: zstandard.ZstdDecompressor | None = getattr(self._local, "decompressor", None)
        if decompressor is None:
            decompressor = self._local.decompressor = zstandard.ZstdDecompressor()
        try:
            size = zstandard.frame_content_size(data)
            if not 0 <= size <= EXPANDED_BYTES_MAX:
                raise Unreadable(f"Compressed data says that it has {size} bytes.", remedy="It is damaged or forged.")
            return decompressor.decompress(data)
        except zstandard.ZstdError as error:
            raise Unreadable(f"Compressed data cannot be read: {error}.", remedy="It is damaged.") from None


class Encrypt:
    """AES-256-GCM under a key of ``keys``, bound to what the value is.

    The nonce is made of the value by HMAC-SHA-256 under a key derived for that alone, so the same value under the same key
    is the same bytes: a replay and a repeated request must not differ from their first time. Who sees the store sees
    which values are equal and how long they are, which are None, and of each the encoding, the hash of its type's schema,
    the codecs and the id of the key.

    Values are encrypted, and the messages and traces of exceptions. Names of exceptions are stored in the clear, and so are
    ids, types, queues, idempotency keys, tags, search attributes and reasons.
    """

    name = "aes-256-gcm"

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._ciphers: dict[bytes, tuple[Any, bytes]] = {}
        self._cipher_of(self._current()[1])

    def encode(self, data: bytes, about: bytes) -> bytes | None:
        key_id, key = self._current()
        cipher, nonce_key = self._cipher_of(key)
        bound = about + b"\x1f" + key_id.encode()
        nonce = hmac.digest(nonce_key, bound + b"\x1f" + data, "sha256")[:NONCE_BYTES]
        sealed: bytes = cipher.encrypt(nonce, data, bound)
        return bytes([len(key_id.encode())]) + key_id.encode() + nonce + sealed

    def decode(self, data: bytes, about: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

        key_id = self.key_of(data)
        rest = data[1 + data[0] :] if data else b""
        key = self._find(key_id)
        cipher, _ = self._cipher_of(key)
        try:
            opened: bytes = cipher.decrypt(rest[:NONCE_BYTES], rest[NONCE_BYTES:], about + b"\x1f" + key_id.encode())
        except (InvalidTag, ValueError):
            raise Unreadable(
                f'The value cannot be decrypted with key "{key_id}".',
                remedy="The key of this id is another one here than where the value was written, or the data changed.",
            ) from None
        return opened

    @staticmethod
    def key_of(data: bytes) -> str:
        """Return the id of the key that ``data``, which ``encode`` gave, was encrypted with."""
        length = data[0] if data else 0
        return data[1 : 1 + length].decode(errors="replace")

    def _current(self) -> tuple[str, bytes]:
        try:
            key_id, key = self._keys.current()
        except Refusal:
            raise
        except Exception as error:
            raise Conflict(
                "payload_locked",
                f"The current key cannot be had: {type(error).__name__}.",
                remedy="Look at what gives the keys, then try again.",
            ) from error
        check_key(key_id, key)
        return key_id, key

    def _find(self, key_id: str) -> bytes:
        try:
            key = self._keys.find(key_id)
        except Exception as error:
            raise Unreadable(
                f'The key "{key_id}" cannot be had: {type(error).__name__}.',
                remedy="Look at what gives the keys, then try again.",
                code="payload_locked",
            ) from error
        if key is None:
            raise Unreadable(
                f'The value was encrypted with key "{key_id}", which is not there.',
                remedy="Give the keys that have it. If it was destroyed the value is gone, as it was meant to be.",
                code="payload_locked",
            )
        check_key(key_id, key)
        return key

    def _cipher_of(self, key: bytes) -> tuple[Any, bytes]:
        found = self._ciphers.get(key)
        if found is None:
            found = self._ciphers[key] = (_aes(key), hmac.digest(key, b"outlast nonce", "sha256"))
        return found


class Chain:
    """Codecs in order."""

    def __init__(self, codecs: Sequence[Codec]) -> None:
        self._codecs = tuple(codecs)
        self._by_name = {codec.name: codec for codec in codecs}
        if len(self._by_name) != len(self._codecs):
            raise Invalid("invalid_request", "A codec stands twice in the chain.", remedy="Give each once.")

    @property
    def encrypts(self) -> bool:
        """Whether what is coded is hidden from who has no keys: so it is by any codec that is not known to hide nothing."""
        return any(not isinstance(codec, Zstd) for codec in self._codecs)

    def encode(self, payload: Payload) -> Payload:
        """Return ``payload`` coded; one without data (None) stays as it is."""
        if not payload.data or payload.encoding == CODED:
            return payload
        about = payload.encoding.encode()
        data, names, metadata = payload.data, list[str](), {**(payload.metadata or {}), ENCODING: about}
        for codec in self._codecs:
            coded = codec.encode(data, about)
            if coded is not None:
                data = coded
                names.append(codec.name)
                if isinstance(codec, Encrypt):
                    metadata[KEY] = codec.key_of(coded).encode()
        if not names:
            return payload
        metadata[CODECS] = " ".join(names).encode()
        return Payload(CODED, data, metadata=metadata)

    def decode(self, payload: Payload) -> Payload:
        """Return the payload that ``encode`` was given. Raises Unreadable."""
        if payload.encoding != CODED:
            return payload
        metadata = dict(payload.metadata or {})
        about = metadata.pop(ENCODING, b"")
        names = metadata.pop(CODECS, b"").decode(errors="replace").split()
        metadata.pop(KEY, None)
        if not names or len(set(names)) != len(names):
            raise Unreadable("The value does not say by which codecs it was coded.", remedy="It is damaged or forged.")
        data = payload.data
        for name in reversed(names):
            codec = self._by_name.get(name)
            if codec is None:
                raise self._missing(name, data)
            data = codec.decode(data, about)
        return Payload(about.decode(errors="replace"), data, metadata=metadata or None)

    def _missing(self, name: str, data: bytes) -> Unreadable:
        if name == Encrypt.name:
            return Unreadable(
                f'The value was encrypted ({name}) with key "{Encrypt.key_of(data)}", and no keys are given here.',
                remedy="Give them: payloads.keys in settings, App(codecs=[…, Encrypt(keys)]) in a program.",
                code="payload_locked",
            )
        there = f"are {', '.join(self._by_name)}" if self._by_name else "is none"
        return Unreadable(
            f'The value was written with the codec "{name}", which is not given here.',
            remedy=f"Give it: payloads.codecs in settings, App(codecs=[…]) in a program; there {there}.",
        )


def _aes(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ImportError:
        raise Invalid(
            "invalid_request",
            "Encryption needs the package cryptography.",
            remedy="pip install 'outlast[crypto]'",
        ) from None
    return AESGCM(key)
