"""The writer of the transient store: what its thread does, job by job.

Three kinds of jobs, each all or nothing: *write* appends contents to a segment and then puts them into
the index, *delete* takes keys out of the index and unlinks segments that have become empty, *collect*
copies what is still needed of the emptiest segment. Between jobs every key in the index lies in a
segment, and the accounts say what is needed of each.

Garbage. A segment goes when nothing in it is needed, which in a queue that drains is soon. What one slow
queue keeps among the messages of fast ones is copied forward, by RabbitMQ's rule: when there are more
bytes than twice a segment and more than half of them are garbage, the emptiest segment that was left is
read, a slice a job, and what is needed is appended to the segment in use. So the disk holds at most twice
what is needed, and two segments. A bad record in the way makes its segment stay until all that it holds
is acked.

A disk that is full stops writing; the contents are in RAM and stay there. A delete needs pages of the
index for making room, so writing leaves some of the disk, and only a delete takes the ballast.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

from leveret.core.files import Files
from leveret.core.message import Message
from leveret.msg_store.format.append_log import Reserve
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import HEADER_BYTES, Identity
from leveret.msg_store.format.record import HEADER_BYTES as RECORD_HEADER_BYTES
from leveret.msg_store.format.record import (
    decode_record,
    encode_run,
    header_at,
    total_len_at,
    unpack_meta,
)
from leveret.msg_store.threads.worker import Steps
from leveret.msg_store.transient.index import Content, Deleted, Doomed, Key, Place, TransientIndex
from leveret.msg_store.transient.segments import TransientSegments

COLLECT_BYTES: Final = 1024 * 1024  # of a segment that are gone through in one job
SHRINK_BYTES: Final = 64 * 1024 * 1024  # an empty index of this length is made anew
DELETE_KEYS: Final = 10_000  # of ranges, in one job; some 10 ms

_META_LEN_AT: Final = 24  # in the header of a record

log = logging.getLogger(__name__)


class Unwritten(NamedTuple):
    """A content that is to be written."""

    life: int
    seq: int
    message: Message
    msg_no: int
    size: int
    expiry_ms: int
    is_row: bool


class _Needed(NamedTuple):
    """A record that is copied forward."""

    key: Key
    place: Place
    record: bytes


@dataclass(slots=True)
class Write:
    """Contents to be written, and rows of contents that have been."""

    contents: list[Unwritten]
    rows: list[Key]


@dataclass(slots=True)
class Delete:
    """Keys and ranges to be deleted; ``left`` says afterwards what of the ranges is still to do."""

    keys: list[Key]
    ranges: list[Doomed]
    left: list[Doomed]


class TransientWriter:
    """Carries out jobs. For one thread.

    Args:
        files: reads segments.
        segments: appends to them.
        index: its writing half.
        identity: for checksums.
        reserve: the ballast.
        now_ms: wall time, for time stamps that nothing depends on.
    """

    def __init__(
        self,
        files: Files,
        segments: TransientSegments,
        index: TransientIndex,
        identity: Identity,
        reserve: Reserve,
        now_ms: Callable[[], int],
    ) -> None:
        self.segments = segments
        self.index = index
        self._files = files
        self._identity = identity
        self._reserve = reserve
        self._now_ms = now_ms
        self._bad: set[int] = set()  # segments with a bad record
        self._source = Place(0, 0, 0)  # what is being collected, and from where on; 0: nothing

    def renew(self) -> Steps[None]:
        """Begin with nothing.

        Raises:
            OSError: to be tried again.
        """
        self.segments.wipe()
        yield "segments wiped"
        self._bad.clear()
        self._source = Place(0, 0, 0)
        self.index.renew()

    def write(self, job: Write) -> Steps[None]:
        """Write contents, then their keys.

        Raises:
            OSError: nothing of it has happened.
            IndexLost: nothing that is on disk is of use any more.
        """
        contents: list[Content] = []
        start = -1
        self.segments.sweep()  # what an attempt that failed has left
        if job.contents:
            self.segments.check_room()
            buffers, lengths = self._encoded(job.contents)
            file_no, start = self.segments.append(buffers)
            yield "contents written"
            offsets = accumulate(lengths, initial=start)
            contents = [
                (each.life, each.seq, Place(file_no, offset, length), *each[3:])
                for each, offset, length in zip(job.contents, offsets, lengths, strict=False)
            ]
        try:
            self.index.write(contents, job.rows)
        except OSError:
            if contents:
                self.segments.forget_from(start)
            raise
        self.segments.keep([content[2] for content in contents])
        yield "keys written"

    def _encoded(self, contents: Sequence[Unwritten]) -> tuple[list[bytes], list[int]]:
        tags = {content.life: (content.life,) for content in contents}
        items = [(each.seq, (each.message, tags[each.life])) for each in contents]
        buffers: list[bytes] = []
        identity = self._identity
        lengths = encode_run(
            items, self._now_ms(), identity.extend, identity.seed, buffers, flags=0
        )
        return buffers, lengths

    def delete(self, job: Delete) -> Steps[None]:
        """Delete keys, and what a job's worth of ranges holds; unlink what became empty.

        Raises:
            OSError: nothing of it has happened.
            IndexLost: nothing that is on disk is of use any more.
        """
        try:
            deleted = self._deleted(job)
        except OSError:
            yield "full"
            if not self._reserve.release():
                raise
            deleted = self._deleted(job)
        job.left = deleted.left
        self.segments.release(deleted.places)
        yield "keys deleted"
        self.segments.sweep()
        yield "swept"
        self._shrink()

    def _shrink(self) -> None:
        """Begin another index if nothing is in the one that there is but what it once needed."""
        if self.segments.total.live or self.index.used_bytes <= SHRINK_BYTES:
            return
        try:
            self.index.renew()
        except OSError as error:
            log.info("the index of transients stays large: %s", error)

    def _deleted(self, job: Delete) -> Deleted:
        return self.index.delete(job.keys, job.ranges, DELETE_KEYS)

    # Garbage.

    @property
    def has_garbage(self) -> bool:
        """Whether there is something to ``collect``."""
        return self._victim() != 0

    def _victim(self) -> int:
        if self._source.file_no in self.segments.accounts:
            return self._source.file_no
        total = self.segments.total
        if total.size_bytes <= 2 * self.segments.file_bytes:
            return 0
        if 2 * total.live_bytes >= total.size_bytes:
            return 0
        in_use = self.segments.current
        shares = [
            (account.live_bytes / account.size_bytes, file_no)
            for file_no, account in self.segments.accounts.items()
            if file_no != in_use and file_no not in self._bad
        ]
        share, file_no = min(shares, default=(1.0, 0))
        return file_no if share < 0.5 else 0

    def collect(self) -> Steps[None]:
        """Copy what is needed of a slice of a segment; unlink the segment after the last one.

        Raises:
            OSError: the slice is where it was.
            IndexLost: nothing that is on disk is of use any more.
        """
        file_no = self._victim()
        if not file_no:
            return
        if self._source.file_no != file_no:
            self._source = Place(file_no, HEADER_BYTES, 0)
        offset = self._source.offset
        try:
            data, records = self._slice(file_no, offset)
            yield "slice read"
            needed = self._needed(file_no, offset, data, records)
        except (Corrupt, FileNotFoundError) as error:
            log.warning("a transient segment is not collected file_no=%08x: %s", file_no, error)
            self._bad.add(file_no)
            self._source = Place(0, 0, 0)
            return
        if needed:
            yield from self._copy(needed)
        end = offset + len(data)
        self._source = Place(file_no, end, 0)
        if end >= self.segments.accounts[file_no].size_bytes:
            self._source = Place(0, 0, 0)
            if self.segments.accounts[file_no].live:
                self._bad.add(file_no)
        self.segments.sweep()
        yield "swept"

    def _slice(self, file_no: int, offset: int) -> tuple[bytes, list[tuple[Key, Place]]]:
        """Return whole records from there on, and what each is."""
        size_bytes = self.segments.accounts[file_no].size_bytes
        with self._files.open_read(self.segments.path(file_no)) as file:
            data = file.pread(min(COLLECT_BYTES, size_bytes - offset), offset)
            if len(data) < size_bytes - offset:
                first = total_len_at(data)
                if first > len(data):
                    data = file.pread(first, offset)
        records: list[tuple[Key, Place]] = []
        lives: dict[bytes, int] = {}
        at = 0
        while len(data) - at >= RECORD_HEADER_BYTES:
            seq, length = header_at(data, at)
            if at + length > len(data):
                break
            records.append(((_life(data, at, lives), seq), Place(file_no, offset + at, length)))
            at += length
        if not at:
            raise Corrupt(f"no record at offset {offset}")
        return data[:at], records

    def _needed(
        self, file_no: int, offset: int, data: bytes, records: list[tuple[Key, Place]]
    ) -> list[_Needed]:
        found = self.index.places([key for key, _ in records])
        needed = []
        for key, place in records:
            if found.get(key) == place:
                at = place.offset - offset
                decode_record(data, self._identity.extend, self._identity.seed, at)
                needed.append(_Needed(key, place, data[at : at + place.length]))
        return needed

    def _copy(self, needed: list[_Needed]) -> Steps[None]:
        file_no, start = self.segments.append([each.record for each in needed])
        yield "copied"
        offsets = accumulate([each.place.length for each in needed], initial=start)
        after = [
            Place(file_no, offset, each.place.length)
            for each, offset in zip(needed, offsets, strict=False)
        ]
        try:
            self.index.move(zip([each.key for each in needed], after, strict=True))
        except OSError:
            self.segments.forget_from(start)
            raise
        self.segments.keep(after)
        self.segments.release([each.place for each in needed])
        yield "moved"

    def close(self) -> None:
        """Let the files go."""
        self.segments.close()


def _life(data: bytes, at: int, lives: dict[bytes, int]) -> int:
    """Return the life that a record names as its one queue."""
    meta_at = at + RECORD_HEADER_BYTES
    meta_len = int.from_bytes(data[at + _META_LEN_AT : at + _META_LEN_AT + 4], "little")
    meta = data[meta_at : meta_at + meta_len]
    life = lives.get(meta)
    if life is None:
        life = lives[meta] = unpack_meta(meta).queue_nos[0]
    return life
