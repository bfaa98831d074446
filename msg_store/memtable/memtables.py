"""Memtables: what the log has made durable and no checkpoint has written yet.

Between the journal, written at once and never searched, and the index (LMDB), searched and written
seldom, stands this: rows of queues and places of messages in dicts, in *generations*. The **active** one
takes what each flush has made durable. A **rotation** freezes it, at a point between two flushes, so a
generation is exactly the log between two LSNs; the checkpoint writes it into the index as one
transaction, and it is dropped. More than one is frozen when the disk is slow (``is_behind``).

::

    flush durable --> active --rotate()--> frozen, frozen --one transaction each--> index
                      newest <------------- what is looked up, in this order ------------

What a generation holds:

* ``rows`` and ``inserted``: rows published and messages placed in it, nowhere below. Their acks make them
  vanish, so messages that live shortly never reach the index.
* ``acked`` and ``changed``: rows and messages from below that are gone, or have another count or place.

The **log count** of a message is the number of its rows in the durable log (``log_counts``).

All for one thread, the loop's. Frozen generations do not change, and the checkpoint's thread reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias
from weakref import WeakSet

from leveret.msg_store.format.kernel import total
from leveret.msg_store.format.rows import Checkpoint, FileRow, IndexRow, Location, QueueTerms
from leveret.msg_store.memtable.memtable import Memtable, Terms
from leveret.msg_store.memtable.read_view import ReadView
from leveret.msg_store.memtable.reference_counts import ReferenceCounts
from leveret.msg_store.memtable.seq_set import SeqSet, is_run

BEHIND_GENERATIONS: Final = 3  # so many frozen ones mean that the disk does not follow


Acked: TypeAlias = Sequence[tuple[int, int]]  # seq, msg_no


class Memtables(ReferenceCounts):
    """The durable state above the index.

    Args:
        held: places of messages that a queue has been promised; not changed here.
        files: the segments at the start, all of them sealed.
        queues: the queues at the start.

    Attributes:
        leaving: queues that are forgotten as soon as they have no rows.
    """

    def __init__(
        self,
        held: Mapping[int, Location],
        files: Mapping[int, FileRow] | None = None,
        queues: Mapping[int, QueueTerms] | None = None,
    ) -> None:
        super().__init__(held, files or {})
        self.committed = 0  # the number of the last generation that is in the index
        self.terms: dict[int, Terms] = {}
        self.leaving: set[int] = set()
        self._views: WeakSet[ReadView] = WeakSet()
        for queue_no, found in (queues or {}).items():
            self.terms[queue_no] = Terms(*found)
            if found.is_clean:  # that holds for one start
                self.terms[queue_no].is_clean = False
                self.active.dirty_queues.add(queue_no)

    # What a flush has made durable.

    def filled(self, file_no: int, record_bytes: int, size_bytes: int) -> None:
        """Note that records of messages were appended to a segment, the newest one."""
        self.files.fill(file_no, record_bytes, size_bytes)
        self.active.dirty_files.add(file_no)

    def published(self, queue_no: int, rows: list[IndexRow]) -> None:
        """Add rows of a queue, ascending, above all it had."""
        active = self.active
        known = active.rows.get(queue_no)
        if known is None:
            known = active.rows[queue_no] = {}
        known.update([(row[0], row) for row in rows])
        last_seq = rows[-1][0]
        active.row_count += len(rows)
        terms = self._touched(queue_no)
        terms.messages += len(rows)
        terms.size_bytes += sum([row[2] for row in rows])
        if last_seq >= terms.next_seq:
            terms.next_seq = last_seq + 1

    def acked(self, queue_no: int, acked: Acked) -> None:
        """Remove rows, each of which is there."""
        active, held = self.active, self._held
        rows, terms = active.rows.get(queue_no), self._touched(queue_no)
        if not rows or rows.keys().isdisjoint([seq for seq, _ in acked]):
            self._ack_below(queue_no, acked, terms)
            return
        inserted, take_row = active.inserted, rows.pop
        size_bytes = vanished = 0
        gone: list[Location] = []
        below: list[tuple[int, int]] = []
        for seq, msg_no in acked:
            row = take_row(seq, None)
            if row is None:
                below.append((seq, msg_no))
                continue
            vanished += 1
            size_bytes += row[2]
            location = inserted.get(msg_no)
            if location is None:
                self._change(msg_no, self._subtractor(msg_no))
                continue
            if location[4] > 1:
                inserted[msg_no] = (*location[:4], location[4] - 1)
                continue
            del inserted[msg_no]
            if msg_no in held:
                self._orphans.add(msg_no)
            else:
                gone.append(location)
        self._free_all(total(gone)[2])
        active.row_count -= vanished
        terms.messages -= vanished
        terms.size_bytes -= size_bytes
        if not rows:
            active.rows.pop(queue_no, None)
        if below:
            self._ack_below(queue_no, below, terms)

    # What is asked.

    def view(self) -> ReadView:
        """Return what a read of the index that begins now must be overlaid with."""
        view = ReadView([*self.frozen, self.active])
        self._views.add(view)
        return view

    @property
    def is_behind(self) -> bool:
        """So much waits for the index that no more should be published."""
        return len(self.frozen) >= BEHIND_GENERATIONS

    def removable(self) -> list[int]:
        """Return the segments without any live message, also in the eyes of the index."""
        return self.files.emptied_until(self.committed)

    def removed(self, file_no: int) -> None:
        """Note that a segment is gone."""
        self.files.pop(file_no, None)
        self.active.dirty_files.add(file_no)

    # Generations.

    def rotate(self, checkpoint: Checkpoint, owed: frozenset[int] = frozenset()) -> Memtable:
        """Freeze the active generation and begin another.

        Args:
            checkpoint: how far the index goes with it.
            owed: segments that were written and not synced.
        """
        assert not self._owed, "a generation is frozen while counts are owed"
        frozen = self.active
        frozen.checkpoint, frozen.owed = checkpoint, owed
        frozen.files = self.files.rows(frozen.dirty_files | self._orphan_files())
        for msg_no in self._orphans:  # a start from here will know nothing of them
            file_no, _, length, _, _ = self._held[msg_no]
            row = frozen.files[file_no]
            assert row is not None, "an orphan lies in a segment that was removed"
            frozen.files[file_no] = row._replace(valid_bytes=row.valid_bytes - length)
        terms = self.terms
        for queue_no in [no for no in self.leaving if no not in terms or not terms[no].messages]:
            self.leaving.discard(queue_no)
            terms.pop(queue_no, None)
            frozen.dirty_queues.add(queue_no)
        frozen.queues = {
            no: terms[no].frozen() if no in terms else None for no in frozen.dirty_queues
        }
        self.frozen.append(frozen)
        self.active = Memtable(frozen.number + 1)
        self.active.dirty_files |= self._orphan_files()  # to be written again without them
        for view in self._views:
            view.generations.append(self.active)
        return frozen

    def commit(self, generation: Memtable) -> None:
        """Drop the oldest frozen generation: it is in the index."""
        assert self.frozen[0] is generation, "generations are committed in their order"
        del self.frozen[0]
        self.committed = generation.number

    # Queues.

    def close_queue(self, queue_no: int, next_seq: int, next_deliver: int) -> None:
        """Note with what a queue wants to go on, whatever is still on its way of it."""
        terms = self._touched(queue_no)
        terms.next_seq, terms.next_deliver, terms.is_clean = next_seq, next_deliver, True

    def reopen_queue(self, queue_no: int) -> None:
        """Note that a queue that was closed has gone on."""
        self._touched(queue_no).is_clean = False

    def forget_queue(self, queue_no: int) -> None:
        """Forget a queue, as soon as it has no rows."""
        self.leaving.add(queue_no)
        self.active.dirty_queues.add(queue_no)

    # Inside.

    def _touched(self, queue_no: int) -> Terms:
        self.active.dirty_queues.add(queue_no)
        terms = self.terms.get(queue_no)
        if terms is None:
            terms = self.terms[queue_no] = Terms()
        return terms

    def _orphan_files(self) -> set[int]:
        return {self._held[msg_no][0] for msg_no in self._orphans}

    def _ack_below(self, queue_no: int, rows: Acked, terms: Terms) -> None:
        """Remove rows that older generations or the index have."""
        acked = self.active.acked.get(queue_no)
        if acked is None:
            acked = self.active.acked[queue_no] = SeqSet()
        seqs, msg_nos = [seq for seq, _ in rows], [msg_no for _, msg_no in rows]
        if not (is_run(seqs) and acked.add_run(seqs[0], seqs[-1])):
            gone = acked.add(dict(rows))  # each once
            if not gone:
                return
            msg_nos = list(gone.values())
        self.active.row_count += len(msg_nos)
        terms.messages -= len(msg_nos)
        self._take_off(msg_nos, terms)
