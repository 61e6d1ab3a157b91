"""What is plugged into what: store, engine, gateway, listener; started and stopped in order."""

import asyncio
import logging
import os
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from outlast.core.shard.config import ShardConfig
from outlast.engine.frontend import Engine
from outlast.engine.ports import Observer
from outlast.gateway.admission import Rate
from outlast.gateway.app import Gateway, Policy
from outlast.gateway.auth import one_token, read_tokens
from outlast.gateway.metrics import Meter
from outlast.server.clock import GuardedClock, SystemEntropy, owner_name
from outlast.server.payloads import opener_with
from outlast.server.settings import Settings, require_safe
from outlast.server.stores import Stores, open_stores, refuse_held
from outlast.store.base import StoreError

LOG: Final = logging.getLogger("outlast.server")


def make_engine(
    stores: Stores,
    *,
    namespaces: frozenset[str] = frozenset({"default"}),
    any_namespace: bool = False,
    clock_offset_file: str = "",
    config: ShardConfig | None = None,
    observer: Observer | None = None,
) -> Engine:
    """Return an engine on ``stores``, not started."""
    return Engine(
        stores.store,
        stores.blobs,
        clock=GuardedClock(offset_file=clock_offset_file),
        entropy=SystemEntropy(),
        observer=observer,
        config=replace(config or ShardConfig(), shard_lease=stores.lease) if stores.lease else config,
        namespaces=namespaces,
        any_namespace=any_namespace,
        owner=owner_name(),
    )


class Server:
    """Engine and HTTP listener on one loop."""

    def __init__(self, settings: Settings) -> None:
        require_safe(settings.host, settings.token or settings.tokens_file)
        self._settings = settings
        self._stores = open_stores(settings.store, settings.blobs)
        self._meter = Meter()
        self.engine = make_engine(
            self._stores,
            namespaces=frozenset(settings.namespaces),
            clock_offset_file=settings.clock_offset_file,
            config=ShardConfig(task_lease=settings.task_lease),
            observer=self._meter,
        )
        self._policy = policy_of(settings)
        self._listening: socket.socket | None = None
        self.address = ""

    def bind(self) -> None:
        """Take the port, so that ``address`` is known; who connects waits until ``start``. Raises StoreError, Unavailable."""
        from outlast.server.listener import address_of, bind

        # Before the port, which the same engine has as well: who has the file tells more.
        refuse_held(self._stores.path)
        self._listening = bind(self._settings.host, self._settings.port)
        self.address = address_of(self._listening)

    def unbind(self) -> None:
        """Give back the port of a server that was not started."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    async def start(self) -> None:
        """Open the store, then serve. Raises StoreError or Refusal; nothing is left open then."""
        from outlast.server.listener import Listener

        if self._listening is None:
            self.bind()
        listening = self._listening
        assert listening is not None
        try:
            await self._check_blobs()
            await self.engine.start()
        except BaseException:
            self.unbind()
            raise
        self._listening = None  # it is the listener's now
        self._gateway = Gateway(self.engine, policy=self._policy, meter=self._meter)
        self._listener = Listener(self._gateway, listening)
        await self._listener.start()
        self.address = self._listener.address
        announce(self._stores, self.address)
        self.engine.on_reopen = partial(announce, self._stores, self.address)
        if self._settings.announce_file:
            write_whole(Path(self._settings.announce_file), self.address)

    async def _check_blobs(self) -> None:
        """Raise StoreError for a place of payloads that settings have wrong. One that is away may come back: it is logged."""
        check = getattr(self._stores.blobs, "check", None)
        if check is None:
            return
        try:
            await check()
        except StoreError as error:
            if error.code != "unavailable":
                raise
            LOG.warning("blobs_away %s", error)

    def replace_policy(self, settings: Settings) -> None:
        """Go by the tokens and rates of ``settings`` from the next request on. Raises Invalid, and changes nothing then."""
        require_safe(self._settings.host, settings.token or settings.tokens_file)
        self._gateway.replace(policy_of(settings))

    async def stop(self) -> None:
        """Answer who waits, commit what is gathered, close."""
        self._listener.begin_stop()
        await self.engine.stop()
        await self._listener.stop()
        if self._settings.announce_file:
            await asyncio.to_thread(Path(self._settings.announce_file).unlink, missing_ok=True)


def policy_of(settings: Settings) -> Policy:
    """Return who may call, how often, and by which keys values are opened. Raises Invalid for files that cannot be used."""
    tokens = read_tokens(settings.tokens_file) if settings.tokens_file else ()
    opener = opener_with(settings.codecs, settings.keys)
    return Policy((*one_token(settings.token), *tokens), Rate(settings.rate, settings.burst), opener)


def announce(stores: Stores, address: str) -> None:
    """Tell processes that find the file held where its engine is reached."""
    announcing = getattr(stores.store, "announce", None)
    if announcing is not None:
        announcing(address)


def write_whole(path: Path, text: str) -> None:
    """Write a small file so that a reader sees all of it or none."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)
