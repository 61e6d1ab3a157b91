"""What a newcomer waits for once the package is installed: the import, the engine with a fresh file, the first result.

Estimate before measuring: the package itself loads nothing; `from outlast import App, workflow` brings msgspec, asyncio and what
declares: 100 ms of processor. An engine makes its schema in one transaction with a few fsyncs: 0.1 s. The first result is
interpreter, import, engine and one task: 0.6 s.

Each is the best of a few, in an interpreter of its own: what it takes when nothing else has the machine. Modules are loaded
from bytecode, as an installer leaves them: the first of the few writes it, whatever this shell says of writing it.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import Figure

IMPORT = """
import time
began = time.process_time()
from outlast import App, workflow
print(1_000 * (time.process_time() - began))
"""
ENGINE = """
import time
from outlast import App
app = App("sqlite:///fresh.db", worker=False)
began = time.perf_counter()
app.start()
print(time.perf_counter() - began)
app.stop()
"""
FIRST_RESULT = """
import time
from outlast import App

app = App()

@app.task
def greet(name: str) -> str:
    return f"Hello, {name}"

if __name__ == "__main__":
    with app:
        assert greet.enqueue("Ada").result(timeout="10s") == "Hello, Ada"
        print(time.time())
"""


def measure(*, full: bool) -> list[Figure]:
    """Return the three figures of this environment."""
    return figures_of(sys.executable, dict(os.environ), times=7 if full else 3)


def figures_of(python: str, environment: dict[str, str], *, times: int) -> list[Figure]:
    """Return the three figures of an interpreter that has the package."""
    with tempfile.TemporaryDirectory(prefix="outlast-bench-") as bytecode:
        compiled = {**environment, "PYTHONPYCACHEPREFIX": bytecode}
        compiled.pop("PYTHONDONTWRITEBYTECODE", None)
        return _figures_of(python, compiled, times=times)


def _figures_of(python: str, environment: dict[str, str], *, times: int) -> list[Figure]:
    return [
        Figure(
            name="first minute: from outlast import App, processor",
            value=min(_printed(python, IMPORT, environment) for _ in range(times)),
            unit="ms",
            wanted=150,
        ),
        Figure(
            name="first minute: engine started with its schema",
            value=min(_printed(python, ENGINE, environment) for _ in range(times)),
            unit="s",
            wanted=0.5,
        ),
        Figure(
            name="first minute: python app.py to the first result",
            value=min(_first_result(python, environment) for _ in range(times)),
            unit="s",
            wanted=1.0,
        ),
    ]


def _first_result(python: str, environment: dict[str, str]) -> float:
    import time  # noqa: PLC0415 - beside what it is compared with

    began = time.time()
    return _printed(python, FIRST_RESULT, environment) - began


def _printed(python: str, program: str, environment: dict[str, str]) -> float:
    """Return the number that ``program`` prints, run in an empty folder."""
    with tempfile.TemporaryDirectory(prefix="outlast-bench-") as folder:
        (Path(folder) / "app.py").write_text(program)
        done = subprocess.run(
            [python, "app.py"],
            cwd=folder,
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    return float(done.stdout.split()[-1])
