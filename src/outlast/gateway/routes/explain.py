"""What a workflow or a task waits for: one address for both, as nobody who asks knows which of the two an id is."""

from outlast.core.errors import NotFound
from outlast.core.inputs import DescribeTask, DescribeWorkflow
from outlast.core.replies import TaskInfo, WorkflowInfo
from outlast.gateway.exchange import Answer, Exchange, answer
from outlast.gateway.giving import why_task, why_workflow


async def why(exchange: Exchange) -> Answer:
    """Say in one sentence what it waits for."""
    id_ = exchange.params["id"]
    try:
        return answer(why_workflow(await exchange.expect(DescribeWorkflow(workflow_id=id_), WorkflowInfo)))
    except NotFound:
        pass
    try:
        return answer(why_task(await exchange.expect(DescribeTask(task_id=id_), TaskInfo)))
    except NotFound:
        raise NotFound(
            "workflow_not_found",
            f'There is no workflow and no task "{id_}" in namespace {exchange.namespace}.',
            remedy="List what there is with GET …/workflows or GET …/tasks.",
        ) from None
