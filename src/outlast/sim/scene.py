"""What the checkers of one simulation look at."""

from dataclasses import dataclass, field

from outlast.core import limits
from outlast.sim.coverage import Coverage
from outlast.sim.faults import Config, FaultLog
from outlast.sim.kernel import Kernel
from outlast.sim.ledger import Ledger
from outlast.sim.mirror import Mirror


@dataclass(slots=True)
class Scene:
    """Everything that is true, and everything that was said."""

    kernel: Kernel
    config: Config
    mirror: Mirror = field(default_factory=Mirror)
    ledger: Ledger = field(default_factory=Ledger)
    coverage: Coverage = field(default_factory=Coverage)
    log: FaultLog = field(default_factory=FaultLog)
    healed_at: int = 0
    window: int = limits.IDEMPOTENCY_WINDOW  # how long a key binds; nothing is forgotten sooner
    acknowledged: int = 0  # highest batch number that an owner knows to be committed
