"""An id of a workflow where that of a task is wanted, or the other way round: to say so helps more than that there is none."""

from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from shlex import quote

from outlast.cli.reach import Look
from outlast.cli.text import clean
from outlast.core.errors import NotFound, Refusal


@asynccontextmanager
async def told_apart(look: Look, id: str) -> AsyncGenerator[None]:
    """Say what ``id`` is if it is not found as what it was taken for. Raises NotFound, with the same code."""
    try:
        yield
    except NotFound as missing:
        name = clean(id)
        if missing.code == "task_not_found" and await _is_there(look.workflow(id)):
            fact, way = f"{name} is a workflow, not a task.", f"outlast workflow show {quote(name)}"
        elif missing.code == "workflow_not_found" and await _is_there(look.task(id)):
            fact, way = f"{name} is a task, not a workflow.", f"outlast task show {quote(name)}"
        else:
            raise
        raise NotFound(missing.code, fact, remedy=f"Look at it: {way}") from missing


async def _is_there(asked: Awaitable[object]) -> bool:
    try:
        await asked
    except Refusal:
        return False
    return True
