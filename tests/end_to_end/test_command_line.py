"""The command line: what it prints, its exit codes, and how it answers bad input."""

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outlast.cli import main
from outlast.core.inputs import CompleteTasks, Completion, TaskSucceeded
from outlast.core.replies import Work
from outlast.server.embedded import start
from tests.end_to_end.processes import command
from tests.engine.doubles import a_poll, a_signal, a_start, a_task, run

HEAVY = {"aiohttp", "starlette", "uvicorn", "uvloop", "apsw", "httptools", "rich", "typer"}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store that nobody runs: one open workflow, one waiting task, one done task."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OUTLAST_STORE", raising=False)
    monkeypatch.delenv("OUTLAST_SERVER", raising=False)
    engine = start("sqlite:///outlast.db", serve=False)

    async def work() -> None:
        transport = engine.transport
        await transport.call(a_task(task_id="t-done"))
        polled = await transport.call(a_poll())
        assert isinstance(polled, Work)
        done = tuple(Completion(token=lease.token, outcome=TaskSucceeded()) for lease in polled.tasks)
        await transport.call(CompleteTasks(worker="w1", items=done))
        await transport.call(a_task(task_id="t-waits", queue="images"))
        await transport.call(a_start("order 7[31m", queue="orders"))
        await transport.call(a_signal("order 7[31m"))

    run(work)
    engine.stop()
    return tmp_path


@pytest.mark.parametrize("argv", [["--help"], ["workflow", "list", "--help"], ["serve", "--help"]], ids=" ".join)
def test_help_imports_nothing_heavy(argv: list[str]) -> None:
    script = f"import sys, outlast.cli; outlast.cli.main({argv!r}); print(sorted(set(sys.modules) & {HEAVY!r}))"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip().endswith("[]")
    assert f"outlast {' '.join(argv[:-1])}" in done.stdout


@pytest.mark.slow
def test_help_takes_less_than_150_ms_of_processor_time() -> None:
    def spent() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "outlast.cli", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(spent() for _ in range(5)) < 0.150


def test_the_file_is_looked_into_when_nothing_runs(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["workflow", "list"])

    out = capsys.readouterr().out
    assert code == 0
    assert "order 7[31m" in out


def test_a_list_as_json_is_one_object_a_line(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["workflow", "ls", "--json", "--status", "running"])

    rows = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["id"] for row in rows] == ["order 7[31m"]


def test_why_says_what_a_waiting_task_waits_for(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["why", "t-waits"])

    out = capsys.readouterr().out
    assert code == 0
    assert "waits for" in out
    assert "images" in out


def test_why_of_a_workflow_names_its_queue_and_a_way_out(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["why", "order 7[31m", "--json"])

    told = msgspec.json.decode(capsys.readouterr().out)
    assert told["why"]["kind"] == "workflow"
    assert "orders" in told["why"]["waits_for"]
    assert told["helps"]


def test_why_of_a_done_task_says_how_it_ended(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["why", "t-done"])

    assert "succeeded" in capsys.readouterr().out


def test_show_tells_steps_and_raw_tells_events(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["workflow", "show", "order 7[31m"])
    steps = capsys.readouterr().out
    main(["workflow", "show", "order 7[31m", "--raw"])
    raw = capsys.readouterr().out

    assert "signal  approve" in steps
    assert "WorkflowExecutionStarted" not in steps
    assert "WorkflowExecutionStarted" in raw


def test_looking_changes_nothing_in_the_file(kept: Path) -> None:
    before = (kept / "outlast.db").read_bytes()

    main(["workflow", "list"])
    main(["why", "t-waits"])

    assert (kept / "outlast.db").read_bytes() == before


CASES: list[tuple[list[str], int, str]] = [
    ([], 2, ""),
    (["--help"], 0, ""),
    (["version"], 0, ""),
    (["workflow"], 2, ""),
    (["workflows", "list"], 2, "Did you mean"),
    (["workflow", "lst"], 2, "workflow list"),
    (["why"], 2, "id"),
    (["workflow", "list", "--limit", "many"], 2, "many"),
    (["workflow", "list", "--limit", "0"], 2, "limit"),
    (["workflow", "list", "--status", "happy"], 2, "running"),
    (["workflow", "show", "nope"], 3, "workflow_not_found"),
    (["why", "nope"], 3, "no workflow or task"),
    (["workflow", "list", "--store", "sqlite:///none.db"], 3, "store_not_found"),
    (["workflow", "list", "--store", "memory:"], 3, "its own process"),
    (["workflow", "list", "--store", "postgresql://127.0.0.1:1/y"], 5, "cannot be reached"),
    (["workflow", "list", "--store", "outlast.db"], 2, "sqlite:///outlast.db"),
    (["workflow", "list", "--server", "http://127.0.0.1:1"], 5, "does not answer"),
    (["workflow", "list", "--server", "127.0.0.1:1"], 2, "http://"),
    (["workflow", "list", "--server", "http://127.0.0.1:1", "--store", "sqlite:///outlast.db"], 2, "Both"),
    (["workflow", "signal", "o-7", "approve", "{no"], 2, "no JSON"),
    (["workflow", "signal", "o-7", "approve"], 3, "workflow_not_found"),
    (["workflow", "list", "--statsu", "running"], 2, "Did you mean --status"),
    (["workflow", "cancel", "a", "b"], 2, "--yes"),
    (["workflow", "start", "order", "text"], 2, "quote it twice: '\"text\"'"),
    (["task", "enqueue", "resize", "--tag", "plain"], 2, "NAME=VALUE"),
    (["task", "enqueue"], 2, "no type"),
    (["task", "enqueue", "--file", "none.jsonl"], 2, "cannot be read"),
    (["task", "show", "nope"], 3, "task_not_found"),
    (["task", "list", "--state", "happy"], 2, "enqueued"),
    (["workflow", "result", "order 7[31m"], 5, "No engine is running"),
    (["config", "show", "--config", "none.toml"], 3, "none.toml"),
    (["config", "show", "--profile", "prod"], 2, "[profile.prod]"),
    (["serve", "--listen", "0.0.0.0:0"], 2, "OUTLAST_TOKEN"),
    (["serve", "--listen", "here"], 2, "HOST:PORT"),
    (["serve", "--port", "x"], 2, "--port"),
    (["serve", "--store", "sqlite:///no/such/folder/x.db", "--port", "0"], 2, "no folder"),
    (["worker", "start", "nowhere.py"], 3, "no file"),
    (["worker", "start", "no_such_module_here"], 3, "no module"),
    (["worker", "start", "app.py", "--server", "ftp://x"], 2, "http://"),
]


@pytest.mark.parametrize("case", CASES, ids=[" ".join(case[0]) or "nothing" for case in CASES])
def test_every_outcome_has_its_exit_code_and_its_words(
    kept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, case: tuple[list[str], int, str]
) -> None:
    argv, code, said = case
    monkeypatch.setattr("outlast.cli.reach.REACH_WITHIN", 0.3)
    monkeypatch.setattr("outlast.sdk.http.ANSWER_TIMEOUT", 0.3)

    found = main(argv)

    streams = capsys.readouterr()
    assert found == code, streams.err
    assert said in streams.out + streams.err
    assert "Traceback" not in streams.err


MODULES: list[tuple[str, str, str]] = [
    ("raises", "\nx = 1 / 0\n", "mine.py:2"),
    ("no app", "x = 1\n", "no_app"),
    ("starts an app", "from outlast import App\napp = App()\napp.start()\n", "__main__"),
    ("two apps", "from outlast import App\none = App()\ntwo = App()\n", "several"),
    ("does not parse", "def broken(:\n", "mine.py:1"),
]


@pytest.mark.parametrize(("name", "source", "said"), MODULES, ids=[module[0] for module in MODULES])
def test_a_module_that_cannot_be_used_says_where_and_what_to_do(
    tmp_path: Path, name: str, source: str, said: str
) -> None:
    (tmp_path / "mine.py").write_text(source)

    done = command(tmp_path, "worker", "start", "mine.py", "--server", "http://127.0.0.1:1")

    assert done.returncode in {2, 4}, done.stderr
    assert said in done.stderr
    assert "mine.py" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.db"))


def test_a_damaged_store_is_said_so_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "outlast.db").write_bytes(b"this is no database" * 500)

    looked = command(tmp_path, "workflow", "list")
    served = command(tmp_path, "serve", "--port", "0")

    assert (looked.returncode, served.returncode) == (4, 4)
    assert "store_damaged" in looked.stderr
    assert "store_damaged" in served.stderr
    assert (tmp_path / "outlast.db").read_bytes() == b"this is no database" * 500


def test_a_fault_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr("outlast.cli.version.version", broken)

    with pytest.raises(ZeroDivisionError):
        main(["version"])
