"""The same workflows of one activity, with engine and worker as two processes and this one as their client.

Estimate before measuring: engine and worker each have an interpreter of their own, so the work of one process is spread over
two cores, and MessagePack over HTTP is added: some 40 us a request even when a hundred share a body. About 2,000 a second.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from benchmarks import workflows
from benchmarks.figures import Figure
from examples.processes import Children


def measure(*, full: bool) -> list[Figure]:
    """Return the rate over HTTP."""
    outlast = [sys.executable, "-m", "outlast.cli"]
    with tempfile.TemporaryDirectory(prefix="outlast-bench-") as folder, Children(Path(folder)) as children:
        serve = ["serve", "--store", f"sqlite:///{folder}/bench.db", "--port", "0"]
        engine = children.start("engine", [*outlast, *serve])
        work = ["worker", "start", "benchmarks.workflows:app", "--server", engine.last_word]
        worker = children.start("worker", [*outlast, *work])
        app = workflows.app
        app.store, app.is_remote = engine.last_word, True
        asyncio.run(workflows.play(workflows.WAVE, ""))
        count = 12_000 if full else 4_000
        figure = asyncio.run(workflows.play(count, "workflows of one activity, two processes", wanted=1_000))
        app.stop()
        worker.stop()
        engine.stop()
    figure.note = "engine and worker beside this client"
    return [figure]
