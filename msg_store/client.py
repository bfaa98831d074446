"""A queue's client of the store: its requests, its counts, its callbacks.

There is one for each queue, as long as the store is open; the queue's process may end and begin again meanwhile.
The counts are exact in every turn. They count *issued* publishes and acks, durable or not, so that a queue that
begins again finds the messages of the one before, pending or not.

Ranges that were acked are *dying* until the store has found their rows and acked them one by one
(``GroupCommit.ack_range``); meanwhile no read shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from leveret.core.message import Message
from leveret.msg_store.format.errors import RowsLost
from leveret.msg_store.format.rows import IndexRow
from leveret.msg_store.format.seq_range import SeqRange, rows_outside
from leveret.msg_store.reading.contents import ContentReader
from leveret.msg_store.reading.read_cache import ReadCache
from leveret.msg_store.reading.rows import GotRows, RowReader
from leveret.msg_store.transient.store import TransientStore
from leveret.msg_store.wal.group_commit import GroupCommit

# A queue that begins again in the same store continues so much higher: above the seqs of messages
# that the store never got, transients and messages in the mailbox.
RESTART_GAP: Final = 1 << 32


class QueueOwner(Protocol):
    """The queue behind a client. Called on the loop, never within a call to the client."""

    def confirmed(self, runs: list[tuple[int, int]]) -> None:
        """These ``(first_seq, count)`` are on disk, or were acked before they got there; the list is the owner's."""

    def nacked(self, runs: list[tuple[int, int]]) -> None:
        """These could not be written now; they may be confirmed later."""

    def failed(self, error: Exception) -> None:
        """The store has failed, or has lost rows without which this queue cannot go on."""

    def resume(self) -> None:
        """Requested contents have been read, or more transients can be paged out."""


class ClientsStore(Protocol):
    """The parts of ``MsgStore`` that its clients use."""

    core: GroupCommit
    awaited_below: int
    contents: ContentReader
    rows: RowReader
    read_cache: ReadCache
    transients: TransientStore

    def queue_down(self, queue_no: int) -> None: ...
    def delete_queue(self, queue_no: int) -> None: ...
    def drop_transients(self, queue_no: int) -> None: ...
    def report_lost(self, queue_no: int, rows: Sequence[tuple[int, int]]) -> None: ...


class CleanTerms(NamedTuple):
    """The seqs that a queue resumes with after a clean end."""

    next_seq: int
    next_deliver: int


class QueueClient:
    """The store's part of one queue; messages are written for ``routed_as``, its route number."""

    __slots__ = ("_dying", "_first_seq", "_owner", "_reported", "_store",
        "_transients_lost", "_was_attached", "low", "messages", "next_seq", "queue_no", "routed_as", "size_bytes", "terms")  # fmt: skip

    def __init__(
        self,
        store: ClientsStore,
        queue_no: int,
        next_seq: int,
        messages: int = 0,
        size_bytes: int = 0,
        terms: CleanTerms | None = None,
    ) -> None:
        self.queue_no = self.routed_as = queue_no
        self.low = 0  # at or below the lowest seq it has
        self.next_seq = next_seq  # above all seqs that were ever given out
        self.messages = messages  # rows it has, all of persistent messages
        self.size_bytes = size_bytes  # their bodies
        self._store = store
        self.terms = terms  # that its next owner resumes with, until an owner has taken it
        self._owner: QueueOwner | None = None
        self._transients_lost: Callable[[list[int]], None]
        self._first_seq = next_seq
        self._was_attached = False
        self._dying: list[SeqRange] = []
        self._reported: set[int] = set()

    @property
    def transients(self) -> TransientStore:
        return self._store.transients

    @property
    def read_cache(self) -> ReadCache:
        return self._store.read_cache

    # Begin and end.

    def attach(self, owner: QueueOwner, transients_lost: Callable[[list[int]], None]) -> int:
        """Serve an owner from now on, and no other; return the first seq of its own.

        ``transients_lost`` is called with seqs whose paged-out contents cannot be read any more.
        """
        if self._was_attached and self.terms is None:
            self.next_seq += RESTART_GAP
        self._was_attached = True
        self._owner, self._transients_lost = owner, transients_lost
        self._first_seq = self.next_seq
        self._store.drop_transients(self.queue_no)
        return self.next_seq

    def take_terms(self) -> CleanTerms | None:
        """Return the terms that the last owner left, once."""
        terms, self.terms = self.terms, None
        return terms

    def terminate(self, next_seq: int, next_deliver: int) -> None:
        """End cleanly; the next owner continues at these seqs."""
        self.terms = CleanTerms(next_seq, next_deliver)
        self.next_seq = max(self.next_seq, next_seq)
        self.forget()

    def forget(self) -> None:
        self._owner = None
        self._store.drop_transients(self.queue_no)
        self._store.queue_down(self.routed_as)

    def delete(self) -> None:
        """End and keep nothing."""
        self._owner = None
        self._store.queue_down(self.routed_as)
        self._store.delete_queue(self.queue_no)

    # Issue.

    def publish(self, first_seq: int, rows: Sequence[tuple[int, int]], size_bytes: int) -> None:
        """Add rows ``(msg_no, expiry_ms)`` at seqs in a row, none of which has one."""
        self.messages += len(rows)
        self.size_bytes += size_bytes
        end = first_seq + len(rows)
        self.next_seq = max(self.next_seq, end)
        self.low = min(self.low, first_seq)
        store = self._store
        is_awaited = rows[0][0] < store.awaited_below
        store.core.publish(self.queue_no, first_seq, rows, is_awaited, self.routed_as)

    def ack(self, acked: Sequence[tuple[int, int]], size_bytes: int) -> None:
        """Remove rows ``(seq, msg_no)``."""
        self.messages -= len(acked)
        self.size_bytes -= size_bytes
        self._store.core.ack(self.queue_no, acked)

    def ack_range(self, seqs: SeqRange, messages: int, size_bytes: int) -> None:
        """Remove all rows within a range of seqs, which are so many."""
        self.messages -= messages
        self.size_bytes -= size_bytes
        if messages:
            self._dying.append(seqs)
            self._store.core.ack_range(self.queue_no, seqs, partial(self._dying.remove, seqs))

    def discard(self, first_msg_no: int, count: int) -> None:
        """End the holds of messages that were written for the queue and not published."""
        holds, msg_nos = self._store.core.holds, range(first_msg_no, first_msg_no + count)
        holds.accept(self.routed_as, msg_nos)
        holds.release(msg_nos)

    # Read.

    def rows(self, low: int, limit: int, then: GotRows) -> None:
        """Find the first rows from ``low`` on; see ``RowReader.read``."""

        def came(rows: list[IndexRow], upto: int) -> None:
            then(rows_outside(rows, self._dying) if self._dying else rows, upto)

        self._store.rows.read(self.queue_no, low, limit, came)

    def cached(self, msg_nos: Sequence[int]) -> list[Message | None]:
        return self._store.contents.cached(msg_nos)

    def prefetch(self, wanted: Iterable[tuple[int, int]]) -> None:
        """Have contents ``(msg_no, body size)`` read; ``resume`` follows if any must be."""
        self._store.contents.prefetch(wanted, self.resume)

    def report_lost(self, rows: Sequence[tuple[int, int]]) -> None:
        """Note that the queue has dropped messages ``(seq, msg_no)`` that cannot be read."""
        new = [row for row in rows if row[0] not in self._reported]
        if new:
            self._reported.update([seq for seq, _ in new])
            self._store.report_lost(self.queue_no, new)

    # For the store.

    def resume(self) -> None:
        if self._owner is not None:
            self._owner.resume()

    def on_safe(self, runs: list[tuple[int, int]]) -> None:
        """Report seqs of this owner, and none of an earlier owner."""
        if len(runs) > 1 or runs[0][0] < self._first_seq:
            runs = self._own(runs)
        if runs and self._owner is not None:
            self._owner.confirmed(runs)

    def _own(self, runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        first = self._first_seq
        if min(runs)[0] >= first:
            return runs
        ends = [(max(seq, first), seq + count) for seq, count in runs]
        return [(seq, end - seq) for seq, end in ends if seq < end]

    def on_nacked(self, runs: list[tuple[int, int]]) -> None:
        runs = self._own(runs)
        if runs and self._owner is not None:
            self._owner.nacked(runs)

    def on_failed(self, error: Exception) -> None:
        """Report a failure, once."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.failed(error)

    def on_transients_lost(self, seqs: list[int] | None) -> None:
        """Tell the owner; without rows (``seqs`` is None) its counts are wrong, and it fails."""
        if self._owner is None:
            return
        if seqs is None:
            self._owner.failed(RowsLost(self.queue_no))
        else:
            self._transients_lost(seqs)
