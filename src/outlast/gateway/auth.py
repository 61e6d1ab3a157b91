"""Who may call: everybody on loopback, holders of a token elsewhere; never a web page of somebody else's.

A token is a name, roles and namespaces. Tokens are compared by their digests, each of them, so that neither the time nor
the log tells one.
"""

import hashlib
import hmac
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from outlast.core.errors import Denied, Invalid

LOCAL_NAMES: Final = frozenset({"127.0.0.1", "localhost", "::1", ""})
TOKENS_MAX: Final = 1_000  # in one file: each call compares all of them
EVERY: Final = "*"
PAYLOADS: Final = "payloads"

ROLES: Final[dict[str, frozenset[str]]] = {
    "reader": frozenset({"read", PAYLOADS}),
    "operator": frozenset({"read", PAYLOADS, "operate"}),
    "worker": frozenset({"work"}),
    "admin": frozenset({"read", PAYLOADS, "operate", "work", "administer"}),
}


@dataclass(slots=True, frozen=True)
class Caller:
    """Who calls, and what it may. ``namespaces`` and ``queues`` may hold "*" for all."""

    name: str
    rights: frozenset[str]
    namespaces: frozenset[str] = frozenset({EVERY})
    queues: frozenset[str] = frozenset({EVERY})

    @property
    def sees(self) -> bool:
        """Whether values are shown to the caller; a worker has them anyway."""
        return PAYLOADS in self.rights or "work" in self.rights

    def reaches(self, namespace: str) -> bool:
        """Say whether anything is allowed in ``namespace``."""
        return EVERY in self.namespaces or namespace in self.namespaces

    def require(self, right: str, namespace: str) -> None:
        """Raise Denied unless ``right`` is held in ``namespace``; "" stands for what is in none."""
        if not self.reaches(namespace) if namespace else right == "administer" and EVERY not in self.namespaces:
            raise Denied(
                "denied",
                f"{self.name} may do nothing in namespace {namespace}."
                if namespace
                else f"{self.name} may not do this.",
                remedy="Use a token for that namespace." if namespace else "Use an admin's token for all namespaces.",
            )
        if right != "none" and right not in self.rights:
            if right == PAYLOADS and "read" in self.rights:
                raise Denied(
                    "denied", f"{self.name} may not see values.", remedy="Use a token without payloads = false."
                )
            roles = " or ".join(role for role, rights in ROLES.items() if right in rights)
            raise Denied("denied", f"{self.name} has no right to {right}.", remedy=f"Use a token with role {roles}.")

    def require_queues(self, queues: tuple[str, ...]) -> None:
        """Raise Denied unless work of each of ``queues`` may be taken."""
        if EVERY in self.queues:
            return
        for queue in queues:
            if queue not in self.queues:
                raise Denied(
                    "denied", f'{self.name} may not take work of queue "{queue}".', remedy="Use a token for that queue."
                )


LOCAL: Final = Caller("local", ROLES["admin"])


@dataclass(slots=True, frozen=True)
class Token:
    """A secret's digest and whom it stands for."""

    digest: bytes
    caller: Caller


@dataclass(slots=True, frozen=True)
class Gate:
    """``tokens`` empty means that the listener is on loopback and open to this machine."""

    tokens: tuple[Token, ...] = ()

    def caller_of(self, headers: Mapping[str, str]) -> Caller:
        """Return who calls. Raises Denied.

        Without tokens the names in Host and Origin must be this machine's: a page from elsewhere, or a foreign name that
        was pointed at 127.0.0.1, would otherwise speak with the rights of the person at the browser.
        """
        if self.tokens:
            return self._holder(headers.get("authorization", ""))
        origin = headers.get("origin", "")
        if _name_of(headers.get("host", "")) not in LOCAL_NAMES or (origin and _host_of(origin) not in LOCAL_NAMES):
            raise Denied(
                "denied",
                "The request names another host than this machine.",
                remedy="Call 127.0.0.1 or localhost, or set OUTLAST_TOKEN.",
            )
        return LOCAL

    def _holder(self, authorization: str) -> Caller:
        scheme, _, shown = authorization.partition(" ")
        found: Caller | None = None
        if scheme.lower() == "bearer":
            digest = digest_of(shown.strip().encode("latin-1", "replace"))
            for token in self.tokens:  # all of them, so that the time does not tell which one was near
                if hmac.compare_digest(digest, token.digest):
                    found = token.caller
        if found is not None:
            return found
        raise Denied(
            "unauthenticated",
            "The bearer token is missing or not known.",
            remedy="Send Authorization: Bearer, with a token of this server (OUTLAST_TOKEN, or one of the tokens file).",
        )


def digest_of(secret: bytes) -> bytes:
    """Return what is kept of a secret."""
    return hashlib.sha256(secret).digest()


def one_token(secret: str) -> tuple[Token, ...]:
    """Return the tokens of a server that has one, for everything."""
    return (Token(digest_of(secret.encode()), Caller("token", ROLES["admin"])),) if secret else ()


class _Row(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    name: str
    roles: tuple[str, ...]
    token: str = ""
    sha256: str = ""
    namespaces: tuple[str, ...] = ("default",)
    queues: tuple[str, ...] = (EVERY,)
    payloads: bool = True


class _File(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    tokens: tuple[_Row, ...]


def read_tokens(path: str) -> tuple[Token, ...]:
    """Return the tokens of a file. Raises Invalid, which shows no secret.

    The file is TOML, one table ``[[tokens]]`` for each: ``name``, ``roles`` (reader, operator, worker, admin), ``token`` or
    its ``sha256`` in hex, ``namespaces`` (["default"] when left out, ["*"] for all), ``queues`` of a
    worker, ``payloads = false`` for who may not see values.
    """
    try:
        loaded: dict[str, Any] = tomllib.loads(Path(path).read_text())
        rows = msgspec.convert(loaded, _File).tokens
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Invalid(
            "invalid_request", f"The tokens file {path} cannot be used: {why}.", remedy="Correct the file."
        ) from None
    if not 1 <= len(rows) <= TOKENS_MAX:
        raise Invalid(
            "invalid_request",
            f"The tokens file {path} has {len(rows)} tokens.",
            remedy=f"Give 1 to {TOKENS_MAX:,} tables [[tokens]].",
        )
    return tuple(_token(row, path) for row in rows)


def _token(row: _Row, path: str) -> Token:
    unknown = [role for role in row.roles if role not in ROLES]
    if unknown or not row.roles:
        raise Invalid(
            "invalid_request",
            f"Token {row.name} in {path} has " + (f'the role "{unknown[0]}".' if unknown else "no role."),
            remedy=f"Give it roles of: {', '.join(ROLES)}.",
        )
    if bool(row.token) == bool(row.sha256):
        raise Invalid(
            "invalid_request",
            f"Token {row.name} in {path} has {'both a token and' if row.token else 'neither a token nor'} a sha256.",
            remedy="Give one of the two.",
        )
    rights = frozenset(right for role in row.roles for right in ROLES[role])
    if not row.payloads:
        if "work" in rights:
            raise Invalid(
                "invalid_request",
                f"Token {row.name} in {path} may take work, and has payloads = false.",
                remedy="Leave it out: who runs the work has its values.",
            )
        rights -= {PAYLOADS}
    caller = Caller(row.name, rights, frozenset(row.namespaces), frozenset(row.queues))
    if row.token:
        return Token(digest_of(row.token.encode()), caller)
    try:
        digest = bytes.fromhex(row.sha256)
    except ValueError:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise Invalid(
            "invalid_request",
            f"The sha256 of token {row.name} in {path} is none.",
            remedy="Write 64 hexadecimal digits: printf %s TOKEN | sha256sum",
        )
    return Token(digest, caller)


def _host_of(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or "?"
    except ValueError:
        return "?"


def _name_of(host: str) -> str:
    return _host_of(f"//{host}") if host else ""
