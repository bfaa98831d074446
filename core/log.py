"""Logging: the loggers of all modules, and the setup of the process ``leveret serve``.

Modules log with ``%s`` arguments and write their ``key=value`` after the text themselves. ``logger`` returns
their loggers with two filters, so that both rules hold under any handlers, also those of a service that embeds
a broker and sets up logging itself:

- equal lines in a flood are counted (``log_floods``);
- values from outside are printable (``printable``): no name can forge a line or control a terminal.

``leveret serve`` writes one event per line, on a thread (``log_lines``):
``2026-11-21T08:00:00.123Z info leveret.broker.connection.listener text key=value``.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from functools import lru_cache
from pathlib import Path
from typing import Final

from leveret.core.log_floods import Floods
from leveret.core.log_lines import LineHandler
from leveret.core.printable import printable, value

ROOT: Final = "leveret"
SILENT: Final = logging.CRITICAL + 1
FLOODS: Final = Floods()

_DESTINED: Final = (ROOT, "asyncio")  # the event loop reports errors of callbacks itself
_PLACEHOLDER: Final = re.compile(r"([=\n]?)%[-#0-9.+ ]*([a-zA-Z%])")
_NUMBERS: Final = frozenset({int, float, bool, type(None)})


def logger(name: str, *, is_counted: bool = True) -> logging.Logger:
    """Return the logger of a module, to be used in place of ``logging.getLogger``.

    Args:
        name: of the module.
        is_counted: equal lines in a flood are counted.
    """
    found = logging.getLogger(name)
    if is_counted:
        found.addFilter(FLOODS)  # a filter that is there already is not added again
    found.addFilter(_PRINTABLE)
    return found


class _Shown(str):
    """A text that ``%r`` leaves as it is."""

    __slots__ = ()

    __repr__ = str.__str__


class _Printable(logging.Filter):
    """Makes the arguments of a line printable, and quotes those behind ``key=`` where they need it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple) and isinstance(record.msg, str):
            places = _places(record.msg)
            if len(places) == len(record.args):
                record.args = tuple(map(_shown, places, record.args))
        return True


@lru_cache(maxsize=1_024)
def _places(text: str) -> tuple[tuple[str, str], ...]:
    """Return for each argument of a text the character before it, and its conversion."""
    found = _PLACEHOLDER.findall(text)
    return tuple((before, letter) for before, letter in found if letter != "%")


def _shown(place: tuple[str, str], argument: object) -> object:
    before, letter = place
    if type(argument) in _NUMBERS or letter not in "sr":
        return argument
    try:
        text = repr(argument) if letter == "r" else str(argument)
    except Exception:  # noqa: BLE001 - a line of the log never fails its caller
        return argument
    if before == "\n":  # a traceback
        return _Shown("\n".join(map(printable, text.splitlines())))
    if letter == "s":
        return value(text) if before == "=" else printable(text)
    return _Shown(printable(text))


_PRINTABLE: Final = _Printable()


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
        OSError: the file cannot be opened.
    """
    handlers: list[logging.Handler] = []
    if path is not None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        file = LineHandler(os.open(path, flags, 0o666), owned=True)
        file.setLevel(level_number(path_level or level))
        handlers.append(file)
    if sys.__stderr__ is not None:  # else its descriptor was closed, and may be another file's
        console = LineHandler(stderr)
        console.setLevel(level_number(level))
        handlers.append(console)
    logging.getLogger(ROOT).setLevel(min((each.level for each in handlers), default=SILENT))
    for each in map(logging.getLogger, _DESTINED):
        each.propagate = False
        for handler in handlers:
            handler.setFormatter(LineFormatter())
            each.addHandler(handler)
    return handlers


def release(handlers: list[logging.Handler]) -> None:
    """Remove the handlers of ``configure`` and close the file, with all counted lines in it."""
    FLOODS.close()
    for each in map(logging.getLogger, _DESTINED):
        each.propagate = True
        for handler in handlers:
            each.removeHandler(handler)
    for handler in handlers:
        handler.close()
    logging.getLogger(ROOT).setLevel(logging.NOTSET)
