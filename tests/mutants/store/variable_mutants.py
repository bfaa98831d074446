"""Faults to plant in the variable queue.

Twelve faults in the order and count of messages come first; the others can occur only in a queue that goes on
while its disk reads.
"""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "placement by q1, not q3": Mutant(
        "variable/queue.py",
        "is_alone = not paged.q3 and paged.delta is BLANK",
        "is_alone = not self.q1",
    ),
    "q4 does not take over q1": Mutant(
        "variable/queue.py", "self.q4, self.q1 = self.q1, NOTHING", "pass"
    ),
    "q2 does not join q3 when delta is empty": Mutant(
        "variable/paged.py", "self.q3.extend(self.q2)\n            self.q2 = NOTHING", "pass"
    ),
    "unacked count as persistent in a mixed queue": Mutant(
        "variable/queue.py",
        "if (messages, size_bytes) == (self.count + pending.count(), all_bytes):",
        "if messages:",
    ),
    "unacked are loaded from delta": Mutant(
        "variable/paged.py",
        "for unacked in (self._pending.in_ram, self._pending.on_disk):",
        "for unacked in ():",
    ),
    "q1 always goes to q2": Mutant("variable/paged.py", "if self.delta is BLANK:", "if False:"),
    "q3 goes to delta without regard to segments": Mutant(
        "variable/paged.py",
        "head if is_lazy else next_boundary",
        "head or next_boundary",
    ),
    "contents without a row leak": Mutant(
        "variable/queue.py",
        "[entry for entry in entries if entry[CONTENT_ON_DISK]]",
        "[entry for entry in entries if entry[CONTENT_ON_DISK - 1]]",
    ),
    "a requeue does not sort": Mutant("variable/queue.py", "back.sort()", "pass"),
    "a requeue to q4 has no limit": Mutant(
        "variable/queue.py",
        "if paged.q3:\n                before_q3",
        "if False:\n                before_q3",
    ),
    "delta is read beyond its end": Mutant(
        "variable/delta.py", "delta.start + read_max, delta.end)", "delta.start + read_max)"
    ),
    "delta does not grow downwards": Mutant(
        "variable/delta.py", "start = min(delta.start, first)", "start = delta.start"
    ),
    "placement forgets awaited rows": Mutant(
        "variable/queue.py",
        "is_alone = not paged.q3 and paged.delta is BLANK",
        "is_alone = not paged.q3",
    ),
    "columns though there is a delta": Mutant(
        "variable/queue.py",
        "if is_alone and is_long",
        "if not self.q1 and is_long",
    ),
    "what the store did not take of the columns is lost": Mutant(
        "variable/columns.py",
        "        back = list(entries)\n",
        "        back = list(entries)[:0]\n",
    ),
    "what q4 lacks is not counted": Mutant(
        "variable/queue.py", "self.absent += len(absent)", "self.absent += 0"
    ),
    "what the store did not take is lost": Mutant(
        "variable/queue.py", "                put_back(reversed(rest))", "                pass"
    ),
    "a message that is not in RAM is delivered": Mutant(
        "variable/queue.py", "part.extendleft(reversed(rest))", "pass"
    ),
    "an acked message counts as paged out": Mutant(
        "variable/paged.py", "        if self.paged_bytes:\n", "        if False:\n"
    ),
    "lazy mode drops contents that are being read": Mutant(
        "variable/queue.py", "if paged.keeps_q3_head:", "if False:"
    ),
}
