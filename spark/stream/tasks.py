"""The work of a task of a stream: pieces of segments, decoded. Executors run it; it opens segments, and no index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from leveret.core.errors import StoreError
from leveret.core.log.loggers import logger
from leveret.msg_store.archive.archive import Ranges
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.record import HEADER_BYTES, total_len_at
from leveret.spark.errors import DataLoss
from leveret.spark.scan.batches import BatchSettings, open_batches
from leveret.spark.scan.gather import Numbers
from leveret.spark.scan.locators import UNKNOWN
from leveret.spark.scan.plan import Slice, StoreRef
from leveret.spark.scan.routed_rows import routed_rows
from leveret.spark.scan.segment import Segment
from leveret.spark.stream.archived_store import archive_of
from leveret.spark.stream.losses import is_lost
from leveret.spark.stream.offsets import Range
from leveret.spark.stream.walking import Places, places_of

log = logger(__name__)

_TAIL_BYTES: Final = 16  # of a record that are zeros if its last page was not written


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a segment that a task reads.

    Attributes:
        path: of the store.
        queues: names of the wanted queues, by the number in routes.
        torn: of the segment, as ``archive.json`` has them.
    """

    path: str
    uuid: bytes
    node: str
    vhost: str
    queues: Mapping[int, str]
    part: Range
    torn: Ranges

    @property
    def where(self) -> str:
        return f"segment {self.part.segment:08x} of vhost '{self.vhost}' ({self.path})"

    def ref(self, names: dict[int, str]) -> StoreRef:
        return StoreRef(self.path, "", self.uuid, self.vhost, self.node, names, None)

    def open(self) -> Segment:
        """Open the segment; FileNotFoundError, Corrupt: as ``Segment``."""
        return Segment(self.ref({}).segment_path(self.part.segment), self.uuid)


def read_piece(piece: Piece, settings: BatchSettings) -> Iterator[Any]:
    """Yield the record batches of a piece, none of them empty.

    Raises:
        DataLoss: the segment was freed, or a record is damaged, and that is to be an error.
        StoreError: ``archive.json`` is damaged, or a power cut has left zeros and the broker has not started since.
    """
    try:
        segment = piece.open()
    except FileNotFoundError:
        if lost := gone(piece):
            report(lost, settings.fail_on_data_loss)
        return
    except Corrupt as error:
        report(f"{piece.where} cannot be read: {error}", settings.fail_on_data_loss)
        return
    with segment:
        yield from _Reader(piece, segment, settings).batches()


def gone(piece: Piece) -> str:
    """Return what is lost with a segment that is gone; empty if it had no record of the queues."""
    part = piece.part
    if not is_lost(archive_of(Path(piece.path)), piece.queues, part.segment, part.low):
        return ""
    return (
        f"{piece.where} is gone: messages of the queues {', '.join(sorted(piece.queues.values()))} in it were freed"
        " before they were read; read more often, or keep them for longer with the policy replay-retention"
    )


def report(lost: str, is_error: bool) -> None:
    """Raise ``DataLoss``, or log it where the stream is to go on without."""
    if is_error:
        raise DataLoss(f"{lost}; with failOnDataLoss=false the stream goes on behind it")
    log.warning("archived messages lost: %s", lost)


class _Reader:
    """Reads one piece."""

    def __init__(self, piece: Piece, segment: Segment, settings: BatchSettings) -> None:
        self._piece = piece
        self._segment = segment
        self._settings = settings
        self._decoding = replace(settings, verify_crc=False)  # all records are checked before

    def batches(self) -> Iterator[Any]:
        piece, segment = self._piece, self._segment
        at = Slice(piece.part.segment, segment.size_bytes)
        for found in places_of(segment, piece.part, piece.torn, self._damaged):
            places, headers = self._sound(found)
            rows = routed_rows(segment, places.offsets, headers)
            if rows.metas.rows.bad.any():
                self._report_all(places, rows.metas.rows.bad, "its meta is damaged")
            rows = rows.where(np.isin(rows.queue_nos, sorted(piece.queues)))
            if not len(rows.record):
                continue
            columns = rows.columns(places.offsets, places.lengths, headers, UNKNOWN)
            names = _names(columns["queue_no"], rows.queue_nos, piece.queues)
            made = open_batches(piece.ref(names), at, segment, columns, self._decoding)
            yield from (batch for batch, _ in made)

    def _sound(self, places: Places) -> tuple[Places, Any]:
        headers = self._segment.headers(places.offsets)
        if not self._settings.verify_crc:
            return places, headers
        is_right = self._segment.checked(headers, places.offsets)
        if is_right.all():
            return places, headers
        self._report_all(places, ~is_right, "its checksum is wrong")
        return places.where(is_right), headers[is_right]

    def _report_all(self, places: Places, bad: Numbers, why: str) -> None:
        for offset in places.offsets[bad].tolist():
            self._damaged(offset, why)

    def _damaged(self, offset: int, why: str) -> None:
        if self._is_unwritten(offset):
            raise StoreError(
                f"{self._piece.where} has zeros at byte {offset}: a power cut took messages; they come back from the journal when "
                "the broker starts, then start the query again"
            )
        report(
            f"{self._piece.where} is damaged at byte {offset}: {why}",
            self._settings.fail_on_data_loss,
        )

    def _is_unwritten(self, offset: int) -> bool:
        """Return whether a record may be zeros because of a power cut, and no start has written it again since."""
        header = self._segment.bytes_at(offset, HEADER_BYTES)
        if any(header):
            try:
                end = offset + total_len_at(header)
            except Corrupt:
                return False
            if any(self._segment.bytes_at(end - _TAIL_BYTES, _TAIL_BYTES)):
                return False
        contents = archive_of(Path(self._piece.path))
        return contents is not None and contents.boot_epoch == self._segment.header.boot_epoch


def _names(row_nos: Numbers, queue_nos: Numbers, queues: Mapping[int, str]) -> dict[int, str]:
    """Return the names of the queues by the numbers of their rows, one per priority."""
    pairs = np.unique(np.stack((row_nos.astype(np.int64), queue_nos)), axis=1)
    return {int(row_no): queues[int(queue_no)] for row_no, queue_no in pairs.T}
