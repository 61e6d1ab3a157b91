"""The ASGI application: finds the handler, lets the caller in or not, and turns whatever happens into an answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from outlast.core.errors import Invalid, NotFound, Refusal
from outlast.core.replies import Refused
from outlast.engine.frontend import Engine
from outlast.gateway.auth import Gate
from outlast.gateway.exchange import Answer, CallerGone, Exchange, Receive, Scope, Send
from outlast.gateway.problems import PROBLEM, problem
from outlast.gateway.routes import tasks, worker, workflows
from outlast.protocol.errors import refused
from outlast.protocol.version import HEADER, PROTOCOL
from outlast.protocol.wire import encode
from outlast.store.base import StoreError

LOG: Final = logging.getLogger("outlast.gateway")

ROOT: Final = "/api/v1/"
DEFAULT_NAMESPACE: Final = "default"

Handler = Callable[[Exchange], Awaitable[Answer]]


@dataclass(slots=True, frozen=True)
class Route:
    """``path`` is below the namespace; a part in braces matches one part of any text."""

    method: str
    path: str
    handler: Handler
    summary: str


ROUTES: Final = (
    Route("POST", "worker/call", worker.call, "Send one request and get its reply."),
    Route("POST", "worker/calls", worker.calls, "Send several requests and get their replies in order."),
    Route("GET", "worker/history", worker.history, "Read a page of a run's history."),
    Route("GET", "worker/attempts", worker.attempts, "Read how the leases of a task ended."),
    Route("GET", "worker/runs", worker.runs, "List runs."),
    Route("GET", "worker/runs/count", worker.count_runs, "Count runs."),
    Route("GET", "worker/tasks", worker.tasks, "List tasks."),
    Route("GET", "worker/tasks/count", worker.count_tasks, "Count tasks."),
    Route("GET", "workflows", workflows.list_, "List workflows, newest first."),
    Route("POST", "workflows", workflows.start, "Start a workflow."),
    Route("GET", "workflows/{id}", workflows.get, "Describe a workflow."),
    Route("GET", "workflows/{id}/history", workflows.history, "Read a page of its history."),
    Route("GET", "workflows/{id}/result", workflows.result, "Wait for its result."),
    Route("POST", "workflows/{id}/signal", workflows.signal, "Send it a signal."),
    Route("POST", "workflows/{id}/cancel", workflows.cancel, "Ask it to stop in good order."),
    Route("POST", "workflows/{id}/terminate", workflows.terminate, "End it at once."),
    Route("GET", "tasks", tasks.list_, "List tasks, newest first."),
    Route("POST", "tasks", tasks.enqueue, "Enqueue a task."),
    Route("POST", "tasks:batch", tasks.enqueue_batch, "Enqueue up to 1,000 tasks."),
    Route("GET", "tasks/{id}", tasks.get, "Describe a task."),
    Route("GET", "tasks/{id}/attempts", tasks.attempts, "Read how its leases ended."),
    Route("GET", "tasks/{id}/result", tasks.result, "Wait for its result."),
    Route("POST", "tasks/{id}/cancel", tasks.cancel, "Ask it to stop."),
)


class Gateway:
    """One engine's HTTP side, as an ASGI application."""

    def __init__(self, engine: Engine, *, token: str = "") -> None:
        self._engine = engine
        self._gate = Gate(token)
        self._plain = {route.path: route for route in ROUTES if "{" not in route.path and route.method == "POST"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP exchange; other kinds of scope are not served."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            answer = await self._answer(scope, headers, receive)
        except CallerGone:
            return
        await _send(send, answer, body=scope["method"] != "HEAD")

    async def _answer(self, scope: Scope, headers: Mapping[str, str], receive: Receive) -> Answer:
        msgpack = "msgpack" in headers.get("content-type", "") or "msgpack" in headers.get("accept", "")
        try:
            if (health := self._health(scope)) is not None:
                return health
            return await self._route(scope, headers, receive)
        except Refusal as refusal:
            return problem(refused(refusal), msgpack=msgpack)
        except StoreError as error:
            return problem(
                Refused(code=error.code, fact=error.fact, remedy=error.remedy, retryable=True), msgpack=msgpack
            )
        except (CallerGone, asyncio.CancelledError):
            raise
        except Exception:
            LOG.exception("a request could not be answered")
            return problem(
                Refused(code="internal", fact="The request met a fault of ours.", remedy="See the engine's log."),
                msgpack=msgpack,
            )

    async def _route(self, scope: Scope, headers: Mapping[str, str], receive: Receive) -> Answer:
        namespace, path = _split(scope)
        principal = self._gate.principal_of(headers)
        if headers.get(HEADER, str(PROTOCOL)) != str(PROTOCOL):
            raise Invalid(
                "invalid_request",
                f"The worker speaks protocol {headers[HEADER][:20]}; this server speaks {PROTOCOL}.",
                remedy="Install the same minor version of outlast on both sides.",
            )
        if not self._engine.knows(namespace):
            raise NotFound(
                "namespace_not_found", f'There is no namespace "{namespace}".', remedy="Look at the address."
            )
        route, params = self._find(scope["method"], path)
        exchange = Exchange(
            engine=self._engine,
            namespace=namespace,
            principal=principal,
            method=scope["method"],
            headers=headers,
            query_string=scope.get("query_string", b""),
            receive=receive,
            params=params,
        )
        return await route.handler(exchange)

    def _find(self, method: str, path: tuple[str, ...]) -> tuple[Route, dict[str, str]]:
        if method == "POST" and (plain := self._plain.get("/".join(path))) is not None:
            return plain, {}
        others: set[str] = set()
        for route in ROUTES:
            params = _match(route.path, path)
            if params is not None:
                if route.method == method or (method == "HEAD" and route.method == "GET"):
                    return route, params
                others.add(route.method)
        if others:
            raise Invalid(
                "method_not_allowed",
                f"{method} is not served here.",
                remedy=f"Use {' or '.join(sorted(others))}.",
                allow=", ".join(sorted(others)),
            )
        raise NotFound(
            "route_not_found", f'There is nothing at "{"/".join(path)[:200]}".', remedy="Look at the address."
        )

    def _health(self, scope: Scope) -> Answer | None:
        """Answer the probes: they tell no secrets, so that they need no token."""
        if scope["path"] == "/livez":
            return Answer(200, b'{"status":"alive"}')
        if scope["path"] != "/readyz":
            return None
        health = self._engine.health()
        if health.ready:
            return Answer(200, b'{"status":"ready"}')
        body = {"status": "not ready", "code": health.code, "reason": health.fact}
        return Answer(503, encode(body, json=True), PROBLEM)


def _split(scope: Scope) -> tuple[str, tuple[str, ...]]:
    """Return the namespace and the parts of the path below it. Ids may hold any text, so parts are decoded one by one."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    raw = raw.partition(b"?")[0]
    if not raw.startswith(ROOT.encode()):
        raise NotFound("route_not_found", "There is nothing at this address.", remedy=f"Addresses begin with {ROOT}.")
    try:
        parts = tuple(unquote_to_bytes(part).decode() for part in raw[len(ROOT) :].split(b"/"))
    except UnicodeDecodeError:
        raise Invalid("invalid_request", "The address is not UTF-8.", remedy="Encode it as UTF-8.") from None
    if parts[0] == "namespaces" and len(parts) > 2:  # noqa: PLR2004 - the word, the name, what is below
        return parts[1], parts[2:]
    return DEFAULT_NAMESPACE, parts


def _match(pattern: str, path: tuple[str, ...]) -> dict[str, str] | None:
    parts = pattern.split("/")
    if len(parts) != len(path):
        return None
    params: dict[str, str] = {}
    for wanted, part in zip(parts, path, strict=True):
        if wanted.startswith("{"):
            if not part:
                return None
            params[wanted[1:-1]] = part
        elif wanted != part:
            return None
    return params


async def _send(send: Send, answer: Answer, *, body: bool) -> None:
    headers = [
        (b"content-type", answer.content_type.encode()),
        (b"content-length", str(len(answer.body)).encode()),
        *((name.encode(), value.encode()) for name, value in answer.headers),
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body if body else b""})
