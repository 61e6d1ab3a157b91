"""Which ids cannot be in the store yet, so that no read is needed to know that they are new.

Ids made by the SDK are UUIDv7 and grow with time, and within a millisecond by a count. The shard keeps the highest rank among
all that it has ever stored: an id above it was never stored. Only the time in it is written, in a counter, with the ids; a
new owner takes it that the count had come to its end. A client whose clock is ahead raises the mark; the others' ids are then
looked up as before, which costs reads and nothing else. So do ids of any other shape.
"""

from typing import Final

from outlast.core.shard.state import Shard

COUNTER: Final = ("", "freshest")  # keeps the time in the mark
_LENGTH: Final = 36
_DIGITS: Final = 32
_COUNT_BITS: Final = 64  # of a rank, below those of the time
_VERSION: Final = 7  # four bits of a rank, above the last twelve of its time


def rank_of(name: str) -> int:
    """Return the rank of a UUIDv7 among all, which is the number that its digits are; 0 for a name of another shape."""
    if len(name) != _LENGTH or name[8] != "-" or name[14] != "7":
        return 0
    digits = name.replace("-", "")
    try:
        return int(digits, 16) if len(digits) == _DIGITS else 0
    except ValueError:
        return 0


def time_of(rank: int) -> int:
    """Return the time in a rank: the first 48 bits of the id and the 12 behind the version."""
    time = rank >> _COUNT_BITS
    return time >> 16 << 12 | time & 0xFFF


def mark_of(counters: dict[tuple[str, str], int]) -> int:
    """Return the mark that a new owner begins with: no id of the time that was stored is taken for new."""
    time = counters.get(COUNTER, 0)
    return (((time >> 12 << 16) | (_VERSION << 12) | (time & 0xFFF)) + 1 << _COUNT_BITS) - 1


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
