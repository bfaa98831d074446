"""Faults to plant in the producer filter, and in the store's part of it."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "the last sequence is taken in again": Mutant(
        "ProducerFilter._verdict", "seq <= last", "seq < last"
    ),
    "a mail that waits takes in numbered messages": Mutant(
        "Publisher._post",
        "expiration_ms is None and batch.producers is None",
        "expiration_ms is None",
    ),
    "a lower epoch is taken in": Mutant("ProducerFilter._verdict", "epoch < known[0]", "False"),
    "a higher epoch goes on with the sequence": Mutant(
        "ProducerFilter._verdict", "epoch == known[0]", "epoch >= known[0]"
    ),
    "nobody asks for the predecessor": Mutant(
        "ProducerFilter._verdict", "predecessor > last", "False"
    ),
    "a run is judged by what was there before it": Mutant(
        "ProducerFilter._verdict", "ahead[producer] = ...", "pass"
    ),
    "transient sequences are written": Mutant("ProducerFilter.taken_in", "is_persistent", "True"),
    "the least recently used stays": Mutant("ProducerFilter.taken_in", "entries.pop(...)", ""),
    "an entry never expires": Mutant(
        "ProducerFilter._known", "entry[2] + self._expiry_ms < self._wall_ms()", "False"
    ),
    "entries have no bound": Mutant("ProducerFilter._expired", "len(entries) - self._max", "0"),
    "a duplicate waits for nothing": Mutant(
        "ProducerFilter.taken_in", "self._unsafe.add(...)", "self._newest_row = -1"
    ),
    "a duplicate waits for later rows too": Mutant(
        "ProducerFilter.became_safe", "each[0] < lowest", "lowest == inf"
    ),
    "messages without a row are waited for": Mutant(
        "ProducerFilter.taken_in", "at >= rows_from", "True"
    ),
    "a duplicate is confirmed before it is safe": Mutant(
        "Deduplication._note_duplicates", "not known.is_safe", "False"
    ),
    "a zombie hears nothing": Mutant("Deduplication.publish", "verdict == FENCED", "False"),
    "a duplicate keeps its hold of the store": Mutant(
        "Deduplication.publish", "self._backing.discard(...)", "pass"
    ),
    "a message that is sent again has a predecessor": Mutant(
        "Predecessors.number", "if seq > before[2]: ...", "predecessor = before[2]"
    ),
    "a message that follows one that is sent again has none": Mutant(
        "Predecessors.number", "predecessor = before[2]", "pass"
    ),
    "a duplicate hides what was sent after its original": Mutant(
        "Predecessors.number", "max(...)", "seq"
    ),
    "a new epoch has a predecessor": Mutant("Predecessors.number", "before[0] == epoch", "True"),
    "a sequence overtakes its row": Mutant(
        "PendingSequences.take", "sequence[0] >= limit", "False"
    ),
    "a failed flush loses its sequences": Mutant(
        "GroupCommit._put_back", "self._sequences.put_back", "list"
    ),
    "levels are taken one by one": Mutant(
        "PendingSequences.share", "share.whole.extend(row_nos)", "pass"
    ),
    "a flush takes all sequences": Mutant("PendingSequences.share", "count > left", "False"),
    "rows overtake their sequences": Mutant(
        "PendingSequences.share", "share.ends.update(...)", "pass"
    ),
    "the queue with most sequences is first": Mutant(
        "producers._waiting_count", "len(queue[1].waiting)", "-len(queue[1].waiting)"
    ),
    "sequences are not written": Mutant("flush.journal_records", "batch.sequences", "()"),
    "sequences do not get to the memtable": Mutant("GroupCommit._durable", "batch.sequences", "()"),
    "sequences of a deleted queue are kept": Mutant(
        "Memtables.rotate", "del frozen.producers[key]", "pass"
    ),
    "replay forgets the sequences": Mutant("Replay.add", "self._produced(...)", "pass"),
    "a lost message keeps its sequence": Mutant(
        "RowCheck._judge", "self._replay.roll_back(dropped) if dropped else ()", "()"
    ),
    "later rows of a lost message's producer stay": Mutant(
        "Replay.roll_back", "(queue_no, seq) not in dropped", "False"
    ),
    "the next start does not know what was taken back": Mutant(
        "Recovery._sequences_changed", "self._changed.items()", "()"
    ),
    "a rebuild knows no producers": Mutant(
        "Rebuild._messages",
        "note_producer(...)",
        "_ = (meta.head, meta.queue_nos, record.ts_ms)",
    ),
    "the index keeps forgotten producers": Mutant(
        "LmdbIndex._put_small", "transaction.delete(key, db=self._producers)", "pass"
    ),
    "the index keeps producers of deleted queues": Mutant(
        "LmdbIndex._put_small", "cursor.delete()", "break"
    ),
}
