"""A filter as it was written: the grammar's tree, with the column of each part, before any name is looked up."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, cast

from outlast.core import limits
from outlast.core.errors import Invalid, TooLarge

if TYPE_CHECKING:
    from lark import Token, Tree

HELP: Final = 'For example: type = order and state in (failed, timed_out) and started > 2h ago and tag.plan = "pro"'

_SAID: Final = {
    "WORD": "a name or a value", "STRING": "text in quotes", "OPERATOR": "=, !=, <, <=, > or >=", "LIKE": "~",
    "_IN": "in", "NOT": "not", "_EXISTS": "exists", "_AND": "and", "_OR": "or", "LPAR": "(", "RPAR": ")",
    "COMMA": ",", "$END": "the end", "AGO": "ago", "AHEAD": "ahead",
}  # fmt: skip


@dataclass(slots=True, frozen=True)
class Text:
    """A value: what stands there, whether in quotes, and whether `ago` (-1) or `ahead` (1) follows."""

    text: str
    column: int
    quoted: bool = False
    from_now: int = 0


@dataclass(slots=True, frozen=True)
class Named:
    """A field by the name that was written, with the quoted part of ``tag."two words"`` apart."""

    name: str
    column: int
    quoted: str | None = None


@dataclass(slots=True, frozen=True)
class Term:
    """``operator`` is one of the comparisons, "in", "~" or "exists"."""

    field: Named
    operator: str
    values: tuple[Text, ...]
    column: int


@dataclass(slots=True, frozen=True)
class Group:
    """``word`` is "and", "or" or "not"."""

    word: str
    items: tuple["Written", ...]


Written = Term | Group


def parse(text: str) -> Written | None:
    """Return what ``text`` says, None for nothing.

    Raises:
        TooLarge: It is longer, or deeper, or has more parts than a filter may.
        Invalid: It cannot be read ("invalid_query"); ``facts`` has the column, from 1.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise wrong(error.start + 1, "there is a lone surrogate", remedy="Write text that is valid Unicode.") from None
    if size > limits.QUERY_BYTES_MAX:
        raise TooLarge(
            "limit_exceeded",
            f"The filter has {size:,} bytes; {limits.QUERY_BYTES_MAX:,} are allowed.",
            remedy="Write a shorter one, or ask several times.",
        )
    if not text.strip():
        return None
    from lark import exceptions  # noqa: PLC0415 - a tenth of a second that most engines never need

    try:
        tree = _grammar()(text)
    except exceptions.UnexpectedToken as error:
        token = cast("Token", error.token)  # lark's own types know less
        at_end = token.type == "$END"
        found = "the end" if at_end else f"{str(token)!r}"
        column = len(text.rstrip()) + 1 if at_end else _column(token)
        fact = f"{found} stands where {_said(error.expected)} is expected"
        raise wrong(column, fact, remedy=HELP) from None
    except exceptions.UnexpectedCharacters as error:
        at = cast("int", error.pos_in_stream)
        raise wrong(at + 1, f"{text[at]!r} has no place there", remedy=HELP) from None
    return _Builder().build(cast("Tree[Token]", tree.children[0]))


def wrong(column: int, fact: str, *, remedy: str) -> Invalid:
    """Return what is wrong with a filter, and where."""
    return Invalid("invalid_query", f"Column {column} of the filter: {fact}.", remedy=remedy, column=str(column))


@cache
def _grammar() -> "Callable[[str], Tree[Token]]":
    from lark import Lark  # noqa: PLC0415

    grammar = files("outlast.query").joinpath("grammar.lark").read_text(encoding="utf-8")
    lark = Lark(grammar, parser="lalr", propagate_positions=True)
    return cast("Callable[[str], Tree[Token]]", lark.parse)  # lark's own types know less


def _said(expected: "set[str]") -> str:
    names = sorted(dict.fromkeys(_SAID.get(name, name) for name in expected))
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


class _Builder:
    """Trees of the grammar to ``Written``, counting."""

    def __init__(self) -> None:
        self._terms = 0

    def build(self, tree: "Tree[Token]", depth: int = 1) -> Written:
        if depth > limits.QUERY_DEPTH_MAX:
            raise TooLarge(
                "limit_exceeded",
                f"The filter is nested deeper than {limits.QUERY_DEPTH_MAX} levels.",
                remedy="Write it with fewer brackets.",
            )
        children = cast("list[Any]", tree.children)
        while tree.data in {"any", "all"} and len(children) == 1:  # brackets around one thing, however many
            tree = children[0]
            children = cast("list[Any]", tree.children)
        match str(tree.data):
            case "any" | "all" as word:
                return Group("or" if word == "any" else "and", tuple(self.build(one, depth + 1) for one in children))
            case "negation":
                return Group("not", (self.build(children[1], depth + 1),))
            case _:
                return self._term(tree)

    def _term(self, tree: "Tree[Token]") -> Written:
        self._terms += 1
        if self._terms > limits.QUERY_TERMS_MAX:
            raise TooLarge(
                "limit_exceeded",
                f"The filter has more than {limits.QUERY_TERMS_MAX} comparisons.",
                remedy="Use in (...), or ask several times.",
            )
        named, *rest = cast("list[Any]", tree.children)
        field_ = _named(named)
        match str(tree.data):
            case "compare":
                return Term(field_, str(rest[0]), (_text(rest[1]),), _column(rest[0]))
            case "prefix":
                return Term(field_, "~", (_text(rest[1]),), _column(rest[0]))
            case "exists":
                return Term(field_, "exists", (), field_.column)
            case _:
                negated = getattr(rest[0], "type", "") == "NOT"
                term = Term(field_, "in", tuple(_text(one) for one in rest[negated:]), field_.column)
                return Group("not", (term,)) if negated else term


def _column(token: "Token") -> int:
    return (token.start_pos or 0) + 1


def _named(tree: "Tree[Token]") -> Named:
    word, *quoted = cast("list[Token]", tree.children)
    return Named(str(word), _column(word), _unquoted(str(quoted[0])) if quoted else None)


def _text(tree: "Tree[Token]") -> Text:
    first, *rest = cast("list[Token]", tree.children)
    column = _column(first)
    if first.type == "STRING":
        return Text(_unquoted(str(first)), column, quoted=True)
    return Text(str(first), column, from_now=(1 if rest[0].type == "AHEAD" else -1) if rest else 0)


def _unquoted(text: str) -> str:
    inner, plain, escaped = text[1:-1], list[str](), False
    for character in inner:
        if escaped or character != "\\":
            plain.append(character)
            escaped = False
        else:
            escaped = True
    return "".join(plain)
