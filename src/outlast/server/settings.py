"""Every setting in one table: its name, where it may be said, what it may be, and whether it can change while we run.

The check, the reference page, ``outlast config show`` and the JSON Schema for editors are all read off this table. Where
the values come from is in ``outlast.server.sources``.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from outlast.core.errors import Invalid
from outlast.core.limits import TASK_LEASE
from outlast.core.units import HOUR, SECOND
from outlast.server.payloads import KEYS_FROM, check_payloads
from outlast.server.places import BLOBS_IN, BlobPlace, place_from
from outlast.server.sources import NO_FILE, Setting, SettingsFile, Shape, Sources

DEFAULT_STORE: Final = "sqlite:///outlast.db"
DEFAULT_LISTEN: Final = "127.0.0.1:7070"
LEVELS: Final = ("debug", "info", "warning", "error")
RATE_MAX: Final = 1_000_000  # requests a second: far above what one process answers
THREADS_MAX: Final = 1000  # of one worker: each is a thread of the system's


class LogFormat(StrEnum):
    """``AUTO``: lines for people on a terminal, JSON lines elsewhere."""

    AUTO = "auto"
    LINE = "line"
    JSON = "json"


TABLE: Final = (
    Setting(
        "store",
        flag="--store",
        default=DEFAULT_STORE,
        sentence="Where work is kept: sqlite:///FILE, postgresql://HOST/DATABASE or memory:.",
    ),
    Setting(
        "blobs",
        prefixes=BLOBS_IN,
        sentence="Where payloads above 256 KB are kept: s3://BUCKET/PREFIX or file:///FOLDER; empty for beside the store.",
    ),
    Setting("s3.endpoint", sentence="Address of what speaks like S3; empty for Amazon's own."),
    Setting("s3.region", sentence="Region of the bucket; empty for AWS_REGION, else us-east-1."),
    Setting("s3.access_key", secret=True, sentence="Id of the access key; empty for what AWS tools would take."),
    Setting("s3.secret_key", secret=True, sentence="Secret of the access key."),
    Setting("s3.session_token", secret=True, sentence="Token of a session, where the access key is for one."),
    Setting("server", flag="--server", sentence="Address of a server, for commands that are clients and for workers."),
    Setting(
        "namespace",
        flag="--namespace",
        default="default",
        sentence="The namespace that a command speaks of.",
    ),
    Setting("token", secret=True, reloadable=True, sentence="Bearer token that callers must show, and clients send."),
    Setting(
        "namespaces",
        flag="--namespaces",
        shape=Shape.NAMES,
        default="default",
        sentence="The namespaces there are, by commas.",
    ),
    Setting(
        "http.listen",
        flag="--listen",
        default=DEFAULT_LISTEN,
        sentence="Host and port of the HTTP server; port 0 picks one.",
    ),
    Setting(
        "http.tokens_file",
        reloadable=True,
        sentence="A TOML file of tokens with roles and namespaces, read again with the settings.",
    ),
    Setting(
        "http.rate",
        shape=Shape.NUMBER,
        reloadable=True,
        sentence="Requests a second of one caller in one namespace in the long run; empty for no limit.",
    ),
    Setting(
        "http.burst",
        shape=Shape.NUMBER,
        reloadable=True,
        sentence="Requests of one caller that may come at once; empty for as many as http.rate.",
    ),
    Setting("http.announce_file", flag="--announce-file", sentence="A file the address is written to."),
    Setting(
        "engine.task_lease",
        flag="--task-lease",
        shape=Shape.SPAN,
        default="30s",
        sentence="How long a task stays with a silent worker: 1s to 1h.",
    ),
    Setting("engine.clock_offset_file", sentence="A file with nanoseconds to shift the clock by; for tests."),
    Setting(
        "payloads.codecs",
        shape=Shape.NAMES,
        reloadable=True,
        sentence="How the app codes values, in its order: zstd, encrypt; for REST and the commands, which show and send values.",
    ),
    Setting(
        "payloads.keys",
        reloadable=True,
        prefixes=KEYS_FROM,
        sentence="Where the keys for encrypt are: file:PATH, env:VARIABLE or python:MODULE:OBJECT; empty: values stay closed.",
    ),
    Setting("worker.queues", flag="--queue", shape=Shape.NAMES, sentence="The queues a worker polls; empty for all of its app."),
    Setting(
        "worker.threads",
        flag="--threads",
        shape=Shape.NUMBER,
        sentence="How many plain functions a worker runs at once; empty for what the app says.",
    ),
    Setting("worker.build", flag="--build", sentence="Name of the build of the code that a worker runs."),
    Setting(
        "log.level",
        flag="--log-level",
        shape=Shape.CHOICE,
        choices=LEVELS,
        default="info",
        reloadable=True,
        sentence="What is logged: debug, info, warning or error.",
    ),
    Setting(
        "log.format",
        flag="--log-format",
        shape=Shape.CHOICE,
        choices=tuple(format.value for format in LogFormat),
        default=LogFormat.AUTO.value,
        sentence="Lines for people or JSON lines; auto asks whether there is a terminal.",
    ),
)  # fmt: skip


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The server's settings, checked."""

    store: str = DEFAULT_STORE
    blobs: BlobPlace = BlobPlace()
    host: str = "127.0.0.1"
    port: int = 7070
    namespaces: tuple[str, ...] = ("default",)
    announce_file: str = ""
    token: str = ""
    tokens_file: str = ""
    rate: int = 0  # requests a second; 0 for no limit
    burst: int = 0
    clock_offset_file: str = ""
    task_lease: int = TASK_LEASE  # nanoseconds
    codecs: tuple[str, ...] = ()
    keys: str = ""
    log_level: str = "info"
    log_format: LogFormat = LogFormat.AUTO


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """A worker's settings, checked; ``server`` is where it polls."""

    server: str
    queues: tuple[str, ...]
    threads: int | None
    build: str
    token: str


def sources_of(flags: Mapping[str, str | None], environ: Mapping[str, str], file: SettingsFile = NO_FILE) -> Sources:
    """Return where the settings of TABLE are looked up."""
    return Sources(TABLE, flags, environ, file)


def read_settings(
    flags: Mapping[str, str | None], environ: Mapping[str, str], file: SettingsFile = NO_FILE
) -> Settings:
    """Return the server's settings: flag, else environment, else file, else default. Raises Invalid, naming the source.

    ``flags`` are by name of the setting, None for not given.
    """
    return settings_from(sources_of(flags, environ, file))


def settings_from(sources: Sources) -> Settings:
    """Return the server's settings. Raises Invalid, naming the source of what is wrong."""
    host, port = _listen(sources)
    rate = sources.number("http.rate", least=1, most=RATE_MAX) or 0
    settings = Settings(
        store=sources.text("store"),
        blobs=place_from(sources),
        host=host,
        port=port,
        namespaces=sources.names("namespaces"),
        announce_file=sources.text("http.announce_file"),
        token=sources.text("token"),
        tokens_file=sources.text("http.tokens_file"),
        rate=rate,
        burst=sources.number("http.burst", least=1, most=RATE_MAX) or rate,
        clock_offset_file=sources.text("engine.clock_offset_file"),
        task_lease=lease_from(sources),
        codecs=sources.names("payloads.codecs"),
        keys=sources.text("payloads.keys"),
        log_level=sources.choice("log.level"),
        log_format=LogFormat(sources.choice("log.format")),
    )
    require_safe(settings.host, settings.token or settings.tokens_file)
    check_payloads(sources)
    if not settings.namespaces:
        raise Invalid("invalid_request", "There is no namespace.", remedy="Name one: --namespaces default")
    return settings


def worker_settings_from(sources: Sources) -> WorkerSettings:
    """Return a worker's settings. Raises Invalid, naming the source of what is wrong."""
    server = sources.text("server") or f"http://{DEFAULT_LISTEN}"
    if not server.startswith(("http://", "https://")):
        raise sources.wrong("server", "Write http://HOST:PORT.")
    return WorkerSettings(
        server=server,
        queues=sources.names("worker.queues"),
        threads=sources.number("worker.threads", least=1, most=THREADS_MAX),
        build=sources.text("worker.build"),
        token=sources.text("token"),
    )


def check_all(sources: Sources) -> None:
    """Raise Invalid for the first setting that cannot be what it is, whoever reads it."""
    settings_from(sources)
    worker_settings_from(sources)
    if not sources.text("namespace"):
        raise sources.wrong("namespace", "Name one, for example default.")


def require_safe(host: str, token: str) -> None:
    """Refuse to be open to the network without a token."""
    if token or is_loopback(host):
        return
    raise Invalid(
        "invalid_request",
        f"Listening on {host} would let anybody in: there is no token.",
        remedy="Set OUTLAST_TOKEN or http.tokens_file, or listen on 127.0.0.1.",
    )


def is_loopback(host: str) -> bool:
    """Say whether ``host`` can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def lease_from(sources: Sources) -> int:
    """Return how long a task stays with a silent worker, in nanoseconds. Raises Invalid, naming the source."""
    span = sources.span("engine.task_lease")
    if not SECOND <= span <= HOUR:
        raise sources.wrong("engine.task_lease", "Give 1s to 1h: a worker renews it each third of that.")
    return span


def _listen(sources: Sources) -> tuple[str, int]:
    host, colon, port = sources.text("http.listen").rpartition(":")
    if not colon or not port.isdigit() or not 0 <= int(port) <= 65_535:  # noqa: PLR2004 - the range of ports
        raise sources.wrong(
            "http.listen", "Write HOST:PORT, for example 127.0.0.1:7070; a port is a number up to 65535."
        )
    return host or "127.0.0.1", int(port)
