"""``outlast serve`` as a program: settings read again by a signal, and what it refuses to start with."""

import os
import signal
import socket
from pathlib import Path

import pytest

from outlast.store.sqlite.lock import FileLock
from outlast.store.sqlite.opening import MOUNTS, file_system_of
from tests.cli.conftest import Command
from tests.end_to_end.processes import Program, command, serving

TOML = '[log]\nlevel = "{level}"\nformat = "line"\n[http]\nlisten = "{listen}"\n'


@pytest.mark.slow
def test_settings_are_read_again_and_each_change_is_one_line(folder: Path) -> None:
    file = folder / "outlast.toml"
    file.write_text(TOML.format(level="info", listen="127.0.0.1:0"))
    with serving(folder) as (program, address):
        file.write_text(TOML.format(level="debug", listen="127.0.0.1:0") + '[engine]\ntask_lease = "20s"\n')
        done = command(folder, "config", "reload")
        assert done.returncode == 0, done.stderr
        program.until_said("setting log.level: info -> debug (outlast.toml log.level)")
        program.until_said("setting engine.task_lease: 30s -> 20s needs a restart")

        file.write_text("[log]\nlevel = 7\n")
        program.process.send_signal(signal.SIGHUP)
        program.until_said("settings_kept error=log.level in outlast.toml is 7.")
        assert command(folder, "config", "reload").returncode == 2

        file.unlink()
        listed = command(folder, "workflow", "list", "--server", address)
        assert listed.returncode == 0, listed.stderr


TOKENS = '[[tokens]]\nname = "ada"\nroles = ["admin"]\nnamespaces = ["*"]\ntoken = "{token}"\n'


@pytest.mark.slow
def test_tokens_are_read_again_with_the_settings(folder: Path) -> None:
    tokens = folder / "tokens.toml"
    tokens.write_text(TOKENS.format(token="first-secret-of-ada"))
    (folder / "outlast.toml").write_text('[http]\ntokens_file = "tokens.toml"\n[log]\nformat = "line"\n')

    def codes(address: str) -> list[int]:
        return [
            command(folder, "workflow", "count", "--server", address, env={"OUTLAST_TOKEN": token}).returncode
            for token in ("first-secret-of-ada", "second-secret-of-ada")
        ]

    with serving(folder) as (program, address):
        before = codes(address)
        tokens.write_text(TOKENS.format(token="second-secret-of-ada"))
        program.process.send_signal(signal.SIGHUP)
        program.until_said("settings_unchanged")
        after = codes(address)
        tokens.write_text("no tokens")
        program.process.send_signal(signal.SIGHUP)
        program.until_said("settings_kept")
        kept = codes(address)

    assert (before, after, kept) == ([0, 4], [4, 0], [4, 0])
    assert "secret-of-ada" not in program.said()


def test_a_reload_needs_a_server_that_hears_it(kept: Path, outlast: Command) -> None:
    code, _, err = outlast("config", "reload")

    assert code == 3
    assert "outlast serve" in err


@pytest.mark.slow
def test_a_program_that_is_no_server_is_not_sent_a_signal(folder: Path) -> None:
    (folder / "app.py").write_text(
        "import time\nfrom outlast import App\napp = App()\nwith app:\n    print('up', flush=True)\n    time.sleep(60)\n"
    )
    program = Program(folder, "app.py", name="app")
    try:
        program.until_said("up")
        done = command(folder, "config", "reload")
        assert done.returncode == 4
        assert "is no outlast serve" in done.stderr
        assert program.process.poll() is None
    finally:
        program.kill()


def test_serve_refuses_a_store_of_an_older_schema(
    kept: Path, outlast: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.server.looking.schema_known", lambda: 99)

    code, _, err = outlast("serve", "--port", "0")

    assert code == 5
    assert "schema 99" in err
    assert "outlast migrate" in err


@pytest.mark.parametrize("verb", [("serve",), ("dev", "app.py")], ids=["serve", "dev"])
def test_who_has_the_file_is_named_before_the_port_is_tried(
    folder: Path, outlast: Command, verb: tuple[str, ...]
) -> None:
    (folder / "app.py").write_text("from outlast import App\napp = App()\n")
    lock = FileLock(str(folder / "outlast.db"))
    lock.acquire()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        lock.announce(f"http://127.0.0.1:{port}")
        code, _, err = outlast(*verb, "--port", port)
    lock.release()

    assert code == 4
    assert f"outlast.db is held by process {os.getpid()}, reached at http://127.0.0.1:{port}" in err
    assert f"outlast workflow list --server http://127.0.0.1:{port}" in err
    assert (f"outlast worker start app.py --server http://127.0.0.1:{port}" in err) == (verb[0] == "dev")


@pytest.mark.skipif(not Path(MOUNTS).exists(), reason="the system does not tell")
def test_serve_refuses_a_network_disk(folder: Path, outlast: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = file_system_of(str(folder))
    assert kind, f"{MOUNTS} tells, and was not understood"
    monkeypatch.setattr("outlast.store.sqlite.opening.NETWORK_DISKS", {kind})

    code, _, err = outlast("serve", "--port", "0")

    assert code == 5
    assert f"network file system ({kind})" in err
