"""AmqQueue: the actor of one queue: its life, its consumers and channels, its calls.

The messages are its plain half's (``queue.py``), which takes the actor's mails first. The actor stands for it towards
supervisors, monitors, channels and callers.

Calls that must see all messages wait while some are being requeued, as a get waits until all expired messages are
dropped and contents are read (``Queue.waiting_calls``).

Delete: a deleted queue still answers the mails in its mailbox (publishes are confirmed, calls get
``NotFound``) and ends ``normal`` behind them.

Differs from RabbitMQ: ``Stat`` waits behind the publishes before it, so that a client which
publishes and then declares passively finds its messages counted.
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
from leveret.broker.queue import mailbox
from leveret.broker.queue.arguments import locked
from leveret.broker.queue.consumers import remote_channels
from leveret.broker.queue.consumers.consumer import ChannelRecord
from leveret.broker.queue.consumers.consumers import Consumers, refuses
from leveret.broker.queue.consumers.dispatch import fetch_one
from leveret.broker.queue.deletion_notices import DeletionNotices
from leveret.broker.queue.limits.delivery_counts import DELIVERY_LIMIT, counts_of
from leveret.broker.queue.limits.expiry import UnusedTimer
from leveret.broker.queue.limits.overflow import overflow_of
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.returning import ReturningChannels
from leveret.broker.queue.stats import stats_of
from leveret.broker.queue.storage.retention import apply_retention
from leveret.broker.registry.registry import QueueFailed, QueueUp
from leveret.broker.remote.mail_between_nodes import (
    DeliveryRoom,
    PrefetchGranted,
    PrefetchUnused,
    is_remote,
)
from leveret.queue_backing.api import FetchReady
from leveret.queue_backing.proxy import BackingProxy

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.broker.registry.registry import QueueEntry


class AmqQueue(GenServer):
    """One queue; its ``init`` takes the registry entry, in which ``backing`` is up already."""

    __slots__ = ("_entry", "_notices", "_returning", "_unused_timer", "queue")

    # Differs from RabbitMQ: acks do not overtake publishes unless other mail has to be sorted.
    unsorted = frozenset({mail.Publish, mail.Ack})

    def init(self, entry: QueueEntry) -> None:
        """Take over the backing queue and announce this incarnation."""
        assert entry.backing is not None, "the backing actor is started first"
        self._entry = entry
        self.queue = queue = Queue(self, entry, BackingProxy(self.runtime.turns, entry.backing))
        self.ref.cell.handler = queue
        self._unused_timer: UnusedTimer | None = None
        self._returning: ReturningChannels | None = None
        if queue.ready:
            queue.go_on_later()
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
        settings, queue, backing = self._entry.settings, self.queue, self.queue.backing
        backing.counts = counts_of(self._entry, backing.counts, self._give_up)
        queue.expiry.set_ttl(settings.message_ttl_ms, backing)
        if settings.queue_mode is not None:
            backing.set_queue_mode(settings.queue_mode)
        if self._unused_timer is not None:
            self._unused_timer.cancel()
            self._unused_timer = None
        if settings.expires_ms is not None:
            start = partial(self.start_bulk_timer, message=mailbox.MAYBE_EXPIRE)
            self._unused_timer = UnusedTimer(settings.expires_ms, self.runtime.clock, start)
        queue.overflow = overflow_of(settings, backing, self._entry.durable)
        apply_retention(self._entry)
        if queue.publishers is not None:
            queue.publishers.release_credit()

    def _policy_changed(self, _: mail.PolicyChanged) -> None:
        if not self.queue.is_deleted:
            self._apply_settings()
            if self.queue.ready:
                self.queue.go_on_later()

    def _give_up(self, seqs: list[int]) -> None:
        """Dead-letter or drop unacked messages that came back too often."""
        if (dead_letters := self.queue.open_dead_letters()) is not None:
            dead_letters.take_unacked(seqs, DELIVERY_LIMIT)
        else:
            self.queue.backing.ack(seqs)

    def prioritise(self, message: Any) -> int:
        """Return RabbitMQ's priorities, except for ``Requeue``."""
        return mailbox.level_of(message, self._entry.exclusive)

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        """Handle the mails in ``CASTS``, which the queue hands on; a GenServer handles the others."""
        handle = _CASTS.get(type(message))
        if handle is None:
            return super().handle_mail(message, sender)
        return handle(self, message)

    def handle_call(self, request: Any, frm: object) -> Any:
        """Answer a call; a ``SoftError`` is returned, not raised. When a handler returns NOREPLY, the call waits."""
        handle, queue = _CALLS.get(type(request)), self.queue
        if handle is None:
            return super().handle_call(request, None)
        if queue.is_deleted:
            return mailbox.ANSWERS_OF_A_DELETED.get(type(request), self._entry.missing())
        must_wait = queue.requeueing is not None and type(request) in mailbox.SEE_ALL_MESSAGES
        answer = NOREPLY if must_wait else handle(self, request)
        if answer is NOREPLY:
            assert isinstance(frm, From), "an inline call cannot wait"
            queue.waiting_calls = queue.waiting_calls or []
            queue.waiting_calls.append((request, frm))
        return answer

    def answer_waiting(self) -> None:
        """Answer calls that had to wait, in order, up to the first that must wait again."""
        queue = self.queue
        waiting, queue.waiting_calls = queue.waiting_calls or [], None
        for position, (request, frm) in enumerate(waiting):
            answer = self.handle_call(request, frm)
            if answer is NOREPLY:
                queue.waiting_calls = waiting[position:]
                return
            self.runtime.reply(frm, answer)

    def _down(self, down: Down) -> None:
        if down.ref is self._entry.exclusive:
            self._delete()
        else:
            self._channel_down(down.ref)
            self._returns_no_more(down.ref)
            self._handle_dead_letter_mail(down)

    def _touch(self) -> None:
        if self._unused_timer is not None:
            self._unused_timer.used()

    def _maybe_expire(self, _: mailbox.MaybeExpire) -> None:
        if self._unused_timer and self._unused_timer.fired(bool(self._consumer_count())):
            self._delete()

    def _close_accounts(self, _: mailbox.CloseAccounts) -> None:
        """Close the accounts of channels that publish no more."""
        publishers = self.queue.publishers
        if publishers is not None and not publishers.close_idle():
            self.queue.publishers = None

    # Messages that were waited for.

    def _fetch_ready(self, _: FetchReady) -> None:
        """Go on with messages that have been read."""
        queue = self.queue
        if queue.dead_letters is not None:
            queue.dead_letters.go_on()
        if queue.waiting_calls:
            self.answer_waiting()
        queue.go_on()

    def _handle_dead_letter_mail(self, message: object) -> None:
        """Hand on mail about dead letters; go on with messages that had to wait until others have arrived."""
        queue = self.queue
        if queue.dead_letters is None or queue.is_deleted:
            return
        queue.dead_letters.handle(message)
        if queue.waiting_calls:
            self.answer_waiting()
        queue.go_on()

    def _head_expired(self, _: mailbox.DropExpired) -> None:
        self.queue.expiry.fired()
        self.queue.go_on()

    # Consumers and channels.

    def _given(self, given: DeliveryRoom | PrefetchGranted) -> None:
        """A channel of another node takes more; places of its prefetch that are not used now go back."""
        remote_channels.give(self.queue.consumers, given)
        self.queue.resume(given.channel)
        if unused := remote_channels.unused_prefetch(self.queue.consumers, given):
            self.post(given.channel, PrefetchUnused(self.ref, unused))

    def _consumer_count(self) -> int:
        consumers = self.queue.consumers
        return consumers.count if consumers is not None else 0

    def _channel_record(self, channel: Ref) -> ChannelRecord:
        record = self.queue.open_consumers().channel(channel)
        if record.monitor is None:
            record.monitor = self.monitor(channel)
        return record

    def _consume(self, consume: queue_requests.Consume) -> SoftError | None:
        entry, consumers = self._entry, self.queue.consumers
        if self._returning is not None:
            self._returning.forget(consume.channel)
        if entry.exclusive is not None and consume.owner is not entry.exclusive:
            return locked(entry.name, entry.vhost_name)
        if consumers is not None and consumers.has(consume.channel, consume.tag):
            return None  # asked before and after a restart, or told of two restarts
        if refuses(consumers, consume, entry.settings):
            return AccessRefused(f"{entry} in exclusive use")
        self._channel_record(consume.channel)
        self.queue.open_consumers().add(consume)
        if is_remote(consume.channel):
            remote_channels.attach(consume, entry, self.ref, self.post)
        if self.queue.ready:
            self.queue.go_on_later()  # not now: the answer comes before the first delivery
        return None

    def _cancel(self, cancel: queue_requests.Cancel) -> None:
        consumers = self.queue.consumers
        if consumers is None or not consumers.remove(cancel.channel, cancel.tag):
            return
        if is_remote(cancel.channel) and not consumers.channels[cancel.channel].consumers:
            self._entry.unwatch(cancel.channel)
        if consumers.channels[cancel.channel].is_idle():
            self._drop_channel(consumers, cancel.channel)
        self._consumers_left()

    def _leave(self, leave: queue_requests.Leave) -> None:
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
        consumers = self.queue.consumers
        record = consumers.channels.get(channel) if consumers is not None else None
        if record is not None:
            record.monitor = None
            self._forget_channel(channel)

    def _forget_channel(self, channel: Ref) -> None:
        """Remove the consumers of a channel, and have its unacked messages requeued in a later turn.

        All channels of a connection end together; their messages are requeued in one later turn, so none is
        delivered to a channel that is about to end.
        """
        queue = self.queue
        if queue.consumers is None or channel not in queue.consumers.channels:
            return
        gone, owed = self._drop_channel(queue.consumers, channel)
        self._entry.unwatch(channel)
        if gone:
            self._consumers_left()
        if queue.requeueing is not None:
            queue.requeueing.forget(channel)
        if owed and not queue.is_deleted:
            queue.requeue_later().give_back(owed)

    def _drop_channel(self, consumers: Consumers, channel: Ref) -> tuple[int, list[set[int]]]:
        if (monitor := consumers.channels[channel].monitor) is not None:
            self.demonitor(monitor)
        return consumers.remove_channel(channel)

    def _consumers_left(self) -> None:
        """Delete an auto-delete queue without consumers, or restart ``x-expires``; another may be active now."""
        if self._consumer_count():
            if self.queue.ready:
                self.queue.go_on_later()
            return
        if self._entry.auto_delete:
            self._delete()
        else:
            self._touch()

    # Calls.

    def _get(self, get: queue_requests.Get) -> Any:
        queue = self.queue
        self._touch()
        if queue.expiry.may_expire and not queue.drop_expired():
            return NOREPLY
        fetched = fetch_one(queue.backing, not get.no_ack)
        if not fetched.messages:
            queue.ready = queue.backing.len()
            return NOREPLY if fetched.pending else None
        queue.ready -= 1
        seq = None
        if not get.no_ack:
            seq = fetched.seqs[0]
            self._channel_record(get.channel).owe(fetched.seqs)
        message, counts = fetched.messages[0], queue.backing.counts
        if counts is not None:
            message = counts.got(message, fetched.seqs[0], get.no_ack)
        if queue.expiry.may_expire:
            queue.drop_expired()
        return self.ref, message, seq, bool(fetched.redelivered), queue.ready

    def _stat(self, stat: queue_requests.Stat) -> tuple[int, int]:
        if stat.touch:
            self._touch()
        return self.queue.ready, self._consumer_count()

    def _purge(self, _: queue_requests.Purge) -> int:
        queue, counts = self.queue, self.queue.backing.counts
        queue.ready = 0
        if counts:
            counts.keep_only(queue.consumers.unacked() if queue.consumers is not None else ())
        return queue.backing.purge()

    def _delete_if(self, delete: queue_requests.Delete) -> int | SoftError:
        ready = self.queue.ready
        if delete.if_empty and ready:
            return PreconditionFailed(f"{self._entry} not empty")
        if delete.if_unused and self._consumer_count():
            return PreconditionFailed(f"{self._entry} in use")
        self._delete()
        return ready

    def _info(self, info: queue_requests.Info) -> dict[str, Any]:
        """Answer figures by RabbitMQ's names; those asked for, or all."""
        queue, producers = self.queue, self.queue.deduplication.count()
        return stats_of(self._entry, queue.consumers, queue.backing, producers, info.items)

    # The end.

    def _delete(self) -> None:
        """Delete the queue; mails in its mailbox are still answered."""
        queue = self.queue
        if queue.is_deleted:
            return
        if self._unused_timer is not None:
            self._unused_timer.cancel()
        self._notices = DeletionNotices(
            self.ref, queue.consumers, queue.publishers, self.post, self.demonitor
        )
        self._notices.post_some()
        queue.delete()
        self._entry.deleted()
        self.answer_waiting()
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
        DeliveryRoom: _given,
        PrefetchGranted: _given,
        FetchReady: _fetch_ready,
        mailbox.Finish: _finish,
        mailbox.CheckReturned: _check_returned,
        mail.PolicyChanged: _policy_changed,
        Down: _down,
        mailbox.DropExpired: _head_expired,
        mailbox.MaybeExpire: _maybe_expire,
        mailbox.CloseAccounts: _close_accounts,
        mail.Confirm: _handle_dead_letter_mail,
        mail.QueueDeleted: _handle_dead_letter_mail,
        mailbox.SendDeadLetters: _handle_dead_letter_mail,
        mailbox.RetryDeadLetters: _handle_dead_letter_mail,
    }
    CALLS: ClassVar[dict[type, Callable[..., Any]]] = {
        queue_requests.Consume: _consume,
        queue_requests.Cancel: _cancel,
        queue_requests.Get: _get,
        queue_requests.Leave: _leave,
        queue_requests.Stat: _stat,
        queue_requests.Purge: _purge,
        queue_requests.Delete: _delete_if,
        queue_requests.Info: _info,
        queue_requests.ListProducers: lambda self, _: self.queue.deduplication.listed(),
        queue_requests.ForgetProducer: lambda self, asked: self.queue.deduplication.forget(
            asked.producer
        ),
    }


_CASTS: Final = AmqQueue.CASTS
_CALLS: Final = AmqQueue.CALLS
