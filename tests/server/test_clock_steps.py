"""A shard on the real clock, while the clock of the machine is stepped: leases, delays and sleeps keep their length."""

from dataclasses import dataclass, field

import pytest

from outlast.core import commands as c
from outlast.core import events as e
from outlast.core import replies
from outlast.core.retry import RetryPolicy
from outlast.core.shard.config import ShardConfig
from outlast.core.units import HOUR, MILLISECOND, SECOND
from outlast.server.clock import GuardedClock
from tests.core.world import START, World

QUICK = RetryPolicy(attempts_max=5, first=SECOND, factor=1.0, jitter=False)
LOOK = 100 * MILLISECOND  # how often the shard is called


@dataclass
class Machine:
    """A shard whose instants are those of a clock on a machine with a wall clock that can be stepped."""

    wall: int = START
    monotonic: int = 0
    world: World = field(default_factory=lambda: World(config=ShardConfig(task_lease=10 * SECOND)))
    clock: GuardedClock = field(init=False)
    fired: dict[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        self.clock = GuardedClock(wall=lambda: self.wall, monotonic=lambda: self.monotonic)

    def step(self, seconds: float) -> None:
        """Set the wall clock to another time."""
        self.wall += int(seconds * SECOND)

    def run(self, seconds: float, *, beats: tuple[replies.TaskLease, ...] = ()) -> None:
        """Let real time go by; ``beats`` are renewed each second, and whatever becomes ready is noted."""
        for n in range(int(seconds * SECOND) // LOOK):
            self.wall += LOOK
            self.monotonic += LOOK
            stepped = self.clock.stepped
            self.world.now = max(self.world.now, self.clock.now())
            if self.clock.stepped != stepped:
                self.world.core.clock_stepped(self.clock.stepped - stepped, now=self.world.now)
            if n % 10 == 0:
                for lease in beats:
                    self.world.beat(lease)
            self.world.tick()
            for lease in self.world.poll("two", slots=50, turns=0).tasks:
                self.fired[lease.token.task_id] = self.monotonic / SECOND

    def wait(self) -> None:
        """Begin ten leases under a worker, ten delays of 20 s, and a run that sleeps for 20 s."""
        for n in range(10):
            self.world.enqueue(f"held {n}", retry=QUICK, start_to_close=HOUR)
        for n in range(10):
            self.world.enqueue(f"late {n}", delay=20 * SECOND, start_to_close=HOUR, key="")
        self.run_id = self.world.start().run_id
        self.world.do(self.world.turn(), c.StartTimer(timer_id="1", start_to_fire=20 * SECOND))


@pytest.mark.parametrize("steps", [(-3600, 3600), (-3600, 0), (7200, 0), (7200, -7200), (-1.5, 1.5)])
def test_a_step_of_the_wall_clock_takes_no_lease_from_a_worker_that_renews_it(steps: tuple[float, float]) -> None:
    machine = Machine()
    machine.wait()
    held = machine.world.poll("one", slots=10, turns=0).tasks
    for step in steps:
        machine.run(3, beats=held)
        machine.step(step)
        machine.run(9, beats=held)

    machine.run(20, beats=held)

    assert [machine.world.outcomes(lease.token.task_id) for lease in held] == [[]] * 10
    assert [machine.world.complete(lease) for lease in held] == [None] * 10


def test_a_step_ahead_leaves_an_attempt_the_time_that_it_had_left() -> None:
    machine = Machine()
    machine.world.enqueue("t", start_to_close=20 * SECOND, retry=QUICK)
    machine.world.enqueue("u", heartbeat=15 * SECOND, start_to_close=HOUR, retry=QUICK)
    held = machine.world.poll("one", slots=10, turns=0).tasks
    machine.run(2, beats=held)
    machine.step(7200)

    machine.run(12.5, beats=held)
    within = [machine.world.outcomes(name) for name in "tu"]
    machine.run(6, beats=held)

    assert within == [[], []]
    assert machine.world.outcomes("t")[0] == (1, 1, "timeout:start_to_close")
    assert machine.world.outcomes("u")[0] == (1, 1, "timeout:heartbeat")


@pytest.mark.parametrize("steps", [(-3600, 3600), (-3600, 0), (-1.5, 1.5)])
def test_a_step_back_makes_no_delay_longer_or_shorter_and_no_timer_fire_twice(steps: tuple[float, float]) -> None:
    machine = Machine()
    machine.wait()
    for step in steps:
        machine.run(3)
        machine.step(step)
        machine.run(3)

    machine.run(40)

    late = [at for name, at in machine.fired.items() if name.startswith("late")]
    assert len(late) == 10
    assert all(19.0 < at < 21.5 for at in late)  # slewing may stretch or press time by a twentieth
    assert len(machine.world.found(machine.run_id, e.TimerFired)) == 1
    assert [row.attempt for name, row in machine.world.tables.tasks.items() if name.startswith("late")] == [1] * 10


def test_a_step_ahead_gives_leases_a_fresh_term_and_ends_those_of_silent_workers_after_it() -> None:
    machine = Machine()
    machine.wait()
    silent = machine.world.poll("one", slots=10, turns=0).tasks
    machine.run(2)
    machine.step(7200)
    machine.run(5.2)
    followed = machine.world.now

    machine.run(9.5)
    within = [machine.world.outcomes(lease.token.task_id) for lease in silent]
    machine.run(1)

    assert followed > START + 7200 * SECOND
    assert within == [[]] * 10
    assert [machine.world.outcomes(lease.token.task_id) for lease in silent] == [[(1, 1, "worker_lost")]] * 10


def test_a_step_ahead_fires_what_is_due_by_the_new_time_once_and_only_after_it_has_lasted() -> None:
    machine = Machine()
    machine.wait()
    machine.run(2)
    machine.step(7200)
    machine.run(4)
    early = dict(machine.fired)

    machine.run(3)

    assert [name for name in early if name.startswith("late")] == []
    assert len([name for name in machine.fired if name.startswith("late")]) == 10
    assert len(machine.world.found(machine.run_id, e.TimerFired)) == 1
