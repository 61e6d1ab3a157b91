"""Where a setting's value comes from: flag, environment, file, default, in this order; and that it can say so."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, cast

from outlast.core.errors import Invalid, NotFound
from outlast.protocol.addresses import masked

PREFIX: Final = "OUTLAST_"
PROFILE_VARIABLE: Final = "OUTLAST_PROFILE"
CONFIG_VARIABLE: Final = "OUTLAST_CONFIG"
OWN_FILE: Final = "outlast.toml"
PROJECT_FILE: Final = "pyproject.toml"
FILE_BYTES_MAX: Final = 1024 * 1024  # settings are written by people
MASK: Final = "********"


class Shape(StrEnum):
    """What the text of a setting must be."""

    TEXT = "text"
    NAMES = "names"
    SPAN = "span"
    NUMBER = "number"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. ``name`` is its key in a file, dots for tables; ``flag`` may be empty."""

    name: str
    sentence: str
    flag: str = ""
    shape: Shape = Shape.TEXT
    default: str = ""
    choices: tuple[str, ...] = ()
    secret: bool = False
    reloadable: bool = False
    prefixes: tuple[str, ...] = ()  # what it begins with; a text that does not might be a secret in the wrong place

    @property
    def env(self) -> str:
        """The environment variable: two underscores per table of the file."""
        return PREFIX + self.name.replace(".", "__").upper()


@dataclass(frozen=True, slots=True)
class SettingValue:
    """The text of a setting, and where it was said in words."""

    setting: Setting
    text: str
    origin: str

    @property
    def chosen(self) -> bool:
        """Whether somebody said it."""
        return self.origin != "default"

    @property
    def shown(self) -> str:
        """The text for people: a secret is not shown, nor what might be one."""
        hidden = self.setting.secret or (self.setting.prefixes and not self.text.startswith(self.setting.prefixes))
        return MASK if hidden and self.text else masked(self.text)


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """What a file says: texts by name of the setting, each with the place in the file that says it."""

    path: str = ""
    profile: str = ""
    profiles: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])


NO_FILE: Final = SettingsFile()


@dataclass(frozen=True, slots=True)
class Sources:
    """Looks settings up, and says in every complaint who said what."""

    table: tuple[Setting, ...]
    flags: Mapping[str, str | None]
    environ: Mapping[str, str]
    file: SettingsFile = NO_FILE

    def find(self, name: str) -> SettingValue:
        """Return the text of one setting and its origin. Raises Invalid for a secret's file that cannot be read."""
        setting = next(row for row in self.table if row.name == name)
        flag = self.flags.get(name)
        if flag:
            return SettingValue(setting, flag, f"flag {setting.flag}" if setting.flag else "flag")
        if self.environ.get(setting.env):
            return SettingValue(setting, self.environ[setting.env], f"environment {setting.env}")
        if setting.secret and self.environ.get(f"{setting.env}_FILE"):
            variable = f"{setting.env}_FILE"
            path = self.environ[variable]
            return SettingValue(setting, _secret_in(path, variable), f"environment {variable}, file {path}")
        if name in self.file.values:
            text, place = self.file.values[name]
            return SettingValue(setting, text, place)
        return SettingValue(setting, setting.default, "default")

    def all(self) -> list[SettingValue]:
        """Return every setting of the table, in its order."""
        return [self.find(setting.name) for setting in self.table]

    def text(self, name: str) -> str:
        """Return the text of a setting."""
        return self.find(name).text

    def names(self, name: str) -> tuple[str, ...]:
        """Return the names of a list by commas."""
        return tuple(part.strip() for part in self.text(name).split(",") if part.strip())

    def choice(self, name: str) -> str:
        """Return a text that is one of the setting's choices. Raises Invalid."""
        found = self.find(name)
        text = found.text.lower()
        if text not in found.setting.choices:
            raise self.wrong(name, f"Give one of {', '.join(found.setting.choices)}.")
        return text

    def number(self, name: str, *, least: int, most: int) -> int | None:
        """Return a whole number, None for an empty text. Raises Invalid."""
        text = self.text(name).strip()
        if not text:
            return None
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise self.wrong(name, f"Give a whole number from {least} to {most}.")
        return int(text)

    def span(self, name: str) -> int:
        """Return a span in nanoseconds. Raises Invalid."""
        from outlast.sdk.durations import nanos_of
        from outlast.sdk.errors import InvalidDuration

        try:
            return nanos_of(self.text(name), name=name)
        except InvalidDuration as error:
            raise self.wrong(name, error.remedy) from None

    def wrong(self, name: str, remedy: str) -> Invalid:
        """Return what is raised for a setting that cannot be what it is."""
        found = self.find(name)
        said = "" if found.origin == "default" else f" ({found.origin})"
        label = found.setting.flag if found.origin.startswith("flag") else name
        return Invalid("invalid_request", f'{label} is "{found.shown}"{said}.', remedy=remedy)

    def strangers(self) -> list[tuple[str, str]]:
        """Return variables of the environment that begin as ours and are none, where one of ours is near, with that.

        Others are not ours to judge: a cluster puts the addresses of a service named ``outlast`` there.
        """
        known = [name for setting in self.table for name in (setting.env, *_file_names(setting))]
        known += [PROFILE_VARIABLE, CONFIG_VARIABLE]
        found: list[tuple[str, str]] = []
        for name in sorted(self.environ):
            if name.startswith(PREFIX) and name not in known:
                near = get_close_matches(name, known, n=1, cutoff=0.85)
                found += [(name, near[0])] if near else []
        return found


def find_file(folder: Path, *, named: str = "", profile: str = "", table: tuple[Setting, ...]) -> SettingsFile:
    """Return what the settings' file says: the one named, else outlast.toml in ``folder``, else its pyproject.toml.

    Raises:
        NotFound: the file that was named is not there.
        Invalid: the file is no TOML, has a key that is none or a value of the wrong kind, or no such profile.
    """
    if named:
        path = folder / named
        if not path.is_file():
            raise NotFound(
                "store_not_found", f"There is no settings file {named}.", remedy="Check the path of --config."
            )
        tables = _tables_in(path)
        body = _project_part(tables) if path.name == PROJECT_FILE else tables
        return _read(path, body or {}, profile, table)
    if (folder / OWN_FILE).is_file():
        return _read(folder / OWN_FILE, _tables_in(folder / OWN_FILE), profile, table)
    if (folder / PROJECT_FILE).is_file():
        path = folder / PROJECT_FILE
        if "tool.outlast" in _text_of(path):
            body = _project_part(_tables_in(path))
            if body is not None:
                return _read(path, body, profile, table)
    if profile:
        raise Invalid(
            "invalid_request",
            f'The profile "{profile}" is asked for, and there is no {OWN_FILE} here.',
            remedy=f"Write [profile.{profile}] in {OWN_FILE}, or name the file: --config FILE",
        )
    return NO_FILE


def _read(path: Path, body: Mapping[str, Any], profile: str, table: tuple[Setting, ...]) -> SettingsFile:
    shown = os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
    profiles = body.get("profile", {})
    if not isinstance(profiles, Mapping) or any(not isinstance(part, Mapping) for part in profiles.values()):  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        raise Invalid("invalid_request", f"profile in {shown} is no table.", remedy="Write [profile.NAME].")
    by_name = cast("Mapping[str, Mapping[str, Any]]", profiles)
    if profile and profile not in by_name:
        near = get_close_matches(profile, by_name, n=1, cutoff=0.5) or sorted(by_name)
        raise Invalid(
            "invalid_request",
            f'There is no profile "{profile}" in {shown}.',
            remedy=f"It has: {', '.join(near)}." if near else f"Write [profile.{profile}].",
        )
    values = _said_in({key: value for key, value in body.items() if key != "profile"}, _Part(shown, "", table))
    for name, part in by_name.items():  # every profile is checked: a fault in one that is not used today is found today
        found = _said_in(part, _Part(shown, f"[profile.{name}] ", table))
        if name == profile:
            values |= found
    return SettingsFile(str(path), profile, tuple(by_name), values)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a file: the whole of it but for the profiles, or one profile."""

    path: str
    label: str
    table: tuple[Setting, ...]


def _said_in(body: Mapping[str, Any], part: _Part, above: str = "") -> dict[str, tuple[str, str]]:
    known = {setting.name: setting for setting in part.table}
    found: dict[str, tuple[str, str]] = {}
    for key, value in body.items():
        name = f"{above}{key}"
        if name in known:
            found[name] = (_text(known[name], value, part), f"{part.path} {part.label}{name}")
        elif isinstance(value, Mapping) and any(other.startswith(f"{name}.") for other in known):
            found |= _said_in(cast("Mapping[str, Any]", value), part, f"{name}.")
        else:
            near = get_close_matches(name, known, n=1, cutoff=0.5)
            raise Invalid(
                "unknown_field",
                f"{part.label}{name} in {part.path} is no setting.",
                remedy=f"Did you mean {near[0]}?" if near else "See: outlast config show",
            )
    return found


def _text(setting: Setting, value: object, part: _Part) -> str:
    if isinstance(value, str):
        return value
    if setting.shape is Shape.NAMES and isinstance(value, list):
        names = cast("list[object]", value)
        if all(isinstance(name, str) and "," not in name for name in names):
            return ",".join(str(name) for name in names)
    if setting.shape in {Shape.NUMBER, Shape.SPAN} and isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value}s" if setting.shape is Shape.SPAN else str(value)
    forms = {Shape.NAMES: 'a list of texts, ["a", "b"]', Shape.NUMBER: "a number", Shape.SPAN: 'a span, "10m"'}
    raise Invalid(
        "invalid_request",
        f"{part.label}{setting.name} in {part.path} is {value!r}.",
        remedy=f"Write {forms.get(setting.shape, 'a text in quotes')}.",
    )


def _tables_in(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(_text_of(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Invalid(
            "invalid_request", f"{path} is no TOML: {error}.", remedy="Correct it; texts stand in quotes."
        ) from None


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise Invalid("invalid_request", f"{path} is over {FILE_BYTES_MAX:,} bytes.", remedy="Name another file.")
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise Invalid("invalid_request", f"{path} cannot be read: {why}.", remedy="Correct the file.") from None


def _project_part(tables: Mapping[str, Any]) -> Mapping[str, Any] | None:
    tool = tables.get("tool", {})
    body = cast("Mapping[str, Any]", tool).get("outlast") if isinstance(tool, Mapping) else None
    return cast("Mapping[str, Any]", body) if isinstance(body, Mapping) else None


def _file_names(setting: Setting) -> tuple[str, ...]:
    return (f"{setting.env}_FILE",) if setting.secret else ()


def _secret_in(path: str, variable: str) -> str:
    """A secret may come from a file, so that it stands in no list of processes."""
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise Invalid(
            "invalid_request",
            f"{variable} names {path}, which cannot be read: {error.strerror}.",
            remedy="Name a file that this user may read.",
        ) from error
