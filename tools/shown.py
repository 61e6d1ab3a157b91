"""Compares what a page shows with what a program prints, where ids, times and sizes differ each time.

``...`` on the page stands for anything; a line of it alone for any lines. Spaces between words may be more or fewer.
Where the page shows an id or a process, the real one is remembered, so that a later command of the page can name it.
"""

import re
from collections.abc import Iterator
from typing import Final

MASKS: Final = {
    "id": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "operation": r"op_[0-9a-f]{20,}",
    "process": r"\b\d+(?=@[\w.-]+)",
    "host": r"(?<=\d)@[\w.-]+",
    "date": r"\d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d(?::\d\d)?",
    "instant": r"\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|\+00:00)?",
    "clock": r"\b\d\d:\d\d:\d\d(?:\.\d+)?",
    "span": r"\b\d+(?:\.\d+)? (?:ms|s|min|m|h|d)\b(?: \d+ (?:s|m|h)\b)?",
    "size": r"\b[\d,.]+ (?:bytes|KB|MB|GB)\b",
    "attempt": r"(?<=attempt )\d+|\b\d+(?= of \d+)",
    "path": r"(?<!\w)/(?:[\w.-]+/)+(?=[\w-]+\.py)",
    "room": r"\b\d+ / \d+\b",
    "loopback": r"127\.0\.0\.1:\d+",
}
REMEMBERED: Final = frozenset({"id", "operation", "process"})
TOKEN: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in MASKS.items()))
GAP: Final = re.compile(r"\.\.\.|…")
# What the shell says of what it runs beside itself, whenever it likes.
NOTICES: Final = re.compile(r"^(?:\[\d+\][+-]? .*|\^C.*|Killed|Terminated)\n", re.MULTILINE)


def pattern_of(lines: list[str]) -> tuple[re.Pattern[str], list[str]]:
    """Return the pattern of what ``lines`` show, and the tokens of the page that its groups stand for."""
    pieces: list[str] = []
    tokens: list[str] = []
    for line in lines:
        if GAP.fullmatch(line.strip()):
            pieces.append(r"(?:.*\n)*?")
            continue
        pieces += [*_pieces(line.strip(), tokens), r"[ \t]*\n"]
    return re.compile("".join(pieces)), tokens


def _pieces(line: str, tokens: list[str]) -> Iterator[str]:
    yield r"[ \t]*"
    place = 0
    for found in TOKEN.finditer(line):
        yield _literal(line[place : found.start()])
        kind = found.lastgroup or ""
        if kind in REMEMBERED:
            tokens.append(found[0])
            yield f"({MASKS[kind]})"
        else:
            yield f"(?:{MASKS[kind]})"
        place = found.end()
    yield _literal(line[place:])


def _literal(text: str) -> str:
    parts = GAP.split(text)
    return r"[^\n]*".join(r"[ \t]+".join(map(re.escape, re.split(r"[ \t]+", part))) for part in parts)


def plain(printed: str) -> str:
    """Return ``printed`` without the notices of the shell and blank lines around it, and with a line end at its end."""
    told = NOTICES.sub("", printed if printed.endswith("\n") else printed + "\n").strip("\n")
    return told and f"{told}\n"


def agree(shown: list[str], printed: str, known: dict[str, str], *, whole: bool) -> int | None:
    """Say up to where ``printed`` is what was ``shown``: all of it, or, unless ``whole``, some lines of it in a row.

    None if it is not. ``known`` gets the real ids and processes for those of the page.
    """
    wanted = [line for line in shown if not NOTICES.fullmatch(line + "\n")]
    pattern, tokens = pattern_of(wanted)
    found = pattern.fullmatch(plain(printed)) if whole else pattern.search(printed)
    if found is None:
        return None
    known.update(zip(tokens, found.groups(), strict=True))
    return found.end()
