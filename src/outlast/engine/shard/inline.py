"""Reads of a store that answers without waiting, where nothing may wait."""

from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from outlast.core.errors import InvariantBroken

Result = TypeVar("Result")


def inline(reading: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that finishes without waiting, here and now."""
    try:
        reading.send(None)
    except StopIteration as end:
        return cast("Result", end.value)
    reading.close()
    raise InvariantBroken("inline_read_waited", reading=str(reading))
