"""The app: where its store is, how it starts and stops, and how commands load it."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import App
from outlast.core import inputs
from outlast.sdk.errors import TaskError
from outlast.sdk.loading import CannotLoad, load_app
from outlast.sdk.misuse import BadDeclaration, Blocked, NotStarted, StartedAtImport, UnknownOption
from tests.sdk.apps import eventually, faked_app, starting
from tests.sdk.fake_engine import FakeEngine

SRC = Path(outlast.__file__).parent.parent


def run_python(code: str, *, cwd: Path | None = None) -> str:
    environ = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_root_loads_nothing_heavy() -> None:
    heavy = ("aiohttp", "starlette", "uvicorn", "uvloop", "apsw", "asyncio", "msgspec", "outlast.sdk", "outlast.core")
    said = run_python(f"import sys, outlast; print([name for name in {heavy!r} if name in sys.modules])")

    assert said == "[]"


def test_importing_the_app_loads_neither_server_nor_http() -> None:
    heavy = ("aiohttp", "starlette", "uvicorn", "uvloop", "apsw", "outlast.engine", "outlast.server")
    said = run_python(
        f"import sys; from outlast import App; print([name for name in {heavy!r} if name in sys.modules])"
    )

    assert said == "[]"


def test_every_public_name_can_be_had_from_the_root() -> None:
    assert all(getattr(outlast, name) is not None for name in outlast.__all__)


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = outlast.no_such_name


def test_the_default_store_is_a_file_beside_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTLAST_STORE", raising=False)

    app = App()

    assert app.store == f"sqlite:///{Path(__file__).parent / 'outlast.db'}"
    assert app.place.startswith(__file__)


def test_the_environment_names_the_store_unless_the_program_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_STORE", "memory:")

    assert App().store == "memory:"
    assert App("http://127.0.0.1:1").store == "http://127.0.0.1:1"


def test_a_store_of_another_kind_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownOption, match="mysql") as raised:
        App("mysql://localhost/shop")

    assert "sqlite:///FILE" in raised.value.remedy


def test_an_app_can_be_started_again_after_it_stopped() -> None:
    app = faked_app(FakeEngine())
    task = app.task(name="one")(lambda: 1)

    with app:
        assert task.enqueue().result(timeout="5s") == 1
    with pytest.raises(NotStarted):
        task.enqueue()
    app.start_engine = starting(FakeEngine())
    with app:
        assert task.enqueue().result(timeout="5s") == 1


def test_a_start_within_a_start_ends_with_the_outer_one() -> None:
    app = faked_app(FakeEngine())
    task = app.task(name="one")(lambda: 1)

    with app:
        with app:
            pass
        assert task.enqueue().result(timeout="5s") == 1


def test_a_caller_that_still_waits_when_the_app_stops_is_told_so() -> None:
    fake = FakeEngine()
    app = faked_app(fake, worker=False)
    told: list[BaseException] = []

    def wait() -> None:
        try:
            app.get_task("t").result()
        except NotStarted as error:
            told.append(error)

    with app:
        app.task(name="one")(lambda: 1).using(id="t").enqueue()
        waiting = threading.Thread(target=wait)
        waiting.start()
        eventually(lambda: any(isinstance(request, inputs.AwaitTask) for request in fake.requests))

    waiting.join(5)
    assert len(told) == 1


def test_no_thread_of_an_app_outlives_it() -> None:
    app = faked_app(FakeEngine())

    @app.task
    async def later() -> int:
        return 1

    @app.workflow
    async def flow() -> int:
        return await later.execute()

    with app:
        flow.start().result(timeout="5s")

    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("outlast-")])


def test_a_task_declared_while_the_worker_runs_is_worked_on_at_once() -> None:
    app = faked_app(FakeEngine())
    app.task(name="one")(lambda: 1)

    with app:
        assert app.task(name="two")(lambda: 2).enqueue().result(timeout="2s") == 2


def test_coroutines_of_tasks_run_beside_the_callers_loop() -> None:
    app = faked_app(FakeEngine())

    @app.task
    async def thread_name() -> str:
        return threading.current_thread().name

    async def main() -> str:
        async with app:
            return await thread_name.execute()

    assert asyncio.run(main()) == "outlast-async"


def test_a_task_may_enqueue_another_from_its_thread() -> None:
    app = faked_app(FakeEngine())

    @app.task
    def inner() -> int:
        return 4

    @app.task
    def outer() -> int:
        return inner.enqueue().result(timeout="5s")

    with app:
        assert outer.enqueue().result(timeout="5s") == 4


def test_a_coroutine_task_may_await_another() -> None:
    app = faked_app(FakeEngine())

    @app.task
    def inner() -> int:
        return 4

    @app.task
    async def outer() -> int:
        return await inner.execute() + await (await inner.aenqueue()).aresult()

    with app:
        assert outer.enqueue().result(timeout="5s") == 8


def test_waiting_for_a_result_on_an_apps_own_loop_is_refused_not_a_deadlock() -> None:
    app = faked_app(FakeEngine())

    @app.task
    def inner() -> int:
        return 4

    @app.task
    async def outer() -> int:
        return (await inner.aenqueue()).result()

    with app, pytest.raises(TaskError) as raised:
        outer.enqueue().result(timeout="5s")

    assert raised.value.type == Blocked.__name__
    assert "await handle.aresult()" in raised.value.failure.info["remedy"]


def test_running_an_app_ends_in_good_order_on_a_signal(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, threading\n"
        f"sys.path.insert(0, {str(Path(__file__).parent.parent.parent)!r})\n"
        "from tests.sdk.apps import faked_app\n"
        "from tests.sdk.fake_engine import FakeEngine\n"
        "app = faked_app(FakeEngine())\n"
        "begun = threading.Event()\n"
        "@app.task\n"
        "def slow() -> int:\n"
        "    print('begun', flush=True)\n"
        "    threading.Event().wait(0.5)\n"
        "    print('finished', flush=True)\n"
        "    return 1\n"
        "def ask():\n"
        "    while app.worker is None: threading.Event().wait(0.01)\n"
        "    slow.enqueue()\n"
        "threading.Thread(target=ask).start()\n"
        "app.run()\n"
        "print('stopped', flush=True)\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(SRC)}
    with subprocess.Popen([sys.executable, program], env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"

        process.send_signal(signal.SIGTERM)

        assert process.stdout.read() == "finished\nstopped\n"
    assert process.returncode == 0


def write_module(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(text)
    return path


def test_the_one_app_of_a_file_is_found(tmp_path: Path) -> None:
    path = write_module(tmp_path, "one_app", "from outlast import App\nshop = App('memory:')\n")

    assert load_app(str(path)).store == "memory:"


def test_an_app_is_found_by_module_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_module(
        tmp_path, "two_apps", "from outlast import App\na = App('memory:')\nb = App('memory:', namespace='b')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))  # pyright: ignore[reportUnknownMemberType]

    assert load_app("two_apps:b").namespace == "b"
    with pytest.raises(CannotLoad, match="a, b"):
        load_app("two_apps")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x = 1\n", "no_app"),
        ("raise RuntimeError('broken')\n", "module_raised"),
        ("import nowhere_at_all\n", "module_raised"),
        ("import sys\nsys.exit(0)\n", "module_raised"),
    ],
    ids=["no app", "raises", "imports what is not there", "exits"],
)
def test_a_module_without_an_app_to_be_had_says_why(tmp_path: Path, text: str, code: str) -> None:
    path = write_module(tmp_path, f"broken_{code}_{len(text)}", text)

    with pytest.raises(CannotLoad) as raised:
        load_app(str(path))

    assert raised.value.code == code


def test_a_file_that_there_is_not_is_named() -> None:
    with pytest.raises(CannotLoad, match=r"nowhere\.py"):
        load_app("nowhere.py")


@pytest.mark.parametrize("target", [".", "..", "./", "src/", ".app", "app.", "app/main", "", ":app", "..:app"])
def test_what_names_neither_a_file_nor_a_module_is_told_what_to_name(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path)

    with pytest.raises(CannotLoad) as raised:
        load_app(target)

    assert raised.value.code == "no_module"
    assert ("is a folder" in raised.value.fact) == (target.partition(":")[0] in {".", "..", "./", "src/"})
    assert "app.py" in raised.value.remedy


def test_a_module_that_starts_its_app_at_import_is_told_where(tmp_path: Path) -> None:
    text = "from outlast import App\napp = App('memory:')\n\nwith app:\n    pass\n"
    path = write_module(tmp_path, "starts_itself", text)

    with pytest.raises(StartedAtImport, match=r"starts_itself\.py:4") as raised:
        load_app(str(path))

    assert '__name__ == "__main__"' in raised.value.remedy


@pytest.mark.parametrize(
    "options",
    [
        {"store": 3}, {"namespace": ""}, {"namespace": "a\ud800"}, {"queues": "mail"}, {"queues": [""]},
        {"threads": 0}, {"threads": -1}, {"threads": True}, {"coroutines": 0}, {"build": 3},
    ],
    ids=ascii,
)  # fmt: skip
def test_an_app_that_could_never_work_is_refused_where_it_is_made(options: dict[str, Any]) -> None:
    with pytest.raises(UnknownOption) as raised:
        App(**options)

    assert raised.value.code
    assert raised.value.remedy


def test_a_declaration_that_is_refused_points_at_the_line_that_declares() -> None:
    def plain(number: int) -> int:
        return number

    app = App("memory:")
    with pytest.raises(BadDeclaration) as raised:
        app.workflow(plain)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]

    frames = [Path(str(frame.path)).name for frame in raised.traceback]
    assert frames == ["test_app.py", "app.py", "app.py"]
