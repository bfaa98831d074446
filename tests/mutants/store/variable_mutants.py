"""Faults to plant in the variable queue.

Twelve faults in the order and count of messages come first; the others can occur only in a queue that goes on
while its disk reads.
"""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "placement by q1, not q3": Mutant(
        "VariableQueue.publish", "not paged.q3 and paged.delta is BLANK", "not self.q1"
    ),
    "q4 does not take over q1": Mutant(
        "VariableQueue.q3_was_taken_from", "self.q4, self.q1 = ...", "pass"
    ),
    "q2 does not join q3 when delta is empty": Mutant(
        "PagedParts._append_loaded", "self.q3.extend(...)\nself.q2 = NOTHING", "pass"
    ),
    "unacked count as persistent in a mixed queue": Mutant(
        "VariableQueue._persistent_ready",
        "(messages, size_bytes) == (self.count + pending.count(), all_bytes)",
        "messages",
    ),
    "unacked are loaded from delta": Mutant(
        "PagedParts._ready", "(self._pending.in_ram, self._pending.on_disk)", "()"
    ),
    "q1 always goes to q2": Mutant("PagedParts.append", "self.delta is BLANK", "False"),
    "q3 goes to delta without regard to segments": Mutant(
        "PagedParts.push_to_delta",
        "head if is_lazy else next_boundary(...)",
        "head or next_boundary(...)",
    ),
    "contents without a row leak": Mutant(
        "VariableQueue.forget", "CONTENT_ON_DISK", "CONTENT_ON_DISK - 1"
    ),
    "a requeue does not sort": Mutant("VariableQueue.requeue", "back.sort()", "pass"),
    "a requeue to q4 has no limit": Mutant(
        "VariableQueue._add_at_places", "if paged.q3: ...", "if False: ..."
    ),
    "delta is read beyond its end": Mutant("window_end", "delta.end", ""),
    "delta does not grow downwards": Mutant("expand", "min(...)", "delta.start"),
    "placement forgets awaited rows": Mutant(
        "VariableQueue.publish", "not paged.q3 and paged.delta is BLANK", "not paged.q3"
    ),
    "columns though there is a delta": Mutant(
        "VariableQueue.publish",
        "is_alone and is_long and self.uses_columns",
        "not self.q1 and is_long and self.uses_columns",
    ),
    "what the store did not take of the columns is lost": Mutant(
        "Columns.put_back", "list(entries)", "list(entries)[:0]"
    ),
    "what q4 lacks is not counted": Mutant("VariableQueue._requeue_to_q4", "len(absent)", "0"),
    "what the store did not take is lost": Mutant(
        "VariableQueue._alphas_to_betas", "put_back(...)", "pass"
    ),
    "a message that is not in RAM is delivered": Mutant(
        "Batch._resolve", "part.extendleft(...)", "pass"
    ),
    "an acked message counts as paged out": Mutant(
        "PagedParts.forget", "if self.paged_bytes: ...", "if False: ..."
    ),
    "lazy mode drops contents that are being read": Mutant(
        "VariableQueue._reduce_lazy", "paged.keeps_q3_head", "False"
    ),
}
