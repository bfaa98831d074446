"""Faults to plant in the collector and in the parts that work with it."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "no descriptor left is the fault of a segment": Mutant(
        "Collector._judged", "if is_shortage(error): ...", ""
    ),
    "an index that cannot be read now ends the collector": Mutant(
        "Collector._merged", "not is_shortage(error)", "True"
    ),
    "no MOVE records": Mutant("flush.journal_records", "batch.relocations", "()"),
    "moves count before they are durable": Mutant(
        "GroupCommit.move",
        "self._relocations.append(...)",
        "self.memtables.moved(relocations, then)",
    ),
    "a segment is unlinked before the index knows that it is empty": Mutant(
        "Collector._is_settled", "self._memtables.committed", "self._memtables.active.number"
    ),
    "the sources are unlinked as soon as they are copied": Mutant(
        "Collector._merged",
        "yield from self._move(made)",
        "yield Job(unlink(self._folder, [each.file_no for each in sources], []))",
    ),
    "what died meanwhile is moved all the same": Mutant(
        "Memtables._mover",
        "if location is None or not is_used: ...",
        "if location is None: location = (source_no, 0, length, 0, 1)",
    ),
    "a copy of which nothing is needed stays": Mutant("Collector._move", "files.free(...)", "pass"),
    "a copy may go while it is being moved to": Mutant(
        "Collector._merged", "self._busy.add(...)", "pass"
    ),
    "pins do not keep a segment": Mutant("Collector._next_removal", "self._pins", ""),
    "no grace": Mutant("Collector._merge", "yield Wait.GRACE", "pass"),
    "the copy is not synced": Mutant("copy", "target.fsync()", ""),
    "the copy's name is not synced": Mutant("copy", "folder.files.fsync_dir(...)", ""),
    "the copy is not checked": Mutant("_copy_sources", "_check(...)", "pass"),
    "a copy does not say that it is one": Mutant("copy", "MOVED", "0"),
    "a draft is left": Mutant("Collector._give_up", "Job(...)", "Wait.TURN"),
    "a full disk is tried again at once": Mutant(
        "Collector._give_up", "is_shortage(error)", "False"
    ),
    "a segment that cannot be emptied is tried for ever": Mutant(
        "Collector._leave_alone_now",
        "{no for no, until in self._left_alone.items() if until > now}",
        "set()",
    ),
    "only places in the index count": Mutant(
        "Collector._judge", "NEEDED if source.is_at(...) else NOT_NEEDED", "NOT_NEEDED"
    ),
    "only places in RAM count": Mutant(
        "ask_index", "NEEDED if is_here else NOT_NEEDED", "NOT_NEEDED"
    ),
    "kinds of checksums are mixed": Mutant(
        "Collector._judged", "not sources or source.crc_kind == sources[0].crc_kind", "True"
    ),
    "small segments stay": Mutant(
        "choose", "_most_wasteful(...) or _small_ones(...)", "_most_wasteful(...)"
    ),
    "a start syncs only the last segment": Mutant(
        "Recovery._maybe_open", "header is not None and (not header.flags & MOVED)", "True"
    ),
    "after a gap the collector removes what recovery left": Mutant(
        "Recovery._remove_segments", "memtables.files[file_no].emptied_in = NEVER", "pass"
    ),
}
