"""The output of a program, line by line."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LINE_BYTES_MAX: Final = 64 * 1024  # a longer one is cut into several


class Lines(asyncio.Protocol):
    """Cuts the output of a pipe into lines.

    Args:
        take: called with each line, without its end; bytes that are not UTF-8 are escaped.
        done: called once when the pipe is at its end.
    """

    def __init__(self, take: Callable[[str], None], done: Callable[[], None]) -> None:
        self._take = take
        self._done = done
        self._rest = b""
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        """Hand over the lines that have become whole."""
        *lines, rest = (self._rest + data).split(b"\n")
        while len(rest) > LINE_BYTES_MAX:
            lines.append(rest[:LINE_BYTES_MAX])
            rest = rest[LINE_BYTES_MAX:]
        self._rest = rest
        for line in lines:
            self._take(_text(line))

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand over the last line, if it had no end."""
        if self._rest:
            self._take(_text(self._rest))
        self._done()


def _text(line: bytes) -> str:
    return line.rstrip(b"\r").decode(errors="backslashreplace")
