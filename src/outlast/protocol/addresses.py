"""Addresses of stores and servers as people may see them: in logs, errors and representations."""

import re
from typing import Final
from urllib.parse import unquote

# From the first colon after the name to the last @: a password may have any character in it, and too much may be hidden.
_BEFORE_HOST: Final = re.compile(r"(://[^/@:?]*):.*@")
_KEY: Final = re.compile(r"([^=&?#\s]+)=[^&]*")
_SECRET: Final = re.compile(r"pass|secret|token|credential|sslkey", re.IGNORECASE)


def masked(address: str) -> str:
    """Return ``address`` without its secrets: the password before the host, and those among its options."""
    hidden = _BEFORE_HOST.sub(r"\1:***@", address)
    return _KEY.sub(lambda found: f"{found[1]}=***" if _SECRET.search(unquote(found[1])) else found[0], hidden)
