"""What goes wrong in a simulation, drawn from its seed: each kind of fault is absent in half of the seeds.

Leaving kinds out matters as much as putting them in: a fault that is always there hides what the others would show.
"""

import math
from collections import Counter
from dataclasses import dataclass, field, fields
from random import Random
from typing import Final

from outlast.core.units import MILLISECOND, SECOND

KINDS: Final = (
    "node_crash", "node_pause", "all_nodes_crash", "crash_in_recovery", "clock_offset", "clock_drift", "clock_jump",
    "commit_unknown_applied", "commit_unknown_lost", "commit_unknown_late", "commit_full", "commit_slow",
    "commit_cut_by_crash", "claim_unanswered", "load_slow",
    "net_loss", "net_late", "net_double", "net_cut", "net_cut_message",
    "worker_crash", "worker_pause", "worker_stop", "cache_drop", "heartbeats_lost", "workflow_task_failed",
    "workflow_task_stuck", "handler_failed", "handler_overran", "lease_returned", "caller_gave_up", "key_reused",
    "request_repeated",
)  # fmt: skip


class FaultLog:
    """How often each kind of fault happened."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def hit(self, kind: str) -> None:
        """Count one fault of ``kind``."""
        assert kind in KINDS, kind
        self.counts[kind] += 1


@dataclass(slots=True, kw_only=True)
class Faults:
    """Intensities: ``*_rate`` in events per second of true time, the others as a probability per occasion.

    ``live`` is False in warm-up and after healing; spans are nanoseconds.
    """

    live: bool = False
    latency: int = 2 * MILLISECOND
    late_span: int = 5 * SECOND
    net_loss: float = 0.0
    net_late: float = 0.0
    net_double: float = 0.0
    net_cut_rate: float = 0.0
    node_crash_rate: float = 0.0
    node_pause_rate: float = 0.0
    all_nodes_crash_rate: float = 0.0
    crash_in_recovery: float = 0.0
    clock_offset: float = 0.0
    clock_drift: float = 0.0
    clock_jump_rate: float = 0.0
    commit_latency: int = 3 * MILLISECOND
    commit_unknown_applied: float = 0.0
    commit_unknown_lost: float = 0.0
    commit_unknown_late: float = 0.0
    commit_full: float = 0.0
    commit_slow: float = 0.0
    claim_unanswered: float = 0.0
    load_slow: float = 0.0
    worker_crash_rate: float = 0.0
    worker_pause_rate: float = 0.0
    worker_stop_rate: float = 0.0
    cache_drop: float = 0.0
    heartbeats_lost: float = 0.0
    workflow_task_failed: float = 0.0
    workflow_task_stuck: float = 0.0
    caller_gave_up: float = 0.0


# Bounds of the intensity of each fault when it is present.
_RANGES: Final[dict[str, tuple[float, float]]] = {
    "net_loss": (0.003, 0.15),
    "net_late": (0.003, 0.10),
    "net_double": (0.003, 0.15),
    "net_cut_rate": (0.02, 0.3),
    "node_crash_rate": (0.02, 0.4),
    "node_pause_rate": (0.02, 0.4),
    "all_nodes_crash_rate": (0.02, 0.1),
    "crash_in_recovery": (0.05, 0.4),
    "clock_offset": (0.1, 1.0),
    "clock_drift": (0.1, 1.0),
    "clock_jump_rate": (0.02, 0.5),
    "commit_unknown_applied": (0.002, 0.05),
    "commit_unknown_lost": (0.002, 0.05),
    "commit_unknown_late": (0.002, 0.05),
    "commit_full": (0.001, 0.03),
    "commit_slow": (0.005, 0.1),
    "claim_unanswered": (0.05, 0.4),
    "load_slow": (0.01, 0.3),
    "worker_crash_rate": (0.02, 0.4),
    "worker_pause_rate": (0.02, 0.4),
    "worker_stop_rate": (0.02, 0.2),
    "cache_drop": (0.02, 0.5),
    "heartbeats_lost": (0.02, 0.4),
    "workflow_task_failed": (0.01, 0.2),
    "workflow_task_stuck": (0.01, 0.1),
    "caller_gave_up": (0.02, 0.3),
}


def log_uniform(chance: Random, low: float, high: float) -> float:
    """Return a number between ``low`` and ``high`` whose logarithm is evenly spread."""
    return math.exp(chance.uniform(math.log(low), math.log(high)))


def draw_faults(chance: Random) -> Faults:
    """Return the faults of one seed: about half of the kinds, each at an intensity of its own."""
    faults = Faults(
        latency=int(log_uniform(chance, 0.2, 20.0) * MILLISECOND),
        late_span=int(log_uniform(chance, 0.5, 20.0) * SECOND),
        commit_latency=int(log_uniform(chance, 0.3, 20.0) * MILLISECOND),
    )
    for name, (low, high) in _RANGES.items():
        absent, intensity = chance.random() < 0.5, log_uniform(chance, low, high)
        if not absent:
            setattr(faults, name, intensity)
    return faults


@dataclass(slots=True, kw_only=True)
class Knobs:
    """Sizes and spans of the shard, mostly far smaller than in production so that rare paths become common."""

    task_lease: int
    shard_lease: int
    shard_renew: int
    shard_margin: int
    stall: int
    sticky_timeout: int
    batch_rows_max: int
    window_max: int
    window_low: int
    page_rows: int
    page_events: int  # of a history
    runs_cached_max: int
    tasks_cached_max: int
    dedup_cached_max: int
    poll_answers_max: int
    polls_max: int
    history_events_max: int
    signals_max: int
    parked_bytes_max: int


def draw_knobs(chance: Random, *, single: bool) -> Knobs:
    """Return the sizes of one seed. With ``single`` the shard's owner never expires: one node at a time has the file."""
    window = chance.choice((4, 6, 10, 40, 1000))
    lease = 0 if single else int(chance.uniform(1.5, 4.0) * SECOND)
    return Knobs(
        task_lease=int(chance.uniform(1.5, 6.0) * SECOND),
        shard_lease=lease,
        shard_renew=lease // 5,
        shard_margin=lease // 4,
        stall=SECOND,
        sticky_timeout=int(chance.uniform(0.3, 2.0) * SECOND),
        batch_rows_max=chance.choice((8, 20, 60, 1000, 20_000)),
        window_max=window,
        window_low=max(1, window // chance.choice((2, 4))),
        page_rows=chance.choice((2, 3, 5, 1000)),
        page_events=chance.choice((1, 4, 12, 1000)),
        runs_cached_max=chance.choice((3, 5, 20, 1000)),
        tasks_cached_max=chance.choice((4, 8, 30, 1000)),
        dedup_cached_max=chance.choice((3, 20, 1000)),
        poll_answers_max=chance.choice((3, 1000, 1000)),
        polls_max=_seldom(chance, 5, 10_000),
        history_events_max=_seldom(chance, 30, 51_200),
        signals_max=_seldom(chance, 3, 10_000),
        parked_bytes_max=_seldom(chance, 20, 4 * 1024 * 1024),
    )


def _seldom(chance: Random, small: int, usual: int) -> int:
    return small if chance.random() < 0.12 else usual


_FLOODED_MAX: Final = 10  # windows up to this size are flooded; for others it would take too many tasks


@dataclass(slots=True, kw_only=True)
class Load:
    """How much the users do, and for how long."""

    nodes: int
    workers: int
    clients: int
    calls: int  # of each client
    warm_up: int
    chaos: int
    contended_ids: int  # workflow ids that several clients fight for
    handler_span: int
    batches: float
    floods: float  # how often an enqueue is of as many alike tasks as make a window drop its tail
    flood: int  # how many these are


@dataclass(slots=True, kw_only=True)
class Config:
    """Everything that one seed fixes beforehand."""

    seed: int
    single: bool
    skew: int
    day_after: bool = False  # a day later it all goes on, and what ended is forgotten meanwhile
    faults: Faults = field(default_factory=Faults)
    knobs: Knobs
    load: Load

    def lines(self) -> list[str]:
        """Return the configuration for people, without what is absent."""
        parts = [f"seed={self.seed} single={self.single} day_after={self.day_after} skew={self.skew / 1e6:.0f}ms"]
        for group in (self.faults, self.knobs, self.load):
            values = [(item.name, getattr(group, item.name)) for item in fields(group)]
            parts.append(" ".join(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
                                  for name, value in values if value))  # fmt: skip
        return parts


def draw_config(seed: int) -> Config:
    """Return the configuration of ``seed``, a function of the seed alone."""
    chance = Random(f"{seed}/config")
    single = chance.random() < 0.25
    busy = chance.random() < 0.08  # far more work than the small windows hold
    knobs = draw_knobs(chance, single=single)
    load = Load(
        nodes=1 if single else chance.choice((2, 2, 3)),
        workers=chance.choice((1, 2, 3, 4)),
        clients=chance.choice((1, 2, 3)),
        calls=int(log_uniform(chance, 6, 22)) * (4 if busy else 1),
        warm_up=int(chance.uniform(0.5, 2.0) * SECOND),
        chaos=int(log_uniform(chance, 5, 18) * SECOND),
        contended_ids=chance.choice((1, 2, 6)),
        handler_span=int(log_uniform(chance, 0.02, 2.0) * SECOND),
        batches=0.4 if busy else chance.choice((0.0, 0.05, 0.2)),
        floods=chance.choice((0.0, 0.2, 0.4)) if knobs.window_max <= _FLOODED_MAX else 0.0,
        flood=2 * knobs.window_max,
    )
    # Two clocks may differ by twice the skew, and an owner's reads rest on its margin being more than that.
    skew = min(200 * MILLISECOND, (knobs.shard_margin or SECOND) // 3)
    faults = draw_faults(chance)
    # A page takes a few times these: read one by one over a slow network, a history would outlast the patience of a query.
    knobs.page_events = max(knobs.page_events, (faults.latency + faults.commit_latency) // (2 * MILLISECOND))
    if busy:
        knobs.window_max, knobs.window_low, load.flood = 4, 2, 8
        faults.load_slow = max(faults.load_slow, 0.15)
    day_after = not busy and chance.random() < 0.3
    return Config(seed=seed, single=single, skew=skew, day_after=day_after, faults=faults, knobs=knobs, load=load)
