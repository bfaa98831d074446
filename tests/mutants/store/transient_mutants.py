"""Faults to plant in the transient store."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "an ack while it is being written is forgotten": Mutant(
        "transient/paged_queue.py", "if self.is_on_disk:\n            self.acks", "if False:\n            self.acks"
    ),
    "a content that failed and was acked is written all the same": Mutant(
        "transient/paged_queue.py", "acked = [seq for seq in back if seq in self.acks]", "acked = []"
    ),
    "contents of a job that failed are not put back": Mutant(
        "transient/paged_queue.py", "self.contents = back | self.contents", "pass"
    ),
    "a range forgets the contents on their way": Mutant(
        "transient/paged_queue.py", ", *_within(seqs, self.in_flight)]", "]"
    ),
    "a range forgets the contents that wait": Mutant(
        "transient/paged_queue.py", "[*_within(seqs, self.contents), ", "["
    ),
    "rows that were acked while they were read are told": Mutant(
        "transient/paged_queue.py", "read.acked.update(seqs)", "pass"
    ),
    "acks of before a read are forgotten before it is told": Mutant(
        "transient/paged_queue.py", "read.acked.update(self.acks_in_flight)", "pass"
    ),
    "acks of a write that fails are forgotten before a read is told": Mutant(
        "transient/paged_queue.py", "read.acked.update(acked)", "pass"
    ),
    "rows that were paged out while they were read are not": Mutant(
        "transient/paged_queue.py", "read.paged_out |= new", "pass"
    ),
    "rows of contents that wait are not told": Mutant(
        "transient/paged_queue.py", "self.paged_out = queue.in_flight | queue.contents", "self.paged_out = dict(queue.in_flight)"
    ),
    "rows of contents on their way are not told": Mutant(
        "transient/paged_queue.py", "self.paged_out = queue.in_flight | queue.contents", "self.paged_out = dict(queue.contents)"
    ),
    "a range that is being deleted is still read": Mutant(
        "transient/paged_queue.py", "read.deleted.append(seqs)", "pass"
    ),
    "rows behind the end of the read are answered": Mutant(
        "transient/paged_queue.py", "if low <= s < reached]", "if low <= s]"
    ),
    "the limit of a read of rows does not hold": Mutant(
        "transient/paged_queue.py", "if len(rows) == self.limit:", "if False:"
    ),
    "acked contents give no credit back": Mutant(
        "transient/paged_queue.py", "self.return_credit(before - len(self.contents))", "pass"
    ),
    "credit comes one by one": Mutant(
        "transient/paged_queue.py", "MORE_CREDIT: Final = 800", "MORE_CREDIT: Final = 1"
    ),
    "a queue that was refused is not told": Mutant(
        "transient/paging_core.py", "self._refused[queue.incarnation] = queue", "pass"
    ),
    "a full disk takes more": Mutant(
        "transient/paging_core.py", "if self.is_stalled or queue.credit", "if queue.credit"
    ),
    "an incarnation is used twice": Mutant(
        "transient/paging_core.py", "self._next_incarnation += 1", "pass"
    ),
    "contents of a dropped queue stay on disk": Mutant(
        "transient/paging_core.py", "if queue.is_on_disk:\n            self._ranges", "if False:\n            self._ranges"
    ),
    "the rest of a range is forgotten": Mutant(
        "transient/paging_core.py", "self._ranges.extendleft(reversed(job.left))", "pass"
    ),
    "ranges of a job that failed are forgotten": Mutant(
        "transient/paging_core.py", "self._ranges.extendleft(reversed(job.ranges))", "pass"
    ),
    "contents in flight are lost with the index": Mutant(
        "transient/paging_core.py", "if error is None and not is_lost:", "if error is None:"
    ),
    "a failed batch leaves its bytes": Mutant(
        "transient/writer.py", "self.segments.truncate(start)\n            raise\n        self.segments.add(places)", "raise\n        self.segments.add(places)"
    ),
    "copied records still count where they were": Mutant(
        "transient/writer.py", "self.segments.remove(before)", "pass"
    ),
    "copied records are not looked for there": Mutant(
        "transient/writer.py", "partial(self.index.move, keys)", "len"
    ),
    "a range is deleted at one go": Mutant(
        "transient/index.py", "range(1, looks_max + 1)", "range(1, 1 << 30)"
    ),
    "a range is given up after a slice": Mutant(
        "transient/index.py", "    return low, looks_max", "    return seqs.high, looks_max"
    ),
    "a range goes on in the next incarnation": Mutant(
        "transient/index.py", "if owner != incarnation or seq >= seqs.high", "if seq >= seqs.high"
    ),
    "a range takes the keys that it keeps": Mutant(
        "transient/index.py", "if low > seq:", "if False:"
    ),
    "a range begins anew in each job": Mutant(
        "transient/index.py", "[left[0]._replace(low=low)]", "[left[0]]"
    ),
    "a range takes contents in RAM that it keeps": Mutant(
        "transient/paged_queue.py", "if seqs.kept else found", "if False else found"
    ),
    "a read passes over rows that a range keeps": Mutant(
        "transient/paged_queue.py", "low = seqs.end_from(low)", "low = seqs.high"
    ),
    "a range that has been deleted is not forgotten": Mutant(
        "transient/paging_core.py", "queue.deleting.remove(keys.seqs)", "pass"
    ),
    "rows of another queue are told": Mutant(
        "transient/index.py", "if owner != incarnation or seq >= high", "if seq >= high"
    ),
    "contents that moved are lost": Mutant("transient/reader.py", "TRIES: Final = 3", "TRIES: Final = 1"),
    "contents that were acked are said to be lost": Mutant(
        "transient/reader.py", "if place is not None)\n        if lost", "if True)\n        if lost"
    ),
    "without descriptors all is lost": Mutant(
        "transient/reader.py", "if outcome.put_off:", "outcome.failures |= dict.fromkeys(outcome.put_off, '')\n        if False:"
    ),
    "contents of another incarnation are read": Mutant(
        "transient/reader.py", "if meta.queue_nos != (incarnation,):", "if False:"
    ),
    "the space of unlinked segments is kept by the reader": Mutant(
        "transient/store.py", "if unlinked:", "if False:"
    ),
    "a dropped queue is still told": Mutant(
        "transient/store.py",
        "return self._is_closed or self._core.queues.get(queue.queue_no) is not queue",
        "return self._is_closed",
    ),
    "a segment in use is unlinked": Mutant(
        "transient/segments.py", "self._dead - {self.current}", "set(self._dead)"
    ),
    "old segments are left": Mutant(
        "transient/segments.py", 'if name.endswith(".rdq"):', "if False:"
    ),
    "a segment that cannot be unlinked is forgotten": Mutant(
        "transient/segments.py",
        "                self._unlinking.note(error)\n                continue\n",
        "                self._unlinking.note(error)\n",
    ),
}  # fmt: skip
