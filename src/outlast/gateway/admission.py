"""How often one caller may ask in one namespace: a bucket of tokens for each, filled at a steady rate."""

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from outlast.core.errors import Busy
from outlast.engine.quota import Bucket

BUCKETS_MAX: Final = (
    10_000  # callers kept; the one that has been silent longest is forgotten, and its bucket is full again
)


@dataclass(slots=True, frozen=True)
class Rate:
    """``per_second`` requests in the long run, ``burst`` at once. ``per_second`` 0 means no limit."""

    per_second: float = 0.0
    burst: int = 0


UNLIMITED: Final = Rate()


class Admission:
    """Counts requests of each (namespace, caller)."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._burst = max(rate.burst, 1)
        self._buckets: OrderedDict[tuple[str, str], Bucket] = OrderedDict()

    @property
    def limited(self) -> bool:
        """Whether there is a limit at all."""
        return self._rate.per_second > 0

    def take(self, namespace: str, caller: str, *, now: int) -> tuple[tuple[str, str], ...]:
        """Take one request and return the headers that tell what is left.

        Raises Busy, with the seconds to wait, when there is none; nothing is taken then.
        """
        if not self.limited:
            return ()
        bucket = self._bucket(namespace, caller, now)
        seconds = bucket.take(1, rate=self._rate.per_second, burst=float(self._burst), now=now)
        if seconds:
            wait = math.ceil(seconds)
            raise Busy(
                "rate_limited",
                f"{caller} has asked more often than {self._rate.per_second:g} times a second in {namespace or 'the server'}.",
                remedy=f"Wait {wait} s, then send the same request again.",
                retry_after=str(wait),
                limit=str(self._burst),
                remaining=str(_whole(bucket)),
            )
        full_in = math.ceil((self._burst - bucket.left) / self._rate.per_second)
        return (
            ("ratelimit-limit", str(self._burst)),
            ("ratelimit-remaining", str(_whole(bucket))),
            ("ratelimit-reset", str(full_in)),
        )

    def _bucket(self, namespace: str, caller: str, now: int) -> Bucket:
        key = (namespace, caller)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = Bucket(float(self._burst), now)
            if len(self._buckets) > BUCKETS_MAX:
                self._buckets.popitem(last=False)
            return bucket
        self._buckets.move_to_end(key)
        return bucket


def _whole(bucket: Bucket) -> int:
    return max(0, int(bucket.left))
