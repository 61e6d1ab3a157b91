"""The destination: applies an effect once per operation id, and has a synced log of its own.

python -m tests.end_to_end.chaos_destination FOLDER
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.end_to_end.chaos_ledger import Ledger


class Effects:
    """What has been applied, by operation id."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._applied: set[str] = set()

    def apply(self, operation: str, name: str) -> None:
        """Apply the effect unless it has been; what was done is on the disk when this returns."""
        with self._lock:
            what = "repeated" if operation in self._applied else "applied"
            self._applied.add(operation)
            self._ledger.write(what, operation=operation, name=name)
        self._ledger.sync()


def main() -> None:
    effects = Effects(Ledger(Path(sys.argv[1]), "destination"))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            effects.apply(body["operation"], body["name"])
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:  # the worker was killed meanwhile
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.read()  # ends when whoever started this has gone


if __name__ == "__main__":
    main()
