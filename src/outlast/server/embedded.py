"""The engine within a program: on a thread of its own, found by the SDK through the entry point ``outlast.engine``.

A file has one engine. When another process has it, this one becomes a client of that engine's loopback address; and so
that others can do the same here, an engine on a file serves the worker protocol on a free loopback port.
"""

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from outlast.core.errors import Unavailable
from outlast.core.shard.config import ShardConfig
from outlast.engine.frontend import Engine
from outlast.engine.inprocess import InProcessTransport
from outlast.protocol.transport import Transport
from outlast.server.assemble import announce, make_engine
from outlast.server.places import BESIDE, BlobPlace, place_from
from outlast.server.stores import Stores, holder_of, open_stores
from outlast.store.base import StoreError

LOG: Final = logging.getLogger("outlast.server")

ANNOUNCED_WITHIN: Final = 10.0  # seconds in which a holder has said where it is reached, or cannot be
BLOBS_VARIABLE: Final = "OUTLAST_BLOBS"
LEASE_VARIABLE: Final = "OUTLAST_ENGINE__TASK_LEASE"
STOP_WITHIN: Final = 20.0  # seconds
LISTENING_WITHIN: Final = 10.0  # seconds that who asks for the address waits for the listener


class EmbeddedEngine:
    """What ``start`` gives: how to reach the engine, and how to stop it."""

    def __init__(self, transport: Transport, address: Callable[[], str], stop: Callable[[], None]) -> None:
        self.transport = transport
        self._address = address
        self._stop = stop

    @property
    def address(self) -> str:
        """Where other processes reach the engine; empty for one in memory. Waits until its listener is up."""
        return self._address()

    def stop(self) -> None:
        """Answer who waits, commit what is gathered, close the store. Stopping twice is stopping once."""
        self._stop()


def start(
    store_url: str,
    *,
    namespace: str = "default",
    config: ShardConfig | None = None,
    serve: bool = True,
    blobs: BlobPlace | None = None,
) -> EmbeddedEngine:
    """Start an engine on ``store_url``, or become a client of the one that has the file; returns when it takes requests.

    ``blobs`` is where large payloads are kept; None for where $OUTLAST_BLOBS says, else beside the store.
    ``config`` is by default what the environment says: an engine in a program has no flags and reads no file.

    Raises:
        Refusal: the address of the store or a setting is wrong, or the holder of the file cannot be reached.
        StoreError: the store cannot be used.
    """
    config = _config_from(os.environ) if config is None else config
    place = _place_said() if blobs is None else blobs
    stores = open_stores(store_url, place)
    ends = time.monotonic() + ANNOUNCED_WITHIN
    while True:
        running = EngineThread(stores, namespace=namespace, config=config, serve=serve and bool(stores.path))
        try:
            running.start()
        except StoreError as error:
            if error.code != "store_locked":
                raise
            locked = error
        else:
            return _owner(running, namespace)
        if address := holder_of(stores.path):

            def take_over() -> EngineThread:
                return EngineThread(open_stores(store_url, place), namespace=namespace, config=config, serve=serve)

            return _follower(address, stores.path, take_over, namespace=namespace)
        if time.monotonic() > ends:
            raise Unavailable("store_locked", locked.fact, remedy=locked.remedy)
        time.sleep(0.05)
        stores = open_stores(store_url, place)


def _place_said() -> BlobPlace:
    """Return where the environment says that large payloads are. Raises Invalid."""
    if not os.environ.get(BLOBS_VARIABLE):
        return BESIDE
    from outlast.server.settings import sources_of

    return place_from(sources_of({}, os.environ))


class EngineThread:
    """An engine with its loop on a thread of its own."""

    def __init__(self, stores: Stores, *, namespace: str, config: ShardConfig | None, serve: bool) -> None:
        self._stores = stores
        self._serve = serve
        self._namespace = namespace
        self._config = config
        self._up: threading.Event = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="outlast-engine", daemon=True)
        self._address = ""
        self._listening = threading.Event()  # or it is known that it never will
        if not serve:
            self._listening.set()

    @property
    def address(self) -> str:
        """Where other processes reach the engine; "" when they cannot. Waits for the listener, but not on its own loop."""
        if threading.current_thread() is not self._thread:
            self._listening.wait(LISTENING_WITHIN)
        return self._address

    def start(self) -> None:
        """Return when requests are taken. Raises what kept the engine from starting."""
        self._thread.start()
        self._up.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error

    def stop(self) -> None:
        """Return when the engine has stopped."""
        loop, ending = self._loop, self._ending
        if loop is not None and ending is not None and not loop.is_closed():
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ending.set)
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_WITHIN)

    def _run(self) -> None:
        loop = new_loop()
        self._loop = loop
        try:
            asyncio.set_event_loop(loop)
            loop.run_until_complete(self._live())
        except BaseException as error:
            if self._up.is_set():
                LOG.exception("the engine's thread has ended")
            self._error = error  # raised where it is started
        finally:
            with contextlib.suppress(RuntimeError):
                loop.run_until_complete(loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            loop.close()
            self._up.set()
            self._listening.set()

    async def _live(self) -> None:
        self._ending = asyncio.Event()
        # Programs with other namespaces may share the file: they come as clients, over loopback, and log in no more than it.
        self.engine: Engine = make_engine(
            self._stores,
            namespaces=frozenset({"default", self._namespace}),
            any_namespace=True,
            config=self._config,
        )
        await self.engine.start()
        self._up.set()
        # The listener is brought up behind the first requests: loading it costs more than starting the engine.
        serving = asyncio.create_task(self._listen(), name="embedded-listener") if self._serve else None
        await self._ending.wait()
        listener = None
        if serving is not None:
            with contextlib.suppress(Exception):
                listener = await serving
        if listener is not None:
            listener.begin_stop()
        await self.engine.stop()
        if listener is not None:
            await listener.stop()

    async def _listen(self) -> Any:
        loop = asyncio.get_running_loop()
        try:
            listener_of = await loop.run_in_executor(None, _load_listener)
            listener = listener_of(self.engine)
            await listener.start()
        except Exception:
            LOG.exception("other processes cannot reach this engine: its listener did not start")
            self._listening.set()
            return None
        self._address = listener.address
        self._listening.set()
        announce(self._stores, listener.address)
        self.engine.on_reopen = partial(announce, self._stores, listener.address)
        return listener


def _config_from(environ: Mapping[str, str]) -> ShardConfig | None:
    if not environ.get(LEASE_VARIABLE):
        return None
    from outlast.server.settings import lease_from, sources_of

    return ShardConfig(task_lease=lease_from(sources_of({}, environ)))


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of the fastest kind there is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _load_listener() -> Callable[[Engine], Any]:
    """Import what HTTP needs, away from the loop, and return what makes the listener."""
    from outlast.gateway.app import Gateway
    from outlast.server.head import BoundedHead
    from outlast.server.listener import Listener, bind

    del BoundedHead  # it brings uvicorn in, which the listener would else do on the loop

    return lambda engine: Listener(Gateway(engine), bind("127.0.0.1", 0))


def _owner(running: EngineThread, namespace: str) -> EmbeddedEngine:
    transport = InProcessTransport(running.engine, namespace=namespace)
    return EmbeddedEngine(transport, lambda: running.address, running.stop)


def _follower(address: str, path: str, engine: Callable[[], EngineThread], *, namespace: str) -> EmbeddedEngine:
    from outlast.server.following import FollowingTransport

    LOG.info("%s is held by the engine at %s: working as its client", path, address)
    taken: list[EngineThread] = []

    def take_over() -> Transport:
        running = engine()
        running.start()
        taken.append(running)
        return InProcessTransport(running.engine, namespace=namespace)

    def stop() -> None:
        for running in taken:
            running.stop()

    transport = FollowingTransport(address, namespace=namespace, holder=lambda: holder_of(path), take_over=take_over)
    return EmbeddedEngine(transport, lambda: taken[-1].address if taken else transport.address, stop)
