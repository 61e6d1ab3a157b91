"""One order: under every hash seed, and for every interleaving of what comes from outside."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.core import commands as c
from outlast.core import events as e
from outlast.sdk import workflow
from outlast.sdk.signals import Signal
from tests.sdk.histories import MODES, Stage, digest, task

ROOT = Path(__file__).parents[2]
word = Signal("word", str)


@task
def work(name: str) -> str:
    return name


@pytest.mark.slow
def test_commands_are_the_same_under_every_hash_seed() -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.sdk.seeded", str(seed * 997)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in range(10)
    ]

    digests = {process.communicate(timeout=100)[0].strip() for process in running}

    assert all(process.returncode == 0 for process in running)
    assert len(digests) == 1
    assert len(digests.pop()) == 64


async def everything_at_once() -> list[str]:
    log: list[str] = []

    async def listens() -> None:
        for _ in range(4):
            try:
                log.append(f"heard {await word.receive(timeout='1h')}")
            except TimeoutError:
                log.append("silence")
            await work.execute(f"{len(log)}")

    async def works(name: str) -> None:
        for number in range(3):
            try:
                log.append(await asyncio.wait_for(work.execute(f"{name}{number}"), 600))
            except TimeoutError:
                log.append(f"{name}{number} late")

    async def sleeps() -> None:
        for number in range(3):
            await workflow.sleep("20m")
            log.append(f"slept {number}")

    try:
        await asyncio.gather(listens(), works("x"), works("y"), sleeps())
    except asyncio.CancelledError:
        async with workflow.shield():
            await work.execute(f"clean up after {len(log)}")
        log.append("cancelled")
    return log


def step(stage: Stage, move: tuple[str, int]) -> None:
    """Let one thing happen, if it can."""
    kind, pick = move
    if stage.closed is not None:
        return
    activities, timers = sorted(stage.activities, key=int), sorted(stage.timers, key=int)
    if kind == "complete" and activities:
        stage.complete(activities[pick % len(activities)], f"r{pick}")
    elif kind == "fail" and activities:
        stage.confirm_cancel(activities[pick % len(activities)])
    elif kind == "fire" and timers:
        stage.fire(timers[pick % len(timers)])
    elif kind == "signal":
        stage.signal("word", f"w{pick}")
    elif kind == "cancel" and not any(
        isinstance(event, e.WorkflowExecutionCancelRequested) for _, event in stage.history
    ):
        stage.cancel()
    elif kind == "turn" and stage.ready:
        stage.turn()
    elif kind == "parked" and stage.ready:
        stage.turn(during=lambda engine: step(engine, ("fire" if pick % 2 else "complete", pick)))


moves = st.lists(
    st.tuples(
        st.sampled_from(["complete", "complete", "fire", "signal", "cancel", "turn", "turn", "parked", "fail"]),
        st.integers(0, 9),
    ),
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=300)
@given(moves)
def test_any_interleaving_replays_to_the_same_commands(script: list[tuple[str, int]]) -> None:
    played: list[str] = []
    for mode in MODES:
        stage = Stage(mode=mode).start(everything_at_once)
        for move in script:
            step(stage, move)
        if stage.ready and stage.closed is None:
            stage.turn()
        stage.replay()
        played.append(digest(stage.turns) + str(stage.result))
        check_that_cancels_are_of_what_is_open(stage)
        stage.close()

    assert len(set(played)) == 1


def check_that_cancels_are_of_what_is_open(stage: Stage) -> None:
    """The engine refuses to cancel what is closed: such a command would fail the turn."""
    fired = [event.timer_id for _, event in stage.history if isinstance(event, e.TimerFired)]
    canceled = [event.timer_id for _, event in stage.history if isinstance(event, e.TimerCanceled)]
    issued = [command for turn in stage.turns for command in turn]
    assert len(set(fired) & set(canceled)) == 0
    assert len(set(canceled)) == len(canceled)
    assert len([command for command in issued if isinstance(command, c.CancelTimer)]) == len(canceled)
