"""The setup of the log in the process ``leveret serve``: levels, the format of a line, and where it goes.

One event per line, written by a thread (``lines``):
``2026-11-21T08:00:00.123Z info leveret.broker.connection.listener text key=value``.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from leveret.core.log.lines import LineHandler
from leveret.core.log.loggers import FLOODS
from leveret.core.printable import printable
from leveret.core.threads import start_thread

ROOT: Final = "leveret"
SILENT: Final = logging.CRITICAL + 1

_DESTINED: Final = (ROOT, "asyncio")  # the event loop reports errors of callbacks itself


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
        level = record.levelname.lower()
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        first, *rest = text.splitlines() or [""]
        line = f"{at}.{int(record.msecs):03d}Z {level} {record.name} {printable(first)}"
        return "\n    ".join([line, *map(printable, rest)])


def configure(
    level: str,
    path: Path | None = None,
    path_level: str | None = None,
    stderr: int = 2,
) -> list[logging.Handler]:
    """Send Leveret's log to stderr and, when a path is given, to a file.

    Args:
        level: of stderr, ``debug`` to ``critical`` or ``none``.
        path: file to append to.
        path_level: of that file; None is ``level``.
        stderr: its descriptor.

    Returns:
        The handlers, for ``release``.

    Raises:
        OSError: the file cannot be opened, or no thread is left.
    """
    handlers = _opened(level, path, path_level, stderr)
    add(handlers)
    return handlers


def reconfigure(
    handlers: list[logging.Handler],
    level: str,
    path: Path | None = None,
    path_level: str | None = None,
    stderr: int = 2,
) -> None:
    """Put others in the place of the handlers of ``configure``; a file is opened anew, as after its rotation.

    Raises:
        OSError: the file cannot be opened, or no thread is left; nothing is changed.
    """
    new = _opened(level, path, path_level, stderr)
    old, handlers[:] = list(handlers), new
    add(new)
    remove(old)
    closer = threading.Thread(target=_close, args=(old,), name="leveret-log-close", daemon=True)
    try:
        start_thread(closer)  # it waits until the lines of before are written
    except OSError:
        _close(old)


def _opened(
    level: str, path: Path | None, path_level: str | None, stderr: int
) -> list[logging.Handler]:
    handlers: list[logging.Handler] = []
    with ExitStack() as opened:  # an error closes the file again
        if path is not None:
            # A link is followed: /dev/stdout is one. Mode 0600: log lines name users, queues and addresses.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            file = LineHandler(os.open(path, flags, 0o600), owned=True)
            opened.callback(file.close)
            file.setLevel(level_number(path_level or level))
            handlers.append(file)
        if sys.__stderr__ is not None:  # else its descriptor was closed, and may be another file's
            console = LineHandler(stderr)
            console.setLevel(level_number(level))
            handlers.append(console)
        opened.pop_all()
    return handlers


def add(handlers: Sequence[logging.Handler]) -> None:
    """Send Leveret's log to these too."""
    for each in map(logging.getLogger, _DESTINED):
        each.propagate = False
        for handler in handlers:
            handler.setFormatter(LineFormatter())
            each.addHandler(handler)
    set_level()


def remove(handlers: Sequence[logging.Handler]) -> None:
    """Send Leveret's log no more to these."""
    for each in map(logging.getLogger, _DESTINED):
        for handler in handlers:
            each.removeHandler(handler)
    set_level()


def set_level() -> None:
    """Make no records that no handler takes."""
    root = logging.getLogger(ROOT)
    root.setLevel(min((each.level for each in root.handlers), default=SILENT))


def _close(handlers: Sequence[logging.Handler]) -> None:
    for handler in handlers:
        handler.close()


def release(handlers: list[logging.Handler]) -> None:
    """Remove the handlers of ``configure`` and close the file, with all counted lines in it."""
    FLOODS.close()
    remove(handlers)
    for each in map(logging.getLogger, _DESTINED):
        each.propagate = True
    _close(handlers)
    logging.getLogger(ROOT).setLevel(logging.NOTSET)
