"""Dead letters: a queue publishes messages that died in it to its dead-letter exchange.

Messages die when they are rejected, when they expire, when the queue is above a length limit, and when they were
delivered too often. The exchange and key are those of the queue's arguments and policies at that time; without an
exchange, or if it does not exist, the caller drops them.

**At least once.** A message that dies stays in the source's backing queue as unacked. Its letter is published as by a
channel with confirms, and the message is acked when all queues that it was routed to have it, on the disk where they
are durable. So after a crash at any time it is in the source or in all its targets, perhaps in both. These count as
answers: no queue, a cycle, a target that is deleted, a target that refuses the letter because it is full
(``x-overflow``), and a client that waits for a reply (direct reply-to), to which letters go at most once. These do not:
a disk that takes nothing for now (the target keeps the letter, and answers later), and a target that crashes (it is
sent the letter again). RabbitMQ's classic queues publish without confirms.

**Bounds.** ``DEAD_LETTERS_IN_FLIGHT`` and ``DEAD_LETTER_BYTES_IN_FLIGHT`` limit what a source has under way. Rejected
messages beyond them wait as unacked ones; expired messages and messages above a limit wait at the head of the queue,
where they are not delivered. Only letters of messages that the queue has refused (reject-publish-dlx) wait here; the
queue withholds credit from its publishers as long as there is no ``room``. A target takes letters without credit: two
queues that dead-letter to each other never wait for each other. Letters go by mail, so no such loop is a recursion.

**Copies.** A letter to one queue takes the room of its message; a letter to several queues takes more, so it waits
while an alarm is raised, as publishers do. A letter that has died in ``DEATHS_MAX`` queues since it was last rejected
is dropped, as in a cycle. A letter to several queues is dropped if it would become more than ``DEAD_LETTER_COPIES_MAX``
copies: twenty queues that dead-letter to all others would turn one message into 20! without a client.

**Turns.** A turn begins ``LETTERS_AT_ONCE`` and does ``PUBLISH_TURN_WORK``: it builds headers, routes, sends; routes
that are long, and letters for very many queues, are continued in the next. Neighbours with the same header and origin
share the work, and go to the same targets as one mail.
"""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from msgspec import Struct

from leveret.actors.runtime.signals import Down
from leveret.amqp.properties import examine
from leveret.broker.mail import Confirm, Publish, QueueDeleted
from leveret.broker.queue.dead_letters.death_headers import (
    REJECTED,
    DeadLetter,
    died_since_rejection,
    queues_of,
)
from leveret.broker.queue.dead_letters.in_flight import DeadLetterBatch, DeadLettersInFlight
from leveret.broker.queue.mailbox import RetryDeadLetters, SendDeadLetters
from leveret.broker.queue.storage.store_writes import write_for
from leveret.broker.registry.cluster_nodes import running_by_home
from leveret.broker.remote.mail_between_nodes import NodePublish
from leveret.core.entry import MESSAGE, SEQ, SIZE
from leveret.core.limits import (
    DEAD_LETTER_BYTES_IN_FLIGHT,
    DEAD_LETTER_COPIES_MAX,
    DEAD_LETTERS_IN_FLIGHT,
    DEATHS_MAX,
    FAN_OUT_QUEUES,
    PUBLISH_TURN_WORK,
    TURN_MESSAGES,
)
from leveret.core.log.loggers import logger
from leveret.routing.router import Routed, route

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.actors.runtime.signals import MonitorRef
    from leveret.actors.runtime.timers import Timer
    from leveret.amqp.tables import Table
    from leveret.broker.queue.dead_letters.rules import DeadLetterHeads, DeadLetterRules
    from leveret.broker.queue.turn_budget import TurnBudget
    from leveret.broker.registry.registry import QueueEntry
    from leveret.core.entry import Entry
    from leveret.core.message import Message
    from leveret.msg_store.store import MsgStore
    from leveret.queue_backing.api import Fetched
    from leveret.queue_backing.proxy import BackingProxy

log = logger(__name__)

RETRY_S: Final = 1.0  # between two looks at targets that have crashed
LETTERS_AT_ONCE: Final = 1_000  # that are begun in a turn
READ_AT_ONCE: Final = 500  # rejected messages whose contents are looked up together
MONITORS_KEPT: Final = 100  # of targets, while no letter is under way
FORGOTTEN_AT_ONCE: Final = 500
RETRIES_AT_ONCE: Final = 1_000
_LOGGED_MAX: Final = 1_000  # remembered cycles, each of which is logged once

# Work, in units of about 0.1 us, as in ``channel/publishing/publish.py``.
_DEAD_LETTER_WORK: Final = 10
_LOOKUP_WORK: Final = 10
_HEAD_WORK: Final = 300  # and the bytes of the header
_LIKE_WORK: Final = 50  # of one with the headers of another
_BATCH_WORK: Final = 100
_MAIL_WORK: Final = 10
_DEMONITOR_WORK: Final = 50

_SEND_DEAD_LETTERS: Final = SendDeadLetters()
_RETRY_DEAD_LETTERS: Final = RetryDeadLetters()


class DeadLetterSource(Protocol):
    """The actor of the queue that dead-letters."""

    @property
    def runtime(self) -> Runtime: ...

    @property
    def ref(self) -> Ref: ...

    def monitor(self, ref: Ref) -> MonitorRef: ...

    @property
    def demonitor(self) -> Callable[[MonitorRef], object]: ...

    def start_bulk_timer(self, delay_s: float, message: object) -> Timer: ...


class _Rejected(Struct, eq=False):
    """Unacked messages that died; ``at`` of them have been looked up."""

    seqs: list[int]
    reason: bytes
    at: int = 0


class _Dead(Struct, eq=False):
    """Messages that died, with their contents: ``at`` of them have been sent.

    ``seqs`` are their ack tags in the source; empty: they have never been in it.
    """

    messages: list[Message]
    seqs: list[int]
    reason: bytes
    at: int = 0


class _RoutedDeadLetter(Struct, eq=False):
    """What neighbours with the same header and origin share, unless each message has its own route."""

    origin: bytes
    head: bytes
    persistent: bool
    targets: Sequence[QueueEntry]
    reply_keys: Sequence[bytes]
    is_shared: bool


_Like: TypeAlias = "dict[int, tuple[Table, _RoutedDeadLetter]]"  # by the id of new headers, which the value keeps alive


class DeadLetters:
    """The dead letters of one queue, made when the first message dies that has where to go.

    Args:
        source: the queue's actor.
        entry: its registry entry.
        backing: where the messages are until their letters have arrived.
        rules: what letters say and where they go.
        budget: of the source's turns.
    """

    __slots__ = ("_backing", "_budget", "_dead", "_entry", "_flight", "_is_scheduled", "_is_under_alarm",
        "_is_waiting_for_store", "_logged",        "_monitors", "_rejected", "_retries", "_routed", "_rules", "_source", "_timer", "_waiting_bytes",
        "_waiting_count", "_wide")  # fmt: skip

    def __init__(
        self,
        source: DeadLetterSource,
        entry: QueueEntry,
        backing: BackingProxy,
        rules: DeadLetterRules,
        budget: TurnBudget,
    ) -> None:
        self._source = source
        self._budget = budget
        self._rules = rules
        self._entry = entry
        self._backing = backing
        self._flight = DeadLettersInFlight()
        self._rejected: deque[_Rejected] = deque()
        self._dead: deque[_Dead] = deque()
        self._waiting_count = self._waiting_bytes = 0  # in ``_dead``
        self._routed: tuple[DeadLetter, Routed[QueueEntry]] | None = None  # of the next message
        self._wide: DeadLetterBatch | None = None  # has more targets than a turn can send to
        self._retries: list[tuple[DeadLetterBatch, QueueEntry]] = []
        self._monitors: dict[Ref, MonitorRef] = {}
        self._timer: Timer | None = None
        self._logged: set[tuple[str, ...] | str] = set()  # cycles, and bounds
        self._is_scheduled = self._is_waiting_for_store = self._is_under_alarm = False

    @property
    def is_reading(self) -> bool:
        """Whether contents of unacked messages are still to be read."""
        return bool(self._rejected)

    def room(self) -> int:
        """Return how many more messages may be under way, a turn's worth at most."""
        if self._flight.size_bytes + self._waiting_bytes >= DEAD_LETTER_BYTES_IN_FLIGHT:
            return 0
        left = DEAD_LETTERS_IN_FLIGHT - self._flight.count - self._waiting_count
        return max(0, min(left, LETTERS_AT_ONCE))

    # Messages that die.

    def take(self, fetched: Fetched, reason: bytes) -> None:
        """Dead-letter messages that were fetched as unacked."""
        if fetched.messages:
            self._add(_Dead(fetched.messages, fetched.seqs, reason))

    def take_unacked(self, seqs: list[int], reason: bytes = REJECTED) -> None:
        """Dead-letter unacked messages, which nobody owes any more."""
        self._rejected.append(_Rejected(seqs, reason))
        self.send_waiting()

    def take_refused(self, messages: list[Message], reason: bytes) -> None:
        """Dead-letter messages that the queue has not taken in."""
        self._add(_Dead(messages, [], reason))

    def _add(self, dead: _Dead) -> None:
        self._put(dead)
        self.send_waiting()

    def _put(self, dead: _Dead) -> None:
        self._rules.taken(dead.messages, dead.reason)
        self._dead.append(dead)
        self._waiting_count += len(dead.messages)
        self._waiting_bytes += bytes_of(dead.messages)

    # Work.

    def handle(self, message: object) -> None:
        """Take a mail of a target, or of the source to itself; other news of actors that end are ignored."""
        if isinstance(message, Confirm):
            self._give_up_if_done(self._flight.answered(message.queue, message.ranges))
        elif isinstance(message, QueueDeleted):
            self._target_down(message.queue, deleted=True)
        elif isinstance(message, Down):
            self._target_down(message.ref, deleted=False)
        elif isinstance(message, RetryDeadLetters):
            self._retry()
        else:
            self._is_scheduled = False
        self.send_waiting()

    def send_waiting(self) -> None:
        """Send what waits, a turn's worth."""
        if self._is_scheduled:
            return
        left = PUBLISH_TURN_WORK
        while left > 0 and not self._is_under_alarm and not self._waits_for_store():
            if self._wide is not None:
                left -= self._send_slice(self._wide)
            elif self._flight.size_bytes >= DEAD_LETTER_BYTES_IN_FLIGHT:
                break
            elif self._dead:
                left -= self._send_some(self._dead[0], left)
            elif count := self._look_up_rejected() or self._forget_targets():
                left -= count
            else:
                break
        if left <= 0:
            self._is_scheduled = True
            self._source.runtime.again(self._source.ref, _SEND_DEAD_LETTERS)
        self._budget.charge((PUBLISH_TURN_WORK - left) * TURN_MESSAGES // PUBLISH_TURN_WORK)

    def _waits_for_store(self) -> bool:
        """Whether the disk does not follow; then the letters go on when it has."""
        store = self._store()
        if store is None or not store.backpressure.is_on:
            return False
        if not self._is_waiting_for_store:
            self._is_waiting_for_store = True
            store.backpressure.wait(self._store_follows)
        return True

    def _wait_under_alarm(self) -> None:
        """Send no more for now, and look again in a second."""
        self._is_under_alarm = True
        if self._timer is None:
            self._timer = self._source.start_bulk_timer(RETRY_S, _RETRY_DEAD_LETTERS)

    def _store(self) -> MsgStore | None:
        vhost = self._entry.vhost
        return vhost.store.msg_store if vhost is not None else None

    def _store_follows(self) -> None:
        self._is_waiting_for_store = False
        source = self._source
        if not self._is_scheduled and source.ref.is_alive:
            self._is_scheduled = True
            source.runtime.send(source.ref, _SEND_DEAD_LETTERS)

    def _look_up_rejected(self) -> int:
        """Take in rejected messages with contents in RAM, the others are read; return the work."""
        room = self.room()
        if not self._rejected or not room:
            return 0
        rejected = self._rejected[0]
        seqs = rejected.seqs[rejected.at : rejected.at + min(room, READ_AT_ONCE)]
        found: list[Entry] = self._backing.ackfold(_append, [], seqs)
        absent = next((at for at, entry in enumerate(found) if entry[MESSAGE] is None), len(found))
        reached = accumulate([entry[SIZE] for entry in found[:absent]])
        count = min(
            absent, 1 + sum(size_bytes < DEAD_LETTER_BYTES_IN_FLIGHT for size_bytes in reached)
        )
        if count < len(found):
            seqs = seqs[: seqs.index(found[count][SEQ])]
            del found[count:]
        own = [entry[SEQ] for entry in found]
        if len(own) < len(seqs):  # some are damaged
            self._backing.ack(list(set(seqs).difference(own)))
        rejected.at += len(seqs)
        if rejected.at == len(rejected.seqs):
            self._rejected.popleft()
        if own:
            self._put(_Dead([entry[MESSAGE] for entry in found], own, rejected.reason))
        return len(seqs) * _LOOKUP_WORK

    def _forget_targets(self) -> int:
        """Monitor many targets no longer when nothing is under way; return the work."""
        if self._flight.count or len(self._monitors) <= MONITORS_KEPT:
            return 0
        count = min(len(self._monitors), FORGOTTEN_AT_ONCE)
        for _ in range(count):
            self._source.demonitor(self._monitors.popitem()[1])
        if not self._monitors:
            self._monitors = {}  # a dict keeps the room of keys that were deleted
        return count * _DEMONITOR_WORK

    def _send_some(self, dead: _Dead, budget: int) -> int:
        """Send the next of these messages, neighbours with equal targets together; return the work."""
        dead_letters: dict[tuple[bytes, bytes], _RoutedDeadLetter] = {}
        like: _Like = {}
        heads = self._rules.heads(dead.reason, int(self._source.runtime.clock.wall_s()))
        messages, start, work = dead.messages, dead.at, 0
        run: list[Message] = []
        shared: _RoutedDeadLetter | None = None
        while dead.at < len(messages) and work < budget:
            origin, head, body = messages[dead.at]
            dead_letter = dead_letters.get((origin, head))
            if dead_letter is None:
                dead_letter, more = self._dead_letter(origin, head, heads, like, budget - work)
                work += more
                if dead_letter is None:
                    break
                if dead_letter.is_shared:
                    dead_letters[origin, head] = dead_letter
            if shared is not None and not _go_together(shared, dead_letter):
                work += self._begin(run, dead, start, shared)
                run, start = [], dead.at
                if work >= budget:
                    break
            shared = dead_letter
            run.append((dead_letter.origin, dead_letter.head, body))
            work += _DEAD_LETTER_WORK + min(len(dead_letter.targets), FAN_OUT_QUEUES)
            dead.at += 1
        if shared is not None and run:
            work += self._begin(run, dead, start, shared)
        if dead.at == len(messages):
            self._dead.popleft()
        return work

    def _dead_letter(
        self, origin: bytes, head: bytes, heads: DeadLetterHeads, like: _Like, budget: int
    ) -> tuple[_RoutedDeadLetter | None, int]:
        """Return the letter of a message, None if its route takes another turn, and the work."""
        vhost = self._entry.vhost
        assert vhost is not None
        if self._routed is not None:
            (dead, routed), self._routed = self._routed, None
            before = routed.work
            routed.advance(budget)
            work = routed.work - before
        else:
            dead = heads.dead_letter(origin, head)
            known = like.get(id(dead.headers))
            if known is not None:
                _, other = known
                dead_letter = _RoutedDeadLetter(
                    other.origin, dead.head, dead.persistent, other.targets, other.reply_keys, True
                )
                return dead_letter, _LIKE_WORK
            work = _HEAD_WORK + len(dead.head)
            name = self._rules.exchange
            exchange = vhost.topology.exchanges.get(name) if name is not None else None
            keys = list(dict.fromkeys(dead.keys))
            if exchange is None:
                routed = Routed([], False, 0)
            else:
                routed = route(vhost.topology, exchange, keys, examine(dead.routed_as), budget)
            work += routed.work
        if routed.rest is not None:
            self._routed = dead, routed
            return None, work
        targets = routed.queues
        if self._rules.finds_cycles:
            targets = self._without_cycles(targets, dead)
            if len(targets) > 1 and vhost.alarms is not None and vhost.alarms.raised:
                self._wait_under_alarm()
                self._routed = dead, routed
                return None, work
        new_origin = self._rules.origin(origin, dead.keys[0])
        reply_keys = sorted({key for key in dead.keys if self._is_reply(key)})
        is_shared = not routed.per_message
        dead_letter = _RoutedDeadLetter(
            new_origin, dead.head, dead.persistent, targets, reply_keys, is_shared
        )
        if is_shared and not routed.needs_headers:
            like[id(dead.headers)] = dead.headers, dead_letter
        return dead_letter, work + len(targets)

    def _is_reply(self, key: bytes) -> bool:
        """Whether letters with this key go to a client that waits for a reply (direct reply-to)."""
        vhost = self._entry.vhost
        if self._rules.exchange != "" or vhost is None or vhost.reply_addresses is None:
            return False
        return vhost.reply_addresses.is_address(key)

    def _without_cycles(self, targets: list[QueueEntry], dead: DeadLetter) -> list[QueueEntry]:
        """Leave out the targets that the letter has come round to without having been rejected."""
        seen = died_since_rejection(dead.headers)
        kept = [target for target in targets if target.name not in seen]
        if len(kept) < len(targets):
            queues = queues_of(dead.headers)
            for target in targets:
                if target.name in seen:
                    self._log_cycle((target.name, *queues))
        if kept and len(seen) >= DEATHS_MAX:
            self._log_bound("in too many queues", dead)
            return []
        if len(kept) > 1 and len(kept) ** len(seen) > DEAD_LETTER_COPIES_MAX:
            self._log_bound("they multiply", dead)
            return []
        return kept

    def _log_cycle(self, queues: tuple[str, ...]) -> None:
        if queues not in self._logged and len(self._logged) < _LOGGED_MAX:
            self._logged.add(queues)
            log.warning(
                "dead-letter cycle, messages dropped queue=%s vhost=%s queues=%s",
                self._entry.name,
                self._entry.vhost_name,
                ",".join(queues),
            )

    def _log_bound(self, bound: str, dead: DeadLetter) -> None:
        """Log that letters were dropped at a bound, once for each bound."""
        if bound not in self._logged:
            self._logged.add(bound)
            log.warning(
                "dead letters dropped reason=%s queue=%s vhost=%s queues=%s",
                bound,
                self._entry.name,
                self._entry.vhost_name,
                ",".join(queues_of(dead.headers)),
            )

    # Sending.

    def _begin(
        self, messages: list[Message], dead: _Dead, start: int, shared: _RoutedDeadLetter
    ) -> int:
        """Send a batch to its targets, or as many as a turn has time for; return the work."""
        seqs = dead.seqs[start : start + len(messages)]
        self._waiting_count -= len(messages)
        self._waiting_bytes -= bytes_of(dead.messages[start : start + len(messages)])
        vhost = self._entry.vhost
        for key in shared.reply_keys:
            assert vhost is not None
            assert vhost.reply_addresses is not None
            vhost.reply_addresses.deliver(key, messages)
        batch = DeadLetterBatch(messages, seqs, shared.persistent, shared.targets)
        self._flight.begin(batch)
        if len(shared.targets) > FAN_OUT_QUEUES:
            self._wide = batch
            return PUBLISH_TURN_WORK  # nothing else is sent before it
        return _BATCH_WORK + self._send_slice(batch)

    def _send_slice(self, batch: DeadLetterBatch) -> int:
        targets = batch.next_slice(FAN_OUT_QUEUES)
        self._send(batch, targets)
        if batch.sent >= len(batch.targets):
            self._wide = None
        self._give_up_if_done([batch])
        return len(targets) * _MAIL_WORK

    def _send(self, batch: DeadLetterBatch, targets: Sequence[QueueEntry]) -> None:
        """Send a batch to the targets that run; the others get it later, unless they are deleted."""
        running: list[QueueEntry] = []
        for target in targets:
            if target.is_running:
                running.append(target)
            elif target.state != "deleted":
                self._retry_later(batch, target)
        source = self._source
        publisher = (source.ref, len(batch.messages), batch.size_bytes, batch.first)
        if any(target.is_remote for target in running):
            self._send_to_nodes(batch, running)
            running = [target for target in running if not target.is_remote]
        store, msg_no = self._store(), 0
        kept = running
        if not batch.persistent:
            kept = [target for target in running if target.persists_all]
        if kept and store is not None:
            body_bytes = batch.size_bytes - batch.head_bytes
            msg_no = write_for(store, kept, batch.messages, True, body_bytes)
        for target in running:
            ref = self._owes(batch, target)
            persistent = batch.persistent or target.persists_all
            own_no = msg_no if persistent and target.queue_no else 0
            dead_letters = Publish(
                batch.messages,
                persistent,
                [publisher],
                None,
                own_no,
                batch.head_bytes,
                by_queue=True,
            )
            source.runtime.send(ref, dead_letters)

    def _owes(self, batch: DeadLetterBatch, target: QueueEntry) -> Ref:
        """Note that a target owes an answer; return its amqqueue."""
        ref = target.ref
        assert ref is not None
        if ref not in self._monitors:
            self._monitors[ref] = self._source.monitor(ref)
        batch.owes(target, ref)
        return ref

    def _send_to_nodes(self, batch: DeadLetterBatch, running: Sequence[QueueEntry]) -> None:
        """Send a batch to its targets on other nodes, to the delegate of each node once."""
        source = self._source
        for home, targets in running_by_home(running).items():
            dead_letters = NodePublish(
                source.ref,
                [self._owes(batch, target).num for target in targets],
                batch.messages,
                batch.persistent,
                batch.size_bytes,
                batch.first,
                head_bytes=batch.head_bytes,
                is_awaited=True,
                by_queue=True,
            )
            source.runtime.send(home.delegates[self._entry.vhost_name], dead_letters, source.ref)

    # Answers.

    def _target_down(self, target: Ref, deleted: bool) -> None:
        """A target has ended: a deleted one owes nothing, another gets its letters again."""
        monitor = self._monitors.pop(target, None)
        if monitor is not None and deleted:
            self._source.demonitor(monitor)
        gone = self._flight.gone(target)
        for batch, entry in gone:
            if not deleted:
                self._retry_later(batch, entry)
        self._give_up_if_done([batch for batch, _ in gone])

    def _retry_later(self, batch: DeadLetterBatch, target: QueueEntry) -> None:
        batch.retries += 1
        self._retries.append((batch, target))
        if self._timer is None:
            self._timer = self._source.start_bulk_timer(RETRY_S, _RETRY_DEAD_LETTERS)

    def _retry(self) -> None:
        """Send batches again to targets that did not run, a turn's worth."""
        self._timer = None
        self._is_under_alarm = False
        retries = self._retries[:RETRIES_AT_ONCE]
        del self._retries[:RETRIES_AT_ONCE]
        if self._retries:
            self._timer = self._source.start_bulk_timer(RETRY_S, _RETRY_DEAD_LETTERS)
        for batch, target in retries:
            batch.retries -= 1
            self._send(batch, [target])
            self._give_up_if_done([batch])

    def _give_up_if_done(self, batches: Sequence[DeadLetterBatch]) -> None:
        """Ack the messages of the batches that have arrived everywhere."""
        done = [batch for batch in batches if batch.is_done]
        for batch in done:
            self._flight.end(batch)
        seqs = [seq for batch in done for seq in batch.seqs]
        if seqs:
            self._backing.ack(seqs)

    def end(self) -> None:
        """The queue is deleted, and its messages with it."""
        store = self._store()
        if self._is_waiting_for_store and store is not None:
            store.backpressure.forget(self._store_follows)
        if self._timer is not None:
            self._timer.cancel()
        for monitor in self._monitors.values():
            self._source.demonitor(monitor)
        self._monitors.clear()
        self._rejected.clear()
        self._dead.clear()
        self._retries.clear()
        self._routed = self._wide = None
        self._flight = DeadLettersInFlight()


def has_dead_letter_exchange(entry: QueueEntry) -> bool:
    """Return whether messages that die in a queue now are dead-lettered: it names an exchange that exists."""
    name, vhost = entry.settings.dead_letter_exchange, entry.vhost
    return name is not None and vhost is not None and name in vhost.topology.exchanges


def bytes_of(messages: Sequence[Message]) -> int:
    """Return the size of heads and bodies."""
    return sum([len(head) + len(body) for _, head, body in messages])


def _append(entry: Entry, entries: list[Entry]) -> list[Entry]:
    entries.append(entry)
    return entries


def _go_together(one: _RoutedDeadLetter, other: _RoutedDeadLetter) -> bool:
    if one is other:
        return True
    is_alike = one.persistent == other.persistent and one.reply_keys == other.reply_keys
    return is_alike and one.targets == other.targets
