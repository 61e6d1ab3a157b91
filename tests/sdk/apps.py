"""Apps over the fake engine, for tests of the worker and the verbs."""

import threading
import time
from collections.abc import Callable
from typing import Any

from outlast import App
from outlast.sdk.engine import StartEngine
from tests.sdk.fake_engine import FakeEngine

PATIENCE = 10.0  # seconds after which what a test waits for is taken never to come


class Running:
    """The fake as what starting an engine gives."""

    address = ""

    def __init__(self, transport: FakeEngine) -> None:
        self.transport = transport

    def stop(self) -> None:
        return None


def starting(fake: FakeEngine) -> StartEngine:
    """Return what starts ``fake`` in place of an engine."""

    def start(_store_url: str, /, *, namespace: str) -> Running:
        fake.namespace = namespace
        return Running(fake)

    return start


def faked_app(fake: FakeEngine, **options: Any) -> App:
    """Return an app whose engine is ``fake``."""
    chosen: dict[str, Any] = {"threads": 4, "drain": "5s", **options}
    app = App("memory:", **chosen)
    app.start_engine = starting(fake)
    return app


def eventually(holds: Callable[[], object]) -> None:
    """Return as soon as ``holds()`` is true; fail when it does not come to be."""
    ends = time.monotonic() + PATIENCE
    waiting = threading.Event()
    while not holds():
        assert time.monotonic() < ends, "it did not come to be"
        waiting.wait(0.005)
