"""The one way of the command line to stdout and stderr: no name of a client reaches the terminal raw.

Queues, users and errors carry names that clients chose. ESC and the C1 controls in a name would change the
operator's terminal, marks of writing direction the order of the text. Line breaks and tabs are the layout of the
output, so a text that has them in a cell escapes them before (``formats``).
"""

from __future__ import annotations

import re
import sys
from typing import Final, TextIO

from leveret.core.printable import printable

_LAYOUT: Final = re.compile(r"([\n\t]+)")


def show(text: object, *, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print a text with all characters escaped that are not printable, but for line breaks and tabs."""
    print(laid_out(str(text)), end=end, file=file if file is not None else sys.stdout, flush=flush)


def laid_out(text: str) -> str:
    """Return what ``show`` prints."""
    parts = _LAYOUT.split(text)
    return "".join(part if place % 2 else printable(part) for place, part in enumerate(parts))
