"""A batch that is too large for one body goes as two, and its replies are put together again."""

import msgspec

from outlast.core.inputs import CompleteTasks, CompleteWorkflowTasks, EnqueueTasks, Heartbeat, Request, StartWorkflows
from outlast.core.replies import (
    CompletionsReply,
    HeartbeatReply,
    Refused,
    Reply,
    TasksEnqueued,
    WorkflowsStarted,
    WorkflowTasksReply,
)


def halves_of(request: Request) -> tuple[Request, Request] | None:
    """Return the first and the second half of a batch, None for what cannot be divided."""
    match request:
        case EnqueueTasks() | StartWorkflows() | CompleteTasks() | Heartbeat():
            middle = len(request.items) // 2
            if not middle:
                return None
            replace = msgspec.structs.replace
            return replace(request, items=request.items[:middle]), replace(request, items=request.items[middle:])
        case CompleteWorkflowTasks():
            return _halves_of_turns(request)
        case _:
            return None


def _halves_of_turns(request: CompleteWorkflowTasks) -> tuple[Request, Request] | None:
    replace = msgspec.structs.replace
    middle = (len(request.done) + 1) // 2
    if len(request.done) > 1 or (request.done and request.not_done):
        first = replace(request, done=request.done[:middle], new_run_ids=request.new_run_ids[:middle], not_done=())
        second = replace(request, done=request.done[middle:], new_run_ids=request.new_run_ids[middle:])
        return first, second
    middle = len(request.not_done) // 2
    if not middle:
        return None
    return replace(request, not_done=request.not_done[:middle]), replace(request, not_done=request.not_done[middle:])


def joined(first: Reply, second: Reply) -> Reply:
    """Return the reply to the whole batch. A half that was refused as a whole refuses the whole; the same ids mend that."""
    for half in (first, second):
        if isinstance(half, Refused):
            return half
    match first, second:
        case TasksEnqueued(), TasksEnqueued():
            return TasksEnqueued(items=first.items + second.items)
        case WorkflowsStarted(), WorkflowsStarted():
            return WorkflowsStarted(items=first.items + second.items)
        case CompletionsReply(), CompletionsReply():
            return CompletionsReply(items=first.items + second.items)
        case HeartbeatReply(), HeartbeatReply():
            return HeartbeatReply(items=first.items + second.items)
        case WorkflowTasksReply(), WorkflowTasksReply():
            return WorkflowTasksReply(done=first.done + second.done, not_done=first.not_done + second.not_done)
        case _:
            raise TypeError(f"a {type(first).__name__} and a {type(second).__name__} are not halves of one reply")
