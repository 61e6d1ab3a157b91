"""How a run's main function ended, as the command that closes the run, or as a failure of the turn."""

import asyncio
from typing import Any, Final, cast

from outlast.core import commands
from outlast.sdk.errors import (
    BadArguments,
    HistoryGap,
    HoldsRun,
    NeverAwaited,
    Nondeterminism,
    NotReadable,
    NotSerializable,
    PayloadTooLarge,
    WorkflowTaskFailure,
)
from outlast.sdk.failures import failure_of
from outlast.sdk.loop import Abandoned, Task
from outlast.sdk.misuse import Misuse
from outlast.sdk.operations import ContinueRequested
from outlast.sdk.verbs import Verbs

# Mistakes in the code or its deployment: the run is held until the code is right, instead of failing for them.
HOLDING: Final = (HoldsRun, Misuse, NotSerializable, PayloadTooLarge, NotReadable, BadArguments)
DEADLOCK: Final = (
    "The turn did not come to rest in time. Workflow code must not block: "
    "do slow work in a task, and wait with await workflow.sleep(…)."
)


def closing_command(run: Verbs, main: Task) -> commands.Command:
    """Return the command that closes the run; raises WorkflowTaskFailure for what must not close it."""
    if main.cancelled():
        if run.cancel_requested:
            return commands.CancelWorkflow()
        error: BaseException | None = asyncio.CancelledError("cancelled by the workflow's own code")
    else:
        error = main.exception()
    if (error is None or isinstance(error, ContinueRequested)) and not run.replaying:
        try:
            run.unawaited.refuse()
        except NeverAwaited as bad:
            raise turn_failure(bad) from None
    if error is None:
        try:
            result = main.result()
            payload = run.converter.to_payload(result, path="result", declared=run.definition.parameters.result)
        except Exception as bad:  # whatever a converter raises: the run is held, its result is not lost
            raise turn_failure(bad) from bad
        return commands.CompleteWorkflow(result=(payload,))
    if isinstance(error, ContinueRequested):
        return _continued(run, error)
    holding = holding_in(error)
    if holding is not None:
        raise turn_failure(holding) from error
    return commands.FailWorkflow(failure=run.converter.sealed(failure_of(error)))


def holding_in(error: BaseException) -> BaseException | None:
    """Return the first mistake in ``error`` that holds the run, looking into groups; None if there is none."""
    if isinstance(error, HOLDING):
        return error
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            found = holding_in(inner)
            if found is not None:
                return found
    return None


def turn_failure(error: BaseException) -> HoldsRun:
    """Return ``error`` as a failure of the turn; Nondeterminism and HistoryGap stay what they are."""
    if isinstance(error, Nondeterminism | HistoryGap | WorkflowTaskFailure):
        return error
    if isinstance(error, Abandoned):
        failure = failure_of(TimeoutError(DEADLOCK))
        failure = type(failure)(kind=failure.kind, type="DeadlockDetected", message=DEADLOCK)
        return WorkflowTaskFailure(DEADLOCK, failure=failure)
    return WorkflowTaskFailure(f"{type(error).__name__}: {error}", failure=failure_of(error))


def _continued(run: Verbs, request: ContinueRequested) -> commands.Command:
    unreceived, signals = run.unreceived()
    payloads: Any = run.converter.arguments_to_payloads(run.definition.parameters, request.positional, request.named)
    return commands.ContinueAsNew(input=payloads, unreceived=unreceived, signals=signals)
