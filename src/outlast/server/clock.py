"""The real clock and the real source of ids: the one place that asks the machine for time and chance."""

import logging
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uuid_utils

from outlast.core.units import MILLISECOND, SECOND, Instant

LOG: Final = logging.getLogger("outlast.clock")

GUARD: Final = 2 * SECOND  # a larger disagreement of wall and monotonic clock is a jump
CONFIRM: Final = 5 * SECOND  # a jump ahead must last this long before it is followed
SLEW: Final = 20  # one part in this many is how fast time may be stretched or pressed
OFFSET_LOOK: Final = 50 * MILLISECOND  # how often the test's offset file is looked at


class GuardedClock:
    """The wall clock, led by the monotonic one: it never goes back and is not pulled along by a step.

    Small disagreements are slewed away. A step back is lived through by slewing as well: instants stay ahead of the wall
    until it has caught up. A step ahead is followed after it has lasted for CONFIRM: the core then sees a pause, and
    grants every lease a fresh term (ARCHITECTURE §3). Each step is one line in the log, CLOCK_JUMP.
    """

    def __init__(
        self,
        *,
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
        offset_file: str = "",
    ) -> None:
        self._offset_path = Path(offset_file) if offset_file else None
        self._offset = 0
        self._offset_seen_at = -OFFSET_LOOK
        self._read_wall = wall
        self._monotonic = monotonic
        self._mono = monotonic()
        self._now = self._wall(self._mono)
        self._jump_since = 0
        self._jumped = False
        self._stepped = 0

    @property
    def stepped(self) -> int:
        """By how many nanoseconds in all it has followed steps ahead: time that showed on the clock and did not pass."""
        return self._stepped

    def now(self) -> Instant:
        """Return the instant in nanoseconds; never less than the one before."""
        mono = self._monotonic()
        passed = mono - self._mono
        self._mono = mono
        expected = self._now + passed
        drift = self._wall(mono) - expected
        if -GUARD <= drift <= GUARD:
            self._jumped = False
            limit = passed // SLEW
            self._now = expected + max(-limit, min(limit, drift))
        else:
            self._now = self._after_jump(mono, passed, expected, drift)
        return Instant(self._now)

    def _after_jump(self, mono: int, passed: int, expected: int, drift: int) -> int:
        if not self._jumped:
            self._jumped, self._jump_since = True, mono
            LOG.warning(
                "CLOCK_JUMP: the wall clock stepped by %.1f s against the monotonic clock",
                drift / SECOND,
                extra={"event": "CLOCK_JUMP", "seconds": drift / SECOND},
            )
        if drift < 0:
            return expected - passed // SLEW
        if mono - self._jump_since < CONFIRM:
            return expected
        self._jumped = False
        self._stepped += drift
        return expected + drift

    def _wall(self, mono: int) -> int:
        if self._offset_path is not None and mono - self._offset_seen_at >= OFFSET_LOOK:
            self._offset_seen_at = mono
            self._offset = _read_offset(self._offset_path, self._offset)
        return self._read_wall() + self._offset


def _read_offset(path: Path, before: int) -> int:
    try:
        return int(path.read_text().strip() or "0")
    except (OSError, ValueError):
        return before


class SystemEntropy:
    """Ids from the operating system's chance, ordered by time."""

    def new_id(self) -> str:
        """Return a fresh UUIDv7."""
        return str(uuid_utils.uuid7())


def owner_name() -> str:
    """Return how an engine of this process calls itself to a store: two containers may share a host's name and a pid."""
    place = f"{os.uname().nodename}:{os.getpid()}" if hasattr(os, "uname") else f"pid {os.getpid()}"
    return f"{place}:{secrets.token_hex(4)}"
