"""Logging setup of the process ``leveret serve``; an embedding service keeps its own.

One event per line: ``2026-11-21T08:00:00.123Z info leveret.broker.connection.listener text key=value``. Modules
log with ``%s`` arguments and write their ``key=value`` after the text themselves; a line break inside
a message is escaped, so that no peer can forge a line.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Final, TextIO

ROOT: Final = "leveret"
SILENT: Final = logging.CRITICAL + 1


def level_number(name: str) -> int:
    """Return the number of ``debug`` to ``critical``; ``none`` is above all of them."""
    if name == "none":
        return SILENT
    return logging.getLevelNamesMapping()[name.upper()]


class LineFormatter(logging.Formatter):
    """One line per event, in UTC with milliseconds; tracebacks follow indented."""

    @staticmethod
    def converter(timestamp: float | None) -> time.struct_time:
        return time.gmtime(timestamp)

    def format(self, record: logging.LogRecord) -> str:
        at = self.formatTime(record, "%Y-%m-%dT%H:%M:%S")
        text = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        level = record.levelname.lower()
        line = f"{at}.{int(record.msecs):03d}Z {level} {record.name} {text}"
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "\n" + "\n".join("    " + part for part in trace.splitlines())
        return line


def configure(
    level: str,
    path: Path | None = None,
    path_level: str | None = None,
    stream: TextIO | None = None,
) -> list[logging.Handler]:
    """Send Leveret's log to stderr and, when a path is given, to a file.

    Args:
        level: of stderr, ``debug`` to ``critical`` or ``none``.
        path: file to append to.
        path_level: of that file; None is ``level``.
        stream: instead of stderr.

    Returns:
        The handlers, for ``release``.

    Raises:
        OSError: the file cannot be opened.
    """
    console = logging.StreamHandler(stream if stream is not None else sys.stderr)
    console.setLevel(level_number(level))
    handlers: list[logging.Handler] = [console]
    if path is not None:
        file = logging.FileHandler(path, encoding="utf-8")
        file.setLevel(level_number(path_level or level))
        handlers.append(file)
    root = logging.getLogger(ROOT)
    root.setLevel(min(handler.level for handler in handlers))
    root.propagate = False
    for handler in handlers:
        handler.setFormatter(LineFormatter())
        root.addHandler(handler)
    return handlers


def release(handlers: list[logging.Handler]) -> None:
    """Remove the handlers of ``configure`` and close the file."""
    root = logging.getLogger(ROOT)
    for handler in handlers:
        root.removeHandler(handler)
        handler.close()
    root.propagate = True
    root.setLevel(logging.NOTSET)
