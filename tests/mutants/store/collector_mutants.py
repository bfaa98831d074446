"""Faults to plant in the collector and in the parts that work with it."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "no descriptor left is the fault of a segment": Mutant(
        "gc/collector.py", "                if is_shortage(error):\n                    raise\n", ""
    ),
    "an index that cannot be read now ends the collector": Mutant(
        "gc/collector.py",
        "            if not is_shortage(error):\n                raise  #",
        "            if True:\n                raise  #",
    ),
    "no MOVE records": Mutant(
        "wal/flush.py", "for relocations in batch.relocations:", "for relocations in ():"
    ),
    "moves count before they are durable": Mutant(
        "wal/group_commit.py",
        "self._relocations.append(Relocations(list(relocations), then))",
        "self.memtables.moved(relocations, then)",
    ),
    "a segment is unlinked before the index knows that it is empty": Mutant(
        "gc/collector.py",
        "return self._memtables.files[file_no].emptied_in <= self._memtables.committed",
        "return self._memtables.files[file_no].emptied_in <= self._memtables.active.number",
    ),
    "the sources are unlinked as soon as they are copied": Mutant(
        "gc/collector.py",
        "yield from self._move(made)",
        "yield Job(unlink(self._folder, [each.file_no for each in sources], []))",
    ),
    "what died meanwhile is moved all the same": Mutant(
        "memtable/memtables.py",
        "if location is None or not is_used:\n                return location",
        "if location is None:\n                location = (source_no, 0, length, 0, 1)",
    ),
    "a copy of which nothing is needed stays": Mutant(
        "gc/collector.py", "files.free(made.file_no, 0, self._memtables.active.number)", "pass"
    ),
    "a copy may go while it is being moved to": Mutant(
        "gc/collector.py", "self._busy.add(made.file_no)", "pass"
    ),
    "pins do not keep a segment": Mutant(
        "gc/collector.py",
        "dead(files, self._busy.union(self._pins, kept))",
        "dead(files, self._busy.union(kept))",
    ),
    "no grace": Mutant("gc/collector.py", "yield Wait.GRACE", "pass"),
    "the copy is not synced": Mutant("gc/copy.py", "        target.fsync()\n", ""),
    "the copy's name is not synced": Mutant(
        "gc/copy.py", "    folder.files.fsync_dir(folder.rdq)\n", ""
    ),
    "the copy is not checked": Mutant(
        "gc/copy.py", "_check(folder, wanted, target, file, piece)\n", "pass\n"
    ),
    "a copy does not say that it is one": Mutant("gc/copy.py", "flags=MOVED", "flags=0"),
    "a draft is left": Mutant(
        "gc/collector.py", "yield Job(discard(self._folder, made.file_no))", "yield Wait.TURN"
    ),
    "a full disk is tried again at once": Mutant(
        "gc/collector.py",
        "        if is_shortage(error):\n            yield from",
        "        if False:\n            yield from",
    ),
    "a segment that cannot be emptied is tried for ever": Mutant(
        "gc/collector.py",
        "return {no for no, until in self._left_alone.items() if until > now}",
        "return set()",
    ),
    "only places in the index count": Mutant(
        "gc/collector.py",
        "needed[at] = NEEDED if source.is_at(at, place) else NOT_NEEDED",
        "needed[at] = NOT_NEEDED",
    ),
    "only places in RAM count": Mutant(
        "gc/scan.py",
        "needed[at] = NEEDED if is_here else NOT_NEEDED",
        "needed[at] = NOT_NEEDED",
    ),
    "kinds of checksums are mixed": Mutant(
        "gc/collector.py", "if not sources or source.crc_kind == sources[0].crc_kind:", "if True:"
    ),
    "small segments stay": Mutant("gc/choose.py", "or _small_ones(eligible, limits)", ""),
    "a start syncs only the last segment": Mutant(
        "recovery/recovery.py", "if header is not None and not header.flags & MOVED:", "if True:"
    ),
    "after a gap the collector removes what recovery left": Mutant(
        "recovery/recovery.py", "memtables.files[file_no].emptied_in = NEVER  # nor", "pass  # nor"
    ),
}
