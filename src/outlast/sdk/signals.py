"""A named, typed word that is sent to a run, and the place where its code receives it."""

import builtins
from typing import Any, Generic, TypeVar, cast, overload

from outlast.sdk.durations import Duration, seconds_of
from outlast.sdk.errors import UnsupportedHere
from outlast.sdk.runtime import current_runtime
from outlast.sdk.unawaited import to_await

T = TypeVar("T")


class Signal(Generic[T]):
    """``approve = Signal("approve", Approval)``: sent with ``handle.signal(approve, value)``, received in workflow code."""

    __slots__ = ("name", "type")

    @overload
    def __init__(self: "Signal[Any]", name: str) -> None: ...
    @overload
    def __init__(self, name: str, type: builtins.type[T]) -> None: ...
    @overload
    def __init__(self: "Signal[Any]", name: str, type: Any) -> None: ...
    def __init__(self, name: str, type: Any = Any) -> None:
        self.name = name
        self.type: Any = type

    @to_await
    async def receive(self, timeout: Duration | None = None) -> T:
        """Return the next signal of this name, in order of arrival, waiting for it if there is none yet.

        Raises:
            TimeoutError: ``timeout`` has passed first. The timer is durable.
        """
        runtime = current_runtime()
        if runtime is None:
            raise UnsupportedHere(
                f'Signal "{self.name}" was to be received outside workflow code.',
                remedy="Receive it in the body of an @app.workflow function; send it with handle.signal(…).",
            )
        seconds = None if timeout is None else seconds_of(timeout, name="timeout")
        return cast("T", await runtime.receive_signal(self.name, self.type, seconds))

    def __repr__(self) -> str:
        return f"Signal({self.name!r})"
