"""The consuming half of a channel: its consumers, their unsettled deliveries, and how these are settled.

Deliveries come from queues as one mail per consumer and turn, get consecutive delivery tags and go out
as one block of frames. Settlements go back to the incarnation of the queue that delivered; after a
restart of the queue the old one is gone and its tags settle silently, as for a deleted queue.
"""

from __future__ import annotations

import struct
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Final

from leveret.actors.runtime.ref import Ref
from leveret.amqp.body_frames import UNCOPIED_BYTES, delivery_parts
from leveret.amqp.kernel import deliveries
from leveret.amqp.methods import BasicAck, BasicNack
from leveret.amqp.spec import BASIC_ACK
from leveret.broker.channel.consuming.remote_deliveries import RemoteDeliveries
from leveret.broker.channel.consuming.unacked import SETTLED_MAX, Settled, Unacked, unknown_tag
from leveret.broker.channel.records import Source, Subscription
from leveret.broker.limiter import ChannelLimiter, DeliveryGate
from leveret.broker.mail import Ack, Deliver, Reject, Requeue, Resume
from leveret.broker.script import Steps, Until
from leveret.broker.vhost.trace import is_copy
from leveret.core import small_set
from leveret.core.limits import LARGE_BODY_BYTES
from leveret.core.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leveret.amqp.fields import Method
    from leveret.broker.channel.reply_consumers import Reply, ReplyConsumer
    from leveret.broker.channel.session import ChannelActor
    from leveret.broker.registry.registry import QueueEntry

RESUMES_MAX: Final = 1_000  # in a turn, of the queues that wait for room
_OUTCOMES: Final = {Ack: b"ack", Requeue: b"requeue", Reject: b"reject"}
_GET_OK: Final = struct.Struct(">HHQB")
_DELIVER: Final = struct.pack(">HH", 60, 60)
_TAG: Final = struct.Struct(">Q?")  # and redelivered


class Deliveries:
    """The consuming half of a channel.

    Attributes:
        subscriptions: by tag, in the order they were started; change it with the methods only.
        unacked: deliveries that wait for a settlement.
        prefetch: of the last basic.qos global=false; consumers take it when they start.
        limiter: the channel-wide prefetch (basic.qos global=true).
        gate: whether the connection takes more; queues look at it before they deliver.
        client_reads: the client has not ended.
        reply_consumer: the consumer of replies, if there is one.
    """

    client_reads: ClassVar[bool] = True

    __slots__ = (
        "_by_queue",
        "_channel",
        "_from_nodes",
        "_number",
        "_ref",
        "_rest",
        "_resumes_later",
        "_session",
        "_source",
        "_timeout",
        "_turns",
        "gate",
        "limiter",
        "prefetch",
        "reply_consumer",
        "subscriptions",
        "unacked",
    )

    def __init__(self, channel: ChannelActor, gate: DeliveryGate) -> None:
        self._channel = channel
        self._session = channel.session
        self._number = channel.number
        self._ref = channel.ref
        self._turns = channel.runtime.turns
        self._timeout = channel.settlement_timeout
        self._source: Source | None = None  # of the latest basic.get
        self._rest: tuple[type[Ack | Requeue | Reject], int] | None = None  # kind, last tag
        self._resumes_later = False
        self._from_nodes: RemoteDeliveries | None = None  # made for the first such delivery
        self.subscriptions: dict[bytes, Subscription] = {}
        self._by_queue: dict[QueueEntry, small_set.SmallSet] = {}
        self.unacked = Unacked()
        self.prefetch = 0
        self.limiter = ChannelLimiter()
        self.gate = gate
        self.reply_consumer: ReplyConsumer | None = None

    def set_prefetch(self, count: int) -> None:
        """Set the prefetch of consumers that are started from now on; 0: none."""
        self.prefetch = count

    def set_reply_consumer(self, consumer: ReplyConsumer | None) -> None:
        self.reply_consumer = consumer

    def add(self, subscription: Subscription) -> None:
        entry = subscription.entry
        self.subscriptions[subscription.tag] = subscription
        self._by_queue[entry] = small_set.add(self._by_queue.get(entry), subscription)
        if not subscription.no_ack:
            self._session.read_control.limit_coalescing(subscription.prefetch)
            if entry.durable:
                self._session.read_control.coalesce_no_acks()
        entry.watch(self._ref)

    def remove(self, tag: bytes) -> bool:
        """Take a consumer out; return whether there was one."""
        subscription = self.subscriptions.pop(tag, None)
        if subscription is None:
            return False
        others = small_set.discard(self._by_queue.pop(subscription.entry), subscription)
        if others is None:
            subscription.entry.unwatch(self._ref)
        else:
            self._by_queue[subscription.entry] = others
        return True

    def remove_all(self) -> list[QueueEntry]:
        """Take all consumers out; return their queues."""
        self.reply_consumer = None
        entries = list(self._by_queue)
        self._by_queue.clear()
        self.subscriptions.clear()
        for entry in entries:
            entry.unwatch(self._ref)
        return entries

    def auto_delete_queues(self) -> tuple[QueueEntry, ...]:
        """Return the queues that may end with these consumers."""
        entries = dict.fromkeys(each.entry for each in self.subscriptions.values())
        return tuple([entry for entry in entries if entry.auto_delete])

    def end(self) -> Steps:
        """Take all consumers and deliveries out, in several turns; return the queues that must be told."""
        self.gate.close()
        queues = {entry.ref: None for entry in self.remove_all() if entry.ref is not None}
        unacked = self.unacked
        last = unacked.last_of(0)
        while some := unacked.take_to(last):
            for source, _ in some:
                queues[source.queue] = None
            if len(unacked):
                yield Until(self._channel.next_turn)
        return list(queues)

    def of_queue(self, entry: QueueEntry) -> tuple[Subscription, ...]:
        return small_set.items(self._by_queue.get(entry))

    def deliver(self, mail: Deliver) -> None:
        """Write a batch out and remember the deliveries that must be settled."""
        tag, seqs, messages = mail.consumer, mail.seqs, mail.messages
        subscription = self.subscriptions.get(tag)
        if subscription is None:
            if seqs is not None:
                self.refuse([(Source(mail.queue, tag), seqs)], requeue=True)
            return
        if seqs is None:
            first = self.unacked.skip(len(messages))
        else:
            source, queue = subscription.source, mail.queue
            if source is None or source.queue is not queue:
                name = subscription.entry.name
                source = subscription.source = Source(queue, tag, name)
            first = self.unacked.add(source, seqs)
            if self._timeout.timer is None:
                self._timeout.delivered()
        session = self._session
        if session.interceptors is not None or session.features.firehose is not None:
            source, name = subscription.source, subscription.entry.name
            messages = self._shown(name, messages, mail.redelivered, source)
        redelivered, frame_max = mail.redelivered, session.frame_max
        if len(messages[-1][2]) < UNCOPIED_BYTES:  # most batches have bodies of one size
            wire = deliveries(self._number, tag, first, redelivered, frame_max, messages)
            session.writer.write(wire)
        else:
            self._write_large(tag, first, redelivered, messages)

    def _write_large(
        self, tag: bytes, first: int, redelivered: int, messages: list[Message]
    ) -> None:
        """Write deliveries whose last body is not copied."""
        writer, frame_max = self._session.writer, self._session.frame_max
        start = self._number, tag, first, redelivered, frame_max
        origin, head, last = messages[-1]
        if len(last) <= LARGE_BODY_BYTES:
            writer.write_parts(delivery_parts(*start, messages))
        else:  # more than a batch holds: no other can be
            messages = [*messages[:-1], (origin, head, b"")]
            writer.write_parts(delivery_parts(*start, messages))
            writer.write_body(self._number, frame_max, last)

    def from_nodes(self) -> RemoteDeliveries:
        """Return what is owed to queues of other nodes."""
        if self._from_nodes is None:
            self._from_nodes = RemoteDeliveries(
                self._channel, self.gate, self.limiter, self._resume
            )
        return self._from_nodes

    def gate_opens(self) -> None:
        """The connection takes more."""
        if self._from_nodes is not None:
            self._from_nodes.gate_opens()

    def queue_gone(self, queue: Ref) -> None:
        """An incarnation of a queue has ended."""
        if self._from_nodes is not None:
            self._from_nodes.queue_gone(queue)

    def reply(self, mail: Reply) -> None:
        """Write replies out. As in RabbitMQ, they have the delivery tag that the next other delivery gets too."""
        consumer = self.reply_consumer
        if consumer is not mail.consumer:
            return
        start = b"%b%c%b" % (_DELIVER, len(consumer.tag), consumer.tag)
        start += _TAG.pack(self.unacked.next_tag, False)
        for origin, head, body in mail.messages:
            self._session.write_content(self._number, start + origin, head, body)

    def got(
        self,
        queue: Ref,
        message: Message,
        seq: int | None,
        redelivered: bool,
        ready: int,
        name: str = "",
    ) -> None:
        if seq is None:
            tag = self.unacked.skip(1)
        else:
            source = self._source
            if source is None or source.queue is not queue:
                source = self._source = Source(queue, None, name)
            tag = self.unacked.add(source, [seq])
            self._timeout.delivered()
        session = self._session
        if session.interceptors is not None or session.features.firehose is not None:
            source = self._source if seq is not None else None
            (message,) = self._shown(name, [message], int(redelivered), source)
        origin, head, body = message
        method = _GET_OK.pack(60, 71, tag, redelivered) + origin + ready.to_bytes(4, "big")
        self._session.write_content(self._number, method, head, body)

    def _shown(
        self, queue: str, messages: list[Message], redelivered: int, source: Source | None
    ) -> list[Message]:
        """Show messages to interceptors and the firehose; return them as the client gets them."""
        session = self._session
        if session.interceptors is not None:
            messages = session.interceptors.delivered(session, queue, messages)
        if (firehose := session.features.firehose) is not None:
            firehose.delivered(session, self._number, queue, messages, redelivered)
            if source is not None and is_copy(messages[0]):
                source.has_copies = True
        return messages

    def acked(self, tags: list[int]) -> None:
        """Settle single acks, in order; PreconditionFailed at the first unknown tag."""
        if len(tags) == 1:
            source, seq = self.unacked.take_single(tags[0], BASIC_ACK)
            if self.limiter.limit or self._session.features.firehose is not None:
                self._hand_back(Ack, [(source, [seq])])
            else:
                self._turns.send(source.queue, Ack(self._ref, source.consumer, [seq]))
            return
        settled, unknown = self.unacked.take(tags)
        self._hand_back(Ack, settled)
        if unknown >= 0:
            raise unknown_tag(unknown, BASIC_ACK)

    def ack(self, method: BasicAck) -> Steps | None:
        return self._settle(Ack, method.delivery_tag, method.multiple)

    def nack(self, method: BasicNack) -> Steps | None:
        kind = Requeue if method.requeue else Reject
        return self._settle(kind, method.delivery_tag, method.multiple)

    def reject(self, tag: int, requeue: bool) -> None:
        source, seq = self.unacked.take_single(tag)
        self.refuse([(source, [seq])], requeue)

    def refuse(self, settled: Settled, requeue: bool) -> None:
        """Requeue deliveries, or have them dropped."""
        self._hand_back(Requeue if requeue else Reject, settled)

    def _settle(self, kind: type[Ack | Requeue | Reject], tag: int, multiple: bool) -> Steps | None:
        """Settle deliveries; a turn's worth now, and the rest of more in the steps that are returned."""
        unacked = self.unacked
        if not multiple:
            source, seq = unacked.take_single(tag)
            self._hand_back(kind, [(source, [seq])])
            return None
        return self.settle_to(kind, unacked.last_of(tag))

    def settle_to(self, kind: type[Ack | Requeue | Reject], last: int) -> Steps | None:
        """Settle all deliveries up to a tag."""
        unacked = self.unacked
        if kind is Requeue:
            return self.requeue_to(last)
        self._hand_back(kind, unacked.take_to(last))
        if not unacked.has_to(last):
            return None
        return self._settle_rest(kind, last)

    def settle_tags(self, kind: type[Ack | Requeue | Reject], tags: list[int]) -> Steps | None:
        """Settle single deliveries, the older ones first."""
        if len(tags) <= SETTLED_MAX:
            self._hand_back(kind, self.unacked.take(sorted(tags))[0])
            return None
        takes = self._takes(tags)
        return self.requeue(takes, None) if kind is Requeue else self._settle_each(kind, takes)

    def _takes(self, tags: list[int]) -> Iterator[Settled]:
        for at in range(0, len(tags), SETTLED_MAX):
            yield self.unacked.take(sorted(tags[at : at + SETTLED_MAX]))[0]

    def _settle_each(self, kind: type[Ack | Requeue | Reject], takes: Iterator[Settled]) -> Steps:
        for some in takes:
            self._hand_back(kind, some)
            yield Until(self._channel.next_turn)

    @property
    def is_settling(self) -> bool:
        """Whether the rest of a settlement is left to later turns; an exit of the channel is a mail meanwhile."""
        return self._rest is not None

    def _settle_rest(self, kind: type[Ack | Requeue | Reject], last: int) -> Steps:
        self._rest = kind, last
        self._channel.trap_exits = True
        yield Until(self._channel.next_turn)
        while some := self.unacked.take_to(last):
            self._hand_back(kind, some)
            if self.unacked.has_to(last):
                yield Until(self._channel.next_turn)
        self._rest = None
        self._channel.trap_exits = False

    def settle_rest_now(self) -> None:
        """The channel crashed: what its client has settled with the last method must not be delivered again."""
        rest, self._rest = self._rest, None
        if rest is not None:
            kind, last = rest
            while some := self.unacked.take_to(last):
                self._hand_back(kind, some)

    def requeue_to(self, last: int, method: Method | None = None) -> Steps | None:
        """Requeue all deliveries up to a tag, a turn's worth at a time, then write ``method``.

        A queue gets all that it takes back at once, so that no younger message comes in between; and
        nothing comes back before ``method``.
        """
        some = self.unacked.take_to(last)
        if self.unacked.has_to(last):
            takes = iter(partial(self.unacked.take_to, last), [])
            return self.requeue(chain([some], takes), method)
        self._hand_back(Requeue, some)
        if method is not None:
            self._channel.send_method(method)
        return None

    def recover(self, method: Method | None) -> Steps | None:
        """Requeue all deliveries, as ``requeue_to``."""
        return self.requeue_to(self.unacked.last_of(0), method)

    def requeue(self, takes: Iterator[Settled], method: Method | None) -> Steps:
        """Requeue the deliveries that ``takes`` has taken out, a step of it in each turn, as ``requeue_to``."""
        gathered: dict[Source, list[int]] = {}
        for some in takes:
            for source, seqs in some:
                if (others := gathered.get(source)) is None:
                    gathered[source] = seqs
                else:
                    others += seqs
            yield Until(self._channel.next_turn)
        if method is not None:
            self._channel.send_method(method)
        settled = list(gathered.items())
        if self.limiter.limit:  # queues that waited for room hear in their order
            self._hand_back(Requeue, settled)
            return
        while settled:
            self._hand_back(Requeue, settled[:SETTLED_MAX])
            del settled[:SETTLED_MAX]
            if settled:
                yield Until(self._channel.next_turn)

    def _hand_back(self, kind: type[Ack | Requeue | Reject], settled: Settled) -> None:
        """Tell the queues that their deliveries are settled, and queues that waited for room to go on.

        Queues that waited hear first, in the limiter's order: the first to hear may take all the room.
        """
        channel = self._ref
        if (firehose := self._session.features.firehose) is not None:
            firehose.settled(self._session, self._number, _OUTCOMES[kind], settled)
        if self.limiter.limit:
            self._count_off(settled)
            queues = self._to_resume()
            if queues:
                by_queue: dict[Ref, list[tuple[Source, list[int]]]] = {}
                for each in settled:
                    by_queue.setdefault(each[0].queue, []).append(each)
                for queue in queues:
                    for source, seqs in by_queue.pop(queue, ()):
                        self._post(queue, kind(channel, source.consumer, seqs))
                    self._post(queue, Resume(channel))
                settled = [each for several in by_queue.values() for each in several]
        for source, seqs in settled:
            self._post(source.queue, kind(channel, source.consumer, seqs))

    def set_limit(self, limit: int) -> None:
        """Start, change or (0) end the channel-wide limit; deliveries that are unacked now count."""
        limiter = self.limiter
        if limit and not limiter.limit:
            limiter.in_flight = self.unacked.count_of_consumers()
        is_another = limiter.limit != limit
        limiter.limit = limit
        remote = [each.ref for each in self._by_queue if each.is_remote] if is_another else []
        if remote:
            self.from_nodes().limit_changed([ref for ref in remote if ref is not None])
        self._session.read_control.limit_coalescing(limit)
        self._resume()

    def _count_off(self, settled: Settled) -> None:
        """Count settled deliveries of consumers off the channel-wide limit."""
        limiter = self.limiter
        for source, seqs in settled:
            if source.consumer is not None:
                limiter.in_flight -= len(seqs)
        limiter.in_flight = max(0, limiter.in_flight)

    def _resume(self) -> None:
        for queue in self._to_resume():
            self._post(queue, Resume(self._ref))

    def _to_resume(self) -> list[Ref]:
        """Return queues that the channel-wide limit held back; others go on in a later turn if there is room still."""
        limiter = self.limiter
        if not limiter.room():
            return []
        queues = limiter.take_waiting(RESUMES_MAX)
        if limiter.waiting and not self._resumes_later:
            self._resumes_later = True
            self._channel.next_turn(self._resume_more)
        return queues

    def _resume_more(self, _: object) -> None:
        self._resumes_later = False
        self._resume()

    def _post(self, queue: Ref, mail: object) -> None:
        self._turns.send(queue, mail)


class NoDeliveries(Deliveries):
    """The consuming half of a channel whose client has ended: deliveries go back, settlements come too late."""

    client_reads = False

    __slots__ = ()

    def deliver(self, mail: Deliver) -> None:
        if mail.seqs is not None:
            self.refuse([(Source(mail.queue, mail.consumer), mail.seqs)], requeue=True)

    def got(
        self,
        queue: Ref,
        message: Message,
        seq: int | None,
        redelivered: bool,
        ready: int,
        name: str = "",
    ) -> None:
        if seq is not None:
            self.refuse([(Source(queue, None), [seq])], requeue=True)

    def acked(self, tags: list[int]) -> None:
        """Do nothing: the message is back in its queue."""

    def ack(self, method: BasicAck) -> None:
        """Do nothing, as for a single one."""

    def nack(self, method: BasicNack) -> None:
        """Do nothing: the message is back in its queue."""

    def reject(self, tag: int, requeue: bool) -> None:
        """Do nothing: the message is back in its queue."""
