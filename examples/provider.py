"""A payment provider and carrier of one's own to break things against: slow, moody, and with a log that can be trusted.

Every request is written to the log and synced before anything else is done about it, and so is what becomes of it. The
key of a request is its ``idempotency-key``: a repeat gets the first one's answer and changes nothing.

    python -m examples.provider LOG        serves on a free port of the loopback, prints it, ends when its stdin closes
"""
# not run by itself: orders_demo.py starts it

import json
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

CHARGE_SECONDS = 0.7  # long enough that a charge can be caught in flight
DECLINED_CARD = "4000-0002"
UNKNOWN_ADDRESS = "Nowhere 1"
CLOSED_DEPOT = "Strike Street 1"  # the carrier never gets anything going there


@dataclass
class Operation:
    """What one idempotency key stands for: its answer, once there is one."""

    done: threading.Event = field(default_factory=threading.Event)
    status: int = 0
    answer: dict[str, Any] = field(default_factory=dict[str, Any])


class Books:
    """The log, and the operations in it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._lock = threading.Lock()
        self._operations: dict[str, Operation] = {}
        self._asked: dict[str, int] = {}

    def write(self, what: str, **facts: object) -> None:
        """Add a line; it is on the disk when this returns."""
        with self._lock:
            self._file.write(json.dumps({"at": time.time(), "what": what, **facts}) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def serve(self, kind: str, key: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return status and answer of one request. What a key has done it never does again."""
        with self._lock:
            times = self._asked[key] = self._asked.get(key, 0) + 1
            known = self._operations.get(key)
            operation = known or self._operations.setdefault(key, Operation())
        self.write("asked", kind=kind, operation=key, order=body.get("order"), repeat=known is not None)
        if known is not None:
            known.done.wait()
            self.write("repeated", kind=kind, operation=key, order=body.get("order"), **known.answer)
            return known.status, known.answer
        operation.status, operation.answer = self._carry_out(kind, key, body, times)
        if operation.status != 200:
            with self._lock:
                del self._operations[key]  # nothing was done: the next request with this key is a first one again
        operation.done.set()
        return operation.status, operation.answer

    def _carry_out(self, kind: str, key: str, body: dict[str, Any], times: int) -> tuple[int, dict[str, Any]]:
        facts = {"kind": kind, "operation": key, "order": body.get("order")}
        answer: dict[str, Any] = {"id": f"{kind}-{key[-12:]}"}
        if kind == "charge":
            time.sleep(CHARGE_SECONDS)
            if body["card"] == DECLINED_CARD:
                answer = {"declined": "insufficient funds"}
        elif kind == "ship":
            if body["address"] == UNKNOWN_ADDRESS:
                answer = {"unknown": True}
            elif times == 1 or body["address"] == CLOSED_DEPOT:
                self.write("unavailable", **facts)
                return 503, {}
        self.write("refused" if "id" not in answer else "done", **facts, **answer)
        return 200, answer


class Handler(BaseHTTPRequestHandler):
    """POST /charge, /refund, /ship."""

    books: ClassVar[Books]
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer one request; a caller that has gone away changes nothing about what was done."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status, answer = self.books.serve(self.path.strip("/"), self.headers["idempotency-key"], body)
        data = json.dumps(answer).encode()
        try:
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent: the books are the log."""


def main() -> None:
    Handler.books = Books(Path(sys.argv[1]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="provider", daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.read()  # ends when whoever started this has gone, however it went


if __name__ == "__main__":
    main()
