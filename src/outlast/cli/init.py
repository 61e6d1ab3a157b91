"""``outlast init``: writes a project that runs, and never over a file that is there."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from outlast.cli import exits
from outlast.cli.arguments import Arguments
from outlast.cli.printing import json_line, mode_of, put, talk
from outlast.cli.shapes import WrittenOut
from outlast.core.errors import Conflict, Invalid

SUFFIX: Final = ".tmpl"  # so that no tool takes a template for code of ours

NEXT: Final = {
    "script": ("outlast dev app.py", "python app.py", "pip install pytest", "pytest"),
    "fastapi": ("pip install fastapi uvicorn", "uvicorn web:web", "curl -X POST localhost:8000/orders/7"),
    "django": ("pip install django", "outlast dev worker.py", "python manage.py runserver"),
}


def init(arguments: Arguments) -> int:
    """Write the files of one kind of project."""
    folder = Path(arguments.folder)
    found = dict(_templates(files("outlast.cli") / "templates" / arguments.kind, Path()))
    there = [str(path) for path in found if (folder / path).exists()]
    if there:
        raise Conflict(
            "denied",
            f"{', '.join(there)} {'is' if len(there) == 1 else 'are'} there already; nothing was written.",
            remedy="Choose another place: --folder DIR",
        )
    for path, text in found.items():
        if not arguments.dry_run:
            _write(folder / path, text)
        out = WrittenOut(path=str(path), dry_run=arguments.dry_run)
        verb = "would write" if arguments.dry_run else "wrote"
        put(json_line(out) if mode_of(arguments) == "json" else f"{verb} {folder / path}\n")
    where = [] if arguments.folder == "." else [f"cd {arguments.folder}"]
    talk(arguments, "\nNext:\n" + "\n".join(f"  {line}" for line in [*where, *NEXT[arguments.kind]]))
    return exits.DONE


def _templates(folder: Traversable, above: Path) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            found += _templates(entry, above / entry.name)
        elif entry.name.endswith(SUFFIX):
            found.append((above / entry.name.removesuffix(SUFFIX), entry.read_text(encoding="utf-8")))
    return found


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Invalid(
            "invalid_request",
            f"{path} cannot be written: {error.strerror}.",
            remedy="Choose another place: --folder DIR",
        ) from None
