"""The commands that run something, and those that look at the whole."""

import argparse
from typing import Final

from outlast.cli.verb import CONFIG, DRY_RUN, JSON, NAMESPACE, QUIET, WATCH, WHERE, Verb, option, setting

_OWN_NAMESPACE: Final = setting("namespace", sentence="namespace (default: the app's own)")
_STORE: Final = setting("store", metavar="URL")
_LISTEN: Final = setting("http.listen", metavar="HOST:PORT")
_PORT: Final = option("--port", metavar="PORT", help="port only; 0 picks a free one")
_LOG: Final = (setting("log.level", metavar="LEVEL"), setting("log.format", metavar="FORMAT"))
_TARGET: Final = option("target", metavar="APP", help="app.py, package.module, or either with :app")

_KINDS: Final = ("script", "fastapi", "django")


def _kind(said: str) -> str:
    if said not in _KINDS:
        raise argparse.ArgumentTypeError(
            f"{said!r} is none of {', '.join(_KINDS)}; a folder is named so: --folder {said}"
        )
    return said


RUN_VERBS: Final = (
    Verb(
        ("dev",), "Engine, HTTP API and worker for one app, on this machine.", "dev:dev",
        (
            _TARGET, _STORE, _LISTEN, _PORT, _OWN_NAMESPACE, setting("worker.queues", several=True),
            option("--workers", type=int, default=1, metavar="N", help="worker processes (default: 1)"),
            option("--no-reload", action="store_true", help="do not follow edits of the code"),
            *_LOG, *CONFIG,
        ), "", ("outlast dev app.py",),
    ),
    Verb(
        ("serve",), "Run the engine and its HTTP API.", "serve:serve",
        (
            _STORE, _LISTEN, _PORT, setting("http.announce_file", metavar="FILE"),
            setting("engine.task_lease", metavar="TIME"), setting("namespaces", metavar="NAMES"), *_LOG, *CONFIG,
        ), "", ("outlast serve --listen 127.0.0.1:7070",),
    ),
    Verb(
        ("worker", "start"), "Run the tasks and workflows of an app.", "worker:start",
        (
            _TARGET, setting("server", metavar="URL"), _OWN_NAMESPACE, setting("worker.queues", several=True),
            setting("worker.threads", metavar="N"), setting("worker.build"),
            option("--parent", type=int, default=0, metavar="PID", help="end when this process, which started it, has gone"),
            *_LOG, *CONFIG,
        ), "", ("outlast worker start app.py --queue images",),
    ),
)  # fmt: skip

BEGIN_VERBS: Final = (
    Verb(
        ("init",), "Write a project that runs: a script, or with FastAPI or Django.", "init:init",
        (
            option("kind", nargs="?", default="script", choices=_KINDS, type=_kind, help="(default: script)"),
            option("--folder", default=".", metavar="DIR", help="where (default: here)"),
            DRY_RUN, JSON, QUIET,
        ), "WrittenOut", ("outlast init", "outlast init fastapi --folder shop"),
    ),
    Verb(
        ("tour",), "A shop with something in every state, to look around in; nothing is kept.", "tour:tour",
        (option("--port", type=int, default=0, metavar="PORT", help="port of its server (default: a free one)"),),
    ),
)  # fmt: skip

LOOK_VERBS: Final = (
    Verb(
        ("feed",), "Print what was committed, in order, one event a line.", "feed:feed",
        (
            option("--after", default="", metavar="CURSOR", help="go on behind this event; now: nothing old (default: all)"),
            option("--watch", action="store_true", help="go on with what is committed"),
            option("--limit", type=int, default=0, metavar="N", help="at most this many; 0 for all (default: 0)"),
            *WHERE, JSON, QUIET,
        ), "FeedEventOut", ("outlast feed --watch --after now", "outlast feed --json --after 7-2-4d3e1f2a9b8c7d6e"),
    ),
    Verb(
        ("why",), "Say what a workflow or a task waits for.", "why:why",
        (option("id", metavar="ID", help="workflow id or task id"), *WATCH, *WHERE, JSON, QUIET), "WhyShown",
        ("outlast why order-7",),
    ),
    Verb(
        ("watch",), "Follow a workflow or a task until it has ended; ends with the code of its end.", "watch:watch",
        (
            option("id", metavar="ID", help="workflow id or task id"),
            option("--run", default="", metavar="RUN_ID", help="an earlier run"),
            option("--every", default="1s", metavar="TIME", help="how often it looks (default: 1s)"),
            *WHERE, JSON, QUIET,
        ), "WatchedOut", ("outlast watch order-7", "outlast watch order-7 --json"),
    ),
    Verb(
        ("doctor",), "Look for what is wrong, and say what helps; ends with 7 when there is something.", "doctor:doctor",
        (*WHERE, JSON, QUIET), "FindingOut", ("outlast doctor --json",),
    ),
    Verb(
        ("config", "show"), "Print the settings as they are now.", "config:show",
        (
            option("--origin", action="store_true", help="also where each value came from, and whether it can be reloaded"),
            option("--schema", action="store_true", help="the JSON Schema of the settings file, for editors"),
            _STORE, setting("server", metavar="URL"), NAMESPACE, *CONFIG, JSON,
        ), "SettingOut",
    ),
    Verb(
        ("config", "check"), "Check the settings file and the environment.", "config:check", (*CONFIG, JSON), "SettingOut"
    ),
    Verb(
        ("config", "reload"), "Have the server of this machine read its settings again.", "config:reload",
        (_STORE, DRY_RUN, *CONFIG, JSON), "ChangeOut",
    ),
    Verb(
        ("migrate",), "Bring a store to the schema of this version; a copy of it is kept.", "migrate:migrate",
        (
            _STORE,
            option("--plan", action="store_true", help="list what is to be done, with what it does, and do nothing"),
            option("--check", action="store_true", help="as --plan, and end with 7 when there is something"),
            DRY_RUN, *CONFIG, JSON,
        ), "MigrationOut", ("outlast migrate --plan", "outlast migrate --check --store postgresql://db.internal/work"),
    ),
    Verb(
        ("move",), "Bring the work of one store to another; the first one then takes none.", "move:move",
        (
            option("source", metavar="FROM", help="sqlite:///FILE or postgresql://HOST/DATABASE, with no engine running"),
            option("target", nargs="?", default="", metavar="TO", help="a store that is empty or new"),
            option("--take-back", action="store_true", help="have FROM, which was moved, take work again as it was then"),
            option("--reason", default="", metavar="TEXT", help="why; FROM tells it to whoever opens it"),
            DRY_RUN, *CONFIG, JSON, QUIET,
        ), "MoveOut",
        ("outlast move sqlite:///outlast.db postgresql://me@db.internal/work --dry-run",),
    ),
    Verb(
        ("backup",), "Keep a store in a file, also while an engine works on it.", "backup:backup",
        (option("file", metavar="FILE", help="a new file"), _STORE, DRY_RUN, *CONFIG, JSON, QUIET), "BackupOut",
        ("outlast backup monday.db", "outlast backup monday.db --store postgresql://db.internal/work"),
    ),
    Verb(
        ("restore",), "Fill a store from a backup, and refuse the workers of the past.", "backup:restore",
        (
            option("file", metavar="FILE", help="what outlast backup made"),
            _STORE,
            option("--replace", action="store_true", help="also when the store holds work; a file is kept as it was"),
            DRY_RUN, *CONFIG, JSON, QUIET,
        ), "RestoreOut", ("outlast restore monday.db --dry-run",),
    ),
    Verb(
        ("completion",), "Print what completes commands in a shell.", "completion:completion",
        (option("shell", choices=("bash", "zsh", "fish"), help="the shell"),), "",
        ("outlast completion bash >> ~/.bashrc",),
    ),
    Verb(("version",), "Print the version.", "version:version", (JSON,), "VersionOut"),
)  # fmt: skip
