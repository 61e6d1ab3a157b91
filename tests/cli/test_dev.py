"""``outlast dev`` as a program: edits are followed, deaths noticed, and nobody is left behind."""

import asyncio
import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from outlast.cli.edits import edited, folder_of, look
from tests.end_to_end.processes import Program, get, post, wait_until

APP = """
from outlast import App
from greeting import WORD

app = App()

@app.task
def greet(name: str) -> str:
    print("greeting", name)
    return f"{WORD}, {name}"
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "greeting.py").write_text('WORD = "Hello"\n')
    return tmp_path


@pytest.fixture
def dev(shop: Path) -> Generator[Program]:
    program = Program(shop, "-m", "outlast.cli", "dev", "app.py", "--port", "0", name="dev")
    try:
        yield program
    finally:
        program.kill()


def address_of(dev: Program) -> str:
    return dev.until_said("worker for app.py").split(" at ")[1].split(",")[0]


def greeted(address: str, name: str) -> str:
    async def ask() -> Any:
        made = await post(address, "tasks", {"type": "greet", "input": [name]})
        return await get(address, f"tasks/{made['id']}/result?wait=25s")

    return asyncio.run(ask())["result"][0]


def children_of(pid: int) -> list[int]:
    """Return the processes that ``pid`` has started."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.slow
def test_an_edit_is_followed_and_a_broken_one_leaves_the_old_code_at_work(shop: Path, dev: Program) -> None:
    address = address_of(dev)
    assert greeted(address, "Ada") == "Hello, Ada"
    dev.until_said("worker-1 | greeting Ada")

    (shop / "greeting.py").write_text("WORD = \n")
    dev.until_said("the worker from before it goes on")
    assert "greeting.py:1" in dev.said()
    assert greeted(address, "Bob") == "Hello, Bob"

    (shop / "greeting.py").write_text('WORD = "Welcome"\n')
    dev.until_said("runs the new code")
    wait_until(lambda: greeted(address, "Cy") == "Welcome, Cy")
    assert dev.stop() == 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes by /proc")
def test_a_dead_worker_is_started_again_and_none_outlives_its_parent(dev: Program) -> None:
    address = address_of(dev)
    assert greeted(address, "Ada") == "Hello, Ada"
    (worker,) = children_of(dev.process.pid)

    os.kill(worker, signal.SIGKILL)
    dev.until_said("worker-1 ended with -9")
    assert greeted(address, "Bob") == "Hello, Bob"
    (worker,) = children_of(dev.process.pid)

    dev.process.send_signal(signal.SIGKILL)
    dev.process.wait()
    wait_until(lambda: not is_there(worker))


def test_what_is_edited_is_found_in_the_folder_of_the_app(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop)
    (shop / ".venv").mkdir()
    (shop / ".venv" / "x.py").write_text("")
    (shop / "pages").mkdir()
    before = look(folder_of("app.py:app"))

    (shop / "pages" / "new.py").write_text("x = 1")
    (shop / "greeting.py").unlink()
    (shop / ".venv" / "x.py").write_text("y = 2")

    assert edited(before, look(shop), shop) == ["greeting.py", "pages/new.py"]
