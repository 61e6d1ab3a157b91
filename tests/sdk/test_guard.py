"""Workflow code cannot read what a replay could not read again."""

# The ways in which code reads the host are what is tested.
# ruff: noqa: DTZ005, PTH123, PTH208, SIM115, PLW1510
# pyright: reportDeprecated=false

import asyncio
import logging
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from random import randint
from time import monotonic as bound_early
from time import strftime
from typing import Any

import pytest

from outlast.sdk import guard, workflow
from outlast.sdk.errors import WorkflowTaskFailure
from tests.sdk.histories import Stage, task

READS: dict[str, Callable[[], object]] = {
    "time.time": time.time,
    "time.time_ns": time.time_ns,
    "time.monotonic": time.monotonic,
    "time.perf_counter": time.perf_counter,
    "time.sleep": lambda: time.sleep(3600),
    "imported by name": bound_early,
    "datetime.now": datetime.now,
    "datetime.now with zone": lambda: datetime.now(tz=None),
    "datetime.utcnow": datetime.utcnow,
    "datetime.today": datetime.today,
    "date.today": date.today,
    "random.random": random.random,
    "random.randint": lambda: randint(1, 6),
    "random.choice": lambda: random.choice([1, 2]),
    "random.shuffle": lambda: random.shuffle([1, 2, 3]),
    "unseeded Random": lambda: random.Random().random(),
    "SystemRandom": lambda: random.SystemRandom().random(),
    "uuid1": uuid.uuid1,
    "uuid4": uuid.uuid4,
    "token_hex": secrets.token_hex,
    "randbelow": lambda: secrets.randbelow(6),
    "urandom": lambda: os.urandom(8),
    "time.strftime": lambda: time.strftime("%H:%M"),
    "time.strftime by name": lambda: strftime("%H:%M"),
    "time.asctime": time.asctime,
    "time.asctime of nothing": lambda: time.asctime(*()),
    "os.times": os.times,
    "state of chance": random.getstate,
    "getpid": os.getpid,
    "uname": os.uname,
    "gethostname": socket.gethostname,
    "getcwd": os.getcwd,
    "cpu_count": os.cpu_count,
    "input": input,
    "Path.exists": lambda: Path(__file__).exists(),
    "os.access": lambda: os.access(__file__, os.R_OK),
    "chmod": lambda: Path("/nowhere/at/all").chmod(0o600),
    "symlink": lambda: Path("/nowhere/at/all").symlink_to("a"),
    "truncate": lambda: os.truncate("/nowhere/at/all", 0),
    "kill": lambda: os.kill(os.getppid(), 0),
    "open": lambda: open(__file__),
    "read_text": lambda: Path(__file__).read_text(),
    "listdir": lambda: os.listdir("."),
    "socket": socket.socket,
    "getaddrinfo": lambda: socket.getaddrinfo("localhost", 80),
    "subprocess": lambda: subprocess.run(["true"]),
    "os.system": lambda: os.system("true"),
    "thread": lambda: threading.Thread(target=print).start(),
}


def made(read: Callable[[], object]) -> Callable[[], Any]:
    async def reads() -> str:
        await asyncio.sleep(0)
        read()
        return "read"

    return reads


@pytest.mark.parametrize("name", READS)
def test_reading_the_host_fails_the_turn_with_line_and_remedy(name: str) -> None:
    stage = Stage().start(made(READS[name]))

    with pytest.raises(WorkflowTaskFailure) as caught:
        stage.turn()

    failure = caught.value.failure
    assert failure.type == "SandboxViolation"
    assert f"{__file__}:" in failure.message
    assert failure.info["remedy"]
    stage.close()


@pytest.mark.parametrize("name", ["time.time", "datetime.now", "uuid4", "open"])
def test_the_remedy_names_what_to_write(name: str) -> None:
    stage = Stage().start(made(READS[name]))

    with pytest.raises(WorkflowTaskFailure) as caught:
        stage.turn()

    wanted = {
        "time.time": "workflow.now()",
        "datetime.now": "workflow.now()",
        "uuid4": "workflow.uuid()",
        "open": "in a task",
    }
    assert wanted[name] in caught.value.failure.info["remedy"]
    stage.close()


def test_catching_the_error_does_not_hide_it() -> None:
    async def hides() -> float:
        try:
            return time.time()
        except Exception:  # noqa: BLE001 - what the test is about
            return 0.0

    stage = Stage().start(hides)

    with pytest.raises(WorkflowTaskFailure, match="time.time"):
        stage.turn()
    stage.close()


def test_a_later_turn_is_watched_too(stage: Stage) -> None:
    @task
    def nothing() -> None:
        return None

    async def late() -> float:
        await nothing.execute()
        return time.time()

    stage.start(late).turn()
    stage.complete("1")

    with pytest.raises(WorkflowTaskFailure, match="time.time"):
        stage.turn()


def test_an_instant_that_is_given_may_be_written_out() -> None:
    async def writes() -> list[str]:
        at = (2026, 11, 30, 20, 18, 0, 0, 334, 0)
        return [time.asctime(at), strftime("%H:%M", at), time.strftime("%Y", time.struct_time(at))]

    stage = Stage().start(writes)

    stage.turn()

    assert stage.result == ["Mon Nov 30 20:18:00 2026", "20:18", "2026"]
    stage.close()


def test_the_host_outside_workflow_code_is_left_alone() -> None:
    before = sys.getprofile()
    stage = Stage().start(made(lambda: None))

    stage.turn()

    assert stage.result == "read"
    assert sys.getprofile() is before
    assert time.time() > 0
    assert datetime.now().year > 2000
    assert random.random() < 1
    assert uuid.uuid4() != uuid.uuid4()
    stage.close()


def test_many_threads_watch_at_once() -> None:
    guard.install()
    failures: list[BaseException] = []

    def watches() -> None:
        try:
            for _ in range(3000):
                if guard.watch():
                    guard.unwatch()
        except BaseException as error:  # noqa: BLE001 - told by the assertion below
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=watches) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)

    assert failures == []


def test_plain_logging_and_imports_in_workflow_code_are_harmless() -> None:
    async def logs() -> str:
        logging.getLogger("shop").warning("a line with a time stamp")
        import colorsys  # noqa: PLC0415 - what the test is about

        return colorsys.__name__

    sys.modules.pop("colorsys", None)
    stage = Stage().start(logs)

    stage.turn()

    assert stage.result == "colorsys"
    stage.close()


def test_what_the_guard_offers_instead_works() -> None:
    async def instead() -> bool:
        numbers = [workflow.random.random(), workflow.random.randint(1, 6), workflow.uuid().int]
        at = [workflow.now().timestamp(), workflow.time()]
        clock = asyncio.get_running_loop().time()
        return all(numbers) and all(at) and clock == 0 and workflow.side_effect(time.time) > 0

    stage = Stage().start(instead)

    stage.turn()

    assert stage.result is True
    stage.close()


def test_threads_and_sockets_of_asyncio_are_refused() -> None:
    async def asks() -> object:
        return await asyncio.to_thread(print)

    stage = Stage().start(asks)

    with pytest.raises(WorkflowTaskFailure, match="run_in_executor"):
        stage.turn()
    stage.close()


def test_as_completed_over_coroutines_is_refused_and_over_tasks_is_ordered() -> None:
    @task
    def nothing() -> int:
        return 1

    async def over_coroutines() -> None:
        for next_one in asyncio.as_completed([nothing.execute(), nothing.execute()]):
            await next_one

    async def over_tasks() -> int:
        tasks = [asyncio.create_task(nothing.execute()) for _ in range(3)]
        return sum([await next_one for next_one in asyncio.as_completed(tasks)])

    refused, ordered = Stage().start(over_coroutines), Stage().start(over_tasks)
    ordered.play(lambda _name, _args: 5)

    assert ordered.result == 15
    with pytest.raises(WorkflowTaskFailure, match="asyncio.as_completed"):
        refused.turn()
    refused.close()
    ordered.close()


def test_a_direct_call_of_a_task_says_what_to_write() -> None:
    @task
    def charge(order: str) -> str:
        return order

    async def calls() -> str:
        guard.refuse_direct_call(charge.definition)
        return "called"

    stage = Stage().start(calls)

    with pytest.raises(WorkflowTaskFailure) as caught:
        stage.turn()

    assert caught.value.failure.type == "DirectCall"
    assert "await charge.execute(…)" in caught.value.failure.info["remedy"]
    assert f"{__file__}:" in caught.value.failure.message
    stage.close()


def test_outside_workflow_code_a_direct_call_is_just_a_call() -> None:
    @task
    def charge(order: str) -> str:
        return order

    guard.refuse_direct_call(charge.definition)
