"""A store in a folder that nobody runs, for the commands to look into and to change."""

from pathlib import Path

from outlast.core.failure import Failure, FailureKind
from outlast.core.inputs import CompleteTasks, Completion, StartWorkflow, TaskFailed, TaskSucceeded
from outlast.core.payload import Payload
from outlast.core.replies import Work
from outlast.server.embedded import start
from tests.engine.doubles import a_poll, a_signal, a_start, a_task, run

ORDERS = ("order-1", "order-2", "order-3")


def keep(folder: Path) -> None:
    """Make outlast.db in ``folder``: three open workflows, a task that waits, one that is done and one that failed."""
    engine = start(f"sqlite:///{folder}/outlast.db", serve=False)

    async def work() -> None:
        transport = engine.transport
        await transport.call(a_task(task_id="t-done"))
        await transport.call(a_task(task_id="t-failed"))
        polled = await transport.call(a_poll())
        assert isinstance(polled, Work)
        failure = Failure(kind=FailureKind.APPLICATION, type="CardDeclined", message="no money", final=True)
        outcomes = {
            "t-done": TaskSucceeded(result=(Payload("json/plain", b'{"paid":7}'),)),
            "t-failed": TaskFailed(failure=failure),
        }
        done = tuple(Completion(token=lease.token, outcome=outcomes[lease.token.task_id]) for lease in polled.tasks)
        await transport.call(CompleteTasks(worker="w1", items=done))
        await transport.call(a_task(task_id="t-waits", queue="images"))
        for order in ORDERS:
            started: StartWorkflow = a_start(order, queue="orders")
            await transport.call(started)
        await transport.call(a_signal("order-1"))

    run(work)
    engine.stop()
