"""Every setting of the server: name, flag, environment variable, default, one sentence. Flags beat the environment."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from outlast.core.errors import Invalid
from outlast.core.limits import TASK_LEASE
from outlast.core.units import HOUR, SECOND

DEFAULT_STORE: Final = "sqlite:///outlast.db"
DEFAULT_LISTEN: Final = "127.0.0.1:7070"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table; ``flag`` is empty where there is only the environment variable."""

    name: str
    flag: str
    env: str
    default: str
    sentence: str
    secret: bool = False


TABLE: Final = (
    Setting("store", "--store", "OUTLAST_STORE", DEFAULT_STORE, "Where work is kept: sqlite:///FILE or memory:."),
    Setting(
        "listen", "--listen", "OUTLAST_LISTEN", DEFAULT_LISTEN, "Host and port of the HTTP server; port 0 picks one."
    ),
    Setting("namespaces", "--namespaces", "OUTLAST_NAMESPACES", "default", "The namespaces there are, by commas."),
    Setting("announce_file", "--announce-file", "OUTLAST_ANNOUNCE_FILE", "", "A file the address is written to."),
    Setting("token", "", "OUTLAST_TOKEN", "", "Bearer token that callers must show.", secret=True),
    Setting("clock_offset_file", "", "OUTLAST_CLOCK_OFFSET_FILE", "", "Nanoseconds to shift by; tests."),
    Setting("task_lease", "--task-lease", "OUTLAST_TASK_LEASE", "30s", "How long a task stays with a silent worker."),
    Setting("server", "--server", "OUTLAST_SERVER", "", "Address of a server, for commands that are clients."),
)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The server's settings, checked."""

    store: str = DEFAULT_STORE
    host: str = "127.0.0.1"
    port: int = 7070
    namespaces: tuple[str, ...] = ("default",)
    announce_file: str = ""
    token: str = ""
    clock_offset_file: str = ""
    task_lease: int = TASK_LEASE  # nanoseconds


def read_settings(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> Settings:
    """Return the settings from ``flags`` (None for not given) and the environment. Raises Invalid, naming the source."""
    host, port = _listen(value_of("listen", flags, environ))
    token = value_of("token", flags, environ) or _secret_file(environ)
    settings = Settings(
        store=value_of("store", flags, environ),
        host=host,
        port=port,
        namespaces=tuple(name.strip() for name in value_of("namespaces", flags, environ).split(",") if name.strip()),
        announce_file=value_of("announce_file", flags, environ),
        token=token,
        clock_offset_file=value_of("clock_offset_file", flags, environ),
        task_lease=_lease(value_of("task_lease", flags, environ)),
    )
    require_safe(settings.host, settings.token)
    if not settings.namespaces:
        raise Invalid("invalid_request", "There is no namespace.", remedy="Name one: --namespaces default")
    return settings


def value_of(name: str, flags: Mapping[str, str | None], environ: Mapping[str, str]) -> str:
    """Return the value of one setting: the flag's, else the environment's, else the default."""
    setting = next(row for row in TABLE if row.name == name)
    return flags.get(name) or environ.get(setting.env) or setting.default


def require_safe(host: str, token: str) -> None:
    """Refuse to be open to the network without a token."""
    if token or is_loopback(host):
        return
    raise Invalid(
        "invalid_request",
        f"Listening on {host} would let anybody in: there is no token.",
        remedy="Set OUTLAST_TOKEN, or listen on 127.0.0.1.",
    )


def is_loopback(host: str) -> bool:
    """Say whether ``host`` can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _lease(text: str) -> int:
    from outlast.sdk.durations import nanos_of
    from outlast.sdk.errors import InvalidDuration

    try:
        span = nanos_of(text, name="--task-lease")
    except InvalidDuration as error:
        raise Invalid("invalid_request", error.fact, remedy=error.remedy) from None
    if not SECOND <= span <= HOUR:
        raise Invalid(
            "invalid_request",
            f'--task-lease is "{text}".',
            remedy="Give 1s to 1h: a worker renews it each third of that.",
        )
    return span


def _listen(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or not 0 <= int(port) <= 65_535:  # noqa: PLR2004 - the range of ports
        raise Invalid(
            "invalid_request", f'--listen is "{text}".', remedy="Write HOST:PORT, for example 127.0.0.1:7070."
        )
    return host or "127.0.0.1", int(port)


def _secret_file(environ: Mapping[str, str]) -> str:
    """A secret may come from a file, so that it stands in no process list."""
    path = environ.get("OUTLAST_TOKEN_FILE", "")
    if not path:
        return ""
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise Invalid(
            "invalid_request",
            f"OUTLAST_TOKEN_FILE names {path}, which cannot be read: {error.strerror}.",
            remedy="Name a file that this user may read.",
        ) from error
