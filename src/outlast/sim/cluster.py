"""One simulation: nodes, workers and clients over one store, from warm-up through chaos to the last check."""

import gc
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, fields

from outlast.core.inputs import Poll
from outlast.core.replies import Refused, Reply, Work
from outlast.core.shard.config import ShardConfig
from outlast.core.units import DAY, HOUR, MILLISECOND, SECOND
from outlast.core.writes import Batch, Claim
from outlast.engine.reading import Reader
from outlast.engine.shard.inline import inline
from outlast.sim.checkers.bounds import Bounds
from outlast.sim.checkers.durability import Durability
from outlast.sim.checkers.feed import Feed
from outlast.sim.checkers.liveness import drained, require_drained, require_same_rows
from outlast.sim.checkers.ownership import Ownership
from outlast.sim.checkers.retention import Retention
from outlast.sim.checkers.runs import Runs
from outlast.sim.checkers.tasks import Tasks
from outlast.sim.client import Client
from outlast.sim.clock import NodeClock
from outlast.sim.disk import Disk
from outlast.sim.faults import Config, draw_config
from outlast.sim.kernel import START, Kernel
from outlast.sim.network import Network
from outlast.sim.node import Node, Ticket
from outlast.sim.program import SIGNALS
from outlast.sim.scene import Scene
from outlast.sim.sweeper import Sweeper
from outlast.sim.violation import Violation
from outlast.sim.worker import Worker
from outlast.store.memory.blobs import MemoryBlobStore
from outlast.store.memory.store import MemoryStore

NAMESPACES = ("default", "other")


class Watch:
    """Shows every commit and every answer to the checkers, at the true instant."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.ownership = Ownership(scene)
        self.bounds = Bounds(scene)
        self.feed = Feed(scene)
        self.retention = Retention(scene)
        self.begin()

    def begin(self) -> None:
        """Begin with nothing said and nothing out."""
        self.durability = Durability(self.scene)
        self.tasks = Tasks(self.scene)
        self.runs = Runs(self.scene)

    def applied(self, batch: Batch, owner: str) -> None:
        """Take a commit in."""
        self.ownership.before(batch, owner)
        change = self.scene.mirror.apply(batch, owner, self.scene.kernel.now)
        self.retention.committed(change)
        self.runs.committed(change)
        self.tasks.committed(change)
        self.bounds.committed(change)
        self.feed.committed(change)

    def claimed(self, claim: Claim, owner: str, *, now: int) -> None:
        """Take a claim in."""
        del now
        self.ownership.claimed(claim, owner)

    def served(self, node: Node, claim: Claim) -> None:
        """Note that a node has begun to serve."""
        self.ownership.served(node, claim)
        self.tasks.served(node)

    def resumed(self, node: Node, paused_for: int) -> None:
        """Note that an owner goes on after a pause."""
        self.tasks.resumed(node, paused_for)

    def handled(self, node: Node, ticket: Ticket) -> None:
        """Note what goes into a core."""
        self.tasks.handled(node, ticket)
        self.durability.handled(ticket)

    def answered(self, node: Node, ticket: Ticket, reply: Reply) -> None:
        """Check what comes out of a core."""
        if isinstance(reply, Refused):
            if reply.code == "internal":
                raise Violation(19, "internal_fault", f"{type(ticket.request).__name__}: {reply.fact} {reply.facts}")
            self.durability.refused(ticket, reply)
            return
        del node
        self.durability.answered(ticket, reply)
        self.tasks.answered(ticket, reply)
        if isinstance(reply, Work) and isinstance(ticket.request, Poll):
            self.runs.given_out(ticket.request, reply)

    def acknowledged(self, number: int) -> None:
        """Note that an owner knows batch ``number`` to be committed."""
        self.scene.acknowledged = max(self.scene.acknowledged, number)


@dataclass(slots=True)
class Result:
    """What one seed came to."""

    seed: int
    events: int = 0
    commits: int = 0
    span: int = 0
    digest: int = 0
    faults: dict[str, int] = field(default_factory=dict[str, int])
    points: dict[str, int] = field(default_factory=dict[str, int])
    violation: str = ""
    invariant: str = ""
    config: list[str] = field(default_factory=list[str])
    lines: list[str] = field(default_factory=list[str])


class Cluster:
    """Everything of one seed."""

    def __init__(self, config: Config, *, trace: bool = False) -> None:
        self.config = config
        self.kernel = Kernel(config.seed, trace=trace)
        self.scene = Scene(self.kernel, config)
        self.watch = Watch(self.scene)
        scene, faults = self.scene, config.faults
        self.network = Network(self.kernel, faults, scene.log)
        self.disk = Disk(self.kernel, faults, scene.log, scene.coverage, self.watch)
        self.watch.feed.read_from(self.disk.tables)
        store = MemoryStore(tables=self.disk.tables)
        inline(store.open())
        self._reader = Reader(store, MemoryBlobStore(), page_events=config.knobs.page_events)
        self._minted = 0
        self._sweeper: Sweeper | None = None
        self._chance = self.kernel.stream("cluster", "faults")
        self.nodes = [self._node(n) for n in range(config.load.nodes)]
        self.workers = [self._worker(n) for n in range(config.load.workers)]
        self.clients = [self._client(n) for n in range(config.load.clients)]

    def mint(self, kind: str) -> str:
        """Return a fresh id: mostly as the SDK makes them, growing with time, and now and then of another shape."""
        self._minted += 1
        if self._minted % 7 == 0:
            return f"{kind}-{self._minted:05d}"
        milliseconds = f"{self.kernel.now // 1_000_000:012x}"
        return f"{milliseconds[:8]}-{milliseconds[8:]}-7{self._minted % 4096:03x}-8000-{self._minted:012x}"

    def _node(self, n: int) -> Node:
        config, chance, log = self.config, self._chance, self.scene.log
        offset, drift = 0, 0.0
        if config.faults.clock_offset:
            log.hit("clock_offset")
            offset = int(chance.uniform(-1.0, 1.0) * config.skew)
        if config.faults.clock_drift:
            log.hit("clock_drift")
            drift = chance.uniform(-0.01, 0.01)
        clock = NodeClock(self.kernel, offset=offset, drift=drift, skew=config.skew)
        known = {item.name for item in fields(ShardConfig)}
        knobs = {item.name: getattr(config.knobs, item.name) for item in fields(config.knobs) if item.name in known}
        return Node(
            self.kernel, f"node{n}", clock, config=ShardConfig(**knobs, **self._other_knobs()), disk=self.disk,
            reader=self._reader, network=self.network, witness=self.watch, coverage=self.scene.coverage, faults=config.faults,
            log=self.scene.log,
        )  # fmt: skip

    def _other_knobs(self) -> dict[str, int]:
        return {"workflow_task_timeout": 2 * SECOND, "backoff_first": SECOND // 5, "backoff_max": 2 * SECOND}

    def _worker(self, n: int) -> Worker:
        return Worker(
            self.kernel, f"worker{n}", nodes=self.nodes, network=self.network, ledger=self.scene.ledger,
            coverage=self.scene.coverage, faults=self.config.faults, log=self.scene.log, namespaces=NAMESPACES, mint=self.mint,
        )  # fmt: skip

    def _client(self, n: int) -> Client:
        return Client(
            self.kernel, f"client{n}", namespace=NAMESPACES[n % len(NAMESPACES)], nodes=self.nodes,
            network=self.network, ledger=self.scene.ledger, coverage=self.scene.coverage, faults=self.config.faults,
            log=self.scene.log, load=self.config.load, mint=self.mint, acknowledged=lambda: self.scene.acknowledged,
            signals_of=self.scene.mirror.signals_of,
        )  # fmt: skip

    # -- phases --

    def run(self) -> None:
        """Play all phases. Raises Violation at the first promise that does not hold."""
        config, kernel = self.config, self.kernel
        for n, node in enumerate(self.nodes):
            node.boot(after=n * 20 * MILLISECOND)
        for worker in self.workers:
            worker.boot(after=50 * MILLISECOND)
        for client in self.clients:
            client.boot()
        kernel.run(until=START + config.load.warm_up)
        self._chaos_and_after()
        if config.day_after:
            self._day_after()

    def _chaos_and_after(self) -> None:
        kernel, config = self.kernel, self.config
        kernel.note("chaos")
        config.faults.live = True
        self._set_faults()
        kernel.run(until=kernel.now + config.load.chaos)
        self._heal()
        self._drain()
        self._last_check()

    def _day_after(self) -> None:
        """Let everything stand still until keys are over, then go on: what has ended is forgotten beside new work."""
        kernel, scene = self.kernel, self.scene
        kernel.note("a day later")
        for node in self.nodes:
            node.crash()
        for worker in self.workers:
            worker.crash()
        before = kernel.now
        kernel.run(until=before + DAY + HOUR)
        scene.healed_at = 0
        scene.ledger.entries.clear()
        scene.ledger.handler_runs.clear()
        self.watch.begin()
        for node in self.nodes:
            node.boot()
        for worker in self.workers:
            worker.start_again()
        for client in self.clients:
            client.go_on(self.config.load.calls // 2 + 2)
        self._sweeper = Sweeper(kernel, self.nodes, self.disk, NAMESPACES, before=before, done=self._over)
        self._sweeper.begin()
        self._chaos_and_after()
        self.watch.retention.finish(self._sweeper.left())

    def _heal(self) -> None:
        kernel, config = self.kernel, self.config
        kernel.note("heal")
        config.faults.live = False
        self.scene.healed_at = kernel.now
        self.network.heal()
        for node in self.nodes:
            node.reboot()
        for worker in self.workers:
            worker.start_again()
        if len(self.workers) < 2:
            extra = self._worker(len(self.workers))
            self.workers.append(extra)
            extra.boot()
        kernel.after(2 * SECOND, "closing time", self._close_up)

    def _close_up(self) -> None:
        """Give every run what it may still wait for; in the end, end what a program would wait for without end."""
        mirror, kernel = self.scene.mirror, self.kernel
        if any(client.calls_left for client in self.clients):
            kernel.after(2 * SECOND, "closing time", self._close_up)
            return
        for run_id in list(mirror.open_runs):
            row = mirror.runs[run_id]
            client = next((c for c in self.clients if c.namespace == row.namespace), None)
            if client is None or mirror.timers_of.get(run_id) or mirror.states[run_id].activities or row.ready_at:
                continue  # something of its own will move it
            if mirror.states[run_id].signals >= self.config.knobs.signals_max:
                client.terminate(row.workflow_id)  # it may take no more, and waits for one
                continue
            for name in SIGNALS:
                client.signal(row.workflow_id, name)
        if not self._over():  # a start that is on its way may still open one
            kernel.after(3 * SECOND, "closing time", self._close_up)

    def _drain(self) -> None:
        kernel = self.kernel
        bound = self._bound()
        kernel.run(until=kernel.now + bound, stop=self._over)
        require_drained(self.scene, bound)
        if self.config.load.floods:
            kernel.note("idle workers, and a flood")
            for client in self.clients:
                client.flood()
            kernel.run(until=kernel.now + bound, stop=self._over)
            require_drained(self.scene, bound)

    def _over(self) -> bool:
        swept = self._sweeper is None or not self._sweeper.left()
        return swept and drained(self.scene) and not any(client.calls_left for client in self.clients)

    def _bound(self) -> int:
        """Return how long everything may take after healing: from the work offered, not a fixed time."""
        load, mirror = self.config.load, self.scene.mirror
        left = sum(client.calls_left for client in self.clients)
        waiting = len(mirror.open_tasks) + 6 * len(mirror.open_runs) + 8 * left
        # A task takes up to nine seconds, and may be tried five times with pauses of up to two seconds in between; a turn
        # may take a poll, a read and a commit. At least two workers with a slot each share the work.
        return 180 * SECOND + waiting * 6 * SECOND + left * min(5 * SECOND, load.chaos // load.calls)

    def _last_check(self) -> None:
        kernel, watch = self.kernel, self.watch
        kernel.run(until=kernel.now + 3 * SECOND + 2 * self.config.knobs.shard_lease)
        require_drained(self.scene, 0)
        watch.ownership.finish(self.nodes)
        watch.durability.finish()
        watch.tasks.finish()
        watch.runs.finish()
        watch.bounds.finish(self.nodes)
        watch.feed.finish()
        require_same_rows(self.scene, self.disk)

    # -- faults that come by themselves --

    def _set_faults(self) -> None:
        faults = self.config.faults
        for rate, name, call in (
            (faults.node_crash_rate, "crash a node", self._crash_node),
            (faults.node_pause_rate, "pause a node", self._pause_node),
            (faults.all_nodes_crash_rate, "crash all nodes", self._crash_all),
            (faults.clock_jump_rate, "step a clock", self._jump_clock),
            (faults.net_cut_rate, "cut a link", self._cut_link),
            (faults.worker_crash_rate, "crash a worker", self._crash_worker),
            (faults.worker_pause_rate, "pause a worker", self._pause_worker),
            (faults.worker_stop_rate, "stop a worker", self._stop_worker),
        ):
            if rate:
                self._again(rate, name, call)

    def _again(self, rate: float, name: str, call: Callable[[], None]) -> None:
        def fault() -> None:
            if self.config.faults.live:
                self.kernel.note(name)
                call()
                self._again(rate, name, call)

        self.kernel.after(int(self._chance.expovariate(rate) * SECOND), name, fault)

    def _crash_node(self) -> None:
        node = self._chance.choice(self.nodes)
        if self._chance.random() < 0.5:
            node = next((other for other in self.nodes if other.core is not None), node)
        if not node.process.up:
            return
        self.scene.log.hit("node_crash")
        node.crash()
        if not any(other.process.up for other in self.nodes):
            self.scene.coverage.hit("all_nodes_down")
        self.kernel.after(int(self._chance.uniform(0.05, 3.0) * SECOND), "reboot", node.reboot)

    def _pause_node(self) -> None:
        node = next((other for other in self.nodes if other.core is not None), self._chance.choice(self.nodes))
        if not node.process.up or node.process.paused_until:
            return
        self.scene.log.hit("node_pause")
        node.pause(int(self._chance.uniform(0.1, 6.0) * SECOND))

    def _crash_all(self) -> None:
        self.scene.log.hit("all_nodes_crash")
        self.scene.coverage.hit("all_nodes_down")
        for node in self.nodes:
            if node.process.up:
                node.crash()
            self.kernel.after(int(self._chance.uniform(0.05, 3.0) * SECOND), "reboot", node.reboot)

    def _jump_clock(self) -> None:
        self.scene.log.hit("clock_jump")
        node = self._chance.choice(self.nodes)
        node.clock.jump(int(self._chance.uniform(-1.0, 1.0) * self.config.skew))
        node.clock_jumped()

    def _cut_link(self) -> None:
        self.scene.log.hit("net_cut")
        people = [*(worker.process.name for worker in self.workers), *(client.process.name for client in self.clients)]
        pair = [self._chance.choice(people), self._chance.choice(self.nodes).process.name]
        if self._chance.random() < 0.5:
            pair.reverse()
        self.network.cut(pair[0], pair[1], int(self._chance.uniform(0.2, 8.0) * SECOND))

    def _crash_worker(self) -> None:
        worker = self._chance.choice(self.workers)
        if worker.process.up:
            self.scene.log.hit("worker_crash")
            worker.crash()
            self.kernel.after(int(self._chance.uniform(0.05, 5.0) * SECOND), "worker starts", worker.start_again)

    def _pause_worker(self) -> None:
        worker = self._chance.choice(self.workers)
        if worker.process.up and not worker.process.paused_until:
            self.scene.log.hit("worker_pause")
            worker.pause(int(self._chance.uniform(0.2, 9.0) * SECOND))

    def _stop_worker(self) -> None:
        self.scene.log.hit("worker_stop")
        self._chance.choice(self.workers).stop(restart_after=int(self._chance.uniform(0.1, 2.0) * SECOND))


def play(seed: int, *, trace: bool = False) -> Result:
    """Play one seed and say what it came to. Never raises: a broken promise and a core that raises are results."""
    gc.collect()
    gc.disable()
    try:
        cluster = Cluster(draw_config(seed), trace=trace)
        result = Result(seed)
        try:
            cluster.run()
        except Violation as violation:
            result.violation = str(violation)
            result.invariant = f"{violation.number} ({violation.code})"
        except Exception as error:  # noqa: BLE001 - a core that raises is a finding like any other, with its seed
            where = traceback.extract_tb(error.__traceback__)[-1]
            result.violation = "".join(traceback.format_exception(error))
            result.invariant = f"0 ({type(error).__name__} in {where.name})"
        if result.violation:
            result.config = cluster.config.lines()
        result.lines = cluster.kernel.tail(200) if result.violation else []
        if trace:
            result.lines = cluster.kernel.tail(10**9)
        result.events = cluster.kernel.events
        result.commits = cluster.scene.mirror.number
        result.span = cluster.kernel.now - START
        result.digest = cluster.kernel.digest
        result.faults = dict(cluster.scene.log.counts)
        result.points = dict(cluster.scene.coverage.counts)
        return result
    finally:
        gc.enable()
