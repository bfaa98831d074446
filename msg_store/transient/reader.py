"""The reader of the transient store: rows and contents, on a thread of its own.

A content is looked up in the index and read where that says, while the writer may delete it, or copy it
forward and unlink its segment. So what cannot be read is looked up again, up to three times: gone from
the index means acked, elsewhere means moved, and what is still there and still cannot be read is *lost*.
Having no descriptor or no memory left says nothing about a content: that is an ``OSError``.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from leveret.core.files import File, Files
from leveret.core.message import Message, origin_of
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import Identity
from leveret.msg_store.format.record import Record, decode_record, unpack_meta
from leveret.msg_store.threads.worker import Steps
from leveret.msg_store.transient.client import Row
from leveret.msg_store.transient.index import Key, Place, TransientIndex

JOINED_BYTES: Final = 1024 * 1024  # read at once
GAP_BYTES: Final = 4096  # between two contents that are read together
DESCRIPTORS: Final = 32
TRIES: Final = 3

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

log = logging.getLogger(__name__)


class Contents(NamedTuple):
    """What a read has found, by seq; in neither is what was acked meanwhile."""

    found: dict[int, Message]
    lost: list[int]


class TransientReader:
    """Reads. For one thread.

    Args:
        files: where from.
        path: where a segment lies.
        index: its reading half.
        identity: for checksums.
    """

    def __init__(
        self, files: Files, path: Callable[[int], Path], index: TransientIndex, identity: Identity
    ) -> None:
        self.index = index
        self._files = files
        self._path = path
        self._identity = identity
        self._open: dict[int, File] = {}  # the one used last is the last

    def rows(self, life: int, low: int, high: int, limit: int) -> Steps[tuple[list[Row], int]]:
        """Read rows; see ``TransientIndex.rows``."""
        rows = self.index.rows(life, low, high, limit)
        yield "rows read"
        return rows

    def contents(self, life: int, seqs: Sequence[int]) -> Steps[Contents]:
        """Read contents.

        Raises:
            OSError: something is exhausted; to be tried again.
            IndexLost: nothing that is on disk can be found any more.
        """
        found: dict[int, Message] = {}
        keys = [(life, seq) for seq in seqs]
        why = ""
        for _ in range(TRIES):
            places = self.index.places(keys)
            yield "looked up"
            keys = []
            for run in _runs(sorted(places.items(), key=lambda item: item[1])):
                try:
                    self._read_run(run, found)
                except (OSError, Corrupt) as error:
                    if isinstance(error, OSError) and error.errno in _EXHAUSTED:
                        raise
                    why = str(error)
                    keys += [key for key, _ in run if key[1] not in found]
                    self.forget([run[0][1].file_no])
            if not keys:
                return Contents(found, [])
            yield "failed"
        still_there = self.index.places(keys)
        lost = sorted(seq for _, seq in still_there)
        if lost:
            log.debug("transients cannot be read life=%d count=%d: %s", life, len(lost), why)
        return Contents(found, lost)

    def _read_run(self, run: list[tuple[Key, Place]], found: dict[int, Message]) -> None:
        file_no, start, _ = run[0][1]
        end = run[-1][1].offset + run[-1][1].length
        data = self._opened(file_no).pread(end - start, start)
        shared: dict[bytes, tuple[bytes, bytes]] = {}
        failed: Corrupt | None = None
        for key, place in run:
            try:
                found[key[1]] = self._message(data, place.offset - start, key, place, shared)
            except Corrupt as error:
                failed = error
        if failed is not None:
            raise failed

    def _message(
        self, data: bytes, at: int, key: Key, place: Place, shared: dict[bytes, tuple[bytes, bytes]]
    ) -> Message:
        record = decode_record(data, self._identity.extend, self._identity.seed, at)
        origin_and_head = shared.get(record.meta)
        if origin_and_head is None:
            origin_and_head = shared[record.meta] = _checked(record, key)
        if record.msg_no != key[1] or record.total_len != place.length:
            raise Corrupt(f"message {record.msg_no} where {key[1]} should be, {place}")
        return (*origin_and_head, record.body)

    def _opened(self, file_no: int) -> File:
        file = self._open.pop(file_no, None)
        if file is None:
            while len(self._open) >= DESCRIPTORS:
                self._open.pop(next(iter(self._open))).close()
            file = self._files.open_read(self._path(file_no))
        self._open[file_no] = file
        return file

    def forget(self, file_nos: Sequence[int]) -> None:
        """Close segments: their space is given back when the last descriptor is."""
        for file_no in file_nos:
            file = self._open.pop(file_no, None)
            if file is not None:
                file.close()

    def forgetting(self, file_nos: Sequence[int]) -> Steps[None]:
        """Do ``forget`` as a job."""
        self.forget(file_nos)
        yield "forgotten"

    def close(self) -> None:
        """Close all."""
        self.forget(list(self._open))


def _checked(record: Record, key: Key) -> tuple[bytes, bytes]:
    """Return origin and head of a record; those of one batch share them as objects."""
    meta = unpack_meta(record.meta)
    if meta.queue_nos != (key[0],):
        raise Corrupt(f"a record of {meta.queue_nos} where one of life {key[0]} should be")
    return origin_of(meta.exchange, meta.routing_keys[0]), meta.head


def _runs(items: list[tuple[Key, Place]]) -> list[list[tuple[Key, Place]]]:
    """Cut contents, sorted by place, into runs that are read at once."""
    runs: list[list[tuple[Key, Place]]] = []
    start = Place(0, 0, 0)
    end = 0
    for item in items:
        file_no, offset, length = item[1]
        is_near = file_no == start.file_no and offset - end <= GAP_BYTES
        if runs and is_near and offset + length - start.offset <= JOINED_BYTES:
            runs[-1].append(item)
        else:
            runs.append([item])
            start = item[1]
        end = offset + length
    return runs
