"""Faults to plant in the producer filter, and in the store's part of it."""

from __future__ import annotations

from mutants.planted import Mutant

_FILTER, _NUMBERED = "broker/queue/publishers/producers.py", "broker/queue/publishers/numbered.py"
_CHANNEL, _PENDING = "broker/channel/publishing/producers.py", "msg_store/wal/producers.py"
_COMMIT, _FLUSH = "msg_store/wal/group_commit.py", "msg_store/wal/flush.py"
_REPLAY, _RECOVERY = "msg_store/recovery/replay.py", "msg_store/recovery/recovery.py"
_CHECK, _REBUILD = "msg_store/recovery/row_check.py", "msg_store/recovery/rebuild.py"
_TABLES, _INDEX = "msg_store/memtable/memtables.py", "msg_store/index/lmdb_index.py"

MUTANTS = {
    "the last sequence is taken in again": Mutant(_FILTER, "if seq <= last:", "if seq < last:"),
    "a mail that waits takes in numbered messages": Mutant(
        "broker/channel/publishing/publish.py",
        "merges = expiration_ms is None and batch.producers is None",
        "merges = expiration_ms is None",
    ),
    "a lower epoch is taken in": Mutant(_FILTER, "if epoch < known[0]:", "if False:"),
    "a higher epoch goes on with the sequence": Mutant(
        _FILTER, "if epoch == known[0]:", "if epoch >= known[0]:"
    ),
    "nobody asks for the predecessor": Mutant(_FILTER, "if predecessor > last:", "if False:"),
    "a run is judged by what was there before it": Mutant(
        _FILTER, "ahead[producer] = epoch, seq", "pass"
    ),
    "transient sequences are written": Mutant(
        _FILTER, "            if is_persistent:\n", "            if True:\n"
    ),
    "the least recently used stays": Mutant(
        _FILTER,
        "            entries.pop(producer, None)\n            entries",
        "            entries",
    ),
    "an entry never expires": Mutant(
        _FILTER, "entry[2] + self._expiry_ms < self._wall_ms()", "False"
    ),
    "entries have no bound": Mutant(_FILTER, "too_many = len(entries) - self._max", "too_many = 0"),
    "a duplicate waits for nothing": Mutant(
        _FILTER, "self._unsafe.add(base + at)", "self._newest_row = -1"
    ),
    "a duplicate waits for later rows too": Mutant(
        _FILTER,
        "if each[0] < lowest]\n        self._waiting",
        "if lowest == inf]\n        self._waiting",
    ),
    "messages without a row are waited for": Mutant(_FILTER, "if at >= rows_from:", "if True:"),
    "a duplicate is confirmed before it is safe": Mutant(
        _NUMBERED, "if not known.is_safe:", "if False:"
    ),
    "a zombie hears nothing": Mutant(_NUMBERED, "if verdict == FENCED:", "if False:"),
    "a duplicate keeps its hold of the store": Mutant(
        _NUMBERED,
        "self._backing.discard(part.messages, is_persistent, part.first_msg_no)",
        "pass",
    ),
    "a message that is sent again has a predecessor": Mutant(
        _CHANNEL, "elif seq > before[2]:", "else:"
    ),
    "a message that follows one that is sent again has none": Mutant(
        _CHANNEL, "predecessor = before[2]", "pass"
    ),
    "a duplicate hides what was sent after its original": Mutant(
        _CHANNEL, "highest = max(before[1], seq)", "highest = seq"
    ),
    "a new epoch has a predecessor": Mutant(_CHANNEL, "before[0] == epoch", "True"),
    "a sequence overtakes its row": Mutant(_PENDING, "if sequence[0] >= limit:", "if False:"),
    "a failed flush loses its sequences": Mutant(_COMMIT, "self._sequences.put_back([", "list(["),
    "levels are taken one by one": Mutant(
        _COMMIT, "whole = self._sequences.whole() if self._sequences else ()", "whole = ()"
    ),
    "sequences are not written": Mutant(
        _FLUSH, "for queue_no, sequences in batch.sequences:", "for queue_no, sequences in ():"
    ),
    "sequences do not get to the memtable": Mutant(
        _COMMIT, "for queue_no, queue in batch.sequences:", "for queue_no, queue in ():"
    ),
    "sequences of a deleted queue are kept": Mutant(_TABLES, "del frozen.producers[key]", "pass"),
    "replay forgets the sequences": Mutant(
        _REPLAY, "                    self._produced(record, lsn)", "                    pass"
    ),
    "a lost message keeps its sequence": Mutant(
        _CHECK, "self._replay.roll_back(dropped) if dropped else ()", "()"
    ),
    "later rows of a lost message's producer stay": Mutant(
        _REPLAY,
        "if seq in rows and (queue_no, seq) not in dropped",
        "if seq in rows and False",
    ),
    "the next start does not know what was taken back": Mutant(
        _RECOVERY,
        "for (queue_no, producer), row in self._rolled_back.items():",
        "for (queue_no, producer), row in ():",
    ),
    "a rebuild knows no producers": Mutant(
        _REBUILD, "            self._note_producer(meta", "            _ = (meta"
    ),
    "the index keeps forgotten producers": Mutant(
        _INDEX, "transaction.delete(key, db=self._producers)", "pass"
    ),
    "the index keeps producers of deleted queues": Mutant(
        _INDEX,
        "                    cursor.delete()\n        if batch.checkpoint",
        "                    break\n        if batch.checkpoint",
    ),
}
