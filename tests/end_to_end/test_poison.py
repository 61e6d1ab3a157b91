"""Tasks that kill the process that runs them, beside others that do not: real processes, restarted by a supervisor."""

import asyncio
from pathlib import Path
from typing import Any

from tests.end_to_end.processes import Program, get, post, serving, wait_until

APP = """
import os, signal, time
from outlast import App, Retry
app = App()
FEW = Retry(max_attempts=3, first="100ms", factor=1.0)

def note(name):
    with open("ran.txt", "a") as file:
        file.write(name + chr(10))

@app.task(retry=FEW)
def poison(name: str) -> str:
    note(name)
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)

@app.task(retry=FEW)
def good(name: str) -> str:
    note(name)
    time.sleep(0.1)
    return name
"""


def test_a_task_that_kills_its_worker_uses_up_its_attempts_and_takes_no_other_with_it(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    with serving(tmp_path, "--task-lease", "1s") as (_, address):
        bad = asyncio.run(post(address, "tasks", _task("poison", "bad")))["id"]
        good = [asyncio.run(post(address, "tasks", _task("good", f"g{n}")))["id"] for n in range(8)]
        workers: list[Program] = []
        try:
            wait_until(lambda: _supervised(tmp_path, address, workers, [bad, *good]))
        finally:
            for worker in workers:
                worker.kill()
        info = asyncio.run(get(address, f"tasks/{bad}"))
        ended = [asyncio.run(get(address, f"tasks/{id}")) for id in good]
        outcomes = [item["outcome"] for item in asyncio.run(get(address, f"tasks/{bad}/attempts"))["items"]]

    assert (info["state"], info["reason"], info["attempt"]) == ("failed", "maximum_attempts_reached", 3)
    assert outcomes == ["worker_lost"] * 3
    assert [task["state"] for task in ended] == ["succeeded"] * 8
    assert (tmp_path / "ran.txt").read_text().split().count("bad") == 3


def _task(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "input": [name], "retry": {"max_attempts": 3, "first": "100ms", "factor": 1.0}}


def _supervised(folder: Path, address: str, workers: list[Program], ids: list[str]) -> bool:
    """Keep one worker up; return whether all tasks have ended."""
    if not workers or workers[-1].process.poll() is not None:
        args = ("-m", "outlast.cli", "worker", "start", "app.py", "--server", address)
        workers.append(Program(folder, *args, name=f"worker-{len(workers)}"))
    return all(asyncio.run(get(address, f"tasks/{id}"))["state"] in {"succeeded", "failed"} for id in ids)
