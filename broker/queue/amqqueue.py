"""AmqQueue: the actor of one queue. It knows who publishes and consumes; its pair keeps the messages.

The backing queue is called inline (``_backing``), so a batch costs no turn of the other half.
``_ready`` follows the number of ready messages without asking.

``dispatch`` has the half that moves messages: publishing, delivering, settling, expiry. Here is who
comes, asks and goes.

A deleted queue stays for a moment as a lame duck: it answers what still waits in its mailbox
(publishes are confirmed, calls get ``NotFound``) and ends ``normal`` behind it.

Differs from RabbitMQ: ``Stat`` waits behind the publishes before it, so that a client which
publishes and then declares passively finds its messages counted; ``Resume`` does not overtake the
``Requeue`` that made the room, so that what comes back is delivered before what is younger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from leveret.actors.gen_server import NOREPLY, From
from leveret.actors.runtime.calls import Request
from leveret.actors.runtime.signals import Down
from leveret.amqp.errors import AccessRefused, PreconditionFailed, ResourceLocked, SoftError
from leveret.broker import mail
from leveret.broker.queue.consumers import Consumers, Peer
from leveret.broker.queue.dispatch import Continue, Dispatch, DropExpired
from leveret.broker.queue.expiry import UnusedTimer
from leveret.queue_backing.api import Confirmed, Resident

if TYPE_CHECKING:
    from leveret.actors.runtime.links import MonitorRef
    from leveret.actors.runtime.ref import Ref
    from leveret.broker.queue.registry import QueueEntry
    from leveret.core.message import Message

_Got: TypeAlias = "tuple[Ref, Message, int | None, bool, int]"


class Finish:
    """To itself: everything that came before the deletion has been answered."""

    __slots__ = ()


class MaybeExpire:
    """Timer: the queue may have been unused for too long."""

    __slots__ = ()


class SeeWhoReturns:
    """To itself, after a restart: an auto-delete queue whose consumers are gone as well must go."""

    __slots__ = ()


_FINISH: Final = Finish()
_SEE_WHO_RETURNS: Final = SeeWhoReturns()
_MAYBE_EXPIRE: Final = MaybeExpire()

_LEVELS: Final[dict[type, int]] = {
    MaybeExpire: 8,
    DropExpired: 8,
    Confirmed: 6,
    mail.Ack: 4,
    mail.Reject: 4,
    mail.Requeue: 4,
    mail.Resume: 4,
    Resident: 3,
    Continue: -1,
    Finish: -2,
}
_INFO_LEVEL: Final = 9
_OWNER_LEVEL: Final = 8

_LOCKED: Final = (
    "cannot obtain exclusive access to locked {}. It could be originally declared on another "
    "connection or the exclusive property value does not match that of the original declaration."
)


class AmqQueue(Dispatch):
    """One queue; its ``init`` takes the registry entry, in which ``backing`` is up already."""

    __slots__ = ("_returning", "_unused_timer")

    # Differs from RabbitMQ: acks do not overtake publishes unless other mail has to be sorted.
    unsorted = frozenset({mail.Publish, mail.Ack})

    def init(self, entry: QueueEntry) -> None:
        """Take over the backing queue and announce this incarnation."""
        self._attach(entry)
        self._unused_timer: UnusedTimer | None = None
        if entry.exclusive is not None:
            self.monitor(entry.exclusive)
        self._take_view()
        self._returning: dict[Ref, MonitorRef] | None = None  # channels that are to come back
        watchers = entry.up(self.ref)
        for channel in watchers:
            self.post(channel, mail.QueueUp(entry))
        if entry.auto_delete and entry.was_consumed:
            self._returning = {channel: self.monitor(channel) for channel in watchers}
            self.post(self.ref, _SEE_WHO_RETURNS)

    def _take_view(self) -> None:
        """Do as arguments and policies say.

        A mode that nobody asks for any more stays until the next start, as in RabbitMQ.
        """
        view = self._entry.view
        self._set_ttl(view.message_ttl_ms)
        if view.queue_mode is not None:
            self._backing.set_queue_mode(view.queue_mode)
        if self._unused_timer is not None:
            self._unused_timer.cancel()
            self._unused_timer = None
        if view.expires_ms is not None:
            self._unused_timer = UnusedTimer(
                view.expires_ms,
                lambda delay_s: self.start_timer(delay_s, _MAYBE_EXPIRE),
                self.runtime.clock.monotonic_s(),
            )

    def _policy_changed(self, _: mail.PolicyChanged) -> None:
        if not self._is_deleted:
            self._take_view()

    def prioritise(self, message: Any) -> int:
        """RabbitMQ's priorities, but for ``Stat`` and ``Requeue``."""
        kind = type(message)
        if kind is Request:
            return _INFO_LEVEL if type(message.payload) is mail.Info else 0
        if kind is Down:
            return _OWNER_LEVEL if message.ref is self._entry.exclusive else 0
        return _LEVELS.get(kind, 0)

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        """Handle what channels, the backing actor and the queue itself send; the rest is OTP's."""
        handle = _CASTS.get(type(message))
        if handle is None:
            return super().handle_mail(message, sender)
        return handle(self, message)

    def handle_call(self, request: Any, frm: object) -> Any:
        """Answer a call; a ``SoftError`` is returned, not raised. NOREPLY of a handler: it waits."""
        handle = _CALLS.get(type(request))
        if handle is None:
            return super().handle_call(request, None)
        if self._is_deleted:
            return _ANSWERS_OF_A_DELETED.get(type(request), self._entry.missing())
        answer = handle(self, request)
        if answer is NOREPLY:
            assert isinstance(frm, From), "an inline call cannot wait"
            self._held = self._held or []
            self._held.append((request, frm))
        return answer

    def handle_info(self, message: Any) -> None:
        """Handle DOWN of channels and of the owner, and timers."""
        if isinstance(message, Down):
            if message.ref is self._entry.exclusive:
                self._delete()
            else:
                self._channel_down(message.ref)
                self._returns_no_more(message.ref)
        elif isinstance(message, DropExpired):
            self._head_expired()
        elif isinstance(message, MaybeExpire):
            self._maybe_expire()
        else:
            super().handle_info(message)

    def _touch(self) -> None:
        if self._unused_timer is not None:
            self._unused_timer.used(self.runtime.clock.monotonic_s())

    def _maybe_expire(self) -> None:
        timer = self._unused_timer
        if timer is not None and timer.fired(
            self.runtime.clock.monotonic_s(), has_consumers=bool(self._consumer_count())
        ):
            self._delete()

    # Consumers and channels.

    def _consumer_count(self) -> int:
        return self._consumers.count if self._consumers is not None else 0

    def _peer(self, channel: Ref) -> Peer:
        if self._consumers is None:
            self._consumers = Consumers(self.ref)
        peer = self._consumers.peer(channel)
        if peer.monitor is None:
            peer.monitor = self.monitor(channel)
        return peer

    def _consume(self, consume: mail.Consume) -> SoftError | None:
        entry, consumers = self._entry, self._consumers
        if self._returning is not None:
            self._has_returned(consume.channel)
        if entry.exclusive is not None and consume.owner is not entry.exclusive:
            return ResourceLocked(_LOCKED.format(entry))
        if consumers is not None and consumers.count:
            if consumers.has(consume.channel, consume.tag):
                return None  # asked before and after a restart, or told of two restarts
            if consume.exclusive or consumers.exclusive:
                return AccessRefused(f"{entry} in exclusive use")
        self._peer(consume.channel)
        assert self._consumers is not None
        self._consumers.add(consume)
        if self._ready:
            self._continue()  # not now: the answer comes before the first delivery
        return None

    def _cancel(self, cancel: mail.Cancel) -> None:
        consumers = self._consumers
        if consumers is None or not consumers.remove(cancel.channel, cancel.tag):
            return
        if consumers.peers[cancel.channel].is_idle():
            self._drop_peer(cancel.channel)
        self._consumers_left()

    def _leave(self, leave: mail.Leave) -> None:
        self._forget_channel(leave.channel)
        self._returns_no_more(leave.channel)

    def _has_returned(self, channel: Ref) -> None:
        monitor = self._returning.pop(channel, None) if self._returning is not None else None
        if monitor is not None:
            self.demonitor(monitor)

    def _returns_no_more(self, channel: Ref) -> None:
        if self._returning is not None:
            self._has_returned(channel)
            self._see_who_returns()

    def _see_who_returns(self, _: SeeWhoReturns | None = None) -> None:
        if not self._returning and not self._consumer_count():
            self._delete()

    def _channel_down(self, channel: Ref) -> None:
        peer = self._consumers.peers.get(channel) if self._consumers is not None else None
        if peer is not None:
            peer.monitor = None
            self._forget_channel(channel)

    def _forget_channel(self, channel: Ref) -> None:
        """Take leave of a channel: its consumers go, its unacked messages come back."""
        if self._consumers is None or channel not in self._consumers.peers:
            return
        gone, seqs = self._drop_peer(channel)
        self._entry.unwatch(channel)
        if gone:
            self._consumers_left()
        if seqs and not self._is_deleted:
            self._put_back(seqs)

    def _drop_peer(self, channel: Ref) -> tuple[int, list[int]]:
        assert self._consumers is not None
        monitor = self._consumers.peers[channel].monitor
        if monitor is not None:
            self.demonitor(monitor)
        return self._consumers.remove_channel(channel)

    def _consumers_left(self) -> None:
        """See what follows when a consumer has gone, perhaps the last one."""
        if self._consumer_count():
            return
        if self._entry.auto_delete:
            self._delete()
        else:
            self._touch()

    # Calls.

    def _get(self, get: mail.Get) -> _Got | Any:
        self._touch()
        if self._putting_back or (self._has_expiries and not self._drop_expired()):
            return NOREPLY
        fetched = self._backing.fetch(1, 1, not get.no_ack)
        while not fetched.messages:
            self._ready = self._backing.len()
            if fetched.pending or not self._ready:
                return NOREPLY if fetched.pending else None
            fetched = self._backing.fetch(1, 1, not get.no_ack)  # the one before was damaged
        self._ready -= 1
        seq = None
        if not get.no_ack:
            seq = fetched.seqs[0]
            self._peer(get.channel).owe(fetched.seqs)
        if self._has_expiries:
            self._drop_expired()
        return self.ref, fetched.messages[0], seq, bool(fetched.redelivered), self._ready

    def _stat(self, stat: mail.Stat) -> tuple[int, int] | Any:
        if self._putting_back:
            return NOREPLY
        if stat.touch:
            self._touch()
        return self._ready, self._consumer_count()

    def _purge(self, _: mail.Purge) -> int | Any:
        if self._putting_back:
            return NOREPLY
        self._ready = 0
        return self._backing.purge()

    def _delete_if(self, delete: mail.Delete) -> int | SoftError | Any:
        if self._putting_back:
            return NOREPLY
        if delete.if_empty and self._ready:
            return PreconditionFailed(f"{self._entry} not empty")
        if delete.if_unused and self._consumer_count():
            return PreconditionFailed(f"{self._entry} in use")
        ready = self._ready
        self._delete()
        return ready

    def _info(self, info: mail.Info) -> dict[str, Any] | Any:
        """Answer figures by RabbitMQ's names; those asked for, or all."""
        if self._putting_back:
            return NOREPLY
        consumers = self._consumers
        figures: dict[str, Any] = {
            "state": self._entry.state,
            "consumers": self._consumer_count(),
            "active_consumers": consumers.active if consumers is not None else 0,
            "exclusive_consumer": consumers is not None and consumers.exclusive,
            **self._backing.info(),
        }
        if not self._consumer_count():  # else it would have to be measured all the time
            figures["consumer_capacity"] = figures["consumer_utilisation"] = 0
        return {name: figures[name] for name in info.items or figures if name in figures}

    # The end.

    def _delete(self) -> None:
        """Delete the queue; what waits in the mailbox is still answered."""
        if self._is_deleted:
            return
        self._is_deleted = True
        for timer in (self._head_timer, self._unused_timer):
            if timer is not None:
                timer.cancel()
        consumers, self._consumers = self._consumers, None
        for channel, peer in consumers.peers.items() if consumers is not None else ():
            if peer.monitor is not None:
                self.demonitor(peer.monitor)
            for tag in peer.consumers:
                self.post(channel, mail.ConsumerGone(self.ref, tag))
        senders, self._senders = self._senders, None
        for channel in senders.creditors() if senders is not None else ():
            self.post(channel, mail.QueueDeleted(self.ref))
        self._ready = 0
        self._putting_back = None
        self._backing.delete_and_terminate()
        self._entry.deleted()
        self._answer_held()
        self.post(self.ref, _FINISH)

    def _finish(self, _: Finish) -> None:
        self.stop()

    def terminate(self, reason: object) -> None:
        """Speak for a supervisor that was killed: the queue will not be started again."""
        supervisor = self._entry.supervisor
        if supervisor is not None and not supervisor.is_alive:
            for channel in self._entry.crashed():
                self.post(channel, mail.QueueFailed(self._entry))

    CASTS: ClassVar[dict[type, Callable[..., None]]] = {
        **Dispatch.MOVES,
        Finish: _finish,
        SeeWhoReturns: _see_who_returns,
        mail.PolicyChanged: _policy_changed,
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
    }


_CASTS: Final = AmqQueue.CASTS
_CALLS: Final = AmqQueue.CALLS
_ANSWERS_OF_A_DELETED: Final[dict[type, Any]] = {
    mail.Cancel: None,
    mail.Leave: None,
    mail.Delete: 0,
    mail.Info: {},
}
