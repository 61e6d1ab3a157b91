"""Whose a place for payloads is, where several stores can name it.

Another store's payloads look like what nothing refers to. So whoever writes to a place first leaves an id there before the
payload, and nobody else ever sweeps; all may read and write. Looking takes nothing, and so does sweeping.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

LOG: Final = logging.getLogger("outlast.store")

OWNER: Final = "outlast-owner"  # what the id is kept under, beside the payloads


class Ownership:
    """The owner of ``place``; ``ours`` gives the id of the store that asks.

    ``read`` returns the id that is kept there, "" for none; ``keep`` keeps one if there is none. What the place
    raises comes as it is.
    """

    def __init__(
        self,
        place: str,
        *,
        ours: Callable[[], Awaitable[str]],
        read: Callable[[], Awaitable[str]],
        keep: Callable[[str], Awaitable[None]],
    ) -> None:
        self._place = place
        self._ours = ours
        self._read = read
        self._keep = keep
        self._asked = False  # there was an owner when this process last looked
        self._said = False

    async def claim(self) -> None:
        """Make the place this store's if it is nobody's: to be done before anything is put there."""
        if self._asked:
            return
        ours = await self._ours()
        found = await self._read()
        if not found:
            await self._keep(ours)
            found = await self._read()  # another may have been first
        if found != ours:
            self._say()
        self._asked = True

    async def owner(self) -> str:
        """Return the id of the store whose the place is, "" for nobody's."""
        return await self._read()

    async def owns(self) -> bool:
        """Say whether the place is this store's: it is read each time, for what hangs on it cannot be undone."""
        found = await self._read()
        if not found:
            self._asked = False  # somebody took the id away: the next payload claims again
            return False
        if found != await self._ours():
            self._say()
            return False
        return True

    def _say(self) -> None:
        if self._said:
            return
        self._said = True
        LOG.warning(
            "payloads in %s are not swept: they are another store's, or this is a copy of the store they belong to. Give each"
            " store a place of its own; or, when the other is gone, remove %s there and start this one again",
            self._place,
            OWNER,
        )
