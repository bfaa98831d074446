"""Text from outside as logs and lists show it: on one line, without control of the terminal.

Names are chosen by clients. A line break in a name would forge a log line, ESC and the C1 controls change
the terminal of its reader, and marks of writing direction reorder the text on its screen.
"""

from __future__ import annotations

from typing import Final

VALUE_CHARACTERS_MAX: Final = 512  # of one value in a log line; every name of AMQP is shorter

_ELLIPSIS: Final = "..."


def printable(text: str) -> str:
    r"""Escape the characters of a text that are not printable: ``\x1b``, ``\u202e``, ``\udcff``."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "backslashreplace").decode()
        for each in text
    )


def value(text: str) -> str:
    """Return a text as the value of ``key=value``: printable, and quoted if it could be taken for more."""
    if len(text) > VALUE_CHARACTERS_MAX:
        text = text[: VALUE_CHARACTERS_MAX - len(_ELLIPSIS)] + _ELLIPSIS
    if text.isprintable() and text and not any(each in text for each in ' "=\\'):
        return text
    return '"' + printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'
