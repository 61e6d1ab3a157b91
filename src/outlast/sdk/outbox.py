"""Hands over what transactions in databases of the user's have left for the engine: once each, on a thread of its own."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from outlast.core.errors import Refusal
from outlast.core.inputs import DescribeTask, Request
from outlast.core.replies import Refused, Reply
from outlast.protocol.addresses import masked
from outlast.protocol.errors import refused
from outlast.protocol.intake import Intake, hand_over
from outlast.sdk.client import Client
from outlast.sdk.engine import rooted
from outlast.sdk.misuse import UnknownOption
from outlast.sdk.outbox_sqlite import SqliteOutbox

LOGGER: Final = logging.getLogger("outlast.sdk")

LOOK_EVERY: Final = 0.2  # seconds between looks into an outbox in which nothing was
PAUSE_FIRST: Final = 0.5
PAUSE_MAX: Final = 10.0
OPENED_WITHIN: Final = 10.0  # seconds that the start of an app waits for its outboxes
WELL_FOR: Final = 30.0  # seconds after which a failure is taken for a new one
ANSWER_WITHIN: Final = 20.0  # seconds; then it is asked again
STOP_WITHIN: Final = ANSWER_WITHIN + 10.0
FORMS: Final = 'Write "sqlite:///FILE" (relative), "sqlite:////ABSOLUTE/FILE", or "postgresql://HOST/DATABASE".'
NOBODY: Final = DescribeTask(task_id="is-anybody-there")


class Outbox(Intake, Protocol):
    """A database with rows to hand over."""

    async def open(self) -> None:
        """Connect, and make the table if there is none."""
        ...

    async def close(self) -> None: ...


class Outboxes:
    """Those of one app. ``start`` begins to hand over by ``client``; ``stop`` ends it, between two hand-overs."""

    def __init__(self, addresses: Sequence[str], *, namespace: str, store: str) -> None:
        """Raises UnknownOption for an address that cannot be one."""
        if isinstance(addresses, str):
            raise UnknownOption(
                "bad_option", f"outboxes is the text {masked(addresses)!r}.", remedy="Give a list of addresses."
            )
        self._addresses = tuple(rooted(item) if isinstance(item, str) else item for item in addresses)  # pyright: ignore[reportUnnecessaryIsInstance] - users may not check types
        self._namespace, self._store = namespace, store
        self._boxes = self._make()
        self._left: list[
            object
        ] = []  # to the process that this one was forked off: to drop a connection would close it
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None

    def _make(self) -> "list[tuple[str, Outbox]]":
        return [
            (masked(str(address)), outbox_at(address, namespace=self._namespace, store=self._store))
            for address in self._addresses
        ]

    def start(self, client: Client) -> None:
        """Begin, and return when each table is there, or could not be made at once.

        From then on it goes on, whatever a database or the engine does, and says so in the log.
        """
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(client, started), name="outlast-outbox", daemon=True)
        self._thread.start()
        started.wait(OPENED_WITHIN)

    def stop(self) -> None:
        """End, having settled what was answered."""
        thread, loop, ending = self._thread, self._loop, self._ending
        if thread is None or loop is None or ending is None:
            return
        self._thread = None
        loop.call_soon_threadsafe(ending.set)
        thread.join(STOP_WITHIN)

    def forget_parents(self) -> None:
        """Begin anew in a child of a fork, which has neither the thread nor a right to the connections."""
        self._left.append(self._boxes)
        self._boxes = self._make()
        self._thread = self._loop = self._ending = None

    def _run(self, client: Client, started: threading.Event) -> None:
        asyncio.run(self._live(client, started))

    async def _live(self, client: Client, started: threading.Event) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        opening = {name for name, _ in self._boxes}

        def opened(name: str) -> None:
            opening.discard(name)
            if not opening:
                started.set()

        async with asyncio.TaskGroup() as group:
            for name, box in self._boxes:
                work = self._keep(name, box, client, self._ending, opened)
                group.create_task(work, name=f"outbox {name}")

    async def _keep(
        self, name: str, box: Outbox, client: Client, ending: asyncio.Event, opened: Callable[[str], None]
    ) -> None:
        pause = PAUSE_FIRST
        while not ending.is_set():
            began = time.monotonic()
            try:
                try:
                    await box.open()
                finally:
                    opened(name)
                await self._hand_over(name, box, client, ending)
            except Exception as error:  # noqa: BLE001 - whatever a database does, the next try may go
                if time.monotonic() - began > WELL_FOR:
                    pause = PAUSE_FIRST
                LOGGER.warning(
                    "outbox_failed at=%s again_in=%gs error=%s: %s", name, pause, type(error).__name__, error
                )
                await _rest(ending, pause)
                pause = min(2 * pause, PAUSE_MAX)
            finally:
                await box.close()

    async def _hand_over(self, name: str, box: Outbox, client: Client, ending: asyncio.Event) -> None:
        pause = PAUSE_FIRST

        async def ask(request: Request, _namespace: str) -> Reply:
            return await ask_by(client, request)

        while not ending.is_set():
            done = await hand_over(box, ask)
            for place, trouble in done.troubles.items():
                LOGGER.warning("outbox_trouble at=%s place=%d %s", name, place, trouble)
            if done.later or done.busy:
                LOGGER.info("outbox_waits at=%s for=%s", name, done.later or next(iter(done.busy.values())))
                await _rest(ending, pause)
                pause = min(2 * pause, PAUSE_MAX)
                # Nothing more is noted as handed over while there is nobody to take it.
                while not ending.is_set() and done.later and _passes(await ask(NOBODY, "")):
                    await _rest(ending, pause)
                continue
            pause = PAUSE_FIRST
            if not done.more:
                await _rest(ending, LOOK_EVERY)


async def ask_by(client: Client, request: Request) -> Reply:
    """Return the answer to ``request``; a refusal is one."""
    try:
        return await client.arun(client.transport.call(request, timeout=ANSWER_WITHIN), instead="")
    except Refusal as refusal:
        return refused(refusal)


def _passes(reply: Reply) -> bool:
    return isinstance(reply, Refused) and reply.retryable


async def _rest(ending: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await ending.wait()
    except TimeoutError:
        pass  # it is time for the next look


def outbox_at(address: str, *, namespace: str, store: str) -> Outbox:
    """Return the outbox at ``address``, not opened yet. Raises UnknownOption."""
    if not isinstance(address, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users may not check types
        raise UnknownOption("bad_outbox", f"An outbox is to be a {type(address).__name__}.", remedy=FORMS)
    if _is_one_place(address, store):
        raise UnknownOption(
            "bad_outbox",
            f"The outbox {masked(address)!r} is the store of the engine.",
            remedy="In the engine's own PostgreSQL database none is needed: leave it out. Beside a store in a file keep your own "
            "tables in another file, and name that one.",
        )
    if address.startswith(("postgresql://", "postgres://")):
        return _in_postgres(address, namespace)
    scheme, _, rest = address.partition("///")
    if scheme != "sqlite:" or not rest or rest.startswith(":memory:"):
        raise UnknownOption("bad_outbox", f"An outbox is to be at {masked(address)!r}.", remedy=FORMS)
    return SqliteOutbox(rest, namespace)


def _is_one_place(address: str, store: str) -> bool:
    """Say whether both are one file, or the same words. A file is only looked up: opening it here would drop its locks."""
    if address == store:
        return True
    (scheme, _, file), (other, _, owned) = address.partition("///"), store.partition("///")
    if (scheme, other) != ("sqlite:", "sqlite:"):
        return False
    if Path(file).resolve() == Path(owned).resolve():
        return True
    try:
        return Path(file).samefile(owned)  # a link to it, or another case in which its name is written
    except OSError:
        return False


def _in_postgres(address: str, namespace: str) -> Outbox:
    try:
        _ = urlsplit(address).port
    except ValueError:
        raise UnknownOption(
            "bad_outbox", f"An outbox is to be at {masked(address)!r}, which cannot be read.", remedy=FORMS
        ) from None
    try:
        from outlast.sdk.outbox_postgres import PostgresOutbox  # noqa: PLC0415 - its driver may not be installed
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise UnknownOption(
            "bad_outbox", "The driver of PostgreSQL is not installed.", remedy='pip install "outlast[postgres]"'
        ) from None
    return PostgresOutbox(address, namespace)
