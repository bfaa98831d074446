"""Faults to plant in the transient store."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "an ack while it is being written is forgotten": Mutant(
        "PagedQueue.written", "len(taken) < len(entries)", "False"
    ),
    "a content that is acked while it is written goes on waiting": Mutant(
        "PagedQueue.ack",
        "self.contents.pop(...) or self.in_flight.pop(...)",
        "self.contents.pop(...)",
    ),
    "contents of a job that failed are not put back": Mutant(
        "PagedQueue.put_back", "self.contents = ...", "pass"
    ),
    "a range forgets the contents on their way": Mutant(
        "PagedQueue.ack_range", "*_within(seqs, self.in_flight)", ""
    ),
    "a range forgets the contents that wait": Mutant(
        "PagedQueue.ack_range", "*_within(seqs, self.contents)", ""
    ),
    "a range takes contents in RAM that it keeps": Mutant(
        "paged_queue._within", "seqs.kept", "False"
    ),
    "a range takes messages on the disk that it keeps": Mutant("PagedQueue._delete", "*kept", ""),
    "a range forgets what is on disk": Mutant(
        "PagedQueue._delete_later", "self.deleting.append(seqs)", "pass"
    ),
    "a range is deleted at one go": Mutant(
        "PagedQueue.delete", "self.deleting and work > 0", "self.deleting"
    ),
    "a range begins anew in each turn": Mutant(
        "PagedQueue.delete", "self.delete_from = high", "self.delete_from = low"
    ),
    "a range that follows another begins where that one ended": Mutant(
        "PagedQueue.delete",
        "self.delete_from = self.deleting[0].low if self.deleting else 0",
        "pass",
    ),
    "rows of contents that wait are not told": Mutant(
        "PagedQueue.rows", "self.in_flight | self.contents", "self.in_flight"
    ),
    "rows of contents on their way are not told": Mutant(
        "PagedQueue.rows", "self.in_flight | self.contents", "self.contents"
    ),
    "the limit of a read of rows does not hold": Mutant(
        "PagedQueue.rows", "del seqs[limit:]", "pass"
    ),
    "rows behind those that wait are forgotten": Mutant(
        "PagedQueue.rows", "bisect_left(waiting, base)", "len(waiting)"
    ),
    "rows that were acked are told": Mutant(
        "paged_queue._live",
        "{seq: position for seq, position in zip(seqs, positions, strict=True) if position}",
        "{seq: position for seq, position in zip(seqs, positions, strict=True)}",
    ),
    "acks in another order are taken for those of a run": Mutant(
        "paged_queue._runs",
        "seqs[end - 1] - first != length - 1 or seqs[at:end] != [*range(...)]",
        "seqs[end - 1] - first != length - 1",
    ),
    "positions that only begin in a row are taken for a run": Mutant(
        "PagedQueue._remove", "first and positions == array(...)", "first"
    ),
    "blocks without live messages are kept": Mutant("PagedQueue._remove", "block != _NONE", "True"),
    "acked contents give no credit back": Mutant(
        "PagedQueue.ack", "self.return_credit(...)", "pass"
    ),
    "credit comes one by one": Mutant(
        "paged_queue", "MORE_CREDIT: Final = 800", "MORE_CREDIT: Final = 1"
    ),
    "a queue that was refused is not told": Mutant(
        "PagingCore.page_out", "self._refused[queue] = None", "pass"
    ),
    "a full disk takes more": Mutant("PagingCore._room", "self.is_stalled", ""),
    "acks of all that the disk has refused do not end its refusal": Mutant(
        "PagingCore.start", "self.is_stalled = False", "pass"
    ),
    "messages of a dropped queue stay on disk": Mutant(
        "PagingCore.lose", "self._to_delete[queue.detach()] = None", "queue.detach()"
    ),
    "a file's number is used twice": Mutant(
        "PagingCore._segment", "self._file_no in self.segments", "False"
    ),
    "copied messages still count where they were": Mutant(
        "PagingCore.move", "queue.ack(...)", "pass"
    ),
    "messages that were acked while they were copied come back": Mutant(
        "PagingCore.move",
        "self.queues.get(...) is queue and queue.position(...) == position",
        "self.queues.get(...) is queue",
    ),
    "garbage stays": Mutant("PagingCore.victim", "share < 0.5", "False"),
    "a segment in use is unlinked": Mutant(
        "PagingCore._release", "segment is not self._current", "True"
    ),
    "a segment that was left without live messages stays": Mutant(
        "PagingCore._leave", "self._dead[current] = None", "pass"
    ),
    "after an error the same file is written to": Mutant(
        "PagingCore._written", "not is_disk_full(error)", "False"
    ),
    "contents that moved are lost": Mutant("_still", "queue.position(seq) == at", ""),
    "contents that cannot be read are looked for for ever": Mutant(
        "TransientStore._read", "[seq for seq in seqs if seq not in lost]", "list(seqs)"
    ),
    "a loss of rows is not noticed": Mutant("TransientStore._find", "not is_whole", "False"),
    "without descriptors all is lost": Mutant(
        "TransientReader.contents", "outcome.why_put_off is not None", "False"
    ),
    "without descriptors all rows are lost": Mutant(
        "TransientReader._bytes_at", "reason_no(error) in PASSING", "False"
    ),
    "rows in two files are read from one": Mutant(
        "_end_of_run", "(first >> ROW_BITS) + 1 << ROW_BITS", "1 << 40"
    ),
    "the space of unlinked segments is kept by the reader": Mutant(
        "TransientStore._finished", "isinstance(...)", "False"
    ),
    "a dropped queue is still told": Mutant(
        "TransientStore._is_over",
        "self._is_closed or self._core.queues.get(...) is not queue",
        "self._is_closed",
    ),
    "old files are left": Mutant("TransientWriter._wipe", "self._files.unlink(...)", "pass"),
    "an attempt that failed is not written over": Mutant(
        "TransientWriter._opened", "FileExistsError", "ZeroDivisionError"
    ),
    "a segment that cannot be unlinked is forgotten": Mutant(
        "TransientWriter._unlink", "continue", ""
    ),
}
