"""What a shell can do to a command: closed streams, bytes that are no text, a full disk, a folder that is gone."""

import subprocess
import sys
from pathlib import Path

import pytest

from outlast.core.errors import Invalid
from outlast.sdk.http import HttpTransport
from tests.cli.conftest import Command

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
BYTES = "$(printf '\"\\377\"')"


def in_shell(folder: Path, line: str) -> tuple[int, str]:
    """Run ``line``, in which $OUTLAST is the command; return its exit code and what it wrote to stderr."""
    command = f"OUTLAST='{sys.executable} -m outlast.cli'; {line}"
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


@POSIX
@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        pytest.param("$OUTLAST task cancel - --yes <&-", 0, "no task was named", id="stdin is closed"),
        pytest.param("$OUTLAST task list >&-", 0, "", id="stdout is closed"),
        pytest.param("$OUTLAST task show nothing 2>&-", 3, "", id="stderr is closed"),
        pytest.param("$OUTLAST task list <&- >&- 2>&-", 0, "", id="all are closed"),
        pytest.param("$OUTLAST task list > /dev/full", 5, "No space left on device", id="stdout is full"),
        pytest.param(
            "$OUTLAST task list --json > /dev/full", 5, "No space left on device", id="stdout is full of JSON"
        ),
        pytest.param(f"$OUTLAST task enqueue x {BYTES}", 2, "Argument 4 of the command is no text", id="bytes in JSON"),
        pytest.param(f"$OUTLAST task show {BYTES}", 2, "Argument 3 of the command is no text", id="bytes as an id"),
        pytest.param("mkdir d; cd d; rmdir ../d; $OUTLAST task list", 2, "current folder is gone", id="no folder"),
        pytest.param("$OUTLAST serve --port 0 --store sqlite:////dev/null", 2, "is a device or a pipe", id="a device"),
    ],
)
def test_a_command_says_in_a_line_what_its_shell_did_to_it(kept: Path, line: str, code: int, said: str) -> None:
    if "/dev/full" in line and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")

    ended, errors = in_shell(kept, line)

    assert said in errors
    assert "Traceback" not in errors
    assert ended == code


def test_a_file_of_tasks_that_is_no_text_is_refused_by_its_line(kept: Path, outlast: Command) -> None:
    (kept / "tasks.jsonl").write_bytes(b'{"type": "resize"}\n\xff\xfe\n')

    code, _, said = outlast("task", "enqueue", "--file", "tasks.jsonl")

    assert code == 2
    assert "tasks.jsonl is no UTF-8 behind line" in said


def test_a_settings_file_that_is_nested_without_end_is_refused(kept: Path, outlast: Command) -> None:
    (kept / "outlast.toml").write_text(f"deep = {'[' * 5000}{']' * 5000}\n")

    code, _, said = outlast("task", "list")

    assert code == 2
    assert "outlast.toml is no TOML" in said


@pytest.mark.parametrize(
    "address",
    ["junk", "http://", "http://:7070", "http://127.0.0.1:99999", "http://127.0.0.1:0", "http://[::1", "http://a/ b"],
)
def test_an_address_that_no_request_can_go_to_is_refused_at_once(address: str) -> None:
    with pytest.raises(Invalid) as refused:
        HttpTransport(address)

    assert "The server's address is" in refused.value.fact


def test_a_token_over_two_lines_is_refused_and_not_shown() -> None:
    with pytest.raises(Invalid) as refused:
        HttpTransport("http://127.0.0.1:7070", token="secret\nX-Other: 1")

    assert "secret" not in str(refused.value)
