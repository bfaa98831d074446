"""BackingProxy: the backing queue as the amqqueue calls it; each operation is a turn of the backing actor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from leveret.actors.runtime.inline import InlineTurn
from leveret.core.entry import SEQ
from leveret.queue_backing.actor import BackingActor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.turns import Turns
    from leveret.core.entry import Entry
    from leveret.core.message import Message
    from leveret.queue_backing.api import (
        Accumulator,
        AckStep,
        Dropped,
        Fetched,
        FoldStep,
        Predicate,
        QueueMode,
    )


class Counts(Protocol):
    """How often messages came back; the amqqueue's (``broker/queue/limits/delivery_counts.py``)."""

    def __len__(self) -> int: ...

    def came_back(self, seqs: list[int]) -> list[int]:
        """Count messages that are requeued; return those that shall be, without those given up."""

    def forget(self, seqs: Sequence[int]) -> None:
        """Forget messages that are gone."""

    def keep_only(self, unacked: Iterable[set[int]]) -> None:
        """Forget all others: the queue is purged."""

    def shown(self, fetched: Fetched) -> list[Message]:
        """Return messages as consumers get them."""

    def got(self, message: Message, seq: int, is_settled: bool) -> Message:
        """Return a message as basic.get gets it."""


class BackingProxy(InlineTurn[BackingActor]):
    """The turns of a backing actor, one for each operation; see ``QueueOperations`` for the methods.

    Attributes:
        counts: is told what comes back and what goes, whoever calls; None: nobody counts.
    """

    __slots__ = ("counts",)

    def __init__(self, turns: Turns, actor: Ref) -> None:
        super().__init__(turns, actor)
        self.counts: Counts | None = None

    def attach(self, amqqueue: Ref) -> int:
        """Have ``Confirmed``, ``Refused`` and ``FetchReady`` sent to an amqqueue; return ``len()``."""
        with self as actor:
            return actor.attach(amqqueue)

    def publish(
        self,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None = None,
        size_bytes: int | None = None,
        delivered: bool = False,
        first_msg_no: int = 0,
    ) -> tuple[int, bool]:
        with self as actor:
            return actor.done(
                actor.queue.publish(
                    messages, persistent, expiries, size_bytes, delivered, first_msg_no
                )
            )

    def publish_delivered(
        self,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None = None,
        size_bytes: int | None = None,
        first_msg_no: int = 0,
    ) -> tuple[int, bool]:
        with self as actor:
            return actor.done(
                actor.queue.publish_delivered(
                    messages, persistent, expiries, size_bytes, first_msg_no
                )
            )

    def discard(self, messages: list[Message], persistent: bool, first_msg_no: int = 0) -> None:
        with self as actor:
            actor.queue.discard(messages, persistent, first_msg_no)
            actor.done(None)

    def fetch(self, limit: int, bytes_max: int, ack_required: bool) -> Fetched:
        with self as actor:
            return actor.done(actor.queue.fetch(limit, bytes_max, ack_required))

    def drop(self, limit: int, ack_required: bool) -> list[int]:
        with self as actor:
            dropped = actor.done(actor.queue.drop(limit, ack_required))
        if self.counts is not None and not ack_required:
            self.counts.forget(dropped)
        return dropped

    def ack(self, seqs: list[int]) -> int:
        if self.counts is not None:
            self.counts.forget(seqs)
        with self as actor:
            return actor.done(actor.queue.ack(seqs))

    def requeue(self, seqs: list[int]) -> int:
        if self.counts is not None:
            seqs = self.counts.came_back(seqs)
        with self as actor:
            return actor.done(actor.queue.requeue(seqs))

    def dropwhile(self, predicate: Predicate, limit: int) -> Dropped:
        if self.counts:
            return self._dropwhile(self.counts, predicate, limit)
        with self as actor:
            return actor.done(actor.queue.dropwhile(predicate, limit))

    def _dropwhile(self, counts: Counts, predicate: Predicate, limit: int) -> Dropped:
        gone: list[int] = []

        def noted(entry: Entry) -> bool:
            holds = predicate(entry)
            if holds:
                gone.append(entry[SEQ])
            return holds

        with self as actor:
            dropped = actor.done(actor.queue.dropwhile(noted, limit))
        counts.forget(gone[: dropped.count])
        return dropped

    def fetchwhile(
        self, predicate: Predicate, limit: int, bytes_max: int
    ) -> tuple[Fetched, Entry | None]:
        with self as actor:
            return actor.done(actor.queue.fetchwhile(predicate, limit, bytes_max))

    def ackfold(
        self, step: AckStep[Accumulator], start: Accumulator, seqs: list[int]
    ) -> Accumulator:
        with self as actor:
            return actor.done(actor.queue.ackfold(step, start, seqs))

    def expiries(self, seqs: list[int]) -> dict[int, int]:
        with self as actor:
            return actor.queue.expiries(seqs)

    def fold(
        self, step: FoldStep[Accumulator], start: Accumulator, from_seq: int = 0
    ) -> Accumulator:
        with self as actor:
            return actor.done(actor.queue.fold(step, start, from_seq))

    def purge(self) -> int:
        with self as actor:
            return actor.done(actor.queue.purge())

    def purge_acks(self) -> int:
        with self as actor:
            return actor.done(actor.queue.purge_acks())

    def len(self) -> int:
        with self as actor:
            return actor.queue.len()

    def len_bytes(self) -> int:
        with self as actor:
            return actor.queue.len_bytes()

    def is_empty(self) -> bool:
        with self as actor:
            return actor.queue.is_empty()

    def depth(self) -> int:
        with self as actor:
            return actor.queue.depth()

    def set_queue_mode(self, mode: QueueMode) -> None:
        with self as actor:
            actor.queue.set_queue_mode(mode)
            actor.done(None)

    def info(self) -> dict[str, Any]:
        with self as actor:
            return actor.queue.info()

    def delete_and_terminate(self) -> None:
        with self as actor:
            actor.queue.delete_and_terminate()
            actor.done(None)
