"""The address of a database, and how it is shown: never with its password."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from outlast.store.base import StoreError

SCHEMES: Final = frozenset({"postgres", "postgresql"})
FORM: Final = "Write postgresql://USER@HOST:PORT/DATABASE; a password goes into PGPASSWORD, ~/.pgpass or the address."
WEAK: Final = "allow_weak_durability"  # an option of the address that is ours, not the driver's
_SECRET_NAME: Final = re.compile(r"(?i)pass|secret|token|credential|sslkey")
_SECRET: Final = re.compile(r"(?i)(password|passfile|sslpassword)=[^&\s]*")


@dataclass(slots=True, frozen=True)
class Address:
    """``url`` is for the driver alone; ``shown`` is what people and logs may see, ``named`` what they can give to a command.

    ``allow_weak``: the address says ``allow_weak_durability=yes``.
    """

    url: str
    shown: str
    named: str
    database: str
    allow_weak: bool = False


def address_of(url: str) -> Address:
    """Return the parts of ``url``. Raises StoreError "invalid_request", without repeating what may hold a password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        options = dict(parse_qsl(parts.query))
    except ValueError as error:
        raise StoreError("invalid_request", "The address of the database cannot be read.", remedy=FORM) from error
    database = unquote(parts.path.removeprefix("/")) or options.get("dbname", "") or options.get("database", "")
    if parts.scheme not in SCHEMES or not database or "/" in database:
        raise StoreError(
            "invalid_request", "The address of the database names no database, or is of another kind.", remedy=FORM
        )
    host = host or options.get("host", "")
    place = f"{host}:{port}" if port else host
    user = f"{unquote(parts.username)}@" if parts.username else ""
    kept = urlencode({name: text for name, text in options.items() if not _SECRET_NAME.search(name)}, safe="/,:")
    login = f"{parts.username}@" if parts.username else ""
    named = f"postgresql://{login}{parts.netloc.rpartition('@')[2]}{parts.path}{f'?{kept}' if kept else ''}"
    allow_weak = options.pop(WEAK, "").lower() in {"yes", "true", "on", "1"}
    known = urlunsplit(parts._replace(query=urlencode(options)))
    return Address(known, f"postgresql://{user}{place}/{database}", named, database, allow_weak)


def without_secrets(text: str, address: Address) -> str:
    """Return ``text`` with nothing in it that only the owner of the address may know."""
    password = urlsplit(address.url).password
    for secret in {password, unquote(password)} if password else ():
        text = text.replace(secret, "***")
    return _SECRET.sub(r"\1=***", text.replace(address.url, address.shown))
