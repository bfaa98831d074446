"""Faults to plant in reading back, in the index of a queue over a store, and in a queue's part in it."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "any message will do": Mutant(
        "msg_store/reading/segments.py",
        "segment.read(offset, length, msg_no)",
        "segment.read(offset, length)",
    ),
    "records far apart are not read": Mutant(
        "msg_store/reading/segments.py", "for first, end in found:", "for first, end in found[:1]:"
    ),
    "descriptors are kept for ever": Mutant(
        "msg_store/reading/segments.py", "len(self._open) >= self._descriptors_max", "False"
    ),
    "no descriptor left is damage": Mutant(
        "msg_store/reading/segments.py", "elif number in PASSING:", "elif False:"
    ),
    "one bad sector holds up its neighbours": Mutant(
        "msg_store/reading/segments.py", "if number == errno.EIO and len(left) > 1:", "if False:"
    ),
    "rows are not read again after a shortage": Mutant(
        "msg_store/reading/rows.py",
        "self._loop.call_later(RETRY_S, self.submit, work, then)",
        "pass",
    ),
    "an index without its map is read": Mutant(
        "msg_store/index/lmdb_index.py", "self._has_map = is_shortage(error)", "pass"
    ),
    "what moved is lost": Mutant("msg_store/reading/contents.py", "if tries < TRIES_MAX:", "if False:"),
    "a lost message is requested again": Mutant(
        "msg_store/reading/contents.py", "self._lost[msg_no] = why", "pass"
    ),
    "a message that is pending again counts as lost": Mutant(
        "msg_store/reading/contents.py",
        "if self._residents.resident(msg_no) is not None:",
        "if False:",
    ),
    "only the first waiting queue is resumed": Mutant(
        "msg_store/reading/contents.py", "self._wait_too(new, waiter)\n", "pass\n"
    ),
    "the cache has no bound": Mutant(
        "msg_store/reading/read_cache.py", "while self.size_bytes > self.room_bytes and left > 0:", "while False:"
    ),
    "messages taken from the cache still count": Mutant(
        "msg_store/reading/read_cache.py", "self.size_bytes -= size_bytes + len(taken) * _OVERHEAD_BYTES", "pass"
    ),
    "rows that are not durable are left out": Mutant(
        "msg_store/reading/rows.py", "if upto == SEQ_END and new:", "if False:"
    ),
    "acks that are not durable are left out": Mutant(
        "msg_store/reading/rows.py", "        if acked:\n", "        if False:\n"
    ),
    "what the flush holds is not in RAM": Mutant(
        "msg_store/wal/group_commit.py", "item = self._in_flight.get(msg_no)", "pass"
    ),
    "purged rows are shown until they are gone": Mutant(
        "msg_store/client.py", "if self._dying else rows", "if False else rows"
    ),
    "a purge takes the unacked messages within it": Mutant(
        "msg_store/format/seq_range.py", "return at == len(kept) or kept[at] != seq", "return True"
    ),
    "of purges that overlap only the last counts": Mutant(
        "msg_store/format/seq_range.py", "    for each in ranges:\n", "    for each in ranges[-1:]:\n"
    ),
    "a queue that begins again uses seqs twice": Mutant(
        "msg_store/client.py", "self.next_seq += RESTART_GAP", "pass"
    ),
    "a queue hears of what the one before did": Mutant(
        "msg_store/client.py", "if min(runs)[0] >= first:", "if True:"
    ),
    "acks are not counted": Mutant(
        "msg_store/client.py",
        "self.messages -= len(acked)\n        self.size_bytes -= size_bytes",
        "pass",
    ),
    "terms are written before the rows they count": Mutant(
        "msg_store/client.py",
        "self.terms = CleanTerms(next_seq, next_deliver)\n",
        "self._store.core.close_queue(self.queue_no, next_seq, next_deliver)\n",
    ),
    "a purge is forgotten by a stop": Mutant(
        "msg_store/wal/group_commit.py",
        "return self._flush is None and not self.pending_ops and not self.range_acks",
        "return self._flush is None and not self.pending_ops",
    ),
    "after a crash seqs go on where the index was": Mutant(
        "msg_store/store.py",
        "next_seq = max(recovered.next_no, found.next_seq if found is not None else 0)",
        "next_seq = found.next_seq if found is not None else 0",
    ),
    "a deleted queue keeps its rows": Mutant(
        "msg_store/store.py", "self.core.delete_queue(queue_no)", "pass"
    ),
    "bodies without a row are kept": Mutant(
        "msg_store/client.py", "holds.release(msg_nos)", "pass"
    ),
    "acked rows stay in the window": Mutant(
        "queue_backing/index/stored.py",
        "self._rows.forget(map(seq_of, entries))",
        "pass",
    ),
    "new rows do not cut the window": Mutant(
        "queue_backing/index/stored.py", "self._rows.cut(first_seq)", "pass"
    ),
    "new transients do not cut the window": Mutant(
        "queue_backing/index/stored.py",
        "self._transient_rows.cut(min(map(seq_of, entries)))",
        "pass",
    ),
    "delivered contents stay in RAM": Mutant(
        "queue_backing/index/stored.py", "self._cache.drop(keys[:given])", "pass"
    ),
    "transients are acked as persistent ones": Mutant(
        "queue_backing/index/stored.py", "        if self._has_paged:\n            transient = [entry for entry in entries if not entry[PERSISTENT]]\n            if transient:\n                self._ack", "        if False:\n            transient = [entry for entry in entries if not entry[PERSISTENT]]\n            if transient:\n                self._ack",
    ),
    "a late answer is taken for another": Mutant(
        "queue_backing/index/row_window.py", "if ticket != self._ticket:", "if False:"
    ),
    "a window that was cut knows more than it should": Mutant(
        "queue_backing/index/row_window.py", "self._high = max(seq, self._low)", "pass"
    ),
    "loaded rows stay in RAM": Mutant(
        "queue_backing/index/row_window.py", "if len(self._entries) < ROWS:", "if True:"
    ),
    "a damaged content is handed out": Mutant(
        "queue_backing/variable/queue.py", "if LOST in messages:", "if False:"
    ),
    "a damaged content is put back as it is": Mutant(
        "queue_backing/variable/queue.py", "if LOST in found:", "if False:"
    ),
}  # fmt: skip
