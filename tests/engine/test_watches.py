"""Who watches a run: told of every commit that may have moved it."""

import asyncio

from outlast.core.events import WorkflowExecutionTerminated
from outlast.core.inputs import TerminateWorkflow
from outlast.core.replies import WorkflowStarted
from outlast.core.writes import CommitOutcome
from tests.engine.doubles import FaultyStore, a_start, run, running


def test_who_watches_a_run_is_told_to_look_after_a_commit_without_an_answer() -> None:
    async def work() -> None:
        store = FaultyStore()
        store.unknown_happens = True
        async with running(store) as (engine, transport):
            started = await transport.call(a_start("w-1"))
            assert isinstance(started, WorkflowStarted)
            with engine.watches.watch(started.run_id) as moved:
                store.outcomes.append(CommitOutcome.UNKNOWN)
                ending = TerminateWorkflow(workflow_id="w-1", request_id="r-1")
                engine.submit(ending, namespace="default", principal="")
                async with asyncio.timeout(5):
                    await moved.wait()

                page = await transport.read_history("w-1", started.run_id)

                assert len(store.claims) == 2
                assert isinstance(page.events[-1][1], WorkflowExecutionTerminated)

    run(work)
