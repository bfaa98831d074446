"""A transaction: what a channel has published and settled since tx.select, its last commit or rollback.

* **Publishes** are checked and routed when they come, so their errors come at once, and kept. ``commit`` sends them as
  if they came now, with confirm numbers that no client sees, and answers when all of them are safe; a refused one fails
  the channel. Mandatory messages are returned, and replies (direct reply-to) delivered, at the commit too.
* **Settlements** are only written down: a delivery that the transaction settles stays in ``Unacked`` until the commit,
  so a rollback forgets the list and needs nothing else, and a channel that ends requeues them with the others. A tag is
  known if it is unacked and not in the list. A settlement with multiple is one entry however many deliveries it means;
  ``commit`` does what was written down in order, behind the publishes.

A commit is cut into turns as the same publishes and settlements are without a transaction, and waits for credit and
back pressure, since the queues count on that. Once begun it is carried out even if the connection ends; with the
process it ends anywhere. Whoever sends a method while the commit waits for the queues gets a 504, as in RabbitMQ.

The messages of all open transactions of a node are limited (``uncommitted.py``).
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.kernel import body_bytes, head_bytes
from leveret.amqp.methods import TxCommitOk
from leveret.amqp.spec import BASIC_ACK, TX_COMMIT
from leveret.broker.channel.consuming.unacked import SETTLED_MAX, Settled, unknown_tag
from leveret.broker.channel.session import ChannelActor
from leveret.broker.mail import Ack, Reject, Requeue
from leveret.broker.script import Steps, Until
from leveret.core.limits import PUBLISH_TURN_WORK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leveret.amqp.fields import Method
    from leveret.amqp.methods import BasicAck, BasicNack
    from leveret.broker.channel.confirms import Answer
    from leveret.broker.channel.consuming.deliveries import Deliveries
    from leveret.broker.channel.publishing.batch import Batch
    from leveret.broker.channel.publishing.publish import Publisher
    from leveret.core.clock import Clock

_MESSAGE_BYTES: Final = 200  # of a message, besides head and body
_BATCH_BYTES: Final = 1_000
_JOINED_MESSAGES: Final = 1_000
_JOINED_COPIES: Final = 10_000  # messages times queues
_JOINED_BYTES: Final = 256 * 1024

_FREED_MESSAGES: Final = 20_000  # per turn, when a transaction is dropped
_FREED_BYTES: Final = 32 * 1024 * 1024

_SETTLEMENT_WORK: Final = 10  # of one that was noted by itself; a delivery is 1
_KINDS: Final = (Ack, Requeue, Reject)
_ACK, _REQUEUE, _REJECT = range(3)


class Channel(ChannelActor, Protocol):
    """The channel's actor, as its transaction uses it."""

    @property
    def deliveries(self) -> Deliveries: ...

    @property
    def publisher(self) -> Publisher: ...

    def refuse_held(self) -> None: ...

    def when_commit_resumes(self, callback: Callable[[Any], None]) -> None: ...


class Transaction:
    """The open transaction of a channel; there is always one after tx.select.

    Attributes:
        size_bytes: of the messages that it keeps.
        message_count: that are published in it.
        is_applying: a commit is being carried out.
        postponed: mail to the channel that must wait for the end of that.
        is_waiting: a commit waits until the queues have answered.
    """

    __slots__ = (
        "_batches",
        "_channel",
        "_is_refused",
        "_open",
        "_settled",
        "_settled_to",
        "_singly",
        "is_applying",
        "is_waiting",
        "message_count",
        "postponed",
        "size_bytes",
    )

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._open = channel.session.open_transactions
        self._batches: deque[Batch] = deque()
        # Kind and tags, or no tags and the last of them all; in order.
        self._settled: list[tuple[int, list[int] | None, int]] = []
        self._singly: set[int] = set()
        self._settled_to = 0  # every tag up to this one is settled
        self._is_refused = False
        self.size_bytes = 0
        self.message_count = 0
        self.is_applying = False
        self.postponed: list[object] = []
        self.is_waiting = False

    def __del__(self) -> None:
        """Also a channel that is killed must not leave its share behind."""
        self._open.let_go(self)

    # -- publishes -----------------------------------------------------------------------------

    def publish(self, batch: Batch) -> None:
        """Keep a batch, which is the transaction's from now on; PreconditionFailed: it is too much."""
        messages = batch.messages
        batch.kept_bytes = _BATCH_BYTES + len(messages) * _MESSAGE_BYTES
        batch.kept_bytes += head_bytes(messages) + body_bytes(messages)
        self._open.keep(self, batch.kept_bytes)
        self.message_count += len(messages)
        if not self._batches or not _joined(self._batches[-1], batch):
            self._batches.append(batch)

    # -- settlements ---------------------------------------------------------------------------

    def acked(self, tags: list[int]) -> None:
        """Note single acks, in order; PreconditionFailed at the first unknown tag."""
        for tag in tags:
            self._settle(_ACK, tag, BASIC_ACK)

    def ack(self, method: BasicAck) -> None:
        self._settle_all(_ACK, method.delivery_tag, method.multiple)

    def nack(self, method: BasicNack) -> None:
        kind = _REQUEUE if method.requeue else _REJECT
        self._settle_all(kind, method.delivery_tag, method.multiple)

    def reject(self, tag: int, requeue: bool) -> None:
        self._settle(_REQUEUE if requeue else _REJECT, tag)

    def _settle_all(self, kind: int, tag: int, multiple: bool) -> None:
        if not multiple:
            self._settle(kind, tag)
            return
        deliveries = self._channel.deliveries
        if not deliveries.client_reads:
            return
        if tag and self._is_settled(tag):
            raise unknown_tag(tag)
        last = deliveries.unacked.last_of(tag)
        if self._settled and self._settled[-1][:2] == (kind, None):
            self._settled.pop()
        self._settled.append((kind, None, last))
        self._settled_to = max(self._settled_to, last)

    def _settle(self, kind: int, tag: int, method: int | None = None) -> None:
        deliveries = self._channel.deliveries
        if not deliveries.client_reads:
            return
        if self._is_settled(tag) or tag not in deliveries.unacked:
            raise unknown_tag(tag, method)
        self._singly.add(tag)
        if self._settled:
            last_kind, tags, _ = self._settled[-1]
            if last_kind == kind and tags is not None:
                tags.append(tag)
                return
        self._settled.append((kind, [tag], 0))

    def _is_settled(self, tag: int) -> bool:
        return tag <= self._settled_to or tag in self._singly

    def recover(self, answer: Method | None) -> Steps | None:
        """Requeue what the transaction does not settle."""
        deliveries = self._channel.deliveries
        if not self._settled:
            return deliveries.recover(answer)
        return deliveries.requeue(self._unsettled(deliveries), answer)

    def _unsettled(self, deliveries: Deliveries) -> Iterator[Settled]:
        tags = deliveries.unacked.tags()
        for at in range(0, len(tags), SETTLED_MAX):
            some = [tag for tag in tags[at : at + SETTLED_MAX] if not self._is_settled(tag)]
            yield deliveries.unacked.take(some)[0]

    @property
    def ack_count(self) -> int:
        """How many acks wait for the commit; they are counted by a walk over the unacked deliveries."""
        counted = sum(len(tags) for kind, tags, _ in self._settled if tags and kind == _ACK)
        with_multiple = [(last, kind) for kind, tags, last in self._settled if tags is None]
        at = 0
        for tag in self._channel.deliveries.unacked.tags():
            if tag > self._settled_to:
                break
            while with_multiple[at][0] < tag:
                at += 1
            counted += with_multiple[at][1] == _ACK and tag not in self._singly
        return counted

    # -- commit and rollback -------------------------------------------------------------------

    def commit(self) -> Steps:
        """Carry out the publishes and acks of the transaction; send commit-ok when the queues have them.

        Raises:
            PreconditionFailed: a queue has refused some message.
            ChannelError: the client did not wait for the answer.
        """
        channel, publisher = self._channel, self._channel.publisher
        self._is_refused = False
        publisher.collect(False)
        self.is_applying = channel.trap_exits = True
        try:
            yield from self._publish_all(publisher)
            yield from self._settle_everything()
        finally:
            self.is_applying = channel.trap_exits = False
            publisher.collect(True)
            for mail in self.postponed:
                channel.runtime.again(channel.ref, mail)
            self.postponed.clear()
        publisher.send_confirms()
        if publisher.awaits_confirms:
            self.is_waiting = True
            try:
                channel.refuse_held()
                while publisher.awaits_confirms:
                    yield Until(channel.when_commit_resumes)
            finally:
                self.is_waiting = False
        if self._is_refused:
            raise PreconditionFailed("partial tx completion", TX_COMMIT)
        return TxCommitOk()

    def _publish_all(self, publisher: Publisher) -> Steps:
        batches = self._batches
        while batches:
            if publisher.must_wait:
                publisher.send_confirms()
                yield Until(self._channel.when_commit_resumes)
                publisher.work_left = PUBLISH_TURN_WORK
            elif publisher.fan_out is not None or publisher.work_left <= 0:
                publisher.send_confirms()
                yield Until(self._channel.next_turn)
                publisher.work_left = PUBLISH_TURN_WORK
                publisher.continue_fan_out()
            else:
                publisher.commit(batches.popleft())
        while publisher.fan_out is not None:
            yield Until(self._channel.next_turn)
            publisher.continue_fan_out()
        self._forget_messages()

    def _settle_everything(self) -> Steps:
        channel, work_left = self._channel, SETTLED_MAX
        for kind, tags, last in self._forget_settlements():
            deliveries = channel.deliveries
            work_left += len(deliveries.unacked)
            if tags is None:
                steps = deliveries.settle_to(_KINDS[kind], last)
            else:
                steps = deliveries.settle_tags(_KINDS[kind], tags)
            if steps is not None:
                yield from steps
                channel.trap_exits = True
            work_left -= len(deliveries.unacked) + _SETTLEMENT_WORK
            if work_left <= 0:
                yield Until(channel.next_turn)
                work_left = SETTLED_MAX

    def answered(self, answers: list[Answer]) -> None:
        """The queues have answered for publishes of a commit."""
        self._is_refused |= not all(is_ack for is_ack, _, _ in answers)
        if self.is_waiting and not self._channel.publisher.awaits_confirms:
            self._channel.resume_commit()

    def rollback(self) -> None:
        """Drop the publishes; deliveries that were settled are unsettled again."""
        self._forget_settlements()
        batches, self._batches = self._batches, deque()
        _free(self._channel.runtime.clock, batches)
        self._forget_messages()

    def _forget_messages(self) -> None:
        self.message_count = 0
        self._open.let_go(self)

    def _forget_settlements(self) -> list[tuple[int, list[int] | None, int]]:
        settled, self._settled = self._settled, []
        self._singly = set()
        self._settled_to = 0
        return settled


def _joined(kept: Batch, later: Batch) -> bool:
    """Add a batch to the one kept last; return whether it goes the same way and both are not too much."""
    count = len(kept.messages) + len(later.messages)
    if (
        not kept.goes_with(later)
        or count > _JOINED_MESSAGES
        or count * len(kept.queues) > _JOINED_COPIES
        or kept.kept_bytes + later.kept_bytes > _JOINED_BYTES
    ):
        return False
    kept.extend(later)
    kept.kept_bytes += later.kept_bytes - _BATCH_BYTES
    return True


def _free(clock: Clock, batches: deque[Batch]) -> None:
    """Free messages, a slice a turn: a million take longer than others should wait."""
    messages, size_bytes = _FREED_MESSAGES, _FREED_BYTES
    while batches and messages > 0 and size_bytes > 0:
        batch = batches.popleft()
        messages -= len(batch.messages)
        size_bytes -= batch.kept_bytes
    if batches:
        clock.call_later(0.0, partial(_free, clock, batches))
