"""Faults to plant in the archive and in the parts that work with it."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "nothing is kept": Mutant(
        "archive/archive.py", "return kept - self._given_up", "return _NOTHING_KEPT"
    ),
    "what was given up is kept": Mutant(
        "archive/archive.py", "return kept - self._given_up", "return kept"
    ),
    "an early ack cancels the message": Mutant(
        "wal/group_commit.py",
        "if queue_no in self.archive.row_nos:\n            pending",
        "if False:\n            pending",
    ),
    "early acks are lost": Mutant(
        "wal/flush.py", "                if pending.settled:\n", "                if False:\n"
    ),
    "an early ack may be written before its row": Mutant(
        "wal/pending.py",
        "            if ack[0] in rows:\n                settled",
        "            if False:\n                settled",
    ),
    "acks of a flush that found no room overtake their rows": Mutant(
        "wal/pending.py",
        "            self.settle(acks + meanwhile)\n",
        "            self.acks = acks + meanwhile\n",
    ),
    "a start removes settled segments": Mutant(
        "recovery/recovery.py", "if memtables.frozen or archive:", "if memtables.frozen:"
    ),
    "a kept segment is merged": Mutant(
        "gc/collector.py",
        "self._busy.union(self._pins, self._leave_alone_now(), kept)",
        "self._busy.union(self._pins, self._leave_alone_now())",
    ),
    "a rebuild brings settled segments back": Mutant(
        "recovery/rebuild.py", "if shares is not None and shares.is_settled:", "if False:"
    ),
    "numbers of segments begin anew when all is lost": Mutant(
        "recovery/recovery.py",
        "self._scan.durable.file_no, archive.segment_seen)",
        "self._scan.durable.file_no)",
    ),
    "what a crash has cut off is read": Mutant(
        "recovery/recovery.py", "if self._ends or self._torn:", "if False:"
    ),
    "what is complete does not end with a removed segment": Mutant(
        "archive/archive.py",
        "queue.complete_from = max(queue.complete_from, file_no + 1)",
        "queue.complete_from += 0",
    ),
    "a segment goes before readers have been told": Mutant(
        "archive/archive.py",
        "return self.version == self.published or self.is_unwritable",
        "return True",
    ),
    "frees are not counted": Mutant("archive/archive.py", "self.frees += 1", "self.frees += 0"),
    "what a crash has torn is not told": Mutant(
        "recovery/recovery.py", "self._torn = checked.torn()", "self._torn = {}"
    ),
    "where a queue ends in a segment is not known": Mutant(
        "archive/archive.py",
        "shares.add(queue_no_of(route_no), records, size_bytes, now_ms, end)",
        "shares.add(queue_no_of(route_no), records, size_bytes, now_ms, 0)",
    ),
    "a bound of bytes counts nothing": Mutant(
        "archive/archive.py", "younger_bytes += size_bytes", "younger_bytes += 0"
    ),
    "copies count as positions of the stream": Mutant(
        "archive/archive.py",
        "if shares is not None and not shares.is_copy:",
        "if shares is not None:",
    ),
    "the survey counts only the first record of a block": Mutant(
        "gc/survey.py", "            at += total_len\n", "            break\n"
    ),
}
