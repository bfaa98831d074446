"""The half of an amqqueue that moves messages; ``amqqueue`` adds who comes, asks and goes.

The way of a publish: with nothing ready and consumers waiting, messages go straight to them: for
consumers that do not acknowledge they are only discarded in the backing queue, for the others they
are ``publish_delivered``. What nobody takes is published, and ``_go_on`` deals it out as soon as
somebody has room. A turn deals at most one delivery batch; the rest follows by a ``Continue`` that
the actor sends itself at low priority. Invariant at the end of a turn: when messages are ready and a
consumer is in its ring, a ``Continue`` is under way, or the backing queue owes a ``Resident``.

Where many messages are put back at once, that is done in slices, the youngest first, so that each
slice goes to the front of the queue; nothing is delivered until all are back, and calls that must see
all of them wait (``_held``), as a get does for the rest of what has expired and for what must be read first.

Messages that expire when nobody is ready to take them (TTL 0) are all offered at once, whatever the
budget of a turn, since the rest of them would not be there for the next turn.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Final

from leveret.actors.gen_server import NOREPLY, From, GenServer
from leveret.broker import mail
from leveret.broker.queue.allotments import Allotment, in_order
from leveret.broker.queue.consumers import Consumer, Consumers
from leveret.broker.queue.expiry import HeadTimer, alive_at, deadlines, expired_at
from leveret.broker.queue.publisher_credit import PublisherCredit, Ranges
from leveret.core.limits import DELIVERY_BATCH_BYTES, DELIVERY_BATCH_MESSAGES, TURN_MESSAGES
from leveret.core.message import BODY, Message
from leveret.queue_backing.api import Confirmed, Refused, Resident
from leveret.queue_backing.proxy import BackingProxy
from leveret.queue_backing.status import EXPIRY_MS

if TYPE_CHECKING:
    from leveret.broker.queue.registry import QueueEntry


class Continue:
    """To itself: go on with what a turn's budget cut short."""

    __slots__ = ()


class DropExpired:
    """Timer: the head has expired."""

    __slots__ = ()


_FEW: Final = 10  # consumers
_CONTINUE: Final = Continue()
_DROP_EXPIRED: Final = DropExpired()


class Dispatch(GenServer):
    """State and moves of one queue's messages.

    Attributes:
        MOVES: which mail is handled how.
    """

    __slots__ = (
        "_backing",
        "_consumers",
        "_continues",
        "_entry",
        "_has_expiries",
        "_has_own_expiries",
        "_head_timer",
        "_held",
        "_is_deleted",
        "_putting_back",
        "_ready",
        "_senders",
        "_ttl_ms",
    )

    def _attach(self, entry: QueueEntry) -> None:
        """Take over the backing queue of an entry."""
        assert entry.backing is not None, "the backing actor is started first"
        self._entry = entry
        self._backing = BackingProxy(self.runtime, entry.backing)
        self._consumers: Consumers | None = None
        self._senders: PublisherCredit | None = None
        self._ttl_ms: int | None = None
        self._has_expiries = False  # a message with an expiry may be in the queue
        self._has_own_expiries = False  # ... so that expiries may fall along the queue
        self._head_timer: HeadTimer | None = None
        self._continues = False
        self._putting_back: list[list[int]] | None = None  # each batch sorted
        self._held: list[tuple[Any, From]] | None = None
        self._is_deleted = False
        self._ready = self._backing.attach(self.ref)
        if self._ready:  # what has been recovered may expire
            self._has_expiries = self._has_own_expiries = True
            self._continue()

    def _set_ttl(self, ttl_ms: int | None) -> None:
        """Have messages expire so long after they are published, from now on."""
        if ttl_ms != self._ttl_ms and self._backing.depth():
            self._has_expiries = self._has_own_expiries = True
        self._ttl_ms = ttl_ms

    # Publishing.

    def _publish(self, publish: mail.Publish) -> None:
        if self._is_deleted:
            self._confirm(
                PublisherCredit().take_confirms(publish.senders, len(publish.messages), 0)
            )
            return
        consumers = self._consumers
        nothing_waits = not self._ready and not self._putting_back
        if (
            nothing_waits
            and consumers is not None
            and consumers.active == 1
            and self._deliver_whole(publish, consumers.only())
        ):
            return
        messages, count = publish.messages, len(publish.messages)
        persistent = publish.persistent and self._entry.durable
        size_bytes = sum([sender[2] for sender in publish.senders])
        expiries = self._deadlines(publish)
        taken, base, safe = 0, -1, True
        if nothing_waits and consumers is not None and consumers.active:
            budget = _batch_messages(consumers.active)
            limit = count if expiries else _within_budget(messages, size_bytes, budget)
            taken, base, safe = self._deliver_straight(publish, limit, persistent, expiries)
        unsafe_from = count if safe else 0
        if taken < count:
            first, safe = self._backing.publish(
                messages[taken:] if taken else messages,
                persistent,
                expiries[taken:] if expiries else None,
                None if taken else size_bytes,
                False,
                publish.first_msg_no + taken,
            )
            self._ready += count - taken
            base = first - taken
            if not safe:
                unsafe_from = min(unsafe_from, taken)
        self._settle_senders(publish, unsafe_from, base)
        if taken and self._ready and consumers is not None and consumers.active:
            self._continue()
        elif self._ready:
            self._go_on()

    def _deadlines(self, publish: mail.Publish) -> list[int] | None:
        own = publish.expirations
        if self._ttl_ms is None and own is None:
            return None
        self._has_expiries = True
        if own is not None:
            self._has_own_expiries = True
        return deadlines(self._now_ms(), self._ttl_ms, own, len(publish.messages))

    def _deliver_whole(self, publish: mail.Publish, consumer: Consumer) -> bool:
        """Hand a run to the one consumer that waits, if it can take all of it and nothing expires.

        Returns:
            Whether it was done. This is the way of most messages, so it does no more than it must.
        """
        messages, senders = publish.messages, publish.senders
        count = len(messages)
        size_bytes = senders[0][2] if len(senders) == 1 else sum([each[2] for each in senders])
        if (
            self._ttl_ms is not None
            or publish.expirations is not None
            or size_bytes > DELIVERY_BATCH_BYTES
            or not consumer.room() >= count <= DELIVERY_BATCH_MESSAGES
        ):
            return False
        persistent = publish.persistent and self._entry.durable
        spec = consumer.spec
        if consumer.no_ack:
            self._backing.discard(messages, persistent, publish.first_msg_no)
            base, safe, seqs = -1, True, None
        else:
            base, safe = self._backing.publish_delivered(
                messages, persistent, None, size_bytes, publish.first_msg_no
            )
            seqs = list(range(base, base + count))
            consumer.dealt(count)
            consumer.owe(seqs)
        self.runtime.send_now(spec.channel, mail.Deliver(self.ref, spec.tag, messages, seqs, 0))
        self._settle_senders(publish, count if safe else 0, base)
        return True

    def _deliver_straight(
        self, publish: mail.Publish, limit: int, persistent: bool, expiries: list[int] | None
    ) -> tuple[int, int, bool]:
        """Hand the first messages to waiting consumers.

        Returns:
            How many, the seq of the first (-1 when none was given), and whether they are safe.
        """
        consumers, messages = self._consumers, publish.messages
        assert consumers is not None
        room = consumers.room_for(limit)
        if not room:
            consumers.block_all()
            return 0, -1, True
        shares = consumers.deal(room)
        if room < limit:
            consumers.block_all()
        batch = messages if room == len(messages) else messages[:room]
        if consumers.no_ack_count and all(share.consumer.no_ack for share in shares):
            self._backing.discard(batch, persistent, publish.first_msg_no)
            self._send(shares, batch, None, 0)
            return room, -1, True
        own = expiries[:room] if expiries else None
        first, safe = self._backing.publish_delivered(
            batch, persistent, own, None, publish.first_msg_no
        )
        self._send(shares, batch, list(range(first, first + room)), 0)
        return room, first, safe

    def _settle_senders(self, publish: mail.Publish, unsafe_from: int, base: int) -> None:
        """Grant credit and confirm what is safe."""
        senders = self._senders
        if senders is None:
            senders = self._senders = PublisherCredit()
        has_confirms = False
        for channel, count, size_bytes, seqno in publish.senders:
            grant = senders.received(channel, count, size_bytes)
            if grant is not None:
                self.post(channel, mail.CreditGrant(self.ref, grant.messages, grant.size_bytes))
            has_confirms = has_confirms or seqno > 0
        if not has_confirms:
            return
        if len(publish.senders) == 1 and unsafe_from >= count:  # the way of most confirms
            self.runtime.send_now(channel, mail.Confirm(self.ref, [(seqno, count)]))
        else:
            self._confirm(senders.take_confirms(publish.senders, unsafe_from, base))

    def _confirm(self, ranges: Ranges, ok: bool = True) -> None:
        for channel, own in ranges.items():
            self.runtime.send_now(channel, mail.Confirm(self.ref, own, ok))

    def _became_safe(self, confirmed: Confirmed) -> None:
        if self._senders is not None and self._senders.owed:
            self._confirm(self._senders.settle(confirmed.runs))

    def _refused(self, refused: Refused) -> None:
        if self._senders is not None and self._senders.owed:
            self._confirm(self._senders.settle(refused.runs), ok=False)

    # Delivering.

    def _continue(self) -> None:
        if not self._continues:
            self._continues = True
            self.runtime.again(self.ref, _CONTINUE)

    def _continued(self, _: Continue) -> None:
        self._continues = False
        if self._is_deleted:
            return
        if self._putting_back:
            self._put_back_some()
        if self._putting_back:
            self._continue()
            return
        if self._held:
            self._answer_held()
        self._go_on()

    def _answer_held(self) -> None:
        """Answer calls that had to wait, in order, up to the first that must wait again."""
        held, self._held = self._held or [], None
        for position, (request, frm) in enumerate(held):
            answer = self.handle_call(request, frm)
            if answer is NOREPLY:
                self._held = held[position:]
                return
            self.runtime.reply(frm, answer)

    def _resident(self, _: Resident) -> None:
        """What had to be read is there."""
        if self._held:
            self._answer_held()
        self._go_on()

    def _go_on(self) -> None:
        """Do what became possible: drop what has expired at the head, deal out the rest."""
        if self._is_deleted or not self._ready:
            return
        if self._has_expiries and not self._drop_expired():
            return
        consumers = self._consumers
        if consumers is None or not consumers.active or not self._ready or self._putting_back:
            return
        wanted = min(self._ready, _batch_messages(consumers.active))
        room = consumers.room_for(wanted)
        dealt, pending = self._fetch_and_deal(consumers, room) if room else (0, False)
        if dealt == room < wanted:
            consumers.block_all()
        if self._has_expiries and self._ready:
            self._drop_expired()
        if self._ready and consumers.active and not pending:
            self._continue()

    def _fetch_and_deal(self, consumers: Consumers, room: int) -> tuple[int, bool]:
        """Deliver up to ``room`` messages.

        Returns:
            How many, and whether the next ones must be read first.
        """
        ack_required = self._has_own_expiries or consumers.no_ack_count < consumers.count
        if self._has_own_expiries:
            alive = alive_at(self._now_ms())
            fetched, _ = self._backing.fetchwhile(alive, room, DELIVERY_BATCH_BYTES)
        else:
            fetched = self._backing.fetch(room, DELIVERY_BATCH_BYTES, ack_required)
        count = len(fetched.messages)
        # Where fewer came there may be fewer: what is damaged on the disk is dropped.
        self._ready = self._ready - count if count == room else self._backing.len()
        if count:
            seqs = fetched.seqs if ack_required else None
            self._send(consumers.deal(count), fetched.messages, seqs, fetched.redelivered)
        return count, fetched.pending

    def _send(
        self,
        shares: list[Allotment],
        batch: list[Message],
        seqs: list[int] | None,
        redelivered: int,
    ) -> None:
        """Send everyone his share; what needs no ack is acked in the backing queue, if it is kept."""
        done: list[int] = []
        for share in in_order(shares) if len(shares) > 1 else shares:
            consumer = share.consumer
            own = share.of_seqs(seqs) if seqs is not None else None
            if consumer.no_ack:
                done += own or ()
                own = None
            elif own is not None:
                consumer.owe(own)
            again = share.count_below(redelivered) if redelivered else 0
            delivery = mail.Deliver(
                self.ref, consumer.spec.tag, share.of_messages(batch), own, again
            )
            self.runtime.send_now(consumer.spec.channel, delivery)
        if done:
            self._backing.ack(done)

    def _resume(self, resume: mail.Resume) -> None:
        if self._consumers is not None and self._consumers.resume(resume.channel):
            self._go_on()

    # Settling.

    def _ack(self, ack: mail.Ack | mail.Reject) -> None:
        if self._is_deleted:
            return
        seqs = ack.seqs
        if len(seqs) > TURN_MESSAGES:  # the rest in a later turn, which comes before lesser mail
            seqs = seqs[-TURN_MESSAGES:]
            del ack.seqs[-TURN_MESSAGES:]
            self.runtime.again(self.ref, ack)
        unblocked = self._consumers is not None and self._consumers.settle(
            ack.channel, ack.consumer, seqs
        )
        self._backing.ack(seqs)
        if unblocked:
            self._go_on()

    def _requeue(self, requeue: mail.Requeue) -> None:
        consumers = self._consumers
        if consumers is None or requeue.channel not in consumers.peers:
            return  # deleted, or the channel has left and everything of it is back already
        consumers.settle(requeue.channel, requeue.consumer, requeue.seqs)
        self._put_back(requeue.seqs)

    def _put_back(self, seqs: list[int]) -> None:
        if len(seqs) > TURN_MESSAGES:
            batches = self._putting_back or []
            batches.append(sorted(seqs))
            self._putting_back = batches
            self._continue()
            return
        self._ready += self._backing.requeue(seqs)
        self._go_on()

    def _put_back_some(self) -> None:
        """Put back the youngest of a batch that waits for it."""
        batches = self._putting_back or [[]]
        batch = batches[-1]
        self._ready += self._backing.requeue(batch[-TURN_MESSAGES:])
        del batch[-TURN_MESSAGES:]
        if not batch:
            batches.pop()
            self._putting_back = batches or None

    # Expiry.

    def _now_ms(self) -> int:
        return int(self.runtime.clock.wall_s() * 1000)

    def _head_expired(self) -> None:
        """The timer has fired."""
        if self._head_timer is not None:
            self._head_timer.fired()
        self._go_on()

    def _drop_expired(self) -> bool:
        """Drop a turn's worth of expired messages from the head; return whether those were all."""
        now_ms = self._now_ms()
        dropped = self._backing.dropwhile(expired_at(now_ms), TURN_MESSAGES)
        self._ready -= dropped.count
        head = dropped.head
        if dropped.count == TURN_MESSAGES and head is not None:
            self._continue()
            return False
        if head is None:
            if self._has_own_expiries and not dropped.pending and not self._backing.depth():
                self._has_expiries = self._has_own_expiries = False
        elif head[EXPIRY_MS]:
            if self._head_timer is None:
                self._head_timer = HeadTimer(lambda s: self.start_timer(s, _DROP_EXPIRED))
            self._head_timer.set(head[EXPIRY_MS], now_ms)
        return True

    MOVES: ClassVar[dict[type, Callable[..., None]]] = {
        mail.Publish: _publish,
        mail.Ack: _ack,
        mail.Reject: _ack,  # dead-lettering will part them
        mail.Requeue: _requeue,
        mail.Resume: _resume,
        Continue: _continued,
        Resident: _resident,
        Confirmed: _became_safe,
        Refused: _refused,
    }


def _batch_messages(active: int) -> int:
    """Return how many messages one turn deals out: fewer where each may well be a mail of its own."""
    return DELIVERY_BATCH_MESSAGES if active <= _FEW else DELIVERY_BATCH_MESSAGES // 5 or 1


def _within_budget(messages: list[Message], size_bytes: int, budget: int) -> int:
    """Return how many messages of a run one delivery batch may hold, at least one."""
    if len(messages) <= budget and size_bytes <= DELIVERY_BATCH_BYTES:
        return len(messages)
    batch = messages[:budget]
    for position, reached in enumerate(accumulate(len(message[BODY]) for message in batch)):
        if reached > DELIVERY_BATCH_BYTES:
            return max(1, position)
    return len(batch)
