"""Faults to plant in reading back, in the index of a queue over a store, and in a queue's part in it."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "any message will do": Mutant("SegmentReader._read_one", "msg_no", ""),
    "records far apart are not read": Mutant(
        "SegmentReader.read", "for first, end in found: ...", "for first, end in found[:1]: ..."
    ),
    "descriptors are kept for ever": Mutant(
        "SegmentReader.segment", "len(...) >= self._descriptors_max", "False"
    ),
    "no descriptor left is damage": Mutant("SegmentReader._read_run", "number in PASSING", "False"),
    "one bad sector holds up its neighbours": Mutant(
        "SegmentReader._read_run", "number == errno.EIO and len(left) > 1", "False"
    ),
    "rows are not read again after a shortage": Mutant(
        "ReadThread._done", "self._loop.call_later(...)", "pass"
    ),
    "an index without its map is read": Mutant("LmdbIndex._grow", "self._has_map = ...", "pass"),
    "what moved is lost": Mutant("ContentReader._failed", "tries < TRIES_MAX", "False"),
    "a lost message is requested again": Mutant(
        "ContentReader._lose", "self._lost[msg_no] = why", "pass"
    ),
    "a message that is pending again counts as lost": Mutant(
        "ContentReader._failed", "self._residents.resident(msg_no) is not None", "False"
    ),
    "only the first waiting queue is resumed": Mutant(
        "ContentReader.prefetch", "self._wait_too(...)", "pass"
    ),
    "the cache has no bound": Mutant(
        "ReadCache.put", "self.size_bytes > self.room_bytes and left > 0", "False"
    ),
    "messages taken from the cache still count": Mutant(
        "ReadCache.take", "self.size_bytes -= ...", "pass"
    ),
    "rows that are not durable are left out": Mutant(
        "RowReader._merged", "if new: ...", "if False: ..."
    ),
    "acks that are not durable are left out": Mutant(
        "RowReader._merged", "if acked: ...", "if False: ..."
    ),
    "what the flush holds is not in RAM": Mutant(
        "GroupCommit.resident", "item = self._in_flight.get(msg_no)", "pass"
    ),
    "purged rows are shown until they are gone": Mutant(
        "QueueClient.rows",
        "rows_outside(...) if self._dying else rows",
        "rows_outside(...) if False else rows",
    ),
    "a purge takes the unacked messages within it": Mutant(
        "SeqRange.__contains__", "at == len(kept) or kept[at] != seq", "True"
    ),
    "of purges that overlap only the last counts": Mutant("rows_outside", "ranges", "ranges[-1:]"),
    "a queue that begins again uses seqs twice": Mutant(
        "QueueClient.attach", "self.next_seq += RESTART_GAP", "pass"
    ),
    "a queue hears of what the one before did": Mutant(
        "QueueClient._own", "min(runs)[0] >= first", "True"
    ),
    "acks are not counted": Mutant(
        "QueueClient.ack", "self.messages -= ...\nself.size_bytes -= size_bytes", "pass"
    ),
    "terms are written before the rows they count": Mutant(
        "QueueClient.terminate",
        "self.terms = ...",
        "self._store.core.close_queue(self.queue_no, next_seq, next_deliver)",
    ),
    "a purge is forgotten by a stop": Mutant("GroupCommit.is_idle", "not self.range_acks", ""),
    "after a crash seqs go on where the index was": Mutant(
        "MsgStore._new_client", "max(...)", "found.next_seq if found is not None else 0"
    ),
    "a deleted queue keeps its rows": Mutant(
        "MsgStore.delete_queue", "self.core.delete_queue(queue_no)", "pass"
    ),
    "bodies without a row are kept": Mutant(
        "QueueClient.discard", "holds.release(msg_nos)", "pass"
    ),
    "acked rows stay in the window": Mutant("StoredIndex.ack", "self._rows.forget(...)", "pass"),
    "new rows do not cut the window": Mutant(
        "StoredIndex.publish", "self._rows.cut(first_seq)", "pass"
    ),
    "new transients do not cut the window": Mutant(
        "StoredIndex.add", "self._transient_rows.cut(...)", "pass"
    ),
    "delivered contents stay in RAM": Mutant(
        "StoredIndex.fetch_contents", "self._cache.drop(...)", "pass"
    ),
    "transients are acked as persistent ones": Mutant(
        "StoredIndex.ack", "self._has_paged", "False"
    ),
    "a late answer is taken for another": Mutant(
        "RowWindow._came", "ticket != self._ticket", "False"
    ),
    "a window that was cut knows more than it should": Mutant(
        "RowWindow.cut", "self._high = ...", "pass"
    ),
    "loaded rows stay in RAM": Mutant("RowWindow._trim", "len(...) < ROWS", "True"),
    "a damaged content is handed out": Mutant("Batch._resolve", "LOST in messages", "False"),
    "a damaged content is put back as it is": Mutant(
        "VariableQueue._requeue_to_q4", "LOST in found", "False"
    ),
}
