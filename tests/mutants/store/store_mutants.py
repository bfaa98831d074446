"""Faults to plant in store, journal, checkpoints and recovery."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "a log that could not go back is taken for clean": Mutant(
        "AppendLog._go_to", "self._is_tainted = True", "self._is_tainted = False"
    ),
    "no descriptor left is final for a flush": Mutant(
        "GroupCommit.finish", "not is_shortage(error)", "getattr(error, 'errno', 0) != 28"
    ),
    "messages take the reserve": Mutant("GroupCommit.start", "not rows", ""),
    "a flush of nothing takes the reserve": Mutant("GroupCommit.start", "bool(records)", ""),
    "acks wait behind messages that find no room": Mutant(
        "GroupCommit.start",
        "batch = ...",
        "batch = FlushBatch(relocations=self._take_relocations(), is_of_acks=False)",
    ),
    "acks that found room end the shortage": Mutant(
        "GroupCommit.finish",
        "if not (flush.batch.is_of_acks and self._pending): ...",
        "self.shortage = None",
    ),
    "publishers wait for ever when all that found no room is cancelled": Mutant(
        "GroupCommit.has_work", "bool(...) or self.shortage is not None", "bool(...)"
    ),
    "a file that a failed call has made stays": Mutant(
        "AppendLog._roll",
        "self._made.append(file_no)\nself._file = ...",
        "self._file = ...\nself._made.append(file_no)",
    ),
    "inline messages are believed after a sync that found no room": Mutant(
        "_sync_owed", "raise OSError(...) from error", "raise"
    ),
    "a journal that cannot be unlinked ends the store": Mutant(
        "WriteJob.run", "OSError", "ZeroDivisionError"
    ),
    "a read that met a shortage is forgotten": Mutant(
        "Checkpointer.read_done",
        "job.range_ack.read_view = None",
        "self._core.range_acks.remove(job.range_ack)",
    ),
    "confirmed before the segment is synced": Mutant(
        "AppendLog._attempt",
        "if not job.is_inline: self._sync()",
        "if not job.is_inline and '.jnl' in self._pattern: self._sync()",
    ),
    "confirmed before the journal is synced": Mutant(
        "AppendLog._attempt",
        "if not job.is_inline: self._sync()",
        "if not job.is_inline and '.rdq' in self._pattern: self._sync()",
    ),
    "the name of a new file is not synced": Mutant(
        "AppendLog._roll", "self._files.fsync_dir(...)", ""
    ),
    "a full segment is left un-synced": Mutant("AppendLog._roll", "self._sync()", ""),
    "a failed flush keeps its places": Mutant(
        "GroupCommit._put_back", "flush.rdq_before", "self.rdq.place"
    ),
    "a flush in flight counts as durable": Mutant(
        "GroupCommit.can_rotate", "self._flush is None", ""
    ),
    "a checkpoint goes too far": Mutant(
        "GroupCommit.rotate", "self.journal.end.next_lsn", "self.journal.end.next_lsn + 1"
    ),
    "inline messages are not put back": Mutant("JournalScan._read", "self._redo.add(records)", ""),
    "the index names places of inline messages that were not synced": Mutant(
        "WriteJob.run", "_sync_owed(segment)", "pass"
    ),
    "nobody owes a sync": Mutant("SegmentWriter.job", "self._owed.add(...)", "pass"),
    "inline messages are forgotten when a later sync fails": Mutant(
        "AppendLog._raise_of_sync", "self._owed_from is None", "True"
    ),
    "a segment begins without a sync": Mutant(
        "SegmentWriter._may_be_inline", "parts[0].header is None", ""
    ),
    "no new journal with a new memtable": Mutant("GroupCommit.rotate", "self.journal.switch()", ""),
    "journals go with their own checkpoint": Mutant(
        "WriteJob.run", "index.checkpoint()", "self.memtable.checkpoint"
    ),
    "journals go before the commit": Mutant(
        "WriteJob.run",
        "before = ...",
        "before = ...\n"
        "for no in folder.journal_nos()[:-1]: folder.files.unlink(folder.journal_path(no))",
    ),
    "a memtable that found no room is dropped": Mutant(
        "Checkpointer.write_done",
        "if self._is_short(error): ...",
        "if self._is_short(error):\n    self._core.memtables.commit(job.memtable)\n    return None",
    ),
    "a memtable is freed while the index is read": Mutant(
        "Checkpointer.take_committed", "not is_read(each)", "True"
    ),
    "a memtable that was read while it went into the index is never freed": Mutant(
        "CheckpointDriver._free_committed", "self._checkpointer.has_committed", "False"
    ),
    "a purge passes over messages behind unacked ones": Mutant(
        "SeqRange.first_from", "seq + end - at", "seq + end - at + 1"
    ),
    "all counts are looked up by one read": Mutant("Checkpointer.read_job", "LOOKUPS_MAX", ""),
    "counts that are owed are forgotten": Mutant(
        "Memtables.resolve", "for change in owed: ...", "for change in owed[:1]: ..."
    ),
    "a change during the read of a row is overlooked": Mutant(
        "Memtables.learn", "*read_view.spoken_of(numbers)", ""
    ),
    "a change owed to a row that is being read is overlooked": Mutant(
        "Memtables.learn",
        "(*read_view.spoken_of(numbers), self._owed.keys())",
        "read_view.spoken_of(numbers)",
    ),
    "a place that was read outlives the ack": Mutant("Memtables._take_off", "read.pop", "read.get"),
    "a place that was read outlives another change": Mutant(
        "Memtables._change", "self._read.pop(...)", "self._read.get(msg_no)"
    ),
    "a message is gone with its first ack": Mutant(
        "Memtables._subtractor", "location[4] > 1", "False"
    ),
    "a message that only the index knows is gone with its first ack": Mutant(
        "Memtables._subtract", "location[4] > 1", "False"
    ),
    "a held message that only the index knows is garbage": Mutant(
        "Memtables._subtract", "msg_no in held", "False"
    ),
    "late rows do not count": Mutant(
        "Memtables._adder", "(*location[:4], location[4] + count)", "location"
    ),
    "a held message is garbage": Mutant(
        "Memtables._subtractor",
        "if msg_no in self._held: ...\nelse: self._free(...)",
        "if True: self._free(location[0], location[2])",
    ),
    "orphans are in the index": Mutant(
        "FileStates.take_rows", "state.valid_bytes - orphan_bytes.get(...)", "state.valid_bytes"
    ),
    "acks of frozen rows leave no trace": Mutant("SeqSet.add", "self._others.update(rows)", ""),
    "a run of acks of frozen rows leaves no trace": Mutant(
        "SeqSet.add_run", "self._lasts[-1] = last", "pass"
    ),
    "an ack in a run counts again": Mutant(
        "SeqSet.add_run",
        "first <= end or (self._others and (not self._others.isdisjoint(...)))",
        "self._others and (not self._others.isdisjoint(...))",
    ),
    "messages that were just read are gone with their first ack": Mutant(
        "Memtables._subtract_read",
        "row_count > len(places) or not self._held.keys().isdisjoint(msg_nos)",
        "not self._held.keys().isdisjoint(msg_nos)",
    ),
    "a held message that was just read is garbage": Mutant(
        "Memtables._subtract_read",
        "row_count > len(places) or not self._held.keys().isdisjoint(msg_nos)",
        "row_count > len(places)",
    ),
    "what a memtable has changed is taken for untouched": Mutant(
        "Memtable.change", "self._changed_span = ...", "pass"
    ),
    "what a memtable has placed is taken for untouched": Mutant(
        "Memtable.insert", "self._inserted_span = ...", "pass"
    ),
    "a read view forgets memtables that begin while it is read": Mutant(
        "Memtables.rotate", "read_view.memtables.append(...)", "pass"
    ),
    "a page ends too early": Mutant(
        "ReadView.rows",
        "memtable.rows_between(...)",
        "memtable.rows_between(queue_no, low, high, limit, ())",
    ),
    "replay begins with what the index has": Mutant(
        "Replay.add", "lsn < self._from_lsn", "lsn <= self._from_lsn"
    ),
    "replay passes over acks of rows in the index": Mutant(
        "Replay._present", "present + [(row[0], row[1]) for row in self._in_index(...)]", "present"
    ),
    "replay asks the index about no message": Mutant(
        "Replay._indexed", "self._index.locations(msg_nos)", "{}"
    ),
    "replay takes one new message for the end of the index": Mutant(
        "Replay._indexed", "self._index.scan_locations(...)", "self._index.locations([lowest])"
    ),
    "records of messages that are gone do not end a memtable": Mutant(
        "CheckpointLimits.is_long",
        "journal.records_since_switch >= self.journal_records",
        "journal.records_since_switch < 0",
    ),
    "rows of the journal are believed": Mutant("RowCheck.check_journal", "check(...)", "{}"),
    "what cannot be read is not acked": Mutant("Recovery._opened", "*self._acks_of_dropped()", ""),
    "a lost index is an empty one": Mutant(
        "Recovery._judged",
        "if damage: ...\nelse: memtables, queues = ...",
        "if False: ...\nelse: memtables, queues = ...",
    ),
    "a rebuild believes in acks of other rows": Mutant("rebuild", "MADE = ...", "MADE = 0"),
    "a rebuild forgets one queue of each message": Mutant(
        "Rebuild._messages",
        "tuple(...)",
        "tuple((no for no in queue_nos[:2] if (no, record.msg_no) not in gone))",
    ),
    "boots share their numbers": Mutant(
        "GroupCommit.__init__", "boot_epoch << EPOCH_SHIFT", "EPOCH_SHIFT << 40"
    ),
    "a clean stop is believed after a crash": Mutant(
        "Recovery._is_clean", "self._numbers[1] < point.first_journal", "True"
    ),
    "the end mark is not asked": Mutant("Recovery._read_mark", "self._mark = mark", "pass"),
    "messages of two flushes prove nothing": Mutant(
        "Recovery._look_behind", "self._report.gaps.append(...)", "pass"
    ),
    "messages in a gap are garbage": Mutant(
        "Recovery._reclaim", "reclaim.take_missing(...)", "pass"
    ),
    "reclaimed messages are not in the journal": Mutant(
        "Recovery._opened", "*map(encode_publishes, self._reclaimed)", ""
    ),
    "a checkpoint forgets messages that are held": Mutant(
        "GroupCommit.rotate", "self.holds.locations.values()", "()"
    ),
    "the last journal goes with an empty memtable": Mutant(
        "WriteJob.run", "point.lsn == before.lsn", "False"
    ),
}
