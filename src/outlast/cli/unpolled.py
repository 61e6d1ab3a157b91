"""What is said of work that nobody polls for: that no worker is there, or that those who are have no such type."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from shlex import quote
from typing import Final, NamedTuple

from outlast.cli.arguments import Arguments
from outlast.cli.printing import talk
from outlast.cli.reach import Look
from outlast.cli.text import clean
from outlast.core.admin import DescribeWorkers, WorkersInfo
from outlast.core.errors import Refusal

KNOWN_SHOWN: Final = 8
TYPES_SHOWN: Final = 3  # types of one file that nobody polls for


class Wanted(NamedTuple):
    """A type of work on a queue; ``what`` is "workflow" or "task"."""

    what: str
    queue: str
    type: str


async def known_types(look: Look, wanted: Wanted) -> tuple[str, ...]:
    """Return the types other than ``wanted`` that the workers of its queue do poll for. Raises Refusal."""
    found = await look.send(DescribeWorkers(queue=wanted.queue))
    assert isinstance(found, WorkersInfo)
    there = [worker for worker in found.items if wanted.queue in worker.queues and worker.polls]
    kinds = [worker.workflow_types if wanted.what == "workflow" else worker.task_types for worker in there]
    return tuple(sorted({name for names in kinds for name in names} - {wanted.type}))


def said_known(wanted: Wanted, known: Sequence[str]) -> str:
    """Say that workers are there, but not for this type: a wrong name is met more often than a missing worker."""
    near = get_close_matches(wanted.type, known, 1)
    shown = ", ".join(known[:KNOWN_SHOWN]) + (", …" if len(known) > KNOWN_SHOWN else "")
    asks = f' Did you mean "{near[0]}"?' if near else ""
    return f'the workers of queue "{wanted.queue}" have no {wanted.what} "{wanted.type}", but {shown}.{asks}'


async def tell_unpolled(arguments: Arguments, look: Look, wanted: Collection[Wanted]) -> None:
    """Say of work that was taken and that nobody polls for that it waits, and for what. It is no error: a worker may come."""
    for one in sorted(wanted)[:TYPES_SHOWN]:
        try:
            known = await known_types(look, one)
        except Refusal:  # as one who may start work and see nothing
            known = ()
        if known:
            said = said_known(one, known)
            talk(arguments, clean(f"{said[0].upper()}{said[1:]} It waits for a worker that has it."))
        else:
            talk(
                arguments,
                clean(f'No worker polls queue "{one.queue}" for {one.what} "{one.type}": it waits until one does.')
                + f"  outlast worker start APP --queue {quote(clean(one.queue))}",
            )
    if len(wanted) > TYPES_SHOWN:
        talk(arguments, f"Nobody polls for {len(wanted) - TYPES_SHOWN} more types of the file either.")
