"""Filters: every store finds what the predicate says, and looks at no more rows than it was allowed to."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlast.core.replies import TaskState
from outlast.core.units import Instant
from outlast.core.writes import Batch, LabelsRow
from outlast.query.check import filter_of
from outlast.query.evaluate import matches
from outlast.query.fields import RUN_FIELDS, TASK_FIELDS, label
from outlast.query.predicate import (
    All,
    Compare,
    Exists,
    Kind,
    Not,
    OneOf,
    Operator,
    Predicate,
    Prefix,
    Some,
    Value,
)
from outlast.store.base import Place, RunFilter, TaskFilter
from outlast.store.memory.store import MemoryStore
from outlast.store.postgres.store import PostgresStore
from outlast.store.sqlite.store import SqliteStore
from tests.store.cluster import Cluster
from tests.store.kept import Kept
from tests.store.rows import run_row, task_row

NOW = Instant(1_000_000_000_000)


def labels(id: str, *items: tuple[str, Value], of: str = "run", at: int = 100) -> LabelsRow:
    """Return what an entity can be found by."""
    return LabelsRow(id=id, namespace="default", of=of, at=at, items=items)


def write(kept: Kept, *rows: Any, marks: list[LabelsRow], new: bool = True) -> None:
    """Commit rows with their labels."""
    batch: Batch = kept.next_batch(*rows, new=new)
    batch.labels = {row.id: row for row in marks}
    assert kept.commit(batch) == "done", getattr(kept.store, "last_fault", "")


def runs(kept: Kept, query: str, **wanted: Any) -> str:
    """Return the ids of runs that match, in order."""
    where = filter_of(query, RUN_FIELDS, now=NOW)
    found = kept.run(kept.store.list_runs(RunFilter(namespace="default", where=where, **wanted)))
    return "".join(row.run_id for row in found.rows)


def tasks(kept: Kept, query: str, **wanted: Any) -> str:
    """Return the ids of tasks that match, in order."""
    where = filter_of(query, TASK_FIELDS, now=NOW)
    found = kept.run(kept.store.list_tasks(TaskFilter(namespace="default", where=where, **wanted)))
    return "".join(row.task_id for row in found.rows)


@pytest.fixture
def some(kept: Kept) -> Kept:
    """Five runs and four tasks, most with labels."""
    second = 1_000_000_000
    write(
        kept,
        run_row("a", started_at=100 * second, type="order", workflow_id="order-1", next_event_id=5),
        run_row("b", started_at=200 * second, type="mail", workflow_id="mail-1", closed_at=300 * second, status="failed"),
        run_row("c", started_at=300 * second, type="order", workflow_id="order-2", build="v2"),
        run_row("d", started_at=400 * second, workflow_id="order-22", closed_at=401 * second, status="completed"),
        run_row("e", started_at=500 * second, workflow_id="Order-3", queue="bulk"),
        task_row("p", enqueued_at=100 * second, priority=1, attempt=2, worker="w1"),
        task_row("q", enqueued_at=200 * second, priority=3, state=TaskState.FAILED, closed_at=300 * second),
        task_row("r", enqueued_at=300 * second, run_at=999 * second),
        task_row("s", enqueued_at=400 * second, priority=5, queue="bulk"),
        marks=[
            labels("a", ("tag.plan", "pro"), ("attr.amount", 10), ("attr.vip", True), at=100 * second),
            labels("b", ("tag.plan", "free"), ("attr.amount", 10.5), at=200 * second),
            labels("c", ("tag.plan", "pro"), ("attr.amount", "10"), ("attr.vip", 1), at=300 * second),
            labels("d", ("attr.colour", "red"), ("attr.colour", "blue"), at=400 * second),
            labels("p", ("tag.plan", "pro"), of="task", at=100 * second),
        ],
    )  # fmt: skip
    return kept


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("type = order", "ca"),
        ("type != order", "edb"),
        ("state = failed", "b"),
        ("state in (failed, completed)", "db"),
        ("state = running and queue = bulk", "e"),
        ('id ~ "order-*"', "dca"),
        ('id ~ "order-2*"', "dc"),
        ("id = order-1", "a"),
        ("run_id = c", "c"),
        ("build exists", "c"),
        ("closed exists", "db"),
        ("closed < 1970-01-01T00:06:00Z", "b"),
        ("not closed > 1970-01-01T00:06:00Z", "ecba"),
        ("started > 700s ago", "ed"),
        ("started >= 700s ago and started < 600s ago", "c"),
        ("events = 4", "a"),
        ("events >= 1", "edcba"),
        ("tag.plan = pro", "ca"),
        ("tag.plan != pro", "edb"),
        ("tag.plan exists", "cba"),
        ("tag.plan ~ p*", "ca"),
        ("tag.plan in (pro, free)", "cba"),
        ("tag.plan = pro and attr.amount exists and type = order", "ca"),
        ("attr.amount = 10", "a"),
        ("attr.amount >= 10", "ba"),
        ('attr.amount = "10"', "c"),
        ("attr.amount > 10.25", "b"),
        ("attr.vip = true", "a"),
        ("attr.vip = 1", "c"),
        ("attr.colour = red", "d"),
        ("attr.colour = red and attr.colour = blue", "d"),
        ("attr.colour < red", "d"),
        ("tag.plan = free or attr.vip = true", "ba"),
        ("not (tag.plan = free or attr.vip = true)", "edc"),
        ("tag.plan = pro and started > 850s ago", "c"),
        ("tag.nobody = 1", ""),
    ],
)
def test_runs_are_found_by_filter(some: Kept, query: str, expected: str) -> None:
    assert runs(some, query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("priority = 1", "p"),
        ("priority >= 3", "srq"),
        ("attempt > 1 and worker = w1", "p"),
        ("tag.plan = pro", "p"),
        ("due > 1h ago", "r"),
        ("state in (failed, enqueued) and queue = main", "rqp"),
        ("enqueued < 750s ago", "qp"),
    ],
)
def test_tasks_are_found_by_filter(some: Kept, query: str, expected: str) -> None:
    assert tasks(some, query) == expected


def test_labels_are_those_of_the_last_write(some: Kept) -> None:
    some_run = run_row("a", workflow_id="order-1")
    write(some, some_run, marks=[labels("a", ("attr.amount", 11), at=100_000_000_000)], new=False)

    assert runs(some, "attr.amount = 10") == ""
    assert runs(some, "attr.amount = 11") == "a"
    assert runs(some, "tag.plan = pro") == "c"


def test_labels_are_the_same_after_closing(some: Kept) -> None:
    some.reopen()

    assert runs(some, "attr.vip = true") == "a"


def test_labels_of_another_namespace_are_not_seen(some: Kept) -> None:
    write(
        some,
        run_row("x", namespace="other", started_at=1),
        marks=[LabelsRow(id="x", namespace="other", of="run", at=1, items=(("tag.plan", "pro"),))],
    )

    assert runs(some, "tag.plan = pro") == "ca"


@pytest.mark.parametrize(
    "query", ["type = order", "state = failed", "tag.plan = pro", 'id = "order-1"', "events > 0", ""]
)
def test_a_stretch_looks_at_no_more_rows_than_it_may(some: Kept, query: str) -> None:
    where = filter_of(query, RUN_FIELDS, now=NOW)
    found: list[str] = []
    before: Place | None = None
    for _ in range(9):
        stretch = some.run(some.store.list_runs(RunFilter(namespace="default", where=where, before=before, scan=2)))
        assert len(stretch.rows) <= 2
        found += [row.run_id for row in stretch.rows]
        before = stretch.next
        if before is None:
            break

    assert before is None
    assert "".join(found) == runs(some, query)


@pytest.mark.parametrize(
    "query", ["type = order", "state = failed", "tag.plan = pro", 'id = "order-1"', "events > 0", ""]
)
def test_counts_add_up_over_stretches(some: Kept, query: str) -> None:
    where = filter_of(query, RUN_FIELDS, now=NOW)
    total, before = 0, None
    for _ in range(9):
        tally = some.run(some.store.count_runs(RunFilter(namespace="default", where=where, before=before, scan=2)))
        total, before = total + tally.count, tally.next
        if before is None:
            break

    assert total == len(runs(some, query))


def test_tasks_are_counted_by_filter(some: Kept) -> None:
    where = filter_of("priority >= 3", TASK_FIELDS, now=NOW)

    assert some.run(some.store.count_tasks(TaskFilter(namespace="default", where=where))).count == 3


def test_counters_are_read_by_namespace(kept: Kept) -> None:
    batch = kept.next_batch()
    batch.counters = {("default", "runs:running"): 3, ("other", "runs:running"): 5}
    kept.commit(batch)

    assert kept.run(kept.store.read_counters("default")) == {"runs:running": 3}
    assert kept.run(kept.store.read_counters("none")) == {}


# Any predicate, over any rows, finds the same in each store as the evaluator says.

TEXTS = st.sampled_from(["", "a", "ab", "b", "A", "é", "\ud7ff", "\U0010ffff", "a\x00b", "10", "%", "_"])
VALUES = TEXTS | st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63), 0.5, 1.0, -0.0, 1e300, 0.1]) | st.booleans()
NAMES = st.sampled_from(["x", "two words", 'q"u'])
FIELDS = st.sampled_from(list(RUN_FIELDS.values())) | st.tuples(st.sampled_from(["tag", "attr"]), NAMES).map(
    lambda pair: label(*pair)
)


@st.composite
def comparisons(draw: st.DrawFn) -> Predicate:
    """Draw one comparison, of the types that the language lets through."""
    field = draw(FIELDS)
    of_kind: dict[Kind, st.SearchStrategy[Any]] = {
        Kind.TEXT: TEXTS, Kind.LABEL: VALUES, Kind.NUMBER: st.integers(-1, 5) | st.just(0.5),
        Kind.INSTANT: st.integers(-1, 6), Kind.CHOICE: st.sampled_from(["running", "failed", "completed"]),
    }  # fmt: skip
    values = of_kind[field.kind]
    kinds = ["compare", "in", "exists"] + ["prefix"] * (field.kind in {Kind.TEXT, Kind.LABEL})
    match draw(st.sampled_from(kinds)):
        case "compare":
            value = draw(values)
            ordered = field.kind is not Kind.CHOICE and not isinstance(value, bool)
            operator = draw(st.sampled_from(list(Operator))) if ordered else Operator.EQUAL
            return Compare(field, operator, value)
        case "in":
            return OneOf(field, tuple(draw(st.lists(values, min_size=1, max_size=3))))
        case "prefix":
            return Prefix(field, draw(TEXTS))
        case _:
            return Exists(field)


PREDICATES = st.recursive(
    comparisons(),
    lambda inner: (
        st.lists(inner, min_size=2, max_size=3).map(lambda items: All(tuple(items)))
        | st.lists(inner, min_size=2, max_size=3).map(lambda items: Some(tuple(items)))
        | inner.map(Not)
    ),
    max_leaves=6,
)


@st.composite
def populations(draw: st.DrawFn) -> list[tuple[Any, LabelsRow]]:
    """Draw some runs with labels."""
    made: list[tuple[Any, LabelsRow]] = []
    for n in range(draw(st.integers(1, 6))):
        id_, started, closed = f"r{n}", draw(st.integers(0, 5)), draw(st.sampled_from([0, 0, 3, 6]))
        row = run_row(
            id_, workflow_id=draw(TEXTS) or f"w{n}", opened_no=n, type=draw(TEXTS), queue=draw(TEXTS), build=draw(TEXTS),
            started_at=started, closed_at=closed, next_event_id=draw(st.integers(1, 5)),
            status=draw(st.sampled_from(["failed", "completed"])) if closed else "running",
        )  # fmt: skip
        names = st.tuples(st.sampled_from(["tag", "attr"]), NAMES).map(".".join)
        items = draw(st.lists(st.tuples(names, VALUES), max_size=4, unique_by=lambda item: (item[0], repr(item[1]))))
        # What equals another value of its name is one label.
        distinct = {(name, isinstance(value, bool), value): (name, value) for name, value in items}
        made.append((row, labels(id_, *distinct.values(), at=started)))
    open_ids: set[str] = set()
    for row, _ in made:
        if not row.closed_at and row.workflow_id in open_ids:
            row.closed_at, row.status = 6, "failed"
        open_ids.add(row.workflow_id)
    return made


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(population=populations(), predicates=st.lists(PREDICATES, min_size=1, max_size=6), scan=st.integers(0, 3))
def test_stores_find_what_the_evaluator_says(
    tmp_path_factory: pytest.TempPathFactory,
    cluster: Cluster,
    population: list[tuple[Any, LabelsRow]],
    predicates: list[Predicate],
    scan: int,
) -> None:
    memory, path = MemoryStore(), Path(tmp_path_factory.mktemp("filters"), "shard.db")
    with (
        cluster.database() as url,
        Kept(lambda: memory) as one,
        Kept(lambda: SqliteStore(path, synchronous="OFF", allow_network_disk=True)) as two,
        Kept(lambda: PostgresStore(url, allow_weak=True)) as three,
    ):
        for kept in (one, two, three):
            kept.claim()
            write(kept, *(row for row, _ in population), marks=[mark for _, mark in population])
        for predicate in predicates:
            expected = [
                row.run_id
                for row, mark in sorted(population, key=lambda pair: (pair[0].started_at, pair[0].run_id), reverse=True)
                if matches(predicate, row, by_name(mark))
            ]
            assert walked(one, predicate, scan) == expected, predicate
            assert walked(two, predicate, scan) == expected, predicate
            assert walked(three, predicate, scan) == expected, predicate


def by_name(mark: LabelsRow) -> dict[str, tuple[Value, ...]]:
    """Return the values of each label."""
    found: dict[str, tuple[Value, ...]] = {}
    for name, value in mark.items:
        found[name] = (*found.get(name, ()), value)
    return found


def walked(kept: Kept, predicate: Predicate, scan: int) -> list[str]:
    """Return all that match, stretch by stretch."""
    ids: list[str] = []
    before: Place | None = None
    while True:
        found = kept.run(
            kept.store.list_runs(RunFilter(namespace="default", where=predicate, before=before, scan=scan, limit=2))
        )
        ids += [row.run_id for row in found.rows]
        before = found.next
        if before is None:
            return ids
