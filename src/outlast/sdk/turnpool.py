"""Threads that execute turns of workflow code; one that does not come back is given up and replaced."""

import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Sequence
from typing import Final

from outlast.core.replies import WorkflowTask
from outlast.sdk.backlog import Backlog, taken_once
from outlast.sdk.converter import Converter
from outlast.sdk.definition import WorkflowDefinition
from outlast.sdk.failures import is_user_file
from outlast.sdk.loop import keep_generators
from outlast.sdk.pool import Hands
from outlast.sdk.queries import QueriesInHand
from outlast.sdk.replay import Turn, WorkflowRun

THREADS_MAX: Final = 8
TURN_MAX: Final = 2.0  # seconds for one turn: workflow code only decides, work belongs in tasks
EVENTS_PER_SECOND: Final = 2000  # further time for the events that a turn replays, on a machine that is busy
TELL_AFTER: Final = 0.005  # seconds for which finished turns gather while others wait: a hand-over costs as much as one
SLOW: Final = 0.02  # seconds after which a turn is taken to hold its thread up: most last far less than a millisecond
CROWDED: Final = 0.1  # seconds for which slow turns may hold all threads with others waiting before one is added
LOOK_AGAIN: Final = 0.1
STACK_SHOWN: Final = 20  # lines of the user's code, of a thread that does not come back
LEAKED_MAX: Final = 64  # beyond it stuck threads are not replaced: each holds memory for good


class TurnInHand:
    """One turn: the task, the run it goes on with (or None to build one), and what came of it."""

    __slots__ = (
        "converter",
        "definition",
        "end",
        "error",
        "limit",
        "namespace",
        "run",
        "started_at",
        "task",
        "thread",
        "ticket",
        "turn",
    )

    def __init__(
        self,
        task: WorkflowTask,
        definition: WorkflowDefinition,
        converter: Converter,
        run: WorkflowRun | None,
        *,
        namespace: str,
    ) -> None:
        self.namespace = namespace
        self.task = task
        self.definition = definition
        self.converter = converter
        self.run = run
        self.turn: Turn | None = None
        self.error: BaseException | None = None
        self.limit = TURN_MAX + len(task.events) / EVENTS_PER_SECOND
        self.started_at = 0.0  # monotonic seconds
        self.thread: int = 0
        self.ticket = [True]  # whoever pops it may start the turn, or hand it back
        self.end = [True]  # whoever pops it says how the turn ended: its thread, or the watch that gave it up

    def claim(self) -> bool:
        """Return True to one caller only: it may start the turn, or hand it back. From any thread."""
        return taken_once(self.ticket)

    def settle(self) -> bool:
        """Return True to one caller only: it says how the turn ended. From any thread."""
        return taken_once(self.end)

    def execute(self) -> None:
        """Advance the run and keep what comes of it. Never raises."""
        try:
            if self.run is None:
                self.run = WorkflowRun(
                    self.definition,
                    self.converter,
                    namespace=self.namespace,
                    workflow_id=self.task.workflow_id,
                    run_id=self.task.run_id,
                )
            self.turn = self.run.advance(self.task)
            if self.turn.closed:
                # Nothing goes on from here: if the engine does not take the end, the run is built anew.
                run, self.run = self.run, None
                _close(run)
        except BaseException as error:  # noqa: BLE001 - the turn's end, not the thread's
            self.error = error


InHand = TurnInHand | QueriesInHand


class TurnPool:
    """Begins with one thread, since turns are short and share one interpreter; adds some while slow ones hold others up."""

    def __init__(self, finished: deque[InHand], hands: Hands) -> None:
        self.leaked = 0
        self.look_again = LOOK_AGAIN
        self._finished = finished
        self._hands = hands
        self._backlog: Backlog[InHand | WorkflowRun | None] = Backlog()
        self._waiting: dict[InHand, None] = {}  # submitted and not ended
        self._counting = threading.Lock()
        self._threads = 0  # that are not stuck
        self._crowded_since = 0.0

    @property
    def busy(self) -> bool:
        """Whether a turn waits or is executed."""
        return bool(self._waiting)

    def submit(self, items: Sequence[InHand]) -> None:
        """Have ``items`` executed. From the worker's loop."""
        for item in items:
            self._waiting[item] = None
        self._backlog.put(items)
        if not self._threads:
            self._add_thread()

    def close_run(self, run: WorkflowRun) -> None:
        """Have ``run`` closed: its coroutines end, and with them user code in ``finally``."""
        self._backlog.put((run,))
        if not self._threads:
            self._add_thread()

    def take_unstarted(self) -> list[InHand]:
        """Return the items that have not begun, which will not begin any more."""
        items = [item for item in list(self._waiting) if item.claim()]
        for item in items:
            self._waiting.pop(item, None)
            if item.run is not None:
                self._backlog.put((item.run,))
        return items

    def give_up_stuck(self, now: float) -> list[tuple[InHand, str]]:
        """Return the turns that have run out of time with the stacks of their threads, and replace the threads."""
        stuck: list[tuple[InHand, str]] = []
        slow = 0
        waiting = False
        for item in list(self._waiting):
            if not item.started_at:
                waiting = True
            elif now - item.started_at <= item.limit:
                slow += now - item.started_at >= SLOW
            elif item.settle():
                self._waiting.pop(item, None)
                stuck.append((item, _stack_of(item.thread)))
                run = item.run
                if run is not None:
                    run.abandon()  # code that only loops over awaits lets go of its thread then
                with self._counting:
                    self.leaked += 1
                    self._threads -= 1
                if self.leaked <= LEAKED_MAX:
                    self._add_thread()
        self._make_room(now, crowded=waiting and slow >= self._threads)
        return stuck

    def close(self) -> None:
        """End the threads that are idle."""
        self._backlog.put([None] * self._threads)

    def _make_room(self, now: float, *, crowded: bool) -> None:
        if not crowded:
            self._crowded_since = 0.0
        elif not self._crowded_since:
            self._crowded_since = now
        elif now - self._crowded_since >= CROWDED and self._threads < THREADS_MAX:
            self._add_thread()

    def _add_thread(self) -> None:
        with self._counting:
            self._threads += 1
        threading.Thread(target=self._work, name="outlast-workflow", daemon=True).start()

    def _tell(self) -> None:
        if self._finished:
            self._hands.call()

    def _work(self) -> None:
        take, finished, tell = self._backlog.take, self._finished, self._tell
        ident = threading.get_ident()
        keep_generators()
        tell_at = 0.0  # when what has finished is told even though more waits
        while True:
            item = take(tell)
            if item is None:
                with self._counting:
                    self._threads -= 1
                return
            if isinstance(item, WorkflowRun):
                _close(item)
                continue
            if not item.claim():
                continue
            item.thread = ident
            item.started_at = time.monotonic()
            item.execute()
            if not item.settle():
                # This thread was replaced: what it came to know is late, and its run is nobody's.
                if item.run is not None:
                    _close(item.run)
                with self._counting:
                    self.leaked -= 1
                return
            finished.append(item)  # first: a turn that were in neither would not be waited for when the worker stops
            self._waiting.pop(item, None)
            now = time.monotonic()
            if now >= tell_at:
                tell_at = now + TELL_AFTER
                tell()
            del item


def _close(run: WorkflowRun) -> None:
    try:
        run.close()
    except BaseException:  # noqa: BLE001 - user code in `finally` may raise anything; the run is gone either way
        return


def _stack_of(thread: int) -> str:
    frames = sys._current_frames()  # noqa: SLF001 - the only way to a thread's stack  # pyright: ignore[reportPrivateUsage]
    frame = frames.get(thread)
    if frame is None:
        return ""
    stack = traceback.extract_stack(frame)
    users = [entry for entry in stack if is_user_file(entry.filename)]
    return "".join(traceback.format_list((users or stack)[-STACK_SHOWN:]))
