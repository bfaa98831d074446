"""Faults to plant in the transient store."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "an ack while it is being written is forgotten": Mutant(
        "transient/paged_queue.py", "if self.is_on_disk:\n            self.gone", "if False:\n            self.gone"
    ),
    "what failed and was acked is written all the same": Mutant(
        "transient/paged_queue.py", "dropped = {seq for seq in flying if seq in self.gone}", "dropped = set()"
    ),
    "what failed is not put back": Mutant(
        "transient/paged_queue.py", "self.contents = flying | self.contents", "pass"
    ),
    "a range forgets the rows on their way": Mutant(
        "transient/paged_queue.py", "(self.rows, self.added, self.flying_rows):\n            seqs", "(self.rows, self.added):\n            seqs"
    ),
    "rows that were acked while they were read are told": Mutant(
        "transient/paged_queue.py", "read.gone.update(seqs)", "pass"
    ),
    "rows that were added while they were read are not": Mutant(
        "transient/paged_queue.py", "read.added |= made", "pass"
    ),
    "a range that is being deleted is still read": Mutant(
        "transient/paged_queue.py", "read.doomed.append(doomed)", "pass"
    ),
    "rows behind what was read are told": Mutant(
        "transient/paged_queue.py", "if low <= s < reached}", "if low <= s}"
    ),
    "acked contents give no credit back": Mutant(
        "transient/paged_queue.py", "self.handle(before - len(self.contents))", "pass"
    ),
    "credit comes one by one": Mutant(
        "transient/paged_queue.py", "MORE_CREDIT: Final = 800", "MORE_CREDIT: Final = 1"
    ),
    "who was refused is not told": Mutant(
        "transient/paging_core.py", "self._refused[queue.life] = queue", "pass"
    ),
    "a full disk takes more": Mutant(
        "transient/paging_core.py", "if self.is_stalled or queue.credit", "if queue.credit"
    ),
    "a life is used twice": Mutant("transient/paging_core.py", "self._next_life += 1", "pass"),
    "what was written of a dropped queue stays": Mutant(
        "transient/paging_core.py", "if queue.is_on_disk:\n            self._ranges", "if False:\n            self._ranges"
    ),
    "the rest of a range is forgotten": Mutant(
        "transient/paging_core.py", "self._ranges.extendleft(reversed(job.left))", "pass"
    ),
    "ranges of a job that failed are forgotten": Mutant(
        "transient/paging_core.py", "self._ranges.extendleft(reversed(job.ranges))", "pass"
    ),
    "the index is lost with what is on its way": Mutant(
        "transient/paging_core.py", "if error is None and not is_lost:", "if error is None:"
    ),
    "a failed batch leaves its bytes": Mutant(
        "transient/writer.py", "if contents:\n                self.segments.forget_from(start)", "if False:\n                pass"
    ),
    "what was copied still counts where it was": Mutant(
        "transient/writer.py", "self.segments.release([each.place", "list([each.place"
    ),
    "what was copied is not looked for there": Mutant(
        "transient/writer.py", "self.index.move(zip(", "list(zip("
    ),
    "a range takes contents without a row": Mutant(
        "transient/index.py", "if doomed.rows_only and not value[_IS_ROW]:", "if False:"
    ),
    "a range begins anew with each slice": Mutant(
        "transient/index.py", "return doomed._replace(low=seq), looked_at", "return doomed, looked_at"
    ),
    "an add of what is not there makes it": Mutant(
        "transient/index.py", "if value is not None:\n                    transaction.put", "if True:\n                    transaction.put"
    ),
    "the limit of a read of rows does not hold": Mutant(
        "transient/index.py", "return rows, seq\n", "return rows, high\n"
    ),
    "what moved is lost": Mutant("transient/reader.py", "TRIES: Final = 3", "TRIES: Final = 1"),
    "what was acked is said to be lost": Mutant(
        "transient/reader.py", "still_there = self.index.places(keys)", "still_there = keys"
    ),
    "without descriptors all is lost": Mutant(
        "transient/reader.py", "error.errno in _EXHAUSTED", "error.errno == 0"
    ),
    "checksums are not looked at in reading on": Mutant(
        "transient/reader.py", "failed = error\n", "pass\n"
    ),
    "the space of unlinked segments is kept by readers": Mutant(
        "transient/store.py", "if swept.unlinked:", "if False:"
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
}  # fmt: skip
