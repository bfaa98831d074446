"""What waits for the next flush: per queue its new rows and its acks, and the bodies of new messages.

A **row** says that a message stands at a seq of a queue. Rows and acks meet here: an ack whose row
has not been taken by a flush removes the row, and neither is ever written.

A **body** is held from ``write`` until a flush takes the first row that speaks of it, or until its
last reference is gone. References are counted per message: one for each queue that routing chose,
given in advance (an early ack in one queue must not free what another has not even been sent), and
taken back by the ack in that queue or when the queue goes down before it accepted the message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice, repeat
from typing import TypeAlias

from leveret.core.errors import StoreError
from leveret.core.message import Message
from leveret.msg_store.rdq_writer import Location
from leveret.msg_store.record import QueueNos, Unwritten

Row: TypeAlias = tuple[int, int]  # msg_no, expiry_ms (0: never)
TakenRow: TypeAlias = tuple[int, int, int]  # seq, msg_no, expiry_ms
SeqRun: TypeAlias = tuple[int, int, int]  # queue_no, first_seq, count

_BODY = 2


class References:
    """Who still needs which message, and where the messages lie that have been written.

    Args:
        counts: references by message number, of the messages that recovery found.
        locations: where those lie.
    """

    def __init__(self, counts: dict[int, int], locations: dict[int, Location]) -> None:
        self.counts = counts
        self.locations = locations
        self.bodies: dict[int, tuple[Message, QueueNos]] = {}
        self.valid_bytes: defaultdict[int, int] = defaultdict(
            int
        )  # by file; what the collector goes by
        self._awaited: dict[int, set[int]] = {}
        self._count(locations)

    def write(self, first: int, messages: Sequence[Message], queue_nos: QueueNos) -> None:
        """Hold messages numbered from ``first`` for the queues that will get them."""
        assert queue_nos, "a message without a queue would be held for ever"
        msg_nos = range(first, first + len(messages))
        self.counts.update(dict.fromkeys(msg_nos, len(queue_nos)))
        self.bodies.update(zip(msg_nos, zip(messages, repeat(queue_nos)), strict=False))
        for queue_no in queue_nos:
            self._awaited.setdefault(queue_no, set()).update(msg_nos)

    def accept(self, queue_no: int, msg_nos: Sequence[int]) -> None:
        """Note that a queue has got messages.

        Raises:
            StoreError: it got one that was not written for it, or got it twice.
        """
        awaited = self._awaited.get(queue_no, set())
        if not awaited.issuperset(msg_nos):
            raise StoreError(f"queue {queue_no} was given a message that was not written for it")
        awaited.difference_update(msg_nos)
        if not awaited:
            self._awaited.pop(queue_no, None)

    def queue_down(self, queue_no: int) -> None:
        """Take back the references of messages that the queue will never accept."""
        self.release(self._awaited.pop(queue_no, ()))

    def release(self, msg_nos: Iterable[int]) -> None:
        """Take one reference of each back; with the last its body goes, its bytes are garbage."""
        counts, bodies, locations = self.counts, self.bodies, self.locations
        for msg_no in msg_nos:
            count = counts[msg_no]
            if count > 1:
                counts[msg_no] = count - 1
                continue
            del counts[msg_no]
            if bodies.pop(msg_no, None) is None and msg_no in locations:
                file_no, _, length, _ = locations.pop(msg_no)
                self.valid_bytes[file_no] -= length

    def place(self, locations: dict[int, Location]) -> None:
        """Note where messages will lie."""
        self.locations.update(locations)
        self._count(locations)

    def displace(self, items: Iterable[Unwritten]) -> None:
        """Hold messages again that could not be written, if anybody still needs them."""
        for msg_no, item in items:
            if msg_no in self.counts:
                file_no, _, length, _ = self.locations.pop(msg_no)
                self.valid_bytes[file_no] -= length
                self.bodies[msg_no] = item

    def _count(self, locations: dict[int, Location]) -> None:
        valid_bytes = self.valid_bytes
        for file_no, _, length, _ in locations.values():
            valid_bytes[file_no] += length


class PendingQueue:
    """One queue's rows and acks that no flush has taken."""

    __slots__ = ("acks", "rows")

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.acks: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.rows or self.acks)

    def __len__(self) -> int:
        return len(self.rows) + len(self.acks)

    def take_acks(self, count_max: int) -> list[int]:
        """Remove and return the first acks, ascending."""
        taken, self.acks = self.acks[:count_max], self.acks[count_max:]
        taken.sort()
        return taken

    def take_rows(
        self, count_max: int, bytes_max: int, references: References, items: list[Unwritten]
    ) -> tuple[list[TakenRow], int]:
        """Remove the first rows, at least one, and the bodies that come with them.

        Args:
            count_max: how many rows at most.
            bytes_max: no further row is taken when its bodies have so many bytes.
            references: where the bodies are.
            items: gets the bodies.

        Returns:
            The rows, and the bytes of their bodies.
        """
        bodies, taken, size_bytes = references.bodies, [], 0
        for seq, (msg_no, expiry_ms) in islice(self.rows.items(), count_max):
            taken.append((seq, msg_no, expiry_ms))
            item = bodies.pop(msg_no, None)
            if item is not None:
                items.append((msg_no, item))
                size_bytes += len(item[0][_BODY])
                if size_bytes >= bytes_max:
                    break
        if len(taken) == len(self.rows):
            self.rows = {}
        else:
            for seq, _, _ in taken:
                del self.rows[seq]
        return taken, size_bytes

    def put_back(self, rows: list[TakenRow], acks: list[int]) -> list[int]:
        """Take again what a flush could not write, in front of what came since.

        Returns:
            The seqs that were acked meanwhile: they need not be written any more.
        """
        acked = set(self.acks)
        gone = [seq for seq, _, _ in rows if seq in acked]
        acked.difference_update(gone)
        self.acks = acks + [seq for seq in self.acks if seq in acked]
        kept = {seq: (msg_no, expiry) for seq, msg_no, expiry in rows}
        for seq in gone:
            del kept[seq]
        self.rows = kept | self.rows
        return gone


def seq_runs(queue_no: int, seqs: Sequence[int]) -> list[SeqRun]:
    """Return seqs as runs that follow each other; a caller that sorted them gets the fewest."""
    if not seqs:
        return []
    if seqs[-1] - seqs[0] == len(seqs) - 1 and list(seqs) == list(range(seqs[0], seqs[-1] + 1)):
        return [(queue_no, seqs[0], len(seqs))]
    runs, first = [], 0
    for index in range(1, len(seqs) + 1):
        if index == len(seqs) or seqs[index] != seqs[index - 1] + 1:
            runs.append((queue_no, seqs[first], index - first))
            first = index
    return runs
