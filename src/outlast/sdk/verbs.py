"""What workflow code can ask of its run: each verb issues its command at once or says what is recorded.

``replay.WorkflowRun`` puts events into it; ``sdk.workflow`` and the tasks' verbs call it.
"""

import asyncio
import logging
import random
import sys
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any, Final, NoReturn, get_type_hints

from outlast.core import commands, limits
from outlast.core.events import MarkerRecorded, TimerFired, WorkflowExecutionSignaled, WorkflowExecutionStarted
from outlast.core.payload import Payload
from outlast.core.run import PUBLISH
from outlast.core.units import MICROSECOND, MILLISECOND, SECOND
from outlast.sdk import guard
from outlast.sdk.converter import Converter
from outlast.sdk.definition import TaskDefinition, TaskOptions, WorkflowDefinition
from outlast.sdk.errors import HoldsRun, Nondeterminism, PayloadTooLarge, UnsupportedHere
from outlast.sdk.failures import is_user_file
from outlast.sdk.loop import Abandoned, TimerHandle, loop_of, timeout_of
from outlast.sdk.matching import PATCH, REMEDY
from outlast.sdk.operations import ActivityFuture, Condition, ContinueRequested, Mailbox, Received
from outlast.sdk.options import check_text
from outlast.sdk.signals import value_of
from outlast.sdk.unawaited import Unawaited

LOGGER: Final = logging.getLogger("outlast.workflow")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
UUID_SALT: Final = "\x1fuuid"  # so that drawing an id does not move the numbers of ``random``


class Verbs:
    """The state of a run that its code can see or ask for."""

    asking: bool  # a query method runs, which may ask for nothing

    # A run has more attributes than the interpreter keeps cheaply in a dictionary of its own, and many runs are made.
    __slots__ = (
        "_activities_made",
        "_detached_made",
        "_ended_now",
        "_patches",
        "_random",
        "_timers_made",
        "_traced",
        "_uuids",
        "activities",
        "asking",
        "attempt",
        "cancel_requested",
        "cancel_waiting",
        "canceled",
        "conditions",
        "converter",
        "definition",
        "disposed",
        "history_length",
        "issued",
        "loop",
        "mailboxes",
        "markers",
        "memo",
        "namespace",
        "now_ns",
        "original_run_id",
        "queue",
        "replaying",
        "run_id",
        "scheduled",
        "shields",
        "started_ns",
        "started_timers",
        "suggest_continue_as_new",
        "tags",
        "timers",
        "turn_events",
        "unawaited",
        "violation",
        "watching",
        "workflow_id",
    )

    def __init__(
        self, definition: WorkflowDefinition, converter: Converter, *, namespace: str, workflow_id: str, run_id: str
    ) -> None:
        self.definition = definition
        self.converter = converter
        self.namespace = namespace
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.original_run_id = run_id
        self.attempt = 1
        self.queue = ""
        self.tags: dict[str, str] = {}
        self.memo: dict[str, Payload] = {}
        self.started_ns = 0
        self.now_ns = 0
        self.replaying = True
        self.watching = False  # calls on this thread are watched by ``guard.watch``
        self.history_length = 0
        self.suggest_continue_as_new = False
        self.violation: HoldsRun | None = None
        self.cancel_requested = False
        self.cancel_waiting = False
        self.shields = 0
        self.disposed = False

        self.loop = loop_of(self)
        self.unawaited = Unawaited()
        self.issued: list[commands.Command | None] = []
        self.scheduled: list[ActivityFuture] = []  # by this turn
        self.started_timers: dict[str, int] = {}  # by this turn: id -> index in ``issued``
        self.activities: dict[int, ActivityFuture] = {}
        self.canceled: dict[str, int] = {}  # activity id -> scheduled event id of those a cancel was asked for
        self.timers: dict[str, TimerHandle] = {}
        self.conditions: list[Condition] = []
        self.mailboxes: dict[str, Mailbox] = {}
        self.markers: list[MarkerRecorded] = []  # recorded by the turn that is replayed
        self.turn_events: Sequence[tuple[int, Any]] = ()
        self._ended_now: set[str | int] | None = None
        self._activities_made = self._timers_made = self._detached_made = 0
        self._random: random.Random | None = None
        self._uuids: random.Random | None = None
        self._patches: dict[str, bool] = {}
        self._traced: list[str] | None = None

    def begin(self, event: WorkflowExecutionStarted) -> None:
        """Take over what the run was started with."""
        self.run_id = event.run_id
        self.original_run_id = event.original_run_id
        self.attempt = event.attempt
        self.queue = event.task_queue
        self.tags = dict(event.tags or {})
        self.memo = dict(event.memo or {})
        self.started_ns = self.now_ns
        for carried in event.carried_signals:
            self.mailbox(carried.signal_name).signals.append(Received(1, carried))

    def issue(self, command: commands.Command) -> int:
        """Add a command to the turn; returns its index."""
        if self.disposed:
            raise Abandoned
        if self.asking:
            raise UnsupportedHere(
                "A query asked for something to be done.",
                remedy="A query only tells; send a signal to have things done.",
            )
        index = len(self.issued)
        if index >= limits.COMMANDS_MAX:
            raise UnsupportedHere(
                f"One turn asked for more than {limits.COMMANDS_MAX:,} things.",
                remedy="Start them in groups and await each group.",
            )
        self.issued.append(command)
        if self._traced is not None:
            self._traced.append(_caller())
        return index

    def report(self, violation: HoldsRun) -> None:
        """Take note of a mistake in the code; the turn fails for it even if the code catches the error."""
        if self.violation is None and not self.disposed:
            self.violation = violation

    # Tasks.

    def execute_activity(
        self, definition: TaskDefinition, args: tuple[Any, ...], kwargs: dict[str, Any], options: TaskOptions
    ) -> ActivityFuture:
        """Schedule the activity at once and return its result to be awaited; cancelling that cancels the activity."""
        if not self.watching:
            return self._schedule(definition, args, kwargs, options)
        # From here on it is our own code, whose calls need no watching and would cost a third of the turn.
        guard.unwatch()
        try:
            return self._schedule(definition, args, kwargs, options)
        finally:
            guard.watch()

    def _schedule(
        self, definition: TaskDefinition, args: tuple[Any, ...], kwargs: dict[str, Any], options: TaskOptions
    ) -> ActivityFuture:
        if options.delay:
            raise UnsupportedHere(
                f"{definition.name} was given a delay inside a workflow.",
                remedy="Write await workflow.sleep(…) before it.",
            )
        self._activities_made += 1
        activity_id = str(self._activities_made)
        start_to_close = options.start_to_close
        command = commands.ScheduleActivity(
            activity_id=activity_id,
            activity_type=definition.name,
            task_queue=options.queue,
            input=self.converter.arguments_to_payloads(definition.parameters, args, kwargs),
            retry=options.retry,
            start_to_close=limits.START_TO_CLOSE if start_to_close is None else start_to_close,
            schedule_to_start=options.schedule_to_start,
            schedule_to_close=options.schedule_to_close,
            heartbeat=options.heartbeat,
            priority=options.priority,
            operation_key=options.key,
        )
        loop = self.loop
        future = ActivityFuture(loop=loop)
        loop.numbers = future.number = loop.numbers + 1
        future.activity_id = activity_id
        future.definition = definition
        future.index = self.issue(command)
        future.scheduled_event_id = 0
        future.requested = future.absorbing = False
        future.canceling = self
        self.scheduled.append(future)
        return future

    def cancel_activity(self, future: ActivityFuture) -> bool:
        if self.disposed:
            return True
        if future.scheduled_event_id == 0:
            self.issued[future.index] = None
            return True
        if future.scheduled_event_id in self._ended():
            return False
        self.canceled[future.activity_id] = future.scheduled_event_id
        self.issue(commands.RequestCancelActivity(activity_id=future.activity_id))
        return False

    def enqueue_detached(
        self, definition: TaskDefinition, args: tuple[Any, ...], kwargs: dict[str, Any], options: TaskOptions
    ) -> str:
        """Enqueue a task that outlives the run, in the commit of this turn; return its id."""
        self._detached_made += 1
        place = str(self._detached_made)
        start_to_close = options.start_to_close
        self.issue(
            commands.EnqueueDetached(
                place=place,
                task_type=definition.name,
                task_queue=options.queue,
                input=self.converter.arguments_to_payloads(definition.parameters, args, kwargs),
                retry=options.retry,
                delay=options.delay,
                start_to_close=limits.START_TO_CLOSE if start_to_close is None else start_to_close,
                schedule_to_start=options.schedule_to_start,
                schedule_to_close=options.schedule_to_close,
                heartbeat=options.heartbeat,
                priority=options.priority,
            )
        )
        return f"{self.run_id}:d{place}"

    def _ended(self) -> set[str | int]:
        """Return the timers and activities whose end is among this turn's events, applied or not.

        The engine has closed them: cancelling them now would be refused.
        """
        if self._ended_now is None:
            self._ended_now = {
                event.timer_id if type(event) is TimerFired else getattr(event, "scheduled_event_id", 0)
                for _, event in self.turn_events
            }
        return self._ended_now

    # Time.

    def start(self, handle: TimerHandle, delay: float) -> str:
        """Start a durable timer for ``handle``; below a millisecond it lasts one."""
        self._timers_made += 1
        timer_id = str(self._timers_made)
        # "For ever", as some code asks for, is not a whole number: it lasts as long as a timer may.
        span = round(delay * 1_000_000) * MICROSECOND if delay < limits.SPAN_MAX / SECOND else limits.SPAN_MAX
        self.started_timers[timer_id] = self.issue(
            commands.StartTimer(timer_id=timer_id, start_to_fire=max(span, MILLISECOND), summary=handle.summary)
        )
        self.timers[timer_id] = handle
        return timer_id

    def drop(self, timer_id: str) -> None:
        """Cancel a timer; one that this very turn started was never there."""
        if self.timers.pop(timer_id, None) is None or self.disposed:
            return
        index = self.started_timers.pop(timer_id, None)
        if index is not None:
            self.issued[index] = None
        elif timer_id not in self._ended():
            self.issue(commands.CancelTimer(timer_id=timer_id))

    def now(self) -> float:
        return (self.now_ns - self.started_ns) / SECOND

    def instant(self) -> datetime:
        """Return the instant of the turn, in UTC."""
        return EPOCH + timedelta(microseconds=self.now_ns // MICROSECOND)

    async def sleep(self, seconds: float) -> None:
        """Wait for a durable timer; zero, too, is one."""
        future = self.loop.create_future()
        handle = self.loop.call_later(seconds, _wake, future)
        try:
            await future
        finally:
            handle.cancel()

    # Signals and conditions.

    def mailbox(self, name: str) -> Mailbox:
        found = self.mailboxes.get(name)
        if found is None:
            found = self.mailboxes[name] = Mailbox()
        return found

    async def receive_signal(self, name: str, type: Any, timeout: float | None) -> Any:
        """Return the next signal of this name; raises TimeoutError after ``timeout`` seconds without one."""
        mailbox = self.mailbox(name)
        if not mailbox.signals or mailbox.waiters:
            async with timeout_of(f'signal "{name}"', timeout):
                await self._wait_turn(mailbox)
        received = mailbox.signals.popleft()
        mailbox.wake()
        return value_of(self.converter, name, received.event.input, type)

    async def _wait_turn(self, mailbox: Mailbox) -> None:
        waiter = self.loop.create_future()
        mailbox.waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                mailbox.wake()  # it was this one's turn; let the next one have it
            raise
        finally:
            if not waiter.done():
                mailbox.waiters.remove(waiter)

    async def wait_until(self, holds: Callable[[], object], timeout: float | None) -> None:
        """Return once ``holds()`` is true; it is asked again after each event."""
        if holds():
            return
        condition = Condition(holds, self.loop.create_future())
        self.conditions.append(condition)
        try:
            async with timeout_of("wait_until", timeout):
                await condition.future
        finally:
            self.conditions = [other for other in self.conditions if other is not condition]

    def look_again(self) -> None:
        """Wake what waits for a condition that holds now, one after another, until none does."""
        moved = True
        while moved:
            moved = False
            for condition in list(self.conditions):
                if not condition.future.done() and self._asks(condition):
                    self.loop.run_ready()
                    moved = True

    def _asks(self, condition: Condition) -> bool:
        try:
            if not condition.holds():
                return False
        except Exception as error:  # noqa: BLE001 - raised where the code waits
            condition.future.set_exception(error)
        else:
            condition.future.set_result(None)
        return True

    # Values that go into the history.

    def side_effect(self, function: Callable[[], Any]) -> Any:
        """Return what ``function`` returned when the code first came here."""
        if not self.replaying:
            with guard.lifted():
                value = function()
            payload = self.converter.to_payload(value, path="side_effect", declared=_returned(function))
            self.issue(commands.RecordMarker(marker_name="side_effect", details={"value": payload}))
            return self.converter.from_payload(payload, _returned(function), path="side_effect")
        for place, marker in enumerate(self.markers):
            if marker.marker_name == "side_effect":
                del self.markers[place]
                self.issue(commands.RecordMarker(marker_name="side_effect", details=marker.details))
                payload = (marker.details or {})["value"]
                return self.converter.from_payload(payload, _returned(function), path="side_effect")
        return self._missing("side_effect")

    def _missing(self, name: str) -> NoReturn:
        error = Nondeterminism(
            f"run {self.workflow_id or self.run_id} and its code disagree in the turn of event {self.history_length}.\n"
            f"  history  no workflow.{name}\n  code  workflow.{name}  {_caller()}",
            event_id=self.history_length + 2,
            recorded="nothing",
            replayed=f"workflow.{name}",
            place=_caller(),
            remedy=REMEDY,
        )
        self.report(error)
        raise error

    def patched(self, identity: str, *, deprecated: bool = False) -> bool:
        """Return whether the code behind this patch is the one to run for this history."""
        known = self._patches.get(identity)
        if known is not None:
            return known
        details = {"id": Payload("json/plain", identity.encode())}
        if deprecated:
            details["deprecated"] = Payload("json/plain", b"true")
        new = not self.replaying or any(
            marker.marker_name == PATCH and (marker.details or {}).get("id") == details["id"] for marker in self.markers
        )
        self._patches[identity] = new
        if new:
            self.issue(commands.RecordMarker(marker_name=PATCH, details=details))
        return new

    def publish(self, name: str, value: Any) -> None:
        check_text("publish", name, limits.NAME_BYTES_MAX)
        payload = self.converter.to_payload(value, path=f"publish.{name}")
        if len(payload.data) > limits.PUBLISHED_BYTES_MAX:
            raise PayloadTooLarge(
                f"What was published as {name!r} has {len(payload.data):,} bytes; "
                f"{limits.PUBLISHED_BYTES_MAX:,} are allowed.",
                path=f"publish.{name}",
                size=len(payload.data),
                limit=limits.PUBLISHED_BYTES_MAX,
                remedy="Publish a reference to it.",
            )
        self.issue(commands.RecordMarker(marker_name=PUBLISH, details={name: payload}))

    def note(self, text: str) -> None:
        payload = self.converter.to_payload(text, path="note", declared=str)
        self.issue(commands.RecordMarker(marker_name="note", details={"text": payload}))

    def set_search_attributes(self, attributes: dict[str, Any]) -> None:
        payloads = {
            name: self.converter.to_attribute(value, path=f"search_attributes.{name}")
            for name, value in attributes.items()
        }
        self.issue(commands.UpsertSearchAttributes(search_attributes=payloads))

    # Chance.

    @property
    def random(self) -> random.Random:
        if self._random is None:
            self._random = random.Random(self.original_run_id)  # noqa: S311 - it must be repeatable, not secret
        return self._random

    def uuid(self) -> uuid.UUID:
        if self._uuids is None:
            self._uuids = random.Random(self.original_run_id + UUID_SALT)  # noqa: S311 - as above
        return uuid.UUID(int=self._uuids.getrandbits(128), version=4)

    # The end.

    def continue_as_new(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
        # Bound and written here, so that a mistake shows the user's line.
        self.converter.arguments_to_payloads(self.definition.parameters, args, kwargs)
        raise ContinueRequested(args, kwargs)

    def unreceived(self) -> tuple[tuple[int, ...], tuple[WorkflowExecutionSignaled, ...]]:
        """Return the ids and events of the signals that were never received, in order of arrival."""
        left = [received for mailbox in self.mailboxes.values() for received in mailbox.signals]
        left.sort(key=lambda received: received.event_id)
        return tuple(received.event_id for received in left), tuple(received.event for received in left)

    def lost(self, context: dict[str, Any]) -> None:
        """An error in a task that nobody awaited: logged once, never while replaying."""
        error = context.get("exception")
        if isinstance(error, BaseException) and not self.replaying and not self.disposed:
            with guard.lifted():
                LOGGER.warning(
                    "An error in run %s that nothing awaited: %s", self.run_id, context.get("message"), exc_info=error
                )


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _returned(function: Callable[[], Any]) -> Any:
    try:
        return get_type_hints(function).get("return", Any)
    except (NameError, TypeError, AttributeError):
        return Any


def _caller() -> str:
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
