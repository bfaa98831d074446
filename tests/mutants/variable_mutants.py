"""Faults to plant in the variable queue.

The first eleven are those that the design names; the others are faults that only a queue can have which
does not wait for its disk.
"""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "placement by q1, not q3": Mutant(
        "variable/queue.py", "if self.q3 or self.delta is not BLANK:", "if self.q1:"
    ),
    "q4 does not take over q1": Mutant(
        "variable/load_delta.py", "queue.q4, queue.q1 = queue.q1, NOTHING", "pass"
    ),
    "q2 does not join q3 when delta is empty": Mutant(
        "variable/load_delta.py", "queue.q3.extend(queue.q2)\n        queue.q2 = NOTHING", "pass"
    ),
    "unacked are loaded from delta": Mutant(
        "variable/load_delta.py", "for unacked in (rpa, dpa):", "for unacked in ():"
    ),
    "q1 always goes to q2": Mutant("variable/paging.py", "if queue.delta is BLANK:", "if False:"),
    "q3 goes to delta without regard to segments": Mutant(
        "variable/paging.py",
        'head if queue.mode == "lazy" else next_boundary',
        "head or next_boundary",
    ),
    "contents without a row leak": Mutant(
        "variable/state.py",
        "[entry for entry in entries if entry[CONTENT_ON_DISK]]",
        "[entry for entry in entries if entry[CONTENT_ON_DISK - 1]]",
    ),
    "a requeue does not sort": Mutant("variable/requeue.py", "back.sort()", "pass"),
    "a requeue to q4 has no limit": Mutant("variable/requeue.py", "if queue.q3:", "if False:"),
    "delta is read beyond its end": Mutant(
        "variable/delta.py", "delta.start + read_max, delta.end)", "delta.start + read_max)"
    ),
    "delta does not grow downwards": Mutant(
        "variable/delta.py", "start = min(delta.start, first)", "start = delta.start"
    ),
    "placement forgets awaited rows": Mutant(
        "variable/queue.py", "if self.q3 or self.delta is not BLANK:", "if self.q3:"
    ),
    "columns though there is a delta": Mutant(
        "variable/queue.py",
        "and not self.q3\n            and self.delta is BLANK",
        "and not self.q1",
    ),
    "what the store did not take of the columns is lost": Mutant(
        "variable/paging.py", "columns.put_back(batch[done:])", "pass"
    ),
    "what q4 lacks is not counted": Mutant(
        "variable/requeue.py", "queue.absent += len(absent)", "queue.absent += 0"
    ),
    "what the store did not take is lost": Mutant(
        "variable/paging.py", "put_back(reversed(batch[done:]))", "pass"
    ),
    "what is not there is handed out": Mutant(
        "variable/fetch.py", "part.extendleft(reversed(rest))", "pass"
    ),
    "lazy mode forgets what is being read": Mutant(
        "variable/paging.py", "if queue.wanted:", "if False:"
    ),
}
