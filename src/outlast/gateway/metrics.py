"""What is counted: plain numbers in slots, written as Prometheus text when somebody asks for /metrics.

Labels are names of our own (operations, statuses, outcomes), so that their number is bounded.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from outlast.core.writes import CommitOutcome

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class Histogram:
    """How long something took, by bounds in seconds."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """Return the counts as Prometheus has them: of everything up to each bound."""
        counts: list[tuple[str, float]] = []
        so_far = 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self.buckets, strict=True):
            so_far += count
            counts.append((bound, so_far))
        return counts


class Meter:
    """Counts of one server. It is an Observer of its engine as well (``engine.ports``)."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, int], int] = {}
        self.seconds: dict[str, Histogram] = {}
        self.commits: dict[str, int] = {}
        self.commit_seconds = Histogram()
        self.rows = 0
        self.step_downs = 0
        self.claims = 0

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Count an answer to ``operation``."""
        key = (operation, status)
        self.answers[key] = self.answers.get(key, 0) + 1
        histogram = self.seconds.get(operation)
        if histogram is None:
            histogram = self.seconds[operation] = Histogram()
        histogram.add(seconds)

    def on_commit(self, outcome: CommitOutcome, *, rows: int, seconds: float) -> None:
        """Count a commit."""
        name = outcome.name.lower()
        self.commits[name] = self.commits.get(name, 0) + 1
        self.rows += rows
        self.commit_seconds.add(seconds)

    def on_step_down(self, reason: str) -> None:
        """Count a shard that was given up; the reason is in the log."""
        del reason
        self.step_downs += 1

    def on_claim(self, epoch: int) -> None:
        """Count a shard that was taken over."""
        del epoch
        self.claims += 1


def exposition(meter: Meter, gauges: Iterable[tuple[str, str, float]], rounds: Iterable[tuple[str, float]]) -> bytes:
    """Return everything as Prometheus text. ``gauges`` are (name, what it says, value) of this moment, ``rounds`` the
    rounds of the engine with the seconds since each got on.
    """
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - only who is scraped needs it
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - as above

    now, ages = list(gauges), list(rounds)

    class Collector:
        def collect(self) -> Iterable[Any]:
            yield from _families(meter, now)
            age = GaugeMetricFamily(
                "outlast_round_age_seconds", "Since a round of the engine got on.", labels=["round"]
            )
            for name, seconds in ages:
                age.add_metric([name], seconds)
            yield age

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())  # pyright: ignore[reportArgumentType] - it has what is called
    return generate_latest(registry)


def _families(meter: Meter, gauges: list[tuple[str, str, float]]) -> Iterable[Any]:
    from prometheus_client.core import (  # noqa: PLC0415 - as above
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    answers = CounterMetricFamily("outlast_http_requests", "Answers by operation.", labels=["operation", "status"])
    for (operation, status), count in sorted(meter.answers.items()):
        answers.add_metric([operation, str(status)], count)
    yield answers
    seconds = HistogramMetricFamily(
        "outlast_http_request_seconds", "From the head of a request to its answer.", labels=["operation"]
    )
    for operation, histogram in sorted(meter.seconds.items()):
        seconds.add_metric([operation], buckets=histogram.cumulative(), sum_value=histogram.total)
    yield seconds
    commits = CounterMetricFamily("outlast_commits", "Commits by outcome.", labels=["outcome"])
    for outcome, count in sorted(meter.commits.items()):
        commits.add_metric([outcome], count)
    yield commits
    commit_seconds = HistogramMetricFamily("outlast_commit_seconds", "How long a commit took.")
    commit_seconds.add_metric([], buckets=meter.commit_seconds.cumulative(), sum_value=meter.commit_seconds.total)
    yield commit_seconds
    for name, says, count in (
        ("outlast_rows_written", "Rows in commits.", meter.rows),
        ("outlast_step_downs", "Shards that were given up.", meter.step_downs),
        ("outlast_claims", "Shards that were taken over.", meter.claims),
    ):
        yield CounterMetricFamily(name, says, value=count)
    for name, says, value in gauges:
        yield GaugeMetricFamily(name, says, value=value)
