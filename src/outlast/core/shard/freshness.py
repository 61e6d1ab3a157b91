"""Which ids cannot be in the store yet, so that no read is needed to know that they are new.

Ids made by the SDK are UUIDv7 and grow with time, and within a millisecond by a count. The shard keeps the highest rank among
all that it has ever stored: an id above it was never stored. Only the time in it is written, in a counter, with the ids; a
new owner takes it that the count had come to its end. A client whose clock is ahead raises the mark; the others' ids are then
looked up as before, which costs reads and nothing else. So do ids of any other shape.
"""

from functools import lru_cache
from typing import Final

from outlast.core.shard.state import Shard

COUNTER: Final = ("", "freshest")  # keeps the time in the mark
_LENGTH: Final = 36
_COUNT_BITS: Final = 64  # of a rank, below those of the time


@lru_cache(maxsize=8192)  # each name is asked about twice: before it is stored and when it is
def rank_of(name: str) -> int:
    """Return the rank of a UUIDv7 among all, which is its digits without the version; 0 for a name of another shape."""
    if len(name) != _LENGTH or name[8] != "-" or name[14] != "7":
        return 0
    try:
        return int(name[:8] + name[9:13] + name[15:18] + name[19:23] + name[24:], 16)
    except ValueError:
        return 0


def time_of(rank: int) -> int:
    """Return the time in a rank: the first 48 bits of the id and the 12 behind the version."""
    return rank >> _COUNT_BITS


def mark_of(counters: dict[tuple[str, str], int]) -> int:
    """Return the mark that a new owner begins with: no id of the time that was stored is taken for new."""
    return ((counters.get(COUNTER, 0) + 1) << _COUNT_BITS) - 1


def is_fresh(shard: Shard, name: str) -> bool:
    """Return whether nothing of this name can ever have been stored."""
    return rank_of(name) > shard.freshest


def note(shard: Shard, name: str) -> None:
    """Raise the mark to a name that is being stored, in the commit that stores it."""
    shard.freshest = max(shard.freshest, rank_of(name))


def settle(shard: Shard) -> None:
    """Have the time in the mark written with the batch that is about to be taken."""
    time = time_of(shard.freshest)
    if time > shard.counters.get(COUNTER, 0):
        shard.counters[COUNTER] = shard.gather.counters[COUNTER] = time
