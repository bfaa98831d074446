"""The reader of the transient store: rows and contents, on a thread of its own.

A content is looked up in the index and read at its place, while the writer may delete it, or copy it
forward and unlink its segment. So after a failed read it is looked up again, up to three times: no key means
acked, another place means moved, the same place means *lost*. A shortage, or a disk that refuses, says
nothing about a content: that is an ``OSError``.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from leveret.core.limits import DESCRIPTORS_OF_TRANSIENT_SEGMENTS
from leveret.core.log.loggers import logger
from leveret.core.message import Message, origin_of
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.format.record import unpack_meta
from leveret.msg_store.reading.segments import Outcome, SegmentReader
from leveret.msg_store.threads.worker import Steps
from leveret.msg_store.transient.index import Place, Row, TransientIndex

TRIES: Final = 3

log = logger(__name__)


class Contents(NamedTuple):
    """The result of a read, by seq; a content that was acked meanwhile is in neither."""

    found: dict[int, Message]
    lost: list[int]


class TransientReader:
    """Reads. For one thread."""

    def __init__(self, paths: StorePaths, index: TransientIndex) -> None:
        self._index = index
        self._segments = SegmentReader(paths, DESCRIPTORS_OF_TRANSIENT_SEGMENTS)

    def rows(self, incarnation: int, low: int, high: int, limit: int) -> Steps[list[Row]]:
        rows = self._index.rows(incarnation, low, high, limit)
        yield "rows read"
        return rows

    def contents(self, incarnation: int, seqs: Sequence[int]) -> Steps[Contents]:
        """Read contents.

        Raises:
            OSError: descriptors or memory are exhausted, or the disk refuses; the read is to be tried again.
            IndexLost: no content on disk can be found any more.
        """
        found: dict[int, Message] = {}
        left, why = list(seqs), ""
        for _ in range(TRIES):
            places = self._index.places([(incarnation, seq) for seq in left])
            yield "looked up"
            outcome = self._read(incarnation, left, places)
            found |= outcome.messages
            left = [seq for seq in outcome.failures if seq not in found]
            if not left:
                return Contents(found, [])
            why = outcome.failures[left[0]]
            yield "failed"
        places = self._index.places([(incarnation, seq) for seq in left])
        lost = sorted(seq for seq, place in zip(left, places, strict=True) if place is not None)
        if lost:
            log.debug("transients cannot be read count=%d: %s", len(lost), why)
        return Contents(found, lost)

    def _read(self, incarnation: int, seqs: list[int], places: list[Place | None]) -> Outcome:
        known = {seq: place for seq, place in zip(seqs, places, strict=True) if place is not None}
        outcome = self._segments.read([*known], [*known.values()], _parts_of(incarnation))
        if outcome.put_off:
            text = f"transients cannot be read now: {outcome.why_put_off}"
            raise OSError(errno.EAGAIN, text) from outcome.why_put_off
        for seq in outcome.failures:
            self._segments.forget(known[seq][0])
        return outcome

    def forget(self, file_nos: Sequence[int]) -> Steps[None]:
        """Close segments: their space is given back when the last descriptor is."""
        for file_no in file_nos:
            self._segments.forget(file_no)
        yield "forgotten"

    def close(self) -> None:
        self._segments.close()


def _parts_of(incarnation: int) -> Callable[[bytes], tuple[bytes, bytes]]:
    """Return a function from a record's meta to origin and head, which records of one read share."""
    shared: dict[bytes, tuple[bytes, bytes]] = {}

    def parts_of(packed: bytes) -> tuple[bytes, bytes]:
        parts = shared.get(packed)
        if parts is None:
            meta = unpack_meta(packed)
            if meta.queue_nos != (incarnation,):
                raise Corrupt(f"a record of {meta.queue_nos} where {incarnation} is expected")
            parts = shared[packed] = (origin_of(meta.exchange, *meta.routing_keys), meta.head)
        return parts

    return parts_of
