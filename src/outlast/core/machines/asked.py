"""What a command of workflow code must look like: a worker may be of any make, and its word is held to what a request is."""

from outlast.core import commands as c
from outlast.core.validation import check_headers, check_name, check_priority, check_retry, check_span


def check_command(command: c.Command) -> None:
    """Refuse names, spans and numbers that no request may have. What depends on the run is for ``turn.decide``.

    Raises:
        Invalid, TooLarge: with the field.
    """
    match command:
        case c.ScheduleActivity() | c.EnqueueDetached():
            check_name("type", command.activity_type if isinstance(command, c.ScheduleActivity) else command.task_type)
            check_name("queue", command.task_queue)
            check_priority(command.priority)
            if command.retry is not None:
                check_retry(command.retry)
            if command.headers:
                check_headers(command.headers)
            _check_spans(command)
        case c.CompleteWorkflow() | c.StartTimer():
            pass  # as the rest, below; these come often
        case c.RecordMarker():
            check_name("marker_name", command.marker_name)
        case c.UpsertSearchAttributes():
            for name in command.search_attributes:
                check_name("search_attributes", name)
        case c.ContinueAsNew():
            _check_continued(command)
        case _:
            pass  # ids and spans of the rest are the run's own, and looked at with it


def _check_spans(command: c.ScheduleActivity | c.EnqueueDetached) -> None:
    check_span("start_to_close", command.start_to_close)
    if command.schedule_to_start or command.schedule_to_close or command.heartbeat:
        check_span("schedule_to_start", command.schedule_to_start)
        check_span("schedule_to_close", command.schedule_to_close)
        check_span("heartbeat", command.heartbeat)
    if isinstance(command, c.EnqueueDetached):
        check_span("delay", command.delay)


def _check_continued(command: c.ContinueAsNew) -> None:
    check_span("run_timeout", command.run_timeout)
    check_headers(command.headers)
    if command.workflow_type:
        check_name("workflow_type", command.workflow_type)
    if command.task_queue:
        check_name("task_queue", command.task_queue)
    for name in command.search_attributes or ():
        check_name("search_attributes", name)
