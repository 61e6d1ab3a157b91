"""Keys by which values are encrypted: from a program, a file or a text. No error and no ``repr`` here has a key in it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from outlast.core.errors import Invalid

KEY_BYTES: Final = 32  # AES-256
KEY_ID_BYTES_MAX: Final = 255  # one byte of a coded value says how long the id is
FORM: Final = f"ID, a space, {2 * KEY_BYTES} hexadecimal digits (openssl rand -hex {KEY_BYTES})"


@runtime_checkable
class Keys(Protocol):
    """Where keys come from: 32 bytes each, by id."""

    def current(self) -> tuple[str, bytes]:
        """Return the id and the key by which new values are written."""
        ...

    def find(self, key_id: str) -> bytes | None:
        """Return the key of ``key_id``, None when it is gone: what it wrote is gone with it."""
        ...


class KeyRing:
    """Keys that the program has: ``KeyRing({"2026-11": key}, current="2026-11")``."""

    def __init__(self, keys: Mapping[str, bytes], *, current: str) -> None:
        if current not in keys:
            raise Invalid("invalid_request", f'There is no key "{current}".', remedy=f"There are: {', '.join(keys)}.")
        for key_id, key in keys.items():
            check_key(key_id, key)
        self._keys = dict(keys)
        self._current = current

    @classmethod
    def from_file(cls, path: str) -> "KeyRing":
        """Return the keys in a file with a line ``ID HEX`` for each, the current one first.

        Raises:
            Invalid: there is no such file, or a line is not of that form. No key is in the error.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
            raise Invalid(
                "invalid_request",
                f"The key file {path} cannot be read: {why}.",
                remedy="Look at its path, and at who may read it.",
            ) from None
        return cls.from_text(text, said_in=path)

    @classmethod
    def from_text(cls, text: str, *, said_in: str) -> "KeyRing":
        """Return the keys in ``text``, ``ID HEX`` each, the current one first, on lines or by commas. Raises Invalid.

        ``said_in`` is what an error calls the place.
        """
        keys: dict[str, bytes] = {}
        for number, line in enumerate(text.replace(",", "\n").splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            key_id, _, digits = line.strip().partition(" ")
            try:
                key = bytes.fromhex(digits)
                check_key(key_id, key)
            except (ValueError, Invalid):
                raise Invalid(
                    "invalid_request", f"Line {number} of {said_in} is no key.", remedy=f"Write: {FORM}."
                ) from None
            if key_id in keys:
                raise Invalid(
                    "invalid_request",
                    f'{said_in} has two keys "{key_id}".',
                    remedy="Give each id once; the current key stands first.",
                )
            keys[key_id] = key
        if not keys:
            raise Invalid("invalid_request", f"{said_in} has no key.", remedy=f"Write one: {FORM}.")
        return cls(keys, current=next(iter(keys)))

    def __repr__(self) -> str:
        return f"<keys {', '.join(self._keys)}; current {self._current}>"

    def current(self) -> tuple[str, bytes]:
        """Return the id and the key by which new values are written."""
        return self._current, self._keys[self._current]

    def find(self, key_id: str) -> bytes | None:
        """Return the key of ``key_id``, None when it is not among them."""
        return self._keys.get(key_id)


def check_key(key_id: str, key: bytes) -> None:
    """Raise Invalid unless ``key`` can be used under ``key_id``."""
    if not key_id or len(key_id.encode()) > KEY_ID_BYTES_MAX or " " in key_id or len(key) != KEY_BYTES:
        raise Invalid(
            "invalid_request",
            f'Key "{key_id[:50]}" has {len(key)} bytes, or a name that none may have.',
            remedy=f"A key has {KEY_BYTES} bytes, its id 1 to {KEY_ID_BYTES_MAX} without spaces.",
        )
