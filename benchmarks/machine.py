"""What the machine has to spare at the moment of a measurement: syncs of the disk, and processors that others use.

Processors are read from /proc; where there is none, 0 is given. Nothing here needs more than the standard library.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_SYNC_SECONDS = 0.25


def syncs_now(seconds: float = _SYNC_SECONDS) -> float:
    """Return fsyncs a second of 4 KB appended to a file where temporary files lie."""
    with tempfile.TemporaryFile(buffering=0) as file:
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            file.write(bytes(4096))
            os.fsync(file.fileno())
            count += 1
        return count / (time.perf_counter() - began)


def own_seconds(pid: int | None = None) -> float:
    """Return the processor seconds of a process (this one) and its descendants, those among them that have ended."""
    mine = {os.getpid() if pid is None else pid}
    parents = dict(_stats())
    grows = True
    while grows:
        found = {child for child, stat in parents.items() if int(stat[1]) in mine} - mine
        mine |= found
        grows = bool(found)
    return sum(sum(map(int, parents[one][11:15])) for one in mine if one in parents) / _TICKS


def cpu_seconds(pid: int) -> float:
    """Return the processor seconds of one process, without its children."""
    stat = _fields((_PROC / str(pid) / "stat").read_text())
    return sum(map(int, stat[11:13])) / _TICKS


def rss_bytes(pid: int | None = None) -> int:
    """Return the memory of a process that is in RAM and that it shares with no other: what it costs the machine."""
    where = _PROC / str(pid or os.getpid()) / "smaps_rollup"
    kilobytes = 0
    for line in where.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in {"Private_Clean", "Private_Dirty"}:
            kilobytes += int(rest.split()[0])
    return kilobytes * 1024


def _busy_seconds() -> float:
    try:
        first = (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return 0.0
    numbers = [int(text) for text in first]
    return (sum(numbers) - numbers[3] - numbers[4]) / _TICKS  # all but idle and waiting for the disk


def _stats() -> Iterator[tuple[int, list[str]]]:
    try:
        ids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    except OSError:
        return
    for pid in ids:
        try:
            yield pid, _fields((_PROC / str(pid) / "stat").read_text())
        except OSError:
            continue  # it has ended


def _fields(stat: str) -> list[str]:
    """Return the fields of a stat line after the name, which may have blanks in it: state, parent, …"""
    return stat.rpartition(")")[2].split()


@dataclass(slots=True)
class Others:
    """Takes note of the processors that everybody but this process and its descendants uses from here on."""

    began: float = field(default_factory=time.monotonic)
    busy: float = field(default_factory=_busy_seconds)
    own: float = field(default_factory=own_seconds)

    def cores(self) -> float:
        """Return how many cores others used on average. Descendants that nobody waited for must still be there."""
        seconds = max(time.monotonic() - self.began, 1e-3)
        used = (_busy_seconds() - self.busy) - (own_seconds() - self.own)
        return max(used / seconds, 0.0)


def busy_cores(seconds: float = 0.25) -> float:
    """Return how many cores others use just now."""
    others = Others()
    time.sleep(seconds)
    return others.cores()
