"""The reader of the transient store: rows and contents, on a thread of its own.

What it is asked for was live then; while it reads, it may be acked and its segment unlinked. So it leaves out what it
could not read, and whether that is *lost* is for the loop to decide. A shortage, or a disk that refuses, says
nothing about a message: that is an ``OSError``.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from leveret.core.entry import SEQ
from leveret.core.limits import DESCRIPTORS_OF_TRANSIENT_SEGMENTS
from leveret.core.log.loggers import logger
from leveret.core.message import Message
from leveret.core.system.shortage import reason_no
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.format.record import Place
from leveret.msg_store.reading.segments import PASSING, SegmentReader
from leveret.msg_store.threads.worker import Steps
from leveret.msg_store.transient.segment import (
    FIELDS,
    PLACE,
    ROW,
    ROW_BITS,
    ROW_BYTES,
    ROWS,
    ROWS_AT,
    Fields,
    Row,
)

log = logger(__name__)


@dataclass(slots=True)
class Contents:
    """The result of a read, by position; a content that could not be read is missing."""

    messages: dict[int, Message]
    fields: dict[int, Fields]


class TransientReader:
    """Reads. For one thread.

    Jobs raise ``OSError`` when descriptors or memory are exhausted, or the disk refuses: they are to be tried again.
    """

    def __init__(self, paths: StorePaths) -> None:
        self._segments = SegmentReader(paths, DESCRIPTORS_OF_TRANSIENT_SEGMENTS)

    def rows(self, positions: Iterable[int]) -> Steps[dict[int, Row]]:
        """Read rows of one queue; return them by seq."""
        fields = self._fields(positions)
        yield "rows read"
        return {each[SEQ]: each[ROW] for each in fields.values()}

    def fields(self, positions: Iterable[int]) -> Steps[dict[int, Fields]]:
        """Read rows, whether their messages are live or not; return them by position."""
        fields = self._fields(positions)
        yield "rows read"
        return fields

    def contents(self, positions: Iterable[int]) -> Steps[Contents]:
        """Read contents, and their rows."""
        fields = self._fields(positions)
        yield "looked up"
        places: list[Place] = [(at >> ROW_BITS, *each[PLACE]) for at, each in fields.items()]
        outcome = self._segments.read([*fields], places)
        if outcome.why_put_off is not None:
            raise _put_off(outcome.why_put_off) from outcome.why_put_off
        for why in [*outcome.failures.values()][:1]:
            log.debug("transients cannot be read count=%d: %s", len(outcome.failures), why)
        yield "contents read"
        return Contents(outcome.messages, fields)

    def _fields(self, positions: Iterable[int]) -> dict[int, Fields]:
        """Return the rows at these positions, ascending, as far as they can be read."""
        found: dict[int, Fields] = {}
        ascending = sorted(positions)
        at = 0
        while at < len(ascending):
            end = _end_of_run(ascending, at)
            data = self._bytes_at(ascending[at], end - at)
            found.update(zip(ascending[at:end], FIELDS.iter_unpack(data), strict=False))
            at = end
        return found

    def _bytes_at(self, position: int, count: int) -> bytes:
        """Return so many rows; no bytes if they cannot be read, now or later."""
        file_no, offset = position >> ROW_BITS, ROWS_AT + (position & ROWS - 1) * ROW_BYTES
        try:
            data = self._segments.segment(file_no).bytes_at(offset, count * ROW_BYTES)
        except (OSError, MemoryError) as error:
            self._segments.forget(file_no)
            if reason_no(error) in PASSING:
                raise _put_off(error) from error
            data = b""
        if len(data) < count * ROW_BYTES:
            log.debug("rows of transients cannot be read file_no=%08x", file_no)
            return b""
        return data

    def forget(self, file_nos: Iterable[int]) -> Steps[None]:
        """Close segments: their space is given back when the last descriptor is."""
        for file_no in file_nos:
            self._segments.forget(file_no)
        yield "forgotten"

    def close(self) -> None:
        self._segments.close()


def _put_off(error: Exception) -> OSError:
    return OSError(errno.EAGAIN, f"transients cannot be read now: {error}")


def _end_of_run(ascending: list[int], at: int) -> int:
    """Return up to where positions follow each other in one file."""
    first = ascending[at]
    low, high = at + 1, bisect_left(ascending, ((first >> ROW_BITS) + 1) << ROW_BITS, at)
    while low < high:
        middle = (low + high + 1) // 2
        if ascending[middle - 1] - first == middle - 1 - at:
            low = middle
        else:
            high = middle - 1
    return low
