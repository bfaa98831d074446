"""Counting the shares of a segment's queues from the segment: the collector's step for the archive.

While queues are archived, shares are counted as messages are written (``archive.Archive.written``), and the collector
saves them when the segment is sealed. Read again are only segments without such a file: those that were in use when
the archive began, or at a crash, and the collector's copies.

Headers and metas are read, bodies are passed over where they are large. Checksums are not compared: shares decide how
long a segment stays, and a damaged record is still found by whoever reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leveret.core.system.files import File
from leveret.msg_store.archive.archive import OFFSET_MAX
from leveret.msg_store.archive.segment_shares import SegmentShares, load_shares, save_shares
from leveret.msg_store.format import record
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import HEADER_BYTES, MOVED, RDQ_MAGIC, decode_header
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.format.record import queue_no_of, stamp_at, unpack_meta
from leveret.msg_store.gc.scan import TURN, TURN_RECORDS, behind_damage
from leveret.msg_store.threads.worker import Steps

_BLOCK_BYTES: Final = 256 * 1024


@dataclass(slots=True)
class Survey:
    """A segment whose shares are wanted, or are to be saved.

    Attributes:
        shares: None: they are read from the file beside the segment, or counted.
        is_settled: nothing in the segment is needed, also as the index has it.
        end: where its records end; a crash may have left more bytes.
    """

    file_no: int
    shares: SegmentShares | None
    is_settled: bool
    end: int = OFFSET_MAX


def survey(folder: StoreFolder, wanted: Survey) -> Steps[None]:
    """Find the shares of a segment and save them, if the file beside it does not say the same."""
    shares = wanted.shares if wanted.shares is not None else load_shares(folder, wanted.file_no)
    if shares is None:
        shares = SegmentShares()
        yield from _count(folder, wanted, shares)
    if wanted.is_settled and not shares.is_settled:
        shares.is_settled, shares.is_saved = True, False
    wanted.shares = shares
    yield "surveyed"
    if not shares.is_saved:
        save_shares(folder, wanted.file_no, shares)
        shares.is_saved = True
        yield "shares saved"


def _count(folder: StoreFolder, wanted: Survey, shares: SegmentShares) -> Steps[None]:
    with folder.files.open_read(folder.rdq_path(wanted.file_no)) as file:
        try:
            header = decode_header(file.pread(HEADER_BYTES, 0), RDQ_MAGIC, folder.uuid)
        except Corrupt:  # its records can be found all the same
            shares.is_copy = False
        else:
            shares.is_copy = bool(header.flags & MOVED)
        counting, offset, end = _Counting(shares), HEADER_BYTES, min(file.size_bytes(), wanted.end)
        while offset < end:
            before = counting.records
            while offset < end and counting.records - before < TURN_RECORDS:
                offset = counting.block(file, offset, end)
            yield TURN


class _Counting:
    """Counts records block by block; messages in a row have the same meta, as a rule."""

    def __init__(self, shares: SegmentShares) -> None:
        self.records = 0
        self._shares = shares
        self._meta = b""
        self._queue_nos: tuple[int, ...] = ()

    def block(self, file: File, start: int, end: int) -> int:
        """Count the records whose headers and metas lie in a block; return where the next begins."""
        data = file.pread(min(_BLOCK_BYTES, end - start), start)
        at = 0
        while at + record.HEADER_BYTES <= len(data):
            try:
                ts_ms, total_len, meta_len = stamp_at(data, at)
            except Corrupt:
                at = behind_damage(data, at)
                continue
            meta_at = at + record.HEADER_BYTES
            meta = data[meta_at : meta_at + meta_len]
            if len(meta) < meta_len:
                if at:
                    break  # the next block begins with this record
                meta = file.pread(meta_len, start + meta_at)
            self._add(meta, total_len, ts_ms, start + at + total_len)
            at += total_len
        return start + at if at else end

    def _add(self, meta: bytes, total_len: int, ts_ms: int, end: int) -> None:
        self.records += 1
        if meta != self._meta:
            try:
                queue_nos = unpack_meta(meta).queue_nos
            except Corrupt:
                return
            self._meta, self._queue_nos = meta, tuple(map(queue_no_of, queue_nos))
        for queue_no in self._queue_nos:
            self._shares.add(queue_no, 1, total_len, ts_ms, end)
