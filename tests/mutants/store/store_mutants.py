"""Faults to plant in store, journal, checkpoints and recovery."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "a log that could not go back is taken for clean": Mutant(
        "format/append_log.py", "        self._is_tainted = True  # until all of this is done\n", "        self._is_tainted = False\n"
    ),
    "no descriptor left is final for a flush": Mutant(
        "wal/group_commit.py",
        "final = [error for error in failures if not is_shortage(error)]",
        'final = [error for error in failures if getattr(error, "errno", 0) != 28]',
    ),
    "messages take the reserve": Mutant(
        "wal/group_commit.py", "bool(records) and not rows", "bool(records)"
    ),
    "a flush of nothing takes the reserve": Mutant(
        "wal/group_commit.py", "bool(records) and not rows", "not rows"
    ),
    "acks wait behind messages that find no room": Mutant(
        "wal/group_commit.py", "is_of_acks=self._is_turn_of_acks", "is_of_acks=False"
    ),
    "acks that found room end the shortage": Mutant(
        "wal/group_commit.py", "elif not (flush.batch.is_of_acks and self._pending):", "else:"
    ),
    "publishers wait for ever when all that found no room is cancelled": Mutant(
        "wal/group_commit.py",
        "return bool(self.pending_ops) or self.shortage is not None",
        "return bool(self.pending_ops)",
    ),
    "a file that a failed call has made stays": Mutant(
        "format/append_log.py",
        "        self._made.append(file_no)  # before: a call that fails may have made the name\n        self._file = create(self.path(file_no))\n",
        "        self._file = create(self.path(file_no))\n        self._made.append(file_no)\n",
    ),
    "inline messages are believed after a sync that found no room": Mutant(
        "checkpoint/checkpoint.py",
        "        raise OSError(errno.EIO, text, str(segment.path)) from error",
        "        raise",
    ),
    "a journal that cannot be unlinked ends the store": Mutant(
        "checkpoint/checkpoint.py",
        "        except OSError as error:  # the next checkpoint unlinks them, or the next start\n",
        "        except ZeroDivisionError as error:\n",
    ),
    "a read that met a shortage is forgotten": Mutant(
        "checkpoint/checkpoint.py",
        "            if job.range_ack is not None:\n                job.range_ack.read_view = None\n            return None",
        "            if job.range_ack is not None:\n                self._core.range_acks.remove(job.range_ack)\n            return None",
    ),
    "confirmed before the segment is synced": Mutant(
        "format/append_log.py",
        "        if not job.is_inline:\n            self._sync()\n",
        '        if not job.is_inline and ".jnl" in self._pattern:\n            self._sync()\n',
    ),
    "confirmed before the journal is synced": Mutant(
        "format/append_log.py",
        "        if not job.is_inline:\n            self._sync()\n",
        '        if not job.is_inline and ".rdq" in self._pattern:\n            self._sync()\n',
    ),
    "the name of a new file is not synced": Mutant(
        "format/append_log.py", "        self._files.fsync_dir(self._folder)\n", ""
    ),
    "a full segment is left un-synced": Mutant(
        "format/append_log.py", "            self._sync()\n            self.close()", "            self.close()"
    ),
    "a failed flush keeps its places": Mutant(
        "wal/group_commit.py", "self.rdq.rewind(flush.rdq_before)", "self.rdq.rewind(self.rdq.place)"
    ),
    "a flush in flight counts as durable": Mutant(
        "wal/group_commit.py",
        "return self._flush is None and self.error is None and not self.memtables.has_unresolved",
        "return self.error is None and not self.memtables.has_unresolved",
    ),
    "a checkpoint goes too far": Mutant(
        "wal/group_commit.py",
        "lsn, journal_no = self.journal.end.next_lsn,",
        "lsn, journal_no = self.journal.end.next_lsn + 1,",
    ),
    "inline messages are not put back": Mutant(
        "recovery/journal_scan.py", "            self._redo.add(records)\n", ""
    ),
    "the index names places of inline messages that were not synced": Mutant(
        "checkpoint/checkpoint.py", "                _sync_owed(segment)\n", "                pass\n"
    ),
    "nobody owes a sync": Mutant(
        "wal/segment_writer.py", "            self._owed.add(parts[0].file_no)\n", "            pass\n"
    ),
    "inline messages are forgotten when a later sync fails": Mutant(
        "format/append_log.py", "        if self._owed_from is None:\n            raise error", "        if True:\n            raise error"
    ),
    "a segment begins without a sync": Mutant(
        "wal/segment_writer.py", "            and parts[0].header is None\n", ""
    ),
    "no new journal with a new memtable": Mutant(
        "wal/group_commit.py", "        self.journal.switch()\n", ""
    ),
    "journals go with their own checkpoint": Mutant(
        "checkpoint/checkpoint.py",
        "before = index.checkpoint()",
        "before = self.memtable.checkpoint",
    ),
    "journals go before the commit": Mutant(
        "checkpoint/checkpoint.py",
        '        yield "before commit"\n',
        '        for no in folder.journal_nos()[:-1]:\n            folder.files.unlink(folder.journal_path(no))\n        yield "before commit"\n',
    ),
    "a memtable that found no room is dropped": Mutant(
        "checkpoint/checkpoint.py",
        "        if self._is_short(error):\n            return None",
        "        if self._is_short(error):\n            self._core.memtables.commit(job.memtable)\n            return None",
    ),
    "a purge passes over messages behind unacked ones": Mutant(
        "format/seq_range.py", "return seq + end - at", "return seq + end - at + 1"
    ),
    "all counts are looked up by one read": Mutant(
        "checkpoint/checkpoint.py", "unresolved(LOOKUPS_MAX)", "unresolved()"
    ),
    "counts that are owed are forgotten": Mutant(
        "memtable/memtables.py",
        "            for change in owed:\n                location",
        "            for change in owed[:1]:\n                location",
    ),
    "a change during the read of a row is overlooked": Mutant(
        "memtable/memtables.py", "(*read_view.spoken_of(numbers), self._owed.keys())", "(self._owed.keys(),)"
    ),
    "a change owed to a row that is being read is overlooked": Mutant(
        "memtable/memtables.py", "(*read_view.spoken_of(numbers), self._owed.keys())", "read_view.spoken_of(numbers)"
    ),
    "a place that was read outlives the ack": Mutant(
        "memtable/memtables.py", "map(read.pop, msg_nos, repeat(None))", "map(read.get, msg_nos, repeat(None))"
    ),
    "a place that was read outlives another change": Mutant(
        "memtable/memtables.py", "location = self._read.pop(msg_no, None)", "location = self._read.get(msg_no)"
    ),
    "a message is gone with its first ack": Mutant(
        "memtable/memtables.py", "            if location[4] > 1:\n                return", "            if False:\n                return"
    ),
    "a message that only the index knows is gone with its first ack": Mutant(
        "memtable/memtables.py", "            if location[4] > 1:\n                changed", "            if False:\n                changed"
    ),
    "a held message that only the index knows is garbage": Mutant(
        "memtable/memtables.py",
        "            changed[msg_no] = None\n            if msg_no in held:",
        "            changed[msg_no] = None\n            if False:",
    ),
    "late rows do not count": Mutant(
        "memtable/memtables.py", "return (*location[:4], location[4] + count)", "return location"
    ),
    "a held message is garbage": Mutant(
        "memtable/memtables.py", "            if msg_no in self._held:\n                self._orphans.add(msg_no)\n            else:", "            if True:"
    ),
    "orphans are in the index": Mutant(
        "memtable/file_states.py", "state.valid_bytes - orphan_bytes.get(file_no, 0)", "state.valid_bytes"
    ),
    "acks of frozen rows leave no trace": Mutant(
        "memtable/seq_set.py", "        self._others.update(rows)\n", ""
    ),
    "a run of acks of frozen rows leaves no trace": Mutant(
        "memtable/seq_set.py", "            self._lasts[-1] = last", "            pass"
    ),
    "an ack in a run counts again": Mutant("memtable/seq_set.py", "if first <= end or", "if"),
    "messages that were just read are gone with their first ack": Mutant(
        "memtable/memtables.py", "if row_count > len(places) or not", "if not"
    ),
    "a held message that was just read is garbage": Mutant(
        "memtable/memtables.py",
        "> len(places) or not self._held.keys().isdisjoint(msg_nos)",
        "> len(places)",
    ),
    "what a memtable has changed is taken for untouched": Mutant(
        "memtable/memtable.py", "self._changed_span = min(first, low), max(last, high)", "pass"
    ),
    "what a memtable has placed is taken for untouched": Mutant(
        "memtable/memtable.py", "self._inserted_span = min(first, low), max(last, high)", "pass"
    ),
    "a read view forgets memtables that begin while it is read": Mutant(
        "memtable/memtables.py", "            read_view.memtables.append(self.active)\n", "            pass\n"
    ),
    "a page ends too early": Mutant("memtable/read_view.py", "limit, later)", "limit, ())"),
    "replay begins with what the index has": Mutant(
        "recovery/replay.py", "if lsn < self._from_lsn:", "if lsn <= self._from_lsn:"
    ),
    "replay passes over acks of rows in the index": Mutant(
        "recovery/replay.py",
        "return present + [(row[0], row[1]) for row in self._in_index(queue_no, wanted)]",
        "return present",
    ),
    "replay asks the index about no message": Mutant(
        "recovery/replay.py", "return self._index.locations(msg_nos)", "return {}"
    ),
    "replay takes one new message for the end of the index": Mutant(
        "recovery/replay.py",
        "if not self._index.scan_locations(lowest, 1):",
        "if not self._index.locations([lowest]):",
    ),
    "records of messages that are gone do not end a memtable": Mutant(
        "checkpoint/checkpoint.py",
        "or journal.records_since_switch >= self.journal_records",
        "or journal.records_since_switch < 0",
    ),
    "rows of the journal are believed": Mutant(
        "recovery/row_check.py", "if wrong := check(self._folder, locations):", "if wrong := {}:"
    ),
    "what cannot be read is not acked": Mutant(
        "recovery/recovery.py",
        "[*self._acks_of_dropped(), *self",
        "[*self",
    ),
    "a lost index is an empty one": Mutant("recovery/recovery.py", "        if damage:\n", "        if False:\n"),
    "a rebuild believes in acks of other rows": Mutant(
        "recovery/rebuild.py", "MADE = 1 << 39", "MADE = 0"
    ),
    "a rebuild forgets one queue of each message": Mutant(
        "recovery/rebuild.py", "for no in queue_nos if", "for no in queue_nos[:2] if"
    ),
    "boots share their numbers": Mutant(
        "wal/group_commit.py", "self.next_msg_no = boot_epoch << EPOCH_SHIFT", "self.next_msg_no = EPOCH_SHIFT << 40"
    ),
    "a clean stop is believed after a crash": Mutant(
        "recovery/recovery.py", "self._numbers[1] < point.first_journal", "True"
    ),
}  # fmt: skip
