"""How this process's interpreter is set while an engine or a worker runs in it.

Threads take turns often, so that user code which spins holds up nothing for long. And the collector looks less often: an
engine keeps many objects that live long and hold no cycles, and at Python's default it spends up to a quarter of its time on
looking through them.
"""

import gc
import sys
import threading
from typing import Final

SWITCH_INTERVAL: Final = 0.0005  # seconds for which a thread holds the interpreter while others want it
COLLECT_AFTER: Final = (50_000, 20, 50)  # objects made and not freed, then collections of the generation below

_lock: Final = threading.Lock()


class Tuned:
    """The settings, in force from the first ``begin`` of this process to the last ``end``."""

    _running = 0
    _interval = 0.0
    _thresholds: tuple[int, int, int] | None = None

    @classmethod
    def begin(cls) -> None:
        """Put the settings in force. A collector that the program turned off or made rarer itself is left alone."""
        with _lock:
            cls._running += 1
            if cls._running > 1:
                return
            cls._interval = sys.getswitchinterval()
            sys.setswitchinterval(min(cls._interval, SWITCH_INTERVAL))
            thresholds = gc.get_threshold()
            cls._thresholds = None
            if 0 < thresholds[0] < COLLECT_AFTER[0]:
                cls._thresholds = thresholds
                gc.set_threshold(*COLLECT_AFTER)

    @classmethod
    def end(cls) -> None:
        """Put back what was before, unless the program has set something else meanwhile."""
        with _lock:
            cls._running -= 1
            if cls._running:
                return
            sys.setswitchinterval(cls._interval)
            if cls._thresholds is not None and gc.get_threshold() == COLLECT_AFTER:
                gc.set_threshold(*cls._thresholds)
