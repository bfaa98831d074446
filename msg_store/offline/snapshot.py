"""A snapshot of an offline store: stopped, or left by a crash.

It has the files of a snapshot of a working store (``checkpoint.snapshot``), and the journals above the index
up to their last good frame, with the end mark. The segments that may have been open at a crash are read from the
length on that the index knows; bytes behind their last good record are torn and left out. Good records behind bad
bytes stay: they may have been confirmed. A segment that lacks messages which the journal has inline
(``recovery.redo``) is copied with them, so readers of the snapshot need no journal. The store is not changed.
Where queues are archived all segments are taken, and ``archive.json``.
"""

from __future__ import annotations

from pathlib import Path

from leveret.core.system.files import Files
from leveret.msg_store.archive import archive_file
from leveret.msg_store.checkpoint.snapshot import check_room, copy_index, make_draft
from leveret.msg_store.format import end_mark
from leveret.msg_store.format.file_header import HEADER_BYTES, MOVED
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.offline.inspection import Inspection
from leveret.msg_store.reading.verify import Segment
from leveret.msg_store.recovery.journal_reader import JournalFile
from leveret.msg_store.threads.worker import Steps


def take(files: Files, path: Path, target: Path) -> Steps[int]:
    """Make a draft of a snapshot; yields the points that are reached. Nothing is synced.

    ``target``, the store's folder in the draft, must not be there.

    Returns:
        How many bytes were left out because a crash has torn them.

    Raises:
        StoreLocked: a process has the store open.
        StoreError: it is no store, or must be recovered first.
        OSError: the disk refuses; a part is there.
    """
    with Inspection(path, may_rebuild=False, files=files) as store:
        old = store.on_disk
        new = make_draft(old, target)
        yield "snapshot: made"
        torn_bytes = yield from _take_segments(store, old, new)
        if archive_file.load(old).queues:  # else there is none, or it is damaged
            data = files.read(path / archive_file.NAME)
            files.write_new(target / archive_file.NAME, data)
        for file_no in old.journal_nos():
            if file_no >= store.recovered.point.first_journal:
                torn_bytes += _take_journal(old, new, file_no)
        if new.journal_nos() and end_mark.NAME in files.names(path):
            files.write_new(target / end_mark.NAME, files.read(path / end_mark.NAME))
        check_room(files, target, store.index)
        copy_index(store.index, target)
        yield "snapshot: copied"
    return torn_bytes


def _take_segments(store: Inspection, old: StorePaths, new: StorePaths) -> Steps[int]:
    known, has_crashed, torn_bytes = store.index.files(), not store.recovered.is_clean, 0
    is_archived = bool(archive_file.load(old))
    for file_no in old.rdq_nos():
        row = known.get(file_no)
        source, target = old.rdq_path(file_no), new.rdq_path(file_no)
        if not has_crashed and not is_archived and (row is None or not row.valid_bytes):
            continue
        start = max(HEADER_BYTES, row.size_bytes if row is not None else 0)
        has_redone = store.has_redone(file_no)
        end, size_bytes = _good_end(store.folder if has_redone else old, file_no, start)
        if has_redone:
            torn_bytes += size_bytes - end
            with old.files.create(target) as whole:
                whole.append([memoryview(store.folder.files.read(source))[:end]])
        elif end == size_bytes:
            old.files.link(source, target)
        else:
            torn_bytes += size_bytes - end
            with old.files.open_read(source) as read, old.files.create_copy(target) as copy:
                copy.append_from(read, 0, end)
        yield "snapshot: linked"
    return torn_bytes


def _good_end(store: StorePaths, file_no: int, start: int) -> tuple[int, int]:
    """Return where the good records of a segment end, read from ``start``, and the file."""
    with Segment(store, file_no) as segment:
        size_bytes = segment.size_bytes
        if segment.header is None or segment.header.flags & MOVED or start >= size_bytes:
            return size_bytes, size_bytes  # recovery judges a damaged header; copies are whole
        end = start
        for offset, record in segment.records(start):
            end = offset + record.total_len
    return end, size_bytes


def _take_journal(store: StorePaths, new: StorePaths, file_no: int) -> int:
    """Copy a journal file up to its torn end; return how many bytes are behind."""
    file = JournalFile(store.files.read(store.journal_path(file_no)), store.uuid)
    if file.is_foreign_as(file_no) or file.is_empty:
        return 0
    for _ in file.frames():
        pass
    torn_bytes, end = 0, file.end if file.tail is None else file.tail.end
    if file.tail is not None and file.header is not None and file_no == store.journal_nos()[-1]:
        torn_bytes = end - file.tail.offset
        end = file.tail.offset
    with store.files.create(new.journal_path(file_no)) as target:
        target.append([memoryview(file.data)[:end]])
    return torn_bytes
