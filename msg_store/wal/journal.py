"""The journal, the loop's half: frames, their numbers and their chain.

One journal serves all queues of a store, so a flush costs one sync however many queues it touches. A
new file begins when the file in use has reached the limit, or when the memtables are rotated (``switch``).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from leveret.msg_store.format import file_header
from leveret.msg_store.format.append_log import NO_FILE, Job, LogEnd, Part
from leveret.msg_store.format.file_header import Identity
from leveret.msg_store.format.journal_frames import DurablePosition, encode_frame

FILE_BYTES: Final = 64 * 1024 * 1024
AHEAD_BYTES_MAX: Final = 4 * 1024 * 1024  # of room in the file in use


class JournalEnd(NamedTuple):
    """The position at which the journal is continued."""

    place: LogEnd
    next_lsn: int
    prev_crc: int


class Journal:
    """Makes frames and the jobs that write them; a file takes no frame any more when it has ``file_bytes``.

    ``flags`` are those of its first file.

    Attributes:
        next_file_no: above all numbers of files that were ever used.
        end: where the next frame goes.
    """

    def __init__(
        self,
        identity: Identity,
        next_file_no: int,
        next_lsn: int,
        file_bytes: int = FILE_BYTES,
        flags: int = 0,
    ) -> None:
        self._identity = identity
        self._extend, self._seed = identity.extend, identity.seed
        self._file_bytes = file_bytes
        self._flags = flags
        self.next_file_no = next_file_no
        self.end = JournalEnd(LogEnd(NO_FILE, 0), next_lsn, 0)
        self._is_switching = False
        self.bytes_since_switch = self.records_since_switch = 0

    def rewind(self, end: JournalEnd) -> None:
        """Go back to an earlier ``end``; numbers of files are not used again."""
        began = self.end.place.file_no != end.place.file_no
        self._is_switching |= began and end.place.file_no != NO_FILE
        self.end = end

    def switch(self) -> None:
        self._is_switching = True
        self.bytes_since_switch = self.records_since_switch = 0

    def job(
        self,
        records: list[bytes],
        durable: DurablePosition,
        now_ms: int,
        makes_room: bool = False,
    ) -> Job:
        """Make one frame of records, if any, that states how far everything was durable."""
        start = self.end.place
        header = self._header_if_full(now_ms)
        place, lsn, prev_crc = self.end
        frame, crc = encode_frame(records, lsn, prev_crc, durable, self._extend, self._seed)
        place = LogEnd(place.file_no, place.offset + len(frame))
        self.end = JournalEnd(place, lsn + len(records), crc)
        self.bytes_since_switch += len(frame)
        self.records_since_switch += len(records)
        parts = (Part(place.file_no, header, (frame,)),)
        return Job(start, place, parts, makes_room=makes_room)

    def _header_if_full(self, now_ms: int) -> bytes | None:
        place, lsn, _ = self.end
        is_full = place.offset >= self._file_bytes
        if place.file_no != NO_FILE and not is_full and not self._is_switching:
            return None
        self._is_switching = False
        file_no = self.next_file_no
        self.next_file_no += 1
        magic, flags, self._flags = file_header.JOURNAL_MAGIC, self._flags, 0
        header = self._identity.header(magic, file_no, now_ms, lsn, flags)
        place = LogEnd(file_no, len(header))
        self.end = JournalEnd(place, lsn, chain_start(header))
        return header


def chain_start(header: bytes) -> int:
    """Return the ``prev_crc`` of the first frame behind a file header."""
    return int.from_bytes(header[-4:], "little")
