"""Who may call: everybody on loopback, holders of the token elsewhere; never a web page of somebody else's."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from outlast.core.errors import Denied

LOCAL_NAMES: Final = frozenset({"127.0.0.1", "localhost", "::1", ""})


@dataclass(slots=True, frozen=True)
class Gate:
    """``token`` empty means that the listener is on loopback and open to this machine."""

    token: str = ""

    def principal_of(self, headers: Mapping[str, str]) -> str:
        """Return who calls. Raises Denied.

        Without a token the names in Host and Origin must be this machine's: a page from elsewhere, or a foreign name that
        was pointed at 127.0.0.1, would otherwise speak with the rights of the person at the browser.
        """
        if self.token:
            scheme, _, shown = headers.get("authorization", "").partition(" ")
            # Compared as bytes: compare_digest refuses text that is not ASCII.
            if scheme.lower() == "bearer" and hmac.compare_digest(shown.strip().encode(), self.token.encode()):
                return "token"
            raise Denied(
                "denied",
                "The bearer token is missing or wrong.",
                remedy="Send Authorization: Bearer, with OUTLAST_TOKEN.",
            )
        origin = headers.get("origin", "")
        if _name_of(headers.get("host", "")) not in LOCAL_NAMES or (origin and _host_of(origin) not in LOCAL_NAMES):
            raise Denied(
                "denied",
                "The request names another host than this machine.",
                remedy="Call 127.0.0.1 or localhost, or set OUTLAST_TOKEN.",
            )
        return "local"


def _host_of(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or "?"
    except ValueError:
        return "?"


def _name_of(host: str) -> str:
    return _host_of(f"//{host}") if host else ""
