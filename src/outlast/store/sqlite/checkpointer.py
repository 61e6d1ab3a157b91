"""Bringing the WAL into the file beside the commits, so that none of them waits for it.

A WAL begins anew only when all of it has been brought over and nobody reads it. Under load the thread here never gets to the
end: the writer goes on writing. So it does the long part, and the writer the short rest between two commits.
"""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

import apsw

from outlast.store.sqlite.connection import Connection

_log: Final = logging.getLogger("outlast.store")


class Checkpointer:
    """A thread with a connection of its own that checkpoints when it is asked to."""

    def __init__(self, connect: Callable[[], Connection], name: str) -> None:
        self._asked: SimpleQueue[bool] = SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._done = False
        self._connect = connect
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Begin a checkpoint, unless one is under way."""
        if self._idle.is_set():
            self._idle.clear()
            self._asked.put(True)

    def take_done(self) -> bool:
        """Say whether a checkpoint has ended since the last time this was asked; also one that failed."""
        done, self._done = self._done, False
        return done

    def wait(self, seconds: float) -> None:
        """Wait for the checkpoint that is under way, if there is one, but not longer than ``seconds``."""
        self._idle.wait(seconds)

    def stop(self) -> None:
        """End the thread; waits for a checkpoint that is under way."""
        self._asked.put(False)
        self._thread.join()

    def _run(self) -> None:
        connection: Connection | None = None
        while self._asked.get():
            try:
                connection = connection or self._connect()
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            except apsw.Error as error:
                # The writer tries next, and reports what it finds.
                _log.info("checkpoint_put_off error=%s", error)
            self._done = True
            self._idle.set()
        if connection is not None:
            connection.close()
