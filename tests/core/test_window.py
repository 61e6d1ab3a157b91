"""A window on an ordered table: whatever is inserted, taken out, dropped and read, no row is lost."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.core.shard.window import BEFORE_ALL, Window

Key = tuple[int, str]


@dataclass
class Table:
    """A table of keys and a window on it. Inserts are stored when their batch commits; a page is read when it is asked for."""

    window: Window[str] = field(default_factory=lambda: Window[str](2, 1))
    stored: set[Key] = field(default_factory=set[Key])
    gathering: list[Key] = field(default_factory=list[Key])
    in_flight: list[Key] | None = None
    number: int = 1
    committed: int = 0
    page: tuple[list[Key], bool, int] | None = None
    alive: set[Key] = field(default_factory=set[Key])
    page_rows: int = 2

    def insert(self, at: int) -> None:
        key = (at, f"k{at}")
        if key in self.alive or key in self.stored:
            return
        self.alive.add(key)
        self.gathering.append(key)
        self.window.put(key, key[1], number=self.number)
        self.window.evict(number=self.number)

    def take_batch(self) -> None:
        if self.in_flight is None and self.gathering:
            self.in_flight, self.gathering = self.gathering, []
            self.number += 1

    def commit(self) -> None:
        if self.in_flight is None:
            return
        self.stored |= set(self.in_flight)
        self.in_flight = None
        self.committed += 1
        self.window.committed(self.committed)

    def ask(self) -> None:
        """Ask for the next page if the window wants one. What it brings is settled now, and handed in by ``answer``."""
        if not self.window.wants_page():
            return
        assert self.window.low is not None
        self.window.loading = True
        after = self.window.low
        keys = sorted(key for key in self.stored if key > after)[: self.page_rows]
        self.page = (keys, len(keys) < self.page_rows, self.committed)

    def answer(self) -> None:
        if self.page is None:
            return
        (keys, at_end, committed), self.page = self.page, None
        for key in keys:
            self.window.push(key, key[1])
        self.window.page_read(keys, at_end=at_end, committed_at_ask=committed)

    def pop(self) -> Key | None:
        """Take the first living row out, as a taker does: what is gone is passed over, what the window does not cover waits."""
        while self.window.heap and self.window.covers(self.window.heap[0][0]):
            key = self.window.heap[0][0]
            self.window.pop()
            if key in self.alive:
                self.alive.remove(key)
                return key
        return None

    def drain(self) -> list[Key]:
        """Let everything commit and be read, and take out all that comes up."""
        taken: list[Key] = []
        for _ in range(300):
            if not self.alive:
                break
            self.take_batch()
            self.commit()
            self.answer()
            self.ask()
            self.answer()
            found = self.pop()
            if found is not None:
                taken.append(found)
        return taken


moves = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(0, 60)),
        st.tuples(st.sampled_from(["take_batch", "commit", "ask", "answer", "pop"])),
    ),
    max_size=150,
)


def play(table: Table, script: list[tuple[object, ...]]) -> None:
    for name, *arguments in script:
        getattr(table, str(name))(*arguments)


@settings(max_examples=100, deadline=None)
@given(moves)
def test_no_row_is_lost_whatever_happens_around_a_window(script: list[tuple[object, ...]]) -> None:
    table = Table()
    play(table, script)

    table.drain()

    assert table.alive == set()


@settings(max_examples=100, deadline=None)
@given(moves)
def test_rows_that_are_all_stored_come_up_in_their_order(script: list[tuple[object, ...]]) -> None:
    table = Table()
    play(table, script)
    play(table, [("take_batch",), ("commit",), ("take_batch",), ("commit",), ("answer",)])
    waiting = sorted(table.alive)

    assert table.drain() == waiting


@settings(max_examples=100, deadline=None)
@given(moves)
def test_a_window_covers_only_what_it_holds_or_what_is_gone(script: list[tuple[object, ...]]) -> None:
    table = Table()

    play(table, script)

    held = {key for key, _ in table.window.heap}
    assert [key for key in sorted(table.alive) if table.window.covers(key) and key not in held] == []


@settings(max_examples=100, deadline=None)
@given(moves)
def test_a_window_never_grows_far_beyond_its_size(script: list[tuple[object, ...]]) -> None:
    table = Table()

    play(table, script)

    assert len(table.window.heap) <= 2 * table.window.size_max + table.page_rows


def test_a_new_window_wants_a_page_from_the_beginning() -> None:
    window = Window[str](10, 2)

    assert window.wants_page()
    assert window.low == BEFORE_ALL


def test_a_window_that_has_all_rows_wants_no_page() -> None:
    window = Window[str](10, 2)
    window.page_read([], at_end=True, committed_at_ask=0)

    assert not window.wants_page()
    assert window.put((5, "a"), "a", number=1)


def test_a_row_behind_a_window_is_left_to_the_store() -> None:
    window = Window[str](10, 2)
    window.push((3, "a"), "a")
    window.page_read([(3, "a")], at_end=False, committed_at_ask=0)

    assert not window.put((4, "b"), "b", number=1)
    assert window.put((2, "c"), "c", number=1)


def test_a_page_read_before_a_row_was_committed_does_not_pass_it() -> None:
    window = Window[str](10, 2)
    window.put((4, "late"), "late", number=7)

    window.page_read([(9, "a")], at_end=True, committed_at_ask=6)

    assert window.stuck
    assert not window.wants_page()
    window.committed(7)
    assert window.wants_page()
