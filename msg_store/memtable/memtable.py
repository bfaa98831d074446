"""A memtable: what the log did between two rotations, as ``memtables`` keeps it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from leveret.msg_store.format.rows import (
    Batch,
    Checkpoint,
    FileRow,
    IndexRow,
    Location,
    ProducerKey,
    ProducerRow,
    QueueTerms,
)
from leveret.msg_store.memtable.seq_set import SeqSet, span_of


@dataclass(slots=True)
class LiveTerms:
    """The terms of a queue as they change, in RAM; the index has ``QueueTerms``.

    Each memtable that changes them has a copy of its own, so a frozen one has them as of its end.
    """

    next_seq: int = 0
    next_deliver: int = 0
    messages: int = 0
    size_bytes: int = 0
    is_clean: bool = False

    def frozen(self) -> QueueTerms:
        return QueueTerms(
            self.next_seq, self.next_deliver, self.messages, self.size_bytes, self.is_clean
        )


class Memtable:
    """Changes to rows of queues and places of messages. See ``memtables`` for the words.

    Attributes:
        rows: by queue and seq; published in this memtable.
        unsorted: queues of which ``rows`` may not be in the order of seqs, until they are read.
        acked: by queue; rows of memtables below or of the index that are gone.
        inserted: messages placed in this memtable; added by ``insert``.
        changed: messages from below with another place or count; None: gone. Added by ``change``.
        queues: terms that have changed, as of its newest change; None: the queue is forgotten.
        ended_queues: the number of queues deleted while it was active; their terms stay until it is frozen.
        files, checkpoint: captured when it was frozen.
        producers: whose last sequence has changed; None: forgotten.
        owed: segments to be synced before it may be in the index.
    """

    def __init__(self, number: int) -> None:
        self.number = number  # growing by one
        self.rows: defaultdict[int, dict[int, IndexRow]] = defaultdict(dict)
        self.unsorted: set[int] = set()
        self.acked: defaultdict[int, SeqSet] = defaultdict(SeqSet)
        self.inserted: dict[int, Location] = {}
        self.changed: dict[int, Location | None] = {}
        self._inserted_span = self._changed_span = _NOTHING
        self.row_count = 0  # rows and acked together
        self.producers: dict[ProducerKey, ProducerRow | None] = {}
        self.queues: dict[int, LiveTerms | None] = {}
        self.ended_queues = 0
        self.files: dict[int, FileRow | None] = {}
        self.checkpoint: Checkpoint | None = None
        self.owed: frozenset[int] = frozenset()

    def insert(self, locations: Mapping[int, Location]) -> None:
        """Add messages, at least one, to ``inserted``."""
        self.inserted.update(locations)
        (first, last), (low, high) = self._inserted_span, span_of(locations)
        self._inserted_span = min(first, low), max(last, high)

    def change(self, changes: Mapping[int, Location | None]) -> None:
        """Add messages, at least one, to ``changed``."""
        self.changed.update(changes)
        (first, last), (low, high) = self._changed_span, span_of(changes)
        self._changed_span = min(first, low), max(last, high)

    def change_one(self, msg_no: int, location: Location | None) -> None:
        """Add one message, as ``change``; each ack of a row of an earlier memtable comes here."""
        self.changed[msg_no] = location
        first, last = self._changed_span
        if not first <= msg_no <= last:
            self._changed_span = min(first, msg_no), max(last, msg_no)

    def says_nothing_of(self, msg_nos: Collection[int], low: int, high: int) -> bool:
        """Tell whether none of these messages, the numbers of which span low to high, is in it."""
        for known, (first, last) in (
            (self.inserted, self._inserted_span),
            (self.changed, self._changed_span),
        ):
            if low <= last and high >= first and not known.keys().isdisjoint(msg_nos):
                return False
        return True

    @property
    def weight(self) -> int:
        """How many rows a checkpoint will have to write, about."""
        return self.row_count + len(self.changed) + len(self.producers)

    def containers(self) -> list[dict[Any, Any]]:
        """Return the dicts that may be large, for ``free_in_slices``, which empties the last one first."""
        tables: list[dict[Any, Any]] = [self.rows, self.acked, self.queues]
        return [*tables, *self.rows.values(), self.inserted, self.changed, self.producers]

    @property
    def is_empty(self) -> bool:
        return not (self.weight or self.inserted or self.queues or self.producers)

    def batch(self) -> Batch:
        """Return it as a transaction; once frozen, from any thread."""
        places, terms = _Items(self.inserted, self.changed), _Terms(self.queues)
        return Batch(
            self.rows, self.acked, places, self.files, terms, self.checkpoint, self.producers
        )

    def rows_between(
        self, queue_no: int, low: int, high: int, limit: int, gone: Sequence[SeqSet]
    ) -> list[IndexRow]:
        """Return the first ``limit`` rows with ``low <= seq < high`` that are in no set of ``gone``."""
        rows = self.rows.get(queue_no)
        if not rows:
            return []
        if queue_no in self.unsorted:
            rows = self.rows[queue_no] = dict(sorted(rows.items()))
            self.unsorted.remove(queue_no)
        first = max(low, next(iter(rows)))
        last = min(high, next(reversed(rows)) + 1)
        is_sparse = last - first > _SPARSE * len(rows)
        seqs = (
            sorted(seq for seq in rows if first <= seq < last) if is_sparse else range(first, last)
        )
        found: list[IndexRow] = []
        for seq in seqs:
            row = rows.get(seq)
            if row is None or any(seq in each for each in gone):
                continue
            found.append(row)
            if len(found) == limit:
                break
        return found


def newest_table(
    msg_no: int, memtables: Iterable[Memtable]
) -> Mapping[int, Location | None] | None:
    """Return the first table that has a message; None if all memtables say nothing of it."""
    for memtable in memtables:
        if msg_no in memtable.inserted:
            return memtable.inserted
        if msg_no in memtable.changed:
            return memtable.changed
    return None


class _Items:
    """Messages of both kinds with their places; a list of so many pairs would hold all threads up."""

    __slots__ = ("changed", "inserted")

    def __init__(
        self, inserted: Mapping[int, Location], changed: Mapping[int, Location | None]
    ) -> None:
        self.inserted = inserted
        self.changed = changed

    def __iter__(self) -> Iterator[tuple[int, Location | None]]:
        return chain(self.inserted.items(), self.changed.items())


class _Terms:
    """The terms of queues, made one by one as they are written; all at once would hold all threads up."""

    __slots__ = ("queues",)

    def __init__(self, queues: Mapping[int, LiveTerms | None]) -> None:
        self.queues = queues

    def __iter__(self) -> Iterator[tuple[int, QueueTerms | None]]:
        for queue_no, terms in self.queues.items():
            yield queue_no, None if terms is None else terms.frozen()


_SPARSE: Final = 8  # with more seqs to probe per row it is cheaper to go through the rows

_NOTHING: Final = (1 << 64, -1)  # a span: the lowest and the highest number
