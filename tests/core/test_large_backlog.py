"""A new owner that finds much to do serves at once, and reads what there is in pages."""

from outlast.core.shard.config import ShardConfig
from outlast.core.units import HOUR, SECOND
from tests.core.test_shard_freshness import uuid7
from tests.core.world import World


def test_new_work_is_taken_and_given_out_while_a_large_backlog_is_read_in_pages() -> None:
    world = World(config=ShardConfig(page_rows=20, window_max=60, window_low=20))
    for n in range(300):
        world.enqueue(f"t{n:03}")
    for n in range(100):
        world.enqueue(f"later {n:03}", delay=HOUR + n)
    for n in range(30):
        world.start(f"w{n:02}")
    held = world.poll("gone", slots=50, turns=0).tasks
    world.hold_loads = True
    world.restart()

    world.enqueue(uuid7(5), type="pay")
    sizes: list[int] = []
    while world.pages:
        pages, world.pages = world.pages, []
        sizes += [len(page.tasks) + len(page.runs) + len(page.timers) for _, page in pages]
        for load_id, page in pages:
            world.core.loaded(load_id, page, now=world.now)
        world.settle()
    world.hold_loads = False
    given = [lease.token.task_id for _ in range(40) for lease in world.poll(slots=10, turns=0).tasks]
    turns = [turn.workflow_id for _ in range(10) for turn in world.poll("w", slots=0, turns=5).workflow_tasks]
    world.pass_time(HOUR / SECOND + 1)
    due = [lease.token.task_id for n in range(60) for lease in world.poll(f"x{n}", slots=10, turns=0).tasks]

    assert max(sizes) <= 20
    assert len(sizes) > 5
    assert given[:1] == ["t050"]
    assert sorted(given) == sorted([uuid7(5), *(f"t{n:03}" for n in range(50, 300))])
    assert sorted(turns) == [f"w{n:02}" for n in range(30)]
    assert {f"later {n:03}" for n in range(100)} <= set(due)
    assert len(held) == 50
