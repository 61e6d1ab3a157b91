"""One log of several processes: each line with the name of who wrote it, coloured on a terminal."""

import asyncio
import logging
import sys
from collections.abc import Mapping
from typing import Final

from outlast.cli.printing import colours, paint
from outlast.cli.running import line_formatter
from outlast.cli.text import clean

LINE_BYTES_MAX: Final = 64 * 1024  # a longer line is told in parts
CHUNK: Final = 64 * 1024

_COLOURS: Final = ("36", "35", "33", "34", "32")  # by turns; red is for errors
_WIDTH: Final = 8


class MergedLog:
    """Writes whole lines to stderr, each behind the name of the process that it came from."""

    def __init__(self) -> None:
        self._coloured = colours(sys.stderr)
        self._names: dict[str, str] = {}

    def line(self, name: str, text: str) -> None:
        """Write one line; what a terminal would obey is written out, but for colours of the writer's own."""
        label = f"{name:<{_WIDTH}}"
        if self._coloured:
            label = paint(label, self._names.setdefault(name, _COLOURS[len(self._names) % len(_COLOURS)]))
        sys.stderr.write(f"{label} | {clean(text)}\n")
        sys.stderr.flush()

    def say(self, text: str) -> None:
        """Write a line of our own."""
        self.line("dev", text)

    def take_logging(self, name: str, level: str) -> None:
        """Have what this process logs come here too."""
        handler = _Here(self, name)
        handler.setFormatter(line_formatter())
        root = logging.getLogger()
        root.addHandler(handler)
        root.setLevel(level.upper())
        logging.getLogger("uvicorn").setLevel("ERROR")

    async def follow(self, name: str, stream: asyncio.StreamReader, marks: Mapping[str, asyncio.Event]) -> None:
        """Write what ``stream`` brings until it ends; a line of ``marks`` is not written but sets its event."""
        rest = b""
        while data := await stream.read(CHUNK):
            *lines, rest = (rest + data).split(b"\n")
            while len(rest) > LINE_BYTES_MAX:
                lines.append(rest[:LINE_BYTES_MAX])
                rest = rest[LINE_BYTES_MAX:]
            for line in lines:
                text = line.decode(errors="replace").rstrip("\r")
                if (mark := marks.get(text)) is not None:
                    mark.set()
                else:
                    self.line(name, text)
        if rest:
            self.line(name, rest.decode(errors="replace"))


class _Here(logging.Handler):
    def __init__(self, log: MergedLog, name: str) -> None:
        super().__init__()
        self._log = log
        self._name = name

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, a trace line by line."""
        for line in self.format(record).splitlines():
            self._log.line(self._name, line)
