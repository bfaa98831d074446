"""The archive: which segments stay for replays, though nothing in them is needed by a queue.

A queue with a **retention** (policy keys ``replay-retention`` and ``replay-retention-bytes``) is *archived*: its
settled messages (acked, expired, dropped, dead-lettered, purged) can be read from the segments for a while. Records
describe themselves and name all queues of their route, so the archive is nothing but segments that are not removed:

* The collector neither merges nor unlinks a segment that is **kept**. So a kept segment keeps its number, and every
  record its offset, and ``(segment, byte)`` is a position in the stream of all messages of the vhost.
* A message of an archived queue that is acked before its flush is written all the same (``GroupCommit.ack``).

A segment is kept for a queue as long as both bounds allow:

* time: the newest record of the queue in it is younger than the retention;
* bytes: the younger segments together have fewer than the retention's bytes of the queue. So at least that much can be
  replayed, and at most a segment more is held; a ceiling would keep nothing where it is less than one segment.

A segment whose shares are not known yet (``segment_shares``) is kept until they have been counted. *Copies*, which the
collector makes, are kept like others; they hold messages that older segments held before, at no position of the stream.

When the disk is short, segments that are kept for the archive alone are **given up**, the oldest first.

Readers go from position to position, and must learn what they missed:

* A queue is archived **since** a position, and **complete from** a segment: all its records from there on are there.
* A position is **freed** for a queue if a segment with records of it up to there has been removed. Frees are counted,
  so that a reader knows whether one came before or after it began. A segment is unlinked only when ``archive.json``
  says so (``free``), so a reader that finds a file gone learns from there what was in it; only a disk
  that cannot take that file does not hold the unlinking up.
* ``ends`` and ``torn`` say which bytes crashes have left behind, of all segments from ``begun`` on, where the archive
  began. Bytes of older segments may belong to flushes that were never completed.

For the loop's thread. Turned down: an index of the archive (a row per message, written and deleted again: the cost of
the queues once more); copies of settled messages in files of their own (every byte is written twice, and each message
changes its position); one decision per vhost without shares (one archived queue would keep all messages of the vhost).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from leveret.msg_store.archive.segment_shares import SegmentShares, Share
from leveret.msg_store.format.append_log import Part
from leveret.msg_store.format.record import Unwritten, queue_no_of
from leveret.msg_store.format.rows import Location

Ranges: TypeAlias = Sequence[
    tuple[int, int]
]  # of bytes: from, and up to but not including; ascending

OFFSET_MAX: Final = (1 << 32) - 1  # places are 32 bits

_NOTHING_KEPT: Final[frozenset[int]] = frozenset()


class Retention(NamedTuple):
    """How long settled messages of a queue stay; None: that bound does not count. One of them is set."""

    age_ms: int | None = None
    size_bytes: int | None = None


class Position(NamedTuple):
    """A position in the stream of a vhost's messages."""

    segment: int
    byte: int


class Freed(NamedTuple):
    """All records of a queue before a position may be gone; ``no`` counts the frees of the vhost."""

    segment: int
    byte: int
    no: int


@dataclass(slots=True)
class ArchivedQueue:
    """A queue with a retention.

    Attributes:
        queue_nos: of its rows, one per priority; the first is the number in routes.
        since: its records from there on are archived.
        complete_from: the segment from which on none of its records is missing.
        freed: None: nothing of it was freed yet.
    """

    name: str
    queue_nos: tuple[int, ...]
    retention: Retention
    since: Position
    complete_from: int
    freed: Freed | None = None


class Archived(NamedTuple):
    """What is kept for a queue."""

    segments: int = 0
    size_bytes: int = 0  # records whose route names the queue, settled or not


class Archive:
    """Decides which segments are kept. Empty, it costs nothing.

    Args:
        queues: as the last start left them, until the queues have got their policies.
        ends: where readable records end in segments that a crash has left longer.
        torn: by segment, ranges of bytes before its end that a crash has torn.
        begun: the segment in use when the archive began; None: when a queue is archived.
        frees: how often messages of archived queues were freed.
        segment_seen: of the last watermark; no later segment may have that number, or a lower one, again.
        is_doubtful: it is not known which queues were archived: everything is kept until ``policies_known``.

    Attributes:
        row_nos: the numbers of the rows of archived queues.
        shares: of the segments, as far as they are known.
        version: rises with each change that ``archive.json`` must have on the disk before it can be relied on.
        published: the version that ``archive.json`` has; set by its writer.
        is_unwritable: ``archive.json`` could not be written the last time; set by its writer.
        next_end_ms: when the next segment is free, by the clock; None: none is kept for a time.
        given_up_bytes: of segments given up for a short disk, since the start.
    """

    def __init__(
        self,
        queues: Iterable[ArchivedQueue] = (),
        ends: Mapping[int, int] | None = None,
        torn: Mapping[int, Ranges] | None = None,
        begun: int | None = None,
        frees: int = 0,
        segment_seen: int = 0,
        is_doubtful: bool = False,
    ) -> None:
        self.queues: dict[int, ArchivedQueue] = {each.queue_nos[0]: each for each in queues}
        self.ends = dict(ends or {})
        self.torn = dict(torn or {})
        self.begun = begun
        self.frees = frees
        self.row_nos: frozenset[int] = _NOTHING_KEPT
        self.shares: dict[int, SegmentShares] = {}
        self.version = self.published = 0
        self.is_unwritable = False
        self.next_end_ms: int | None = None
        self.given_up_bytes = 0
        self._given_up: set[int] = set()
        self.segment_seen = segment_seen
        self.is_doubtful = is_doubtful
        self._number()

    def __bool__(self) -> bool:
        """Segments may have to be kept."""
        return bool(self.queues) or self.is_doubtful

    # Policies.

    def set(
        self, queue_nos: Sequence[int], name: str, retention: Retention | None, at: Position
    ) -> bool:
        """Archive a queue, or cease to; return whether that is a change.

        Args:
            queue_nos: those of its rows, one per priority, the lowest first.
            name: the queue's.
            retention: None: it is not archived.
            at: the durable end of the segment in use, or the begin of the next: its messages from now on lie behind.
        """
        first, old = queue_nos[0], self.queues.get(queue_nos[0])
        if retention is None:
            if old is None:
                return False
            del self.queues[first]
        elif old is None:
            self.queues[first] = ArchivedQueue(name, tuple(queue_nos), retention, at, at.segment)
            self.begun = at.segment if self.begun is None else self.begun
        elif (old.name, old.retention) == (name, retention):
            return False
        else:
            old.name, old.retention = name, retention
        self._changed()
        return True

    def forget(self, queue_no: int) -> bool:
        """Cease to archive a queue that is deleted, given any number of its rows."""
        if queue_no not in self.row_nos:
            return False
        self.queues = {
            no: each for no, each in self.queues.items() if queue_no not in each.queue_nos
        }
        self._changed()
        return True

    def policies_known(self, queue_nos: Collection[int]) -> bool:
        """Note that all queues of the vhost, ``queue_nos``, have got their policies; return whether this is new."""
        gone = self.queues.keys() - set(queue_nos)
        if not gone and not self.is_doubtful:
            return False
        self.is_doubtful = False
        for queue_no in gone:
            del self.queues[queue_no]
        self._changed()
        return True

    def _changed(self) -> None:
        self.version += 1
        self._number()
        if not self.queues:  # from now on nothing is counted, so what is known becomes wrong
            self.shares.clear()
            self._given_up.clear()
            self.next_end_ms = self.begun = None

    def _number(self) -> None:
        self.row_nos = frozenset(no for each in self.queues.values() for no in each.queue_nos)

    # Segments.

    def written(
        self,
        items: Sequence[Unwritten],
        places: Mapping[int, Location],
        parts: Sequence[Part],
        now_ms: int,
    ) -> None:
        """Count messages that a flush has made durable at these places.

        A segment that was begun before is left to the survey.
        """
        for part in parts:
            if part.header is not None:
                self.shares[part.file_no] = SegmentShares()
        counts: dict[tuple[int, tuple[int, ...]], tuple[int, int, int]] = {}
        for msg_no, (_, queue_nos) in items:
            file_no, offset, length, _, _ = places[msg_no]
            records, size_bytes, _ = counts.get((file_no, queue_nos), (0, 0, 0))
            counts[file_no, queue_nos] = records + 1, size_bytes + length, offset + length
        for (file_no, queue_nos), (records, size_bytes, end) in counts.items():
            shares = self.shares.get(file_no)
            if shares is not None:
                for route_no in queue_nos:
                    shares.add(queue_no_of(route_no), records, size_bytes, now_ms, end)

    def kept(self, file_nos: Collection[int], now_ms: int) -> Collection[int]:
        """Return which of all segments are kept at this time; sets ``next_end_ms``."""
        if not self:
            return _NOTHING_KEPT
        self.next_end_ms = None
        if self.is_doubtful:
            return set(file_nos)
        kept = set(file_nos).difference(self.shares)
        ends = list[int]()
        for queue_no, queue in self.queues.items():
            for file_no, _, end_ms in self._kept_of(queue_no, queue.retention, now_ms):
                kept.add(file_no)
                if end_ms is not None:
                    ends.append(end_ms)
        self.next_end_ms = min(ends, default=None)
        return kept - self._given_up

    def _kept_of(
        self, queue_no: int, retention: Retention, now_ms: int
    ) -> Iterator[tuple[int, int, int | None]]:
        """Yield number, bytes of the queue, and end of each segment that is kept for it, the youngest first."""
        younger_bytes, end_ms = 0, None
        for newest_ms, file_no, size_bytes in self._segments_of(queue_no):
            if retention.size_bytes is not None and younger_bytes >= retention.size_bytes:
                return
            if retention.age_ms is not None:
                end_ms = newest_ms + retention.age_ms
                if end_ms <= now_ms:
                    return
            younger_bytes += size_bytes
            yield file_no, size_bytes, end_ms

    def _segments_of(self, queue_no: int) -> list[tuple[int, int, int]]:
        """Return time of the newest record, number, and bytes of the segments with a queue, the youngest first."""
        found = []
        for file_no, shares in self.shares.items():
            share = shares.queues.get(queue_no)
            if share is not None:
                found.append((share.newest_ms, file_no, share.size_bytes))
        found.sort(reverse=True)
        return found

    def give_up(self, file_nos: Iterable[int], size_bytes: int) -> None:
        """Keep segments no longer, which have so many bytes: the disk is short."""
        self._given_up.update(file_nos)
        self.given_up_bytes += size_bytes

    def free(self, file_nos: Iterable[int]) -> bool:
        """Note that segments are to be unlinked; return whether they may be now, for ``archive.json`` says so.

        Ask again when it has been written, or could not be.
        """
        for file_no in sorted(file_nos):
            shares = self.shares.get(file_no)
            if shares is not None and not shares.is_copy:
                self._note_freed(file_no, shares.queues)
        return self.version == self.published or self.is_unwritable

    def _note_freed(self, file_no: int, shares: Mapping[int, Share]) -> None:
        for queue_no in self.queues.keys() & shares.keys():
            queue, end = self.queues[queue_no], shares[queue_no].end
            queue.complete_from = max(queue.complete_from, file_no + 1)
            if queue.freed is None or queue.freed[:2] < (file_no, end):
                self.frees += 1
                self.version += 1
                queue.freed = Freed(file_no, end, self.frees)

    def removed(self, file_no: int) -> None:
        """Forget a segment that has been unlinked."""
        self.shares.pop(file_no, None)
        self._given_up.discard(file_no)
        self.ends.pop(file_no, None)
        self.torn.pop(file_no, None)

    # Statistics.

    def archived(self, queue_no: int, now_ms: int) -> Archived:
        """Return what is kept for a queue; nothing for one that is not archived."""
        queue = self.queues.get(queue_no)
        if queue is None:
            return Archived()
        kept = [
            size_bytes
            for file_no, size_bytes, _ in self._kept_of(queue_no, queue.retention, now_ms)
            if file_no not in self._given_up
        ]
        return Archived(len(kept), sum(kept))
