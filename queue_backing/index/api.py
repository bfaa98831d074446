"""QueueIndex: a variable queue's interface to the disk, one per queue.

The index keeps *rows*, which are positions (``seq`` to ``msg_no``, size, expiry, persistence), and
stands for the queue towards the stores that keep *contents* by ``msg_no``. A batch is a list of
entries (``core/entry.py``); an implementation keeps no reference to them.

When things happen:

* A call only *issues*. When messages have been synced, the index calls the owner's ``confirmed``. The order
  of issue is the order on disk, so an ack never reaches the disk before the row that it acks.
* Nothing waits for a disk. For rows and contents that are not in RAM the answer is None, and the reading
  starts; when it is done, or when the store takes more again, the queue's ``resume`` is called.
* ``page_out`` takes *credit*, the number of contents the store has room for; when it answers fewer
  than asked for, it owes a ``resume``.

Ownership: the content of a persistent message was written at routing, with one reference for this queue, so
``publish`` adds a row and ``ack`` takes row and reference away. The content of a transient
reaches the transient store with ``page_out`` and its row with ``add``; both are gone after a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from leveret.core.entry import Entry
    from leveret.core.message import Message
    from leveret.msg_store.client import CleanTerms
    from leveret.msg_store.format.seq_range import SeqRange


class QueueIndex(Protocol):
    """The rows of one queue, and the contents behind them."""

    def publish(self, entries: list[Entry]) -> None:
        """Add rows of persistent messages; the owner's ``confirmed`` hears when they are safe."""

    def discard(self, first_msg_no: int, count: int) -> None:
        """Give up this queue's references to contents of persistent messages that got no rows here."""

    def page_out(self, entries: list[Entry], must: bool = False) -> int:
        """Write the contents of transients, which the entries hold, to the transient store.

        Args:
            entries: in the order in which they are wanted on disk.
            must: take all of them, also beyond the credit, which is then owed.

        Returns:
            How many of the first entries were taken.
        """

    def add(self, entries: list[Entry]) -> None:
        """Add rows of transients whose contents have been paged out.

        An implementation may have added them in ``page_out``.
        """

    def ack(self, entries: list[Entry]) -> None:
        """Remove rows, where ``INDEX_ON_DISK`` says that there is one, and the content references.

        Confirms that are still owed for them come all the same.
        """

    def ack_range(self, seqs: SeqRange, messages: int, size_bytes: int) -> None:
        """Remove all rows within a range of seqs with their content references.

        Args:
            seqs: nothing is added within them afterwards.
            messages: how many of the rows are of persistent messages.
            size_bytes: the bodies of these messages.
        """

    def read(self, low: int, high: int, limit: int) -> list[Entry] | None:
        """Return the first ``limit`` rows with ``low <= seq < high``, or None when they must be read.

        They are entries without message, ascending, both flags set. An implementation may read on
        beyond ``high``: the range behind it is asked for next.
        """

    def ahead(self, low: int, high: int, limit: int) -> list[Entry]:
        """Return the first rows of a range, as ``read``, but only rows in RAM.

        ``read`` will go on at ``low`` soon, so that an implementation may begin to read there.
        """

    def fetch_contents(self, entries: list[Entry]) -> list[Message | None]:
        """Return the contents in order, None for each that must be read first.

        A content that is damaged is ``core.message.LOST``, and will be: the queue acks its entry.
        """

    def prefetch(self, entries: list[Entry]) -> None:
        """Read contents that will be fetched soon, unless they are in RAM or being read.

        They stay in RAM until they are fetched, or for as long as there is room.
        """

    def persistent(self) -> tuple[int, int]:
        """Return how many persistent messages have rows, and the size of their bodies."""

    def bounds(self) -> tuple[int, int]:
        """Return ``(low, next_seq)`` at the start: all rows lie within.

        ``next_seq`` is above every seq that was ever given out, also when the last messages were lost.
        """

    def terms(self) -> CleanTerms | None:
        """Return the terms of the last ``terminate``; None after any other end."""

    def terminate(self, next_seq: int, next_deliver: int) -> None:
        """End: keep persistent rows and these terms, give up the contents of transients."""

    def forget(self) -> None:
        """End without terms after the queue's crash; else as ``terminate``."""

    def delete(self) -> None:
        """End and keep nothing: all rows and references go, in the store's own time."""
