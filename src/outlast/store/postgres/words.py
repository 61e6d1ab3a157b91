"""Columns and conditions that several statements share."""

from typing import Final

from outlast.core.writes import AttemptRow, RunRow, TaskRow

RUN: Final = ", ".join(f"r.{name}" for name in RunRow.__struct_fields__)
TASK: Final = ", ".join(f"r.{name}" for name in TaskRow.__struct_fields__)
ATTEMPT: Final = ", ".join(AttemptRow.__struct_fields__)

RUN_TROUBLES: Final = ("failed", "timed_out", "terminated", "canceled")
RUN_TROUBLE: Final = "status IN ('failed', 'timed_out', 'terminated', 'canceled')"
TASK_TROUBLES: Final = ("failed", "expired", "canceled", "uncertain", "held")
TASK_TROUBLE: Final = "state IN ('failed', 'expired', 'canceled', 'uncertain', 'held')"
