"""Waits for what was enqueued in a caller's own transaction: until that is committed and taken, the engine does not know it."""

import time
from typing import Final, TypeVar

from outlast.core.errors import NotFound
from outlast.core.inputs import Request
from outlast.sdk.client import Client
from outlast.sdk.pause import Pause

K = TypeVar("K")

TAKEN_WITHIN: Final = 30.0  # seconds after which who waits is told that the engine does not know it
PAUSE_FIRST: Final = 0.02
PAUSE_MAX: Final = 0.5


async def send_pending(client: Client, request: Request, kind: type[K], timeout: float | None) -> K:
    """As ``client.send``, for what may not have been taken yet: it is asked for again while it is not known.

    Raises:
        NotFound: nothing has come of it for 30 seconds.
    """
    began = time.monotonic()
    pause = Pause(PAUSE_FIRST, PAUSE_MAX)
    while True:
        waited = time.monotonic() - began
        try:
            return await client.send(request, kind, None if timeout is None else max(0.0, timeout - waited))
        except NotFound as error:
            if waited >= TAKEN_WITHIN:
                raise NotFound(
                    error.code,
                    f"{error.fact} It was enqueued in a transaction of yours {waited:.0f} s ago.",
                    remedy="If that was committed, look at the intake: is the engine, or the app that hands the outbox over, up?",
                ) from None
            if timeout is not None and waited >= timeout:
                raise TimeoutError from None
        await pause.wait()
