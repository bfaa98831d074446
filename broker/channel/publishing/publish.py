"""A publish from channel to queues: route, properties, mandatory, confirms and credit.

A run (same exchange, key, flags and delivery mode) is handled as a whole: one route, one mail per
target queue, one stretch of confirm numbers. Only where a property must be looked at (the kernel's
``EXAMINE``) or the route depends on headers is each message taken by itself; neighbours that come out
alike still go to the queue as one mail.

The work of a channel's turn is limited, be it many runs, many messages, few messages for many queues, or one
message whose route is much work or leads to very many queues (``fan_out.py``). The channel holds the rest of a
run, and the publisher what it has begun of the first message of that rest.

Credit is counted per channel and queue: a channel may be ahead of a queue by
``CREDIT_MESSAGES`` and ``CREDIT_BYTES``; beyond that the connection stops reading until the queue grants
more, or is gone. A message store that the disk does not follow stops it as well, until it has caught up, and so does
a link that does not take what is sent to queues of another node.

Queues of other nodes get a run as one mail per node, whose delegate (``vhost/delegate.py``) hands it on; a vhost that
has none costs one test per run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.actors.credit import CreditSender
from leveret.actors.runtime.ref import Ref
from leveret.amqp import properties
from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.kernel import EXAMINE, PERSISTENT, body_bytes, confirm_frames
from leveret.amqp.producer_headers import EPOCH, ID, SEQ, producer_of
from leveret.broker.channel.confirms import Confirms
from leveret.broker.channel.publishing.fan_out import FanOut
from leveret.broker.channel.publishing.message_checks import (
    checked_keys,
    checked_properties,
    without_bcc,
)
from leveret.broker.channel.publishing.node_publish import NodePublisher
from leveret.broker.channel.publishing.producers import Predecessors
from leveret.broker.channel.publishing.replies import Replies
from leveret.broker.channel.records import Examination, Route
from leveret.broker.channel.reply_consumers import REPLY_TO, is_reply_key, reply_key_of
from leveret.broker.channel.session import Block
from leveret.broker.mail import Publish
from leveret.broker.queue.storage.store_writes import write_for
from leveret.broker.registry.registry import are_down, some_refuse
from leveret.broker.remote.mail_between_nodes import NodePublish
from leveret.core.limits import FAN_OUT_MESSAGES, FAN_OUT_QUEUES, PUBLISH_TURN_WORK
from leveret.core.message import Message, exchange_and_key, origin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leveret.amqp.producer_headers import Sent
    from leveret.broker.channel.session import ChannelActor
    from leveret.broker.channel.uncommitted import Batch, Collector
    from leveret.broker.mail import Numbered
    from leveret.broker.registry.cluster_nodes import LinkBackpressure
    from leveret.broker.registry.registry import QueueEntry
    from leveret.broker.vhost.vhost import VHost
    from leveret.msg_store.wal.backpressure import Backpressure

# Work, in units of about 0.1 us; a copy (one message for one queue) is one unit.
METHOD_WORK: Final = 100
_RUN_WORK: Final = 30
_MAIL_WORK: Final = 10
_ACCOUNT_WORK: Final = 50  # of a queue that was not published to of late
_EXAMINE_WORK: Final = 100  # and the bytes of the header
# A turn may have no time to send so many messages to more queues than these; it sends them to some of the queues.
WIDE_QUEUES: Final = PUBLISH_TURN_WORK // (_MAIL_WORK + FAN_OUT_MESSAGES)
_BULK_MAILS: Final = 32  # so many targets and more get their mail as bulk
_NODE_MAIL_BYTES: Final = (
    64 * 1024 * 1024
)  # of a run for another node; a longer one goes message by message

# Are told of messages that were routed in a vhost, in the broker's thread. Tests open them, from other threads
# (``testing/publish_hook.py``), so the list is copied and changed in single steps.
taps: Final[list[Callable[[VHost, list[Message]], None]]] = []

# Target queues, persistent, expiration in ms, reply keys in CC and BCC.
_Key: TypeAlias = "tuple[Sequence[QueueEntry], bool, int | None, Sequence[bytes]]"
# The head to store, and the origin where it is another; what a message must share with its neighbours; whether equal
# ones may differ; its producer.
_Looked: TypeAlias = "tuple[bytes, bytes | None, _Key, bool, Sent | None]"


def _takes_turns(width: int, count: int) -> bool:
    """Tell whether one turn has no time to send so many messages to so many queues."""
    return width > FAN_OUT_QUEUES or width * (_MAIL_WORK + count) > PUBLISH_TURN_WORK


class Publisher:
    """The publishing half of a channel.

    Attributes:
        collector: the transaction while it collects; None while it is committed.
        confirms: the confirm state; None before confirm.select or tx.select.
        fan_out: a batch that some of its queues have not been sent; nothing else is published before.
        is_long_work: the present turn goes on with work that was too long for an earlier one. Then at
            least one message is published, however many its targets, and they get it as bulk.
        replies: what it publishes to reply consumers.
        reply_key: of the channel's own reply consumer, if there is one.
        transaction: the channel's; confirms are for it.
        work_left: of the present turn of the channel, in units of about 0.1 us.
    """

    __slots__ = (
        "_backpressure",
        "_channel",
        "_credits",
        "_elsewhere",
        "_examined",
        "_lagging",
        "_number",
        "_predecessors",
        "_ref",
        "_route",
        "_session",
        "_turns",
        "collector",
        "confirms",
        "fan_out",
        "is_long_work",
        "replies",
        "reply_key",
        "transaction",
        "work_left",
    )

    def __init__(self, channel: ChannelActor) -> None:
        self._channel = channel
        self._session = channel.session
        self._turns = channel.runtime.turns
        self._number = channel.number
        self._ref: Ref = channel.ref
        self._credits: dict[Ref, CreditSender] = {}
        self._elsewhere: NodePublisher | None = None  # made for the first run that goes elsewhere
        # Of a store, or of the link with another node, that is waited for.
        self._backpressure: Backpressure | LinkBackpressure | None = None
        # Of the first message of the rest of a run, if its route was not complete.
        self._route: Route | None = None
        self._examined: Examination | None = None
        self._predecessors: Predecessors | None = None  # made for the first producer
        self._lagging = 0  # queues that this channel is ahead of as far as it may
        self.collector: Collector | None = None
        self.confirms: Confirms | None = None
        self.fan_out: FanOut | None = None
        self.is_long_work = False
        self.replies = Replies(channel)
        self.reply_key: bytes | None = None
        self.transaction: Collector | None = None
        self.work_left = PUBLISH_TURN_WORK

    @property
    def vhost(self) -> VHost:
        return self._session.vhost

    def publish(self, method: bytes, mode: int, messages: list[Message]) -> list[Message] | None:
        """Publish a run of messages, or as much of it as this turn has time for.

        Returns the rest of the run; None when all of it was published.

        Raises:
            SoftError: 403, 404 or 406; the messages before the offender have been published.
            HardError: 540 for immediate, 502 for a malformed headers table.
        """
        if self._route is None:
            route = self._session.routes.find(method)
        else:
            route, self._route = self._route, None
            if route.walk is not None:
                self._session.routes.go_on(method, route, self.work_left)
        if route.work:
            self.work_left -= route.work
            route.work = 0  # cached from now on
            if route.walk is not None:
                self._route = route
                return messages
        if mode & EXAMINE or route.needs_headers:
            return self._publish_examined(route, messages)
        width = len(route.queues)
        work_left = self.work_left
        self.work_left = work_left - _RUN_WORK - width * (_MAIL_WORK + len(messages))
        rest = None
        if self.work_left < 0 and width:
            some = max(int(self.is_long_work), (work_left - _RUN_WORK) // width - _MAIL_WORK)
            if width > WIDE_QUEUES and _takes_turns(width, min(len(messages), FAN_OUT_MESSAGES)):
                some = FAN_OUT_MESSAGES
            if some <= 0:
                return messages
            if some < len(messages):
                messages, rest = messages[:some], messages[some:]
        self._send(route, route.queues, messages, mode == PERSISTENT, None)
        return rest

    def _publish_examined(self, route: Route, messages: list[Message]) -> list[Message] | None:
        """Take messages one by one; neighbours with equal targets and modes are sent together."""
        batch: list[Message] = []
        batch_key: _Key | None = None
        producers: list[Sent | None] | None = None  # made for the first message that has one
        head_bytes = width = 0  # as they came; queues of the batch
        last_head: bytes | None = None
        new_head, new_origin, sent = b"", None, None
        try:
            for position, message in enumerate(messages):
                if self.work_left <= 0 and position:
                    return messages[position:]
                head = message[1]
                if head is not last_head:
                    looked = self._look(route, head)
                    if looked is None:
                        self._route = route
                        return messages[position:]
                    new_head, new_origin, key, per_message, sent = looked
                    last_head = None if per_message else head
                    if key != batch_key:
                        self._flush(route, batch, batch_key, head_bytes, producers)
                        batch, batch_key, head_bytes, producers = [], key, 0, None
                        width = len(key[0])
                        if self.fan_out is not None:
                            return messages[position:]
                        self.work_left -= 0 if width > WIDE_QUEUES else _MAIL_WORK * width
                # Copies for a wide route are counted when they are sent.
                self.work_left -= 1 if width > WIDE_QUEUES else 1 + width
                head_bytes += len(head)
                if new_head is not head:
                    message = (new_origin or message[0], new_head, message[2])  # noqa: PLW2901
                batch.append(message)
                if sent is not None or producers is not None:
                    producers = producers or [None] * (len(batch) - 1)
                    producers.append(sent)
                if width > WIDE_QUEUES and len(batch) >= FAN_OUT_MESSAGES:
                    return messages[position + 1 :] or None
        finally:
            self._flush(route, batch, batch_key, head_bytes, producers)
        return None

    def _look(self, route: Route, head: bytes) -> _Looked | None:
        """Look at a message's header.

        None: the message has a route of its own, which is too much work for this turn.
        """
        examined, self._examined = self._examined, None
        if examined is not None:
            routed = examined.routed
            before = routed.work
            routed.go_on(self.work_left)
            self.work_left -= routed.work - before
            return self._looked(examined)
        self.work_left -= _EXAMINE_WORK + len(head)
        seen = properties.examine(head)
        headers = seen.headers  # decoded here: a malformed table must not reach a consumer
        sent = None
        if headers and (SEQ in headers or ID in headers or EPOCH in headers):
            sent = producer_of(headers)
        if seen.reply_to == REPLY_TO:
            head = self._with_reply_key(head)
        expiration_ms = checked_properties(seen, self._session.user)
        keys, blind = checked_keys(route.routing_key, seen)
        origin = None
        if blind is not None:
            head = without_bcc(head)
            origin = origin_of(*exchange_and_key(route.origin), *blind)
            keys += blind
        if len(keys) == 1 and not route.needs_headers:
            return head, origin, (route.queues, seen.persistent, expiration_ms, ()), False, sent
        routed = self._session.routes.again(route, keys, seen, self.work_left)
        self.work_left -= routed.work
        reply_keys: Sequence[bytes] = ()
        if not route.exchange.name:
            known = () if routed.queues else (route.routing_key,)  # ``_drop`` looks at that
            reply_keys = [key for key in sorted({*keys}.difference(known)) if is_reply_key(key)]
        return self._looked(
            Examination(head, origin, seen.persistent, expiration_ms, routed, reply_keys, sent)
        )

    def _with_reply_key(self, head: bytes) -> bytes:
        """Return the head of a request, which tells where its replies go."""
        if self.reply_key is None:
            raise PreconditionFailed("fast reply consumer does not exist")
        return properties.with_reply_to(head, self.reply_key)

    def _looked(self, examined: Examination) -> _Looked | None:
        routed = examined.routed
        if routed.rest is None:
            key = (
                routed.queues,
                examined.persistent,
                examined.expiration_ms,
                examined.reply_keys,
            )
            return examined.head, examined.origin, key, routed.per_message, examined.sent
        self._examined = examined
        return None

    def _flush(
        self,
        route: Route,
        batch: list[Message],
        key: _Key | None,
        head_bytes: int,
        sent: list[Sent | None] | None,
    ) -> None:
        if batch and key is not None:
            queues, persistent, expiration_ms, reply_keys = key
            self._send(route, queues, batch, persistent, expiration_ms, head_bytes, sent)
            if len(queues) > WIDE_QUEUES and self.fan_out is None:
                self.work_left -= len(queues) * (_MAIL_WORK + len(batch))
            for reply_key in reply_keys:
                if self.collector is None:
                    self.replies.send(reply_key, batch)
                else:
                    self.collector.publish(None, (), batch.copy(), False, None, 0, reply_key)

    def _send(
        self,
        route: Route,
        queues: Sequence[QueueEntry],
        messages: list[Message],
        persistent: bool,
        expiration_ms: int | None,
        head_bytes: int = 0,
        sent: Sequence[Sent | None] | None = None,
    ) -> None:
        """Send a batch to its queues; headers without a table, a few hundred bytes, do not count."""
        if (self._session.features.firehose is not None or taps) and (
            self.transaction is None or self.collector is not None
        ):
            self._show(route, queues, messages)
        count = len(messages)
        confirms = self.confirms
        if confirms is not None:
            if self.collector is not None:
                self.collector.publish(
                    route,
                    queues,
                    messages,
                    persistent,
                    expiration_ms,
                    head_bytes,
                    sent=sent,
                )
                return
            first = confirms.number(count)
        else:
            first = 0
        if not queues:
            self._drop(route, messages, first)
            return
        size_bytes = len(messages[0][2]) if count == 1 else body_bytes(messages)
        expirations: list[int | None] | None = (
            None if expiration_ms is None else [expiration_ms] * count
        )
        if len(queues) > WIDE_QUEUES and _takes_turns(len(queues), count):
            batch = (size_bytes, head_bytes, expirations, first, sent)
            self._fan_out(FanOut(route, queues, messages, persistent, *batch))
            return
        reached = self._reach(
            queues, messages, persistent, size_bytes, head_bytes, expirations, first, sent
        )
        if len(reached) < len(queues):
            self._missed(route, queues, reached, messages, first)
        elif confirms is not None:
            confirms.wait(first, count, reached)
        elif queues[0].is_backlogged and all(each.is_backlogged for each in queues):
            self._session.read_control.to_backlogs += count

    def _show(self, route: Route, queues: Sequence[QueueEntry], messages: list[Message]) -> None:
        """Show published messages to the firehose and to taps."""
        session = self._session
        firehose = session.features.firehose
        if firehose is not None:
            firehose.published(session, self._number, route.exchange.name, queues, messages)
        for tap in taps.copy():
            tap(session.vhost, messages)

    def _reach(
        self,
        queues: Sequence[QueueEntry],
        messages: list[Message],
        persistent: bool,
        size_bytes: int,
        head_bytes: int,
        expirations: list[int | None] | None,
        first: int,
        sent: Sequence[Sent | None] | None = None,
    ) -> list[Ref]:
        """Store messages and send them to all of these queues that are there; return which."""
        path = self._session.features
        if path.remote_queues or (path.persisting_queues and not persistent):
            batch = (size_bytes, head_bytes, expirations, first, sent)
            parts = self._reach_parts(queues, messages, persistent, *batch)
            if parts is not None:
                return parts
        count = len(messages)
        first_msg_no = self._store(queues, messages, size_bytes) if persistent else 0
        size_bytes += head_bytes
        publisher = (self._ref, count, size_bytes, first)
        turns = self._turns
        merges = expirations is None and sent is None
        is_bulk = self.is_long_work or len(queues) >= _BULK_MAILS
        credits_ = self._credits
        reached: list[Ref] = []
        numbered = None if sent is None else self._numbered(queues, sent)
        for entry in queues:
            ref = entry.ref
            if ref is None:
                continue
            reached.append(ref)
            credit = credits_.get(ref)
            if credit is None:
                credit = self._open_account(ref)
            if credit.spend(count, size_bytes):
                self._lags()
            msg_no = first_msg_no if entry.queue_no else 0
            waiting = ref.cell.inbox
            last = waiting[-1][0] if merges and waiting else None
            if type(last) is Publish and last.extend(
                messages, persistent, [publisher], msg_no, head_bytes
            ):
                continue  # no mail is made only to be absorbed
            mail = Publish(messages, persistent, [publisher], expirations, msg_no, head_bytes)
            if numbered is not None:
                mail.numbered = numbered[entry]
            if is_bulk:
                turns.send_bulk(ref, mail)
            else:
                turns.send(ref, mail)
        return reached

    def _store(self, queues: Sequence[QueueEntry], messages: list[Message], size_bytes: int) -> int:
        """Store messages, where the vhost has a store; return the number of the first, 0 without one."""
        store = self._session.vhost.store.msg_store
        if store is None:
            return 0
        first_msg_no = write_for(store, queues, messages, self.confirms is not None, size_bytes)
        if store.backpressure.is_on:
            self._wait_for(store.backpressure)
        return first_msg_no

    def _spend(self, queue: Ref, count: int, size_bytes: int) -> None:
        credit = self._credits.get(queue)
        if credit is None:
            credit = self._open_account(queue)
        if credit.spend(count, size_bytes):
            self._lags()

    def _open_account(self, queue: Ref) -> CreditSender:
        self._channel.watch(queue)
        credit = self._credits[queue] = CreditSender()
        self.work_left -= _ACCOUNT_WORK
        return credit

    def _lags(self) -> None:
        """A queue has not taken in as much as this channel may be ahead of it."""
        self._lagging += 1
        self._session.read_control.block(Block.CREDIT)

    def _reach_parts(
        self,
        queues: Sequence[QueueEntry],
        messages: list[Message],
        persistent: bool,
        size_bytes: int,
        head_bytes: int,
        expirations: list[int | None] | None,
        first: int,
        sent: Sequence[Sent | None] | None,
    ) -> list[Ref] | None:
        """Do as ``_reach`` for queues that are not alike; return None, having done nothing, if they are.

        They are alike if all are on this node, and those that keep all messages on the disk are not among others.
        """
        rest = (size_bytes, head_bytes, expirations, first, sent)
        if self._session.features.remote_queues:
            here = [entry for entry in queues if not entry.is_remote]
            if len(here) < len(queues):
                run = NodePublish(
                    self._ref, [], messages, persistent, size_bytes + head_bytes, first
                )
                run.expiration_ms = None if expirations is None else expirations[0]
                run.head_bytes, run.is_awaited = head_bytes, self.confirms is not None
                there = [entry for entry in queues if entry.is_remote]
                numbered = None if sent is None else self._numbered(there, sent)
                if self._elsewhere is None:
                    self._elsewhere = NodePublisher(self._channel, self._spend, self._wait_for)
                reached = self._elsewhere.reach(there, run, numbered)
                return reached + self._reach(here, messages, persistent, *rest) if here else reached
        persisting = [] if persistent else [entry for entry in queues if entry.persists_all]
        if not persisting or len(persisting) == len(queues):
            return self._reach(queues, messages, True, *rest) if persisting else None
        others = [entry for entry in queues if not entry.persists_all]
        kept = self._reach(persisting, messages, True, *rest)
        return kept + self._reach(others, messages, False, *rest)

    def _numbered(
        self, queues: Sequence[QueueEntry], sent: Sequence[Sent | None]
    ) -> dict[QueueEntry, list[Numbered | None]]:
        """Number messages for their queues; also for those that refuse them, which must have them before later ones."""
        if self._predecessors is None:
            self._predecessors = Predecessors()
        asks = self.confirms is not None  # a transaction has confirms as well
        there = [entry for entry in queues if entry.ref is not None or entry.is_refusing]
        return {entry: self._predecessors.numbered(entry, sent, asks) for entry in there}

    def _fan_out(self, fan_out: FanOut) -> None:
        """Begin a fan-out; the channel goes on with it in its next turns."""
        self.fan_out = fan_out
        self.work_left = 0
        if self.confirms is not None:
            self.confirms.wait(fan_out.first_seqno, len(fan_out.messages), [self._ref])

    def go_on(self) -> None:
        """Send the batch of the fan-out to the next of its queues, if there is one."""
        fan_out = self.fan_out
        if fan_out is None:
            return
        per_queue = _MAIL_WORK + len(fan_out.messages)
        queues = fan_out.next_slice(max(1, min(FAN_OUT_QUEUES, PUBLISH_TURN_WORK // per_queue)))
        self.work_left -= len(queues) * per_queue
        reached = self._reach(
            queues,
            fan_out.messages,
            fan_out.persistent,
            fan_out.size_bytes,
            fan_out.head_bytes,
            fan_out.expirations,
            fan_out.first_seqno,
            fan_out.sent_by,
        )
        fan_out.has_reached |= bool(reached)
        fan_out.is_refused |= len(reached) < len(queues) and some_refuse(queues)
        if self.confirms is not None:
            self.confirms.wait_also(self._ref, reached)
        if fan_out.is_complete:
            self.fan_out = None
            self._sent_all(fan_out)

    def _sent_all(self, fan_out: FanOut) -> None:
        if fan_out.route.mandatory and not (fan_out.has_reached or fan_out.is_refused):
            self._session.write_returns(self._number, fan_out.messages)
        if self.confirms is not None:
            self.confirms.gone(self._ref, ok=not fan_out.is_refused)

    def _wait_for(self, backpressure: Backpressure | LinkBackpressure) -> None:
        """Read no more until the store, or the link, has caught up; one of them at a time."""
        if self._backpressure is not None:
            return
        self._backpressure = backpressure
        self._session.read_control.block(Block.BACK_PRESSURE)
        backpressure.wait(self._store_follows)

    @property
    def must_wait(self) -> bool:
        """Whether more should be published only when some queue, the store or a reply consumer has caught up."""
        return bool(self._lagging) or self._backpressure is not None or self.replies.is_waiting

    def _went_on(self) -> None:
        if self.transaction is not None and not self.must_wait:
            self._channel.commit_goes_on()

    def reply_consumer_goes_on(self, channel: Ref) -> None:
        """The channel of a reply consumer takes more, or has ended."""
        self.replies.goes_on(channel)
        self._went_on()

    def reply_consumers_stall(self) -> None:
        """The reply consumers that were waited for take nothing."""
        self.replies.waited_enough()
        self._went_on()

    def _store_follows(self) -> None:
        self._backpressure = None
        self._session.read_control.unblock(Block.BACK_PRESSURE)
        self._went_on()

    def _missed(
        self,
        route: Route,
        queues: Sequence[QueueEntry],
        reached: list[Ref],
        messages: list[Message],
        first: int,
    ) -> None:
        """Answer for messages of which some queues get nothing.

        A queue that is being declared does not count: no client has been told that it is there. A queue
        that could not be started cannot promise anything, so the messages are refused.
        """
        if some_refuse(queues):
            if route.mandatory and are_down(queues):
                self._session.write_returns(self._number, messages)
            if self.confirms is not None:
                self.confirms.settle_now(first, len(messages), ok=False)
        elif not reached:
            self._drop(route, messages, first)
        elif self.confirms is not None:
            self.confirms.wait(first, len(messages), reached)

    def _drop(self, route: Route, messages: list[Message], first: int) -> None:
        """Answer for messages that no queue gets: some are replies, the others go nowhere."""
        reply_key = reply_key_of(messages[0][0])
        if reply_key is not None:
            self.replies.send(reply_key, messages)
        if route.mandatory:
            self._session.write_returns(self._number, messages)
        if self.confirms is not None:
            self.confirms.settle_now(first, len(messages))

    def oversize(self, method: bytes, size_bytes: int) -> None:
        """Refuse, with PreconditionFailed, a body that was announced too large."""
        limit = self._session.settings.message_bytes_max
        raise PreconditionFailed(
            f"message size {size_bytes} is larger than configured max size {limit}"
        )

    def granted(self, queue: Ref, messages: int, size_bytes: int) -> None:
        credit = self._credits.get(queue)
        if credit is not None and credit.grant(messages, size_bytes):
            self._caught_up()

    def _caught_up(self) -> None:
        self._lagging -= 1
        self._session.read_control.unblock(Block.CREDIT)
        self._went_on()

    def forget_idle(self, queue: Ref) -> bool:
        """Forget a queue that owes this channel nothing; return whether it owed nothing."""
        credit = self._credits.get(queue)
        if credit is None or not credit.is_whole:
            return False
        if self.confirms is not None and not self.confirms.forget(queue):
            return False
        del self._credits[queue]
        if not self._credits:
            self._credits = {}  # a dict keeps the room of keys that were deleted
        return True

    def queue_gone(self, queue: Ref, deleted: bool) -> None:
        """Forget an incarnation of a queue: its credit no longer blocks.

        Its open confirms are acked if the queue was ``deleted``, and refused if it died.
        """
        self.reply_consumer_goes_on(queue)  # it may be the channel of one
        credit = self._credits.pop(queue, None)
        if credit is not None and credit.is_blocked:
            self._caught_up()
        if self.confirms is not None and self.confirms.gone(queue, deleted):
            self.send_confirms()

    def send_confirms(self) -> None:
        """Write the confirms that were settled since the last time."""
        confirms = self.confirms
        if confirms is None or not (confirms.acked or confirms.nacked):
            return
        answers = confirms.take_answers()
        if self.transaction is not None:
            self.transaction.answered(answers)
        else:
            self._session.writer.write(confirm_frames(self._number, answers))

    @property
    def awaits_confirms(self) -> bool:
        """Whether some queue owes an answer."""
        return self.confirms is not None and self.confirms.is_waiting

    def send_batch(self, batch: Batch) -> None:
        """Send messages that a transaction has collected."""
        messages, queues = batch.messages, batch.queues
        if any(entry.state == "deleted" for entry in queues):
            known = self.vhost.topology.queues
            there = [known.get(each.name) if each.state == "deleted" else each for each in queues]
            queues = [each for each in there if each is not None]
        self.work_left -= _RUN_WORK + len(queues) * (_MAIL_WORK + len(messages))
        if batch.route is not None:
            expiration_ms, head_bytes = batch.expiration_ms, batch.head_bytes
            sent = batch.sent
            self._send(
                batch.route, queues, messages, batch.persistent, expiration_ms, head_bytes, sent
            )
        elif batch.reply_key is not None:
            self.replies.send(batch.reply_key, messages)

    def close(self) -> None:
        """The channel ends: take back what blocks the connection, answer no confirm any more."""
        if self.transaction is not None:
            self.transaction.rollback()
        for credit in self._credits.values():
            if credit.is_blocked:
                self._session.read_control.unblock(Block.CREDIT)
        self._credits.clear()
        self._lagging = 0
        if self._backpressure is not None:
            self._backpressure.forget(self._store_follows)
            self._store_follows()
        self.replies.close()
        self.confirms = self.transaction = self.collector = None
        self._route = self._examined = self.fan_out = self._elsewhere = None
