"""Faults to plant in the transient store."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "an ack while it is being written is forgotten": Mutant(
        "transient/paged_queue.py", "if len(taken) < len(entries):", "if False:"
    ),
    "a content that is acked while it is written goes on waiting": Mutant(
        "transient/paged_queue.py", "or self.in_flight.pop(entry[SEQ], None)\n", "\n"
    ),
    "contents of a job that failed are not put back": Mutant(
        "transient/paged_queue.py", "self.contents = self.in_flight | self.contents", "pass"
    ),
    "a range forgets the contents on their way": Mutant(
        "transient/paged_queue.py", ", *_within(seqs, self.in_flight)]", "]"
    ),
    "a range forgets the contents that wait": Mutant(
        "transient/paged_queue.py", "[*_within(seqs, self.contents), ", "["
    ),
    "a range takes contents in RAM that it keeps": Mutant(
        "transient/paged_queue.py", "if seqs.kept else found", "if False else found"
    ),
    "a range takes messages on the disk that it keeps": Mutant(
        "transient/paged_queue.py", "for end in (*kept, high):", "for end in (high,):"
    ),
    "a range forgets what is on disk": Mutant(
        "transient/paged_queue.py", "self.deleting.append(seqs)", "pass"
    ),
    "a range is deleted at one go": Mutant(
        "transient/paged_queue.py", "while self.deleting and work > 0:", "while self.deleting:"
    ),
    "a range begins anew in each turn": Mutant(
        "transient/paged_queue.py", "self.delete_from = high", "self.delete_from = low"
    ),
    "a range that follows another begins where that one ended": Mutant(
        "transient/paged_queue.py", "self.delete_from = self.deleting[0].low if self.deleting else 0", "pass"
    ),
    "rows of contents that wait are not told": Mutant(
        "transient/paged_queue.py", "in_ram = self.in_flight | self.contents", "in_ram = self.in_flight"
    ),
    "rows of contents on their way are not told": Mutant(
        "transient/paged_queue.py", "in_ram = self.in_flight | self.contents", "in_ram = self.contents"
    ),
    "the limit of a read of rows does not hold": Mutant(
        "transient/paged_queue.py", "del seqs[limit:]", "pass"
    ),
    "rows behind those that wait are forgotten": Mutant(
        "transient/paged_queue.py", "len(on_disk) + bisect_left(waiting, base) >= limit", "len(on_disk) + len(waiting) >= limit"
    ),
    "rows that were acked are told": Mutant(
        "transient/paged_queue.py", "if position}", "}"
    ),
    "acks in another order are taken for those of a run": Mutant(
        "transient/paged_queue.py", " or seqs[at:end] != [*range(first, first + length)]:", ":"
    ),
    "positions that only begin in a row are taken for a run": Mutant(
        "transient/paged_queue.py", "first and positions == array(\"I\", range(first, first + count))", "first"
    ),
    "blocks without live messages are kept": Mutant(
        "transient/paged_queue.py", "if block != _NONE:", "if True:"
    ),
    "acked contents give no credit back": Mutant(
        "transient/paged_queue.py", "self.return_credit(before - len(self.contents))\n        if self.blocks:\n            self._remove_entries", "if self.blocks:\n            self._remove_entries"
    ),
    "credit comes one by one": Mutant(
        "transient/paged_queue.py", "MORE_CREDIT: Final = 800", "MORE_CREDIT: Final = 1"
    ),
    "a queue that was refused is not told": Mutant(
        "transient/paging_core.py", "self._refused[queue] = None", "pass"
    ),
    "a full disk takes more": Mutant(
        "transient/paging_core.py", "if self.is_stalled or queue.credit", "if queue.credit"
    ),
    "acks of all that the disk has refused do not end its refusal": Mutant(
        "transient/paging_core.py", "self.is_stalled = False  # what", "pass  # what"
    ),
    "messages of a dropped queue stay on disk": Mutant(
        "transient/paging_core.py", "self._to_delete[queue.detach()] = None", "queue.detach()"
    ),
    "a file's number is used twice": Mutant(
        "transient/paging_core.py", "or self._file_no in self.segments:", "or False:"
    ),
    "copied messages still count where they were": Mutant(
        "transient/paging_core.py", "queue.ack([entry])\n", "pass\n"
    ),
    "messages that were acked while they were copied come back": Mutant(
        "transient/paging_core.py", "is queue and queue.position(entry[SEQ]) == position:", "is queue:"
    ),
    "garbage stays": Mutant(
        "transient/paging_core.py", "if share < 0.5 else None", "if False else None"
    ),
    "a segment in use is unlinked": Mutant(
        "transient/paging_core.py", "if segment is not self._current:\n", "if True:\n"
    ),
    "a segment that was left without live messages stays": Mutant(
        "transient/paging_core.py", "self._dead[current] = None", "pass"
    ),
    "after an error the same file is written to": Mutant(
        "transient/paging_core.py", "if not is_disk_full(error):", "if False:"
    ),
    "contents that moved are lost": Mutant(
        "transient/store.py", "if queue.position(seq) == at]", "]"
    ),
    "contents that cannot be read are looked for for ever": Mutant(
        "transient/store.py", "[seq for seq in seqs if seq not in lost]", "list(seqs)"
    ),
    "a loss of rows is not noticed": Mutant(
        "transient/store.py", "if not is_whole and any(", "if False and any("
    ),
    "without descriptors all is lost": Mutant(
        "transient/reader.py", "if outcome.why_put_off is not None:", "if False:"
    ),
    "without descriptors all rows are lost": Mutant(
        "transient/reader.py", "if reason_no(error) in PASSING:", "if False:"
    ),
    "rows in two files are read from one": Mutant(
        "transient/reader.py", "((first >> ROW_BITS) + 1) << ROW_BITS, at)", "1 << 40, at)"
    ),
    "the space of unlinked segments is kept by the reader": Mutant(
        "transient/store.py", "if isinstance(job, Unlink):", "if False:"
    ),
    "a dropped queue is still told": Mutant(
        "transient/store.py",
        "return self._is_closed or self._core.queues.get(queue.queue_no) is not queue",
        "return self._is_closed",
    ),
    "old files are left": Mutant(
        "transient/writer.py", "self._files.unlink(self._paths.rdq / name)", "pass"
    ),
    "an attempt that failed is not written over": Mutant(
        "transient/writer.py", "except FileExistsError:", "except ZeroDivisionError:"
    ),
    "a segment that cannot be unlinked is forgotten": Mutant(
        "transient/writer.py", "                error = refused\n                continue\n", "                error = refused\n"
    ),
}  # fmt: skip
