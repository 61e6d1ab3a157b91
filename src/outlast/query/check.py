"""A written filter to a checked one: names are looked up, and each value becomes one of its field's type."""

import re
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final

from outlast.core import limits
from outlast.core.errors import Invalid
from outlast.core.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Instant
from outlast.query.fields import LABELS, label
from outlast.query.predicate import (
    All,
    Compare,
    Exists,
    Field,
    Kind,
    Not,
    OneOf,
    Operator,
    Predicate,
    Prefix,
    Some,
    Value,
)
from outlast.query.written import Named, Term, Text, Written, parse, wrong

UNITS: Final = {"ms": MILLISECOND, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
WHOLE_MAX: Final = 2**63 - 1  # what a database's whole number holds

_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_WHOLE: Final = re.compile(r"[+-]?\d+")
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_INSTANT: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2})(:\d{2})?(?:\.(\d{1,9}))?([Zz]|[+-]\d{2}:\d{2})",
)
_ALIASES: Final = {"status": "state"}


def filter_of(text: str, fields: dict[str, Field], *, now: Instant) -> Predicate | None:
    """Return what ``text`` asks of rows that have ``fields``; None for an empty text, which asks for nothing.

    ``now`` is what "2h ago" counts from. Raises Invalid or TooLarge, with the column in ``facts``.
    """
    written = parse(text)
    return None if written is None else _Check(fields, now).predicate(written)


def instant_of(text: str, *, now: Instant) -> Instant:
    """Return the instant that ``text`` alone names: "2h ago", "now", a date, or an instant of RFC 3339.

    Raises Invalid for anything else.
    """
    words = text.split()
    from_now = {"ago": -1, "ahead": 1}.get(words[1].lower(), 0) if len(words) == 2 else 0  # noqa: PLR2004
    if len(words) > 1 and not from_now:
        raise _no_instant(Text(text, 1))
    return _instant(Text(words[0] if words else "", 1, from_now=from_now), now)


class _Check:
    """The fields that there are, and the instant of the question."""

    def __init__(self, fields: dict[str, Field], now: Instant) -> None:
        self._fields = fields
        self._now = now

    def predicate(self, written: Written) -> Predicate:
        if isinstance(written, Term):
            return self._term(written)
        items = tuple(self.predicate(item) for item in written.items)
        match written.word:
            case "not":
                return Not(items[0])
            case "and":
                return All(items)
            case _:
                return Some(items)

    def _term(self, term: Term) -> Predicate:
        field = self._field(term.field)
        match term.operator:
            case "exists":
                return Exists(field)
            case "~":
                return _prefix(field, term)
            case "in":
                return OneOf(field, tuple(self._value(field, text) for text in _bounded(term.values)))
            case "!=":
                return Not(Compare(field, Operator.EQUAL, self._value(field, term.values[0])))
            case operator:
                value = self._value(field, term.values[0])
                ordered = field.kind is not Kind.CHOICE and not isinstance(value, bool)
                if operator != "=" and not ordered:
                    raise wrong(
                        term.column,
                        f"{field.name} has no order, so that {operator} says nothing of it",
                        remedy="Use = or !=, or in (...).",
                    )
                return Compare(field, Operator(operator), value)

    def _field(self, named: Named) -> Field:
        group, dot, rest = named.name.partition(".")
        if dot and group in LABELS:
            name = named.quoted if named.quoted is not None and not rest else rest
            if name and (named.quoted is None or not rest):
                return label(group, name)
            raise wrong(
                named.column,
                f"{named.name} does not name a {'tag' if group == 'tag' else 'search attribute'}",
                remedy=f'Write {group}.plan, or {group}."two words".',
            )
        if named.quoted is not None:
            raise wrong(
                named.column, f"no value can follow {named.name} without a comparison", remedy="Write = before it."
            )
        name = _ALIASES.get(named.name, named.name)
        if name in self._fields:
            return self._fields[name]
        known = [*self._fields, *(f"{group}.NAME" for group in LABELS)]
        near = get_close_matches(named.name, self._fields, n=1)
        raise wrong(
            named.column,
            f"there is no field {named.name}",
            remedy=_nearest(near) + f"There are {', '.join(known)}.",
        )

    def _value(self, field: Field, text: Text) -> Value:
        match field.kind:
            case Kind.INSTANT:
                return _instant(text, self._now)
            case Kind.NUMBER:
                number = None if text.quoted or text.from_now else _number(text)
                if number is None:
                    raise wrong(text.column, f"{field.name} is a number, not {text.text!r}", remedy="Write a number.")
                return number
            case Kind.CHOICE:
                return _choice(field, text)
            case Kind.TEXT:
                _plain(field, text)
                return text.text
            case Kind.LABEL:
                _plain(field, text)
                return text.text if field.column.startswith("tag.") else _label_value(text)  # tags are text


def _plain(field: Field, text: Text) -> None:
    if text.from_now:
        raise wrong(
            text.column,
            f"{field.name} is no time",
            remedy="Only fields of time compare with what is ago or ahead; times in tags compare as text, in quotes.",
        )


def _choice(field: Field, text: Text) -> str:
    word = text.text.lower()
    if word in field.choices and not text.from_now:
        return word
    near = get_close_matches(word, field.choices, n=1)
    raise wrong(
        text.column,
        f"{field.name} is never {text.text!r}",
        remedy=_nearest(near) + f"It is one of {', '.join(field.choices)}.",
    )


def _nearest(near: list[str]) -> str:
    return f"Did you mean {near[0]}? " if near else ""


def _label_value(text: Text) -> Value:
    if text.quoted:
        return text.text
    if text.text.lower() in {"true", "false"}:
        return text.text.lower() == "true"
    number = _number(text)
    return text.text if number is None else number


def _number(text: Text) -> int | float | None:
    if _WHOLE.fullmatch(text.text):
        if len(text.text) <= len(str(WHOLE_MAX)) + 1 and abs(whole := int(text.text)) <= WHOLE_MAX:
            return whole
        raise wrong(
            text.column, f"the number {text.text[:40]} is too large", remedy="Whole numbers have up to 63 bits."
        )
    if not _NUMBER.fullmatch(text.text):
        return None
    number = float(text.text)
    if abs(number) == float("inf"):
        raise wrong(text.column, f"the number {text.text[:40]} is too large", remedy="Write a smaller one.")
    return number


def _prefix(field: Field, term: Term) -> Predicate:
    text = term.values[0]
    if field.kind not in {Kind.TEXT, Kind.LABEL}:
        raise wrong(term.column, f"{field.name} is no text, so that ~ says nothing of it", remedy="Use = or in (...).")
    _plain(field, text)
    if not text.text.endswith("*") or "*" in text.text[:-1]:
        raise wrong(
            text.column,
            f"{text.text!r} is no beginning with one * at its end",
            remedy=f'Write {field.name} ~ "order-*", or use = for the whole.',
        )
    return Prefix(field, text.text[:-1])


def _bounded(values: tuple[Text, ...]) -> tuple[Text, ...]:
    if len(values) > limits.QUERY_VALUES_MAX:
        raise wrong(
            values[limits.QUERY_VALUES_MAX].column,
            f"in (...) has {len(values)} values; {limits.QUERY_VALUES_MAX} are allowed",
            remedy="Ask several times.",
        )
    return values


def _instant(text: Text, now: Instant) -> Instant:
    word = text.text
    if text.from_now:
        span = _SPAN.fullmatch(word)
        if span is None:
            raise wrong(
                text.column, f"{word!r} is no length of time", remedy="Write 30s, 15m, 2h, 7d or 2w before ago."
            )
        length = round(float(span[1]) * UNITS[span[2]])
        if length > limits.SPAN_MAX:
            raise wrong(text.column, f"{word} is longer than 100 years", remedy="Write a shorter one.")
        return _storable(now + text.from_now * length)
    if word.lower() == "now":
        return now
    if word.lower() in {"today", "yesterday"}:
        return Instant(now - now % DAY - (DAY if word.lower() == "yesterday" else 0))
    if _DATE.fullmatch(word):
        return _seconds_of(f"{word}T00:00:00+00:00", text)
    if found := _INSTANT.fullmatch(word):
        date, minutes, seconds, fraction, zone = found.groups()
        offset = "+00:00" if zone in "Zz" else zone
        whole = _seconds_of(f"{date}T{minutes}{seconds or ':00'}{offset}", text)
        return _storable(whole + int((fraction or "").ljust(9, "0")))
    raise _no_instant(text)


def _seconds_of(text: str, written: Text) -> Instant:
    try:
        at = datetime.fromisoformat(text)
        return _storable(int((at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * SECOND)
    except (ValueError, OverflowError):
        raise _no_instant(written) from None


def _storable(at: int) -> Instant:
    """Rows hold instants of 1678 to 2262; what lies outside compares as the end of that time."""
    return Instant(max(-WHOLE_MAX, min(at, WHOLE_MAX)))


def _no_instant(text: Text) -> Invalid:
    return wrong(
        text.column,
        f"{text.text!r} is no point in time",
        remedy="Write 2h ago, today, 2026-11-30, or 2026-11-30T08:00:00Z.",
    )
