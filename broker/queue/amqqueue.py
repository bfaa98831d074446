"""AmqQueue: the actor of one queue. It serves publishers and consumers; its pair stores the messages.

The backing queue is called inline (``_backing``), so that a batch costs no turn of the other half.
``_ready`` is the number of ready messages, counted here so that no call is needed for it.

Publish: when no message is ready and consumers wait, messages go straight to them. Those for consumers
that do not acknowledge are only discarded in the backing queue; the others are ``publish_delivered``.
The rest is published, and ``_go_on`` delivers it as soon as a consumer has room. A turn delivers at most
one batch; then the actor sends itself a ``Continue``. Invariant at the end of a turn:
when messages are ready and a consumer is in its ring, a ``Continue`` is under way, or the backing queue
owes a ``FetchReady``.

Requeue: many messages, and those of ended channels, are requeued in later turns (``requeueing.py``). Nothing is
delivered until all are back, and calls that must see all of them wait (``_waiting_calls``), as a get waits until all
expired messages are dropped and contents are read.

Expiry: messages that expire when no consumer is ready to take them (TTL 0) are all offered at once,
whatever the budget of a turn, since the next turn would find them expired.

Delete: a deleted queue still answers the mails in its mailbox (publishes are confirmed, calls get
``NotFound``) and ends ``normal`` behind them.

Differs from RabbitMQ: ``Stat`` waits behind the publishes before it, so that a client which
publishes and then declares passively finds its messages counted; ``Resume`` does not overtake the
``Requeue`` that made the room, so that requeued messages are delivered before younger ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import filterfalse
from typing import TYPE_CHECKING, Any, ClassVar, Final

from leveret.actors.gen_server import NOREPLY, From, GenServer
from leveret.actors.runtime.signals import Down
from leveret.amqp.errors import AccessRefused, PreconditionFailed, SoftError
from leveret.broker import mail
from leveret.broker.mail_between_nodes import DeliveryRoom, Places, PlacesUnused, is_remote
from leveret.broker.queue import mailbox
from leveret.broker.queue.arguments import locked
from leveret.broker.queue.consumers import remote_channels
from leveret.broker.queue.consumers.allotments import batch_limit, within_limit
from leveret.broker.queue.consumers.consumer import ChannelRecord
from leveret.broker.queue.consumers.consumers import Consumers, refuses
from leveret.broker.queue.consumers.dispatch import Dispatch, fetch_one
from leveret.broker.queue.dead_letters.dead_letters import DeadLetters, has_dead_letter_exchange
from leveret.broker.queue.dead_letters.letter_rules import DeathRules
from leveret.broker.queue.deletion_notices import DeletionNotices
from leveret.broker.queue.expiry import MessageExpiry, UnusedTimer, expired_at
from leveret.broker.queue.figures import figures_of
from leveret.broker.queue.limits.delivery_counts import DELIVERY_LIMIT, counts_of
from leveret.broker.queue.limits.overflow import Overflow, overflow_of
from leveret.broker.queue.numbered import NumberedPublishes
from leveret.broker.queue.publishers import Publishers
from leveret.broker.queue.registry import QueueFailed, QueueUp
from leveret.broker.queue.requeueing import Requeueing
from leveret.broker.queue.retention import apply_retention
from leveret.broker.queue.returning import ReturningChannels
from leveret.core.limits import TURN_MESSAGES
from leveret.queue_backing.api import Confirmed, FetchReady, Refused
from leveret.queue_backing.proxy import BackingProxy

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.broker.queue.registry import QueueEntry


_PART_COST: Final = 20  # of a part of a run that is taken in by itself, in messages


class AmqQueue(GenServer):
    """One queue; its ``init`` takes the registry entry, in which ``backing`` is up already."""

    __slots__ = ("_backing", "_consumers", "_continues", "_dispatch", "_entry", "_expiry", "_head_bytes",
        "_is_deleted", "_letters", "_messages_left", "_notices", "_numbered", "_overflow", "_publishers",
        "_ready", "_requeueing", "_returning", "_unused_timer", "_waiting_calls")  # fmt: skip

    # Differs from RabbitMQ: acks do not overtake publishes unless other mail has to be sorted.
    unsorted = frozenset({mail.Publish, mail.Ack})

    def init(self, entry: QueueEntry) -> None:
        """Take over the backing queue and announce this incarnation."""
        assert entry.backing is not None, "the backing actor is started first"
        self._entry = entry
        self._backing = BackingProxy(self.runtime.turns, entry.backing)
        self._ready = self._backing.attach(self.ref)
        self._consumers: Consumers | None = None
        self._publishers: Publishers | None = None
        self._numbered = NumberedPublishes(self, entry, self._backing)
        self._expiry = MessageExpiry(recovered=bool(self._ready))
        self._unused_timer: UnusedTimer | None = None
        self._continues = self._is_deleted = False
        self._messages_left = TURN_MESSAGES
        self._head_bytes = 0  # the largest mean header of a run, since the backlog began
        self._requeueing: Requeueing | None = None  # None: no message is on its way back
        self._waiting_calls: list[tuple[Any, From]] | None = None
        self._returning: ReturningChannels | None = None
        self._dispatch: Dispatch  # set with the first consumer
        self._overflow: Overflow | None = None  # None: there is no length limit
        self._letters: DeadLetters | None = None  # set with the first dead letter
        if self._ready:
            self._continue()
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
        settings, backing = self._entry.settings, self._backing
        backing.counts = counts_of(self._entry, backing.counts, self._give_up)
        self._expiry.set_ttl(settings.message_ttl_ms, self._backing)
        if settings.queue_mode is not None:
            self._backing.set_queue_mode(settings.queue_mode)
        if self._unused_timer is not None:
            self._unused_timer.cancel()
            self._unused_timer = None
        if settings.expires_ms is not None:
            start = partial(self.start_bulk_timer, message=mailbox.MAYBE_EXPIRE)
            self._unused_timer = UnusedTimer(settings.expires_ms, self.runtime.clock, start)
        self._overflow = overflow_of(settings, self._backing, self._entry.durable)
        apply_retention(self._entry)
        if self._publishers is not None:
            self._publishers.release_credit()

    def _policy_changed(self, _: mail.PolicyChanged) -> None:
        if not self._is_deleted:
            self._apply_settings()
            if self._ready:
                self._continue()

    def prioritise(self, message: Any) -> int:
        """Return RabbitMQ's priorities, except for ``Requeue``."""
        return mailbox.level_of(message, self._entry.exclusive)

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        """Handle the mails in ``CASTS``; a GenServer handles the others."""
        handle = _CASTS.get(type(message))
        if handle is None:
            return super().handle_mail(message, sender)
        return handle(self, message)

    def handle_call(self, request: Any, frm: object) -> Any:
        """Answer a call; a ``SoftError`` is returned, not raised. When a handler returns NOREPLY, the call waits."""
        handle = _CALLS.get(type(request))
        if handle is None:
            return super().handle_call(request, None)
        if self._is_deleted:
            return mailbox.ANSWERS_OF_A_DELETED.get(type(request), self._entry.missing())
        must_wait = self._requeueing is not None and type(request) in mailbox.SEE_ALL_MESSAGES
        answer = NOREPLY if must_wait else handle(self, request)
        if answer is NOREPLY:
            assert isinstance(frm, From), "an inline call cannot wait"
            self._waiting_calls = self._waiting_calls or []
            self._waiting_calls.append((request, frm))
        return answer

    def _down(self, down: Down) -> None:
        if down.ref is self._entry.exclusive:
            self._delete()
        else:
            self._channel_down(down.ref)
            self._returns_no_more(down.ref)
            self._handle_letter_mail(down)

    def _touch(self) -> None:
        if self._unused_timer is not None:
            self._unused_timer.used()

    def _maybe_expire(self, _: mailbox.MaybeExpire) -> None:
        if self._unused_timer and self._unused_timer.fired(bool(self._consumer_count())):
            self._delete()

    # Publishing.

    def take_in(self, publish: mail.Publish, is_admitted: bool = False) -> tuple[int, int] | None:
        """Take a run in; see ``NumberedQueue``. One of producers comes back without their numbers, in parts."""
        consumers, overflow = self._consumers, self._overflow
        if publish.numbered is not None and not self._is_deleted:
            self._numbered.publish(publish, overflow is not None and overflow.takes_parts)
            return None
        if (
            self._is_deleted or (overflow is not None and overflow.takes_parts)
        ) and not is_admitted:
            return self._take_in_or_refuse(publish)
        self.charge(len(publish.messages))
        publishers = self._publishers
        if publishers is None:
            publishers = self.open_publishers()
        nothing_waits = not self._ready and not self._requeueing
        if (
            nothing_waits
            and consumers is not None
            and consumers.active == 1
            and (base := self._dispatch.straight_whole(publish, publishers, consumers.only()))
            is not None
        ):
            return base, 0 if base >= 0 else len(publish.messages)
        messages, count = publish.messages, len(publish.messages)
        persistent = publish.persistent and self._entry.durable
        size_bytes = sum([each[2] for each in publish.publishers])
        expiries = self._expiry.deadlines(publish.expirations, self.runtime.clock, count)
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
            self._head_bytes = max(self._ready and self._head_bytes, publish.head_bytes // count)
            first, safe = self._backing.publish(
                messages[taken:] if taken else messages,
                persistent,
                expiries[taken:] if expiries else None,
                None if taken else size_bytes - publish.head_bytes,
                False,
                publish.first_msg_no + taken,
            )
            self._ready += count - taken
            base = first - taken
            unsafe_from = unsafe_from if safe else min(unsafe_from, taken)
        publishers.published(publish, unsafe_from, base)
        if taken and self._ready and consumers is not None and consumers.active:
            self._continue()
        elif self._ready:
            self._go_on()
        return base, rows_from

    def _take_in_or_refuse(self, publish: mail.Publish) -> tuple[int, int] | None:
        """Take in the messages that fit into a queue that refuses others; a deleted one confirms all."""
        publishers = self.open_publishers()
        if self._is_deleted:
            publishers.confirm_all(publish)
            return None
        self.charge(len(publish.messages))
        assert self._overflow is not None
        place = None
        for part in self._overflow.admitted(publish, publishers, self._dead_letters()):
            place = self.take_in(part, is_admitted=True)
            self.charge(_PART_COST)
        return place

    def _became_safe(self, confirmed: Confirmed) -> None:
        if self._publishers is not None:
            self._publishers.confirm(confirmed.runs)
        self._numbered.became_safe(confirmed.runs)

    def _refused(self, refused: Refused) -> None:
        if self._publishers is not None:
            self._publishers.confirm(refused.runs, ok=False)
        self._numbered.refused(refused.runs)

    def open_publishers(self) -> Publishers:
        if self._publishers is None:
            look_in = partial(self.start_bulk_timer, message=mailbox.CLOSE_ACCOUNTS)
            self._publishers = Publishers(self.runtime, self.ref, look_in)
        return self._publishers

    def _close_accounts(self, _: mailbox.CloseAccounts) -> None:
        """Close the accounts of channels that publish no more."""
        if self._publishers is not None and not self._publishers.close_idle():
            self._publishers = None

    # Delivering.

    def charge(self, count: int) -> None:
        """Count messages that a mail took; a turn ends when they are a turn's worth."""
        self._messages_left -= count
        if self._messages_left <= 0:
            self._messages_left = TURN_MESSAGES
            self.runtime.end_turn(self.ref)

    def _continue(self) -> None:
        if not self._continues:
            self._continues = True
            self.runtime.again(self.ref, mailbox.CONTINUE)

    def _continued(self, _: mailbox.Continue) -> None:
        self._continues = False
        if self._is_deleted:
            return
        if self._requeueing is not None:
            self._requeue_some(self._requeueing)
        if self._requeueing is not None:
            self._continue()
            return
        if self._waiting_calls:
            self._answer_waiting()
        self._go_on()

    def _answer_waiting(self) -> None:
        """Answer calls that had to wait, in order, up to the first that must wait again."""
        waiting, self._waiting_calls = self._waiting_calls or [], None
        for position, (request, frm) in enumerate(waiting):
            answer = self.handle_call(request, frm)
            if answer is NOREPLY:
                self._waiting_calls = waiting[position:]
                return
            self.runtime.reply(frm, answer)

    def _fetch_ready(self, _: FetchReady) -> None:
        """Go on with messages that have been read."""
        if self._letters is not None:
            self._letters.go_on()
        if self._waiting_calls:
            self._answer_waiting()
        self._go_on()

    def _go_on(self) -> None:
        """Keep the length limits, drop expired messages, deliver as many as the consumers take."""
        if self._is_deleted:
            return
        overflow = self._overflow
        if overflow is not None:
            self._keep_limits(overflow)
        if self._ready and (not self._expiry.may_expire or self._drop_expired()):
            self._deliver_some()
            if overflow is not None:
                self._keep_limits(overflow)

    def _deliver_some(self) -> None:
        """Deliver a batch, as far as the consumers take it."""
        consumers = self._consumers
        if consumers is None or not consumers.active or not self._ready or self._requeueing:
            return
        wanted = min(self._ready, batch_limit(consumers.active, self._head_bytes))
        room = consumers.room_for(wanted)
        dealt, pending = self._fetch_and_deal(consumers, room) if room else (0, False)
        if dealt == room < wanted:
            consumers.block_all()
        if self._expiry.may_expire and self._ready:
            self._drop_expired()
        if self._ready and consumers.active and not pending:
            self._continue()

    def _fetch_and_deal(self, consumers: Consumers, room: int) -> tuple[int, bool]:
        """Deliver up to ``room`` messages; return how many, and whether the next must be read first."""
        fetched = self._dispatch.from_head(consumers, room)
        count = len(fetched.messages)
        # The backing queue drops messages that are damaged on the disk: count again.
        self._ready = self._ready - count if count == room else self._backing.len()
        self.charge(count)
        return count, fetched.pending

    def _resume(self, resume: mail.Resume) -> None:
        if self._consumers is not None and self._consumers.resume(resume.channel):
            self._go_on()

    def _given(self, given: DeliveryRoom | Places) -> None:
        """A channel of another node takes more; places of its prefetch that are not used now go back."""
        remote_channels.give(self._consumers, given)
        self._resume(mail.Resume(given.channel))
        if unused := remote_channels.unused_places(self._consumers, given):
            self.post(given.channel, PlacesUnused(self.ref, unused))

    def _keep_limits(self, overflow: Overflow, before_delivery: bool = False) -> None:
        """Drop or dead-letter messages from the head that are too many and that no consumer takes."""
        is_above, consumers = False, self._consumers
        if self._ready and not self._requeueing:
            if consumers is not None and consumers.active and not before_delivery:
                return
            is_above = overflow.drop(self._ready, self._dead_letters())
            before, self._ready = self._ready, self._backing.len()
            self.charge(before - self._ready)
            if is_above and before > self._ready:
                self._continue()
        if self._publishers is not None:
            overflow.control_credit(self._publishers, self._letters, is_above)

    def _dead_letters(self) -> DeadLetters | None:
        """Return where messages go that die now; None: they are dropped."""
        if not has_dead_letter_exchange(self._entry):
            return None
        if self._letters is None:
            rules = DeathRules(self._entry)
            self._letters = DeadLetters(self, self._entry, self._backing, rules)
        return self._letters

    def _handle_letter_mail(self, message: object) -> None:
        """Hand on mail about dead letters; go on with messages that had to wait until others have arrived."""
        if self._letters is None or self._is_deleted:
            return
        self._letters.handle(message)
        if self._waiting_calls:
            self._answer_waiting()
        self._go_on()

    # Settling.

    def _reject(self, reject: mail.Reject) -> None:
        self._ack(reject, self._dead_letters())

    def _ack(self, ack: mail.Ack | mail.Reject, letters: DeadLetters | None = None) -> None:
        if self._is_deleted:
            return
        seqs = ack.seqs
        if len(seqs) > TURN_MESSAGES:  # the rest in a later turn, before mail of lower priority
            some = slice(-TURN_MESSAGES, None) if letters is None else slice(TURN_MESSAGES)
            seqs = seqs[some]
            del ack.seqs[some]
            self.runtime.again(self.ref, ack)
        unblocked = self._consumers is not None and self._consumers.settle(
            ack.channel, ack.consumer, seqs
        )
        if letters is None:
            self._backing.ack(seqs)
        else:
            letters.take_unacked(seqs)
        self.charge(len(seqs))
        if unblocked:
            self._go_on()

    def _requeue(self, requeue: mail.Requeue) -> None:
        consumers = self._consumers
        if consumers is None or requeue.channel not in consumers.channels:
            return  # deleted, or the channel has left and all its messages are back already
        seqs = requeue.seqs
        if len(seqs) > TURN_MESSAGES:
            self._requeue_later().refuse(requeue)
            return
        self.charge(len(seqs))
        consumers.settle(requeue.channel, requeue.consumer, seqs)
        self._ready += self._backing.requeue(seqs)
        if self._overflow is not None:
            self._keep_limits(self._overflow, before_delivery=True)
        self._go_on()

    def _give_up(self, seqs: list[int]) -> None:
        """Dead-letter or drop unacked messages that came back too often."""
        if (letters := self._dead_letters()) is not None:
            letters.take_unacked(seqs, DELIVERY_LIMIT)
        else:
            self._backing.ack(seqs)

    def _requeue_later(self) -> Requeueing:
        if self._requeueing is None:
            self._requeueing = Requeueing()
            self._continue()
        return self._requeueing

    def _requeue_some(self, requeueing: Requeueing) -> None:
        if seqs := requeueing.turn(self._consumers):
            self._ready += self._backing.requeue(seqs)
        if requeueing.is_done():
            self._requeueing = None

    # Expiry.

    def _head_expired(self, _: mailbox.DropExpired) -> None:
        self._expiry.fired()
        self._go_on()

    def _drop_expired(self) -> bool:
        """Drop or dead-letter expired messages from the head; return whether those were all."""
        now_ms, letters = int(self.runtime.clock.wall_s() * 1000), self._dead_letters()
        start = partial(self.start_bulk_timer, message=mailbox.DROP_EXPIRED)
        dropped = self._expiry.drop_expired(self._backing, letters, now_ms, start, self._entry)
        self._ready -= dropped.count
        if letters is not None or dropped.count:  # damaged messages are gone as well
            self._ready = self._backing.len()
        self.charge(dropped.count)
        if dropped.head is None or not expired_at(now_ms)(dropped.head):
            return letters is None or not dropped.pending
        if letters is None or letters.room():
            self._continue()
        return False

    # Consumers and channels.

    def _consumer_count(self) -> int:
        return self._consumers.count if self._consumers is not None else 0

    def _channel_record(self, channel: Ref) -> ChannelRecord:
        if self._consumers is None:
            is_single = self._entry.settings.single_active_consumer
            self._consumers = Consumers(self.ref, is_single, self.runtime.clock.monotonic_s)
            self._dispatch = Dispatch(
                self.runtime, self.ref, self._entry, self._backing, self._expiry
            )
        record = self._consumers.channel(channel)
        if record.monitor is None:
            record.monitor = self.monitor(channel)
        return record

    def _consume(self, consume: mail.Consume) -> SoftError | None:
        entry, consumers = self._entry, self._consumers
        if self._returning is not None:
            self._returning.forget(consume.channel)
        if entry.exclusive is not None and consume.owner is not entry.exclusive:
            return locked(entry.name, entry.vhost_name)
        if consumers is not None and consumers.has(consume.channel, consume.tag):
            return None  # asked before and after a restart, or told of two restarts
        if refuses(consumers, consume, entry.settings):
            return AccessRefused(f"{entry} in exclusive use")
        self._channel_record(consume.channel)
        assert self._consumers is not None
        self._consumers.add(consume)
        if is_remote(consume.channel):
            remote_channels.attach(consume, entry, self.ref, self.post)
        if self._ready:
            self._continue()  # not now: the answer comes before the first delivery
        return None

    def _cancel(self, cancel: mail.Cancel) -> None:
        consumers = self._consumers
        if consumers is None or not consumers.remove(cancel.channel, cancel.tag):
            return
        if is_remote(cancel.channel) and not consumers.channels[cancel.channel].consumers:
            self._entry.unwatch(cancel.channel)
        if consumers.channels[cancel.channel].is_idle():
            self._drop_channel(cancel.channel)
        self._consumers_left()

    def _leave(self, leave: mail.Leave) -> None:
        self._forget_channel(leave.channel)
        self._returns_no_more(leave.channel)

    def _returns_no_more(self, channel: Ref) -> None:
        if self._returning is not None:
            self._returning.forget(channel)
            self._check_returned()

    def _check_returned(self, _: mailbox.CheckReturned | None = None) -> None:
        if not self._returning and not self._consumer_count():
            self._delete()

    def _channel_down(self, channel: Ref) -> None:
        record = self._consumers.channels.get(channel) if self._consumers is not None else None
        if record is not None:
            record.monitor = None
            self._forget_channel(channel)

    def _forget_channel(self, channel: Ref) -> None:
        """Remove the consumers of a channel, and have its unacked messages requeued in a later turn.

        All channels of a connection end together; their messages are requeued in one later turn, so none is
        delivered to a channel that is about to end.
        """
        if self._consumers is None or channel not in self._consumers.channels:
            return
        gone, owed = self._drop_channel(channel)
        self._entry.unwatch(channel)
        if gone:
            self._consumers_left()
        if self._requeueing is not None:
            self._requeueing.forget(channel)
        if owed and not self._is_deleted:
            self._requeue_later().give_back(owed)

    def _drop_channel(self, channel: Ref) -> tuple[int, list[set[int]]]:
        assert self._consumers is not None
        if (monitor := self._consumers.channels[channel].monitor) is not None:
            self.demonitor(monitor)
        return self._consumers.remove_channel(channel)

    def _consumers_left(self) -> None:
        """Delete an auto-delete queue without consumers, or restart ``x-expires``; another may be active now."""
        if self._consumer_count():
            if self._ready:
                self._continue()
            return
        if self._entry.auto_delete:
            self._delete()
        else:
            self._touch()

    # Calls.

    def _get(self, get: mail.Get) -> Any:
        self._touch()
        if self._expiry.may_expire and not self._drop_expired():
            return NOREPLY
        fetched = fetch_one(self._backing, not get.no_ack)
        if not fetched.messages:
            self._ready = self._backing.len()
            return NOREPLY if fetched.pending else None
        self._ready -= 1
        seq = None
        if not get.no_ack:
            seq = fetched.seqs[0]
            self._channel_record(get.channel).owe(fetched.seqs)
        message, counts = fetched.messages[0], self._backing.counts
        if counts is not None:
            message = counts.got(message, fetched.seqs[0], get.no_ack)
        if self._expiry.may_expire:
            self._drop_expired()
        return self.ref, message, seq, bool(fetched.redelivered), self._ready

    def _stat(self, stat: mail.Stat) -> tuple[int, int]:
        if stat.touch:
            self._touch()
        return self._ready, self._consumer_count()

    def _purge(self, _: mail.Purge) -> int:
        self._ready = 0
        if self._backing.counts:
            self._backing.counts.keep_only(self._consumers.unacked() if self._consumers else ())
        return self._backing.purge()

    def _delete_if(self, delete: mail.Delete) -> int | SoftError:
        if delete.if_empty and self._ready:
            return PreconditionFailed(f"{self._entry} not empty")
        if delete.if_unused and self._consumer_count():
            return PreconditionFailed(f"{self._entry} in use")
        ready = self._ready
        self._delete()
        return ready

    def _info(self, info: mail.Info) -> dict[str, Any]:
        """Answer figures by RabbitMQ's names; those asked for, or all."""
        producers = self._numbered.count()
        return figures_of(self._entry, self._consumers, self._backing, producers, info.items)

    # The end.

    def _delete(self) -> None:
        """Delete the queue; mails in its mailbox are still answered."""
        if self._is_deleted:
            return
        self._is_deleted = True
        self._expiry.cancel()
        if self._letters is not None:
            self._letters.end()
        if self._unused_timer is not None:
            self._unused_timer.cancel()
        self._notices = DeletionNotices(
            self.ref, self._consumers, self._publishers, self.post, self.demonitor
        )
        self._consumers = self._publishers = None
        self._notices.post_some()
        self._ready = 0
        self._requeueing = None
        self._backing.delete_and_terminate()
        self._entry.deleted()
        self._answer_waiting()
        self.runtime.again(self.ref, mailbox.FINISH)

    def _finish(self, _: mailbox.Finish) -> None:
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

    CASTS: ClassVar[dict[type, Callable[..., object]]] = {
        mail.Publish: take_in,
        mail.Ack: _ack,
        mail.Reject: _reject,
        mail.Requeue: _requeue,
        mail.Resume: _resume,
        DeliveryRoom: _given,
        Places: _given,
        mailbox.Continue: _continued,
        FetchReady: _fetch_ready,
        Confirmed: _became_safe,
        Refused: _refused,
        mailbox.Finish: _finish,
        mailbox.CheckReturned: _check_returned,
        mail.PolicyChanged: _policy_changed,
        Down: _down,
        mailbox.DropExpired: _head_expired,
        mailbox.MaybeExpire: _maybe_expire,
        mailbox.CloseAccounts: _close_accounts,
        mail.Confirm: _handle_letter_mail,
        mail.QueueDeleted: _handle_letter_mail,
        mailbox.SendLetters: _handle_letter_mail,
        mailbox.RetryLetters: _handle_letter_mail,
    }
    CALLS: ClassVar[dict[type, Callable[..., Any]]] = {
        mail.Consume: _consume,
        mail.Cancel: _cancel,
        mail.Get: _get,
        mail.Leave: _leave,
        mail.Stat: _stat,
        mail.Purge: _purge,
        mail.Delete: _delete_if,
        mail.Info: _info,
        mail.ListProducers: lambda self, _: self._numbered.listed(),
        mail.ForgetProducer: lambda self, asked: self._numbered.forget(asked.producer),
    }


_CASTS: Final = AmqQueue.CASTS
_CALLS: Final = AmqQueue.CALLS
