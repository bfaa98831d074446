"""AmqQueue: the actor of one queue: its messages, consumers and channels, its calls, its life.

Its pair, the backing actor, stores the messages. The backing queue is called inline (``backing``), so that a batch
costs no turn of the other half. ``ready`` is the number of ready messages, counted here so that no call is needed.

Publish: when no message is ready and consumers wait, messages go straight to them. Those for consumers
that do not acknowledge are only discarded in the backing queue; the others are ``publish_delivered``.
The rest is published, and ``run_message_queue`` delivers it as soon as a consumer has room. A turn delivers at most
one batch; then the queue sends itself a ``Continue``. Invariant at the end of a turn:
when messages are ready and a consumer is in its ring, a ``Continue`` is under way, or the backing queue
owes a ``FetchReady``.

Requeue: many messages, and the messages of ended channels, are requeued in later turns (``requeueing.py``). Nothing is
delivered until all are back.

Expiry: messages that expire when no consumer is ready to take them (TTL 0) are all offered at once,
beyond the budget of a turn, since they would have expired by the next turn.

Calls that must see all messages wait while some are being requeued, as a get waits until all expired messages are
dropped and contents are read.

Delete: a deleted queue still answers the mails in its mailbox (publishes are confirmed, calls get
``NotFound``) and ends ``normal`` behind them.

Differs from RabbitMQ: ``Resume`` does not overtake the ``Requeue`` that made the room, so that requeued messages are
delivered before younger ones. ``Stat`` waits behind the publishes before it, so that a client which publishes and then
declares passively finds its messages counted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import filterfalse
from typing import TYPE_CHECKING, Any, ClassVar, Final

from leveret.actors.gen_server import NOREPLY, From, GenServer
from leveret.actors.runtime.signals import Down
from leveret.amqp.errors import AccessRefused, PreconditionFailed, SoftError
from leveret.broker import mail, queue_requests
from leveret.broker.mail import Ack, Publish, Reject, Requeue, Resume
from leveret.broker.queue import mailbox
from leveret.broker.queue.arguments import locked
from leveret.broker.queue.consumers import remote_channels
from leveret.broker.queue.consumers.allotments import batch_limit, within_limit
from leveret.broker.queue.consumers.consumer import ChannelRecord
from leveret.broker.queue.consumers.consumers import Consumers, refuses
from leveret.broker.queue.consumers.dispatch import Dispatch, fetch_one
from leveret.broker.queue.dead_letters.dead_letters import DeadLetters, has_dead_letter_exchange
from leveret.broker.queue.dead_letters.rules import DeathRules
from leveret.broker.queue.deletion_notices import DeletionNotices
from leveret.broker.queue.limits.delivery_counts import DELIVERY_LIMIT, counts_of
from leveret.broker.queue.limits.expiry import MessageExpiry, UnusedTimer, expired_at
from leveret.broker.queue.limits.overflow import overflow_of
from leveret.broker.queue.publishers.deduplication import Deduplication
from leveret.broker.queue.publishers.publishers import Publishers
from leveret.broker.queue.requeueing import Requeueing
from leveret.broker.queue.returning import ReturningChannels
from leveret.broker.queue.stats import stats_of
from leveret.broker.queue.storage.retention import apply_retention
from leveret.broker.queue.turn_budget import TurnBudget
from leveret.broker.registry.registry import QueueFailed, QueueUp
from leveret.broker.remote.mail_between_nodes import (
    DeliveryRoom,
    PrefetchGranted,
    PrefetchUnused,
    is_remote,
)
from leveret.core.limits import TURN_MESSAGES
from leveret.queue_backing.api import Confirmed, FetchReady, Refused
from leveret.queue_backing.proxy import BackingProxy

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.broker.queue.limits.overflow import Overflow
    from leveret.broker.registry.registry import QueueEntry

_PART_COST: Final = 20  # of a part of a run that is taken in by itself, in messages


class AmqQueue(GenServer):
    """One queue; its ``init`` takes the registry entry, in which ``backing`` is up already.

    Attributes:
        backing: its backing queue.
        ready: how many messages are ready.
        consumers: None until the first has come.
        publishers: None while nobody publishes.
        deduplication: of publishes with producers' numbers.
        expiry: of its messages.
        overflow: None: there is no length limit.
        dead_letters: None until a message has been dead-lettered.
        requeueing: messages on their way back; None: there are none.
        is_deleted: it still confirms publishes.
    """

    __slots__ = ("_budget", "_continues", "_dispatch", "_entry", "_head_bytes", "_is_backlogged", "_notices",
        "_returning", "_turns", "_unused_timer", "_waiting_calls", "backing", "consumers", "dead_letters",
        "deduplication", "expiry", "is_deleted", "overflow", "publishers", "ready", "requeueing")  # fmt: skip

    # Differs from RabbitMQ: acks do not overtake publishes unless other mail has to be sorted.
    unsorted: ClassVar[frozenset[type]] = frozenset({mail.Publish, mail.Ack})

    def init(self, entry: QueueEntry) -> None:
        """Take over the backing queue and announce this incarnation."""
        assert entry.backing is not None, "the backing actor is started first"
        self.charge_to_callers()
        # First what each message needs: compiled, fields lie in memory in this order.
        self._turns = self.runtime.turns
        self.backing = BackingProxy(self._turns, entry.backing)
        self.consumers: Consumers | None = None
        self.publishers: Publishers | None = None
        self.overflow: Overflow | None = None
        self.requeueing: Requeueing | None = None
        self.ready: int = self.backing.attach(self.ref)
        self.is_deleted = False
        self._is_backlogged = entry.is_backlogged
        self._continues = False
        self._budget = TurnBudget(self._turns, self.ref)
        self._dispatch: Dispatch  # set with the first consumer
        self._entry = entry
        self.deduplication = Deduplication(
            self.runtime, self.ref, entry, self.backing, self._budget
        )
        self.expiry = MessageExpiry(recovered=self.ready > 0)
        self.dead_letters: DeadLetters | None = None
        self._waiting_calls: list[tuple[Any, From]] | None = None
        self._head_bytes = 0  # the largest mean header of a run, since the backlog began
        self._notices: DeletionNotices  # set when it is deleted
        self._unused_timer: UnusedTimer | None = None
        self._returning: ReturningChannels | None = None
        if self.ready:
            self.run_later()
        if entry.exclusive is not None:
            self.monitor(entry.exclusive)
        self._apply_settings()
        watchers = entry.up(self.ref)
        for channel in filterfalse(is_remote, watchers):  # directories tell the others
            self.post(channel, QueueUp(entry))
        if entry.auto_delete and entry.was_consumed:
            self._returning = ReturningChannels(watchers, self.monitor, self.demonitor)
            self.post(self.ref, mailbox.CHECK_RETURNED)

    def _apply_settings(self) -> None:
        """Apply the arguments and policies in effect; a queue mode without its policy stays, as in RabbitMQ."""
        settings, backing = self._entry.settings, self.backing
        backing.counts = counts_of(self._entry, backing.counts, self._give_up)
        self.expiry.set_ttl(settings.message_ttl_ms, backing)
        if settings.queue_mode is not None:
            backing.set_queue_mode(settings.queue_mode)
        if self._unused_timer is not None:
            self._unused_timer.cancel()
            self._unused_timer = None
        if settings.expires_ms is not None:
            start = partial(self.start_bulk_timer, message=mailbox.MAYBE_EXPIRE)
            self._unused_timer = UnusedTimer(settings.expires_ms, self.runtime.clock, start)
        self.overflow = overflow_of(settings, backing, self._entry.durable)
        apply_retention(self._entry)
        if self.publishers is not None:
            self.publishers.release_credit()

    def on_policy_changed(self, _: mail.PolicyChanged) -> None:
        if not self.is_deleted:
            self._apply_settings()
            if self.ready:
                self.run_later()

    def _give_up(self, seqs: list[int]) -> None:
        """Dead-letter or drop unacked messages that came back too often."""
        if (dead_letters := self.open_dead_letters()) is not None:
            dead_letters.take_unacked(seqs, DELIVERY_LIMIT)
        else:
            self.backing.ack(seqs)

    def prioritise(self, message: Any) -> int:
        """Return RabbitMQ's priorities, except for ``Requeue``."""
        return mailbox.level_of(message, self._entry.exclusive)

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        """Handle a mail: mails of ordinary messages here, all others through ``_CASTS``."""
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
            handle = _CASTS.get(kind)
            if handle is None:
                return super().handle_mail(message, sender)
            return handle(self, message)
        return None

    def handle_call(self, request: Any, frm: object) -> Any:
        """Answer a call; a ``SoftError`` is returned, not raised. When a handler returns NOREPLY, the call waits."""
        handle = _CALLS.get(type(request))
        if handle is None:
            return super().handle_call(request, None)
        if self.is_deleted:
            return mailbox.ANSWERS_OF_A_DELETED.get(type(request), self._entry.missing())
        must_wait = self.requeueing is not None and type(request) in mailbox.SEE_ALL_MESSAGES
        answer = NOREPLY if must_wait else handle(self, request)
        if answer is NOREPLY:
            assert isinstance(frm, From), "an inline call cannot wait"
            self._waiting_calls = self._waiting_calls or []
            self._waiting_calls.append((request, frm))
        return answer

    def _answer_waiting(self) -> None:
        """Answer calls that had to wait, in order, up to the first that must wait again."""
        waiting, self._waiting_calls = self._waiting_calls or [], None
        for position, (request, frm) in enumerate(waiting):
            answer = self.handle_call(request, frm)
            if answer is NOREPLY:
                self._waiting_calls = waiting[position:]
                return
            self.runtime.reply(frm, answer)

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
        expiries = self.expiry.deadlines(publish.expiration_ms, self.runtime.clock, count)
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
            self.run_later()
        elif self.ready:
            self.run_message_queue()
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
            start_timer = partial(self.start_bulk_timer, message=mailbox.CLOSE_ACCOUNTS)
            self.publishers = Publishers(self._turns, self.ref, start_timer)
        return self.publishers

    # Delivering.

    def open_consumers(self) -> Consumers:
        if self.consumers is None:
            is_single = self._entry.settings.single_active_consumer
            self.consumers = Consumers(self.ref, is_single, self.runtime.clock.monotonic_s)
            self._dispatch = Dispatch(
                self.runtime, self.ref, self._entry, self.backing, self.expiry
            )
        return self.consumers

    def run_later(self) -> None:
        """Go on in the next turn."""
        if not self._continues:
            self._continues = True
            self._turns.again(self.ref, mailbox.CONTINUE)

    def _continued(self) -> None:
        self._continues = False
        if self.is_deleted:
            return
        if self.requeueing is not None:
            self._requeue_some(self.requeueing)
        if self.requeueing is not None:
            self.run_later()
            return
        if self._waiting_calls:
            self._answer_waiting()
        self.run_message_queue()

    def run_message_queue(self) -> None:
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
            self.run_later()

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
            self.run_message_queue()

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
                self.run_later()
        if self.publishers is not None:
            overflow.control_credit(self.publishers, self.dead_letters, is_above)

    # Messages that die.

    def open_dead_letters(self) -> DeadLetters | None:
        """Return where messages go that die now; None: they are dropped."""
        if not has_dead_letter_exchange(self._entry):
            return None
        if self.dead_letters is None:
            rules = DeathRules(self._entry)
            self.dead_letters = DeadLetters(self, self._entry, self.backing, rules, self._budget)
        return self.dead_letters

    def drop_expired(self) -> bool:
        """Drop or dead-letter expired messages from the head; return whether those were all."""
        now_ms, dead_letters = int(self.runtime.clock.wall_s() * 1000), self.open_dead_letters()
        start = partial(self.start_bulk_timer, message=mailbox.DROP_EXPIRED)
        dropped = self.expiry.drop_expired(self.backing, dead_letters, now_ms, start, self._entry)
        self.ready -= dropped.count
        if dead_letters is not None or dropped.count:  # damaged messages are gone as well
            self.ready = self.backing.len()
        self._budget.charge(dropped.count)
        if dropped.head is None or not expired_at(now_ms)(dropped.head):
            return dead_letters is None or not dropped.pending
        if dead_letters is None or dead_letters.room():
            self.run_later()
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
            self._turns.again(self.ref, settled)
        unblocked = self.consumers is not None and self.consumers.settle(
            settled.channel, settled.consumer, seqs
        )
        if dead_letters is None:
            self.backing.ack(seqs)
        else:
            dead_letters.take_unacked(seqs)
        self._budget.charge(len(seqs))
        if unblocked:
            self.run_message_queue()

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
        self.run_message_queue()

    def requeue_later(self) -> Requeueing:
        """Return what takes messages that are requeued in later turns."""
        if self.requeueing is None:
            self.requeueing = Requeueing()
            self.run_later()
        return self.requeueing

    def _requeue_some(self, requeueing: Requeueing) -> None:
        if seqs := requeueing.turn(self.consumers):
            self.ready += self.backing.requeue(seqs)
        if requeueing.is_done():
            self.requeueing = None

    # Timers and watchers.

    def on_down(self, down: Down) -> None:
        if down.ref is self._entry.exclusive:
            self._delete()
        else:
            self._channel_down(down.ref)
            self._returns_no_more(down.ref)
            self.on_dead_letter_mail(down)

    def _touch(self) -> None:
        if self._unused_timer is not None:
            self._unused_timer.used()

    def on_maybe_expire(self, _: mailbox.MaybeExpire) -> None:
        if self._unused_timer and self._unused_timer.fired(bool(self._consumer_count())):
            self._delete()

    def on_close_accounts(self, _: mailbox.CloseAccounts) -> None:
        """Close the accounts of channels that publish no more."""
        publishers = self.publishers
        if publishers is not None and not publishers.close_idle():
            self.publishers = None

    # Messages that were waited for.

    def on_fetch_ready(self, _: FetchReady) -> None:
        """Go on with messages that have been read."""
        if self.dead_letters is not None:
            self.dead_letters.send_waiting()
        if self._waiting_calls:
            self._answer_waiting()
        self.run_message_queue()

    def on_dead_letter_mail(self, message: object) -> None:
        """Hand on mail about dead letters; go on with messages that had to wait until others have arrived."""
        if self.dead_letters is None or self.is_deleted:
            return
        self.dead_letters.handle(message)
        if self._waiting_calls:
            self._answer_waiting()
        self.run_message_queue()

    def on_drop_expired(self, _: mailbox.DropExpired) -> None:
        self.expiry.fired()
        self.run_message_queue()

    # Consumers and channels.

    def on_room_given(self, given: DeliveryRoom | PrefetchGranted) -> None:
        """A channel of another node takes more; places of its prefetch that are not used now go back."""
        remote_channels.give(self.consumers, given)
        self.resume(given.channel)
        if unused := remote_channels.unused_prefetch(self.consumers, given):
            self.post(given.channel, PrefetchUnused(self.ref, unused))

    def _consumer_count(self) -> int:
        consumers = self.consumers
        return consumers.count if consumers is not None else 0

    def _channel_record(self, channel: Ref) -> ChannelRecord:
        record = self.open_consumers().channel(channel)
        if record.monitor is None:
            record.monitor = self.monitor(channel)
        return record

    def consume(self, consume: queue_requests.Consume) -> SoftError | None:
        entry, consumers = self._entry, self.consumers
        if self._returning is not None:
            self._returning.forget(consume.channel)
        if entry.exclusive is not None and consume.owner is not entry.exclusive:
            return locked(entry.name, entry.vhost_name)
        if consumers is not None and consumers.has(consume.channel, consume.tag):
            return None  # asked before and after a restart, or told of two restarts
        if refuses(consumers, consume, entry.settings):
            return AccessRefused(f"{entry} in exclusive use")
        self._channel_record(consume.channel)
        self.open_consumers().add(consume)
        if is_remote(consume.channel):
            remote_channels.attach(consume, entry, self.ref, self.post)
        if self.ready:
            self.run_later()  # not now: the answer comes before the first delivery
        return None

    def cancel(self, cancel: queue_requests.Cancel) -> None:
        consumers = self.consumers
        if consumers is None or not consumers.remove(cancel.channel, cancel.tag):
            return
        if is_remote(cancel.channel) and not consumers.channels[cancel.channel].consumers:
            self._entry.unwatch(cancel.channel)
        if consumers.channels[cancel.channel].is_idle():
            self._drop_channel(consumers, cancel.channel)
        self._consumers_left()

    def leave(self, leave: queue_requests.Leave) -> None:
        self._forget_channel(leave.channel)
        self._returns_no_more(leave.channel)

    def _returns_no_more(self, channel: Ref) -> None:
        if self._returning is not None:
            self._returning.forget(channel)
            self.on_check_returned()

    def on_check_returned(self, _: mailbox.CheckReturned | None = None) -> None:
        if not self._returning and not self._consumer_count():
            self._delete()

    def _channel_down(self, channel: Ref) -> None:
        consumers = self.consumers
        record = consumers.channels.get(channel) if consumers is not None else None
        if record is not None:
            record.monitor = None
            self._forget_channel(channel)

    def _forget_channel(self, channel: Ref) -> None:
        """Remove the consumers of a channel, and have its unacked messages requeued in a later turn.

        All channels of a connection end together; their messages are requeued in one later turn, so none is
        delivered to a channel that is about to end.
        """
        if self.consumers is None or channel not in self.consumers.channels:
            return
        gone, owed = self._drop_channel(self.consumers, channel)
        self._entry.unwatch(channel)
        if gone:
            self._consumers_left()
        if self.requeueing is not None:
            self.requeueing.forget(channel)
        if owed and not self.is_deleted:
            self.requeue_later().give_back(owed)

    def _drop_channel(self, consumers: Consumers, channel: Ref) -> tuple[int, list[set[int]]]:
        if (monitor := consumers.channels[channel].monitor) is not None:
            self.demonitor(monitor)
        return consumers.remove_channel(channel)

    def _consumers_left(self) -> None:
        """Delete an auto-delete queue without consumers, or restart ``x-expires``; another may be active now."""
        if self._consumer_count():
            if self.ready:
                self.run_later()
            return
        if self._entry.auto_delete:
            self._delete()
        else:
            self._touch()

    # Calls.

    def get(self, get: queue_requests.Get) -> Any:
        self._touch()
        if self.expiry.may_expire and not self.drop_expired():
            return NOREPLY
        fetched = fetch_one(self.backing, not get.no_ack)
        if not fetched.messages:
            self.ready = self.backing.len()
            return NOREPLY if fetched.pending else None
        self.ready -= 1
        seq = None
        if not get.no_ack:
            seq = fetched.seqs[0]
            self._channel_record(get.channel).owe(fetched.seqs)
        message, counts = fetched.messages[0], self.backing.counts
        if counts is not None:
            message = counts.got(message, fetched.seqs[0], get.no_ack)
        if self.expiry.may_expire:
            self.drop_expired()
        return self.ref, message, seq, bool(fetched.redelivered), self.ready

    def stat(self, stat: queue_requests.Stat) -> tuple[int, int]:
        if stat.touch:
            self._touch()
        return self.ready, self._consumer_count()

    def purge(self, _: queue_requests.Purge) -> int:
        counts = self.backing.counts
        self.ready = 0
        if counts:
            counts.keep_only(self.consumers.unacked() if self.consumers is not None else ())
        return self.backing.purge()

    def delete_if(self, delete: queue_requests.Delete) -> int | SoftError:
        ready = self.ready
        if delete.if_empty and ready:
            return PreconditionFailed(f"{self._entry} not empty")
        if delete.if_unused and self._consumer_count():
            return PreconditionFailed(f"{self._entry} in use")
        self._delete()
        return ready

    def info(self, info: queue_requests.Info) -> dict[str, Any]:
        """Answer the requested figures, or all, by RabbitMQ's names."""
        producers = self.deduplication.count()
        return stats_of(self._entry, self.consumers, self.backing, producers, info.items)

    # The end.

    def _delete(self) -> None:
        """Delete the queue; mails in its mailbox are still answered."""
        if self.is_deleted:
            return
        if self._unused_timer is not None:
            self._unused_timer.cancel()
        self._notices = DeletionNotices(
            self.ref, self.consumers, self.publishers, self.post, self.demonitor
        )
        self._notices.post_some()
        self._delete_messages()
        self._entry.deleted()
        self._answer_waiting()
        self.runtime.again(self.ref, mailbox.FINISH)

    def _delete_messages(self) -> None:
        self.is_deleted = True
        self.expiry.cancel()
        if self.dead_letters is not None:
            self.dead_letters.end()
        self.consumers = self.publishers = self.requeueing = None
        self.ready = 0
        self.backing.delete_and_terminate()

    def on_finish(self, _: mailbox.Finish) -> None:
        if self._notices.post_some():
            self.runtime.again(self.ref, mailbox.FINISH)
        else:
            self.stop()

    def terminate(self, reason: object) -> None:
        """Tell watchers of the crash when the supervisor was killed and cannot."""
        supervisor = self._entry.supervisor
        if supervisor is not None and not supervisor.is_alive:
            for channel in self._entry.crashed():
                self.post(channel, QueueFailed(self._entry))


_CASTS: Final[dict[type, Callable[[AmqQueue, Any], object]]] = {
    DeliveryRoom: AmqQueue.on_room_given,
    PrefetchGranted: AmqQueue.on_room_given,
    FetchReady: AmqQueue.on_fetch_ready,
    mailbox.Finish: AmqQueue.on_finish,
    mailbox.CheckReturned: AmqQueue.on_check_returned,
    mail.PolicyChanged: AmqQueue.on_policy_changed,
    Down: AmqQueue.on_down,
    mailbox.DropExpired: AmqQueue.on_drop_expired,
    mailbox.MaybeExpire: AmqQueue.on_maybe_expire,
    mailbox.CloseAccounts: AmqQueue.on_close_accounts,
    mail.Confirm: AmqQueue.on_dead_letter_mail,
    mail.QueueDeleted: AmqQueue.on_dead_letter_mail,
    mailbox.SendDeadLetters: AmqQueue.on_dead_letter_mail,
    mailbox.RetryDeadLetters: AmqQueue.on_dead_letter_mail,
}
_CALLS: Final[dict[type, Callable[[AmqQueue, Any], Any]]] = {
    queue_requests.Consume: AmqQueue.consume,
    queue_requests.Cancel: AmqQueue.cancel,
    queue_requests.Get: AmqQueue.get,
    queue_requests.Leave: AmqQueue.leave,
    queue_requests.Stat: AmqQueue.stat,
    queue_requests.Purge: AmqQueue.purge,
    queue_requests.Delete: AmqQueue.delete_if,
    queue_requests.Info: AmqQueue.info,
    queue_requests.ListProducers: lambda self, _: self.deduplication.listed(),
    queue_requests.ForgetProducer: lambda self, asked: self.deduplication.forget(asked.producer),
}
