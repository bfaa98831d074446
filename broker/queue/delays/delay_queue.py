"""DelayQueue: the actor of a delay queue. It takes the place of the amqqueue beside the backing queue.

Exchanges of the type ``x-delayed-message`` have one each (``routing/delayed.py``). A message comes by an ordinary
``Publish`` and goes at once to the unacked ones of the backing queue, which pages them and keeps them over restarts
like any others; the time when it is due is stored as its expiry. All messages are persistent, as in RabbitMQ's plug-in.
The publisher's confirm means that the message is on the disk.

The ``Schedule`` has the times. Messages that are due are published to the exchange as dead letters are, by
``DeadLetters`` with rules of its own: at least once, and acked here when all their queues have them. So after a crash
at any time a message waits here, or is in its queues, perhaps both.

After a start all messages are ready ones. They are taken as unacked in slices, without their contents, and only then is
anything published that is due.

A delay queue whose exchange has been deleted ends when it is empty. An exchange that is declared again under the name
gets it back; without one, messages that are due are dropped, as in the plug-in. No client can use a delay queue, and
policies do not apply to it. ``ctl purge_queue`` forgets all that waits.

Turned down: a queue for each delay, whose head expires first, since clients choose the delays; timing wheels, since the
heap is no large part of a message's cost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from leveret.actors.gen_server import NOREPLY, From, GenServer
from leveret.actors.runtime.calls import Request
from leveret.actors.runtime.signals import Down
from leveret.amqp.errors import SyntaxError_
from leveret.amqp.properties import examine
from leveret.broker import mail, queue_requests
from leveret.broker.queue.dead_letters.dead_letters import DeadLetters
from leveret.broker.queue.delays.delay_rules import DUE, DelayRules
from leveret.broker.queue.delays.requests import Describe, ListWaiting, Waiting, Withdraw
from leveret.broker.queue.delays.schedule import Schedule, seq_of
from leveret.broker.queue.deletion_notices import DeletionNotices
from leveret.broker.queue.mailbox import (
    ANSWERS_OF_A_DELETED,
    INFO_LEVEL,
    LEVELS,
    CloseAccounts,
    Continue,
    DropExpired,
    Finish,
    RetryDeadLetters,
    SendDeadLetters,
)
from leveret.broker.queue.publishers.deduplication import Deduplication
from leveret.broker.queue.publishers.publishers import Publishers
from leveret.broker.queue.stats import stats_of
from leveret.broker.queue.turn_budget import TurnBudget
from leveret.core.entry import MESSAGE, SEQ, SIZE
from leveret.core.limits import TURN_MESSAGES
from leveret.core.message import exchange_and_key
from leveret.queue_backing.api import Confirmed, FetchReady, Refused
from leveret.queue_backing.proxy import BackingProxy
from leveret.routing.delayed import DELAYED, delay_ms

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.timers import Timer
    from leveret.broker.registry.registry import QueueEntry
    from leveret.core.entry import Entry
    from leveret.core.message import Message

TIMER_S_MAX: Final = 60.0  # then the clock on the wall is looked at again: it may have been set
DUE_MS_MAX: Final = 2**62

_CONTINUE: Final = Continue()
_DUE: Final = DropExpired()
_FINISH: Final = Finish()
_CLOSE_ACCOUNTS: Final = CloseAccounts()


class DelayQueue(GenServer):
    """One delay queue; its ``init`` takes the registry entry, in which ``backing`` is up already."""

    __slots__ = (
        "_backing",
        "_budget",
        "_continues",
        "_dead_letters",
        "_deduplication",
        "_entry",
        "_is_deleted",
        "_next_seq",
        "_notices",
        "_publishers",
        "_purged",
        "_purged_below",
        "_recovering",
        "_schedule",
        "_timer",
        "_timer_at_ms",
        "_waiting_calls",
    )  # fmt: skip

    unsorted = frozenset({mail.Publish})

    def init(self, entry: QueueEntry) -> None:
        """Take over the backing queue and announce this incarnation."""
        assert entry.backing is not None, "the backing actor is started first"
        self._entry = entry
        self._backing = BackingProxy(self.runtime.turns, entry.backing)
        self._recovering = self._backing.attach(self.ref)  # ready messages
        self._schedule = Schedule()
        self._publishers: Publishers | None = None
        self._budget = budget = TurnBudget(self.runtime.turns, self.ref)
        self._deduplication = Deduplication(self.runtime, self.ref, entry, self._backing, budget)
        self._dead_letters = DeadLetters(self, entry, self._backing, DelayRules(entry.name), budget)
        self._purged: list[int] = []  # keys of the schedule: messages that are still to be acked
        self._purged_below = self._next_seq = 0  # all messages below were published before a purge
        self._waiting_calls: list[tuple[Describe, From]] = []
        self._timer: Timer | None = None
        self._timer_at_ms = 0
        self._continues = self._is_deleted = False
        entry.up(self.ref)
        self._continue()

    def prioritise(self, message: Any) -> int:
        """Return the priorities of an amqqueue."""
        kind = type(message)
        if kind is Request:
            return INFO_LEVEL if type(message.payload) is queue_requests.Info else 0
        return LEVELS.get(kind, 0)

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        """Handle the mails in ``CASTS``; a GenServer handles the others."""
        handle = _CASTS.get(type(message))
        if handle is None:
            return super().handle_mail(message, sender)
        return handle(self, message)

    def handle_call(self, request: Any, frm: From | None) -> Any:
        """Answer a call; a ``SoftError`` is returned, not raised."""
        handle = _CALLS.get(type(request))
        if handle is None:
            return super().handle_call(request, frm)
        if self._is_deleted:
            return ANSWERS_OF_A_DELETED.get(type(request), self._entry.missing())
        answer = handle(self, request)
        if answer is NOREPLY:
            assert frm is not None, "an inline call cannot wait"
            self._waiting_calls.append((request, frm))
        return answer

    def _continue(self) -> None:
        if not self._continues:
            self._continues = True
            self.runtime.again(self.ref, _CONTINUE)

    def _continued(self, _: Continue) -> None:
        self._continues = False
        self._work()

    def _now_ms(self) -> int:
        return int(self.runtime.clock.wall_s() * 1000)

    # Publishes to this queue.

    def open_publishers(self) -> Publishers:
        if self._publishers is None:
            start_timer = partial(self.start_bulk_timer, message=_CLOSE_ACCOUNTS)
            self._publishers = Publishers(self.runtime.turns, self.ref, start_timer)
        return self._publishers

    def _publish(self, publish: mail.Publish) -> None:
        if self._is_deleted:
            self.open_publishers().confirm_all(publish)
        elif publish.producer_seqs is None:
            self.take_in(publish)
        else:
            self._deduplication.publish(self, publish, takes_one=False)

    def take_in(self, publish: mail.Publish) -> tuple[int, int]:
        """Take a run in; see ``DeduplicatedQueue``."""
        messages, count = publish.messages, len(publish.messages)
        self._budget.charge(count)
        now_ms = self._now_ms()
        from_ms = now_ms + 1  # nothing comes before its time, also not by parts of a ms
        times_ms = [min(from_ms + _delay_of(message), DUE_MS_MAX) for message in messages]
        size_bytes = sum([each[2] for each in publish.publishers]) - publish.head_bytes
        persistent, msg_no = self._entry.durable, publish.first_msg_no
        if self._recovering:
            first, safe = self._backing.publish(
                messages, persistent, times_ms, size_bytes, False, msg_no
            )
        else:
            first, safe = self._backing.publish_delivered(
                messages, persistent, times_ms, size_bytes, msg_no
            )
            self._schedule.add(times_ms, range(first, first + count))
        self._next_seq = first + count
        self.open_publishers().published(publish, count if safe else 0, first)
        if not self._recovering:
            self._time(now_ms)
        return first, 0

    def _became_safe(self, confirmed: Confirmed) -> None:
        if self._publishers is not None:
            self._publishers.confirm(confirmed.runs)
        self._deduplication.became_safe(confirmed.runs)

    def _refused(self, refused: Refused) -> None:
        if self._publishers is not None:
            self._publishers.confirm(refused.runs, ok=False)
        self._deduplication.refused(refused.runs)

    def _close_accounts(self, _: CloseAccounts) -> None:
        if self._publishers is not None and not self._publishers.close_idle():
            self._publishers = None

    # Messages that are due.

    def _work(self) -> None:
        """Do the next piece of work: schedule recovered messages; then ack purged ones; then publish due ones."""
        if self._is_deleted:
            return
        if self._recovering:
            self._schedule_recovered()
            return
        if self._purged:
            self._forget_purged()
        now_ms = self._now_ms()
        self._publish_due(now_ms)
        self._time(now_ms)
        if not len(self._schedule) and not self._backing.depth() and not self._has_exchange():
            self._delete()

    def _schedule_recovered(self) -> None:
        """Take messages as unacked, by their rows; the rest comes in the next turn or when it has been read."""
        seqs = self._backing.drop(TURN_MESSAGES, ack_required=True)
        self._recovering = self._backing.len()
        times_ms = self._backing.expiries(seqs)
        self._schedule.add(times_ms.values(), times_ms)
        if seqs:
            self._next_seq = max(self._next_seq, seqs[-1] + 1)
        self._budget.charge(len(seqs))
        if seqs or not self._recovering:
            self._continue()

    def _publish_due(self, now_ms: int) -> None:
        if self._dead_letters.is_reading:
            return  # it goes on when contents have been read
        room = min(self._dead_letters.room(), TURN_MESSAGES)
        seqs = self._schedule.take_due(now_ms, room)
        if seqs:
            self._budget.charge(len(seqs))
            self._dead_letters.take_unacked(seqs, DUE)

    def _time(self, now_ms: int) -> None:
        """Be back when the next message is due."""
        at_ms = self._schedule.first_ms()
        if at_ms is None:
            return
        if at_ms <= now_ms:
            if not self._dead_letters.is_reading and self._dead_letters.room():
                self._continue()
            return  # else answers to letters go on with it
        if self._timer is not None:
            if self._timer_at_ms <= at_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = at_ms
        delay_s = min((at_ms - now_ms) / 1000, TIMER_S_MAX)
        self._timer = self.start_bulk_timer(delay_s, _DUE)

    def _due(self, _: DropExpired) -> None:
        self._timer = None
        self._work()

    def _handle_dead_letter_mail(self, message: object) -> None:
        if not self._is_deleted:
            self._dead_letters.handle(message)
            self._work()

    def _fetch_ready(self, _: FetchReady) -> None:
        """Go on with messages that have been read."""
        if self._is_deleted:
            return
        self._dead_letters.send_waiting()
        waiting, self._waiting_calls = self._waiting_calls, []
        for request, frm in waiting:
            answer = self.handle_call(request, frm)
            if answer is not NOREPLY:
                self.runtime.reply(frm, answer)
        self._work()

    def _has_exchange(self) -> bool:
        vhost, name = self._entry.vhost, self._entry.delayed_exchange
        exchange = vhost.topology.exchanges.get(name) if vhost is not None and name else None
        return exchange is not None and exchange.type == DELAYED

    # Calls.

    def _stat(self, _: queue_requests.Stat) -> tuple[int, int]:
        return len(self._schedule), 0

    def _info(self, info: queue_requests.Info) -> dict[str, Any]:
        producers = self._deduplication.count()
        return stats_of(self._entry, None, self._backing, producers, info.items)

    def _list_waiting(self, _: ListWaiting) -> list[int]:
        return self._schedule.keys()

    def _describe(self, request: Describe) -> tuple[int, list[Waiting]] | object:
        times_ms = self._backing.expiries(request.seqs)
        entries: list[Entry] = self._backing.ackfold(_append, [], list(times_ms))
        found: list[Waiting] = []
        for entry in entries:
            message, seq = entry[MESSAGE], entry[SEQ]
            if message is None:  # must be read
                return (request.seqs.index(seq), found) if found else NOREPLY
            found.append(Waiting(seq, times_ms[seq], *exchange_and_key(message[0]), entry[SIZE]))
        return len(request.seqs), found

    def _withdraw(self, request: Withdraw) -> int:
        # The clock may have been set back since messages were taken as due.
        due_ms, purged_below = max(self._now_ms(), self._schedule.taken_ms), self._purged_below
        times_ms = self._backing.expiries(request.seqs)
        seqs = [
            seq for seq, time_ms in times_ms.items() if time_ms > due_ms and seq >= purged_below
        ]
        self._schedule.withdraw(seqs)
        return self._backing.ack(seqs)

    def _purge(self, _: queue_requests.Purge) -> int:
        """Drop all waiting messages, also recovered ones that are not scheduled yet; return their number."""
        count = self._backing.purge() + len(self._schedule)
        self._recovering, self._purged_below = 0, self._next_seq
        self._purged += self._schedule.take_all()
        self._continue()
        return count

    def _forget_purged(self) -> None:
        """Ack messages that were purged, a turn's worth; some of them may have been withdrawn before."""
        keys = self._purged[-TURN_MESSAGES:]
        del self._purged[-TURN_MESSAGES:]
        self._backing.ack([seq_of(key) for key in keys])
        self._budget.charge(len(keys))
        if self._purged:
            self._continue()

    # The end.

    def _delete_asked(self, delete: queue_requests.Delete) -> int:
        count = len(self._schedule)
        self._delete()
        return count

    def _delete(self) -> None:
        """Delete the queue; mails in its mailbox are still answered."""
        self._is_deleted = True
        self._dead_letters.end()
        if self._timer is not None:
            self._timer.cancel()
        self._notices = DeletionNotices(self.ref, None, self._publishers, self.post, self.demonitor)
        self._publishers = None
        self._notices.post_some()
        self._backing.delete_and_terminate()
        self._entry.deleted()
        for _, frm in self._waiting_calls:
            self.runtime.reply(frm, self._entry.missing())
        self.runtime.again(self.ref, _FINISH)

    def _finish(self, _: Finish) -> None:
        if self._notices.post_some():
            self.runtime.again(self.ref, _FINISH)
        else:
            self.stop()

    def _delete_if_unneeded(self, _: object) -> None:
        self._work()

    CASTS: ClassVar[dict[type, Callable[..., None]]] = {
        mail.Publish: _publish,
        Continue: _continued,
        FetchReady: _fetch_ready,
        Confirmed: _became_safe,
        Refused: _refused,
        Finish: _finish,
        mail.ExchangeDeleted: _delete_if_unneeded,
        DropExpired: _due,
        CloseAccounts: _close_accounts,
        Down: _handle_dead_letter_mail,
        mail.Confirm: _handle_dead_letter_mail,
        mail.QueueDeleted: _handle_dead_letter_mail,
        SendDeadLetters: _handle_dead_letter_mail,
        RetryDeadLetters: _handle_dead_letter_mail,
    }
    CALLS: ClassVar[dict[type, Callable[..., Any]]] = {
        queue_requests.Stat: _stat,
        queue_requests.Purge: _purge,
        queue_requests.Delete: _delete_asked,
        queue_requests.Info: _info,
        queue_requests.ListProducers: lambda self, _: self._deduplication.listed(),
        queue_requests.ForgetProducer: lambda self, asked: self._deduplication.forget(
            asked.producer
        ),
        ListWaiting: _list_waiting,
        Describe: _describe,
        Withdraw: _withdraw,
    }


_CASTS: Final = DelayQueue.CASTS
_CALLS: Final = DelayQueue.CALLS


def _delay_of(message: Message) -> int:
    try:
        return max(0, delay_ms(examine(message[1]).headers))
    except SyntaxError_:
        return 0


def _append(entry: Entry, entries: list[Entry]) -> list[Entry]:
    entries.append(entry)
    return entries
