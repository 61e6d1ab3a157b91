"""What a run waits for at its activities, in words: the same from an owner's memory and from a store's rows."""

from outlast.core.replies import PendingActivity, TaskState


def at_activities(first: PendingActivity, count: int) -> str:
    """Return what is said of ``first``, one of ``count`` open activities."""
    attempt = f"attempt {first.attempt}" + (f" of {first.attempts_max}" if first.attempts_max else "")
    match first.state:
        case TaskState.ENQUEUED:
            what = f'a worker of queue "{first.queue}" to take activity "{first.type}"'
        case TaskState.LEASED:
            what = f'activity "{first.type}", which runs: {attempt}'
        case TaskState.RETRY_WAIT:
            what = f'activity "{first.type}" to be tried again: {attempt} failed'
        case _:
            what = f'activity "{first.type}", {first.state.value.replace("_", " ")}'
    return what + (f", and {count - 1} more" if count > 1 else "")
