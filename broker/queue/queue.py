"""Queue: the messages of one queue on their way from publishers to consumers and back; its pair stores them.

It is the plain half of ``AmqQueue`` and takes that actor's mails (``handle``), since no actor can be compiled; what
comes rarely it hands on. The backing queue is called inline (``backing``), so that a batch costs no turn of the other
half. ``ready`` is the number of ready messages, counted here so that no call is needed for it.

Publish: when no message is ready and consumers wait, messages go straight to them. Those for consumers
that do not acknowledge are only discarded in the backing queue; the others are ``publish_delivered``.
The rest is published, and ``go_on`` delivers it as soon as a consumer has room. A turn delivers at most
one batch; then the queue sends itself a ``Continue``. Invariant at the end of a turn:
when messages are ready and a consumer is in its ring, a ``Continue`` is under way, or the backing queue
owes a ``FetchReady``.

Requeue: many messages, and those of ended channels, are requeued in later turns (``requeueing.py``). Nothing is
delivered until all are back.

Expiry: messages that expire when no consumer is ready to take them (TTL 0) are all offered at once,
whatever the budget of a turn, since the next turn would find them expired.

Differs from RabbitMQ: ``Resume`` does not overtake the ``Requeue`` that made the room, so that requeued messages are
delivered before younger ones.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from leveret.actors.runtime.ref import MailHandler
from leveret.broker.mail import Ack, Publish, Reject, Requeue, Resume
from leveret.broker.queue import mailbox
from leveret.broker.queue.consumers.allotments import batch_limit, within_limit
from leveret.broker.queue.consumers.consumers import Consumers
from leveret.broker.queue.consumers.dispatch import Dispatch
from leveret.broker.queue.dead_letters.dead_letters import (
    DeadLetters,
    DeadLetterSource,
    has_dead_letter_exchange,
)
from leveret.broker.queue.dead_letters.rules import DeathRules
from leveret.broker.queue.limits.expiry import MessageExpiry, expired_at
from leveret.broker.queue.publishers.deduplication import Deduplication
from leveret.broker.queue.publishers.publishers import Publishers
from leveret.broker.queue.requeueing import Requeueing
from leveret.broker.queue.turn_budget import TurnBudget
from leveret.core.limits import TURN_MESSAGES
from leveret.queue_backing.api import Confirmed, Refused

if TYPE_CHECKING:
    from leveret.actors.runtime.calls import From
    from leveret.actors.runtime.ref import Ref
    from leveret.broker.queue.limits.overflow import Overflow
    from leveret.broker.registry.registry import QueueEntry
    from leveret.queue_backing.proxy import BackingProxy


_PART_COST: Final = 20  # of a part of a run that is taken in by itself, in messages


class QueueActor(DeadLetterSource, Protocol):
    """The queue's actor."""

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        """Handle a mail that is not about messages."""

    def answer_waiting(self) -> None:
        """Answer ``Queue.waiting_calls``, as far as they need not wait again."""


class Queue(MailHandler):
    """The messages of one queue, with its consumers and publishers.

    Args:
        actor: whose mails it handles.
        entry: of the registry.
        backing: its backing queue.

    Attributes:
        backing: likewise.
        ready: how many messages are ready.
        consumers: None until the first has come.
        publishers: None while nobody publishes.
        deduplication: of publishes with producers' numbers.
        expiry: of its messages.
        overflow: None: there is no length limit.
        dead_letters: None until a message has been dead-lettered.
        requeueing: messages on their way back; None: there are none.
        waiting_calls: until all messages are back, expired ones are dropped, and contents are read.
        is_deleted: it still confirms publishes.
    """

    __slots__ = (
        "_actor",
        "_budget",
        "_continues",
        "_dispatch",
        "_entry",
        "_head_bytes",
        "_is_backlogged",
        "_ref",
        "_runtime",
        "_turns",
        "backing",
        "consumers",
        "dead_letters",
        "deduplication",
        "expiry",
        "is_deleted",
        "overflow",
        "publishers",
        "ready",
        "requeueing",
        "waiting_calls",
    )  # fmt: skip

    def __init__(self, actor: QueueActor, entry: QueueEntry, backing: BackingProxy) -> None:
        # First what each message needs: compiled, fields lie in memory in this order.
        self.consumers: Consumers | None = None
        self.publishers: Publishers | None = None
        self.overflow: Overflow | None = None
        self.requeueing: Requeueing | None = None
        self.ready: int = backing.attach(actor.ref)
        self.is_deleted = False
        self._is_backlogged = entry.is_backlogged
        self._continues = False
        self._budget = TurnBudget(actor.runtime.turns, actor.ref)
        self._dispatch: Dispatch  # set with the first consumer
        self.backing = backing
        self._entry = entry
        self._actor = actor
        self._ref = actor.ref
        self._runtime = actor.runtime
        self._turns = actor.runtime.turns
        self.deduplication = Deduplication(self._runtime, self._ref, entry, backing, self._budget)
        self.expiry = MessageExpiry(recovered=self.ready > 0)
        self.dead_letters: DeadLetters | None = None
        self.waiting_calls: list[tuple[Any, From]] | None = None
        self._head_bytes = 0  # the largest mean header of a run, since the backlog began

    def handle(self, message: Any, sender: Ref | None) -> object:
        """Handle a mail of the actor; it handles those itself that are not about messages."""
        kind = type(message)
        if kind is Publish:
            self.take_in(message)
        elif kind is Ack:
            self._settle(message, None)
        elif kind is mailbox.Continue:
            self._continued()
        elif kind is Confirmed:
            self._became_safe(message)
        elif kind is Resume:
            self.resume(message.channel)
        elif kind is Requeue:
            self._requeue(message)
        elif kind is Reject:
            self._settle(message, self.open_dead_letters())
        elif kind is Refused:
            self._refused(message)
        else:
            return self._actor.handle_mail(message, sender)
        return None

    # Publishing.

    def take_in(self, publish: Publish, is_admitted: bool = False) -> tuple[int, int] | None:
        """Take a run in; see ``DeduplicatedQueue``. One of producers comes back without their numbers, in parts."""
        consumers, overflow = self.consumers, self.overflow
        if publish.producer_seqs is not None and not self.is_deleted:
            self.deduplication.publish(self, publish, overflow is not None and overflow.takes_parts)
            return None
        if (self.is_deleted or (overflow is not None and overflow.takes_parts)) and not is_admitted:
            return self._take_in_or_refuse(publish)
        self._budget.charge(len(publish.messages))
        publishers = self.publishers
        if publishers is None:
            publishers = self.open_publishers()
        nothing_waits = not self.ready and self.requeueing is None
        if (
            nothing_waits
            and consumers is not None
            and consumers.active == 1
            and (base := self._dispatch.straight_whole(publish, publishers, consumers.only()))
            is not None
        ):
            if self._is_backlogged:
                self._show_backlog(False)
            return base, 0 if base >= 0 else len(publish.messages)
        return self._take_in_some(publish, publishers, nothing_waits)

    def _take_in_some(
        self, publish: Publish, publishers: Publishers, nothing_waits: bool
    ) -> tuple[int, int]:
        """Take a run in of which consumers get a part at once, or nothing."""
        consumers, overflow = self.consumers, self.overflow
        messages, count = publish.messages, len(publish.messages)
        persistent = publish.persistent and self._entry.durable
        size_bytes = sum([each[2] for each in publish.publishers])
        expiries = self.expiry.deadlines(publish.expiration_ms, self._runtime.clock, count)
        taken, base, safe = 0, -1, True
        if nothing_waits and consumers is not None and consumers.active:
            limit = count
            if not expiries and overflow is None:
                limit = within_limit(messages, size_bytes, batch_limit(consumers.active))
            taken, base, safe = self._dispatch.straight(
                publish, consumers, limit, persistent, expiries
            )
        unsafe_from = count if safe else 0
        rows_from = 0 if base >= 0 else taken
        if taken < count:
            self._head_bytes = max(self.ready and self._head_bytes, publish.head_bytes // count)
            first, safe = self.backing.publish(
                messages[taken:] if taken else messages,
                persistent,
                expiries[taken:] if expiries else None,
                None if taken else size_bytes - publish.head_bytes,
                False,
                publish.first_msg_no + taken,
            )
            self.ready += count - taken
            base = first - taken
            unsafe_from = unsafe_from if safe else min(unsafe_from, taken)
        publishers.published(publish, unsafe_from, base)
        if taken and self.ready and consumers is not None and consumers.active:
            self.go_on_later()
        elif self.ready:
            self.go_on()
        if self._is_backlogged is not (self.ready > 0):
            self._show_backlog(self.ready > 0)
        return base, rows_from

    def _show_backlog(self, is_backlogged: bool) -> None:
        """Write into the entry, which publishers read, whether the queue has a backlog."""
        self._is_backlogged = self._entry.is_backlogged = is_backlogged

    def _take_in_or_refuse(self, publish: Publish) -> tuple[int, int] | None:
        """Take in the messages that fit into a queue that refuses others; a deleted one confirms all."""
        publishers = self.open_publishers()
        if self.is_deleted:
            publishers.confirm_all(publish)
            return None
        self._budget.charge(len(publish.messages))
        assert self.overflow is not None
        place = None
        for part in self.overflow.admitted(publish, publishers, self.open_dead_letters()):
            place = self.take_in(part, is_admitted=True)
            self._budget.charge(_PART_COST)
        return place

    def _became_safe(self, confirmed: Confirmed) -> None:
        if self.publishers is not None:
            self.publishers.confirm(confirmed.runs)
        self.deduplication.became_safe(confirmed.runs)

    def _refused(self, refused: Refused) -> None:
        if self.publishers is not None:
            self.publishers.confirm(refused.runs, ok=False)
        self.deduplication.refused(refused.runs)

    def open_publishers(self) -> Publishers:
        if self.publishers is None:
            start_timer = partial(self._actor.start_bulk_timer, message=mailbox.CLOSE_ACCOUNTS)
            self.publishers = Publishers(self._turns, self._ref, start_timer)
        return self.publishers

    # Delivering.

    def open_consumers(self) -> Consumers:
        if self.consumers is None:
            is_single = self._entry.settings.single_active_consumer
            self.consumers = Consumers(self._ref, is_single, self._runtime.clock.monotonic_s)
            self._dispatch = Dispatch(
                self._runtime, self._ref, self._entry, self.backing, self.expiry
            )
        return self.consumers

    def go_on_later(self) -> None:
        """Go on in the next turn."""
        if not self._continues:
            self._continues = True
            self._turns.again(self._ref, mailbox.CONTINUE)

    def _continued(self) -> None:
        self._continues = False
        if self.is_deleted:
            return
        if self.requeueing is not None:
            self._requeue_some(self.requeueing)
        if self.requeueing is not None:
            self.go_on_later()
            return
        if self.waiting_calls:
            self._actor.answer_waiting()
        self.go_on()

    def go_on(self) -> None:
        """Keep the length limits, drop expired messages, deliver as many as the consumers take."""
        if self.is_deleted:
            return
        overflow = self.overflow
        if overflow is not None:
            self._keep_limits(overflow)
        if self.ready and (not self.expiry.may_expire or self.drop_expired()):
            self._deliver_some()
            if overflow is not None:
                self._keep_limits(overflow)

    def _deliver_some(self) -> None:
        """Deliver a batch, as far as the consumers take it."""
        consumers = self.consumers
        if (
            consumers is None
            or not consumers.active
            or not self.ready
            or self.requeueing is not None
        ):
            return
        wanted = min(self.ready, batch_limit(consumers.active, self._head_bytes))
        room = consumers.room_for(wanted)
        dealt, pending = self._fetch_and_deal(consumers, room) if room else (0, False)
        if dealt == room < wanted:
            consumers.block_all()
        if self.expiry.may_expire and self.ready:
            self.drop_expired()
        if self.ready and consumers.active and not pending:
            self.go_on_later()

    def _fetch_and_deal(self, consumers: Consumers, room: int) -> tuple[int, bool]:
        """Deliver up to ``room`` messages; return how many, and whether the next must be read first."""
        fetched = self._dispatch.from_head(consumers, room)
        count = len(fetched.messages)
        # The backing queue drops messages that are damaged on the disk: count again.
        self.ready = self.ready - count if count == room else self.backing.len()
        self._budget.charge(count)
        return count, fetched.pending

    def resume(self, channel: Ref) -> None:
        """Go on with the consumers of a channel that has room again."""
        if self.consumers is not None and self.consumers.resume(channel):
            self.go_on()

    def _keep_limits(self, overflow: Overflow, before_delivery: bool = False) -> None:
        """Drop or dead-letter messages from the head that are too many and that no consumer takes."""
        is_above, consumers = False, self.consumers
        if self.ready and self.requeueing is None:
            if consumers is not None and consumers.active and not before_delivery:
                return
            is_above = overflow.drop(self.ready, self.open_dead_letters())
            before, self.ready = self.ready, self.backing.len()
            self._budget.charge(before - self.ready)
            if is_above and before > self.ready:
                self.go_on_later()
        if self.publishers is not None:
            overflow.control_credit(self.publishers, self.dead_letters, is_above)

    # Messages that die.

    def open_dead_letters(self) -> DeadLetters | None:
        """Return where messages go that die now; None: they are dropped."""
        if not has_dead_letter_exchange(self._entry):
            return None
        if self.dead_letters is None:
            rules = DeathRules(self._entry)
            self.dead_letters = DeadLetters(
                self._actor, self._entry, self.backing, rules, self._budget
            )
        return self.dead_letters

    def drop_expired(self) -> bool:
        """Drop or dead-letter expired messages from the head; return whether those were all."""
        now_ms, dead_letters = int(self._runtime.clock.wall_s() * 1000), self.open_dead_letters()
        start = partial(self._actor.start_bulk_timer, message=mailbox.DROP_EXPIRED)
        dropped = self.expiry.drop_expired(self.backing, dead_letters, now_ms, start, self._entry)
        self.ready -= dropped.count
        if dead_letters is not None or dropped.count:  # damaged messages are gone as well
            self.ready = self.backing.len()
        self._budget.charge(dropped.count)
        if dropped.head is None or not expired_at(now_ms)(dropped.head):
            return dead_letters is None or not dropped.pending
        if dead_letters is None or dead_letters.room():
            self.go_on_later()
        return False

    # Settling.

    def _settle(self, settled: Ack | Reject, dead_letters: DeadLetters | None) -> None:
        """Forget messages that were acked or rejected; dead-letter them if that is their way."""
        if self.is_deleted:
            return
        seqs = settled.seqs
        if len(seqs) > TURN_MESSAGES:  # the rest in a later turn, before mail of lower priority
            some = slice(-TURN_MESSAGES, None) if dead_letters is None else slice(TURN_MESSAGES)
            seqs = seqs[some]
            del settled.seqs[some]
            self._turns.again(self._ref, settled)
        unblocked = self.consumers is not None and self.consumers.settle(
            settled.channel, settled.consumer, seqs
        )
        if dead_letters is None:
            self.backing.ack(seqs)
        else:
            dead_letters.take_unacked(seqs)
        self._budget.charge(len(seqs))
        if unblocked:
            self.go_on()

    def _requeue(self, requeue: Requeue) -> None:
        consumers = self.consumers
        if consumers is None or requeue.channel not in consumers.channels:
            return  # deleted, or the channel has left and all its messages are back already
        seqs = requeue.seqs
        if len(seqs) > TURN_MESSAGES:
            self.requeue_later().refuse(requeue)
            return
        self._budget.charge(len(seqs))
        consumers.settle(requeue.channel, requeue.consumer, seqs)
        self.ready += self.backing.requeue(seqs)
        if self.overflow is not None:
            self._keep_limits(self.overflow, before_delivery=True)
        self.go_on()

    def requeue_later(self) -> Requeueing:
        """Return what takes messages that are requeued in later turns."""
        if self.requeueing is None:
            self.requeueing = Requeueing()
            self.go_on_later()
        return self.requeueing

    def _requeue_some(self, requeueing: Requeueing) -> None:
        if seqs := requeueing.turn(self.consumers):
            self.ready += self.backing.requeue(seqs)
        if requeueing.is_done():
            self.requeueing = None

    # The end.

    def delete(self) -> None:
        """Delete the messages; mails in the actor's mailbox are still answered."""
        self.is_deleted = True
        self.expiry.cancel()
        if self.dead_letters is not None:
            self.dead_letters.end()
        self.consumers = self.publishers = self.requeueing = None
        self.ready = 0
        self.backing.delete_and_terminate()
