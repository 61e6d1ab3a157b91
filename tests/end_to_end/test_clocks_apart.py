"""A server whose clock is minutes away from its worker's: nothing is early, late or taken away for it."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from outlast.core.units import MINUTE, SECOND
from tests.end_to_end.processes import Program, get, post, serving

APP = """
import json, time
from outlast import App, TaskContext, workflow
app = App()

@app.task(max_attempts=2, timeout="20s", heartbeat="2s")
def slow(ctx: TaskContext, seconds: float) -> int:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        ctx.heartbeat({"left": ends - time.monotonic()})
        time.sleep(0.2)
    return ctx.attempt

@app.workflow
async def clocked() -> list:
    began = workflow.now().timestamp()
    await workflow.sleep("1500ms")
    attempt = await slow.execute(0.1)
    return [began, workflow.now().timestamp(), attempt]
"""


@pytest.mark.parametrize("minutes", [10, -10])
def test_a_worker_whose_clock_is_off_works_like_any_other(tmp_path: Path, minutes: int) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "offset").write_text(str(minutes * MINUTE))
    env = {"OUTLAST_ENGINE__CLOCK_OFFSET_FILE": str(tmp_path / "offset")}
    with serving(tmp_path, "--task-lease", "1s", env=env) as (_, address):
        worker = Program(tmp_path, "-m", "outlast.cli", "worker", "start", "app.py", "--server", address, name="worker")
        try:
            before = time.time_ns() + minutes * MINUTE
            task = {"type": "slow", "input": [3.0], "retry": {"max_attempts": 2}, "heartbeat": "2s", "delay": "500ms"}
            made = asyncio.run(post(address, "tasks", task))["id"]
            asyncio.run(post(address, "workflows", {"type": "clocked", "id": "w", "input": []}))
            ran = asyncio.run(get(address, f"tasks/{made}/result?wait=20s"))
            told = asyncio.run(get(address, "workflows/w/result?wait=20s"))
            attempts = asyncio.run(get(address, f"tasks/{made}/attempts"))["items"]
        finally:
            worker.kill()

    assert ran["result"] == [1], json.dumps(ran)
    assert [item["outcome"] for item in attempts] == ["succeeded"]
    ((began, ended, attempt),) = told["result"]
    assert attempt == 1
    assert before / SECOND - 1 < began < before / SECOND + 20
    assert 1.5 <= ended - began < 15
