"""``outlast workflow query``: ask the code of a run, by a worker, and print what it says."""

import asyncio

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.printing import json_line, mode_of, put
from outlast.cli.reach import reached
from outlast.cli.results import refuse_closed
from outlast.cli.starting import IDENTITY
from outlast.cli.values import payload_of
from outlast.core.errors import Conflict
from outlast.core.inputs import QueryWorkflow
from outlast.core.replies import QueryAnswered
from outlast.gateway.given import AnsweredOut
from outlast.gateway.values import values_of


def query(arguments: Arguments) -> int:
    """Print what the query method says."""
    return asyncio.run(_query(arguments))


async def _query(arguments: Arguments) -> int:
    payloads = tuple(payload_of(text, what=f"Argument {n}") for n, text in enumerate(arguments.args, 1))
    request = QueryWorkflow(
        workflow_id=arguments.id, run_id=arguments.run, name=arguments.name, input=payloads, identity=IDENTITY
    )
    async with reached(arguments) as look:
        reply = await look.send(request)
    assert isinstance(reply, QueryAnswered)
    if reply.failure is not None:
        raise Conflict(
            "query_failed",
            f'The query "{arguments.name}" failed: {reply.failure.type}: {reply.failure.message}',
            remedy="Look at the name and the arguments, then at the query methods of the workflow's class.",
        )
    refuse_closed(arguments, reply.result)
    out = AnsweredOut(id=arguments.id, result=values_of(reply.result))
    if mode_of(arguments) == "json":
        put(json_line(out))
    else:
        put("".join(json_line(value) for value in out.result) or "null\n")
    return exits.DONE
