"""The writer of the transient store: carries out jobs on its thread.

Each job is all or nothing. *Write* appends contents to a segment and then puts them into the index,
*delete* deletes keys from the index and unlinks segments without live records, *collect* copies the live
records of the emptiest segment forward. Between jobs every key in the index lies in a segment, and
``Usage`` says how much of each is live.

Garbage. In a queue that drains a segment is soon without live records, and goes. Records that one slow
queue keeps among those of fast ones are copied forward, by RabbitMQ's rule: when there are more bytes than
twice a segment and more than half of them are garbage, the emptiest segment that is full is read, a slice
a job, and its live records are appended to the segment in use. So the disk holds at most twice the
live bytes, and two segments. A damaged record makes its segment stay until all that it holds is acked.

A full disk stops writing; the contents stay in RAM. A delete needs pages of the index before it makes
room, so writing leaves some of the disk free, and only a delete takes the ballast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Final

from leveret.core.entry import MESSAGE, SEQ, Entry
from leveret.core.log.loggers import logger
from leveret.core.system.files import Buffer
from leveret.core.system.shortage import is_disk_full, is_shortage
from leveret.msg_store.format.append_log import joined
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import HEADER_BYTES
from leveret.msg_store.format.record import HEADER_BYTES as RECORD_HEADER_BYTES
from leveret.msg_store.format.record import check_record, header_at, total_len_at, unpack_meta
from leveret.msg_store.format.record_encoding import encode_run
from leveret.msg_store.threads.worker import Steps
from leveret.msg_store.transient.index import Key, Place, TransientIndex
from leveret.msg_store.transient.paging_core import Collect, Delete, Job, Renew, Write
from leveret.msg_store.transient.segments import TransientSegments

COLLECT_BYTES: Final = 1024 * 1024  # how much of a segment one job reads
SHRINK_BYTES: Final = 64 * 1024 * 1024  # an empty index of this length is made anew
DELETE_KEYS: Final = 10_000  # how many keys of ranges one job looks at, in some 10 ms

_META_LEN_AT: Final = 24  # in the header of a record

log = logger(__name__)


class TransientWriter:
    """Carries out jobs. For one thread.

    Attributes:
        has_garbage: there was work for ``Collect`` after the last job.
    """

    def __init__(
        self, segments: TransientSegments, index: TransientIndex, ballast: Ballast
    ) -> None:
        self.segments = segments
        self.index = index
        self.has_garbage = False
        self._ballast = ballast
        self._extend, self._seed = segments.identity.extend, segments.identity.seed
        self._damaged: set[int] = set()  # segments that cannot be collected
        self._source = 0  # the segment that is being collected; 0: none
        self._source_at = 0  # up to where it has been

    def run(self, job: Job) -> Steps[list[int]]:
        """Carry out a job; return the segments that were unlinked.

        Raises:
            OSError: the job has changed nothing.
            IndexLost: no content on disk can be found any more.
        """
        match job:
            case Write():
                yield from self._write(job.contents)
            case Delete():
                yield from self._delete(job)
            case Collect():
                yield from self._collect()
            case Renew():
                yield from self._renew()
        unlinked, self.segments.unlinked = self.segments.unlinked, []
        self.has_garbage = self._victim() != 0
        return unlinked

    def _renew(self) -> Steps[None]:
        self.segments.wipe()
        yield "segments wiped"
        self._damaged.clear()
        self._source = 0
        self.index.renew()

    def _write(self, contents: Sequence[tuple[int, Entry]]) -> Steps[None]:
        self.segments.unlink_dead()  # an attempt that failed may have left one
        self.segments.check_room()
        buffers, lengths = self._encoded(contents)
        index = partial(self.index.write, contents)
        yield from self._append(joined(buffers), lengths, "contents written", index)
        yield "keys written"

    def _encoded(self, contents: Sequence[tuple[int, Entry]]) -> tuple[list[bytes], list[int]]:
        tags = {incarnation: (incarnation,) for incarnation, _ in contents}
        items = [(entry[SEQ], (entry[MESSAGE], tags[number])) for number, entry in contents]
        buffers: list[bytes] = []
        now_ms = self.segments.now_ms()
        return buffers, encode_run(items, now_ms, self._extend, self._seed, buffers, flags=0)

    def _append(
        self,
        buffers: Sequence[Buffer],
        lengths: Sequence[int],
        point: str,
        index: Callable[[list[Place]], None],
    ) -> Steps[None]:
        """Append records to a segment, yield ``point``, and call ``index`` with their places."""
        file_no, start = self.segments.append(buffers)
        yield point
        offsets = accumulate(lengths, initial=start)
        places = [(file_no, at, length) for at, length in zip(offsets, lengths, strict=False)]
        try:
            index(places)
        except OSError:
            self.segments.truncate(start)
            raise
        self.segments.add(places)

    def _delete(self, job: Delete) -> Steps[None]:
        try:
            places, job.left = self.index.delete(job.keys, job.ranges, DELETE_KEYS)
        except OSError as error:
            yield "shortage"
            may_be_full = is_disk_full(error) or not is_shortage(
                error
            )  # LMDB calls a full disk EIO
            if not may_be_full or not self._ballast.release(makes_room=True):
                raise
            places, job.left = self.index.delete(job.keys, job.ranges, DELETE_KEYS)
        self.segments.remove(places)
        yield "keys deleted"
        self.segments.unlink_dead()
        yield "unlinked"
        self._shrink()

    def _shrink(self) -> None:
        """Begin another index if this one is long and empty."""
        if self.segments.total.live or self.index.used_bytes <= SHRINK_BYTES:
            return
        try:
            self.index.renew()
        except OSError as error:
            log.info("the index of transients stays large: %s", error)

    # Garbage.

    def _victim(self) -> int:
        """Return the segment to collect; 0 when there is little garbage."""
        segments = self.segments
        if self._source in segments.usage:
            return self._source
        total = segments.total
        if total.size_bytes <= 2 * segments.file_bytes or 2 * total.live_bytes >= total.size_bytes:
            return 0
        shares = [
            (usage.live_bytes / usage.size_bytes, file_no)
            for file_no, usage in segments.usage.items()
            if usage.live and file_no != segments.current and file_no not in self._damaged
        ]
        share, file_no = min(shares, default=(1.0, 0))
        return file_no if share < 0.5 else 0

    def _collect(self) -> Steps[None]:
        """Copy the live records of a slice of a segment; unlink the segment after the last slice."""
        file_no = self._victim()
        if not file_no:
            return
        if self._source != file_no:
            self._source, self._source_at = file_no, HEADER_BYTES
        try:
            data, records = self._slice(file_no, self._source_at)
            yield "slice read"
            live = self._live(data, self._source_at, records)
        except (Corrupt, FileNotFoundError) as error:
            log.warning("a transient segment is not collected file_no=%08x: %s", file_no, error)
            self._damaged.add(file_no)
            self._source = 0
            return
        if live:
            yield from self._copy(data, self._source_at, live)
        self._source_at += len(data)
        if self._source_at >= self.segments.usage[file_no].size_bytes:
            self._source = 0
            if self.segments.usage[file_no].live:
                self._damaged.add(file_no)
        self.segments.unlink_dead()
        yield "unlinked"

    def _slice(self, file_no: int, offset: int) -> tuple[bytes, list[tuple[Key, Place]]]:
        """Return whole records from an offset on, and key and place of each."""
        left = self.segments.usage[file_no].size_bytes - offset
        with self.segments.open(file_no) as file:
            data = file.pread(min(COLLECT_BYTES, left), offset)
            if len(data) < left and (first := total_len_at(data)) > len(data):
                data = file.pread(first, offset)
        records: list[tuple[Key, Place]] = []
        incarnations: dict[bytes, int] = {}
        at = 0
        while len(data) - at >= RECORD_HEADER_BYTES:
            seq, length = header_at(data, at)
            if at + length > len(data):
                break
            key = _incarnation(data, at, incarnations), seq
            records.append((key, (file_no, offset + at, length)))
            at += length
        if not at:
            raise Corrupt(f"no record at offset {offset}")
        return data if at == len(data) else data[:at], records

    def _live(
        self, data: bytes, offset: int, records: list[tuple[Key, Place]]
    ) -> list[tuple[Key, Place]]:
        """Return the live records of a slice; ``Corrupt`` if one of them is damaged."""
        places = self.index.places([key for key, _ in records])
        live = [each for each, place in zip(records, places, strict=True) if each[1] == place]
        for _, (_, at, _) in live:
            check_record(data, self._extend, self._seed, at - offset)
        return live

    def _copy(self, data: bytes, offset: int, live: list[tuple[Key, Place]]) -> Steps[None]:
        keys, before = [key for key, _ in live], [place for _, place in live]
        view = memoryview(data)  # a copy of a large record would keep the interpreter's lock
        records = [view[at - offset : at - offset + length] for _, at, length in before]
        buffers = records if len(records) == 1 else [b"".join(records)]
        lengths = [length for _, _, length in before]
        yield from self._append(buffers, lengths, "copied", partial(self.index.move, keys))
        self.segments.remove(before)
        yield "moved"

    def close(self) -> None:
        self.segments.close()


def _incarnation(data: bytes, at: int, known: dict[bytes, int]) -> int:
    """Return the incarnation that a record names as its one queue."""
    meta_at = at + RECORD_HEADER_BYTES
    meta_len = int.from_bytes(data[at + _META_LEN_AT : at + _META_LEN_AT + 4], "little")
    meta = data[meta_at : meta_at + meta_len]
    incarnation = known.get(meta)
    if incarnation is None:
        incarnation = known[meta] = unpack_meta(meta).queue_nos[0]
    return incarnation
