"""The scan of a store's journal files: good frames are replayed, damage goes to the quarantine.

Frames go to a *sink* in order, and the inline records in them to their segments (``redo``). The last
file's torn end is copied to the quarantine and cut off; bad bytes elsewhere are gaps, copied to the
quarantine and reported, and the frames behind them are replayed. A file of another store, or under
another number than its own, is moved to the quarantine.

After a failed sync the disk may hold less than memory shows. A store that is restarted for that reason
passes its last durable position (``trusted``), and all behind it is cut off unread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from leveret.msg_store.format.file_header import HEADER_BYTES, REBUILT
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.format.journal_frames import DurablePosition, Frame
from leveret.msg_store.format.journal_records import JournalRecord
from leveret.msg_store.recovery.journal_reader import Damage, JournalFile
from leveret.msg_store.recovery.redo import RedoWriter
from leveret.msg_store.recovery.report import RecoveryReport

FIRST_LSN: Final = 1
FIRST_FILE: Final = 1


Sink: TypeAlias = Callable[[Frame, list[JournalRecord]], None]


class JournalScan:
    """Reads the journal of a store. Use ``run`` once. After a failed sync, ``trusted`` ends the good part."""

    def __init__(
        self, folder: StoreFolder, report: RecoveryReport, trusted: DurablePosition | None
    ) -> None:
        self.files = self.records = 0  # that were read
        self.next_lsn = FIRST_LSN  # above all records that were read or passed over
        self.reached = (
            0  # the LSN behind the last record of the files that were read; 0 without one
        )
        self.epoch_seen = 0  # the highest boot epoch in a header
        self.durable = DurablePosition(0, 0, 0)  # how far everything was durable, by the last frame
        self._folder = folder
        self._report = report
        self._trusted = trusted
        self._redo = RedoWriter(folder)

    def has_first(self) -> bool:
        """Tell whether a file is left that begins with the first record of the log."""
        headers = (file.header for _, file in self._headers())
        return any(header is not None and header.first_lsn == FIRST_LSN for header in headers)

    def is_rebuilt(self, file_no_min: int, boot_epoch: int) -> bool:
        """Tell whether a start after ``boot_epoch`` has rebuilt the index, by the files from a number on."""
        headers = [file.header for _, file in self._headers(file_no_min)]
        return any(
            header is not None and header.flags & REBUILT and header.boot_epoch > boot_epoch
            for header in headers
        )

    def starts_at(self, file_no_min: int) -> int:
        """Return the LSN from which there are records in files from a number on.

        A file with a damaged header is passed over; without any file no record is missing.
        """
        for file_no, file in self._headers(file_no_min):
            if file.is_foreign:
                continue
            if file.header is not None:
                return file.header.first_lsn
            if file_no == FIRST_FILE:
                return FIRST_LSN
        return FIRST_LSN

    def _headers(self, file_no_min: int = 0) -> Iterator[tuple[int, JournalFile]]:
        """Yield numbers and headers of the files from a number on, without their frames."""
        for file_no in self._folder.journal_nos():
            if file_no >= file_no_min:
                with self._folder.files.open_read(self._folder.journal_path(file_no)) as opened:
                    first = opened.pread(HEADER_BYTES, 0)
                yield file_no, JournalFile(first, self._folder.uuid)

    def end_before(self, file_no_end: int) -> int:
        """Return the LSN behind the last record of the files below a number; 0 without one."""
        for file_no in reversed(self._folder.journal_nos()):
            if file_no < file_no_end:
                path = self._folder.journal_path(file_no)
                file = JournalFile(self._folder.files.read(path), self._folder.uuid)
                if not file.is_foreign_as(file_no):
                    for _ in file.frames():
                        pass
                    if file.next_lsn is not None:
                        return file.next_lsn
        return 0

    def run(self, sink: Sink, file_no_min: int, from_lsn: int) -> None:
        """Read the files from a number on; the index has the records of earlier files, and all below ``from_lsn``."""
        self.next_lsn = from_lsn
        numbers = [no for no in self._folder.journal_nos() if no >= file_no_min]
        try:
            for file_no in numbers:
                self._read(file_no, sink, is_last=file_no == numbers[-1])
        finally:
            self._redo.close()

    def _read(self, file_no: int, sink: Sink, is_last: bool) -> None:
        self.files += 1
        path = self._folder.journal_path(file_no)
        file = JournalFile(self._folder.files.read(path), self._folder.uuid)
        if file.is_foreign_as(file_no):
            self._report.foreign.append(path.name)
            self._report.gaps.append(f"{path.name} may have taken the place of one of its own")
            self._report.set_aside.append(self._folder.move_aside(path))
            return
        self.reached = max(self.reached, file.next_lsn or 0)  # the file before ended there
        if file.header is not None:
            self.epoch_seen = max(self.epoch_seen, file.header.boot_epoch)
            self._expect(file.header.first_lsn, path.name)
        elif file.is_empty:
            self._report.tails.append(f"{path.name} 0 to {file.used_bytes}: it has no header")
            self._folder.files.unlink(path)
            self._folder.files.fsync_dir(self._folder.journal)
            return
        end = HEADER_BYTES
        for frame, records in file.frames():
            if self._trusted is not None and frame.first_lsn >= self._trusted.lsn:
                self._cut(file_no, Damage(end, file.used_bytes, "written before a failed sync"))
                return
            self._redo.add(records)
            sink(frame, records)
            self.records += len(records)
            self.next_lsn = max(self.next_lsn, frame.next_lsn)
            self.reached = max(self.reached, frame.next_lsn)
            self.durable = max(self.durable, frame.durable)
            end = frame.end
        self._note_damage(file_no, file, is_last)

    def _note_damage(self, file_no: int, file: JournalFile, is_last: bool) -> None:
        for gap in file.gaps:
            self._gap(file_no, gap)
        if file.tail is not None and is_last and file.header is not None:
            self._cut(file_no, file.tail)
        elif file.tail is not None:
            self._gap(file_no, file.tail)

    def _expect(self, lsn: int, name: str) -> None:
        if lsn > self.next_lsn:
            self._report.gaps.append(f"records {self.next_lsn} to {lsn - 1} before {name}")
        self.next_lsn = max(self.next_lsn, lsn)

    def _gap(self, file_no: int, damage: Damage) -> None:
        self._set_aside(file_no, damage)
        name = self._folder.journal_path(file_no).name
        self._report.gaps.append(f"{name} {damage.offset} to {damage.end}: {damage.reason}")

    def _set_aside(self, file_no: int, damage: Damage) -> None:
        path = self._folder.journal_path(file_no)
        with self._folder.files.open_read(path) as file:
            data = file.pread(damage.end - damage.offset, damage.offset)
        self._report.set_aside.append(self._folder.set_aside(path, data, damage.offset))

    def _cut(self, file_no: int, tail: Damage) -> None:
        """Set the torn end of the last journal aside and shorten the file."""
        path = self._folder.journal_path(file_no)
        self._set_aside(file_no, tail)
        self._report.tails.append(f"{path.name} {tail.offset} to {tail.end}: {tail.reason}")
        with self._folder.files.open_append(path) as file:
            file.truncate(tail.offset)
            file.fdatasync()
