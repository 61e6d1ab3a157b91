"""What is answered to everybody, without a token: probes, the OpenAPI document, error codes. They tell no secrets."""

from functools import cache
from typing import Any, Final

import msgspec

from outlast.core.errors import CODES
from outlast.core.replies import Refused
from outlast.engine.frontend import Engine
from outlast.gateway.exchange import Answer, Scope
from outlast.gateway.openapi import text
from outlast.gateway.problems import PAGES, PROBLEM, RETRY_AFTER, page_of, problem, problem_of
from outlast.gateway.table import ROUTES
from outlast.protocol.wire import encode

TEXT: Final = "text/plain; charset=utf-8"


DOCUMENT: Final = "/api/openapi.json"


@cache
def _document() -> bytes:
    """Return the description of all addresses; made when somebody first asks for it."""
    return text(ROUTES).encode()


class OpenDoor:
    """The addresses outside /api/."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._was_ready = False

    def answer(self, scope: Scope) -> Answer | None:
        """Return the answer, None for an address that is not open to all."""
        path: str = scope["path"]
        if path == DOCUMENT and scope["method"] in {"GET", "HEAD"}:
            return Answer(200, _document())
        if path.startswith("/api/") or scope["method"] not in {"GET", "HEAD"}:
            return None
        is_verbose = scope.get("query_string", b"").partition(b"=")[0] == b"verbose"
        if path == "/livez":
            return self._alive(is_verbose=is_verbose)
        if path == "/readyz":
            return self._ready(is_verbose=is_verbose)
        if path == "/startupz":
            return self._started(is_verbose=is_verbose)
        if path.startswith(PAGES) and path.removeprefix(PAGES) in CODES:
            return Answer(200, page_of(path.removeprefix(PAGES)).encode(), TEXT)
        return None

    def _alive(self, *, is_verbose: bool) -> Answer:
        body: dict[str, Any] = {"status": "alive"}
        if is_verbose:
            body["checks"] = [{"name": "loop", "ok": True, "says": "the loop turns: it answered"}]
        return _status(200, body)

    def _started(self, *, is_verbose: bool) -> Answer:
        """Say whether requests have been taken since the program began: it stays so while a shard moves."""
        if not self._was_ready:
            return self._ready(is_verbose=is_verbose)
        checks = [{"name": "start", "ok": True, "says": "requests have been taken"}]
        return _status(200, {"status": "started", **({"checks": checks} if is_verbose else {})})

    def _ready(self, *, is_verbose: bool) -> Answer:
        health = self._engine.health()
        self._was_ready |= health.ready
        checks = [{"name": name, "ok": not fact, "says": fact or "it gets on"} for name, fact in health.checks]
        if health.ready:
            return _status(200, {"status": "ready", **({"checks": checks} if is_verbose else {})})
        reply = Refused(code=health.code, fact=health.fact, retryable=True)
        if not is_verbose:
            return problem(reply)
        body = {**msgspec.to_builtins(problem_of(reply, "")), "checks": checks}
        return Answer(503, encode(body, json=True), PROBLEM, (("retry-after", RETRY_AFTER),))


def _status(status: int, body: dict[str, Any]) -> Answer:
    return Answer(status, encode(body, json=True))
