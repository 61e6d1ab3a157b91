"""The outside ledger of the chaos run: what was asked, answered, begun and finished, written as it happens.

One file per process, only ever appended to, one ``write`` per line: what was written stays when the process is killed.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Ledger:
    """One process's file."""

    def __init__(self, folder: Path, name: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._descriptor = os.open(folder / f"{name}.jsonl", flags, 0o644)

    def write(self, what: str, **facts: object) -> int:
        """Add a line and return its instant in nanoseconds."""
        at = time.time_ns()
        line = json.dumps({"at": at, "what": what, **facts}, separators=(",", ":")) + "\n"
        os.write(self._descriptor, line.encode())
        return at

    def sync(self) -> None:
        """Return when all that was written is on the disk."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def read(folder: Path, prefix: str) -> Iterator[dict[str, Any]]:
    """Give the lines of all files whose name begins with ``prefix``. A line that a kill has cut short is left out."""
    for path in sorted(folder.glob(f"{prefix}*.jsonl")):
        for line in path.read_bytes().split(b"\n")[:-1]:
            yield json.loads(line)
