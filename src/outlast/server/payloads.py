"""The codecs and keys that settings name, for REST and the command line. The engine is given none of them."""

import importlib
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

from outlast.core.errors import Invalid, Refusal
from outlast.protocol.codecs import Encrypt
from outlast.protocol.keys import KeyRing, Keys
from outlast.protocol.opening import ENCRYPT, NAMES, Opener, opener_of
from outlast.server.sources import Sources

FILE: Final = "file:"
ENV: Final = "env:"
PYTHON: Final = "python:"
KEYS_FROM: Final = (FILE, ENV, PYTHON)
FORMS: Final = "Write file:PATH, env:VARIABLE or python:MODULE:OBJECT; keys themselves do not belong into settings."


def check_payloads(sources: Sources) -> None:
    """Raise Invalid for codecs that are none, or keys that are nowhere; no key is looked at."""
    codecs, keys = sources.names("payloads.codecs"), sources.text("payloads.keys")
    if any(name not in {*NAMES, Encrypt.name} for name in codecs) or len(set(codecs)) != len(codecs):
        raise sources.wrong("payloads.codecs", f"There are {' and '.join(NAMES)}; give each at most once.")
    if not keys:
        return
    if not keys.startswith(KEYS_FROM) or not keys.partition(":")[2]:
        raise sources.wrong("payloads.keys", FORMS)
    if not {ENCRYPT, Encrypt.name} & set(codecs):
        raise sources.wrong("payloads.keys", f'Nothing is encrypted: say payloads.codecs = ["zstd", "{ENCRYPT}"].')


def opener_from(sources: Sources) -> Opener:
    """Return what opens and codes values as the settings say. Raises Invalid, with no key in it."""
    check_payloads(sources)
    return opener_with(sources.names("payloads.codecs"), sources.text("payloads.keys"))


def opener_with(codecs: tuple[str, ...], keys: str) -> Opener:
    """Return what opens and codes values by ``codecs`` and the keys of the place ``keys``. Raises Invalid."""
    return opener_of(codecs, keys_at(keys) if keys else None)


def keys_at(place: str) -> Keys:
    """Return the keys of a place: file:PATH, env:VARIABLE or python:MODULE:OBJECT. Raises Invalid."""
    kind, _, rest = place.partition(":")
    if f"{kind}:" == FILE:
        return KeyRing.from_file(rest)
    if f"{kind}:" == ENV:
        text = os.environ.get(rest)
        if not text:
            raise Invalid(
                "invalid_request",
                f"payloads.keys names the variable {rest}, which is not set.",
                remedy="Set it to: ID, a space, 64 hexadecimal digits; several by commas, the current key first.",
            )
        return KeyRing.from_text(text, said_in=f"the variable {rest}")
    if f"{kind}:" == PYTHON:
        return _loaded(rest)
    raise Invalid("invalid_request", "payloads.keys is of no form that there is.", remedy=FORMS)


def is_open_to_all(place: str) -> bool:
    """Say whether the key file that ``place`` names can be read by everybody on this machine."""
    if not place.startswith(FILE):
        return False
    try:
        return bool(stat.S_IMODE(Path(place.removeprefix(FILE)).stat().st_mode) & (stat.S_IROTH | stat.S_IWOTH))
    except OSError:
        return False


def _loaded(rest: str) -> Keys:
    module, _, name = rest.partition(":")
    if not module or not name:
        raise Invalid(
            "invalid_request",
            f"payloads.keys is python:{rest}.",
            remedy="Write python:MODULE:OBJECT, as shop.keys:ring.",
        )
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        keys: Any = found
        if isinstance(found, type) or (callable(found) and not isinstance(found, Keys)):
            keys = cast("Callable[[], Any]", found)()  # a function or a class may fetch them
    except Refusal:
        raise
    except Exception as error:
        raise Invalid(
            "invalid_request",
            f"payloads.keys names {rest}, which cannot be loaded: {type(error).__name__}.",
            remedy=f"Try it: python -c 'import {module}; {module}.{name}'",
        ) from error
    if not isinstance(keys, Keys):
        raise Invalid(
            "invalid_request",
            f"payloads.keys names {rest}, which gives no keys.",
            remedy="Give an object with current() and find(key_id), such as outlast.KeyRing, or a function that returns one.",
        )
    return keys
