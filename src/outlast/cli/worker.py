"""``outlast worker start``: the tasks and workflows of an app, for a server."""

import os
import signal
import sys
import threading
import time
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.given import sources
from outlast.cli.running import log_to_stderr
from outlast.core.errors import Refusal
from outlast.sdk.app import TOKEN_VARIABLE
from outlast.server.settings import LogFormat, worker_settings_from

LOOK_EVERY: Final = 0.2  # seconds
ANSWER_WITHIN: Final = 1.0  # seconds in which a server that is there answers
ORPHAN_WITHIN: Final = 3.0  # seconds in which a worker without its parent hands back what it has


_NOT_YET: Final = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})


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
    reaching = Reaching(arguments.target, settings.server, has_parent=bool(arguments.parent))
    try:
        worker = app.worker
        while not told.is_set():
            reaching.look()
            told.wait(LOOK_EVERY)
            if worker is not None and worker.error is not None:
                if isinstance(worker.error, Refusal):
                    return exits.complain(worker.error.code, worker.error.fact, worker.error.remedy) or exits.REFUSED
                raise worker.error
    finally:
        app.stop()
    return exits.DONE


class Reaching:
    """Says once that a worker waits for its server, when none answers, and once that it polls, when one does."""

    def __init__(self, target: str, server: str, *, has_parent: bool) -> None:
        self._target = target
        self._server = server
        self._quiet = has_parent  # which starts the server, and is told when the app is loaded
        self._reached = False
        if has_parent:
            _say(loaded_line(target))

    def look(self) -> None:
        """Ask for the server, until it was there."""
        if self._reached:
            return
        missing = missing_server(self._server)
        if not missing:
            self._reached = True
            _say(ready_line(self._target, self._server))
        elif not self._quiet:
            self._quiet = True
            how = "start one with outlast serve, or name it with --server"
            _say(f"worker for {self._target} waits for {self._server}: {missing}; {how}")


def missing_server(server: str) -> str:
    """Return "" when a server answers at ``server`` and takes requests, else what is there instead."""
    parts = urlsplit(server)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=ANSWER_WITHIN)
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/readyz")
        status = connection.getresponse().status
    except TimeoutError:
        return "it does not answer"
    except OSError as error:
        return error.strerror or str(error)
    except HTTPException as error:
        return f"what answers is no server ({type(error).__name__})"
    finally:
        connection.close()
    return "it does not take requests yet" if status in _NOT_YET else ""


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


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


def loaded_line(target: str) -> str:
    """Return what a worker tells its parent once its app is loaded and declares nothing wrong."""
    return f"worker for {target} is loaded"


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
