"""BackingProxy: the backing queue as the amqqueue calls it; each operation is a turn of the backing actor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from leveret.actors.runtime.inline import InlineTurn
from leveret.actors.runtime.signals import NOPROC, CallExit
from leveret.core.entry import SEQ

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.scheduler import Turns
    from leveret.core.entry import Entry
    from leveret.core.message import Message
    from leveret.queue_backing.actor import BackingActor
    from leveret.queue_backing.api import (
        Accumulator,
        AckStep,
        BackingQueue,
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


class BackingProxy(InlineTurn):
    """The turns of a backing actor, one for each operation; see ``BackingQueue`` for the methods.

    Attributes:
        counts: is told what comes back and what goes, whoever calls; None: nobody counts.
    """

    __slots__ = ("_actor", "_queue", "counts")

    def __init__(self, turns: Turns, backing: Ref) -> None:
        super().__init__(turns, backing)
        actor: BackingActor | None = self._cell.actor
        if actor is None:
            raise CallExit(backing, NOPROC)
        self._actor: BackingActor = actor
        self._queue: BackingQueue = actor.queue
        self.counts: Counts | None = None

    def attach(self, amqqueue: Ref) -> int:
        """Have ``Confirmed``, ``Refused`` and ``FetchReady`` sent to an amqqueue; return ``len()``."""
        with self:
            return self._actor.attach(amqqueue)

    def publish(
        self,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None = None,
        size_bytes: int | None = None,
        delivered: bool = False,
        first_msg_no: int = 0,
    ) -> tuple[int, bool]:
        with self:
            answer = self._queue.publish(
                messages, persistent, expiries, size_bytes, delivered, first_msg_no
            )
            self._actor.done()
            return answer

    def publish_delivered(
        self,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None = None,
        size_bytes: int | None = None,
        first_msg_no: int = 0,
    ) -> tuple[int, bool]:
        with self:
            answer = self._queue.publish_delivered(
                messages, persistent, expiries, size_bytes, first_msg_no
            )
            self._actor.done()
            return answer

    def discard(self, messages: list[Message], persistent: bool, first_msg_no: int = 0) -> None:
        with self:
            self._queue.discard(messages, persistent, first_msg_no)
            self._actor.done()

    def fetch(self, limit: int, bytes_max: int, ack_required: bool) -> Fetched:
        with self:
            answer = self._queue.fetch(limit, bytes_max, ack_required)
            self._actor.done()
            return answer

    def drop(self, limit: int, ack_required: bool) -> list[int]:
        with self:
            dropped = self._queue.drop(limit, ack_required)
            self._actor.done()
        if self.counts is not None and not ack_required:
            self.counts.forget(dropped)
        return dropped

    def ack(self, seqs: list[int]) -> int:
        if self.counts is not None:
            self.counts.forget(seqs)
        with self:
            answer = self._queue.ack(seqs)
            self._actor.done()
            return answer

    def requeue(self, seqs: list[int]) -> int:
        if self.counts is not None:
            seqs = self.counts.came_back(seqs)
        with self:
            answer = self._queue.requeue(seqs)
            self._actor.done()
            return answer

    def dropwhile(self, predicate: Predicate, limit: int) -> Dropped:
        if self.counts:
            return self._dropwhile(self.counts, predicate, limit)
        with self:
            answer = self._queue.dropwhile(predicate, limit)
            self._actor.done()
            return answer

    def _dropwhile(self, counts: Counts, predicate: Predicate, limit: int) -> Dropped:
        gone: list[int] = []

        def noted(entry: Entry) -> bool:
            holds = predicate(entry)
            if holds:
                gone.append(entry[SEQ])
            return holds

        with self:
            dropped = self._queue.dropwhile(noted, limit)
            self._actor.done()
        counts.forget(gone[: dropped.count])
        return dropped

    def fetchwhile(
        self, predicate: Predicate, limit: int, bytes_max: int
    ) -> tuple[Fetched, Entry | None]:
        with self:
            answer = self._queue.fetchwhile(predicate, limit, bytes_max)
            self._actor.done()
            return answer

    def ackfold(
        self, step: AckStep[Accumulator], start: Accumulator, seqs: list[int]
    ) -> Accumulator:
        with self:
            answer = self._queue.ackfold(step, start, seqs)
            self._actor.done()
            return answer

    def expiries(self, seqs: list[int]) -> dict[int, int]:
        with self:
            return self._queue.expiries(seqs)

    def fold(
        self, step: FoldStep[Accumulator], start: Accumulator, from_seq: int = 0
    ) -> Accumulator:
        with self:
            answer = self._queue.fold(step, start, from_seq)
            self._actor.done()
            return answer

    def purge(self) -> int:
        with self:
            answer = self._queue.purge()
            self._actor.done()
            return answer

    def purge_acks(self) -> int:
        with self:
            answer = self._queue.purge_acks()
            self._actor.done()
            return answer

    def len(self) -> int:
        with self:
            return self._queue.len()

    def len_bytes(self) -> int:
        with self:
            return self._queue.len_bytes()

    def is_empty(self) -> bool:
        with self:
            return self._queue.is_empty()

    def depth(self) -> int:
        with self:
            return self._queue.depth()

    def set_queue_mode(self, mode: QueueMode) -> None:
        with self:
            self._queue.set_queue_mode(mode)
            self._actor.done()

    def info(self) -> dict[str, Any]:
        with self:
            return self._queue.info()

    def delete_and_terminate(self) -> None:
        with self:
            self._queue.delete_and_terminate()
            self._actor.done()
