"""The interpreter's settings are in force while an engine or a worker runs, and are put back."""

import gc
import sys
from collections.abc import Iterator

import pytest

from outlast.protocol.interpreter import COLLECT_AFTER, SWITCH_INTERVAL, Tuned


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    yield
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


def test_settings_hold_until_the_last_one_ends() -> None:
    gc.set_threshold(700, 10, 10)
    before = sys.getswitchinterval()
    Tuned.begin()
    Tuned.begin()
    Tuned.end()
    assert gc.get_threshold() == COLLECT_AFTER
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL)
    Tuned.end()
    assert gc.get_threshold() == (700, 10, 10)
    assert sys.getswitchinterval() == pytest.approx(before)


def test_a_collector_that_is_off_stays_off() -> None:
    gc.set_threshold(0, 10, 10)
    Tuned.begin()
    assert gc.get_threshold() == (0, 10, 10)
    Tuned.end()
    assert gc.get_threshold() == (0, 10, 10)


def test_thresholds_set_meanwhile_are_kept() -> None:
    gc.set_threshold(700, 10, 10)
    Tuned.begin()
    gc.set_threshold(50_000, 5, 5)
    Tuned.end()
    assert gc.get_threshold() == (50_000, 5, 5)
