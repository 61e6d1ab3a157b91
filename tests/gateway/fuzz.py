"""Asks every address of the OpenAPI document what nobody would think of, and says what went wrong.

    python -m tests.gateway.fuzz --requests 100000 [--seed 7]

schemathesis makes requests that fit the document and requests that do not; to them come spoiled cursors, filters put together
at random, torn bodies and ids of things that are there. An answer must have a status that the document names for the
operation, and the shape that it says; none may be a fault of ours, and nothing may be in the log.
"""

import argparse
import asyncio
import logging
import random
import sys
import tempfile
from collections import Counter
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import hypothesis
import msgspec
import requests
import schemathesis
from hypothesis.errors import Unsatisfiable
from jsonschema_rs import Draft202012Validator
from schemathesis import GenerationMode

from outlast.gateway.app import Gateway
from outlast.gateway.openapi import document
from outlast.gateway.table import ROUTES
from outlast.server.assemble import make_engine
from outlast.server.stores import open_stores
from tests.gateway.asgi import AsgiClient

SHOWN_MAX = 20
EVERY_CHECK: Any = list(hypothesis.HealthCheck)
ANSWERED_WITHIN = 20.0  # seconds
ADDRESS = "http://127.0.0.1:7070"
SPOILED = 6  # requests made from each that schemathesis made
WORDS = [
    "type", "state", "queue", "id", "started", "closed", "tag.plan", 'tag."a b"', "attr.amount", "nope", "=", "!=", "<",
    ">=", "~", "and", "or", "not", "in", "(", ")", ",", "exists", '"order"', "'x'", '"', "order", "failed", "12",
    "1e999", "-1", "2h ago",
    "2026-11-30T08:00:00Z", "%", "_", "\\", "';--", "\x00", "é", "😀", "(" * 60, "x" * 300,
]  # fmt: skip


class Finding(msgspec.Struct, frozen=True):
    """A request whose answer was wrong."""

    says: str
    method: str
    target: str
    body: bytes = b""


class Lines(logging.Handler):
    """Keeps what is logged as a warning or worse."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.kept: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(f"{record.name} {record.levelname} {record.getMessage()[:300]}")


class Fuzzer:
    """Sends requests to one server and looks at what comes back."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: AsgiClient, *, seed: int) -> None:
        self._loop = loop
        self._client = client
        self._chance = random.Random(seed)
        self._document = document(ROUTES)
        self._schemas: dict[str, Draft202012Validator] = {}
        self._ids = ["order-1", "order-2", "a/b c", "none"]
        self._cursors = [""]
        self.statuses: Counter[int] = Counter()
        self.findings: list[Finding] = []

    @property
    def sent(self) -> int:
        """How many requests have been answered."""
        return self.statuses.total()

    def prepare(self) -> None:
        """Make things for ids and cursors to name."""
        root = "/api/v1/namespaces/default"
        json = {"content-type": "application/json"}
        for id_ in self._ids[:3]:
            body = msgspec.json.encode(
                {"type": "order", "id": id_, "tags": {"plan": "pro"}, "attributes": {"amount": 3}}
            )
            self.send("POST", f"{root}/workflows", json, body)
            for _ in range(20):
                self.send(
                    "POST", f"{root}/workflows/{quote(id_, safe='')}/signal", json, msgspec.json.encode({"name": "go"})
                )
        for n in range(30):
            self.send("POST", f"{root}/tasks", json, msgspec.json.encode({"type": "resize", "input": [n]}))
        for what in ("tasks", "workflows"):
            _, _, body = self.send("GET", f"{root}/{what}?limit=2", {}, b"")
            page = msgspec.json.decode(body)
            self._cursors.append(page["next"])
            self._ids += [item["id"] for item in page["items"]]

    def run(self, wanted: int) -> None:
        """Send ``wanted`` requests, in equal shares to all operations."""
        schema: Any = schemathesis.openapi.from_dict(self._document)
        operations: list[Any] = [found.ok() for found in schema.get_all_operations()]
        round_ = 0
        while self.sent < wanted and len(self.findings) < SHOWN_MAX:
            round_ += 1
            for operation in operations:
                for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                    share = max(2, min(40, (wanted - self.sent) // (2 * len(operations) * (SPOILED + 1))))
                    self._some(operation, mode, share, round_)

    def _some(self, operation: Any, mode: GenerationMode, share: int, round_: int) -> None:
        has_scope = "{namespace}" in operation.path
        fixed = {"namespace": "default"} if has_scope and self._chance.random() < 0.9 else None
        try:
            strategy = operation.as_strategy(generation_mode=mode)
        except Exception as error:  # noqa: BLE001 - an operation that cannot be spoiled is left to the other mode
            del error
            return

        @hypothesis.seed(self._chance.getrandbits(32) + round_)
        @hypothesis.settings(
            max_examples=share,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=EVERY_CHECK,
        )
        @hypothesis.given(case=strategy)
        def one(case: Any) -> None:
            if fixed is not None:
                case.path_parameters = {**(case.path_parameters or {}), **fixed}
            self._ask(operation, case)

        try:
            one()
        except Unsatisfiable:
            return

    def _ask(self, operation: Any, case: Any) -> None:
        """Send the request that was made, and one that was spoiled."""
        if "id" in (case.path_parameters or {}) and self._chance.random() < 0.6:
            case.path_parameters = {**case.path_parameters, "id": self._chance.choice(self._ids)}
        try:
            made = requests.Request(**case.as_transport_kwargs(base_url=ADDRESS)).prepare()
        except (requests.exceptions.RequestException, UnicodeError, ValueError):
            return  # no client could send it
        target = str(made.url).removeprefix(ADDRESS)
        written: Any = made.body or b""
        body: bytes = written.encode() if isinstance(written, str) else written
        headers = {name.lower(): str(value) for name, value in made.headers.items() if name != "Content-Length"}
        if any(ord(sign) > 255 for value in headers.values() for sign in value):
            return
        self.look(operation, str(made.method), self._brief(target), headers, body)
        for _ in range(SPOILED):
            sent_target, sent_body = self._spoiled(target, body)
            self.look(operation, str(made.method), self._brief(sent_target), headers, sent_body)

    def _spoiled(self, target: str, body: bytes) -> tuple[str, bytes]:
        path, _, query = target.partition("?")
        fields = dict(parse_qsl(query, keep_blank_values=True))
        if path.endswith(("/workflows", "/tasks", ":count")):
            kind = self._chance.choice(["cursor", "query", "both"])
            if kind != "query" and not path.endswith(":count"):
                fields["cursor"] = self._spoil(self._chance.choice(self._cursors).encode()).decode("latin-1")
            if kind != "cursor":
                fields["query"] = " ".join(self._chance.choices(WORDS, k=self._chance.randint(1, 12)))
        if path.endswith("/history"):
            fields = {"after": str(self._chance.choice([0, 1, 5, 2**40, -1])), "limit": "2"}
        query = urlencode(fields, errors="replace")
        return f"{path}{'?' if query else ''}{query}", self._spoil(body)

    def _spoil(self, data: bytes) -> bytes:
        spoiled = bytearray(data)
        for _ in range(self._chance.randint(0, 3)):
            if spoiled:
                at = self._chance.randrange(len(spoiled))
                kind = self._chance.randrange(3)
                if kind == 0:
                    spoiled[at] = self._chance.randrange(256)
                elif kind == 1:
                    del spoiled[at:]
                else:
                    spoiled[at:at] = self._chance.choice(
                        [b"\x00", b'"', b"[" * 50, b"\xff", b"}", b"1e999", b"\\ud800"]
                    )
        return bytes(spoiled)

    def _brief(self, target: str) -> str:
        """Return ``target`` with no long wait in it."""
        path, _, query = target.partition("?")
        fields = [
            (name, "1ms" if name == "wait" and self._chance.random() < 0.9 and value[:1].isalnum() else value)
            for name, value in parse_qsl(query, keep_blank_values=True, errors="surrogateescape")
        ]
        if any(name == "wait" and value[:1].isdigit() and value != "1ms" for name, value in fields):
            fields = [(name, "1ms" if name == "wait" else value) for name, value in fields]
        query = urlencode(fields, errors="surrogateescape")
        return f"{path}{'?' if query else ''}{query}"

    def look(self, operation: Any, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        """Send one request and note what is wrong with its answer."""
        try:
            status, content_type, answer = self.send(method, target, headers, body)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            self.findings.append(Finding(f"no answer: {error!r}", method, target, body))
            return
        says = self._wrong(operation, method, target, status=status, content_type=content_type, answer=answer)
        if says:
            self.findings.append(Finding(says, method, target, body))

    def _wrong(self, operation: Any, method: str, target: str, *, status: int, content_type: str, answer: bytes) -> str:
        if status >= 500:
            return f"status {status}: {answer[:300]!r}"
        if method.lower() != operation.method or not self._is_at(operation, target):
            return "" if 400 <= status < 500 or status in {200, 204} else f"status {status} for another address"
        responses = operation.definition.raw["responses"]
        if str(status) not in responses:
            return f"status {status} is not in the document: {answer[:200]!r}"
        content = responses[str(status)].get("content", {})
        kind = content_type.partition(";")[0]
        if answer and kind not in content:
            return f"{kind} is not in the document"
        if not kind.endswith("json") or not answer:
            return ""
        return next(
            (error.message for error in self._validator(content[kind]).iter_errors(msgspec.json.decode(answer))), ""
        )

    def _is_at(self, operation: Any, target: str) -> bool:
        """Say whether ``target`` is still an address of ``operation``: an id may have been emptied."""
        return len(target.partition("?")[0].split("/")) == len(operation.path.split("/"))

    def _validator(self, content: dict[str, Any]) -> Draft202012Validator:
        name = content["schema"]["$ref"]
        if name not in self._schemas:
            self._schemas[name] = Draft202012Validator({"$ref": name, "components": self._document["components"]})
        return self._schemas[name]

    def send(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, str, bytes]:
        """Return status, content type and body. A stream is left as soon as it has begun."""
        gone = asyncio.Event()
        if target.partition("?")[0].endswith("/events"):
            gone.set()
        response = self._loop.run_until_complete(
            asyncio.wait_for(
                self._client.send(method, target, headers=headers, body=body, hang_up=gone), timeout=ANSWERED_WITHIN
            )
        )
        self.statuses[response.status] += 1
        content_type = response.headers.get("content-type", "")
        return response.status, content_type, b"" if content_type == "text/event-stream" else response.body


def fuzz(wanted: int, seed: int) -> tuple[list[Finding], list[str], Counter[int]]:
    """Return what went wrong, what was logged, and the statuses of the answers."""
    lines = Lines()
    root = logging.getLogger()
    root.addHandler(lines)
    loop = asyncio.new_event_loop()
    try:
        with tempfile.TemporaryDirectory() as folder:
            engine = make_engine(open_stores(f"sqlite:///{folder}/fuzz.db"))
            loop.run_until_complete(engine.start())
            fuzzer = Fuzzer(loop, AsgiClient(Gateway(engine)), seed=seed)
            fuzzer.prepare()
            fuzzer.run(wanted)
            loop.run_until_complete(engine.stop())
    finally:
        root.removeHandler(lines)
        loop.close()
    return fuzzer.findings, lines.kept, fuzzer.statuses


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the REST surface by its OpenAPI document.")
    parser.add_argument("--requests", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    findings, logged, statuses = fuzz(arguments.requests, arguments.seed)
    for finding in findings:
        print(f"{finding.method} {finding.target[:300]}\n    {finding.body[:200]!r}\n    {finding.says}")
    for line in logged[:SHOWN_MAX]:
        print(f"logged: {line}")
    shown = ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items()))
    print(f"{statuses.total():,} requests, {len(findings)} wrong answers, {len(logged)} lines in the log; {shown}")
    return 1 if findings or logged else 0


if __name__ == "__main__":
    sys.exit(main())
