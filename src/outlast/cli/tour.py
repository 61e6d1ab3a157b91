"""``outlast tour``: a shop with something in every state, on a store that is gone afterwards."""

import asyncio
import os
import signal
import sys
import tempfile
from typing import Final

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.children import Child, Work
from outlast.cli.merged import MergedLog
from outlast.cli.running import run_fast
from outlast.protocol.transport import RunsAsked, TasksAsked
from outlast.server.assemble import Server
from outlast.server.settings import settings_from, sources_of
from outlast.server.sources import Sources

LOOK_EVERY: Final = 0.1  # seconds between looks whether the shop has come to rest
LOOKS_MAX: Final = 100

GUIDE: Final = """
A shop is open at {address}. In another terminal:

  export OUTLAST_SERVER={address}
  outlast workflow list                 what runs, and what each waits for
  outlast why order-7                   it waits for a person
  outlast workflow signal order-7 approve '{{"by": "you"}}'
  outlast why order-8                   a payment that is tried again and again
  outlast why report-may                held: its code makes a mistake
  outlast workflow show refund-3        how a failure looks
  outlast why subscription-ada          asleep for 30 days
  outlast task list --state failed      dead letters
  outlast why {resize}
                                        nobody polls its queue
  outlast task list --query 'due > 1h ahead'
  outlast doctor                        all of it at a glance

Ctrl-C closes the shop; nothing is kept.
"""


def tour(arguments: Arguments) -> int:
    """Run the shop until told to stop."""
    with tempfile.TemporaryDirectory(prefix="outlast-tour-") as folder:
        flags: dict[str, str | None] = {
            "store": f"sqlite:///{folder}/outlast.db",
            "http.listen": f"127.0.0.1:{arguments.port or 0}",
        }
        return run_fast(lambda: _tour(sources_of(flags, {})))


async def _tour(sources: Sources) -> int:
    log = MergedLog()
    log.take_logging("engine", "warning")
    server = Server(settings_from(sources))
    await server.start()
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    child = Child("shop", Work("outlast.cli.shop", server.address, ("--log-level", "error")), log)
    try:
        await child.start()
        filling = asyncio.create_task(_fill(server), name="tour-fill")
        stopping = asyncio.create_task(told.wait(), name="tour-told")
        await asyncio.wait({filling, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if filling.done():
            sys.stdout.write(GUIDE.format(address=server.address, resize=filling.result()))
            sys.stdout.flush()
        filling.cancel()
        await stopping
    finally:
        await child.stop()
        await server.stop()
    return exits.DONE


async def _fill(server: Server) -> str:
    """Start one of everything; return, once the shop has come to rest, the id of the task that nobody polls for."""
    os.environ["OUTLAST_STORE"] = server.address  # where the shop's app is a client of
    from outlast.cli import shop

    await asyncio.to_thread(shop.fill)
    reader, now = server.engine.reader, server.engine.clock.now()
    for _ in range(LOOKS_MAX):
        waits = await reader.count_tasks("default", TasksAsked(state="retry_wait"), now=now)
        failed = await reader.count_runs("default", RunsAsked(status="failed"), now=now)
        if waits.count and failed.count:
            break
        await asyncio.sleep(LOOK_EVERY)
    page = await reader.list_tasks("default", TasksAsked(queue="images"), now=now)
    return page.tasks[0].task_id
