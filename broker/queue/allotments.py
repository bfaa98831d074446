"""What each consumer gets out of a batch of messages: slices, so that no message is a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.broker.queue.consumers import Consumer
    from leveret.core.message import Message


class Allotment:
    """What one consumer gets out of a batch.

    Attributes:
        consumer: who.
        picks: the positions in the batch, ascending.
    """

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

    def of_messages(self, batch: list[Message]) -> list[Message]:
        """Return this share's messages (the batch itself when it is all of them)."""
        first = self.picks[0]
        if len(first) == len(batch):
            return batch
        chosen = batch[first.start : first.stop : first.step]
        for pick in self.picks[1:]:
            chosen += batch[pick.start : pick.stop : pick.step]
        return chosen

    def of_seqs(self, seqs: list[int]) -> list[int]:
        """Return this share's seqs, always a list of its own."""
        first = self.picks[0]
        chosen = seqs[first.start : first.stop : first.step]
        for pick in self.picks[1:]:
            chosen += seqs[pick.start : pick.stop : pick.step]
        return chosen

    def count_below(self, position: int) -> int:
        """Return how many of its messages stand before ``position`` in the batch."""
        return sum(len(range(p.start, min(p.stop, position), p.step)) for p in self.picks)


def in_order(shares: list[Allotment]) -> list[Allotment]:
    """Return the shares of a batch such that every channel gets its messages in the queue's order.

    That matters where a channel has several consumers: theirs are cut into stretches.
    """
    channels = {share.consumer.spec.channel for share in shares}
    if len(channels) == len(shares):
        return shares
    places = sorted(
        (position, number)
        for number, share in enumerate(shares)
        for pick in share.picks
        for position in pick
    )
    stretches: list[Allotment] = []
    open_ones: dict[Ref, Allotment] = {}
    for position, number in places:
        consumer = shares[number].consumer
        last = open_ones.get(consumer.spec.channel)
        if last is not None and last.consumer is consumer:
            last.append(position)
        else:
            last = open_ones[consumer.spec.channel] = Allotment(
                consumer, range(position, position + 1)
            )
            stretches.append(last)
    return stretches


def give(shares: dict[Consumer, Allotment], consumer: Consumer, pick: range) -> None:
    """Add to the share of a consumer."""
    if not consumer.no_ack:
        consumer.dealt(len(pick))
    share = shares.get(consumer)
    if share is None:
        shares[consumer] = Allotment(consumer, pick)
    else:
        share.picks.append(pick)
