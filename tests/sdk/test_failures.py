"""No exception can keep its failure from being recorded, and what comes back can be caught."""

import logging
import pickle
import sys
import time
from datetime import timedelta
from typing import Any, Never

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast import App, Retry
from outlast.core import limits
from outlast.core.failure import Failure, FailureKind
from outlast.core.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from outlast.sdk import guard
from outlast.sdk.durations import nanos_of
from outlast.sdk.errors import (
    Fatal,
    HoldsRun,
    InvalidDuration,
    RetryableError,
    TaskError,
    TimedOut,
    WorkerLost,
    exception_of,
    failure_of,
)
from tests.sdk.apps import eventually


class Broken(Exception):
    def __str__(self) -> Never:
        raise RuntimeError("no text")


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("held a lock")
        self.lock = lambda: None

    def __reduce__(self) -> Never:
        raise pickle.PicklingError


class NeedsArguments(Exception):
    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(f"{code}: {why}")


class WithSlots(OSError):
    pass


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - any of them
        return caught


@pytest.mark.parametrize(
    ("error", "type", "message"),
    [
        (ValueError("a\0b"), "ValueError", "a\\x00b"),
        (ValueError("a\ud800b"), "ValueError", "a\\ud800b"),
        (Broken(), "Broken", "(its message cannot be read: __str__ raised RuntimeError)"),
        (Unpicklable(), "Unpicklable", "held a lock"),
        (NeedsArguments(4, why="no"), "NeedsArguments", "4: no"),
    ],
)
def test_a_failure_is_recorded_whatever_the_exception_does(error: Exception, type: str, message: str) -> None:
    failure = failure_of(raised(error))

    assert (failure.type, failure.message) == (type, message)
    assert f"{__file__}" in failure.trace
    assert not failure.final


def test_a_message_of_fifty_megabytes_is_cut_with_a_marker() -> None:
    failure = failure_of(ValueError("ä" * 50_000_000))

    assert len(failure.message.encode()) <= limits.FAILURE_TEXT_BYTES_MAX
    assert failure.message.endswith("[cut, 50000000 characters in all]")


def test_a_long_chain_of_causes_is_bounded() -> None:
    error: Exception = ValueError("0")
    for number in range(50):
        following = ValueError(str(number))
        following.__cause__ = error
        error = following

    failure: Failure | None = failure_of(error)
    depth = 0
    while failure is not None:
        failure, depth = failure.cause, depth + 1

    assert depth == limits.FAILURE_DEPTH_MAX


def test_a_ring_of_causes_ends() -> None:
    one, two = ValueError("1"), ValueError("2")
    one.__cause__, two.__cause__ = two, one

    assert failure_of(one).cause is not None


def test_fatal_is_final_and_a_delay_is_kept() -> None:
    assert failure_of(Fatal("no tiles")).final
    assert failure_of(RetryableError("busy", next_delay="5m")).next_delay == 5 * MINUTE
    assert failure_of(RetryableError("busy", next_delay="soon")).next_delay is None


@pytest.mark.parametrize("error", [ValueError("v"), KeyError("k"), WithSlots(2, "gone"), NeedsArguments(1, why="w")])
def test_what_comes_back_is_caught_by_its_class(error: Exception) -> None:
    back = exception_of(failure_of(raised(error)), task="charge")

    assert isinstance(back, type(error))
    assert isinstance(back, TaskError)
    assert back.type == type(error).__name__
    assert back.message == str(error)
    assert back.task == "charge"


def test_a_class_that_is_not_loaded_comes_back_as_a_task_error() -> None:
    failure = Failure(kind=FailureKind.APPLICATION, type="Gone", message="m", info={"class": "nowhere.at_all:Gone"})

    back = exception_of(failure)

    assert type(back) is TaskError
    assert str(back) == "Gone: m"
    assert "nowhere" not in sys.modules


def test_an_error_whose_class_cannot_be_made_again_comes_back_with_its_name() -> None:
    back = exception_of(failure_of(raised(MemoryError())))

    assert str(back).startswith("MemoryError")


@pytest.mark.parametrize("attempt", ["x", "-1", "", "9" * 5000])
def test_a_failure_that_another_kind_of_worker_wrote_is_raised_all_the_same(attempt: str) -> None:
    back = exception_of(Failure(kind=FailureKind.APPLICATION, type="T", message="m", info={"attempt": attempt}))

    assert str(back) == "T: m"


@pytest.mark.parametrize(("kind", "cls"), [(FailureKind.TIMEOUT, TimedOut), (FailureKind.WORKER_LOST, WorkerLost)])
def test_the_kind_of_a_failure_decides_what_is_raised(kind: FailureKind, cls: type) -> None:
    assert type(exception_of(Failure(kind=kind, type="t", message="m"))) is cls


def test_causes_come_back_as_causes() -> None:
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as error:
        failure = failure_of(error)

    back = exception_of(failure)

    assert isinstance(back.__cause__, KeyError)


def test_a_failure_handed_on_keeps_its_type_and_the_remote_trace() -> None:
    far = failure_of(raised(ValueError("far")))

    near = failure_of(raised(exception_of(far, task="charge")))

    assert near.type == "ValueError"
    assert "far" in near.message
    assert near.cause is not None
    assert near.cause.trace == far.trace


@given(st.text())
def test_any_message_fits_any_store(text: str) -> None:
    message = failure_of(ValueError(text)).message

    assert "\0" not in message
    assert message.encode().decode() == message


DURATIONS: list[tuple[Any, int]] = [
    ("250ms", 250 * MILLISECOND),
    ("10m", 10 * MINUTE),
    ("3d", 3 * DAY),
    ("1h30m", 90 * MINUTE),
    ("1.5 h", 90 * MINUTE),
    ("2w", 14 * DAY),
    ("7us", 7000),
    (0, 0),
    (5, 5 * SECOND),
    (0.001, MILLISECOND),
    (1e-12, 1),
    ("0.0000000001s", 1),
    ("0s", 0),
    (timedelta(hours=2, microseconds=1), 2 * HOUR + 1000),
]


@pytest.mark.parametrize(("written", "nanos"), DURATIONS)
def test_durations_are_read_as_they_are_written(written: Any, nanos: int) -> None:
    assert nanos_of(written) == nanos


@pytest.mark.parametrize(
    "written",
    [-5, "-5s", "soon", "", "10", "5 minutes", float("nan"), float("inf"), True, None, timedelta(days=-1), "200000d",
     10**30, "9" * 5000 + "d", 1e308, -1e308],
)  # fmt: skip
def test_what_is_no_length_of_time_is_refused(written: Any) -> None:
    with pytest.raises(InvalidDuration) as caught:
        nanos_of(written, name="delay")

    assert str(caught.value).startswith("delay is")
    assert "10s" in caught.value.remedy


def test_a_log_line_of_an_error_is_cut_with_a_mark(caplog: pytest.LogCaptureFixture) -> None:
    app = App("memory:")

    @app.task(retry=Retry(max_attempts=1))
    def shout() -> None:
        raise ValueError("x" * 50_000)

    @app.workflow
    async def stutter() -> None:
        raise HoldsRun("y" * 50_000)

    with app, caplog.at_level(logging.WARNING, "outlast.worker"):
        with pytest.raises(TaskError) as raised:
            shout.enqueue().result(timeout="10s")
        run = stutter.start()
        eventually(lambda: "workflow_task_failed" in caplog.text)
        run.terminate("enough")

    lines = [record.getMessage() for record in caplog.records if "_failed" in record.getMessage()]
    assert {line.partition(" ")[0] for line in lines} == {"attempt_failed", "workflow_task_failed"}
    assert max(map(len, lines)) < 1_300
    assert all("[cut, " in line for line in lines)
    assert len(raised.value.failure.message) > 10_000, "the whole is kept with the failure"


def test_a_log_line_of_an_error_says_where_it_was_and_what_to_write_instead(caplog: pytest.LogCaptureFixture) -> None:
    app = App("memory:")

    @app.task(retry=Retry(max_attempts=1))
    def fail() -> None:
        raise ValueError("no 5")

    @app.workflow
    async def read_the_clock() -> float:
        return time.time()

    with app, caplog.at_level(logging.WARNING, "outlast.worker"):
        with pytest.raises(ValueError, match="no 5"):
            fail.enqueue().result(timeout="10s")
        run = read_the_clock.start()
        eventually(lambda: "workflow_task_failed" in caplog.text)
        run.terminate("enough")

    failed, held = (line for line in caplog.messages if "_failed" in line)
    assert f" error=ValueError: no 5 at={__file__}:" in failed
    assert held.endswith(guard.CLOCK)
