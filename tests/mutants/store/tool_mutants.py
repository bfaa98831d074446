"""Faults for the tools that audit and repair stores; the suite finds each of them."""

from __future__ import annotations

from typing import Final

from mutants.planted import Mutant

MUTANTS: Final = {
    "an audit believes the counts": Mutant("offline/audit.py", "if said != rows:", "if False:"),
    "an audit believes that a record is the right one": Mutant(
        "offline/segment_check.py",
        "table.msg_nos[at_record] == locations.msg_nos[at]",
        "True",
    ),
    "an audit does not search": Mutant(
        "offline/audit.py", "kept = self.elsewhere[msg_no] = records.pop()", "kept = records.pop()"
    ),
    "an audit takes what the collector has copied for a second record": Mutant(
        "offline/audit.py",
        "if copies.isdisjoint((record[0], kept[0])):",
        "if True:",
    ),
    "an audit passes over second records": Mutant(
        "offline/audit.py", "self.doubled.setdefault(msg_no, []).append(record)", "pass"
    ),
    "an audit takes another record for damage": Mutant(
        "offline/segment_check.py", "is_inside and not is_good", "True"
    ),
    "an audit counts the live bytes of messages where they are not": Mutant(
        "offline/audit.py",
        "for msg_no, (file_no, _, length, _, _) in elsewhere.items():",
        "for msg_no, (file_no, _, length, _, _) in ():",
    ),
    "an audit ends at bytes that it cannot read": Mutant(
        "reading/record_table.py",
        "offset = (offset + len(data)) // BLOCK_BYTES * BLOCK_BYTES + BLOCK_BYTES",
        "offset = segment.size_bytes",
    ),
    "an audit does not look behind a bad record": Mutant(
        "reading/record_table.py", "table.offsets[-1] if is_last_bad else start + at", "start + at"
    ),
    "an audit passes over rows without a location": Mutant(
        "offline/audit.py", "self.unlocated[msg_no] += 1", "continue"
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
        "offline/repair_plan.py",
        "has_news or (bool(changes) and not store.recovered.is_clean)",
        "has_news",
    ),
    "a repair takes readable messages out": Mutant(
        "offline/audit.py",
        "if not rows or (msg_no in self.unreadable and msg_no not in elsewhere):",
        "if not rows or msg_no in self.unreadable:",
    ),
    "a repair leaves out what a start does": Mutant(
        "offline/repair.py", "if plan.needs_recovery and not is_recovered:", "if False:"
    ),
    "a repair leaves the sums": Mutant(
        "offline/changes.py", "messages=messages,", "messages=terms.messages,"
    ),
    "a repair forgets that it has recovered the store": Mutant(
        "offline/repair.py",
        "if found not in (plan.fingerprint, recovered_as):",
        "if found != plan.fingerprint:",
    ),
    "a plan is believed whatever came after": Mutant(
        "offline/repair.py", "if found not in (plan.fingerprint, recovered_as):", "if False:"
    ),
    "salvage keeps the old checksums": Mutant(
        "offline/salvage.py", "resealed(data, extend, seed)", "data"
    ),
    "salvage forgets what is buffered at the end": Mutant(
        "offline/salvage.py",
        '            file.append([b"".join(buffer)])\n            file.fsync()',
        "            file.fsync()",
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
