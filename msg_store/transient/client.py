"""Transients: what a queue may ask of the store for paged-out transient messages.

``TransientStore`` fulfils it (its module says how); tests of queues may bring another. Everything is
called on the loop and returns at once; the disk is read and written elsewhere.

A message is named by ``(queue_no, seq)`` and not by its ``msg_no``: contents of transients get none at
routing. ``queue_no`` may be any number that its owner alone uses, so the levels of a priority queue take
one each. Nothing outlives the process, and nothing outlives ``drop_queue``.

*Entries* are the queue's own tuples (``queue_backing/status.py``), of which these positions are read:
``(seq, message, expiry_ms, _, msg_no, size, ...)``. *Rows* are those of ``LmdbIndex``, so that both can
be merged: ``(seq, msg_no, size, expiry_ms, flags)``, with flags 0: not persistent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from leveret.core.message import Message

Entry: TypeAlias = tuple[Any, ...]
Row: TypeAlias = tuple[int, int, int, int, int]  # seq, msg_no, size, expiry_ms, flags
GotRows: TypeAlias = Callable[[list[Row]], None]
GotContents: TypeAlias = Callable[[dict[int, Message]], None]  # by seq

SEQ: Final = 0
MESSAGE: Final = 1
EXPIRY_MS: Final = 2
MSG_NO: Final = 4
SIZE: Final = 5


class Transients(Protocol):
    """Where transient messages go that must leave RAM."""

    def page_out(self, queue_no: int, entries: Sequence[Entry], must: bool = False) -> int:
        """Take contents, at seqs that are new to the queue.

        What is taken stays readable, from RAM until it is written.

        Args:
            queue_no: whose.
            entries: with their messages, in the order in which they are wanted on disk.
            must: take all of them, also beyond the credit, which is then owed.

        Returns:
            How many of the first ones were taken. If fewer than asked for, ``on_credit`` is owed.
        """

    def add(self, queue_no: int, entries: Sequence[Entry]) -> None:
        """Add rows of contents that were taken."""

    def ack(self, queue_no: int, entries: Sequence[Entry]) -> None:
        """Remove contents, and the rows of those that have one; unknown seqs are passed over."""

    def ack_range(self, queue_no: int, low: int, high: int) -> None:
        """Remove all rows with ``low <= seq < high``, with their contents; no others.

        No row is added within the range afterwards.
        """

    def drop_queue(self, queue_no: int) -> None:
        """Forget all of a queue, which may begin anew at any seq; its callbacks are not called."""

    def holds(self, queue_no: int) -> bool:
        """Whether anything was taken for the queue; if not, there is nothing to read."""

    def contents(self, queue_no: int, seqs: Sequence[int]) -> list[Message | None]:
        """Return contents that are in RAM because they have not been written, None for others."""

    def read(self, queue_no: int, seqs: Sequence[int], then: GotContents) -> None:
        """Read contents and call ``then`` in a later turn.

        Missing in the answer is what was acked meanwhile, and what cannot be read any more: of that
        ``on_lost`` is told before. It keeps its row until it is acked.
        """

    def rows(self, queue_no: int, low: int, high: int, limit: int, then: GotRows) -> None:
        """Find the first ``limit`` rows with ``low <= seq < high``; ``then`` gets them, ascending.

        They are right as of the turn in which ``then`` is called.
        """


OnCredit: TypeAlias = Callable[[int], None]
"""The queue with this number may page out again."""

OnLost: TypeAlias = Callable[[int, "list[int] | None"], None]
"""Contents of this queue, by seq, cannot be read any more; None: nothing of it that was on disk can,
and its rows are gone as well."""

OnFailed: TypeAlias = Callable[[Exception], None]
"""A bug; the store does nothing any more and should be closed."""
