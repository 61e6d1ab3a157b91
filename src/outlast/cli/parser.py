"""The verbs: a table for the parser, and the one door at which every error becomes a line and an exit code."""

import argparse
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, NoReturn

from outlast.cli import exits
from outlast.cli.arguments import Arguments


@dataclass(frozen=True, slots=True)
class Verb:
    """One command: ``run`` names the module below ``outlast.cli`` and the function in it."""

    words: tuple[str, ...]
    help: str
    run: str
    options: tuple[Callable[[argparse.ArgumentParser], object], ...] = ()


def _option(*names: str, **settings: object) -> Callable[[argparse.ArgumentParser], object]:
    return lambda parser: parser.add_argument(*names, **settings)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


_STORE: Final = _option("--store", metavar="URL", help="sqlite:///FILE (default: sqlite:///outlast.db)")
_SERVER: Final = _option("--server", metavar="URL", help="address of a server, for example http://127.0.0.1:7070")
_NAMESPACE: Final = _option("--namespace", default="default", metavar="NAME", help="namespace (default: default)")
_OWN_NAMESPACE: Final = _option("--namespace", default="", metavar="NAME", help="namespace (default: the app's own)")
_JSON: Final = _option("--json", action="store_true", help="JSON on stdout")
_LISTEN: Final = _option("--listen", metavar="HOST:PORT", help="where to listen (default: 127.0.0.1:7070)")
_PORT: Final = _option("--port", metavar="PORT", help="port only; 0 picks a free one")
_ANNOUNCE: Final = _option("--announce-file", metavar="FILE", help="write the address to this file once it is served")
_WHERE: Final = (_STORE, _SERVER, _NAMESPACE)

VERBS: Final = (
    Verb(
        ("serve",),
        "Run the engine and its HTTP API.",
        "serve:serve",
        (
            _STORE,
            _LISTEN,
            _PORT,
            _ANNOUNCE,
            _option("--task-lease", metavar="TIME", help="how long a task stays with a silent worker (default: 30s)"),
            _option("--namespaces", metavar="NAMES", help="the namespaces there are, by commas (default: default)"),
        ),
    ),
    Verb(
        ("worker", "start"),
        "Run the tasks and workflows of an app.",
        "worker:start",
        (
            _option("target", help="app.py, package.module, or either with :app"),
            _SERVER,
            _OWN_NAMESPACE,
            _option("--queue", action="append", metavar="NAME", help="poll this queue; may be given again"),
            _option("--build", default="", metavar="NAME", help="name of this build of the code"),
        ),
    ),
    Verb(
        ("dev",),
        "Engine, HTTP API and worker for one app, on this machine.",
        "dev:dev",
        (_option("target", help="app.py, package.module, or either with :app"), _STORE, _LISTEN, _PORT, _OWN_NAMESPACE),
    ),
    Verb(
        ("workflow", "list"),
        "List workflows, newest first.",
        "workflow:list_",
        (
            *_WHERE,
            _option("--type", default="", help="only of this type"),
            _option("--status", default="", help="only with this status: running, completed, failed, …"),
            _option("--limit", type=int, default=50, help="at most this many (default: 50)"),
            _JSON,
        ),
    ),
    Verb(
        ("workflow", "show"),
        "Show a workflow by its steps.",
        "workflow:show",
        (
            _option("id", help="workflow id"),
            _option("--run", default="", metavar="RUN_ID", help="an earlier run"),
            _option("--raw", action="store_true", help="every event"),
            *_WHERE,
            _JSON,
        ),
    ),
    Verb(
        ("workflow", "signal"),
        "Send a workflow a signal.",
        "workflow:signal",
        (
            _option("id", help="workflow id"),
            _option("name", help="name of the signal"),
            _option("value", nargs="?", default="", help="its value, as JSON"),
            *_WHERE,
        ),
    ),
    Verb(
        ("workflow", "cancel"),
        "Ask a workflow to stop in good order.",
        "workflow:cancel",
        (_option("id", help="workflow id"), _option("--reason", default="", help="why"), *_WHERE),
    ),
    Verb(
        ("why",),
        "Say what a workflow or a task waits for.",
        "why:why",
        (_option("id", help="workflow id or task id"), *_WHERE, _JSON),
    ),
    Verb(("version",), "Print the version.", "version:version"),
)
ALIASES: Final = {"ls": "list"}


class _Parser(argparse.ArgumentParser):
    """Says what is wrong as every command does, and exits with USAGE."""

    def error(self, message: str) -> NoReturn:
        self.exit(exits.complain("invalid_request", f"{message[:1].upper()}{message[1:]}.", f"See {self.prog} --help"))


def run(argv: list[str]) -> int:
    """Parse ``argv``, run the verb, and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a sign shows a question mark
    argv = [ALIASES.get(word, word) if n == 1 else word for n, word in enumerate(argv)]
    words, rest = _words_of(argv)
    verb = next((verb for verb in VERBS if verb.words == words), None)
    if verb is None:
        return _without_verb(argv)
    parser = _Parser(prog=f"outlast {' '.join(words)}", description=verb.help, allow_abbrev=False)
    for option in verb.options:
        option(parser)
    try:
        arguments = parser.parse_args(rest)
    except SystemExit as end:
        return int(end.code or 0)
    return _guarded(verb, arguments)


def _guarded(verb: Verb, arguments: Arguments) -> int:
    from outlast.cli.faults import told

    module_name, _, function = verb.run.partition(":")
    try:
        module = __import__(f"outlast.cli.{module_name}", fromlist=[function])
        return int(getattr(module, function)(arguments))
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough. The descriptor is pointed elsewhere so that the flush at exit is silent.
        sys.stderr.close()
        return exits.DONE
    except Exception as error:
        complaint = told(error)
        if complaint is None:
            raise
        return exits.complain(*complaint)


def _words_of(argv: list[str]) -> tuple[tuple[str, ...], list[str]]:
    for length in (2, 1):
        words = tuple(argv[:length])
        if any(verb.words == words for verb in VERBS):
            return words, argv[length:]
    return (), argv


def _without_verb(argv: list[str]) -> int:
    if not argv or argv[0] in {"-h", "--help", "help"}:
        sys.stdout.write(_overview(VERBS))
        return exits.DONE if argv else exits.USAGE
    if argv[0] == "--version":
        from outlast.cli.version import version

        return version(Arguments())
    nouns = [verb for verb in VERBS if verb.words[0] == argv[0]]
    if nouns and (len(argv) == 1 or argv[1] in {"-h", "--help"}):
        sys.stdout.write(_overview(tuple(nouns)))
        return exits.DONE if len(argv) > 1 else exits.USAGE
    said = " ".join(argv[: 2 if nouns else 1])
    known = [" ".join(verb.words) for verb in nouns or VERBS]
    near = get_close_matches(" ".join(argv[:2]), known, n=1, cutoff=0.8) or get_close_matches(said, known, cutoff=0.4)
    return exits.complain(
        "invalid_request",
        f'There is no command "{said}".',
        f"Did you mean: {', '.join(near)}?" if near else "See outlast --help",
    )


def _overview(verbs: tuple[Verb, ...]) -> str:
    width = max(len(" ".join(verb.words)) for verb in verbs)
    lines = [f"  outlast {' '.join(verb.words):<{width}}  {verb.help}" for verb in verbs]
    return "Durable tasks and workflows in Python.\n\n" + "\n".join(lines) + "\n\nEach command has --help.\n"
