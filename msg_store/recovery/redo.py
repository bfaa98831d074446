"""Redo: inline records of the journal are written to their segments once more, at a start.

A flush does not sync the segment of records that its frame has inline. After a power cut their bytes may
be missing in the segment, after a failed sync they may be in memory only. So redo writes them before any
row is checked, whether or not they can be read; the bytes are the same, however often that is done. It
makes no segment: a missing one either had no live message or is damage, which ``row_check`` reports.
Recovery then syncs the segment that was open at the crash, the only one that may have lacked them.
"""

from __future__ import annotations

from contextlib import suppress

from leveret.core.system.files import File
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.format.journal_records import JournalRecord, RedoRecord
from leveret.msg_store.reading.verify import Segment


class RedoWriter:
    """Writes the inline records of frames. Call ``close`` at the end."""

    def __init__(self, folder: StorePaths) -> None:
        self._folder = folder
        self._files: dict[int, File | None] = {}  # None: not there, or another store's

    def add(self, records: list[JournalRecord]) -> None:
        for record in records:
            if isinstance(record, RedoRecord) and (file := self._file(record.file_no)) is not None:
                file.write_at(record.data, record.offset)

    def _file(self, file_no: int) -> File | None:
        if file_no not in self._files:
            self._files[file_no] = None
            with suppress(FileNotFoundError), Segment(self._folder, file_no) as segment:
                if not segment.is_foreign:
                    path = self._folder.rdq_path(file_no)
                    self._files[file_no] = self._folder.files.open_write(path)
        return self._files[file_no]

    def close(self) -> None:
        for file in self._files.values():
            if file is not None:
                file.close()
        self._files.clear()
