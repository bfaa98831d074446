"""Allotments: the messages of a batch that each consumer gets, as slices, so that no message is a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from leveret.broker import mail
from leveret.core.limits import DELIVERY_BATCH_BYTES, DELIVERY_BATCH_MESSAGES

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.scheduler import Turns
    from leveret.broker.queue.consumers.consumer import Consumer
    from leveret.core.message import Message

T = TypeVar("T")

_FEW: Final = 10  # consumers


class Allotment:
    """The messages that one consumer gets; ``picks`` are their positions in the batch, ascending."""

    __slots__ = ("consumer", "picks")

    def __init__(self, consumer: Consumer, pick: range) -> None:
        self.consumer = consumer
        self.picks = [pick]

    def append(self, position: int) -> None:
        """Add a position behind the others."""
        last = self.picks[-1]
        if position == last.stop and last.step == 1:
            self.picks[-1] = range(last.start, position + 1)
        else:
            self.picks.append(range(position, position + 1))

    def of(self, batch: list[T]) -> list[T]:
        """Return its messages or its seqs, always as a new list."""
        first = self.picks[0]
        chosen = batch[first.start : first.stop : first.step]
        for pick in self.picks[1:]:
            chosen += batch[pick.start : pick.stop : pick.step]
        return chosen

    def count_below(self, position: int) -> int:
        """Return how many of its messages are before ``position`` in the batch."""
        return sum(len(range(p.start, min(p.stop, position), p.step)) for p in self.picks)


def batch_limit(active: int, head_bytes: int = 0) -> int:
    """Return how many messages one turn deals out to so many consumers.

    To many consumers fewer, where each message may well be a mail of its own; fewer as well where their
    headers, of ``head_bytes`` each, are more than a batch holds.
    """
    limit = DELIVERY_BATCH_MESSAGES if active <= _FEW else DELIVERY_BATCH_MESSAGES // 5 or 1
    if head_bytes * limit > DELIVERY_BATCH_BYTES:
        return DELIVERY_BATCH_BYTES // head_bytes or 1
    return limit


def within_limit(messages: list[Message], size_bytes: int, limit: int) -> int:
    """Return how many messages of a run one delivery batch may hold, at least one."""
    if size_bytes <= DELIVERY_BATCH_BYTES:
        return min(len(messages), limit)
    batch = messages[:limit]
    reached = 0
    for position, (_, head, body) in enumerate(batch):
        reached += len(head) + len(body)
        if reached > DELIVERY_BATCH_BYTES:
            return max(1, position)
    return len(batch)


def allot(allotments: dict[Consumer, Allotment], consumer: Consumer, pick: range) -> None:
    """Give a consumer more positions of the batch."""
    if not consumer.no_ack:
        consumer.dealt(len(pick))
    allotment = allotments.get(consumer)
    if allotment is None:
        allotments[consumer] = Allotment(consumer, pick)
    else:
        allotment.picks.append(pick)


def in_order(allotments: list[Allotment]) -> list[Allotment]:
    """Return the allotments such that every channel gets its messages in the queue's order.

    That matters where a channel has several consumers: theirs are cut into stretches.
    """
    channels = {each.consumer.channel for each in allotments}
    if len(channels) == len(allotments):
        return allotments
    places = sorted(
        (position, number)
        for number, allotment in enumerate(allotments)
        for pick in allotment.picks
        for position in pick
    )
    stretches: list[Allotment] = []
    open_stretches: dict[Ref, Allotment] = {}
    for position, number in places:
        consumer = allotments[number].consumer
        last = open_stretches.get(consumer.channel)
        if last is not None and last.consumer is consumer:
            last.append(position)
        else:
            last = open_stretches[consumer.channel] = Allotment(
                consumer, range(position, position + 1)
            )
            stretches.append(last)
    return stretches


def deliver(
    turns: Turns,
    queue: Ref,
    allotments: list[Allotment],
    batch: list[Message],
    seqs: list[int] | None = None,
    redelivered: int = 0,
) -> list[int]:
    """Send every consumer its messages; return the seqs that no consumer will acknowledge.

    ``seqs`` is None when no consumer acknowledges; the first ``redelivered`` of the messages have been
    delivered before.
    """
    done: list[int] = []
    for allotment in in_order(allotments) if len(allotments) > 1 else allotments:
        consumer = allotment.consumer
        own = allotment.of(seqs) if seqs is not None else None
        if consumer.no_ack:
            done += own or ()
            own = None
        elif own is not None:
            consumer.owe(own)
        again = allotment.count_below(redelivered) if redelivered else 0
        messages = batch if len(allotment.picks[0]) == len(batch) else allotment.of(batch)
        delivery = mail.Deliver(queue, consumer.tag, messages, own, again)
        if not turns.send_now(consumer.channel, delivery):
            delivery.wait_at(consumer.gate)
    return done
