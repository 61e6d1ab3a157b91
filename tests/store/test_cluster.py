"""The server of the tests: it ends with whoever asked for it, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.store.cluster import KEEPER, programs

ASKING = """
import subprocess, sys
keeper = subprocess.Popen([sys.executable, "-I", *sys.argv[1:]], stdin=subprocess.PIPE, start_new_session=True)
keeper.wait()
"""


def is_there(pid: int) -> bool:
    """Say whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
def test_a_server_ends_and_its_folder_goes_when_who_asked_for_it_is_killed() -> None:
    command = [sys.executable, "-c", ASKING, str(KEEPER), str(programs())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        known = json.loads(asking.stdout.readline())
        assert is_there(known["pid"])
        if not os.geteuid():
            assert Path(known["folder"]).stat().st_uid == 0
            assert Path(known["folder"], "data").stat().st_uid != 0
        asking.send_signal(signal.SIGKILL)

    until = time.monotonic() + 60
    while is_there(known["pid"]) or Path(known["folder"]).exists():
        assert time.monotonic() < until
        time.sleep(0.05)
