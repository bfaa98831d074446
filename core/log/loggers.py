"""The loggers of all modules.

Modules log with ``%s`` arguments and write their ``key=value`` after the text themselves. ``logger`` returns
their loggers with two filters, so that both rules hold under any handlers, also those of a service that embeds
a broker and sets up logging itself:

- equal lines in a flood are counted (``floods``);
- values from outside are printable (``core.printable``): no name can forge a line or control a terminal.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Final

from leveret.core.log.floods import Floods
from leveret.core.printable import printable, value

FLOODS: Final = Floods()
LOG_LEVELS: Final = ("debug", "info", "warning", "error", "critical", "none")

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
            befores, letters = _places(record.msg)
            if len(letters) == len(record.args):
                record.args = tuple(map(_shown, befores, letters, record.args))
        return True


@lru_cache(maxsize=1_024)
def _places(text: str) -> tuple[str, str]:
    """Return the character before each argument of a text, a blank for most, and each conversion."""
    found = [place for place in _PLACEHOLDER.findall(text) if place[1] != "%"]
    return "".join(before or " " for before, _ in found), "".join(letter for _, letter in found)


def _shown(before: str, letter: str, argument: object) -> object:
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
