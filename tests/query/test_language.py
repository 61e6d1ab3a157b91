"""The filter language: what it says, what it refuses and where, and that any printed filter reads back the same."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core import limits
from outlast.core.errors import Invalid, Refusal, TooLarge
from outlast.core.units import DAY, HOUR, MINUTE, SECOND, Instant
from outlast.query.check import filter_of, instant_of
from outlast.query.fields import RUN_FIELDS, STATUSES, TASK_FIELDS, label
from outlast.query.predicate import All, Compare, Exists, Kind, Not, OneOf, Operator, Predicate, Prefix, Some

NOW = Instant(1_796_025_600 * SECOND)  # 2026-11-30T08:00:00Z
TYPE, STATE, STARTED = RUN_FIELDS["type"], RUN_FIELDS["state"], RUN_FIELDS["started"]
EQUAL, MORE = Operator.EQUAL, Operator.GREATER


def of_runs(text: str) -> Predicate | None:
    """Return what ``text`` asks of runs."""
    return filter_of(text, RUN_FIELDS, now=NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("  \n ", None),
        ("type = order", Compare(TYPE, EQUAL, "order")),
        ('type = "two words"', Compare(TYPE, EQUAL, "two words")),
        (r"type = 'it\'s'", Compare(TYPE, EQUAL, "it's")),
        ("type != order", Not(Compare(TYPE, EQUAL, "order"))),
        ("state in (failed, TIMED_OUT)", OneOf(STATE, ("failed", "timed_out"))),
        ("state NOT IN (failed)", Not(OneOf(STATE, ("failed",)))),
        ("status = failed", Compare(STATE, EQUAL, "failed")),
        ('id ~ "order-*"', Prefix(RUN_FIELDS["id"], "order-")),
        ("closed exists", Exists(RUN_FIELDS["closed"])),
        ("tag.plan = pro", Compare(label("tag", "plan"), EQUAL, "pro")),
        ('tag."two words" exists', Exists(label("tag", "two words"))),
        ("tag.order = 17", Compare(label("tag", "order"), EQUAL, "17")),
        ("tag.vip = true", Compare(label("tag", "vip"), EQUAL, "true")),
        ("attr.amount > 10", Compare(label("attr", "amount"), MORE, 10)),
        ("attr.amount > 10.5", Compare(label("attr", "amount"), MORE, 10.5)),
        ('attr.amount = "10"', Compare(label("attr", "amount"), EQUAL, "10")),
        ("attr.vip = true", Compare(label("attr", "vip"), EQUAL, True)),
        ('attr.vip = "true"', Compare(label("attr", "vip"), EQUAL, "true")),
        ("type = a and type = b or type = c", Some((
            All((Compare(TYPE, EQUAL, "a"), Compare(TYPE, EQUAL, "b"))), Compare(TYPE, EQUAL, "c"),
        ))),
        ("type = a and (type = b or not type = c)", All((
            Compare(TYPE, EQUAL, "a"), Some((Compare(TYPE, EQUAL, "b"), Not(Compare(TYPE, EQUAL, "c")))),
        ))),
        ("type = and", Compare(TYPE, EQUAL, "and")),
        ("(((type = a)))", Compare(TYPE, EQUAL, "a")),
    ],
)  # fmt: skip
def test_a_filter_means_what_it_says(text: str, expected: Predicate | None) -> None:
    assert of_runs(text) == expected


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("now", NOW),
        ("2h ago", NOW - 2 * HOUR),
        ("1.5h AGO", NOW - 90 * MINUTE),
        ("250ms ago", NOW - SECOND // 4),
        ("2w ago", NOW - 14 * DAY),
        ("30s ahead", NOW + 30 * SECOND),
        ("today", NOW - 8 * HOUR),
        ("yesterday", NOW - 32 * HOUR),
        ("2026-11-30", NOW - 8 * HOUR),
        ("2026-11-30T08:00:00Z", NOW),
        ("2026-11-30t09:00:00.000000001+01:00", NOW + 1),
        ("2026-11-30T08:00Z", NOW),
        ("1969-12-31T23:59:59.5Z", -SECOND // 2),
        ("9999-12-31T00:00:00Z", 2**63 - 1),
    ],
)
def test_a_point_in_time_is_read_in_every_form(text: str, at: int) -> None:
    assert instant_of(text, now=NOW) == at
    assert of_runs(f"started > {text}") == Compare(STARTED, MORE, at)


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("started >", 10, "the end stands where a name or a value or text in quotes is expected"),
        ("type order", 6, "'order' stands where"),
        ("type = a type = b", 10, "'type' stands where"),
        ("(type = a", 10, "the end stands where"),
        ("type = a)", 9, "')' stands where"),
        ("type = a\n and typ = b", 15, "Did you mean type?"),
        ("wat = 1", 1, "There are id,"),
        ("state = faild", 9, "Did you mean failed?"),
        ("state = 7", 9, "It is one of running,"),
        ("state > failed", 7, "state has no order"),
        ("attr.vip < true", 10, "attr.vip has no order"),
        ("id ~ order", 6, "is no beginning with one * at its end"),
        ('id ~ "a*b*"', 6, "is no beginning"),
        ("started ~ a*", 9, "started is no text"),
        ("started > yes", 11, "'yes' is no point in time"),
        ("started > 2026-13-01", 11, "is no point in time"),
        ("started > 2x ago", 11, "'2x' is no length of time"),
        ("started > 9999999w ago", 11, "longer than 100 years"),
        ("events > many", 10, "events is a number"),
        ('events > "5"', 10, "events is a number"),
        ("attr.n = 9223372036854775808", 10, "is too large"),
        ("attr.n = 1e999", 10, "is too large"),
        ("type = 2h ago", 8, "type is no time"),
        ("tag. = 3", 1, "does not name a tag"),
        ('tag.a"b" = 3', 1, "does not name a tag"),
        ('type "x" = 3', 1, "no value can follow type"),
        ('"x"', 1, "stands where"),
        ("type = 'open", 8, "has no place there"),
        ("type = \ud800", 8, "lone surrogate"),
        (f"state in ({', '.join(['failed'] * 201)})", 1611, "200 are allowed"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_column(text: str, column: int, said: str) -> None:
    with pytest.raises(Invalid) as caught:
        of_runs(text)

    assert (caught.value.code, caught.value.facts["column"]) == ("invalid_query", str(column))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "type = " + "a" * limits.QUERY_BYTES_MAX,
        "not " * limits.QUERY_DEPTH_MAX + "type = a",
        "not " * 900 + "type = a",
        " or ".join(["type = a"] * (limits.QUERY_TERMS_MAX + 1)),
        "(type = a or " * 40 + "type = a" + ")" * 40,
    ],
    ids=["bytes", "depth", "much depth", "terms", "brackets"],
)
def test_a_filter_has_bounds_in_each_direction(text: str) -> None:
    with pytest.raises(TooLarge) as caught:
        of_runs(text)

    assert caught.value.code == "limit_exceeded"


def test_brackets_around_one_thing_do_not_count() -> None:
    assert of_runs("(" * 2_000 + "type = a" + ")" * 2_000) == Compare(TYPE, EQUAL, "a")


WORDS = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBERS = st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)


def quoted(text: str) -> str:
    """Return ``text`` as the language writes it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def printed(value: Any) -> str:
    """Return a value of a label."""
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value) if isinstance(value, str) else repr(value)


@st.composite
def terms(draw: st.DrawFn) -> tuple[str, Predicate]:
    """Draw a comparison as text and as what it means."""
    field = draw(st.sampled_from([*TASK_FIELDS.values(), label("tag", "plan"), label("attr", "two words")]))
    name = field.name if " " not in field.name else 'attr."two words"'
    value: Any
    match field.kind:
        case Kind.CHOICE:
            value = draw(st.sampled_from(field.choices))
            return f"{name} = {value}", Compare(field, EQUAL, value)
        case Kind.INSTANT:
            value = draw(st.integers(0, 10**6))
            return f"{name} > {value}s ago", Compare(field, MORE, NOW - value * SECOND)
        case Kind.NUMBER:
            value = draw(NUMBERS)
            return f"{name} <= {value!r}", Compare(field, Operator.LESS_OR_EQUAL, value)
        case Kind.TEXT:
            value = draw(WORDS)
            return f"{name} = {quoted(value)}", Compare(field, EQUAL, value)
        case Kind.LABEL:
            kinds = WORDS if name.startswith("tag.") else WORDS | NUMBERS | st.booleans()
            values = draw(st.lists(kinds, min_size=1, max_size=3))
            return f"{name} in ({', '.join(map(printed, values))})", OneOf(field, tuple(values))


def grouped(inner: st.SearchStrategy[tuple[str, Predicate]]) -> st.SearchStrategy[tuple[str, Predicate]]:
    """Draw a group of what is in it."""

    def joined(word: str, made: type[All | Some]) -> st.SearchStrategy[tuple[str, Predicate]]:
        return st.lists(inner, min_size=2, max_size=3).map(
            lambda items: (f"({f' {word} '.join(text for text, _ in items)})", made(tuple(p for _, p in items)))
        )

    return joined("and", All) | joined("or", Some) | inner.map(lambda item: (f"not ({item[0]})", Not(item[1])))


@given(st.recursive(terms(), grouped, max_leaves=12))
def test_what_is_printed_reads_back_the_same(filter: tuple[str, Predicate]) -> None:
    text, predicate = filter

    try:
        found = filter_of(text, TASK_FIELDS, now=NOW)
    except TooLarge:
        return  # drawn over a bound

    assert found == predicate


@given(st.text() | st.text(alphabet=" ()=<>!~'\"\\,.abtypestainorg*0123456789-"))
def test_any_text_is_read_or_refused(text: str) -> None:
    refusal: Refusal | None = None
    try:
        of_runs(text)
    except Refusal as caught:
        refusal = caught

    assert refusal is None or (refusal.code in {"invalid_query", "limit_exceeded"} and refusal.remedy)


def test_every_status_can_be_asked_for() -> None:
    assert [of_runs(f"state = {status}") for status in STATUSES] == [Compare(STATE, EQUAL, one) for one in STATUSES]
