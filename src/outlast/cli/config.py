"""``outlast config show | check | reload``: the settings as they are, and where each came from."""

import os
import signal
import sys
from typing import Any, Final

import msgspec

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.given import sources
from outlast.cli.printing import json_line, mode_of, put, table_text
from outlast.cli.shapes import ChangeOut, SettingOut
from outlast.server.settings import TABLE, check_all
from outlast.server.sources import Setting, SettingValue, Shape, Sources

_TYPES: Final[dict[Shape, dict[str, Any]]] = {
    Shape.TEXT: {"type": "string"},
    Shape.NAMES: {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    Shape.SPAN: {"type": ["string", "number"]},
    Shape.NUMBER: {"type": ["integer", "string"]},
    Shape.CHOICE: {"type": "string"},
}


def show(arguments: Arguments) -> int:
    """Print each setting, or with --schema what a settings file may say."""
    if arguments.schema:
        put(schema())
        return exits.DONE
    found = sources(arguments)
    _print(arguments, found.all(), origin=arguments.origin)
    _tell_strangers(found)
    return exits.DONE


def check(arguments: Arguments) -> int:
    """Say whether every setting can be used; end with FOUND_PROBLEMS when a variable looks misspelt."""
    found = sources(arguments)
    check_all(found)
    if mode_of(arguments) == "json":
        _print(arguments, found.all(), origin=True)
    else:
        chosen = sum(1 for one in found.all() if one.chosen)
        put(f"settings ok: {chosen} chosen, {len(TABLE) - chosen} by default; file {found.file.path or 'none'}\n")
    return exits.FOUND_PROBLEMS if _tell_strangers(found) else exits.DONE


def _print(arguments: Arguments, settings: list[SettingValue], *, origin: bool) -> None:
    if mode_of(arguments) == "json":
        outs = [
            SettingOut(
                name=one.setting.name,
                value=one.shown,
                origin=one.origin,
                reloadable=one.setting.reloadable,
                secret=one.setting.secret,
            )
            for one in settings
        ]
        put("".join(json_line(out) for out in outs))
        return
    rows = [
        (one.setting.name, one.shown, one.origin, "at once" if one.setting.reloadable else "restart")
        for one in settings
    ]
    heads = ("SETTING", "VALUE", "ORIGIN", "A CHANGE")
    put(table_text(heads, rows) if origin else table_text(heads[:2], [row[:2] for row in rows]))


def _tell_strangers(found: Sources) -> bool:
    strangers = found.strangers()
    for name, near in strangers:
        sys.stderr.write(
            f"outlast: {name} in the environment is no setting.  [unknown_field]\n  → Did you mean {near}?\n"
        )
    return bool(strangers)


def reload(arguments: Arguments) -> int:
    """Have the server on this machine that has the store read its settings again, once they have been checked here."""
    from outlast.server.stores import path_of, serving_process

    found = sources(arguments)
    check_all(found)
    path = path_of(found.text("store"))
    pid = serving_process(path)
    did = f"process {pid} reads its settings again; its log has a line for each change"
    if arguments.dry_run:
        did = f"would have process {pid} read its settings again"
    else:
        os.kill(pid, signal.SIGHUP)
    out = ChangeOut(id=str(pid), did=did, changed=True, dry_run=arguments.dry_run)
    put(json_line(out) if mode_of(arguments) == "json" else f"{did}\n")
    return exits.DONE


def schema() -> str:
    """Return the JSON Schema of outlast.toml, for editors."""
    body = _object({setting.name: setting for setting in TABLE})
    profiles = {"type": "object", "additionalProperties": body, "description": "Other values, by name of the profile."}
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "outlast.toml",
        **body,
        "properties": {**body["properties"], "profile": profiles},
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + os.linesep


def _object(settings: dict[str, Setting]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name, setting in settings.items():
        table, dot, _ = name.partition(".")
        if not dot:
            choices = {"enum": list(setting.choices)} if setting.choices else {}
            default = {} if setting.secret or not setting.default else {"default": setting.default}
            properties[name] = {**_TYPES[setting.shape], **choices, **default, "description": setting.sentence}
        elif table not in properties:
            inner = {
                other.removeprefix(f"{table}."): row for other, row in settings.items() if other.startswith(f"{table}.")
            }
            properties[table] = _object(inner)
    return {"type": "object", "additionalProperties": False, "properties": properties}
