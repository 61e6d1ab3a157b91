"""How long a client repeats what is refused: as long as it may pass by itself, not for what people must mend."""

import asyncio
from typing import Any, cast

import pytest

from outlast.core.errors import StoreFull, Unavailable
from outlast.core.inputs import AwaitTask, DescribeTask, Request
from outlast.core.replies import Accepted, Reply
from outlast.protocol import again
from outlast.protocol.errors import KINDS
from outlast.protocol.transport import Transport
from outlast.sdk.client import PATIENCE, Client

ASKED = DescribeTask(task_id="t")


class Refusing:
    """A transport that refuses with ``code`` as often as ``times`` says, then accepts."""

    from_any_loop = True

    def __init__(self, code: str, times: int) -> None:
        self.code = code
        self.left = times
        self.calls = 0

    async def call(self, request: Request, *, timeout: float | None = None) -> Reply:
        del request, timeout
        self.calls += 1
        if self.left:
            self.left -= 1
            raise cast("type[Unavailable]", KINDS[self.code].exception)(self.code, "It is so.")
        return Accepted()


def sent(transport: Refusing, request: Request = ASKED, *, timeout: float | None = PATIENCE) -> Accepted:
    """Send by a client over ``transport``, on a loop of its own."""
    client = Client(cast("Transport", transport), cast("Any", None), cast("Any", None), identity="test")
    return asyncio.run(client.send(request, Accepted, timeout))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "SOON", 0.1)


@pytest.mark.parametrize("timeout", [PATIENCE, None], ids=["half a minute", "for ever"])
def test_a_full_disk_is_said_soon_whatever_time_there_is(timeout: float | None) -> None:
    transport = Refusing("store_full", 1_000)

    with pytest.raises(StoreFull):
        sent(transport, timeout=timeout)

    assert 1 < transport.calls < 10


def test_a_disk_that_was_full_for_an_instant_is_not_spoken_of() -> None:
    assert sent(Refusing("store_full", 1)) == Accepted()


def test_who_waits_for_a_result_sits_a_full_disk_out() -> None:
    assert sent(Refusing("store_full", 4), AwaitTask(task_id="t"), timeout=None) == Accepted()


def test_what_passes_by_itself_is_repeated() -> None:
    assert sent(Refusing("busy", 4)) == Accepted()


def test_a_request_that_met_a_fault_of_ours_is_not_sent_again() -> None:
    transport = Refusing("internal", 1_000)

    with pytest.raises(Unavailable):
        sent(transport)

    assert transport.calls == 1
