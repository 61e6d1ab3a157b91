"""The workloads that every contender is asked for, and how each is measured.

All loops are closed: a caller submits its next one when it has the answer to the last. A turn is bounded in time, so that a
slow contender takes no longer than a fast one; what is under way when it ends is waited for and counted.
"""

from dataclasses import dataclass

CALLERS = 64
MANY_CALLERS = 256
FAN_OUT = 1_000
BATCH = 1_000
STEPS = 10
ON_POSTGRES = ("absurd", "dbos")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One question. ``steps`` turns a rate of workflows into one of steps; ``lower`` is better for times."""

    name: str
    title: str
    unit: str = "/s"
    steps: int = 0
    times_of: tuple[str, ...] = ()  # the contenders of whose rates Outlast is wanted to have ``times`` as much
    times: float = 5.0

    @property
    def lower(self) -> bool:
        """Whether less is better."""
        return self.unit != "/s"


WORKLOADS = (
    Workload(name="submit", title=f"submit one task, {CALLERS} callers, acknowledged"),
    Workload(name="bulk", title="submit tasks in bulk, one caller, acknowledged"),
    Workload(name="tasks", title="no-op tasks, first submission to last completion", times_of=ON_POSTGRES),
    Workload(
        name="one_step",
        title=f"workflows of one step, {CALLERS} in flight",
        steps=1,
        times_of=("restate", *ON_POSTGRES),
    ),
    Workload(
        name="one_step_many",
        title=f"workflows of one step, {MANY_CALLERS} in flight",
        steps=1,
        times_of=("restate",),
    ),
    Workload(
        name="ten_steps",
        title=f"workflows of ten steps, {CALLERS} in flight",
        steps=STEPS,
        times_of=("restate", *ON_POSTGRES),
    ),
    Workload(
        name="ten_steps_many",
        title=f"workflows of ten steps, {MANY_CALLERS} in flight",
        steps=STEPS,
        times_of=("restate",),
    ),
    Workload(name="to_handler", title="idle: submit to handler, p50", unit="ms"),
    Workload(name="to_result", title="idle: one-step workflow, call to result, p50", unit="ms"),
    Workload(name="fan_out", title=f"one workflow with {FAN_OUT:,} steps at once", unit="s"),
)
BY_NAME = {workload.name: workload for workload in WORKLOADS}
