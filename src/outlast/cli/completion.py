"""``outlast completion``: words and options of every command for a shell, read off the table of commands."""

from collections.abc import Iterable
from typing import Final

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.parser import parser_of
from outlast.cli.verb import Verb
from outlast.cli.verbs import VERBS

BASH: Final = """_outlast() {{
    local line="${{COMP_WORDS[*]:1:COMP_CWORD-1}}" cur="${{COMP_WORDS[COMP_CWORD]}}" words=""
    case "$line" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    [ -n "$COMPREPLY" ] || COMPREPLY=($(compgen -f -- "$cur"))
}}
complete -F _outlast outlast
"""
ZSH: Final = "autoload -U +X bashcompinit && bashcompinit\n"


def completion(arguments: Arguments) -> int:
    """Print the script."""
    if arguments.shell == "fish":
        print("\n".join(_fish()))
        return exits.DONE
    cases = "\n".join(f"        {pattern}) words={_quoted(words)} ;;" for pattern, words in _cases())
    print((ZSH if arguments.shell == "zsh" else "") + BASH.format(cases=cases), end="")
    return exits.DONE


def _cases() -> Iterable[tuple[str, str]]:
    """Give a pattern of what was typed, and what may follow; the longer patterns first."""
    for verb in sorted(VERBS, key=lambda verb: -len(verb.words)):
        line = " ".join(verb.words)
        yield f'"{line}"|"{line} "*', " ".join(_options(verb))
    for noun in sorted({verb.words[0] for verb in VERBS if len(verb.words) > 1}):
        yield f'"{noun}"', " ".join(verb.words[1] for verb in VERBS if verb.words[0] == noun and len(verb.words) > 1)
    yield '""', " ".join(dict.fromkeys(verb.words[0] for verb in VERBS))


def _fish() -> Iterable[str]:
    firsts = list(dict.fromkeys(verb.words[0] for verb in VERBS))
    yield f"complete -c outlast -f -n __fish_use_subcommand -a {_quoted(' '.join(firsts))}"
    for verb in VERBS:
        seen = " and ".join(f"__fish_seen_subcommand_from {word}" for word in verb.words)
        seen = seen.replace(" and ", "; and ")
        if len(verb.words) > 1:
            noun, word = verb.words
            yield f"complete -c outlast -f -n '__fish_seen_subcommand_from {noun}' -a {word} -d {_quoted(verb.help)}"
        for name in _options(verb):
            if name.startswith("--"):
                yield f"complete -c outlast -n '{seen}' -l {name[2:]}"


def _options(verb: Verb) -> list[str]:
    found: list[str] = []
    for action in parser_of(verb)._actions:  # noqa: SLF001 - argparse has no other way
        found += action.option_strings or [str(choice) for choice in action.choices or ()]
    return found


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
