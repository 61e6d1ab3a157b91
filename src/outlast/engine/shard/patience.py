"""Waiting for a shard whose owner has gone without a word: it has the shard until its lease ends."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

from outlast.store.base import StoreError

LOOK_EVERY: Final = 0.05  # seconds


async def claimed_within(claim: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Claim a shard, again and again for ``seconds`` while another has it. Raises StoreError as ``claim``."""
    until = monotonic() + seconds
    while True:
        try:
            return await claim()
        except StoreError as error:
            if error.code != "not_owner" or monotonic() >= until:
                raise
        await asyncio.sleep(LOOK_EVERY)
