"""Pending work, which the next flush takes: per queue its new rows and acks, and the bodies of new messages.

A **row** is a message at a seq of a queue. Rows and acks meet here: an ack whose row
has not been taken by a flush removes the row, and neither is ever written.

A message is **held** for every queue that routing chose, in advance: an early ack in one queue must
not free what another has not even been sent. A hold ends when the queue's row is durable, or was acked
before a flush took it, or when the queue goes down before it accepted the message. From then on the
rows in the log keep the message (``memtables``).

A **body** is in RAM from ``write`` until a flush takes the first row that speaks of it, or until the
last hold ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Final, TypeAlias

from leveret.core.errors import StoreError
from leveret.core.message import BODY, Message
from leveret.msg_store.format.record import QueueNos, Unwritten
from leveret.msg_store.format.rows import SEQ_END, Location
from leveret.msg_store.memtable.seq_set import stretches

Row: TypeAlias = tuple[int, int]  # msg_no, expiry_ms (0: never)
SeqRow: TypeAlias = tuple[int, int, int]  # seq, msg_no, expiry_ms
Ack: TypeAlias = tuple[int, int]  # seq, msg_no
SeqRun: TypeAlias = tuple[int, int, int]  # queue_no, first_seq, count

EVERY_NO: Final = 1 << 64  # above the numbers of all messages

msg_no_of: Final[Callable[[Row], int]] = itemgetter(0)
seq_of: Final[Callable[[SeqRow | Ack], int]] = itemgetter(0)


class Holds:
    """The messages that are held, and the places of those among them that are on disk.

    Attributes:
        counts: holds of messages routed to several queues, until the last one ends. A message routed
            to one queue is held as long as its row is on the way, which needs no count.
        unheld: gets a message on disk when its last hold has ended.
    """

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.locations: dict[int, Location] = {}  # of messages in ``counts`` that are on disk
        self.bodies: dict[int, tuple[Message, QueueNos]] = {}  # the messages in RAM, by number
        self.body_bytes = 0  # the size of those bodies
        self.unheld: Callable[[int, Location], None] | None = None
        self._awaited: dict[int, set[int]] = {}

    def write(
        self, first: int, messages: Sequence[Message], queue_nos: QueueNos, size_bytes: int
    ) -> None:
        """Hold messages numbered from ``first``, of so many bytes, for the queues that will get them."""
        assert queue_nos, "a message without a queue would be held for ever"
        msg_nos = range(first, first + len(messages))
        if len(queue_nos) > 1:
            self.counts.update(dict.fromkeys(msg_nos, len(queue_nos)))
        bodies = self.bodies
        for msg_no, message in enumerate(messages, first):
            bodies[msg_no] = (message, queue_nos)
        self.body_bytes += size_bytes
        for queue_no in queue_nos:
            awaited = self._awaited.get(queue_no)
            if awaited is None:
                self._awaited[queue_no] = set(msg_nos)
            else:
                awaited.update(msg_nos)

    def accept(self, queue_no: int, msg_nos: Sequence[int]) -> None:
        """Note that a queue has got messages; ``StoreError`` if one was not written for it, or came before."""
        awaited = self._awaited.get(queue_no)
        if awaited is None or not awaited.issuperset(msg_nos):
            raise StoreError(f"queue {queue_no} was given a message that was not written for it")
        awaited.difference_update(msg_nos)
        if not awaited:
            del self._awaited[queue_no]

    def queue_down(self, queue_no: int) -> None:
        """End the holds of messages that the queue will never accept."""
        self.release(self._awaited.pop(queue_no, ()))

    def release(self, msg_nos: Iterable[int]) -> None:
        """End one hold of each message, as one of its rows will not be written."""
        bodies = self.bodies
        for msg_no in msg_nos:
            if self._is_last(msg_no):
                item = bodies.pop(msg_no, None)
                if item is not None:
                    self.body_bytes -= len(item[0][BODY])

    def put_back(self, items: Sequence[Unwritten]) -> None:
        self.bodies.update(items)
        self.body_bytes += sum([len(message[BODY]) for _, (message, _) in items])

    def clear_bodies(self) -> None:
        self.bodies.clear()
        self.body_bytes = 0

    def durable(self, rows: Mapping[int, int], placed: Mapping[int, Location]) -> None:
        """End as many holds of each message as it has ``rows`` that are durable now.

        Places of messages that came to the disk with them (``placed``) and are still held are remembered.
        """
        counts = self.counts
        for msg_no, ended in rows.items():
            count = counts.get(msg_no)
            if count is None:
                continue
            if count > ended:
                counts[msg_no] = count - ended
                if msg_no in placed:
                    self.locations[msg_no] = placed[msg_no]
            else:
                self._end(msg_no)

    def _is_last(self, msg_no: int) -> bool:
        count = self.counts.get(msg_no, 1)
        if count > 1:
            self.counts[msg_no] = count - 1
            return False
        if msg_no in self.counts:
            self._end(msg_no)
        return True

    def _end(self, msg_no: int) -> None:
        del self.counts[msg_no]
        location = self.locations.pop(msg_no, None)
        if location is not None and self.unheld is not None:
            self.unheld(msg_no, location)


class PendingQueue:
    """One queue's rows and acks that no flush has taken.

    ``settled`` are the acks of rows that are written all the same, for an archive: they go with their row.
    ``is_sorted``: the rows are in the order of seqs.
    """

    __slots__ = ("acks", "is_sorted", "rows", "settled")

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.is_sorted = True
        self.acks: list[Ack] = []
        self.settled: dict[int, int] | None = None  # seq -> msg_no

    def __bool__(self) -> bool:
        return bool(self.rows or self.acks)

    def __len__(self) -> int:
        return len(self.rows) + len(self.acks) + len(self.settled or ())

    def settle(self, acked: Sequence[Ack]) -> None:
        """Add acks; a row that is pending stays, and is acked when it is written."""
        settled, rows, add_ack = self.settled or {}, self.rows, self.acks.append
        for ack in acked:
            if ack[0] in rows:
                settled[ack[0]] = ack[1]
            else:
                add_ack(ack)
        self.settled = settled or None

    def ack(self, acked: Sequence[Ack]) -> list[Ack]:
        """Add acks; return the acks whose row was pending: both are removed."""
        if not self.rows:
            self.acks += acked
            return []
        take_row, add_ack = self.rows.pop, self.acks.append
        cancelled: list[Ack] = []
        for ack in acked:
            if take_row(ack[0], None) is None:
                add_ack(ack)
            else:
                cancelled.append(ack)
        return cancelled

    def take_acks(self, count_max: int) -> list[Ack]:
        """Remove and return the first acks, ascending."""
        taken = self.acks[:count_max]
        del self.acks[:count_max]  # moves the others, but looks at none: a million may wait
        taken.sort()
        return taken

    def take_rows(
        self,
        count_max: int,
        bytes_max: int,
        holds: Holds,
        items: list[Unwritten],
        below: int = EVERY_NO,
        end: int = SEQ_END,
    ) -> tuple[list[SeqRow], int]:
        """Remove the first rows, and move the bodies that come with them to ``items``.

        No further row is taken when the bodies have ``bytes_max`` bytes, or from the first on whose message is not
        numbered ``below``, or whose seq is ``end`` or higher. Returns rows and bytes of bodies.
        """
        if not self.is_sorted:
            self.rows, self.is_sorted = dict(sorted(self.rows.items())), True
        bodies, taken, size_bytes = holds.bodies, [], 0
        for seq, (msg_no, expiry_ms) in islice(self.rows.items(), count_max):
            if msg_no >= below or seq >= end:
                break
            taken.append((seq, msg_no, expiry_ms))
            item = bodies.pop(msg_no, None)
            if item is not None:
                items.append((msg_no, item))
                size_bytes += len(item[0][BODY])
                if size_bytes >= bytes_max:
                    break
        holds.body_bytes -= size_bytes
        if len(taken) == len(self.rows):
            self.rows = {}
        else:
            for seq, _, _ in taken:
                del self.rows[seq]
        return taken, size_bytes

    def take_settled(self, rows: list[SeqRow]) -> list[Ack]:
        """Remove and return the acks that go with rows, ascending."""
        settled = self.settled
        if settled is None:
            return []
        taken = [(seq, msg_no) for seq, msg_no, _ in rows if settled.pop(seq, None) is not None]
        self.settled = settled or None
        return taken

    def put_back(self, rows: list[SeqRow], acks: list[Ack], is_archived: bool = False) -> list[Ack]:
        """Take back rows and acks of a failed flush, in front of later ones.

        Returns acks that came meanwhile for rows of the flush: both are removed, unless the queue is archived.
        """
        kept = {seq: (msg_no, expiry) for seq, msg_no, expiry in rows}
        self.is_sorted = False  # perhaps
        if is_archived or any(seq in kept for seq, _ in acks):
            self.rows = kept | self.rows
            meanwhile, self.acks = self.acks, []
            self.settle(acks + meanwhile)
            return []
        gone = [ack for ack in self.acks if kept.pop(ack[0], None) is not None]
        met = {seq for seq, _ in gone}
        self.acks = acks + [ack for ack in self.acks if ack[0] not in met]
        self.rows = kept | self.rows
        return gone


def seq_runs(queue_no: int, seqs: list[int]) -> list[SeqRun]:
    """Return ascending seqs as runs."""
    if len(seqs) == 1:  # most often, and faster so
        return [(queue_no, seqs[0], 1)]
    return [(queue_no, first, last - first + 1) for first, last in stretches(seqs)]


class CancelledWrites:
    """Rows that became safe without a flush, and that no report has named yet; by queue_no.

    A row is reported when no older row of its queue is pending, so that a queue's rows become safe in their
    order. (RabbitMQ confirms an acked message at once; few frames that say "all up to here" are worth more
    than the milliseconds.)
    """

    def __init__(self) -> None:
        self._seqs: dict[int, list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._seqs)

    def add(self, queue_no: int, acked: Sequence[Ack]) -> None:
        if acked:
            self._seqs.setdefault(queue_no, []).extend([seq for seq, _ in acked])

    def take(self, dirty: Mapping[int, PendingQueue]) -> list[SeqRun]:
        """Return, once, the rows that are older than all pending rows of their queue."""
        seqs_by_queue, self._seqs = self._seqs, {}
        runs: list[SeqRun] = []
        for queue_no, seqs in seqs_by_queue.items():
            seqs.sort()
            pending = dirty.get(queue_no)
            if pending is not None and pending.rows:
                count = bisect_left(seqs, next(iter(pending.rows)))
                if count < len(seqs):
                    self._seqs[queue_no] = seqs[count:]
                    del seqs[count:]
            runs += seq_runs(queue_no, seqs)
        return runs

    def clear(self) -> None:
        self._seqs.clear()
