"""Reading the settings again while we run: what can change does, the rest is told, and a bad file changes nothing."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from outlast.core.errors import Refusal
from outlast.server.settings import check_all
from outlast.server.sources import SettingValue, Sources

LOG: Final = logging.getLogger("outlast.settings")

Apply = Callable[[Sources], None]


@dataclass(frozen=True, slots=True)
class Changed:
    """One setting that is another now; ``applied`` is False when it waits for a restart."""

    name: str
    old: str
    new: str
    origin: str
    applied: bool


class Reloader:
    """Compares the settings with those in use. ``apply`` has what brings a reloadable setting into use, by its name."""

    def __init__(
        self,
        read: Callable[[], Sources],
        apply: Mapping[str, Apply],
        check: Callable[[Sources], None] = check_all,
        *,
        always: Mapping[str, Apply] | None = None,
    ) -> None:
        """``check`` raises Refusal for settings that cannot be used; nothing is applied then.

        ``always`` is applied by every reload, whether its settings are others or not.
        """
        self._read = read
        self._check = check
        self._always = always or {}
        self._apply = {**apply, **self._always}
        self._used = {found.setting.name: found for found in read().all()}

    def reload(self) -> list[Changed]:
        """Apply what can be applied and log a line for each change, old to new; return them.

        Settings that cannot be used are logged as one error, and none is applied.
        """
        try:
            sources = self._read()
            self._check(sources)
            found = {one.setting.name: one for one in sources.all()}
        except Refusal as error:
            LOG.error("settings_kept error=%s %s", error.fact, error.remedy)  # noqa: TRY400 - its trace says nothing
            return []
        changes = [
            self._change(self._used[name], one, sources)
            for name, one in found.items()
            if one.text != self._used[name].text
        ]
        for name, apply in self._always.items():
            if sources.text(name):
                apply(sources)
        if not changes:
            LOG.info("settings_unchanged")
        return changes

    def _change(self, before: SettingValue, now: SettingValue, sources: Sources) -> Changed:
        name = now.setting.name
        apply = self._apply.get(name) if now.setting.reloadable else None
        if apply is None:
            LOG.warning("setting %s: %s -> %s needs a restart (%s)", name, before.shown, now.shown, now.origin)
        else:
            apply(sources)
            self._used[name] = now
            LOG.info("setting %s: %s -> %s (%s)", name, before.shown, now.shown, now.origin)
        return Changed(name, before.shown, now.shown, now.origin, apply is not None)
