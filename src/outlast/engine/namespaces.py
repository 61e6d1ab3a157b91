"""The namespaces an engine serves, and what the settings of each say about what comes in.

The shard decides about namespaces; this is its committed state, kept where every request passes. Those that the engine's own
settings name are there without a row, with the settings of a new one, until somebody changes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from outlast.core import limits
from outlast.core.admin import NamespaceInfo, NamespaceSettings, NamespaceState
from outlast.core.carriers import payloads_in
from outlast.core.errors import Busy, NotFound, TooLarge
from outlast.core.inputs import EnqueueTask, EnqueueTasks, Request, StartWorkflow, StartWorkflows
from outlast.engine.quota import Bucket

NAMED_IN_ERRORS: Final = 10  # namespaces that the text of an error lists


@dataclass(slots=True)
class Namespaces:
    """Which there are. ``configured`` are always there, unless being deleted; with ``any_name`` so is any that is asked for."""

    configured: frozenset[str]
    any_name: bool = False
    stored: dict[str, NamespaceInfo] = field(default_factory=dict[str, NamespaceInfo])
    _buckets: dict[str, Bucket] = field(default_factory=dict[str, Bucket])

    def read(self, stored: Mapping[str, NamespaceInfo]) -> None:
        """Take what the store has for what there is."""
        self.stored = dict(stored)

    def note(self, info: NamespaceInfo) -> None:
        """Take in what was committed."""
        known = self.stored.get(info.name)
        if known is None or known.version < info.version:
            self.stored[info.name] = info

    def gone(self, name: str) -> None:
        """Take in that a namespace has been removed."""
        self.stored.pop(name, None)
        self._buckets.pop(name, None)

    def knows(self, name: str) -> bool:
        """Say whether there is such a namespace, and it is not being deleted."""
        info = self.stored.get(name)
        if info is not None:
            return info.state is NamespaceState.ACTIVE
        return name in self.configured or (self.any_name and self._take(name))

    def _take(self, name: str) -> bool:
        """Take a name that nobody gave before, if it is one."""
        size = len(name.encode(errors="replace"))
        if (
            len(self.configured) >= limits.NAMESPACES_MAX
            or not name.isprintable()
            or not 0 < size <= limits.NAME_BYTES_MAX
        ):
            return False
        self.configured |= {name}
        return True

    def all(self) -> tuple[NamespaceInfo, ...]:
        """Return every namespace by name, those being deleted too."""
        names = sorted({*self.configured, *self.stored})
        return tuple(self.stored.get(name) or NamespaceInfo(name=name) for name in names)

    def find(self, name: str) -> NamespaceInfo:
        """Return a namespace, also one being deleted. Raises NotFound."""
        info = self.stored.get(name)
        if info is None:
            if name not in self.configured:
                raise self.missing(name)
            return NamespaceInfo(name=name)
        return info

    def missing(self, name: str) -> NotFound:
        """Return what to say of a namespace that is not there."""
        there = [info.name for info in self.all() if info.state is NamespaceState.ACTIVE]
        more = f" and {len(there) - NAMED_IN_ERRORS} more" if len(there) > NAMED_IN_ERRORS else ""
        known = self.stored.get(name)
        fact = f'The namespace "{name}" is being deleted.' if known else f'There is no namespace "{name}".'
        return NotFound("namespace_not_found", fact, remedy=f"Use one of: {', '.join(there[:NAMED_IN_ERRORS])}{more}.")

    def admit(self, name: str, request: Request, *, size: int, now: int) -> None:
        """Hold ``request`` against the namespace's limits. Raises TooLarge or Busy ("rate_limited")."""
        info = self.stored.get(name)
        if info is None:
            return
        settings = info.settings
        most = settings.payload_bytes_max
        if most and size > most:
            for payload in payloads_in(request):
                if len(payload.data) > most:
                    raise TooLarge(
                        "payload_too_large",
                        f'A payload has {len(payload.data):,} bytes; the namespace "{name}" takes {most:,}.',
                        remedy="Pass a reference to it, or have the namespace's payload_bytes_max raised.",
                    )
        if settings.starts_per_second:
            self._rate(name, settings, request, now)

    def _rate(self, name: str, settings: NamespaceSettings, request: Request, now: int) -> None:
        match request:
            case StartWorkflow() | EnqueueTask():
                wanted = 1
            case StartWorkflows() | EnqueueTasks():
                wanted = len(request.items)
            case _:
                return
        rate = settings.starts_per_second
        burst = float(settings.starts_burst or max(1.0, rate))
        bucket = self._buckets.setdefault(name, Bucket(burst, now))
        seconds = bucket.take(wanted, rate=rate, burst=burst, now=now)
        if seconds:
            raise Busy(
                "rate_limited",
                f'The namespace "{name}" may start {rate:g} a second.',
                remedy=f"Send it again in {seconds:.1f} s, or have the namespace's starts_per_second raised.",
                retry_after=f"{seconds:.3f}",
            )
