"""Mending a store in place: what a start would do, and then what it would not look at.

A start puts right what the journal since the last checkpoint speaks of, and rebuilds an index that
cannot be used (``recovery``). What lies below it believes. So here recovery comes first if it has
anything to do; then what an audit finds wrong in the index is written as it should be, in one
transaction:

* a message that is not where it should be, and lies in another segment, is found there again;
* a row whose message cannot be read is taken out: the message is lost, whoever notes it. What is left
  of its bytes goes to the quarantine, and a report there names queue, seq and reason;
* counts and sums become what was counted.

Segments are never changed. A crash in between leaves a store that a start recovers and that can be
mended again; mending what is sound does nothing.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from leveret.core.files import Files
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.format.rows import Batch, FileRow, IndexFull, IndexRow, Location, QueueTerms
from leveret.msg_store.index.lmdb_index import LmdbIndex
from leveret.msg_store.index.location import LmdbLocation
from leveret.msg_store.offline.audit import Audit, Progress
from leveret.msg_store.offline.examination import Examined, examined
from leveret.msg_store.offline.inspection import INDEX
from leveret.msg_store.reading.segments import SegmentReader
from leveret.msg_store.recovery.format_repair import restore_format
from leveret.msg_store.recovery.opening import StoreFiles, open_store


@dataclass(frozen=True, slots=True)
class Mend:
    """What is to be done to a store.

    Attributes:
        format_damage: why FORMAT must be written anew; empty if it need not.
        index_damage: why the index must be rebuilt; empty if it need not.
        needs_recovery: a start would find something to do, or must come before what is to be written,
            so that the index has all of the journal.
        needs_writing: the audit found something behind that.
        epoch_seen: the highest boot epoch that was used.
    """

    format_damage: str
    index_damage: str
    needs_recovery: bool
    needs_writing: bool
    epoch_seen: int

    @property
    def is_needed(self) -> bool:
        """There is something to do."""
        return bool(self.format_damage) or self.needs_recovery or self.needs_writing


def mend_of(found: Examined) -> Mend:
    """Return what an examination asks for."""
    findings, needs_writing = found.findings, not found.audit.is_sound
    has_news = findings.is_damage or bool(findings.dropped or findings.tails)
    return Mend(
        found.store.format_damage,
        findings.rebuilt,
        has_news or (needs_writing and not found.store.recovered.is_clean),
        needs_writing,
        found.store.epoch_seen,
    )


def mend(
    path: Path, todo: Mend, boot_epoch: int, now_ms: Callable[[], int], progress: Progress
) -> None:
    """Do it.

    Args:
        path: the store's folder.
        todo: what was found to be necessary.
        boot_epoch: above all that were used.
        now_ms: wall time.
        progress: gets how far it is.

    Raises:
        StoreError: somebody else has the store.
        OSError: the disk refuses.
    """
    files = Files()
    restore_format(files, path)
    if todo.needs_recovery:
        if todo.index_damage and (path / INDEX).exists():
            LmdbLocation(path / INDEX, b"").condemn()  # for opening it may end the process
        opened = open_store(StoreFiles(files, path, Ballast(files, path), now_ms), boot_epoch)
        opened.close()
    if not todo.needs_writing:
        return
    with examined(path, progress) as found:
        audit = found.audit
    if not audit.is_sound:
        _write(path, audit, now_ms)


def _write(path: Path, audit: Audit, now_ms: Callable[[], int]) -> None:
    files = Files()
    folder = StoreFolder(files, path, lambda: b"", now_ms)
    try:
        gone = _set_aside(folder, audit, now_ms())
        index = LmdbIndex(path / INDEX, folder.uuid)
        try:
            index.write(_batch(audit, gone, index.queues()))
        except IndexFull as error:
            raise OSError(errno.ENOSPC, str(error), str(path)) from error
        finally:
            index.close()
    finally:
        folder.close()


def _set_aside(folder: StoreFolder, audit: Audit, now_ms: int) -> set[int]:
    """Keep what is left of lost messages, and say whose they were; return their numbers."""
    if not audit.lost:
        return set()
    reader = SegmentReader(folder)
    kept = [
        name
        for msg_no, place in audit.unreadable.items()
        if msg_no not in audit.elsewhere and (name := reader.set_aside(place)) is not None
    ]
    reader.close()
    rows = [(row.queue_no, row.seq, row.msg_no, row.reason) for row in audit.lost]
    folder.report(f"repair-{now_ms:x}", {"lost": rows, "set_aside": kept})
    return {row.msg_no for row in audit.lost}


def _batch(audit: Audit, gone: set[int], before: dict[int, QueueTerms]) -> Batch:
    acked: dict[int, set[int]] = {}
    for row in audit.lost:
        acked.setdefault(row.queue_no, set()).add(row.seq)
        audit.queues[row.queue_no].messages -= 1
        audit.queues[row.queue_no].size_bytes -= row.size_bytes
    rows = {no: _with_sizes(some, gone, audit, no) for no, some in audit.odd.items()}
    locations, valid_bytes = _locations(audit, gone)
    return Batch(
        rows=rows,
        acked=acked,
        locations=locations.items(),
        files={no: FileRow(valid, audit.sizes[no]) for no, valid in valid_bytes.items()},
        queues=_terms(audit, before),
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
    """Return which places change, and how many bytes of each segment are needed then."""
    changed: dict[int, Location | None] = dict.fromkeys(gone)
    elsewhere, places, valid_bytes = audit.elsewhere, audit.places, dict.fromkeys(audit.sizes, 0)
    for at, msg_no in enumerate(places.msg_nos):
        count = places.rows[at]
        if msg_no in gone or not count:
            changed[msg_no] = None
            continue
        place = elsewhere.get(msg_no, places.place(at))
        if msg_no in elsewhere or count != place[4]:
            changed[msg_no] = (*place[:4], count)
        valid_bytes[place[0]] += place[2]
    for msg_no, count in audit.bare.items():
        if msg_no in elsewhere:
            place = elsewhere[msg_no]
            changed[msg_no] = (*place[:4], count)
            valid_bytes[place[0]] += place[2]
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
