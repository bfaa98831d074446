"""The defects that a store can have: one statement of each, for every tool that names them.

A store keeps a message once, as a *record* in a segment. The index has its *location*, with the number of queue entries
that name it, and for each queue the *entries*, which name messages, and sums. The classes below are what can be wrong
between these three, in the order in which a message is followed from its queue. An audit (``audit``) finds all of them;
each message has at most one of the first five, and at most one ``wrong_refcount``.

No defect is a record that no location names: it was acked, and is **garbage** until the collector removes its segment;
the audit counts it. A second record of a message is garbage as well where the collector has copied it. Seqs of a queue
have gaps wherever a message was acked or a crash was, so a gap says nothing. An entry that is missing *together* with
its location leaves such garbage; the sums tell that something is missing, and not what.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from leveret.msg_store.format.rows import Location
from leveret.msg_store.offline.audit import Audit
from leveret.msg_store.reading.verify import MISSING


class Kind(StrEnum):
    """A class of defects."""

    MISSING_LOCATION = "missing_location"
    """A queue entry names a message that the index has no location of."""
    MISSING_RECORD = "missing_record"
    """The segment of a location is missing or ends before it, or another record lies there; and no segment has the
    message's record."""
    BAD_CHECKSUM = "bad_checksum"
    """The bytes at a location are no whole record; and no segment has the message's record."""
    WRONG_LOCATION = "wrong_location"
    """A message's record is not at its location, or has other lengths there; it lies, whole, elsewhere."""
    WRONG_SIZE = "wrong_size"
    """A queue entry gives another body size than its message has."""
    WRONG_REFCOUNT = "wrong_refcount"
    """The reference count of a location is not the number of queue entries that name it; or no entry names it."""
    DUPLICATE_ID = "duplicate_id"
    """A message has a second whole record, and the collector has written neither."""
    WRONG_QUEUE_SUMS = "wrong_queue_sums"
    """A queue's number of messages or of bytes is wrong, or its next seq is not above its entries."""
    WRONG_SEGMENT_SUM = "wrong_segment_sum"
    """A segment's live bytes are wrong."""
    INDEX_LOST = "index_lost"
    """The index cannot be used; the next start rebuilds it."""
    JOURNAL_GAP = "journal_gap"
    """Durable records of the journal are missing or cannot be read."""
    FOREIGN_FILE = "foreign_file"
    """A segment or a journal of another store."""
    SEGMENT_CUT = "segment_cut"
    """A segment is shorter than the index says."""
    FILE_DAMAGED = "file_damaged"
    """Another file is missing or damaged: the end mark, delivery counts, ``archive.json``, the header of a segment."""
    FORMAT_LOST = "format_lost"
    """FORMAT is missing or damaged."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One defect.

    Attributes:
        where: the damaged object: the number of a message, queue or segment, or the name of a file.
        entries: queue number and seq of the entries that are lost or damaged by the defect.
        location: where the index has the message; None if nowhere.
        found: where its record is, or the second record of a duplicate; None if nowhere.
        said, counted: the index's value, and the true value.
        is_lost: the message cannot be read any more.
    """

    kind: Kind
    where: int | str
    why: str
    entries: tuple[tuple[int, int], ...] = ()
    location: Location | None = None
    found: Location | None = None
    said: tuple[int, ...] = ()
    counted: tuple[int, ...] = ()
    is_lost: bool = False


def defects_of(audit: Audit) -> Iterator[Defect]:
    """Yield all defects of a store: of files, then of messages, then of sums."""
    yield from _of_files(audit)
    yield from _of_the_journal(audit)
    yield from _of_messages(audit)
    for queue_no, odd in audit.odd.items():
        for row, size in odd:
            yield Defect(
                Kind.WRONG_SIZE,
                row[1],
                f"{row[2]} bytes, the message has {size}",
                ((queue_no, row[0]),),
                said=(row[2],),
                counted=(size,),
            )
    for msg_no, (before, after) in audit.counts.items():
        text = f"{before} entries, {after} name it"
        yield Defect(Kind.WRONG_REFCOUNT, msg_no, text, said=(before,), counted=(after,))
    for msg_no, records in audit.doubled.items():
        for record in records:
            text = f"a second record, segment {record[0]:08x}, offset {record[1]}"
            yield Defect(Kind.DUPLICATE_ID, msg_no, text, found=record)
    for queue_no, both in audit.terms.items():
        said, counted = ((each.messages, each.size_bytes, each.next_seq) for each in both)
        text = (
            f"{said[0]} messages of {said[1]} bytes below seq {said[2]},"
            f" there are {counted[0]} of {counted[1]} below {counted[2]}"
        )
        yield Defect(Kind.WRONG_QUEUE_SUMS, queue_no, text, said=said, counted=counted)
    for file_no, (before, after) in audit.files.items():
        text = f"{before} live bytes, there are {after}"
        yield Defect(Kind.WRONG_SEGMENT_SUM, file_no, text, said=(before,), counted=(after,))


def _of_files(audit: Audit) -> Iterator[Defect]:
    report = audit.store.report
    if audit.store.format_damage:
        yield Defect(Kind.FORMAT_LOST, "FORMAT", audit.store.format_damage)
    if report.rebuilt:
        yield Defect(Kind.INDEX_LOST, "store.lmdb", report.rebuilt)
    for name in report.foreign:
        yield Defect(Kind.FOREIGN_FILE, name, "belongs to another store")
    for gap in report.gaps:
        yield Defect(Kind.JOURNAL_GAP, "journal", gap)
    for text in report.cut:
        yield Defect(Kind.SEGMENT_CUT, "rdq", text)
    for text in report.doubts:
        yield Defect(Kind.FILE_DAMAGED, "store", text)


def _of_the_journal(audit: Audit) -> Iterator[Defect]:
    """Yield the defects that recovery finds: it reads the journal's messages, and looks for missing segments."""
    report = audit.store.report
    for msg_no in report.found:
        found = audit.locations.find(msg_no)
        place = audit.locations.location(found) if found >= 0 else None
        yield Defect(Kind.WRONG_LOCATION, msg_no, "elsewhere than the journal says", found=place)
    entries: dict[int, list[tuple[int, int]]] = {}
    reasons: dict[int, str] = {}
    for queue_no, seq, msg_no, why in report.lost:
        entries.setdefault(msg_no, []).append((queue_no, seq))
        reasons[msg_no] = why
    for msg_no, why in reasons.items():
        kind = Kind.MISSING_RECORD if why.endswith(MISSING) else Kind.BAD_CHECKSUM
        yield Defect(kind, msg_no, why, tuple(entries[msg_no]), is_lost=True)


def _of_messages(audit: Audit) -> Iterator[Defect]:
    entries: dict[int, list[tuple[int, int]]] = {}
    for row in (*audit.lost, *audit.misplaced):
        entries.setdefault(row.msg_no, []).append((row.queue_no, row.seq))
    for msg_no in audit.unlocated:
        found = audit.relocated.get(msg_no)
        why = "the index has no location of it"
        named = tuple(entries[msg_no])
        yield Defect(Kind.MISSING_LOCATION, msg_no, why, named, found=found, is_lost=found is None)
    for msg_no, location in audit.unreadable.items():
        if msg_no not in entries:
            continue  # no entry names it: its count is wrong, and nobody reads it
        found = audit.relocated.get(msg_no)
        kind = Kind.BAD_CHECKSUM if msg_no in audit.damaged else Kind.MISSING_RECORD
        yield Defect(
            kind if found is None else Kind.WRONG_LOCATION,
            msg_no,
            audit.reason(msg_no),
            tuple(entries[msg_no]),
            location,
            found,
            is_lost=found is None,
        )
