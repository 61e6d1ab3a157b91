"""What may pass the engine's door at a glance: most requests are waits for a result, small and all alike."""

from outlast.core.inputs import AwaitTask, AwaitWorkflow, Request
from outlast.core.validation import DOTS, SHORT


def is_plain_wait(request: Request) -> bool:
    """Say that ``request`` is a wait as it must be, and small. False says nothing.

    What is asked of its fields here is what ``measure`` and ``validate`` ask, and more.
    """
    if type(request) is AwaitTask:
        task_id = request.task_id
        return type(task_id) is str and 0 < len(task_id) <= SHORT and task_id.isascii()
    if type(request) is not AwaitWorkflow:
        return False
    workflow_id, run_id = request.workflow_id, request.run_id
    return (
        type(workflow_id) is type(run_id) is str
        and type(request.follow) is bool
        and 0 < len(workflow_id) <= SHORT
        and len(run_id) <= SHORT
        and workflow_id.isascii()
        and run_id.isascii()
        and workflow_id not in DOTS
    )
