"""Laws of a shard under drawn scripts of requests, workers, passing time, restarts and lost commits."""

from hypothesis import given, settings

from outlast.core.shard.config import ShardConfig
from tests.core.laws import broken_laws
from tests.core.scripts import Move, Player, scripts
from tests.core.world import World

TINY = ShardConfig(
    runs_cached_max=2, tasks_cached_max=2, window_max=2, window_low=1, page_rows=2, dedup_cached_max=2
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(scripts)
def test_stored_rows_keep_the_laws_after_each_input(script: list[Move]) -> None:
    world = World()
    player = Player(world)
    found: list[str] = []
    player.after_each = lambda: found.extend(broken_laws(world.tables))

    player.play(script)

    assert found == []


@settings(max_examples=60, deadline=None)
@given(scripts)
def test_stored_rows_keep_the_laws_in_little_memory(script: list[Move]) -> None:
    world = World(config=TINY)
    player = Player(world)
    found: list[str] = []
    player.after_each = lambda: found.extend(broken_laws(world.tables))

    player.play(script)

    assert found == []


@settings(max_examples=50, deadline=None)
@given(scripts)
def test_all_that_was_begun_comes_to_an_end(script: list[Move]) -> None:
    world = World()
    player = Player(world)
    player.play(script)

    player.finish()

    rows = world.tables
    assert [row for row in (*rows.runs.values(), *rows.tasks.values()) if not row.closed_at] == []
    assert (rows.timers, broken_laws(rows)) == ({}, [])


@settings(max_examples=50, deadline=None)
@given(scripts)
def test_all_that_was_begun_comes_to_an_end_in_little_memory(script: list[Move]) -> None:
    world = World(config=TINY)
    player = Player(world)
    player.play(script)

    player.finish()

    rows = world.tables
    assert [row for row in (*rows.runs.values(), *rows.tasks.values()) if not row.closed_at] == []
    assert (rows.timers, broken_laws(rows)) == ({}, [])


@settings(max_examples=50, deadline=None)
@given(scripts)
def test_everybody_who_stays_is_answered(script: list[Move]) -> None:
    world = World()
    player = Player(world)
    player.play(script)

    player.finish()
    world.pass_time(31)

    assert [ticket for ticket in player.all_tickets if ticket not in {*world.answers, *player.forgotten}] == []
