"""All output of the command line: in UTF-8, with the control characters of clients' names escaped.

Queues, users and errors carry names that clients chose. ESC and the C1 controls in a name would change the
operator's terminal, marks of writing direction the order of the text. Line breaks and tabs are the layout of the
output, so a text that has them in a cell escapes them before (``formats``).
"""

from __future__ import annotations

import io
import os
import re
import sys
from typing import Final, TextIO

from leveret.core.printable import printable

_LAYOUT: Final = re.compile(r"([\n\t]+)")
_UTF8_MODE: Final = ["-X", "utf8"]


def use_utf8() -> None:
    """Read and write UTF-8, as rabbitmqctl does, whatever the locale and PYTHONIOENCODING say.

    Otherwise a name or path with a letter that the locale lacks would end the command with a traceback.
    """
    for stream, errors in (
        (sys.stdin, "surrogateescape"),
        (sys.stdout, "backslashreplace"),
        (sys.stderr, "backslashreplace"),
    ):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)


def enter_utf8_mode() -> None:
    """Restart the process in Python's UTF-8 mode if its locale is not UTF-8, for arguments and paths in UTF-8."""
    is_utf8 = sys.getfilesystemencoding() == "utf-8"
    if not is_utf8 and sys.executable and sys.orig_argv[1:3] != _UTF8_MODE:
        os.execv(sys.executable, [sys.executable, *_UTF8_MODE, *sys.orig_argv[1:]])


class OutputClosedError(Exception):
    """The reader of the output has closed it (``leveret perf | head -1``): the command ends. Not an OSError."""

    def __str__(self) -> str:
        return "standard output is closed"


class OutputFailedError(Exception):
    """The output cannot be written; the text says why."""


def show(text: object, *, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print a text with all characters escaped that are not printable, but for line breaks and tabs.

    Raises:
        OutputClosedError: the reader has closed the output.
    """
    to = file if file is not None else sys.stdout
    try:
        print(laid_out(str(text)), end=end, file=to, flush=flush)
    except BrokenPipeError as error:
        raise OutputClosedError from error


def flush_output() -> None:
    """Flush stdout while an error can be handled: at the interpreter's end the error would print a traceback.

    Raises:
        OutputClosedError: the reader has closed the output.
        OutputFailedError: the output cannot be written, for instance to a full disk.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError as error:
        raise OutputClosedError from error
    except OSError as error:
        raise OutputFailedError(f"standard output cannot be written: {error.strerror}") from error


def drop_output() -> None:
    """Discard the rest of the output: its reader has closed the pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def laid_out(text: str) -> str:
    """Return what ``show`` prints."""
    parts = _LAYOUT.split(text)
    return "".join(part if place % 2 else printable(part) for place, part in enumerate(parts))
