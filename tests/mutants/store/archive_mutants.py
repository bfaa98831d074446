"""Faults to plant in the archive and in the parts that work with it."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "nothing is kept": Mutant("Archive.kept", "kept - self._given_up", "_NOTHING_KEPT"),
    "what was given up is kept": Mutant("Archive.kept", "kept - self._given_up", "kept"),
    "an early ack cancels the message": Mutant(
        "GroupCommit.ack", "queue_no in self.archive.row_nos", "False"
    ),
    "early acks are lost": Mutant("FlushBatch._take_rows", "pending.settled", "False"),
    "an early ack may be written before its row": Mutant(
        "PendingQueue.settle", "ack[0] in rows", "False"
    ),
    "acks of a flush that found no room overtake their rows": Mutant(
        "PendingQueue.put_back", "self.settle(...)", "self.acks = acks + meanwhile"
    ),
    "a start removes settled segments": Mutant(
        "Recovery._remove_segments", "memtables.frozen or archive", "memtables.frozen"
    ),
    "a kept segment is merged": Mutant("Collector._next_merge", "kept", ""),
    "a rebuild brings settled segments back": Mutant(
        "Rebuild.run", "shares is not None and shares.is_settled", "False"
    ),
    "numbers of segments begin anew when all is lost": Mutant(
        "Recovery._opened", "archive.segment_seen", ""
    ),
    "what a crash has cut off is read": Mutant(
        "Recovery._run", "self._ends or self._torn", "False"
    ),
    "what is complete does not end with a removed segment": Mutant(
        "Archive._note_freed", "queue.complete_from = ...", "queue.complete_from += 0"
    ),
    "a segment goes before readers have been told": Mutant(
        "Archive.free", "self.version == self.published or self.is_unwritable", "True"
    ),
    "frees are not counted": Mutant("Archive._note_freed", "self.frees += 1", "self.frees += 0"),
    "what a crash has torn is not told": Mutant("Recovery._replayed", "checked.torn()", "{}"),
    "where a queue ends in a segment is not known": Mutant(
        "Archive.written",
        "shares.add(...)",
        "shares.add(queue_no_of(route_no), records, size_bytes, now_ms, 0)",
    ),
    "a bound of bytes counts nothing": Mutant(
        "Archive._kept_of", "younger_bytes += size_bytes", "younger_bytes += 0"
    ),
    "copies count as positions of the stream": Mutant(
        "Archive.free", "shares is not None and (not shares.is_copy)", "shares is not None"
    ),
    "the survey counts only the first record of a block": Mutant(
        "_Counting.block", "at += total_len", "break"
    ),
}
