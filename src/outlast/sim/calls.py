"""How clients and workers call: one request id, several attempts, another node after a refusal or silence.

The same rules as the real SDK's: an attempt that is not answered in time is given up (its connection closes, so a late reply
is never seen) and the same request is sent again; only a definite answer ends a call.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from outlast.core.inputs import Request
from outlast.core.replies import Refused, Reply
from outlast.core.units import MILLISECOND, SECOND
from outlast.protocol.transport import HistoryPage
from outlast.sim.kernel import Alarm, Process
from outlast.sim.network import Network

if TYPE_CHECKING:
    from outlast.sim.node import Node

Done = Callable[[Reply | None], None]


class PageAsked(NamedTuple):
    """A page of a run's history that is wanted."""

    workflow_id: str
    run_id: str
    first_event_id: int


@dataclass(slots=True, eq=False)
class Call:
    """One request until its definite answer. ``sent`` counts attempts; more than one may have reached the shard."""

    request: Request
    namespace: str
    done: Done
    patience: int
    attempts_max: int
    name: str
    sent: int = 0
    attempt: int = 0
    silent: int = 0
    alarm: Alarm | None = field(default=None)


class Caller:
    """The calling side of one process."""

    def __init__(self, process: Process, network: Network, nodes: "list[Node]") -> None:
        self.process = process
        self._network = network
        self._nodes = nodes
        self._chance = process.kernel.stream(process.name, "calls")
        self._believed = self._chance.randrange(len(nodes))
        self._attempts = 0
        self._open: dict[int, tuple[Call, Node]] = {}
        self._reads: dict[int, Callable[[HistoryPage | None], None]] = {}

    def call(
        self, namespace: str, request: Request, done: Done, *, patience: int = 2 * SECOND, attempts_max: int = 0
    ) -> Call:
        """Send ``request`` until it is answered; after ``attempts_max`` silent attempts (0: never) ``done`` gets None."""
        call = Call(request, namespace, done, patience, attempts_max, type(request).__name__)
        self._send(call)
        return call

    def drop(self, call: Call) -> None:
        """Give the call up: the caller has lost interest and its connection closes."""
        if call.alarm is not None:
            call.alarm.cancel()
        if (entry := self._open.pop(call.attempt, None)) is not None:
            self._hang_up(call.attempt, entry[1])

    def forget_all(self) -> None:
        """Drop everything: the process has crashed, its connections break."""
        for attempt, (_, node) in list(self._open.items()):
            self._hang_up(attempt, node)
        self._open.clear()
        self._reads.clear()

    def fetch(self, namespace: str, asked: PageAsked, done: Callable[[HistoryPage | None], None]) -> None:
        """Read a page of a history; ``done`` gets None when no answer came."""
        self._attempts += 1
        key = self._attempts
        self._reads[key] = done
        node = self._nodes[self._believed]
        self._network.send(self.process.name, node.process, "fetch", node.fetch, self, key, namespace, asked)
        self.process.after(SECOND, "fetch timeout", self.fetched, key, None)

    def fetched(self, key: int, page: HistoryPage | None) -> None:
        """Take in the answer to a fetch; a second one is ignored."""
        if (done := self._reads.pop(key, None)) is not None:
            done(page)

    def replied(self, attempt: int, reply: Reply) -> None:
        """Take in a reply; one to an attempt that was given up is ignored."""
        entry = self._open.pop(attempt, None)
        if entry is None:
            return
        call, _ = entry
        if call.alarm is not None:
            call.alarm.cancel()
        if isinstance(reply, Refused) and reply.retryable:
            self._try_another(call, after=int(self._chance.uniform(20, 400) * MILLISECOND))
            return
        call.done(reply)

    def _send(self, call: Call) -> None:
        self._attempts += 1
        call.attempt = self._attempts
        call.sent += 1
        node = self._nodes[self._believed]
        self._open[call.attempt] = (call, node)
        call.alarm = self.process.after(call.patience, f"patience {call.name}", self._silence, call, call.attempt)
        self._network.send(
            self.process.name,
            node.process,
            f"-> {call.name}",
            node.receive,
            self,
            call.attempt,
            call.namespace,
            call.request,
        )

    def _silence(self, call: Call, attempt: int) -> None:
        entry = self._open.pop(attempt, None)
        if entry is None:
            return
        self._hang_up(attempt, entry[1])
        call.silent += 1
        if call.attempts_max and call.silent >= call.attempts_max:
            call.done(None)
            return
        self._try_another(call, after=int(self._chance.uniform(5, 100) * MILLISECOND))

    def _try_another(self, call: Call, *, after: int) -> None:
        self._believed = (self._believed + 1) % len(self._nodes)
        call.alarm = self.process.after(after, f"again {call.name}", self._send, call)

    def _hang_up(self, attempt: int, node: "Node") -> None:
        # A closed connection is noticed on the other side, sooner or later; the notice may be lost like anything else.
        self._network.send(self.process.name, node.process, "hang up", node.hung_up, self, attempt)
