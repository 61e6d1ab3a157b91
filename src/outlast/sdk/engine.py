"""Finds the engine that can run in this process. The SDK knows it only by its entry point."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, cast

from outlast.protocol.transport import Transport
from outlast.sdk.misuse import NotStarted

GROUP: Final = "outlast.engine"
NAME: Final = "embedded"
HOME: Final = ("outlast.server.embedded", "start")  # where a source checkout has it, which has no entry points


class RunningEngine(Protocol):
    """An engine in this process, or the way to the one that holds the same file."""

    @property
    def transport(self) -> Transport: ...

    @property
    def address(self) -> str: ...

    def stop(self) -> None: ...


class StartEngine(Protocol):
    """Starts an engine on a store; returns when it takes requests."""

    def __call__(self, store_url: str, /, *, namespace: str) -> RunningEngine: ...


def find_engine() -> StartEngine:
    """Return what starts an engine in this process.

    Raises:
        NotStarted: none is installed.
    """
    import importlib.metadata  # noqa: PLC0415 - slow to load, and needed only where an engine is started

    for entry in importlib.metadata.entry_points(group=GROUP, name=NAME):
        return cast("StartEngine", entry.load())
    try:
        start: Callable[..., RunningEngine] = getattr(importlib.import_module(HOME[0]), HOME[1])
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("outlast.server"):
            raise
        raise NotStarted(
            "no_engine",
            "No engine is installed here.",
            remedy='Install "outlast" whole, or name a server: App("http://…").',
        ) from error
    return cast("StartEngine", start)


def place_beside(file: str) -> str:
    """Return the address of outlast.db beside ``file``; in the current folder if that is no file (a prompt)."""
    folder = Path(file).resolve().parent if Path(file).is_file() else Path.cwd()
    return f"sqlite:///{folder / 'outlast.db'}"


def rooted(address: str) -> str:
    """Return ``address`` with its file named from the root: tasks may change the working directory of the process."""
    file = address.removeprefix("sqlite:///")
    return address if file == address or not file or file[0] == ":" else f"sqlite:///{Path(file).absolute()}"
