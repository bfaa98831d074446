"""Faults to plant in snapshots of stores."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "the segment in use is written on": Mutant("Checkpointer.turn", "core.rdq.roll()", "pass"),
    "a flush that is taken back goes on in it": Mutant(
        "SegmentWriter.rewind", "self._is_rolling |= ...", "pass"
    ),
    "a snapshot does not wait for pending writes": Mutant(
        "Snapshot.is_ready", "self.wants_cut |= ...", "self.wants_cut = True"
    ),
    "a memtable that ends for another reason is the cut": Mutant(
        "Checkpointer.turn", "self.snapshot.wants_cut", "not self.snapshot.memtable_no"
    ),
    "it waits until nothing is pending": Mutant(
        "Snapshot.is_ready",
        "not core.pending_ops or self._flushes_left <= 0",
        "not core.pending_ops",
    ),
    "the index is copied before the memtable is in it": Mutant(
        "Checkpointer.write_job",
        "0 < snapshot.memtable_no == core.memtables.committed",
        "snapshot.memtable_no",
    ),
    "nothing is pinned": Mutant("Snapshot.begin", "self.pins.pin(...)", ""),
    "pins stay": Mutant("Snapshot.then", "self.pins.unpin(...)", ""),
    "no segment is linked": Mutant("Snapshot.run", "row.valid_bytes", "False"),
    "it hangs when the disk is full": Mutant(
        "Checkpointer.turn", "self._give_snapshot_up(...)", "pass"
    ),
    "the end of the store is not told": Mutant(
        "CheckpointDriver.closed", "self._checkpointer.end_snapshot(...)", "pass"
    ),
    "a snapshot that failed fails the store": Mutant(
        "Checkpointer.write_done", "isinstance(...)", "isinstance(...) and error is None"
    ),
    "the room that the store needs is taken": Mutant(
        "snapshot.check_room", "free < needed", "False"
    ),
    "a torn record stays": Mutant("_take_segments", "end == size_bytes", "True"),
    "what only the journal has is left there": Mutant(
        "_take_segments", "store.has_redone(file_no)", "False"
    ),
    "a torn record behind what was redone stays": Mutant(
        "_take_segments", "memoryview(...)[:end]", "memoryview(...)"
    ),
    "what follows bad bytes is left out": Mutant(
        "_good_end",
        "end = offset + record.total_len",
        "if offset != end: break\nend = offset + record.total_len",
    ),
    "journals are left out": Mutant("snapshot.take", "torn_bytes += ...", "pass"),
    "a torn frame stays": Mutant("_take_journal", "end = file.tail.offset", ""),
    "segments that only the journal knows are left out": Mutant(
        "_take_segments",
        "not has_crashed and (not is_archived) and (row is None or not row.valid_bytes)",
        "row is None or not row.valid_bytes",
    ),
    "a store in use is taken": Mutant("StoreFolder._locked", "file.lock()", "pass"),
    "an index is rebuilt for a snapshot": Mutant(
        "Recovery._check_may_rebuild", "not self._may_rebuild", "False"
    ),
    "rows that cannot be read are counted": Mutant(
        "Recovery._replayed", "checked.check_journal()", ""
    ),
    "an index that is older than the journal is believed": Mutant(
        "Recovery._why_rebuild", "starts_at > (point or _NEW).lsn", "False"
    ),
    "a location that is not known is not reported": Mutant(
        "Audit._count_rows", "self._faults[msg_no] = 'the index has no location for it'", "pass"
    ),
    "checksums are not compared": Mutant("Audit._read_messages", "self._note(fault)", "pass"),
    "sums are not compared": Mutant("Audit.run", "self._compare_sums()", ""),
    "messages without rows are not reported": Mutant(
        "Audit._compare_sums", "said != rows", "rows and said != rows"
    ),
    "terms of queues are not compared": Mutant(
        "Audit._compare_sums", "not is_same or known.next_seq < terms.next_seq", "False"
    ),
    "messages found elsewhere are not named": Mutant("Audit._name_rows", "self.misplaced", "[]"),
}
