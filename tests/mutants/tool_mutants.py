"""Faults for the tools that audit and repair stores; the suite finds each of them."""

from __future__ import annotations

from typing import Final

from mutants.planted import Mutant

MUTANTS: Final = {
    "an audit believes the counts": Mutant(
        "offline/audit.py", "if locations.counts[at] != locations.rows[at]:", "if False:"
    ),
    "an audit believes that a record is the right one": Mutant(
        "offline/audit.py",
        "segment.decode(data, length, msg_no, offset - start)",
        "segment.decode(data, length, None, offset - start)",
    ),
    "an audit does not search": Mutant(
        "offline/audit.py", "search(self.store.folder, self._wrong)", "{}"
    ),
    "an audit passes over rows without a location": Mutant(
        "offline/audit.py", "self.bare[msg_no] += 1", "continue"
    ),
    "an inspection forgets what the journal acked": Mutant(
        "offline/inspection.py", "active.changed.get(no, location)", "location"
    ),
    "an inspection forgets what the journal brought": Mutant(
        "offline/inspection.py",
        "inserted = sorted(active.inserted.items(), reverse=True)",
        "inserted = []",
    ),
    "a repair writes before the journal is read": Mutant(
        "offline/repair.py",
        "has_news or (needs_writing and not store.recovered.is_clean)",
        "has_news",
    ),
    "a repair takes readable messages out": Mutant(
        "offline/repair.py",
        "if msg_no in gone or not count:",
        "if msg_no in audit.unreadable or not count:",
    ),
    "a repair leaves out what a start does": Mutant(
        "offline/repair.py", "if plan.needs_recovery:", "if False:"
    ),
    "a repair leaves the sums": Mutant(
        "offline/repair.py", "messages=counted.messages,", "messages=said.messages,"
    ),
    "salvage keeps the old checksums": Mutant(
        "offline/salvage.py", "resealed(data, self._identity.extend, self._identity.seed)", "data"
    ),
    "salvage forgets the segment in hand": Mutant(
        "offline/salvage.py",
        'self._progress("copied", done, total)\n        self._seal()',
        'self._progress("copied", done, total)',
    ),
    "a salvaged store begins with the first record": Mutant(
        "offline/salvage.py", "Checkpoint(FIRST_LSN + 1,", "Checkpoint(FIRST_LSN,"
    ),
    "a compacted queue is no longer clean": Mutant(
        "offline/offline_store.py", "if terms.is_clean:", "if False:"
    ),
    "an index is compacted for nothing": Mutant(
        "index/files.py", "if index.live_bytes * LIVE_SHARE_MAX > before:", "if False:"
    ),
    "an index is compacted without room": Mutant(
        "index/files.py", "if free_bytes(self._path) < need:", "if False:"
    ),
}
