"""``outlast worker start``: the tasks and workflows of an app, for a server."""

import os
import signal
import sys
import threading
import time

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.running import log_to_stderr
from outlast.core.errors import Invalid, Refusal
from outlast.server.settings import DEFAULT_LISTEN

LOOK_EVERY = 0.2  # seconds


def start(arguments: Arguments) -> int:
    """Work until told to stop. A worker that cannot go on (wrong token, no such namespace) ends with REFUSED."""
    from outlast.sdk.loading import load_app

    server = arguments.server or os.environ.get("OUTLAST_SERVER", "") or f"http://{DEFAULT_LISTEN}"
    if not server.startswith(("http://", "https://")):
        raise Invalid("invalid_request", f'--server is "{server}".', remedy="Write http://HOST:PORT.")
    log_to_stderr()
    app = load_app(arguments.target)
    if arguments.namespace:
        app.namespace = arguments.namespace
    told = until_told()
    app.start_worker(server, queues=arguments.queue or ())
    sys.stdout.write(f"worker for {arguments.target} polls {server}\n")
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


def parent_watch(told: threading.Event) -> None:
    """Set ``told`` when the process that started this one has gone: a worker of ``dev`` ends with it."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent and not told.is_set():
            time.sleep(LOOK_EVERY)
        told.set()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
