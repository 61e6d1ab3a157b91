"""Which ids cannot be in the store yet, so that no read is needed to know that they are new.

Ids made by the SDK are UUIDv7 and grow with time. The shard keeps the highest rank among all that it has ever stored, in a
counter that is written with them: an id above it was never stored. A client whose clock is ahead raises the mark; the
others' ids are then looked up as before, which costs reads and nothing else. So do ids of any other shape.
"""

from functools import lru_cache
from typing import Final

from outlast.core.shard.state import Shard

_LENGTH: Final = 36


@lru_cache(maxsize=8192)  # each name is asked about twice: before it is stored and when it is
def rank_of(name: str) -> int:
    """Return the rank in time of a UUIDv7: its first 48 bits and the 12 behind the version; 0 for another shape."""
    if len(name) != _LENGTH or name[8] != "-" or name[14] != "7":
        return 0
    try:
        return int(name[:8] + name[9:13] + name[15:18], 16)
    except ValueError:
        return 0


def is_fresh(shard: Shard, name: str) -> bool:
    """Return whether nothing of this name can ever have been stored."""
    return rank_of(name) > shard.freshest


def note(shard: Shard, name: str) -> None:
    """Raise the mark to a name that is being stored, in the commit that stores it."""
    shard.freshest = max(shard.freshest, rank_of(name))
