"""What a round of seeds has shown, in words."""

from collections import Counter
from dataclasses import dataclass, field

from outlast.sim.cluster import Result
from outlast.sim.coverage import POINTS
from outlast.sim.faults import KINDS
from outlast.sim.plants import PLANTS

FAULTS_LEAST = 50  # of each kind in a full round
FULL_ROUND = 1_000  # seeds from which on a round must have shown everything
PLANT_SEEDS = 300  # within which each planted bug must be found
_FAILURES_SHOWN = 3
_FAILURES_NAMED = 20


@dataclass(slots=True)
class Caught:
    """When a planted bug was found. ``seeds`` 0: it was not."""

    plant: str
    seeds: int = 0
    seed: int = 0
    invariant: str = ""
    violation: str = ""


@dataclass(slots=True)
class Round:
    """The sum over the seeds of a round."""

    seeds: int = 0
    events: int = 0
    commits: int = 0
    span: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])
    points: Counter[str] = field(default_factory=Counter[str])
    failures: list[Result] = field(default_factory=list[Result])

    def add(self, result: Result) -> None:
        """Take one seed's result in."""
        self.seeds += 1
        self.events += result.events
        self.commits += result.commits
        self.span += result.span
        self.faults.update(result.faults)
        self.points.update(result.points)
        if result.violation:
            self.failures.append(result)

    def missing(self) -> list[str]:
        """Return what a full round should have shown and this one has not."""
        if self.seeds < FULL_ROUND:
            return []
        return [
            *(f"fault {kind} happened {self.faults[kind]} times" for kind in KINDS if self.faults[kind] < FAULTS_LEAST),
            *(f"it never happened that {text} ({point})" for point, text in POINTS.items() if not self.points[point]),
        ]

    def lines(self) -> list[str]:
        """Return the round in words, without its last line."""
        lines = [f"{self.events:,} events, {self.commits:,} commits, {self.span / 1e9:,.0f} seconds of simulated time"]
        lines.append(f"faults, {len(KINDS)} kinds:")
        lines += [f"  {kind:<24}{self.faults[kind]:>9,}" for kind in KINDS]
        lines.append(f"sometimes, {len(POINTS)} points:")
        lines += [f"  {point:<30}{self.points[point]:>9,}  {text}" for point, text in POINTS.items()]
        return lines


def failure_lines(result: Result) -> list[str]:
    """Return what is needed to look into a seed that failed."""
    return [
        f"seed {result.seed} violates {result.violation}",
        *(f"  {line}" for line in result.config),
        f"the last {len(result.lines)} lines:",
        *(f"  {line}" for line in result.lines),
        f"play it again: python -m outlast.sim --seed {result.seed} --trace",
    ]


def failures_lines(failures: list[Result]) -> list[str]:
    """Return the first failures in full and the others in a line each."""
    lines: list[str] = []
    for result in failures[:_FAILURES_SHOWN]:
        lines += failure_lines(result)
    named = failures[_FAILURES_SHOWN:_FAILURES_NAMED]
    lines += [f"seed {result.seed} violates {result.violation.splitlines()[-1]}" for result in named]
    if len(failures) > _FAILURES_NAMED:
        lines.append(f"and {len(failures) - _FAILURES_NAMED} further seeds")
    return lines


def plant_line(caught: Caught) -> str:
    """Return one planted bug's line of the table."""
    how = f"caught by seed {caught.seeds}, invariant {caught.invariant}" if caught.seeds else "NOT CAUGHT"
    return f"  {caught.plant:<30}{how:<60}{PLANTS[caught.plant].text}"
