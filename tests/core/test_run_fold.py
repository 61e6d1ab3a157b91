"""Folding events into a run's state."""

from typing import get_args

from outlast.core.events import Event
from outlast.core.run import FOLDED, LEAVE_NO_MARK


def test_every_kind_of_event_folds_or_leaves_no_mark() -> None:
    kinds = set(get_args(Event))

    assert kinds == FOLDED | LEAVE_NO_MARK
    assert not FOLDED & LEAVE_NO_MARK
