"""Floods of log lines: equal lines are counted, not repeated.

Clients cause lines, and a client in a loop causes a hundred thousand in a minute. So each event (a logger and
its text before the arguments) has a number of lines per window of ten seconds, of which one source (an
address, see ``SOURCE``) gets a part; that leaves room for the lines about other clients. Further lines are
counted, and the window ends with one line for each event::

    connection refused repeated=16680 in_s=10

A thread that lives no longer than the window writes these lines when a flood ends with silence; without
a flood there is none. ``close`` writes them at once, for the end of a broker. Memory is bounded: texts are
constants of the code, and sources beyond those with lines are not remembered.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

WINDOW_S: Final = 10.0
LINES_MAX: Final = 100  # of one event in a window
SOURCE_LINES_MAX: Final = 20  # of these for one source
EVENTS_MAX: Final = 1_000

SOURCE: Final = "source"
"""The attribute of a record (``extra``) that names the source of a line."""
_REPEATED: Final = "repeated"
_END_S: Final = 1.0  # for a thread that has nothing more to do


class PendingCall(Protocol):
    """A call that is due later."""

    def cancel(self) -> None: ...

    def join(self, timeout: float) -> None:
        """Wait until a cancelled call has no thread any more."""


def _call_later(delay_s: float, call: Callable[[], None]) -> PendingCall:
    timer = threading.Timer(delay_s, call)
    timer.daemon = True
    timer.start()
    return timer


@dataclass(slots=True)
class _Count:
    """The lines of one event in this window; the next window has the same object.

    Attributes:
        level: the highest of the suppressed lines.
    """

    level: int = logging.NOTSET
    written: int = 0
    suppressed: int = 0
    sources: dict[str, int] = field(default_factory=dict)

    def start_anew(self) -> None:
        self.level = logging.NOTSET
        self.written = self.suppressed = 0
        self.sources.clear()


class Floods(logging.Filter):
    """Counts lines; attached to the loggers, so that it works under any handlers.

    Args:
        now_s: the clock.
        call_later: has the summary written when the window ends without a line.
    """

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        call_later: Callable[[float, Callable[[], None]], PendingCall] = _call_later,
    ) -> None:
        super().__init__()
        self._now_s = now_s
        self._call_later = call_later
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], _Count] = {}
        self._began_s = now_s()
        self._pending: PendingCall | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is to be written."""
        if hasattr(record, _REPEATED):
            return True
        now_s = self._now_s()
        if now_s - self._began_s >= WINDOW_S or len(self._counts) >= EVENTS_MAX:
            self.flush()
        with self._lock:
            return self._is_written(record, now_s)

    def _is_written(self, record: logging.LogRecord, now_s: float) -> bool:
        count = self._counts.get((record.name, record.msg))
        if count is None:
            count = self._counts[record.name, record.msg] = _Count()
        source = getattr(record, SOURCE, None)
        written = count.sources.get(source, 0) if source is not None else 0
        if count.written < LINES_MAX and written < SOURCE_LINES_MAX:
            count.written += 1
            if source is not None:
                count.sources[source] = written + 1
            return True
        count.suppressed += 1
        count.level = max(count.level, record.levelno)
        if self._pending is None:
            with suppress(RuntimeError):  # no thread is left; the next line writes the summary
                self._pending = self._call_later(self._began_s + WINDOW_S - now_s, self.flush)
        return False

    def close(self) -> None:
        """End the window, and leave no thread behind; for the end of a broker."""
        pending = self._pending
        self.flush()
        if pending is not None:
            pending.join(_END_S)

    def flush(self) -> None:
        """End the window: write what was counted, and begin a new one."""
        with self._lock:
            ended = [
                (name, text, count.level, count.suppressed)
                for (name, text), count in self._counts.items()
                if count.suppressed
            ]
            if len(self._counts) >= EVENTS_MAX:
                self._counts.clear()
            for count in self._counts.values():
                count.start_anew()
            began_s, self._began_s = self._began_s, self._now_s()
            pending, self._pending = self._pending, None
        if pending is not None:
            pending.cancel()
        for name, text, level, suppressed in ended:
            _write(name, text, level, suppressed, max(1, round(self._began_s - began_s)))


def _write(name: str, text: str, level: int, suppressed: int, seconds: int) -> None:
    log = logging.getLogger(name)
    words = f"{_event(text)} repeated=%d in_s=%d"
    extra = {_REPEATED: suppressed}
    log.handle(log.makeRecord(name, level, "", 0, words, (suppressed, seconds), None, extra=extra))


def _event(text: str) -> str:
    """Return the words of a line before its first argument."""
    words, percent, _ = text.partition("%")
    if not percent:
        return text
    return words.rpartition(" ")[0].rstrip(":") or "line"
