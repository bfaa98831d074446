"""Memtables: changes that the journal has made durable and no checkpoint has written yet.

The journal is written at once and never searched; the index (LMDB) is searched, and written seldom. Between
them stand the memtables: rows of queues and places of messages in dicts. The **active** memtable takes the
changes of each flush. A **rotation** freezes it, at a point between two flushes, so a memtable is exactly the
log between two LSNs; the checkpoint writes it into the index as one transaction, and it is dropped. More than
one is frozen when the disk is slow (``is_behind``).

::

    flush durable --> active --rotate()--> frozen, frozen --one transaction each--> index
                      newest <------------- lookups go in this order ------------------

A memtable holds:

* ``rows`` and ``inserted``: rows published and messages placed in it, nowhere below. Their acks make them
  vanish, so messages that live shortly never reach the index.
* ``acked`` and ``changed``: rows and messages from below that are gone, or have another count or place.

**Reference counts.** The count of a message is the number of its rows in the durable log. The index has
counts and places exactly as of its checkpoint, and the memtables above it the changes since. A count
that was too low would lose a message, so it must be known before it changes. If a change (an ack, a late
row, a move) becomes durable and the count is only in the index, the change is *owed*, unless it was read a
short while ago (``learn``): ``unresolved`` names the message, a thread reads its count, and
``resolve`` applies the change. The loop never reads. No memtable is frozen as long as a change is owed.

A message that a queue has been promised and has not taken yet is *held* (``pending.Holds``). It
keeps its bytes valid though its count may be 0; then it is an **orphan**, unknown to the index.

A consumer that drains a queue acks messages of which only the index knew and whose places have just been
read; they are taken off together (``_subtract_read``). All others go one by one, as a ``Change``.

For one thread, the loop's. Frozen memtables do not change, and the checkpoint's thread reads them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import WeakSet

from leveret.msg_store.format.kernel import total
from leveret.msg_store.format.rows import (
    Checkpoint,
    FileRow,
    IndexRow,
    Location,
    ProducerRow,
    QueueTerms,
)
from leveret.msg_store.memtable.file_states import FileStates
from leveret.msg_store.memtable.memtable import LiveTerms, Memtable, newest_table
from leveret.msg_store.memtable.read_view import ReadView
from leveret.msg_store.memtable.seq_set import is_run, span_of

ANY_SOURCE: Final = 0  # of a ``Relocation``: any file below the copy's
BEHIND_MEMTABLES: Final = 3  # so many frozen ones mean that the disk does not follow
READ_LOCATIONS_MAX: Final = 20_000  # some 5 MB; above that the cache begins anew

Acked: TypeAlias = Sequence[tuple[int, int]]  # seq, msg_no
Change: TypeAlias = Callable[[Location | None], Location | None]  # None: gone

_seq_of: Final[Callable[[tuple[int, int]], int]] = itemgetter(0)


class Relocation(NamedTuple):
    """A copy of a message that the collector has made; of use if it still lies in ``source_no``."""

    msg_no: int
    source_no: int
    file_no: int
    offset: int
    total_len: int


class Memtables:
    """The durable state above the index.

    Args:
        held: places of messages that a queue has been promised; not changed here.
        files, queues: segments and queues at the start, the segments all sealed.

    Attributes:
        active, frozen: the memtables; the frozen ones oldest first.
    """

    def __init__(
        self,
        held: Mapping[int, Location],
        files: Mapping[int, FileRow] | None = None,
        queues: Mapping[int, QueueTerms] | None = None,
    ) -> None:
        self.active = Memtable(1)
        self.frozen: list[Memtable] = []
        self.files = FileStates(files or {})  # the states of the segments
        self._held = held
        self._orphans: set[int] = set()
        self._owed: dict[int, list[Change] | LiveTerms] = {}  # LiveTerms: a queue lost a row
        self._read: dict[int, Location] = {}  # read from the index, and certainly still right
        self.committed = 0  # the number of the last memtable that is in the index
        self.terms: dict[int, LiveTerms] = {}
        self.leaving: set[int] = set()  # queues that are forgotten as soon as they have no rows
        self._read_views: WeakSet[ReadView] = WeakSet()
        for queue_no, found in (queues or {}).items():
            self.terms[queue_no] = LiveTerms(*found)
            if found.is_clean:  # that holds for one start
                self._touched(queue_no).is_clean = False

    # Rows that a flush has made durable.

    def published(self, queue_no: int, rows: list[IndexRow]) -> None:
        """Add rows of a queue, ascending; it has none of these seqs."""
        active = self.active
        own, size_bytes = active.rows[queue_no], 0
        for row in rows:
            own[row[0]] = row
            size_bytes += row[2]
        last_seq = rows[-1][0]
        active.row_count += len(rows)
        terms = self._touched(queue_no)
        terms.messages += len(rows)
        terms.size_bytes += size_bytes
        if rows[0][0] < terms.next_seq:
            active.unsorted.add(queue_no)
        if last_seq >= terms.next_seq:
            terms.next_seq = last_seq + 1

    def acked(self, queue_no: int, acked: Acked) -> None:
        """Remove rows, each of which is there."""
        active, held = self.active, self._held
        rows, terms = active.rows.get(queue_no), self._touched(queue_no)
        # Of many, none is there as a rule or all are; of one, the loop below finds out as fast.
        if not rows or (len(acked) > 1 and rows.keys().isdisjoint(map(_seq_of, acked))):
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

    # Messages that a flush has made durable.

    def placed(self, locations: dict[int, Location]) -> None:
        """Add messages, counted with one row each; the rows follow."""
        if locations:
            self.active.insert(locations)

    def count_rows(
        self, counts: Mapping[int, int], new: Mapping[int, Location], late: Mapping[int, Location]
    ) -> None:
        """Count rows, where not every one is of a message of its own.

        Args:
            counts: how many rows of a flush each message has.
            new: what ``placed`` got; counted with one already.
            late: the others' places.
        """
        inserted = self.active.inserted
        for msg_no, count in counts.items():
            location = inserted.get(msg_no)
            if location is None:
                self._change(msg_no, self._adder(msg_no, late[msg_no], count))
            elif msg_no not in new:
                inserted[msg_no] = (*location[:4], location[4] + count)
            elif count > 1:
                inserted[msg_no] = (*location[:4], count)

    def moved(self, moves: Iterable[Relocation], then: Callable[[bool], None]) -> None:
        """Move messages that still lie in their source to the copy.

        Args:
            moves: the copies, durable; of messages that are not held. (The row of a queue that takes
                one later would name the place it had before.)
            then: called for each, now or later, with whether the copy is used.
        """
        for move in moves:
            self._change(move.msg_no, self._mover(move, then))

    def unheld(self, msg_no: int, location: Location) -> None:
        """Note that no queue holds a message any more."""
        if msg_no in self._orphans:
            self._orphans.discard(msg_no)
            self._free(location[0], location[2])

    def found(self, msg_no: int, place: Location) -> None:
        """Note, at a start, that a message lies elsewhere than the log says."""

        def change(location: Location | None) -> Location | None:
            if location is None:
                return None
            self._free(location[0], location[2])
            self.files.hold(place[0], place[2])
            return (*place[:4], location[4])

        self._change(msg_no, change)

    # Reading.

    def read_view(self) -> ReadView:
        """Return the memtables whose changes go over a read of the index that begins now."""
        read_view = ReadView([*self.frozen, self.active])
        self._read_views.add(read_view)
        return read_view

    def is_read(self, memtable: Memtable) -> bool:
        """Tell whether a read of the index needs a memtable, also one that has been committed meanwhile."""
        return any(memtable in each.memtables for each in self._read_views)

    def location(self, msg_no: int) -> Location | None:
        """Return where a message lies; None if it is gone, or the index must be asked."""
        table = self._newest_table(msg_no)
        location = None if table is None else table[msg_no]
        return self._held.get(msg_no) if location is None else location

    def _newest_table(self, msg_no: int) -> Mapping[int, Location | None] | None:
        return newest_table(msg_no, (self.active, *reversed(self.frozen)))

    def places(self, msg_nos: Sequence[int]) -> list[Location | None]:
        """Return where messages lie; None for a message that the index must be asked about."""
        if self._is_below(list(msg_nos)) and self._held.keys().isdisjoint(msg_nos):
            return list(map(self._read.get, msg_nos))
        return [self.location(msg_no) for msg_no in msg_nos]

    def learn(self, read_view: ReadView, found: Mapping[int, Location]) -> None:
        """Cache places that were read from the index; ``read_view`` was made before.

        A message is mostly acked soon after it was read from the disk. Its ack needs the place again: where
        the bytes are that become garbage, and how many rows there are.

        A message that a memtable of the read view speaks of is left out: the index may have been read before
        that memtable was written to it, or after. If a change is owed to a message, no memtable speaks of it yet.
        """
        numbers = found.keys()
        tables = (*read_view.spoken_of(numbers), self._owed.keys())
        above = [each for each in tables if not each.isdisjoint(numbers)]
        if above:
            found = {no: at for no, at in found.items() if not any(no in each for each in above)}
        if len(self._read) + len(found) > READ_LOCATIONS_MAX:
            self._read.clear()
        self._read.update(found)

    def knows(self, msg_no: int) -> bool:
        """Tell whether the index need not be asked about a message."""
        return msg_no in self._owed or self._newest_table(msg_no) is not None

    @property
    def is_behind(self) -> bool:
        """So much waits for the index that no more should be published."""
        return len(self.frozen) >= BEHIND_MEMTABLES

    def removable(self) -> list[int]:
        """Return the segments without any live message, also in the eyes of the index."""
        return self.files.emptied_until(self.committed)

    # Rotation.

    def rotate(self, checkpoint: Checkpoint, owed: frozenset[int] = frozenset()) -> Memtable:
        """Freeze the active memtable and begin another; ``owed`` are segments written and not synced."""
        assert not self._owed, "a memtable is frozen while counts are owed"
        frozen = self.active
        frozen.checkpoint, frozen.owed = checkpoint, owed
        orphan_bytes = Counter[int]()  # by segment; a start from here will know nothing of them
        for msg_no in self._orphans:
            file_no, _, length, _, _ = self._held[msg_no]
            orphan_bytes[file_no] += length
        frozen.files = self.files.take_rows(orphan_bytes)
        terms = self.terms
        gone = {no for no in self.leaving if no not in terms or not terms[no].messages}
        for queue_no in gone:
            self.leaving.discard(queue_no)
            terms.pop(queue_no, None)
            frozen.queues[queue_no] = None
        if gone:  # the index would write their producers only to drop them
            for key in [each for each in frozen.producers if each[0] in gone]:
                del frozen.producers[key]
        self.frozen.append(frozen)
        self.active = Memtable(frozen.number + 1)
        for read_view in self._read_views:
            read_view.memtables.append(self.active)
        return frozen

    def commit(self, memtable: Memtable) -> None:
        """Drop the oldest frozen memtable: it is in the index."""
        assert self.frozen[0] is memtable, "memtables are committed in their order"
        del self.frozen[0]
        self.committed = memtable.number

    def produced(self, queue_no: int, producer: bytes, row: ProducerRow | None) -> None:
        """Note the last sequence of a producer; None: it is forgotten."""
        self.active.producers[queue_no, producer] = row

    # Queues.

    def close_queue(self, queue_no: int, next_seq: int, next_deliver: int) -> None:
        """Note the seqs that a queue resumes with after a clean stop; its work may still be pending."""
        terms = self._touched(queue_no)
        terms.next_seq, terms.next_deliver, terms.is_clean = next_seq, next_deliver, True

    def reopen_queue(self, queue_no: int) -> None:
        """Note that a queue that was closed has gone on."""
        self._touched(queue_no).is_clean = False

    def write_all_terms(self) -> None:
        """Have the terms of all queues written with this memtable: the index is new."""
        for queue_no in list(self.terms):
            self._touched(queue_no)

    def forget_queue(self, queue_no: int) -> None:
        """Forget a queue, as soon as it has no rows."""
        self.leaving.add(queue_no)
        self.active.ended_queues += 1
        if queue_no in self.terms:
            self._touched(queue_no)
        else:
            self.active.queues[queue_no] = None

    # Counts that must be looked up in the index.

    @property
    def has_unresolved(self) -> bool:
        return bool(self._owed)

    def unresolved(self, limit: int | None = None) -> list[int]:
        """Return the messages, the first ``limit``, that must be looked up in the index for ``resolve``."""
        return list(islice(self._owed, limit))

    def resolve(self, msg_nos: Iterable[int], found: Mapping[int, Location]) -> None:
        """Apply the changes that are owed to messages, given their places and counts in the index."""
        acked: list[tuple[int, Location, LiveTerms]] = []
        for msg_no in msg_nos:
            location = known = found.get(msg_no)
            owed = self._owed.pop(msg_no, ())
            if isinstance(owed, LiveTerms):
                if location is not None:  # else a row of a damaged index
                    acked.append((msg_no, location, owed))
                continue
            for change in owed:
                location = change(location)
            if location is not known:
                self._put(msg_no, location)
        self._subtract(acked)

    def _subtract(self, acked: list[tuple[int, Location, LiveTerms]]) -> None:
        """Take a row off each message; as ``_subtractor``, but for many that only the index knows."""
        changed, held = dict[int, Location | None](), self._held
        gone: list[Location] = []
        for msg_no, location, terms in acked:
            terms.size_bytes -= location[3]
            if location[4] > 1:
                changed[msg_no] = (*location[:4], location[4] - 1)
                continue
            changed[msg_no] = None
            if msg_no in held:
                self._orphans.add(msg_no)
            else:
                gone.append(location)
        self._free_all(total(gone)[2])
        if changed:
            self.active.change(changed)

    def _take_off(self, msg_nos: list[int], terms: LiveTerms) -> None:
        """Take a row of a queue off each message; of rows that are not of this memtable."""
        if not self._is_below(msg_nos):
            for msg_no in msg_nos:
                self._change(msg_no, self._subtractor(msg_no, terms))
            return
        read = self._read
        before = len(read)
        places: list[Any] = list(map(read.pop, msg_nos, repeat(None)))
        if before - len(read) == len(places):
            self._subtract_read(msg_nos, places, terms)
            return
        unknown = [no for no, place in zip(msg_nos, places, strict=False) if place is None]
        self._owed.update(zip(unknown, repeat(terms), strict=False))
        if len(unknown) < len(places):  # a tuple of each of 20,000 would be a garbage collection
            found = zip(msg_nos, places, repeat(terms), strict=False)
            self._subtract([each for each in found if each[1] is not None])

    def _subtract_read(self, msg_nos: list[int], places: list[Location], terms: LiveTerms) -> None:
        """As ``_subtract``, for messages of one queue: mostly they are gone with that."""
        row_count, size_bytes, freed = total(places)
        if row_count > len(places) or not self._held.keys().isdisjoint(msg_nos):
            self._subtract(list(zip(msg_nos, places, repeat(terms), strict=False)))
            return
        terms.size_bytes -= size_bytes
        self.active.change(dict.fromkeys(msg_nos))
        self._free_all(freed)

    def _is_below(self, msg_nos: list[int]) -> bool:
        """Tell whether only the index knows of these messages."""
        if not msg_nos:
            return True
        for known in (self._owed.keys(), self._orphans):
            if known and not known.isdisjoint(msg_nos):
                return False
        low, high = span_of(msg_nos)
        return all(each.says_nothing_of(msg_nos, low, high) for each in (self.active, *self.frozen))

    # Inside.

    def _touched(self, queue_no: int) -> LiveTerms:
        """Return the terms of a queue to be changed; a frozen memtable keeps its own."""
        terms = self.active.queues.get(queue_no)
        if terms is None:
            before = self.terms.get(queue_no)
            terms = LiveTerms() if before is None else LiveTerms(*before.frozen())
            self.terms[queue_no] = self.active.queues[queue_no] = terms
        return terms

    def _ack_below(self, queue_no: int, rows: Acked, terms: LiveTerms) -> None:
        """Remove rows that older memtables or the index have."""
        acked = self.active.acked[queue_no]
        seqs, msg_nos = [seq for seq, _ in rows], [msg_no for _, msg_no in rows]
        if not (is_run(seqs) and acked.add_run(seqs[0], seqs[-1])):
            gone = acked.add(dict(rows))  # each once
            if not gone:
                return
            msg_nos = list(gone.values())
        self.active.row_count += len(msg_nos)
        terms.messages -= len(msg_nos)
        self._take_off(msg_nos, terms)

    def _free(self, file_no: int, record_bytes: int) -> None:
        if record_bytes:
            self.files.free(file_no, record_bytes, self.active.number)
            self.files.dirty.add(file_no)

    def _free_all(self, freed: Mapping[int, int]) -> None:
        for file_no, record_bytes in freed.items():
            self._free(file_no, record_bytes)

    def _change(self, msg_no: int, change: Change) -> None:
        """Change a message's count or place, now if they are known."""
        owed = self._owed.get(msg_no)
        if owed is not None:
            if isinstance(owed, LiveTerms):
                owed = self._owed[msg_no] = [self._subtractor(msg_no, owed)]
            owed.append(change)
            return
        location: Location | None = None
        if msg_no not in self._orphans:
            table = self._newest_table(msg_no)
            if table is not None:
                location = table[msg_no]
            else:
                location = self._read.pop(msg_no, None)
                if location is None:
                    self._owed[msg_no] = [change]
                    return
        changed = change(location)
        if changed is not location:
            self._put(msg_no, changed)

    def _put(self, msg_no: int, location: Location | None) -> None:
        active = self.active
        if msg_no not in active.inserted:
            active.change_one(msg_no, location)
        elif location is not None:
            active.inserted[msg_no] = location
        else:
            del active.inserted[msg_no]

    def _subtractor(self, msg_no: int, terms: LiveTerms | None = None) -> Change:
        """Take off a row, and its bytes off a queue's terms if that was not done."""

        def change(location: Location | None) -> Location | None:
            if location is None:
                return None  # a row of a damaged index
            if terms is not None:
                terms.size_bytes -= location[3]
            if location[4] > 1:
                return (*location[:4], location[4] - 1)
            if msg_no in self._held:
                self._orphans.add(msg_no)
            else:
                self._free(location[0], location[2])
            return None

        return change

    def _adder(self, msg_no: int, place: Location, count: int) -> Change:
        """Add rows of a message whose first row came with an earlier flush."""

        def change(location: Location | None) -> Location | None:
            if location is not None:
                return (*location[:4], location[4] + count)
            if msg_no in self._orphans:
                self._orphans.discard(msg_no)
            else:
                self.files.hold(place[0], place[2])
            return (*place[:4], count)

        return change

    def _mover(self, move: Relocation, then: Callable[[bool], None]) -> Change:
        _, source_no, file_no, offset, length = move

        def change(location: Location | None) -> Location | None:
            is_used = location is not None and (
                location[0] == source_no if source_no != ANY_SOURCE else (location[0] < file_no)
            )
            then(is_used)
            if location is None or not is_used:
                return location
            self._free(location[0], location[2])
            self.files.hold(file_no, length)
            return (file_no, offset, length, *location[3:])

        return change
