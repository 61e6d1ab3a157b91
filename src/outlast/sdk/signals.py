"""A named, typed word that is sent to a run, and the place where its code receives it."""

import builtins
from typing import Any, Generic, TypeVar, cast, overload

from outlast.core.payload import Payloads
from outlast.sdk.converter import Converter
from outlast.sdk.definition import Parameters
from outlast.sdk.durations import Duration, seconds_of
from outlast.sdk.errors import NotReadable, UnsupportedHere
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


def value_of(converter: Converter, name: str, input: Payloads, type: Any) -> Any:
    """Return what a signal brought, None for nothing. Raises NotReadable, which says how its run goes on."""
    if not input:
        return None
    try:
        return converter.from_payload(input[0], type, path=f"signal {name}")
    except NotReadable as error:
        raise of_signal(error, name, "receives again after NotReadable") from None


def arguments_of(
    converter: Converter, name: str, input: Payloads, parameters: Parameters
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what a signal brought as the arguments of its method. Raises NotReadable as ``value_of`` does."""
    try:
        return converter.payloads_to_arguments(parameters, input)
    except NotReadable as error:
        raise of_signal(error, name, "has a wider type there") from None


def of_signal(error: NotReadable, name: str, way_out: str) -> NotReadable:
    """Return ``error`` as that of the signal ``name``: its run has done work, so to end it is the last way out."""
    if error.code != NotReadable.code:
        return error
    fact = error.fact if error.fact.startswith("signal ") else f"signal {name}: {error.fact}"
    return NotReadable(
        fact,
        path=error.path,
        remedy=f"Start a worker whose code {way_out}, or takes the old form too: the run then goes on. "
        "outlast workflow terminate ends it where it stands, without clean-up.",
    )
