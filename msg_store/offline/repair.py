"""Repair of an offline store, in place: recovery first, then the index is corrected by an audit.

A start corrects what the journal since the last checkpoint names, rebuilds an index that cannot be used
(``recovery``), and trusts the rest. So recovery runs first if it has anything to do; then what an audit
finds wrong in the index is corrected in one transaction:

* a message that is not at its location, and lies in another segment, gets that location;
* a row whose message cannot be read is removed. The remaining bytes of the message go to the
  quarantine, and a report there names queue, seq and reason;
* wrong counts and sums are replaced by the counted ones.

Segments are never changed. A crash in between leaves a store that a start recovers and that can be
repaired again; a repair of a sound store does nothing.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from leveret.core.files import Files
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.format.rows import Batch, FileRow, IndexFull, IndexRow, Location, QueueTerms
from leveret.msg_store.index import lmdb_index
from leveret.msg_store.index.files import LmdbFiles
from leveret.msg_store.index.lmdb_index import LmdbIndex
from leveret.msg_store.offline.audit import Audit, Progress, audited
from leveret.msg_store.reading.segments import SegmentReader
from leveret.msg_store.recovery.format_repair import restore_format
from leveret.msg_store.recovery.recovery import StoreFiles, open_store


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The steps that a store needs."""

    format_damage: str  # why FORMAT must be written anew; empty if it need not
    index_damage: str  # why the index must be rebuilt; empty if it need not
    needs_recovery: bool  # a start would find something to do, or must bring the index up to date
    needs_writing: bool  # the audit found damage of the index
    epoch_seen: int  # the highest boot epoch that was used

    @property
    def is_needed(self) -> bool:
        return bool(self.format_damage) or self.needs_recovery or self.needs_writing


def plan_repair(audit: Audit) -> RepairPlan:
    """Return the steps that a store needs by its audit."""
    store, needs_writing = audit.store, not audit.is_index_sound
    report = store.report
    has_news = report.is_damage or bool(report.dropped or report.tails)
    return RepairPlan(
        store.format_damage,
        report.rebuilt,
        has_news or (needs_writing and not store.recovered.is_clean),
        needs_writing,
        store.epoch_seen,
    )


def repair(
    path: Path, plan: RepairPlan, boot_epoch: int, now_ms: Callable[[], int], progress: Progress
) -> None:
    """Do the steps, under a boot epoch above all that were used; ``StoreLocked`` if the store is open."""
    files = Files()
    restore_format(files, path)
    index = path / lmdb_index.FOLDER
    if plan.needs_recovery:
        if plan.index_damage and index.exists():
            LmdbFiles(index, b"").condemn()  # for opening it may end the process
        opened = open_store(StoreFiles(files, path, Ballast(files, path), now_ms), boot_epoch)
        opened.close()
    if not plan.needs_writing:
        return
    with audited(path, progress) as audit:
        pass
    if not audit.is_index_sound:
        _write(path, audit, now_ms)


def _write(path: Path, audit: Audit, now_ms: Callable[[], int]) -> None:
    with closing(StoreFolder(Files(), path, lambda: b"", now_ms)) as folder:
        gone = _set_aside(folder, audit, now_ms())
        with closing(LmdbIndex(path / lmdb_index.FOLDER, folder.uuid)) as index:
            try:
                index.write(_batch(audit, gone, index.queues()))
            except IndexFull as error:
                raise OSError(errno.ENOSPC, str(error), str(path)) from error


def _set_aside(folder: StoreFolder, audit: Audit, now_ms: int) -> set[int]:
    """Move the bytes of lost messages to the quarantine, with a report; return their numbers."""
    if not audit.lost:
        return set()
    reader = SegmentReader(folder)
    names = [
        name
        for msg_no, location in audit.unreadable.items()
        if msg_no not in audit.elsewhere and (name := reader.set_aside(location)) is not None
    ]
    reader.close()
    rows = [(row.queue_no, row.seq, row.msg_no, row.reason) for row in audit.lost]
    folder.report(f"repair-{now_ms:x}", {"lost": rows, "set_aside": names})
    return {row.msg_no for row in audit.lost}


def _batch(audit: Audit, gone: set[int], before: dict[int, QueueTerms]) -> Batch:
    acked: dict[int, set[int]] = {}
    for row in audit.lost:
        acked.setdefault(row.queue_no, set()).add(row.seq)
        audit.queues[row.queue_no].messages -= 1
        audit.queues[row.queue_no].size_bytes -= row.size_bytes
    rows = {no: _with_sizes(odd, gone, audit, no) for no, odd in audit.odd.items()}
    locations, valid_bytes = _locations(audit, gone)
    return Batch(
        rows=rows,
        acked=acked,
        locations=locations.items(),
        files={no: FileRow(valid, audit.sizes[no]) for no, valid in valid_bytes.items()},
        queues=_terms(audit, before).items(),
    )


def _with_sizes(
    odd: list[tuple[IndexRow, int]], gone: set[int], audit: Audit, queue_no: int
) -> dict[int, IndexRow]:
    """Return rows with the body sizes that their messages have."""
    rows = {}
    for row, size in odd:
        if row[1] not in gone:
            rows[row[0]] = (*row[:2], size, *row[3:])
            audit.queues[queue_no].size_bytes += size - row[2]
    return rows


def _locations(audit: Audit, gone: set[int]) -> tuple[dict[int, Location | None], dict[int, int]]:
    """Return the locations that change, and the live bytes of each segment after that."""
    changed: dict[int, Location | None] = dict.fromkeys(gone)
    elsewhere, valid_bytes = audit.elsewhere, dict.fromkeys(audit.sizes, 0)
    for at, msg_no in enumerate(audit.locations.msg_nos):
        count = audit.locations.rows[at]
        if msg_no in gone or not count:
            changed[msg_no] = None
            continue
        location = elsewhere.get(msg_no, audit.locations.location(at))
        if msg_no in elsewhere or count != location[4]:
            changed[msg_no] = (*location[:4], count)
        valid_bytes[location[0]] += location[2]
    for msg_no, count in audit.bare.items():
        if msg_no in elsewhere:
            location = elsewhere[msg_no]
            changed[msg_no] = (*location[:4], count)
            valid_bytes[location[0]] += location[2]
    return changed, valid_bytes


def _terms(audit: Audit, before: dict[int, QueueTerms]) -> dict[int, QueueTerms | None]:
    terms: dict[int, QueueTerms | None] = {}
    for queue_no, counted in audit.queues.items():
        said = before.get(queue_no, QueueTerms(0, 0, 0, 0, False))
        terms[queue_no] = said._replace(
            next_seq=max(said.next_seq, counted.next_seq),
            messages=counted.messages,
            size_bytes=counted.size_bytes,
        )
    return terms
