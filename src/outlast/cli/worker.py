"""``outlast worker start``: the tasks and workflows of an app, for a server."""

import os
import signal
import sys
import threading
import time
from typing import Final

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.given import sources
from outlast.cli.running import log_to_stderr
from outlast.core.errors import Refusal
from outlast.sdk.app import TOKEN_VARIABLE
from outlast.server.settings import LogFormat, worker_settings_from

LOOK_EVERY: Final = 0.2  # seconds
ORPHAN_WITHIN: Final = 3.0  # seconds in which a worker without its parent hands back what it has


def start(arguments: Arguments) -> int:
    """Work until told to stop. A worker that cannot go on (wrong token, no such namespace) ends with REFUSED."""
    from outlast.sdk.loading import load_app

    found = sources(arguments)
    settings = worker_settings_from(found)
    log_to_stderr(found.choice("log.level"), LogFormat(found.choice("log.format")))
    if settings.token:
        os.environ[TOKEN_VARIABLE] = settings.token  # where the SDK looks for it
    app = load_app(arguments.target)
    if found.find("namespace").chosen:
        app.namespace = found.text("namespace")
    told = until_told()
    if arguments.parent:
        end_with_parent(arguments.parent, told)
    app.start_worker(settings.server, queues=settings.queues, threads=settings.threads)
    sys.stdout.write(ready_line(arguments.target, settings.server) + "\n")
    sys.stdout.flush()
    try:
        worker = app.worker
        while not told.wait(LOOK_EVERY):
            if worker is not None and worker.error is not None:
                if isinstance(worker.error, Refusal):
                    return exits.complain(worker.error.code, worker.error.fact, worker.error.remedy) or exits.REFUSED
                raise worker.error
    finally:
        app.stop()
    return exits.DONE


def until_told() -> threading.Event:
    """Return what is set at SIGINT or SIGTERM. A second signal ends the process at once."""
    told = threading.Event()

    def tell(number: int, _frame: object) -> None:
        if told.is_set():
            os._exit(128 + number)
        told.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, tell)
    return told


def ready_line(target: str, server: str) -> str:
    """Return what a worker says once it polls."""
    return f"worker for {target} polls {server}"


def end_with_parent(parent: int, told: threading.Event) -> None:
    """Set ``told`` when the process that started this one has gone, and end soon after: nobody reads what it says."""

    def watch() -> None:
        while os.getppid() == parent and not told.is_set():
            time.sleep(LOOK_EVERY)
        if os.getppid() == parent:
            return
        told.set()
        time.sleep(ORPHAN_WITHIN)
        os._exit(exits.INTERRUPTED)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
