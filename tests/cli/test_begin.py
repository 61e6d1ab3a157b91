"""``outlast init`` and ``outlast tour``: what a newcomer starts with, run as a program."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.end_to_end.processes import Program, command, wait_until

EXPECTED = {
    "order-7": ("running", "signal"),
    "order-8": ("running", "charge"),
    "report-may": ("running", "failed"),
    "subscription-ada": ("running", "timer"),
    "gift-1": ("completed", ""),
    "refund-3": ("failed", ""),
}


@pytest.mark.slow
def test_the_script_project_runs_and_its_test_passes(folder: Path) -> None:
    made = command(folder, "init", "--folder", "orders")
    assert made.returncode == 0, made.stderr

    ran = Program(folder / "orders", "app.py")
    ran.process.wait(timeout=30)
    tested = Program(folder / "orders", "-m", "pytest", "-q", "-p", "no:cacheprovider", name="tested")
    tested.process.wait(timeout=60)

    assert ran.process.returncode == 0, ran.said()
    assert "receipt for order-7, approved by ada" in ran.said()
    assert tested.process.returncode == 0, tested.said()
    checked = command(folder / "orders", "config", "check", "--profile", "prod")
    assert checked.returncode == 0, checked.stderr


@pytest.mark.slow
def test_the_fastapi_project_takes_an_order(folder: Path, outlast: Command) -> None:
    outlast("init", "fastapi")
    script = (
        "from fastapi.testclient import TestClient\nfrom web import web\n"
        "with TestClient(web) as client:\n"
        "    client.post('/orders/7')\n    client.post('/orders/7/approve?by=ada')\n"
        "    print(client.get('/orders/7').json())\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], check=False, cwd=folder, capture_output=True, text=True, timeout=60
    )

    assert "approved by ada" in done.stdout, done.stderr


@pytest.mark.slow
def test_the_django_project_takes_an_order(folder: Path, outlast: Command) -> None:
    outlast("init", "django")
    file = folder / "address"
    serve = Program(folder, "-m", "outlast.cli", "serve", "--port", "0", "--announce-file", str(file), name="serve")
    try:
        address = wait_until(lambda: file.exists() and file.read_text(), serve.said, serve.process)
        worker = Program(
            folder, "-m", "outlast.cli", "worker", "start", "worker.py", "--server", address, name="worker"
        )
        script = (
            "import worker\nfrom django.test import Client\nclient = Client()\n"
            "client.post('/orders/7')\nclient.post('/orders/7/approve?by=ada')\n"
            "print(client.get('/orders/7').json())\n"
        )
        try:
            asked = Program(folder, "-c", script, name="asked", env={"OUTLAST_SERVER": address})
            asked.process.wait(timeout=60)
        finally:
            worker.kill()
    finally:
        serve.kill()

    assert "approved by ada" in asked.said()


@pytest.mark.parametrize("kind", ["script", "fastapi", "django"])
def test_every_file_of_a_project_is_python_or_settings_that_can_be_read(
    folder: Path, outlast: Command, kind: str
) -> None:
    code, out, err = outlast("init", kind, "--folder", kind)

    assert code == 0, err
    assert out.count("wrote ") == len([path for path in (folder / kind).rglob("*") if path.is_file()])
    for path in (folder / kind).rglob("*.py"):
        compile(path.read_text(), str(path), "exec")
    again, _, said = outlast("init", kind, "--folder", kind)
    assert again == 4
    assert "nothing was written" in said


def test_a_dry_run_of_init_writes_nothing(folder: Path, outlast: Command) -> None:
    code, out, _ = outlast("init", "--dry-run")

    assert code == 0
    assert "would write app.py" in out
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_the_tour_has_something_in_every_state_and_leaves_nothing(folder: Path) -> None:
    (folder / "tmp").mkdir()
    tour = Program(folder, "-m", "outlast.cli", "tour", name="tour", env={"TMPDIR": str(folder / "tmp")})
    try:
        said = tour.until_said("Ctrl-C closes the shop")
        address = said.split("OUTLAST_SERVER=")[1].split()[0]

        def found() -> dict[str, dict[str, str]]:
            out = command(folder, "workflow", "list", "--json", "--server", address).stdout
            return {row["id"]: row for row in map(json.loads, out.splitlines())}

        wait_until(lambda: _is_expected(found()), lambda: str(found()))
        tasks = command(folder, "task", "list", "--json", "--server", address).stdout
        states = {json.loads(line)["state"] for line in tasks.splitlines()}
        commands = [line.strip() for line in said.splitlines() if line.startswith("  outlast ")]
        codes = {line: _run_line(folder, line, address) for line in commands}
        code = tour.stop()
    finally:
        tour.kill()

    assert {"enqueued", "retry_wait", "failed", "succeeded"} <= states
    assert [line for line, found in codes.items() if found not in {0, 7}] == []
    assert code == 0
    assert list((folder / "tmp").iterdir()) == []


def _is_expected(runs: dict[str, dict[str, str]]) -> bool:
    return all(runs[id]["status"] == status and part in runs[id]["why"] for id, (status, part) in EXPECTED.items())


def _run_line(folder: Path, line: str, address: str) -> int:
    """Give a command as it stands in the guide, what explains it left out."""
    words = shlex.split(line.split("   ", maxsplit=1)[0])[1:]
    return command(folder, *words, env={"OUTLAST_SERVER": address}).returncode


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(outlast: Command, shell: str) -> None:
    _, out, _ = outlast("completion", shell)

    assert all(word in out for word in ("workflow", "terminate", "doctor", "enqueue"))


def test_bash_takes_its_completion(folder: Path, outlast: Command) -> None:
    (folder / "complete.sh").write_text(outlast("completion", "bash")[1])
    script = (
        "source ./complete.sh; COMP_WORDS=(outlast workflow te); COMP_CWORD=2; _outlast; echo ${COMPREPLY[@]};"
        "COMP_WORDS=(outlast workflow list --sta); COMP_CWORD=3; _outlast; echo ${COMPREPLY[@]}"
    )

    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["terminate", "--status"]
