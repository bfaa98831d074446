"""A snapshot of a store that nobody has open: stopped, or left by a crash.

As of a store that works (``snapshot_job``), with what lies above the index: the journals, copied up to
their last good frame. The segments that may have been open at a crash are looked through from where the
index knows them; what follows the last good record is torn and left out, so that nothing in a snapshot
is. Good records behind bad bytes stay: they may have been confirmed. Nothing of the store is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from leveret.core.files import Files
from leveret.msg_store.checkpoint.snapshot import check_room, disk_full
from leveret.msg_store.format.errors import StoreLocked
from leveret.msg_store.format.file_header import HEADER_BYTES, MOVED
from leveret.msg_store.format.folder import FORMAT, LOCK, StoreAtRest, StorePaths
from leveret.msg_store.format.rows import Checkpoint, FileRow, IndexFull
from leveret.msg_store.index import lmdb_index
from leveret.msg_store.offline.store_image import (
    StoreImage,
    journals_above,
    open_index,
    read_journal,
)
from leveret.msg_store.reading.verify import Segment


@dataclass(slots=True)
class Torn:
    """How many bytes at the ends of files a crash has spoilt."""

    size_bytes: int = 0


def take(files: Files, path: Path, target: Path, torn: Torn) -> Iterator[str]:
    """Make a draft of a snapshot; yields the points that are reached. Nothing is synced.

    Args:
        files: the way to the disk.
        path: the store's folder.
        target: the same in the draft; must not be there.
        torn: gets what was left out.

    Raises:
        StoreLocked: a process has the store open.
        StoreError: it cannot be read as it is.
        OSError: the disk refuses; a part is there.
    """
    store = StoreAtRest(files, path)
    new = StorePaths(files, target)
    with files.open_lock(path / LOCK) as lock:
        try:
            lock.lock()
        except BlockingIOError:
            raise StoreLocked(f"{path} is in use by another process") from None
        with StoreImage(files, path) as image:  # refuses what cannot be restored
            point, known = image.point, image.index.files()
        for each in (target, new.rdq, new.journal):
            files.mkdir(each)
        yield "snapshot: made"
        files.link(path / FORMAT, target / FORMAT)
        yield from _take_segments(store, new, point, known, torn)
        for file_no in journals_above(store, point):
            _take_journal(store, new, file_no, torn)
        _copy_index(store, target)
        yield "snapshot: copied"


def _take_segments(
    store: StorePaths,
    new: StorePaths,
    point: Checkpoint,
    known: dict[int, FileRow],
    torn: Torn,
) -> Iterator[str]:
    has_crashed = bool(journals_above(store, point)) or not point.is_clean
    for file_no in store.rdq_nos():
        row = known.get(file_no)
        source, target = store.rdq_path(file_no), new.rdq_path(file_no)
        if not has_crashed and (row is None or not row.valid_bytes):
            continue
        start = max(HEADER_BYTES, row.size_bytes if row is not None else 0)
        end, size_bytes = _good_end(store, file_no, start)
        if end == size_bytes:
            store.files.link(source, target)
        else:
            torn.size_bytes += size_bytes - end
            _copy(store.files, source, target, end)
        yield "snapshot: linked"


def _good_end(store: StorePaths, file_no: int, start: int) -> tuple[int, int]:
    """Return where the good records of a segment end, looked at from ``start``, and the file."""
    with Segment(store, file_no) as segment:
        size_bytes = segment.size_bytes
        if segment.header is None or segment.header.flags & MOVED or start >= size_bytes:
            return size_bytes, size_bytes  # recovery judges a damaged header; copies are whole
        end = start
        for offset, record in segment.records(start):
            end = offset + record.total_len
    return end, size_bytes


def _take_journal(store: StorePaths, new: StorePaths, file_no: int, torn: Torn) -> None:
    file = read_journal(store, file_no)
    if file is None:
        return
    for _ in file.frames():
        pass
    end = file.end if file.tail is None else file.tail.end
    if file.tail is not None and file.header is not None and file_no == store.journal_nos()[-1]:
        torn.size_bytes += end - file.tail.offset
        end = file.tail.offset
    with store.files.create(new.journal_path(file_no)) as target:
        target.append([memoryview(file.data)[:end]])


def _copy(files: Files, source: Path, target: Path, count: int) -> None:
    with files.open_read(source) as old, files.create_copy(target) as new:
        new.append_from(old, 0, count)


def _copy_index(store: StorePaths, target: Path) -> None:
    index = open_index(store)
    try:
        check_room(store.files, target, index)
        index.copy_to(target / lmdb_index.FOLDER)
    except IndexFull as error:
        raise disk_full() from error
    finally:
        index.close()
