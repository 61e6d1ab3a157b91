"""The ASGI application: finds the route, lets the caller in or not, and turns whatever happens into an answer."""

import asyncio
import logging
import re
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from outlast.core.errors import Invalid, NotFound, Refusal
from outlast.core.replies import Refused
from outlast.engine.frontend import Engine
from outlast.gateway.admission import UNLIMITED, Admission, Rate
from outlast.gateway.auth import Gate, Token, one_token
from outlast.gateway.exchange import Answer, CallerGone, Exchange, Receive, Scope, Send, StreamAnswer
from outlast.gateway.metrics import CONTENT_TYPE, Meter, exposition
from outlast.gateway.open import OpenDoor
from outlast.gateway.problems import problem
from outlast.gateway.reading import read_body, read_query
from outlast.gateway.route import Right, Route
from outlast.gateway.router import Router
from outlast.gateway.streams import Streams
from outlast.gateway.table import ROUTES
from outlast.gateway.term import Term
from outlast.protocol.errors import refused
from outlast.protocol.opening import AS_STORED, Opener
from outlast.protocol.version import HEADER, PROTOCOL
from outlast.store.base import StoreError

LOG: Final = logging.getLogger("outlast.gateway")

ID_HEADER: Final = "x-request-id"
SEND_WITHIN: Final = 30.0  # seconds that a reader of a stream may take nothing
ABORT: Final = "outlast.abort"  # where the scope has what cuts the connection
OPERATION: Final = "outlast.operation"  # where the scope keeps what was called
GOOD_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)

ONCE: Final = (
    b"host", b"origin", b"authorization", b"content-type", b"idempotency-key", b"if-match", b"last-event-id"
)  # fmt: skip
_ALWAYS: Final = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
_JSON_NAMES: Final = ("application/json", "application/problem+json", "application/*", "*/*", "*")


@dataclass(slots=True, frozen=True)
class Policy:
    """Who may call, how often, and which values are opened for them.

    ``tokens`` empty: everybody who reaches the listener, which is then on loopback.
    """

    tokens: tuple[Token, ...] = ()
    rate: Rate = UNLIMITED
    opener: Opener = AS_STORED


class Gateway:
    """One engine's HTTP side, as an ASGI application."""

    def __init__(
        self, engine: Engine, *, token: str = "", policy: Policy | None = None, meter: Meter | None = None
    ) -> None:
        policy = policy or Policy(tokens=one_token(token))
        self._engine = engine
        self._meter = meter or Meter()
        self._gate = Gate(policy.tokens)
        self._admission = Admission(policy.rate)
        self._opener, self._hiding = policy.opener, policy.opener.hiding()
        self._term = Term()
        self._router = Router(ROUTES)
        self._open = OpenDoor(engine)
        self._streams = Streams()

    def replace(self, policy: Policy) -> None:
        """Go by ``policy`` from here on: streams and what is held end, so that each is asked for anew and judged by it."""
        self._gate = Gate(policy.tokens)
        self._admission = Admission(policy.rate)
        self._opener, self._hiding = policy.opener, policy.opener.hiding()
        ended, self._term = self._term, Term()
        ended.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP exchange; other kinds of scope are not served."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        shown = headers.get(ID_HEADER, "")
        request_id = shown if GOOD_ID.fullmatch(shown) else self._engine.entropy.new_id()
        time = self._engine.loop.time
        began = time()
        try:
            answer = await self._answer(scope, headers, receive, request_id)
            self._meter.answered(scope.get(OPERATION, "none"), getattr(answer, "status", 200), time() - began)
            if isinstance(answer, StreamAnswer):
                await self._stream(scope, receive, send, answer, request_id)
                return
        except CallerGone:
            return
        if LOG.isEnabledFor(logging.DEBUG):
            LOG.debug("answered request=%s status=%d %s", request_id, answer.status, _shown(scope))
        await _send(send, answer, request_id, body=scope["method"] != "HEAD")

    async def _answer(
        self, scope: Scope, headers: Mapping[str, str], receive: Receive, request_id: str
    ) -> Answer | StreamAnswer:
        msgpack = "msgpack" in headers.get("content-type", "") or "msgpack" in headers.get("accept", "")
        try:
            if (opened := self._open.answer(scope)) is not None:
                return opened
            if scope["path"] == "/metrics":
                return self._metrics(headers)
            return await self._route(scope, headers, receive, request_id)
        except Refusal as refusal:
            reply = refused(refusal)
        except StoreError as error:
            LOG.warning("request_refused request=%s code=%s fact=%s %s", request_id, error.code, error, _shown(scope))
            reply = Refused(code=error.code, fact=error.fact, remedy=error.remedy, retryable=True)
        except (CallerGone, asyncio.CancelledError):
            raise
        except Exception:
            LOG.exception("request_failed request=%s %s", request_id, _shown(scope))
            reply = Refused(
                code="internal", fact="The request met a fault of ours.", remedy="Look for its id in the engine's log."
            )
        return problem(reply, request_id=request_id, msgpack=msgpack)

    async def _stream(self, scope: Scope, receive: Receive, send: Send, answer: StreamAnswer, request_id: str) -> None:
        """Send the pieces. A reader that takes none for SEND_WITHIN is cut off: it would hold memory for nothing."""
        headers = [
            *_ALWAYS,
            (b"x-request-id", request_id.encode()),
            (b"x-accel-buffering", b"no"),  # proxies would else hold events back
            (b"content-type", answer.content_type.encode()),
            *((name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers),
        ]
        try:
            async with aclosing(answer.pieces) as pieces:
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                if scope["method"] != "HEAD":
                    async for piece in pieces:
                        async with asyncio.timeout(SEND_WITHIN):
                            await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            LOG.info("stream_cut request=%s: nothing was read for %g s", request_id, SEND_WITHIN)
            if (abort := scope.get(ABORT)) is not None:
                abort()
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            answer.on_end()

    def _metrics(self, headers: Mapping[str, str]) -> Answer:
        self._gate.caller_of(headers).require(Right.READ, "")
        gauges = (
            ("outlast_ready", "1 while requests are taken.", float(self._engine.health().ready)),
            ("outlast_streams_open", "Event streams that are read.", float(self._streams.open)),
        )
        rounds = [(each.name, each.age()) for each in self._engine.rounds]
        return Answer(200, exposition(self._meter, gauges, rounds), CONTENT_TYPE)

    async def _route(
        self, scope: Scope, headers: Mapping[str, str], receive: Receive, request_id: str
    ) -> Answer | StreamAnswer:
        method: str = scope["method"]
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        _require_once(scope)
        caller = self._gate.caller_of(headers)
        if method == "OPTIONS":
            return Answer(204, headers=(("allow", self._router.allow(raw_path)),))
        found = self._router.find(method, raw_path)
        route, namespace = found.route, found.namespace
        scope[OPERATION] = route.operation
        caller.require(route.needs, found.params["name"] if route.of_namespace else namespace)
        if namespace and not self._engine.knows(namespace):
            raise NotFound(
                "namespace_not_found",
                f'There is no namespace "{namespace}".',
                remedy="List what there is: outlast namespace list, or GET /api/v1/namespaces.",
            )
        exchange = Exchange(
            engine=self._engine,
            namespace=namespace,
            caller=caller,
            method=method,
            headers=headers,
            query_string=scope.get("query_string", b""),
            receive=receive,
            params=found.params,
            path=quote(raw_path.partition(b"?")[0], safe="/%:@!$&'()*+,;=~-._"),
            request_id=request_id,
            streams=self._streams,
            term=self._term,
            opener=AS_STORED if route.wire else self._opener if caller.sees else self._hiding,
        )
        if route.wire:
            _require_protocol(headers)
            return await route.handler(exchange)
        limit_headers = self._admission.take(namespace, caller.name, now=self._engine.clock.now())
        _require_acceptable(headers, route)
        exchange.query = read_query(exchange.query_string, route.query)
        await _read_body(exchange, route)
        answer = await route.handler(exchange)
        answer.headers = (*answer.headers, *limit_headers)
        return answer


async def _read_body(exchange: Exchange, route: Route) -> None:
    if route.body is None:
        return
    raw = await exchange.body()
    if not raw and not route.body_needed:
        exchange.taken = route.body()
        return
    exchange.require_json()
    exchange.raw = raw
    exchange.taken = read_body(raw, route.body)


def _require_once(scope: Scope) -> None:
    """Raise Invalid for a header that stands there twice and decides something: a proxy may go by the other one."""
    names = [name.lower() for name, _ in scope["headers"]]
    for name in ONCE:
        if names.count(name) > 1:
            raise Invalid("invalid_request", f"The header {name.decode()} stands there twice.", remedy="Send it once.")


def _require_protocol(headers: Mapping[str, str]) -> None:
    if headers.get(HEADER, str(PROTOCOL)) != str(PROTOCOL):
        raise Invalid(
            "invalid_request",
            f"The worker speaks protocol {headers[HEADER][:20]}; this server speaks {PROTOCOL}.",
            remedy="Install the same minor version of outlast on both sides.",
        )


def _require_acceptable(headers: Mapping[str, str], route: Route) -> None:
    accept = headers.get("accept", "")
    if not accept:
        return
    given = {name for gives in route.gives.values() for name in (gives.content_type, gives.also) if name}
    taken = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    families = {f"{name.partition('/')[0]}/*" for name in given}
    if any(name in _JSON_NAMES or name in given or name in families for name in taken):
        return
    raise Invalid(
        "not_acceptable",
        f'The caller takes "{accept[:100]}"; this address gives {", ".join(sorted(given))}.',
        remedy="Take application/json.",
    )


async def _send(send: Send, answer: Answer, request_id: str, *, body: bool) -> None:
    headers = [
        *_ALWAYS,
        (b"x-request-id", request_id.encode()),
        *((name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers),
    ]
    if answer.status not in {204, 304}:
        headers += [
            (b"content-type", answer.content_type.encode()),
            (b"content-length", str(len(answer.body)).encode()),
        ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body if body else b""})


def _shown(scope: Scope) -> str:
    """Return method and path for a line of the log: bounded, and without signs that would begin another line."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return f"method={scope['method'][:20]!r} path={quote(raw[:300], safe='/%:?&=')!r}"
