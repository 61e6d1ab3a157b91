"""Finds the app in a module that a command names."""

import difflib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from outlast.sdk.app import App
from outlast.sdk.importing import importing
from outlast.sdk.misuse import Misuse, StartedAtImport

FILES_SHOWN: Final = 8


class CannotLoad(Misuse):
    """There is no app to be had from what was named."""


def load_app(target: str) -> App:
    """Return the app that ``target`` names: "app.py", "package.module", either with ":name" of the app in it.

    Raises:
        CannotLoad: there is no such module, it raises, or it has no app, or several and none was named.
        StartedAtImport: it starts an app while it is imported.
    """
    module_name, _, attribute = target.partition(":")
    module = _load_module(module_name)
    if attribute:
        app = getattr(module, attribute, None)
        if not isinstance(app, App):
            raise CannotLoad("no_app", f"{module_name} has no app named {attribute!r}.", remedy=_names(module))
        return app
    apps = {id(value): (name, value) for name, value in vars(module).items() if isinstance(value, App)}
    if len(apps) != 1:
        found = ", ".join(sorted(name for name, _ in apps.values())) or "none"
        raise CannotLoad(
            "no_app" if not apps else "several_apps",
            f"{module_name} should have one app; found: {found}.",
            remedy="Write `app = App()` in it."
            if not apps
            else f"Name one: {module_name}:{next(iter(apps.values()))[0]}",
        )
    return next(iter(apps.values()))[1]


def look_for(target: str) -> None:
    """Raise CannotLoad for a target of which can be seen without running it that there is no app to be had from it."""
    name = target.partition(":")[0]
    path = Path(name)
    if path.suffix != ".py":
        _require_module_name(name)
        return
    if not path.is_file():
        raise _no_file(name)
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise _raised(name, error) from error


def _no_file(name: str) -> CannotLoad:
    here = sorted(path.name for path in Path(name).parent.glob("*.py"))[:FILES_SHOWN]
    known = difflib.get_close_matches(Path(name).name, here, 1)
    said = (
        f"Did you mean {Path(name).with_name(known[0])}?" if known else f"There are: {', '.join(here)}." if here else ""
    )
    return CannotLoad(
        "no_module", f"There is no file {name}.", remedy=said or f"Look at the path; this is {Path.cwd()}."
    )


def _raised(name: str, error: Exception) -> CannotLoad:
    return CannotLoad(
        "module_raised", f"{name} raised {type(error).__name__}: {error}", remedy="Correct it; the cause is above."
    )


def _names(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, App)]
    return f"It has: {', '.join(names)}." if names else "It has none; write `app = App()` in it."


def _load_module(name: str) -> ModuleType:
    path = Path(name)
    by_file = path.suffix == ".py"
    if not by_file:
        _require_module_name(name)
    try:
        with importing(name):
            if by_file:
                return _load_file(path)
            if str(Path.cwd()) not in sys.path:
                sys.path.insert(0, str(Path.cwd()))
            return importlib.import_module(name)
    except StartedAtImport:
        raise
    except FileNotFoundError as error:
        raise _no_file(name) from error
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise CannotLoad(
                "no_module", f"There is no module {name} here ({Path.cwd()}).", remedy="Name a file: app.py"
            ) from error
        raise CannotLoad(
            "module_raised", f"{name} cannot be imported: {error}.", remedy="Install or correct what it imports."
        ) from error
    except SystemExit as error:
        raise CannotLoad(
            "module_raised",
            f"{name} ends the program while it is imported: exit code {error.code}.",
            remedy='Put what ends it under:  if __name__ == "__main__":',
        ) from error
    except Exception as error:
        raise _raised(name, error) from error


def _require_module_name(name: str) -> None:
    if name and "/" not in name and "\\" not in name and not name.startswith(".") and not name.endswith("."):
        return
    what = "is a folder" if name and Path(name).is_dir() else "is neither a file nor the name of a module"
    raise CannotLoad(
        "no_module", f'"{name}" {what}.', remedy="Name the file that has the app: app.py, or its module: package.module"
    )


def _load_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise FileNotFoundError(path)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # as an import would: what it pickles or annotates names itself by it
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(path.stem, None)
        raise
    return module
