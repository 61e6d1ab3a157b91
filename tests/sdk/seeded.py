"""Plays workflows that put tasks and futures into sets and prints their commands; run under many hash seeds."""

import asyncio
import hashlib
import sys

from outlast.sdk import workflow
from tests.sdk.histories import Stage, digest, task


@task
def work(name: str) -> str:
    return name


async def waits_over_a_set() -> list[str]:
    waiting = {asyncio.create_task(work.execute(f"w{n}"), name=f"w{n}") for n in range(6)}
    order: list[str] = []
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for ended in done:
            order.append(ended.get_name())
            await work.execute(f"after {ended.get_name()}")
    return order


async def waits_over_groups() -> list[str]:
    gathered = {asyncio.gather(work.execute(f"a{n}"), work.execute(f"b{n}")) for n in range(5)}
    done, _ = await asyncio.wait(gathered)
    order: list[str] = []
    for group in done:
        order += group.result()
        await work.execute(f"after {group.result()[0]}")
    return order


async def a_group_that_fails() -> str:
    async def cleans_up(name: str) -> None:
        try:
            await workflow.sleep("1d")
        except asyncio.CancelledError:
            await work.execute(f"clean {name}")
            raise

    async def fails() -> None:
        await work.execute("fails")
        raise ValueError

    try:
        async with asyncio.TaskGroup() as group:
            for n in range(8):
                group.create_task(cleans_up(f"c{n}"))
            group.create_task(fails())
    except ExceptionGroup:
        return "failed"
    return "not failed"


async def events_and_deadlines() -> list[str]:
    order: list[str] = []
    opened = asyncio.Event()

    async def one(name: str) -> None:
        await opened.wait()
        try:
            async with asyncio.timeout(3600):
                order.append(await work.execute(name))
        except TimeoutError:
            order.append(f"{name} late")

    tasks = {asyncio.create_task(one(f"e{n}")) for n in range(6)}
    await work.execute("open")
    opened.set()
    await asyncio.wait(tasks)
    return order


def main() -> str:
    out: list[str] = []
    for function in (waits_over_a_set, waits_over_groups, a_group_that_fails, events_and_deadlines):
        stage = Stage().start(function)
        stage.play(lambda _name, args: args[0])
        out.append(f"{digest(stage.turns)} {stage.result}")
        assert stage.replay().closed
        stage.close()
    return hashlib.sha256("\n".join(out).encode()).hexdigest()


if __name__ == "__main__":
    kept = [object() for _ in range(int(sys.argv[1]))]  # moves the addresses of what is made next
    print(main())
