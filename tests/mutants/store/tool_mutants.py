"""Faults for the tools that audit and repair stores; the suite finds each of them."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "an audit believes the counts": Mutant("Audit._compare_sums", "said != rows", "False"),
    "an audit believes that a record is the right one": Mutant(
        "segment_check._is_same", "table.msg_nos[at_record] == locations.msg_nos[at]", "True"
    ),
    "an audit does not search": Mutant("Audit._judge_others", "self.relocated[msg_no]", ""),
    "an audit takes what the collector has copied for a second record": Mutant(
        "Audit._judge_others", "copies.isdisjoint(...)", "True"
    ),
    "an audit passes over second records": Mutant(
        "Audit._judge_others", "self.doubled.setdefault(...).append(record)", "pass"
    ),
    "an audit takes another record for damage": Mutant(
        "check_segment", "is_inside and (not is_good)", "True"
    ),
    "an audit counts the live bytes of messages where they are not": Mutant(
        "Audit._compare_sums", "relocated.items()", "()"
    ),
    "an audit ends at bytes that it cannot read": Mutant(
        "_next_header",
        "(offset + len(data)) // BLOCK_BYTES * BLOCK_BYTES + BLOCK_BYTES",
        "segment.size_bytes",
    ),
    "an audit does not look behind a bad record": Mutant(
        "_read_window", "table.offsets[-1] if is_last_bad else start + at", "start + at"
    ),
    "an audit passes over rows without a location": Mutant(
        "Audit._count_rows", "self.unlocated[msg_no] += 1", "continue"
    ),
    "an inspection forgets what the journal acked": Mutant(
        "Inspection.locations", "active.changed.get(...)", "location"
    ),
    "an inspection forgets what the journal brought": Mutant(
        "Inspection.locations", "sorted(active.inserted.items(), reverse=True)", "[]"
    ),
    "a repair writes before the journal is read": Mutant(
        "plan_repair", "has_news or (bool(changes) and (not store.recovered.is_clean))", "has_news"
    ),
    "a repair takes readable messages out": Mutant(
        "Audit.indexed",
        "msg_no in self.unreadable and msg_no not in relocated",
        "msg_no in self.unreadable",
    ),
    "a repair leaves out what a start does": Mutant(
        "repair", "plan.needs_recovery and (not is_recovered)", "False"
    ),
    "a repair leaves the sums": Mutant("batch_of", "messages", "terms.messages"),
    "a repair forgets that it has recovered the store": Mutant(
        "repair._check_unchanged",
        'found == _fields_of(files, report).get("fingerprint")',
        "False",
    ),
    "a plan is believed whatever came after": Mutant(
        "repair._check_unchanged", "found != plan.fingerprint", "False"
    ),
    "salvage keeps the old checksums": Mutant("_Salvage._records", "resealed(...)", "data"),
    "salvage forgets what is buffered at the end": Mutant(
        "_Salvage._write_segment",
        "for at, data in records: ...\nfile.append(...)",
        "for at, data in records: ...",
    ),
    "a salvaged store begins with the first record": Mutant(
        "_Salvage._write_index", "FIRST_LSN + 1", "FIRST_LSN"
    ),
    "a compacted queue is no longer clean": Mutant("OfflineStore.stop", "terms.is_clean", "False"),
    "an index is compacted for nothing": Mutant(
        "LmdbFiles.open", "index.live_bytes * LIVE_SHARE_MAX > before", "False"
    ),
    "an index is compacted without room": Mutant(
        "LmdbFiles._write_draft", "free_bytes(...) < need", "False"
    ),
}
