"""How often the engine takes what callers' transactions left: a namespace that takes nothing slows no other one down."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from outlast.core.inputs import EnqueueTask, EnqueueTasks, Request
from outlast.core.replies import Refused, Reply, TaskEnqueuedReply, TasksEnqueued
from outlast.engine.intake import PAUSE_MAX, TAKE_EVERY, Taker
from outlast.protocol.intake import REQUEST, IntakeRow, body_of


@dataclass
class World:
    """An intake, an engine that refuses some namespaces, and a clock that stands still until it is moved."""

    rows: dict[int, IntakeRow] = field(default_factory=dict[int, IntakeRow])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    asked: list[str] = field(default_factory=list[str])
    slept: list[float] = field(default_factory=list[float])
    now: float = 100.0

    def __post_init__(self) -> None:
        self.taker = Taker(self, self.ask, now=lambda: self.now, sleep=self.sleep)

    def add(self, namespace: str) -> None:
        place = len(self.rows) + 1000 * len(self.asked)
        task = EnqueueTask(task_id=f"t{place}", key=f"t{place}", type="mail", queue="default")
        self.rows[place] = IntakeRow(place=place, namespace=namespace, form=REQUEST, body=body_of(task))

    def take(self) -> list[str]:
        """Return the namespaces that were asked in one round."""
        self.asked.clear()
        asyncio.run(self.taker.take())
        return list(self.asked)

    async def offer(self, rows_max: int, *, without: Collection[str]) -> Sequence[IntakeRow]:
        return [row for row in self.rows.values() if row.namespace not in without][:rows_max]

    async def settle(self, taken: Sequence[int], troubles: Mapping[int, str]) -> None:
        assert not troubles
        for place in taken:
            del self.rows[place]

    async def ask(self, request: Request, namespace: str) -> Reply:
        self.asked.append(namespace)
        if namespace in self.refused:
            return Refused(code=self.refused[namespace], fact="Not now.", retryable=True)
        assert isinstance(request, EnqueueTasks)
        return TasksEnqueued(items=tuple(TaskEnqueuedReply(task_id=item.task_id) for item in request.items))

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def test_a_namespace_at_its_rate_is_left_alone_while_the_others_are_taken_at_once() -> None:
    world = World(refused={"slow": "rate_limited"})
    world.add("slow")
    world.add("default")

    assert world.take() == ["slow", "default"]
    world.add("default")
    assert world.take() == ["default"]  # the clock has not moved

    assert world.slept == []
    assert [row.namespace for row in world.rows.values()] == ["slow"]


def test_a_namespace_that_takes_nothing_is_asked_ever_more_seldom_and_as_before_once_it_takes() -> None:
    world = World(refused={"slow": "busy"})
    world.add("slow")
    pauses: list[float] = []
    for _ in range(6):
        assert world.take() == ["slow"]
        began = world.now
        while not (asked := world.take()):
            world.now += TAKE_EVERY / 2
        assert asked == ["slow"]
        pauses.append(round(world.now - began, 3))
        world.now = began + 100

    assert pauses == sorted(pauses)
    assert pauses[-1] <= PAUSE_MAX + TAKE_EVERY
    world.refused.clear()
    assert world.take() == ["slow"]
    world.refused["slow"] = "busy"
    world.add("slow")
    world.now += 100
    world.take()
    world.now += 1.1 * TAKE_EVERY
    assert world.take() == ["slow"]


def test_an_engine_that_cannot_take_anything_is_waited_for() -> None:
    world = World(refused={"default": "unavailable"})
    world.add("default")

    for _ in range(2):
        assert world.take() == ["default"]

    assert world.slept == [TAKE_EVERY, 2 * TAKE_EVERY]
