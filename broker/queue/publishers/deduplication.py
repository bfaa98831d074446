"""Deduplication: a queue takes each message of a producer in once (docs/producers.md).

A run is cut into stretches with one verdict of the filter (``producers``): new messages go to the queue, duplicates are
dropped and confirmed, messages of an older epoch fail their channel. Where the queue may refuse messages, each is
looked at by itself, since the verdict on the next one depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from leveret.broker import mail
from leveret.broker.queue.publishers.producers import (
    DEFAULT_LIMITS,
    DUPLICATE,
    FENCED,
    NEW,
    Entry,
    ProducerFilter,
    Waiting,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.mail import ProducerSeq
    from leveret.broker.queue.publishers.publishers import Publishers
    from leveret.broker.queue.turn_budget import TurnBudget
    from leveret.broker.registry.registry import ProducersOfNode, QueueEntry
    from leveret.queue_backing.proxy import BackingProxy

_PART_COST: Final = 20  # of a stretch, in messages
_PRODUCER_COST: Final = 3  # of a producer that the queue has not known, in messages


class DeduplicatedQueue(Protocol):
    """The queue, as it is used here."""

    def open_publishers(self) -> Publishers: ...

    def take_in(self, publish: mail.Publish) -> tuple[int, int] | None:
        """Take a run in.

        Returns:
            The seq that its first message has, or would have, and the position of the first with a row; None: it
            was refused, in part or whole.
        """


class Deduplication:
    """Takes each message of a producer into one queue once; the filter is made for the first of them.

    Args:
        runtime: of the queue's actor.
        ref: the actor, which is the sender of the answers.
        entry: of the registry.
        backing: the queue's.
        budget: of the actor's turns.
    """

    __slots__ = (
        "_backing",
        "_budget",
        "_entry",
        "_filter",
        "_of_node",
        "_ref",
        "_runtime",
    )

    def __init__(
        self,
        runtime: Runtime,
        ref: Ref,
        entry: QueueEntry,
        backing: BackingProxy,
        budget: TurnBudget,
    ) -> None:
        self._runtime = runtime
        self._ref = ref
        self._entry = entry
        self._backing = backing
        self._budget = budget
        self._filter: ProducerFilter | None = None
        self._of_node: ProducersOfNode | None = None
        if stored := self.count():
            self._register(stored)

    def __str__(self) -> str:
        return str(self._entry)

    @property
    def vhost_name(self) -> str:
        return self._entry.vhost_name

    def _register(self, count: int) -> None:
        """Count the queue among those of the node that remember producers, until its actor ends."""
        vhost = self._entry.vhost
        if (
            self._of_node is None
            and vhost is not None
            and (of_node := vhost.node_producers) is not None
        ):
            self._of_node = of_node
            of_node.register(self, count)
            self._runtime.watch(self._ref, lambda _: of_node.ended(self))

    def _opened(self) -> ProducerFilter:
        if self._filter is None:
            entry, wall_s = self._entry, self._runtime.clock.wall_s
            self._filter = ProducerFilter(
                entry.stored_producers(),
                lambda: int(wall_s() * 1000),  # must not refer to this object
                DEFAULT_LIMITS if entry.vhost is None else entry.vhost.producer_limits,
            )
            self._register(0)  # those that the store keeps are counted
        return self._filter

    def count(self) -> int:
        """Return how many producers the queue knows."""
        if self._filter is not None:
            return self._filter.count
        stored = self._entry.stored_producers()
        return 0 if stored is None else len(stored)

    def listed(self) -> list[tuple[bytes, Entry]]:
        """Return the producers, the least recently used first."""
        return self._opened().entries()

    def forget(self, producer: bytes) -> bool:
        """Forget a producer; return whether it was known."""
        return self._opened().forget(producer)

    def forget_oldest(self, count: int) -> None:
        """Forget the least recently used producers, in a turn of the queue's."""
        if self._ref.is_alive:
            self._runtime.run_as(self._ref, self._forget_oldest, count)

    def _forget_oldest(self, count: int) -> None:
        self._opened().forget_oldest(count)

    def publish(self, queue: DeduplicatedQueue, publish: mail.Publish, takes_one: bool) -> None:
        """Have the queue take in the messages that it has not taken in before; ``takes_one``: it may refuse some."""
        known = self._opened()
        parts, count = mail.PublishParts(publish), len(publish.messages)
        producer_seqs, publish.producer_seqs = publish.producer_seqs or (), None
        while parts.at < count:
            start = parts.at
            verdict, length = known.next_run(producer_seqs, start, 1 if takes_one else count)
            part, own = parts.take(length), producer_seqs[start : start + length]
            is_persistent = part.persistent and self._entry.durable
            if verdict == NEW:
                if (place := queue.take_in(part)) is not None:
                    before = known.count
                    known.taken_in(own, *place, is_persistent)
                    added = max(0, known.count - before)
                    self._budget.charge(added * _PRODUCER_COST)
                    if self._of_node is not None and added:
                        self._of_node.added(added)
                continue
            self._budget.charge(length + _PART_COST)
            self._backing.discard(part.messages, is_persistent, part.first_msg_no)
            if verdict == DUPLICATE:
                known.use(own)
                self._note_duplicates(part, known)
                queue.open_publishers().published(part, length, 0)
                continue
            if verdict == FENCED:
                self._fence(part, own, known)
            queue.open_publishers().refuse(part)

    def _note_duplicates(self, publish: mail.Publish, known: ProducerFilter) -> None:
        """Have duplicates whose originals may not be on disk yet wait for their confirms."""
        if not known.is_safe:
            for channel, count, _, seqno in publish.publishers:
                if seqno:
                    known.wait(channel, seqno, count)
            publish.publishers = [(*each[:3], 0) for each in publish.publishers]

    def _fence(
        self,
        publish: mail.Publish,
        producer_seqs: Sequence[ProducerSeq | None],
        known: ProducerFilter,
    ) -> None:
        sent = producer_seqs[0]
        assert sent is not None, "a message without a producer is not fenced"
        producer, epoch, _, _ = sent
        text = (
            f"producer '{producer.decode('utf-8', 'backslashreplace')}' is fenced in {self._entry}:"
            f" x-producer-epoch {epoch} is lower than {known.epoch_of(producer)}"
        )
        for channel, _, _, _ in publish.publishers:
            self._runtime.send(channel, mail.ProducerFenced(self._ref, text), self._ref)

    def became_safe(self, runs: Sequence[tuple[int, int]]) -> None:
        """Confirm duplicates whose originals are on disk now."""
        if self._filter is not None:
            self._answer(self._filter.became_safe(runs), ok=True)

    def refused(self, runs: Sequence[tuple[int, int]]) -> None:
        """Refuse duplicates whose originals cannot be written now."""
        if self._filter is not None:
            self._answer(self._filter.refused(runs), ok=False)

    def _answer(self, waiting: list[Waiting], ok: bool) -> None:
        for _, channel, seqno, count in waiting:
            self._runtime.send_now(channel, mail.Confirm(self._ref, [(seqno, count)], ok))
