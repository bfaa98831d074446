"""Segments, the loop's half: where each message will lie.

Places are given when a flush starts and hold for ever: a segment that was left is sealed, and bytes
once synced never change (the collector copies them into new files). A segment is left when its length
has reached the limit, so it may be longer by one record, or before a snapshot (``roll``).

A failed flush gives its places back (``rewind``): the next one writes over them.

A few small records go *inline*: the journal's frame has their bytes as well, and the segment is
written without a sync. A confirm waits for one sync instead of two, which a publisher that
waits for each confirm notices. The file owes the sync until a job syncs it, or the checkpoint does
(``take_owed``) before the index says that they lie there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from leveret.msg_store.format import file_header
from leveret.msg_store.format.append_log import NO_FILE, Job, LogEnd, Part, joined
from leveret.msg_store.format.file_header import Identity
from leveret.msg_store.format.record import Unwritten
from leveret.msg_store.format.record_encoding import encode_run
from leveret.msg_store.format.rows import Location

FILE_BYTES: Final = 64 * 1024 * 1024
INLINE_BYTES_MAX: Final = 16 * 1024  # more is cheaper synced than written twice

_BUFFERS_PER_RECORD: Final = 3


class SegmentWriter:
    """Gives places to messages and makes the jobs that put them there.

    Args:
        file_bytes: when to begin a new file.
        inline_bytes_max: up to which the records of a flush go inline.

    Attributes:
        place: where the next record goes, unless the file is full.
        next_file_no: above all numbers that were ever used.
    """

    def __init__(
        self,
        identity: Identity,
        next_file_no: int,
        file_bytes: int = FILE_BYTES,
        inline_bytes_max: int = INLINE_BYTES_MAX,
    ) -> None:
        self._identity = identity
        self._extend, self._seed = identity.extend, identity.seed
        self._file_bytes = file_bytes
        self._inline_bytes_max = inline_bytes_max
        self._owed: set[int] = set()
        self.place = LogEnd(NO_FILE, 0)
        self.next_file_no = next_file_no
        self._is_rolling = False
        self._rolled_at: LogEnd | None = None

    @property
    def reached(self) -> LogEnd:
        """The end of all places given; with no file in use yet, the begin of the first file to come."""
        return self.place if self.place.file_no else LogEnd(self.next_file_no, 0)

    def take_file_no(self) -> int:
        """Give a number away; the collector's segments are numbered with all others."""
        file_no, self.next_file_no = self.next_file_no, self.next_file_no + 1
        return file_no

    def rewind(self, place: LogEnd) -> None:
        """Take back the places that were given since ``place``; numbers of files are not used again."""
        self._is_rolling |= place == self._rolled_at
        self.place = place

    def take_owed(self) -> frozenset[int]:
        """Return the files with inline records, once; the caller has to sync them."""
        owed = frozenset(self._owed)
        self._owed.clear()
        return owed

    def roll(self) -> None:
        """Begin a new file with the next message; the file in use is not written any more."""
        self._is_rolling = self.place.file_no != NO_FILE

    def job(self, items: Sequence[Unwritten], now_ms: int) -> tuple[Job, dict[int, Location]]:
        """Place messages one behind the other; return the job, and each message's place by number, with one row."""
        start = self.place
        if not items:
            return Job(start, start), {}
        buffers: list[bytes] = []
        lengths = encode_run(items, now_ms, self._extend, self._seed, buffers)
        place = self._place_one if len(items) == 1 else self._place_all
        parts, locations = place(items, lengths, buffers, now_ms)
        job = Job(start, self.place, parts, self._may_be_inline(parts))
        if job.is_inline:
            self._owed.add(parts[0].file_no)
        return job, locations

    def _place_one(
        self, items: Sequence[Unwritten], lengths: list[int], buffers: list[bytes], now_ms: int
    ) -> tuple[list[Part], dict[int, Location]]:
        """Place one message, as ``_place_all``: for a publisher that waits for each confirm."""
        header = self._header_if_full(now_ms)
        file_no, offset = self.place
        self.place = LogEnd(file_no, offset + lengths[0])
        msg_no, (message, _) = items[0]
        location = file_no, offset, lengths[0], len(message[2]), 1
        return [Part(file_no, header, joined(buffers))], {msg_no: location}

    def _place_all(
        self, items: Sequence[Unwritten], lengths: list[int], buffers: list[bytes], now_ms: int
    ) -> tuple[list[Part], dict[int, Location]]:
        parts: list[Part] = []
        locations: dict[int, Location] = {}
        first = 0
        while first < len(items):
            header = self._header_if_full(now_ms)
            file_no, offset = self.place
            offsets = list(accumulate(lengths[first:], initial=offset))
            # offsets[i] is where item first + i begins; items at the limit go to the next file
            count = max(1, bisect_left(offsets, self._file_bytes, 0, len(offsets) - 1))
            last = first + count
            cut = slice(first * _BUFFERS_PER_RECORD, last * _BUFFERS_PER_RECORD)
            parts.append(Part(file_no, header, joined(buffers[cut])))
            for (msg_no, (message, _)), at, length in zip(
                items[first:last], offsets, lengths[first:last], strict=False
            ):
                locations[msg_no] = (file_no, at, length, len(message[2]), 1)
            self.place = LogEnd(file_no, offsets[count])
            first = last
        return parts, locations

    def _may_be_inline(self, parts: list[Part]) -> bool:
        """Tell whether all records lie in a file that is in use, and are few bytes."""
        return (
            len(parts) == 1
            and parts[0].header is None
            and sum(map(len, parts[0].buffers)) <= self._inline_bytes_max
        )

    def _header_if_full(self, now_ms: int) -> bytes | None:
        is_full = self.place.offset >= self._file_bytes
        if self.place.file_no != NO_FILE and not is_full and not self._is_rolling:
            return None
        if self._is_rolling:
            self._rolled_at, self._is_rolling = self.place, False
        file_no = self.take_file_no()
        self.place = LogEnd(file_no, file_header.HEADER_BYTES)
        return self._identity.header(file_header.RDQ_MAGIC, file_no, now_ms)
