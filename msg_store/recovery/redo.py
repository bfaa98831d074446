"""Putting messages that the journal carries where they belong, at a start.

A frame carries messages that were written to their segment and not synced with it. After a power cut
they may be missing there, after a failed sync they may be in memory only; so they are written once more,
whether or not they can be read, before anything is judged by them. They are the same bytes as were
there, however often that is done, and no segment is made: one that is gone had nothing left that was
needed, or is damage that ``row_check`` reports. Only the segment that was open at the crash may have lacked
them, and that one recovery syncs in any case.
"""

from __future__ import annotations

from contextlib import suppress

from leveret.core.files import File
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.format.journal_records import JournalRecord, RedoRecord
from leveret.msg_store.reading.verify import Segment


class RedoWriter:
    """Writes what frames carry. Call ``close`` at the end.

    Args:
        folder: the store's.
    """

    def __init__(self, folder: StorePaths) -> None:
        self._folder = folder
        self._files: dict[int, File | None] = {}  # None: not there, or another store's

    def add(self, records: list[JournalRecord]) -> None:
        """Write what the records of a frame carry.

        Raises:
            OSError: the disk refuses.
        """
        for record in records:
            if isinstance(record, RedoRecord) and (file := self._file(record.file_no)) is not None:
                file.write_at(record.data, record.offset)

    def _file(self, file_no: int) -> File | None:
        if file_no not in self._files:
            self._files[file_no] = self._opened(file_no)
        return self._files[file_no]

    def _opened(self, file_no: int) -> File | None:
        with suppress(FileNotFoundError):
            with Segment(self._folder, file_no) as segment:
                is_foreign = segment.is_foreign
            if not is_foreign:
                return self._folder.files.open_write(self._folder.rdq_path(file_no))
        return None

    def close(self) -> None:
        """Let go of the files."""
        for file in self._files.values():
            if file is not None:
                file.close()
        self._files.clear()
