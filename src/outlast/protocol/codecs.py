"""Codecs: what becomes of payloads between the converter and the wire. The engine sees only what comes out of them.

A chain is applied in order when a value is written and in reverse when it is read. A coded payload says by whom it was
coded, so that values written before a codec was added, or while another key was current, are read as ever.
"""

import hmac
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import zstandard

from outlast.core.errors import Invalid
from outlast.core.limits import PAYLOAD_BYTES_MAX
from outlast.core.payload import Payload

CODED: Final = "binary/coded"
KEY_BYTES: Final = 32  # AES-256
NONCE_BYTES: Final = 12
COMPRESS_FROM: Final = 256  # bytes; below it the gain is smaller than what is said of it
EXPANDED_BYTES_MAX: Final = PAYLOAD_BYTES_MAX  # what compressed data may say that it expands to


class Unreadable(Exception):
    """A coded payload cannot be read; ``remedy`` says what is missing."""

    def __init__(self, fact: str, *, remedy: str) -> None:
        super().__init__(fact)
        self.fact = fact
        self.remedy = remedy


class Codec(Protocol):
    """One step of a chain. The same data must always become the same bytes: replays and idempotency keys compare them."""

    name: str

    def encode(self, data: bytes, about: bytes) -> bytes | None:
        """Return ``data`` coded, None to leave it as it is. ``about`` says what it is, and is to be bound to it."""
        ...

    def decode(self, data: bytes, about: bytes) -> bytes:
        """Return what ``encode`` was given. Raises Unreadable."""
        ...


class Keys(Protocol):
    """Where keys come from: 32 bytes each, by id."""

    def current(self) -> tuple[str, bytes]:
        """Return the id and the key by which new values are written."""
        ...

    def find(self, key_id: str) -> bytes | None:
        """Return the key of ``key_id``, None when it is gone: what it wrote is gone with it."""
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
    which values are equal, and how long they are, and nothing else of them.
    """

    name = "aes-256-gcm"

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._ciphers: dict[bytes, tuple[Any, bytes]] = {}
        key_id, key = keys.current()
        _check_key(key_id, key)
        self._cipher_of(key)

    def encode(self, data: bytes, about: bytes) -> bytes | None:
        key_id, key = self._keys.current()
        _check_key(key_id, key)
        cipher, nonce_key = self._cipher_of(key)
        bound = about + b"\x1f" + key_id.encode()
        nonce = hmac.digest(nonce_key, bound + b"\x1f" + data, "sha256")[:NONCE_BYTES]
        sealed: bytes = cipher.encrypt(nonce, data, bound)
        return bytes([len(key_id.encode())]) + key_id.encode() + nonce + sealed

    def decode(self, data: bytes, about: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

        length = data[0] if data else 0
        key_id = data[1 : 1 + length].decode(errors="replace")
        rest = data[1 + length :]
        key = self._keys.find(key_id)
        if key is None:
            raise Unreadable(
                f'The value was encrypted with key "{key_id}", which is not there.',
                remedy="Give the keys that have it. If it was destroyed the value is gone, as it was meant to be.",
            )
        cipher, _ = self._cipher_of(key)
        try:
            opened: bytes = cipher.decrypt(rest[:NONCE_BYTES], rest[NONCE_BYTES:], about + b"\x1f" + key_id.encode())
        except (InvalidTag, ValueError):
            raise Unreadable(
                f'The value cannot be decrypted with key "{key_id}".',
                remedy="The key is another one, or the data changed.",
            ) from None
        return opened

    def _cipher_of(self, key: bytes) -> tuple[Any, bytes]:
        found = self._ciphers.get(key)
        if found is None:
            found = self._ciphers[key] = (_aes(key), hmac.digest(key, b"outlast nonce", "sha256"))
        return found


class KeyRing:
    """Keys that the program has: ``KeyRing({"2026-11": key}, current="2026-11")``."""

    def __init__(self, keys: Mapping[str, bytes], *, current: str) -> None:
        if current not in keys:
            raise Invalid("invalid_request", f'There is no key "{current}".', remedy=f"There are: {', '.join(keys)}.")
        for key_id, key in keys.items():
            _check_key(key_id, key)
        self._keys = dict(keys)
        self._current = current

    @classmethod
    def from_file(cls, path: str) -> "KeyRing":
        """Return the keys in a file with a line ``ID HEX`` for each, the current one first.

        Raises:
            Invalid: there is no such file, or a line is not of that form. No key is in the error.
        """
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(
                "invalid_request", f"The key file cannot be read: {error}.", remedy="Look at the path."
            ) from None
        keys: dict[str, bytes] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            key_id, _, text = line.strip().partition(" ")
            try:
                keys[key_id] = bytes.fromhex(text)
                _check_key(key_id, keys[key_id])
            except (ValueError, Invalid):
                raise Invalid(
                    "invalid_request",
                    f"Line {number} of {path} is no key.",
                    remedy=f"Write: ID, a space, {2 * KEY_BYTES} hexadecimal digits (openssl rand -hex {KEY_BYTES}).",
                ) from None
        if not keys:
            raise Invalid(
                "invalid_request", f"{path} has no key.", remedy="Write one: ID, a space, 64 hexadecimal digits."
            )
        return cls(keys, current=next(iter(keys)))

    def __repr__(self) -> str:
        return f"<keys {', '.join(self._keys)}; current {self._current}>"

    def current(self) -> tuple[str, bytes]:
        return self._current, self._keys[self._current]

    def find(self, key_id: str) -> bytes | None:
        return self._keys.get(key_id)


class Chain:
    """Codecs in order."""

    def __init__(self, codecs: Sequence[Codec]) -> None:
        self._codecs = tuple(codecs)
        self._by_name = {codec.name: codec for codec in codecs}
        if len(self._by_name) != len(self._codecs):
            raise Invalid("invalid_request", "A codec stands twice in the chain.", remedy="Give each once.")

    def encode(self, payload: Payload) -> Payload:
        """Return ``payload`` coded; one without data (None) stays as it is."""
        if not payload.data or payload.encoding == CODED:
            return payload
        about = payload.encoding.encode()
        data, names = payload.data, list[str]()
        for codec in self._codecs:
            coded = codec.encode(data, about)
            if coded is not None:
                data = coded
                names.append(codec.name)
        if not names:
            return payload
        metadata = {**(payload.metadata or {}), "encoding": about, "codecs": " ".join(names).encode()}
        return Payload(CODED, data, metadata=metadata)

    def decode(self, payload: Payload) -> Payload:
        """Return the payload that ``encode`` was given. Raises Unreadable."""
        if payload.encoding != CODED:
            return payload
        metadata = dict(payload.metadata or {})
        about = metadata.pop("encoding", b"")
        names = metadata.pop("codecs", b"").decode(errors="replace").split()
        data = payload.data
        for name in reversed(names):
            codec = self._by_name.get(name)
            if codec is None:
                raise Unreadable(
                    f'The value was written with the codec "{name}", which is not given here.',
                    remedy=f"Give it: there {'are ' + ', '.join(self._by_name) if self._by_name else 'is none'}.",
                )
            data = codec.decode(data, about)
        return Payload(about.decode(errors="replace"), data, metadata=metadata or None)


def chain_of(names: Sequence[str], *, key_file: str = "") -> Chain:
    """Return the chain that settings name: "zstd", "aes-256-gcm" (which needs a key file). Raises Invalid."""
    codecs: list[Codec] = []
    for name in names:
        if name == Zstd.name:
            codecs.append(Zstd())
        elif name == Encrypt.name:
            if not key_file:
                raise Invalid("invalid_request", f"The codec {name} needs keys.", remedy="Give a key file.")
            codecs.append(Encrypt(KeyRing.from_file(key_file)))
        else:
            raise Invalid(
                "invalid_request", f'There is no codec "{name}".', remedy=f"There are {Zstd.name} and {Encrypt.name}."
            )
    return Chain(codecs)


def _check_key(key_id: str, key: bytes) -> None:
    if not key_id or len(key_id.encode()) > 255 or " " in key_id or len(key) != KEY_BYTES:  # noqa: PLR2004 - one byte
        raise Invalid(
            "invalid_request",
            f'Key "{key_id[:50]}" has {len(key)} bytes, or a name that none may have.',
            remedy=f"A key has {KEY_BYTES} bytes, its id 1 to 255 without spaces.",
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
