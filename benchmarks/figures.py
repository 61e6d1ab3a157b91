"""What a benchmark gives: figures with what they are held to, beside what the raw store gives in the same run.

A figure is met when it is as high (or, for a time, as low) as is wanted. Its ratio to the raw store of the same run stands
beside it: on a busy machine or a slow disk both fall, and the ratio tells which part is the engine's.
"""

import json
import os
import tempfile
import time
from asyncio import Runner
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import asyncpg

SERVER = "BENCH_POSTGRES"
"""The variable of the environment that names the server to measure on, by the address of its database "postgres"."""


@dataclass(slots=True, kw_only=True)
class Raw:
    """What the disk and a database give by themselves, a second. ``commits`` of one row: 0 where a sync is one."""

    syncs: float
    rows: float
    starts: float
    lives: float
    commits: float = 0.0


@dataclass(slots=True, kw_only=True)
class Figure:
    """One measured number. Of a rate (``unit`` "/s") more is better, of anything else less. ``wanted`` 0 for none.

    ``syncs`` and ``others`` are fsyncs a second just before it was measured, and cores that others used meanwhile.
    """

    name: str
    value: float
    unit: str = "/s"
    wanted: float = 0.0
    note: str = ""
    syncs: float = 0.0
    others: float = 0.0

    @property
    def is_rate(self) -> bool:
        """Whether more is better."""
        return self.unit == "/s"

    def ratio(self, raw: Raw) -> str:
        """Return how many raw rows one of these costs, or how many fsyncs a time in milliseconds lasts; else nothing."""
        if self.is_rate:
            return f"{raw.rows / self.value:.1f} raw rows each"
        return f"{self.value / (1_000 / raw.syncs):.1f} fsyncs" if self.unit == "ms" else ""

    @property
    def is_met(self) -> bool:
        """Whether it is as good as wanted."""
        if not self.wanted:
            return True
        return self.value >= self.wanted if self.is_rate else self.value <= self.wanted

    @property
    def shown(self) -> str:
        """The number with its unit."""
        return f"{self.value:,.0f}/s" if self.is_rate else f"{self.value:,.2f} {self.unit}"

    @property
    def wish(self) -> str:
        """What it is held to, empty for nothing."""
        return f"{'≥' if self.is_rate else '≤'} {self.wanted:,g}" if self.wanted else ""

    def line(self, raw: Raw) -> str:
        """Return it as text."""
        wanted = f"wanted {self.wish}: {'met' if self.is_met else 'MISSED'}" if self.wanted else ""
        return f"{self.name:<54}{self.shown:>18}  {self.ratio(raw):<22}{wanted:<26}{self.note}".rstrip()


@contextmanager
def fresh_store() -> Generator[str]:
    """Give the address of a store that does not exist yet, and goes afterwards: a file, or a database of the server in SERVER."""
    server = os.environ.get(SERVER, "")
    if server:
        name = f"bench{os.getpid()}"
        with Runner() as runner:
            runner.run(_say(server, f"CREATE DATABASE {name} TEMPLATE template0"))
            yield server.replace("/postgres?", f"/{name}?")
            runner.run(_say(server, f"DROP DATABASE {name} WITH (FORCE)"))
        return
    with tempfile.TemporaryDirectory(prefix="outlast-bench-") as folder:
        yield f"sqlite:///{Path(folder) / 'bench.db'}"


async def _say(server: str, statement: str) -> None:
    session = await asyncpg.connect(server)
    await session.execute(statement)
    await session.close()


@dataclass(slots=True)
class Watch:
    """Takes the time of ``count`` things, by the clock and by this process's own use of processors."""

    began: float = field(default_factory=time.perf_counter)
    spent: float = field(default_factory=time.process_time)

    def figure(self, name: str, count: int, *, wanted: float = 0.0) -> Figure:
        """Return how many a second, with what each took of a processor: that hardly depends on what else is running."""
        seconds, used = time.perf_counter() - self.began, time.process_time() - self.spent
        note = f"{used / count * 1e6:,.0f} us of processor each"
        return Figure(name=name, value=count / seconds, wanted=wanted, note=note)


def as_json(figures: list[Figure]) -> str:
    """Return the figures for another process to read."""
    return json.dumps([asdict(figure) for figure in figures])


def from_json(text: str) -> list[Figure]:
    """Return what ``as_json`` was given."""
    return [Figure(**fields) for fields in json.loads(text)]
