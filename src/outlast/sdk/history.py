"""Puts the events of a workflow task together: what came with it, and what must be read."""

import msgspec

from outlast.core.events import Timed
from outlast.core.replies import WorkflowTask
from outlast.protocol.transport import Transport
from outlast.sdk.errors import HistoryGap

SHOWN_PAIR = 2  # the last two events of a workflow task, scheduled and started, are in no history yet


async def whole_history(transport: Transport, task: WorkflowTask, *, from_event_id: int) -> WorkflowTask:
    """Return ``task`` with all events from ``from_event_id`` to the shown pair.

    Raises:
        Refusal: the history cannot be read now.
        HistoryGap: what was read does not reach to the shown pair.
    """
    pair = task.events[-SHOWN_PAIR:]
    events: list[Timed] = []
    reading = from_event_id
    if task.first_event_id == from_event_id and task.next_event_id_to_read > 0:
        known = task.events[: task.next_event_id_to_read - task.first_event_id]
        if len(task.events) >= len(known) + SHOWN_PAIR:
            events.extend(known)
            reading = from_event_id + len(known)
    ends = task.started_event_id - 1  # the id of the first event of the shown pair
    while reading < ends:
        page = await transport.read_history(task.workflow_id, task.run_id, first_event_id=reading)
        fresh = page.events[reading - page.first_event_id : ends - page.first_event_id]
        if not fresh:
            raise HistoryGap(
                f"The history of workflow {task.workflow_id} has no event {reading}, but its turn begins after {ends - 1}."
            )
        events.extend(fresh)
        reading += len(fresh)
    return msgspec.structs.replace(task, first_event_id=from_event_id, events=(*events, *pair), next_event_id_to_read=0)
