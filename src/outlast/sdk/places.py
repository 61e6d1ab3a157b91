"""Where workflow code waits: the user's line for each open operation, read off the tasks' coroutines at a turn's end."""

import asyncio
from functools import lru_cache
from typing import Any, Final

from outlast.sdk.failures import is_user_file
from outlast.sdk.operations import ActivityFuture, waiting_for
from outlast.sdk.verbs import Verbs

PLACES_MAX: Final = 100  # enough to read; a turn of a wide fan-out must not cost in proportion to its width


def places_of(run: Verbs) -> dict[str, str]:
    """Return "activity:1", "timer:2", "signal:name", "condition:1" → "file:line" of the user's frame that waits."""
    if len(run.loop.tasks) == 1:  # most code waits for one thing at a time
        waiting = waiting_for(run.loop.tasks[0])
        if type(waiting) is ActivityFuture and run.activities.get(waiting.scheduled_event_id) is waiting:
            return {f"activity:{waiting.activity_id}": _line_of(run.loop.tasks[0].get_coro())}
    names = _names(run)
    lines: dict[int, str] = {}  # of a task, by its id, for what it waits for through others
    places: dict[str, str] = {}
    outermost = ""
    for task in run.loop.tasks:
        if task.done():
            continue
        # A task whose coroutine is none of the user's own was started by what the main task waits for.
        place = _line_of(task.get_coro()) or lines.get(id(task), outermost)
        outermost = outermost or place
        if len(places) >= PLACES_MAX:
            break
        for owner in _reached(waiting_for(task)):
            identity = id(owner)
            if isinstance(owner, asyncio.Task):
                lines.setdefault(identity, place)
            name = names.get(identity)
            if name is not None:
                places.setdefault(name, place)
        name = names.get(id(task))
        if name is not None:
            places.setdefault(name, place)
    return places


def _names(run: Verbs) -> dict[int, str]:
    names: dict[int, str] = {id(future): f"activity:{future.activity_id}" for future in run.activities.values()}
    for timer_id, handle in run.timers.items():
        waiting: Any = handle.waiting
        # asyncio.timeout() arms a timer that cancels a task: its line is where that task is.
        waiting = getattr(waiting, "_task", None) or waiting
        names[id(waiting)] = f"timer:{timer_id}"
    for name, mailbox in run.mailboxes.items():
        for waiter in mailbox.waiters:
            names[id(waiter)] = f"signal:{name}"
    for number, condition in enumerate(run.conditions, 1):
        names[id(condition.future)] = f"condition:{number}"
    return names


def _reached(future: Any) -> list[Any]:
    """Return ``future`` and, if it gathers others, those."""
    if future is None:
        return []
    children: Any = getattr(future, "_children", None)
    return [future, *children] if children and not isinstance(future, ActivityFuture) else [future]


@lru_cache(maxsize=4096)
def _is_users(file: str) -> bool:
    return is_user_file(file)


def _line_of(coroutine: Any) -> str:
    place = ""
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is None:
            break
        file = frame.f_code.co_filename
        if _is_users(file):
            place = f"{file}:{frame.f_lineno}"
        coroutine = getattr(coroutine, "cr_await", None)
    return place
