"""What was measured, as a table for people and as JSON with every single turn."""

import json
import os
import platform
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.peers.contender import BESIDE
from benchmarks.peers.workloads import BY_NAME, WORKLOADS, Workload


@dataclass(slots=True, kw_only=True)
class Turn:
    """One figure, with what the machine had to spare: fsyncs a second and cores used by others, before and during it."""

    contender: str
    workload: str
    round: int
    value: float = 0.0
    error: str = ""
    syncs: float = 0.0
    others_before: float = 0.0
    others_during: float = 0.0


@dataclass(slots=True)
class Report:
    """Everything of one run. ``absent`` has peers that could not be installed or started, with the reason."""

    size: str
    turns: list[Turn] = field(default_factory=list[Turn])
    about: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    absent: dict[str, str] = field(default_factory=dict[str, str])
    at: str = field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M", time.gmtime()))

    def value(self, contender: str, workload: str) -> float | None:
        """Return the median of a contender's turns, None if it gave no figure."""
        values = [
            turn.value
            for turn in self.turns
            if (turn.contender, turn.workload) == (contender, workload) and not turn.error
        ]
        return median(values) if values else None

    def error(self, contender: str, workload: str) -> str:
        """Return why a contender gave no figure, empty if it has no such thing or gave one."""
        errors = [t.error for t in self.turns if (t.contender, t.workload) == (contender, workload) and t.error]
        return errors[-1] if errors else ""

    def times(self, contender: str, workload: Workload) -> float | None:
        """Return how many times better Outlast of the same shape is: above 1 it is ahead."""
        own = self.value(BESIDE[contender], workload.name)
        other = self.value(contender, workload.name)
        if not own or not other:
            return None
        return other / own if workload.lower else own / other

    def missed(self) -> list[str]:
        """Return what was wanted and is not so; a figure that is not there is missed."""
        found: list[str] = []
        for workload in WORKLOADS:
            for peer in workload.times_of:
                if peer not in {*self.about, *self.absent}:
                    continue
                times = self.times(peer, workload)
                if times is None or times < workload.times:
                    got = "no figure" if times is None else f"{times:.1f}"
                    found.append(f"{workload.title}: {got} times {peer}, wanted {workload.times:g}")
        return found

    def keep(self, folder: Path) -> None:
        """Write peers.md and peers.json."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "peers.md").write_text("\n".join(self.lines()) + "\n")
        facts = {
            "at": self.at,
            "machine": machine(),
            "size": self.size,
            "about": self.about,
            "absent": self.absent,
            "turns": [asdict(turn) for turn in self.turns],
        }
        (folder / "peers.json").write_text(json.dumps(facts, indent=1) + "\n")

    def lines(self) -> list[str]:
        """Return the page."""
        names = list(self.about)
        lines = [
            "# Outlast beside its peers",
            "",
            f"{self.at} UTC; {machine()}, size {self.size}. Medians of the rounds of one run in which contenders took turns.",
            "In brackets: how many times better Outlast is in the same shape (below 1: worse), on PostgreSQL beside peers on it.",
            f"{self._machine_load()}",
            "",
            "| what | " + " | ".join(names) + " |",
            "|---|" + "---:|" * len(names),
        ]
        for workload in WORKLOADS:
            lines.append(f"| {workload.title} | " + " | ".join(self._cell(name, workload) for name in names) + " |")
            if workload.steps > 1:
                cells = [self._steps(name, workload) for name in names]
                lines.append(f"| … as steps | {' | '.join(cells)} |")
        lines += ["", "`–`: it has no such thing.", ""]
        lines += ["| contender | version | shape | what an acknowledgement means |", "|---|---|---|---|"]
        for name, about in self.about.items():
            lines.append(f"| {name} | {about['version']} | {about['shape']} | {about['durability']} |")
        lines += [f"| {name} | not measured | {reason} | |" for name, reason in self.absent.items()]
        failures = {(t.contender, t.workload): t.error for t in self.turns if t.error}
        if failures:
            lines += ["", "Turns that gave no figure:", ""]
            lines += [f"- {name}, {BY_NAME[work].title}: {said}" for (name, work), said in failures.items()]
        if missed := self.missed():
            lines += ["", "Missed:", "", *(f"- {text}" for text in missed)]
        return lines

    def _cell(self, name: str, workload: Workload) -> str:
        value = self.value(name, workload.name)
        if value is None:
            return "failed" if self.error(name, workload.name) else "–"
        times = self.times(name, workload)
        ratio = f" ({times:.1f})" if times is not None and BESIDE[name] != name else ""
        return f"{shown(value, workload)}{ratio}"

    def _steps(self, name: str, workload: Workload) -> str:
        value = self.value(name, workload.name)
        return "–" if value is None else f"{value * workload.steps:,.0f}/s"

    def _machine_load(self) -> str:
        syncs = sorted(turn.syncs for turn in self.turns) or [0.0]
        others = sorted(turn.others_during for turn in self.turns) or [0.0]
        return (
            f"Before the turns the disk gave {syncs[0]:,.0f} to {syncs[-1]:,.0f} fsync/s (median {median(syncs):,.0f}); "
            f"during them others used {others[0]:.1f} to {others[-1]:.1f} cores (median {median(others):.1f})."
        )


def shown(value: float, workload: Workload) -> str:
    """Return a figure with its unit."""
    if workload.unit == "/s":
        return f"{value:,.0f}/s"
    return f"{value:.2f} {workload.unit}"


def machine() -> str:
    """Return what the figures were taken on."""
    return f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"
