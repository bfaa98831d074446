"""Recovery: from journal and segments alone to rows, references and places that can be trusted.

Steps, each of which may be cut off by another crash and is then done again with the same outcome:

1. Read all journal files in order and replay them (``journal_reader``, ``replay``). The last one's
   torn tail is set aside and cut off; gaps are set aside and reported.
2. Read every message that a row refers to (``verify``). A row that fails is **dropped** if it lies
   above the last mark: it was never confirmed, or nobody can tell. Below the mark it was durable; then
   all segments are searched for the message, and only what is not found is **lost**: listed in the
   report, its bytes set aside.
3. Sync the files that were open at the crash, so that what was just read from memory is on the disk.
4. Remove segments that no row refers to, unless there was a gap: then nothing is removed.
5. Begin a new journal file. Its first frame acks what was dropped and lost and carries a new mark, so
   that a row judged once is not judged again. Old files are never appended to.

After a failed sync the disk may hold less than memory shows. Who restarts a store for that reason says
where its mark was (``trusted``), and all behind it is discarded unread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from leveret.core.errors import StoreError
from leveret.msg_store import journal, rdq_writer
from leveret.msg_store.append_log import AppendLog, Reserve
from leveret.msg_store.file_header import EPOCH_MAX, EPOCH_SHIFT, HEADER_BYTES, FileHeader
from leveret.msg_store.findings import Findings, Recovered
from leveret.msg_store.folder import StoreFolder
from leveret.msg_store.group_commit import GroupCommit
from leveret.msg_store.identity import Identity
from leveret.msg_store.journal import Journal
from leveret.msg_store.journal_frames import Frame, Mark
from leveret.msg_store.journal_reader import Damage, JournalFile
from leveret.msg_store.journal_records import encode_acks
from leveret.msg_store.pending import References
from leveret.msg_store.rdq_writer import RdqWriter
from leveret.msg_store.replay import Replay
from leveret.msg_store.verify import Segment, check, search

log = logging.getLogger(__name__)

FIRST_LSN: Final = 1


class Recovery:
    """Brings a store back and opens it for writing. Use ``run`` once.

    Args:
        folder: the store's.
        boot_epoch: of this start, above all before.
        reserve: to be given up when the disk is full.
        now_ms: wall time.
        trusted: after a failed sync, how far the disk can be trusted.
        rdq_file_bytes: when a segment is full.
        journal_file_bytes: when a journal file is full.
    """

    def __init__(
        self,
        folder: StoreFolder,
        boot_epoch: int,
        reserve: Reserve,
        now_ms: Callable[[], int],
        trusted: Mark | None = None,
        rdq_file_bytes: int = rdq_writer.FILE_BYTES,
        journal_file_bytes: int = journal.FILE_BYTES,
    ) -> None:
        self._folder = folder
        self._identity = Identity(folder.uuid, boot_epoch)
        self._now_ms = now_ms
        self._trusted = trusted
        self._replay = Replay()
        self._findings = Findings()
        self._mark = Mark(0, 0, 0)
        self._next_lsn = FIRST_LSN
        self._epoch_seen = 0
        self._numbers = (max(folder.rdq_nos(), default=0), max(folder.journal_nos(), default=0))
        self._file_bytes = (rdq_file_bytes, journal_file_bytes)
        self.rdq_log: AppendLog = folder.rdq_log(reserve)
        self.journal_log: AppendLog = folder.journal_log(reserve)

    def run(self) -> tuple[Recovered, GroupCommit]:
        """Do all the steps.

        Returns:
            What was found, and a group commit that goes on from there; the two logs of this
            object carry out its jobs.

        Raises:
            StoreError: the boot epoch was used before.
            OSError: the disk refuses.
        """
        self._read_journals()
        self._check_epoch()
        self._verify()
        references = self._replay.prune()
        self._sync_what_was_open()
        self._remove_segments()
        self._report()
        core = self._opened(references)
        recovered = Recovered(
            self._replay.rows,
            dict(references),
            dict(self._replay.locations),
            self._replay.seqs_seen,
            self._identity.first_no,
            self._findings,
        )
        return recovered, core

    # Journal.

    def _read_journals(self) -> None:
        numbers = self._folder.journal_nos()
        for file_no in numbers:
            self._read_journal(file_no, is_last=file_no == numbers[-1])

    def _read_journal(self, file_no: int, is_last: bool) -> None:
        path = self._folder.journal_path(file_no)
        file = JournalFile(self._folder.files.read(path), self._folder.uuid)
        if file.is_foreign:
            self._findings.foreign.append(path.name)
            self._findings.set_aside.append(self._folder.move_aside(path))
            return
        if file.header is not None:
            self._note_header(file.header)
            self._expect(file.header.first_lsn, path.name)
        elif len(file.data) <= HEADER_BYTES:
            # The crash came while its header was written, so no record was.
            self._folder.files.unlink(path)
            self._folder.files.fsync_dir(self._folder.journal)
            return
        end = HEADER_BYTES
        for frame, records in file.frames():
            if self._trusted is not None and frame.first_lsn >= self._trusted.lsn:
                self._cut(file_no, Damage(end, len(file.data), "written before a failed sync"))
                return
            self._replay.add(frame, records)
            self._advance(frame)
            end = frame.end
        for gap in file.gaps:
            self._gap(file_no, gap)
        if file.tail is not None and is_last and file.header is not None:
            self._cut(file_no, file.tail)
        elif file.tail is not None:
            self._gap(file_no, file.tail)

    def _note_header(self, header: FileHeader) -> None:
        self._epoch_seen = max(self._epoch_seen, header.boot_epoch)

    def _expect(self, lsn: int, name: str) -> None:
        if lsn > self._next_lsn > FIRST_LSN:
            self._findings.gaps.append(f"records {self._next_lsn} to {lsn - 1} before {name}")
        self._next_lsn = max(self._next_lsn, lsn)

    def _advance(self, frame: Frame) -> None:
        self._next_lsn = max(self._next_lsn, frame.next_lsn)
        self._mark = max(self._mark, frame.mark)

    def _gap(self, file_no: int, damage: Damage) -> None:
        self._set_aside_journal(file_no, damage)
        name = self._folder.journal_path(file_no).name
        self._findings.gaps.append(f"{name} {damage.offset} to {damage.end}: {damage.reason}")

    def _set_aside_journal(self, file_no: int, damage: Damage) -> None:
        path = self._folder.journal_path(file_no)
        with self._folder.files.open_read(path) as file:
            data = file.pread(damage.end - damage.offset, damage.offset)
        self._findings.set_aside.append(self._folder.set_aside(path, data, damage.offset))

    def _cut(self, file_no: int, tail: Damage) -> None:
        """Set the torn end of the last journal aside and shorten the file."""
        path = self._folder.journal_path(file_no)
        self._set_aside_journal(file_no, tail)
        self._findings.tails.append(f"{path.name} {tail.offset} to {tail.end}: {tail.reason}")
        with self._folder.files.open_append(path) as file:
            file.truncate(tail.offset)
            file.fdatasync()

    # Messages.

    def _check_epoch(self) -> None:
        for file_no in self._folder.rdq_nos():
            with Segment(self._folder, file_no) as segment:
                header = segment.header
            if header is not None:
                self._note_header(header)
            elif segment.is_foreign:
                path = self._folder.rdq_path(file_no)
                self._findings.foreign.append(path.name)
                self._findings.set_aside.append(self._folder.move_aside(path))
        self._epoch_seen = max(self._epoch_seen, self._replay.msg_no_seen >> EPOCH_SHIFT)
        if not self._epoch_seen < self._identity.boot_epoch <= EPOCH_MAX:
            raise StoreError(
                f"boot epoch {self._identity.boot_epoch} must be above {self._epoch_seen}, which "
                f"was used, and at most {EPOCH_MAX}"
            )

    def _verify(self) -> None:
        """Keep only rows whose messages can be read."""
        live = self._replay.references()
        locations = {no: self._replay.locations[no] for no in live}
        wrong = check(self._folder, locations)
        if not wrong:
            return
        durable = self._durable_among(wrong)
        if durable or self._findings.gaps:
            found = search(self._folder, wrong)
            self._replay.locations |= found
            self._findings.found = sorted(found)
            wrong = {no: why for no, why in wrong.items() if no not in found}
        for msg_no in sorted(durable & wrong.keys()):
            self._set_aside_record(msg_no)
        self._drop_rows(wrong)

    def _durable_among(self, wrong: dict[int, str]) -> set[int]:
        """Return the messages of rows that had been synced, row or message, by the last mark."""
        durable = set()
        for rows in self._replay.rows.values():
            for msg_no, _, _, _, lsn in rows.values():
                if msg_no in wrong and self._was_durable(msg_no, lsn):
                    durable.add(msg_no)
        return durable

    def _was_durable(self, msg_no: int, lsn: int) -> bool:
        file_no, offset, length, _ = self._replay.locations[msg_no]
        return lsn < self._mark.lsn or self._mark.covers(file_no, offset + length)

    def _set_aside_record(self, msg_no: int) -> None:
        file_no, offset, length, _ = self._replay.locations[msg_no]
        if file_no not in self._folder.rdq_nos():
            return
        with Segment(self._folder, file_no) as segment:
            data = segment.bytes_at(offset, length)
        if data:
            path = self._folder.rdq_path(file_no)
            self._findings.set_aside.append(self._folder.set_aside(path, data, offset))

    def _drop_rows(self, wrong: dict[int, str]) -> None:
        for queue_no, rows in self._replay.rows.items():
            for seq, (msg_no, _, _, _, lsn) in list(rows.items()):
                if msg_no not in wrong:
                    continue
                entry = (queue_no, seq, msg_no, wrong[msg_no])
                durable = self._was_durable(msg_no, lsn)
                (self._findings.lost if durable else self._findings.dropped).append(entry)
                del rows[seq]

    def _remove_segments(self) -> None:
        if self._findings.gaps or self._findings.foreign:
            return
        used = {location[0] for location in self._replay.locations.values()}
        for file_no in self._folder.rdq_nos():
            if file_no not in used:
                self._folder.files.unlink(self._folder.rdq_path(file_no))
                self._findings.removed.append(file_no)
        if self._findings.removed:
            self._folder.files.fsync_dir(self._folder.rdq)

    # Going on.

    def _sync_what_was_open(self) -> None:
        last = [self._folder.rdq_path(no) for no in self._folder.rdq_nos()[-1:]]
        last += [self._folder.journal_path(no) for no in self._folder.journal_nos()[-1:]]
        for path in last:
            with self._folder.files.open_append(path) as file:
                file.fdatasync()

    def _report(self) -> None:
        findings = self._findings
        if findings.is_damage or findings.dropped or findings.tails:
            name = f"recovery-{self._identity.boot_epoch:06x}"
            self._folder.report(name, asdict(findings))
        if findings.is_damage:
            log.error(
                "message store damaged store=%s gaps=%d lost=%d found=%d foreign=%d",
                self._folder.path,
                len(findings.gaps),
                len(findings.lost),
                len(findings.found),
                len(findings.foreign),
            )

    def _opened(self, references: dict[int, int]) -> GroupCommit:
        rdq_no, journal_no = self._numbers
        next_rdq = max(rdq_no, self._replay.file_no_seen, self._mark.file_no) + 1
        rdq = RdqWriter(self._identity, next_rdq, self._file_bytes[0])
        frames = Journal(self._identity, journal_no + 1, self._next_lsn, self._file_bytes[1])
        mark = Mark(self._next_lsn, *rdq.reached)
        job = frames.job(self._acks_of_dropped(), mark, self._now_ms())
        for _ in self.journal_log.run(job):
            pass
        return GroupCommit(
            rdq,
            frames,
            References(references, self._replay.locations),
            Mark(frames.end.next_lsn, *rdq.reached),
            self._identity.first_no,
            self._now_ms,
            _nothing,
        )

    def _acks_of_dropped(self) -> list[bytes]:
        seqs: dict[int, list[int]] = {}
        for queue_no, seq, _, _ in self._findings.dropped + self._findings.lost:
            seqs.setdefault(queue_no, []).append(seq)
        return [ack for no, each in seqs.items() for ack in encode_acks(no, sorted(each))]


def _nothing() -> None:
    """Wake nobody: a driver sets its own."""
