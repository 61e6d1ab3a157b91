"""An app in a child of a fork: it says whose its engine is, and can begin anew; nothing of the parent's is touched."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os
from outlast import App
app = App(outboxes=["sqlite:///shop.db"])

@app.task
def double(n: int) -> int:
    return 2 * n

@app.task
def in_a_fork(n: int) -> int:
    child = os.fork()
    if child == 0:
        try:
            double.enqueue(n)
        except Exception as error:
            os._exit(7 if type(error).__name__ == "NotStarted" else 8)
        os._exit(9)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

if __name__ == "__main__":
    with app:
        made = double.enqueue(1)
        child = os.fork()
        if child == 0:
            for call in (lambda: made.result(timeout="5s"), lambda: double.enqueue(2), lambda: app.tasks.count()):
                try:
                    print("went", call(), flush=True)
                except Exception as error:
                    print(type(error).__name__, "forked" in str(error), flush=True)
            with app:
                print("as a client", double.enqueue(3).result(timeout="20s"), flush=True)
            raise SystemExit(5)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        print(made.result(timeout="20s"), in_a_fork.enqueue(4).result(timeout="20s"), double.enqueue(5).result(timeout="20s"))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_child_is_told_and_may_be_a_client_and_the_parent_goes_on(tmp_path: Path) -> None:
    (tmp_path / "forking.py").write_text(PROGRAM)

    done = subprocess.run(
        [sys.executable, "forking.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=90
    )

    assert done.stdout.splitlines() == [
        *["NotStarted True"] * 3,
        "as a client 6",
        "child 5",
        "2 7 10",
    ], done.stderr
    assert done.returncode == 0
