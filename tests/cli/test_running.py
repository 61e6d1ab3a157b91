"""How a command hears that it is to stop, on any loop."""

import asyncio
import os
import signal
from collections.abc import Generator
from typing import Any

import pytest

from outlast.cli.running import until_told


class Deaf(asyncio.SelectorEventLoop):
    """A loop as on a platform where loops take no signals."""

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def handlers() -> Generator[None]:
    """Put back what heard signals before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", [asyncio.SelectorEventLoop, Deaf])
def test_a_command_is_told_to_stop_on_every_kind_of_loop(
    kind: type[asyncio.SelectorEventLoop], number: signal.Signals
) -> None:
    loop = kind()

    async def work() -> None:
        waiting = asyncio.create_task(until_told(loop))
        await asyncio.sleep(0)
        os.kill(os.getpid(), number)
        async with asyncio.timeout(10):
            await waiting

    try:
        loop.run_until_complete(work())
    finally:
        loop.close()
