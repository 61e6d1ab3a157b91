"""Ownership and fencing: invariants 10, 11, 12, 14, 16 and 17."""

from outlast.core.units import SECOND, Fence
from outlast.core.writes import Batch, Claim
from outlast.sim.node import Node
from outlast.sim.scene import Scene
from outlast.sim.violation import require


class Ownership:
    """Watches who owns the shard."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._highest = Fence(0, 0)
        self._owner = ""
        self._last_at = 0
        self._claims: dict[Fence, str] = {}

    def before(self, batch: Batch, owner: str) -> None:
        """Check a batch that the store has let in, before it is looked into."""
        mirror = self._scene.mirror
        require(batch.fence == self._highest, 12, "stale_fence_changed_something",
                f"batch {batch.number} of {owner} under {batch.fence}, the shard is at {self._highest}")  # fmt: skip
        require(
            batch.number == mirror.number + 1, 11, "commit_numbers_not_dense", f"{batch.number} after {mirror.number}"
        )
        require(self._claims.get(batch.fence) == owner, 10, "fence_of_somebody_else", f"{batch.fence} used by {owner}")
        require(batch.at >= self._last_at, 43, "shard_time_went_back", f"{batch.at} after {self._last_at}")
        require(batch.rows() > 0 or batch.lease_until, 6, "empty_batch", batch.number)
        self._last_at = batch.at
        mirror.fence = batch.fence

    def claimed(self, claim: Claim, owner: str) -> None:
        """Check a claim as the store has written it."""
        require(claim.fence > self._highest, 10, "fence_did_not_grow", f"{claim.fence} after {self._highest}")
        require(claim.last_number == self._scene.mirror.number, 11, "claim_misses_commits", claim.last_number)
        if self._owner and self._owner != owner:
            self._scene.coverage.hit("takeover")
        self._highest, self._owner = claim.fence, owner
        self._claims[claim.fence] = owner

    def served(self, node: Node, claim: Claim) -> None:
        """Check that an owner begins only after its claim was acknowledged."""
        require(claim.fence in self._claims, 14, "serves_before_claim", f"{node.owner} {claim.fence}")

    def finish(self, nodes: list[Node]) -> None:
        """Check that the shard is served after faults have stopped."""
        scene = self._scene
        serving = [node for node in nodes if node.core is not None]
        current = [node for node in serving if node.claim is not None and node.claim.fence == self._highest]
        require(
            current, 17, "no_owner_after_heal", f"{(scene.kernel.now - scene.healed_at) / SECOND:.1f} s after healing"
        )
        lease = scene.config.knobs.shard_lease
        stale = [node.owner for node in serving if node not in current]
        require(not stale or scene.kernel.now - scene.healed_at < 2 * lease, 16, "idle_owner_did_not_notice", stale)
