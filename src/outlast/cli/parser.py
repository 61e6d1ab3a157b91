"""Parses a command line, runs its verb, and is the one door at which every error becomes a line and an exit code."""

import argparse
import io
import os
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Final, NoReturn

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.verb import Verb
from outlast.cli.verbs import VERBS

ALIASES: Final = {"ls": "list"}
SHORT: Final = {"start": ("workflow", "start"), "enqueue": ("task", "enqueue"), "worker": ("worker", "start")}
MEANT: Final = {  # what other tools call it
    "run": ("dev", "worker start"),
    "up": ("dev", "serve"),
    "server": ("serve", "dev"),
    "new": ("init",),
    "create": ("init", "namespace create"),
    "status": ("doctor", "workflow list"),
    "ps": ("worker list", "workflow list"),
    "logs": ("feed", "workflow history"),
    "demo": ("tour",),
}
MEANT_OPTIONS: Final = {  # likewise, the first that the command has
    "--state": ("--status", "--query"),
    "--status": ("--state", "--query"),
    "--where": ("--query",),
    "--filter": ("--query",),
    "--url": ("--server", "--store"),
    "--address": ("--server",),
    "--host": ("--server",),
    "--db": ("--store",),
    "--database": ("--store",),
    "--idempotency-key": ("--key",),
    "--timeout": ("--run-timeout", "--wait"),
    "--follow": ("--watch",),
    "--format": ("--output",),
}
SCHEMA_FLAG: Final = "--json-schema"
WORDS_MAX: Final = 2  # of a verb


class _Parser(argparse.ArgumentParser):
    """Says what is wrong as every command does, and exits with USAGE."""

    def error(self, message: str) -> NoReturn:
        self.exit(exits.complain("invalid_request", f"{message[:1].upper()}{message[1:]}.", f"See {self.prog} --help"))


def run(argv: list[str]) -> int:
    """Parse ``argv``, run the verb, and return the exit code."""
    _open_streams()
    for n, word in enumerate(argv, 1):
        if not word.isprintable() and _is_no_text(word):
            return exits.complain(
                "invalid_request",
                f"Argument {n} of the command is no text in {sys.getfilesystemencoding()}.",
                "Write it in UTF-8, in a locale that has it, as LC_ALL=C.UTF-8.",
            )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a sign shows a question mark
    argv = [ALIASES.get(word, word) if n == 1 else word for n, word in enumerate(argv)]
    verb, rest = _verb_of(argv)
    if verb is None:
        return _without_verb(argv)
    if verb.shape and SCHEMA_FLAG in rest:
        from outlast.cli.shapes import schema_of

        sys.stdout.write(schema_of(verb.shape))
        return exits.DONE
    parser = parser_of(verb)
    try:
        arguments, unknown = parser.parse_known_args(rest)
    except SystemExit as end:
        return int(end.code or 0)
    if unknown:
        return _unknown(verb, parser, unknown[0])
    return _guarded(verb, arguments)


def _open_streams() -> None:
    """Have each standard stream that the caller closed lead nowhere: what is opened later must not take its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - for as long as we run


def _is_no_text(word: str) -> bool:
    """Return whether ``word`` stands for bytes that the encoding of the system does not have."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return True
    return False


def parser_of(verb: Verb) -> argparse.ArgumentParser:
    """Return the parser of one verb."""
    examples = "\n".join(f"  {example}" for example in verb.examples)
    parser = _Parser(
        prog=f"outlast {' '.join(verb.words)}",
        description=verb.help,
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for add in verb.options:
        add(parser)
    return parser


def _guarded(verb: Verb, arguments: Arguments) -> int:
    from outlast.cli.faults import told

    module_name, _, function = verb.run.partition(":")
    try:
        module = __import__(f"outlast.cli.{module_name}", fromlist=[function])
        code = int(getattr(module, function)(arguments))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough. The stream is pointed elsewhere so that the flush at exit is silent.
        sys.stdout = io.StringIO()
        return exits.DONE
    except Exception as error:
        complaint = told(error)
        if complaint is None:
            raise
        if isinstance(error, OSError):
            sys.stdout = io.StringIO()  # it may be what could not be written to, and would be flushed once more
        return exits.complain(*complaint)
    return code


def _verb_of(argv: list[str]) -> tuple[Verb | None, list[str]]:
    for length in (WORDS_MAX, 1):
        words = tuple(argv[:length])
        for verb in VERBS:
            if verb.words == words:
                return verb, argv[length:]
    if argv and argv[0] in SHORT and (argv[0] not in _nouns() or len(argv) == 1):
        return _verb_of([*SHORT[argv[0]], *argv[1:]])
    return None, argv


def _nouns() -> set[str]:
    return {verb.words[0] for verb in VERBS if len(verb.words) > 1}


def _unknown(verb: Verb, parser: argparse.ArgumentParser, said: str) -> int:
    known = [name for action in parser._actions for name in action.option_strings]  # noqa: SLF001 - argparse has no other way
    name = said.partition("=")[0]
    bare = {option.lstrip("-"): option for option in known}
    meant = [option for option in MEANT_OPTIONS.get(name, ()) if option in known]
    near = meant or [bare[word] for word in get_close_matches(name.lstrip("-"), bare, n=1)]
    what = "option" if said.startswith("-") else "argument"
    return exits.complain(
        "invalid_request",
        f'{parser.prog} has no {what} "{name if what == "option" else said}".',
        f"Did you mean {near[0]}?" if near and what == "option" else f"See outlast {' '.join(verb.words)} --help",
    )


def _without_verb(argv: list[str]) -> int:
    if len(argv) > 1 and argv[0] == "help":
        return run([*argv[1:], "--help"])
    if not argv or argv[0] in {"-h", "--help", "help"}:
        sys.stdout.write(_overview(VERBS))
        return exits.DONE if argv else exits.USAGE
    if argv[0] == "--version":
        from outlast.cli.version import version

        return version(Arguments(json=False))
    nouns = tuple(verb for verb in VERBS if verb.words[0] == argv[0])
    if nouns and (len(argv) == 1 or argv[1] in {"-h", "--help"}):
        sys.stdout.write(_overview(nouns))
        return exits.DONE if len(argv) > 1 else exits.USAGE
    said = " ".join(argv[: 2 if nouns else 1])
    known = [" ".join(verb.words) for verb in nouns or VERBS]
    ends = [" ".join(verb.words) for verb in VERBS if len(verb.words) > 1 and verb.words[-1] == said]
    near = (
        list(MEANT.get(said, ()))
        or ends[:3]
        or get_close_matches(" ".join(argv[:2]), known, n=1, cutoff=0.8)
        or get_close_matches(said, known, cutoff=0.4)
    )
    return exits.complain(
        "invalid_request",
        f'There is no command "{said}".',
        f"Did you mean: {', '.join(f'outlast {name}' for name in near)}?" if near else "See outlast --help",
    )


def _overview(verbs: tuple[Verb, ...]) -> str:
    width = max(len(" ".join(verb.words)) for verb in verbs)
    lines: list[str] = []
    before = ""
    for verb in verbs:
        group = verb.words[0] if len(verb.words) > 1 else ""
        if lines and group != before:
            lines.append("")
        before = group
        lines.append(f"  outlast {' '.join(verb.words):<{width}}  {verb.help}")
    return "Durable tasks and workflows in Python.\n\n" + "\n".join(lines) + "\n\nEach command has --help.\n"
