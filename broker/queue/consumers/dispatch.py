"""Dispatch: how messages of a queue get to its consumers.

A published message that finds the queue empty goes *straight* to consumers that wait: the backing queue keeps those
that must be acknowledged as unacked, and only discards the others. All others are fetched from the head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker import mail
from leveret.broker.queue.consumers.allotments import deliver
from leveret.broker.queue.limits.expiry import alive_at
from leveret.core.limits import DELIVERY_BATCH_BYTES, DELIVERY_BATCH_MESSAGES

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.queue.consumers.consumer import Consumer
    from leveret.broker.queue.consumers.consumers import Consumers
    from leveret.broker.queue.limits.expiry import MessageExpiry
    from leveret.broker.queue.publishers.publishers import Publishers
    from leveret.broker.registry.registry import QueueEntry
    from leveret.queue_backing.api import Fetched
    from leveret.queue_backing.proxy import BackingProxy


class Dispatch:
    """The dispatch of one queue, made when it first has a consumer."""

    __slots__ = ("_backing", "_clock", "_durable", "_entry", "_expiry", "_queue", "_turns")

    def __init__(
        self,
        runtime: Runtime,
        queue: Ref,
        entry: QueueEntry,
        backing: BackingProxy,
        expiry: MessageExpiry,
    ) -> None:
        self._clock = runtime.clock
        self._turns = runtime.turns
        self._queue = queue
        self._durable = entry.durable
        self._entry = entry
        self._backing = backing
        self._expiry = expiry

    def straight_whole(
        self, publish: mail.Publish, publishers: Publishers, consumer: Consumer
    ) -> int | None:
        """Deliver a run to the one consumer that waits, if it can take all of it and nothing expires.

        Returns:
            The seq of the first, -1 when it needs no ack; None: it was not delivered. Most messages go
            this way, so it does no more than it must.
        """
        messages, by_channel = publish.messages, publish.publishers
        count = len(messages)
        size_bytes = (
            by_channel[0][2] if len(by_channel) == 1 else sum([each[2] for each in by_channel])
        )
        if (
            self._expiry.ttl_ms is not None
            or publish.expiration_ms is not None
            or size_bytes > DELIVERY_BATCH_BYTES
            or not consumer.room() >= count <= DELIVERY_BATCH_MESSAGES
        ):
            return None
        persistent = publish.persistent and self._durable
        seqs: list[int] | None
        if consumer.no_ack and not self._entry.is_archived:
            if persistent:  # the backing queue need not hear of others
                self._backing.discard(messages, persistent, publish.first_msg_no)
            base, safe, seqs = -1, True, None
        else:
            base, safe = self._backing.publish_delivered(
                messages, persistent, None, size_bytes - publish.head_bytes, publish.first_msg_no
            )
            seqs = [base] if count == 1 else list(range(base, base + count))
            if consumer.no_ack:
                self._backing.ack(seqs)
                seqs = None
            else:
                consumer.sent(seqs)
        delivery = mail.Deliver(self._queue, consumer.tag, messages, seqs, 0)
        if not self._turns.send_now(consumer.channel, delivery):
            delivery.wait_at(consumer.gate)
        publishers.published(publish, count if safe else 0, base)
        return base

    def straight(
        self,
        publish: mail.Publish,
        consumers: Consumers,
        limit: int,
        persistent: bool,
        expiries: list[int] | None,
    ) -> tuple[int, int, bool]:
        """Deliver the first messages to waiting consumers.

        Returns how many, the seq of the first (-1 when they got none), and whether they are safe.
        """
        messages = publish.messages
        room = consumers.room_for(limit)
        if not room:
            consumers.block_all()
            return 0, -1, True
        allotments = consumers.deal(room)
        if room < limit:
            consumers.block_all()
        batch = messages if room == len(messages) else messages[:room]
        is_unstored = consumers.no_ack_count and not self._entry.is_archived
        if is_unstored and all(each.consumer.no_ack for each in allotments):
            if persistent:
                self._backing.discard(batch, persistent, publish.first_msg_no)
            deliver(self._turns, self._queue, allotments, batch)
            return room, -1, True
        own = expiries[:room] if expiries else None
        first, safe = self._backing.publish_delivered(
            batch, persistent, own, None, publish.first_msg_no
        )
        seqs = list(range(first, first + room))
        done = deliver(self._turns, self._queue, allotments, batch, seqs)
        if done:
            self._backing.ack(done)
        return room, first, safe

    def from_head(self, consumers: Consumers, room: int) -> Fetched:
        """Fetch messages, as many as there is room for at the consumers, and deliver them."""
        ack_required = self._expiry.is_unordered or consumers.no_ack_count < consumers.count
        if self._expiry.is_unordered:
            alive = alive_at(int(self._clock.wall_s() * 1000))
            fetched, _ = self._backing.fetchwhile(alive, room, DELIVERY_BATCH_BYTES)
        else:
            fetched = self._backing.fetch(room, DELIVERY_BATCH_BYTES, ack_required)
        messages, counts = fetched.messages, self._backing.counts
        if messages:
            if counts is not None:
                messages = counts.shown(fetched)
                if not ack_required:
                    counts.forget(fetched.seqs)
            seqs = fetched.seqs if ack_required else None
            allotments = consumers.deal(len(messages))
            done = deliver(
                self._turns, self._queue, allotments, messages, seqs, fetched.redelivered
            )
            if done:
                self._backing.ack(done)
        return fetched


def fetch_one(backing: BackingProxy, ack_required: bool) -> Fetched:
    """Fetch the head; messages before it that turn out to be damaged are dropped."""
    fetched = backing.fetch(1, 1, ack_required)
    while not fetched.messages and not fetched.pending and backing.len():
        fetched = backing.fetch(1, 1, ack_required)
    return fetched
