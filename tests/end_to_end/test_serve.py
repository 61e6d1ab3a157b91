"""The server and its command line as real processes: work is acknowledged, processes are killed, work is found again."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from outlast.core.inputs import EnqueueTask
from outlast.core.replies import TaskEnqueuedReply
from outlast.sdk.http import HttpTransport
from tests.end_to_end.processes import Program, command, get, post, serving, wait_until
from tests.engine.doubles import new_id

APP = """
import os
from outlast import App, Signal
app = App()
approve = Signal("approve", dict)

@app.task(max_attempts=3)
def greet(name: str) -> str:
    with open("ran.txt", "a") as file:
        file.write(name + chr(10))
    return "Hello, " + name

@app.workflow
async def order(name: str) -> str:
    said = await greet.execute(name)
    got = await approve.receive(timeout="3d")
    return said + " by " + got["by"]

if __name__ == "__main__":
    with app:
        print("started", flush=True)
        print(greet.enqueue("Ada").result(timeout="20s"), flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def test_acknowledged_work_is_found_after_the_engine_was_killed(folder: Path) -> None:
    with serving(folder) as (engine, address):
        ids = asyncio.run(_enqueue(address, 200))
        engine.kill()
    with serving(folder) as (_, address):
        found = asyncio.run(_states(address))

    assert {id: found.get(id) for id in ids} == dict.fromkeys(ids, "enqueued")


def test_an_enqueue_whose_answer_was_lost_happens_once_when_it_is_sent_again(folder: Path) -> None:
    request = EnqueueTask(task_id=new_id(), type="greet", queue="default", key=new_id())

    with serving(folder) as (engine, address):
        first = asyncio.run(_call(address, request))
        engine.kill()
    with serving(folder) as (_, address):
        again = asyncio.run(_call(address, request))
        found = asyncio.run(_states(address))

    assert (first.replayed, again.replayed) == (False, True)
    assert first.task_id == again.task_id
    assert list(found) == [first.task_id]


def test_a_workflow_outlives_kills_of_engine_and_worker(folder: Path) -> None:
    with serving(folder, name="first") as (engine, address):
        worker = Program(folder, "-m", "outlast.cli", "worker", "start", "app.py", "--server", address, name="worker-1")
        try:
            asyncio.run(post(address, "workflows", {"type": "order", "id": "o-1", "input": ["Ada"]}))
            wait_until(lambda: "signal" in command(folder, "why", "o-1").stdout, worker.said)
            worker.kill()
            engine.kill()
        finally:
            worker.kill()
    with serving(folder, name="second") as (_, address):
        worker = Program(folder, "-m", "outlast.cli", "worker", "start", "app.py", "--server", address, name="worker-2")
        try:
            sent = command(folder, "workflow", "signal", "o-1", "approve", '{"by": "ann"}')
            result = asyncio.run(get(address, "workflows/o-1/result?wait=20s"))
            code = worker.stop()
        finally:
            worker.kill()

    assert sent.returncode == 0, sent.stderr
    assert result["result"] == ["Hello, Ada by ann"]
    assert (folder / "ran.txt").read_text() == "Ada\n"
    assert code == 0


def test_a_worker_polls_again_by_itself_after_the_server_was_away(folder: Path) -> None:
    with serving(folder, name="first") as (engine, address):
        port = address.rpartition(":")[2]
        worker = Program(folder, "-m", "outlast.cli", "worker", "start", "app.py", "--server", address)
        try:
            worker.until_said("polls")
            engine.kill()
            with serving(folder, "--port", port, name="second"):
                made = asyncio.run(post(address, "tasks", {"type": "greet", "input": ["Bob"]}))
                result = asyncio.run(get(address, f"tasks/{made['id']}/result?wait=20s"))
        finally:
            worker.kill()

    assert result["result"] == ["Hello, Bob"]


def test_a_second_engine_on_the_file_is_refused_and_names_the_holder(folder: Path) -> None:
    with serving(folder) as (engine, address):
        second = command(folder, "serve", "--port", "0")

    assert second.returncode == 4
    assert "store_locked" in second.stderr
    assert str(engine.process.pid) in second.stderr
    assert address in second.stderr
    assert "Traceback" not in second.stderr


def test_a_program_beside_the_server_works_on_its_file_as_a_client(folder: Path) -> None:
    with serving(folder) as (engine, _):
        program = Program(folder, "app.py", name="client")
        try:
            program.until_said("Hello, Ada")
            code = program.process.wait(timeout=30)
        finally:
            program.kill()
        alive = engine.process.poll() is None

    assert (code, alive) == (0, True)
    assert (folder / "ran.txt").read_text() == "Ada\n"


def test_a_client_takes_the_store_over_when_its_holder_was_killed(folder: Path) -> None:
    script = folder / "client.py"
    script.write_text(
        "import asyncio\n"
        "from outlast.core.inputs import EnqueueTask\n"
        "from outlast.server.embedded import start\n"
        "from uuid_utils import uuid7\n"
        "engine = start('sqlite:///outlast.db')\n"
        "async def main():\n"
        "    for n in range(2):\n"
        "        request = EnqueueTask(task_id=str(uuid7()), type='t', queue='q', key=str(uuid7()))\n"
        "        await engine.transport.call(request, timeout=25)\n"
        "        print('enqueued', n, flush=True)\n"
        "        while n == 0 and not __import__('os').path.exists('go'):\n"
        "            await asyncio.sleep(0.02)\n"
        "    print(len((await engine.transport.list_tasks()).tasks), 'tasks', flush=True)\n"
        "    await engine.transport.close()\n"
        "asyncio.run(main())\n"
        "engine.stop()\n"
    )
    with serving(folder) as (engine, _):
        client = Program(folder, "client.py", name="client")
        try:
            client.until_said("enqueued 0")
            engine.kill()
            (folder / "go").touch()
            client.until_said("2 tasks")
            code = client.process.wait(timeout=30)
        finally:
            client.kill()

    assert code == 0, client.said()
    assert "Unclosed" not in client.said()


def test_a_clean_stop_leaves_a_whole_file(folder: Path) -> None:
    with serving(folder) as (engine, address):
        asyncio.run(_enqueue(address, 20))
        code = engine.stop()

    with sqlite3.connect(folder / "outlast.db") as database:
        check = database.execute("PRAGMA integrity_check").fetchone()
        count = database.execute("SELECT count(*) FROM tasks").fetchone()
    database.close()
    assert code == 0
    assert check == ("ok",)
    assert count == (20,)
    assert not (folder / "serve.address").exists()


def test_dev_says_why_a_module_cannot_be_used_and_ends(folder: Path) -> None:
    (folder / "broken.py").write_text("x = 1 / 0\n")

    done = command(folder, "dev", "broken.py", "--port", "0")

    assert done.returncode == 4
    assert "broken.py:1" in done.stderr
    assert "started again" not in done.stderr


def test_a_worker_serves_the_namespace_of_its_app(folder: Path) -> None:
    (folder / "shop.py").write_text(APP.replace("App()", 'App(namespace="shop")'))
    with serving(folder, "--namespaces", "default,shop") as (_, address):
        worker = Program(folder, "-m", "outlast.cli", "worker", "start", "shop.py", "--server", address)
        try:
            made = asyncio.run(post(address, "namespaces/shop/tasks", {"type": "greet", "input": ["Di"]}))
            result = asyncio.run(get(address, f"namespaces/shop/tasks/{made['id']}/result?wait=20s"))
        finally:
            worker.kill()

    assert result["result"] == ["Hello, Di"]


def test_a_worker_of_a_namespace_that_is_not_there_ends_and_says_so(folder: Path) -> None:
    with serving(folder) as (_, address):
        done = command(folder, "worker", "start", "app.py", "--server", address, "--namespace", "other")

    assert done.returncode == 3
    assert "other" in done.stderr


def test_dev_runs_engine_and_worker_and_ends_both(folder: Path) -> None:
    dev = Program(folder, "-m", "outlast.cli", "dev", "app.py", "--port", "0", name="dev")
    try:
        address = dev.until_said("worker for app.py").split(" at ")[1].split(",")[0]
        made = asyncio.run(post(address, "tasks", {"type": "greet", "input": ["Cy"]}))
        result = asyncio.run(get(address, f"tasks/{made['id']}/result?wait=20s"))
        code = dev.stop()
    finally:
        dev.kill()

    assert result["result"] == ["Hello, Cy"]
    assert code == 0, dev.said()
    assert "Traceback" not in dev.said()


async def _enqueue(address: str, count: int) -> list[str]:
    transport = HttpTransport(address)
    requests = [EnqueueTask(task_id=new_id(), type="greet", queue="default", key=new_id()) for _ in range(count)]
    replies = await asyncio.gather(*(transport.call(request, timeout=20) for request in requests))
    await transport.close()
    return [reply.task_id for reply in replies if isinstance(reply, TaskEnqueuedReply)]


async def _states(address: str) -> dict[str, str]:
    transport = HttpTransport(address)
    page = await transport.list_tasks(limit=500)
    await transport.close()
    return {info.task_id: info.state.value for info in page.tasks}


async def _call(address: str, request: EnqueueTask) -> TaskEnqueuedReply:
    transport = HttpTransport(address)
    reply = await transport.call(request, timeout=20)
    await transport.close()
    assert isinstance(reply, TaskEnqueuedReply)
    return reply
