"""Faults to plant in snapshots of stores."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "the segment in use is written on": Mutant(
        "checkpoint/checkpoint.py", "            core.rdq.roll()\n", "            pass\n"
    ),
    "a flush that is taken back goes on in it": Mutant(
        "wal/segment_writer.py", "self._is_rolling |= place == self._rolled_at", "pass"
    ),
    "a snapshot does not wait for pending writes": Mutant(
        "checkpoint/snapshot.py",
        "self.wants_cut |= not core.pending_ops or self._flushes_left <= 0",
        "self.wants_cut = True",
    ),
    "a memtable that ends for another reason is the cut": Mutant(
        "checkpoint/checkpoint.py",
        "self.snapshot is not None and self.snapshot.wants_cut:",
        "self.snapshot is not None and not self.snapshot.memtable_no:",
    ),
    "it waits until nothing is pending": Mutant(
        "checkpoint/snapshot.py",
        "self.wants_cut |= not core.pending_ops or self._flushes_left <= 0",
        "self.wants_cut |= not core.pending_ops",
    ),
    "the index is copied before the memtable is in it": Mutant(
        "checkpoint/checkpoint.py",
        "0 < snapshot.memtable_no == core.memtables.committed",
        "snapshot.memtable_no",
    ),
    "nothing is pinned": Mutant(
        "checkpoint/snapshot.py", "        self.pins.pin(self._pinned)\n", ""
    ),
    "pins stay": Mutant("checkpoint/snapshot.py", "        self.pins.unpin(self._pinned)\n", ""),
    "no segment is linked": Mutant("checkpoint/snapshot.py", "if row.valid_bytes}", "if False}"),
    "it hangs when the disk is full": Mutant(
        "checkpoint/checkpoint.py",
        "self._give_snapshot_up(shortage if isinstance(shortage, OSError) else disk_full())",
        "pass",
    ),
    "the end of the store is not told": Mutant(
        "checkpoint/driver.py",
        'self._checkpointer.end_snapshot(StoreError("the store was closed"))',
        "pass",
    ),
    "a snapshot that failed fails the store": Mutant(
        "checkpoint/checkpoint.py",
        "if isinstance(job, Snapshot):",
        "if isinstance(job, Snapshot) and error is None:",
    ),
    "the room that the store needs is taken": Mutant(
        "checkpoint/snapshot.py",
        "    if free < needed:",
        "    if False:",
    ),
    "a torn record stays": Mutant("offline/snapshot.py", "if end == size_bytes:", "if True:"),
    "what only the journal has is left there": Mutant(
        "offline/snapshot.py", "has_redone = store.has_redone(file_no)", "has_redone = False"
    ),
    "a torn record behind what was redone stays": Mutant(
        "offline/snapshot.py", "read(source))[:end]", "read(source))"
    ),
    "what follows bad bytes is left out": Mutant(
        "offline/snapshot.py",
        "            end = offset + record.total_len\n",
        "            if offset != end:\n                break\n            end = offset + record.total_len\n",
    ),
    "journals are left out": Mutant(
        "offline/snapshot.py", "torn_bytes += _take_journal(old, new, file_no)", "pass"
    ),
    "a torn frame stays": Mutant("offline/snapshot.py", "        end = file.tail.offset\n", ""),
    "segments that only the journal knows are left out": Mutant(
        "offline/snapshot.py",
        "if not has_crashed and not is_archived and (row is None or not row.valid_bytes):",
        "if row is None or not row.valid_bytes:",
    ),
    "a store in use is taken": Mutant(
        "format/folder.py", "            file.lock()\n", "            pass\n"
    ),
    "an index is rebuilt for a snapshot": Mutant(
        "recovery/recovery.py", "if not self._may_rebuild:", "if False:"
    ),
    "rows that cannot be read are counted": Mutant(
        "recovery/recovery.py", "        checked.check_journal()\n", ""
    ),
    "an index that is older than the journal is believed": Mutant(
        "recovery/recovery.py", "if starts_at > (point or _NEW).lsn:", "if False:"
    ),
    "a location that is not known is not reported": Mutant(
        "offline/audit.py",
        'self._faults[msg_no] = "the index has no location for it"',
        "pass",
    ),
    "checksums are not compared": Mutant("offline/audit.py", "self._note(fault)", "pass"),
    "sums are not compared": Mutant("offline/audit.py", "        self._compare_sums()\n", ""),
    "messages without rows are not reported": Mutant(
        "offline/audit.py", "if said != rows:", "if rows and said != rows:"
    ),
    "terms of queues are not compared": Mutant(
        "offline/audit.py", "if not is_same or known.next_seq < terms.next_seq:", "if False:"
    ),
    "messages found elsewhere are not named": Mutant(
        "offline/audit.py",
        "rows = self.misplaced if is_found else self.lost",
        "rows = [] if is_found else self.lost",
    ),
}
