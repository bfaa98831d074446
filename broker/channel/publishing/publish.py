"""A publish from channel to queues: route, properties, mandatory, confirms and credit.

It is three functions. ``publish`` routes a run (same exchange, key, flags and delivery mode) and makes a ``Batch`` of
it. ``send`` numbers a batch for confirms, or gives it to the transaction. ``_post`` stores it and sends each of its
queues a mail.

A run is handled as a whole: one route, one mail per target queue, one stretch of confirm numbers. Only where a property
must be looked at (the kernel's ``EXAMINE``) or the route depends on headers is each message routed by itself
(``message_route.py``); neighbours that come out alike still are one batch.

The work of a channel's turn is limited, be it many runs, many messages, few messages for many queues, or one
message whose route is much work or leads to very many queues (``fan_out.py``). The channel holds the rest of a
run; the publisher holds the state of its first message, if that was begun.

``credit_flow.py`` says how far a channel may be ahead of its queues and of the store. Queues of other nodes get a
batch as one mail per node, whose delegate (``vhost/delegate.py``) hands it on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.actors.runtime.ref import Ref
from leveret.amqp.kernel import EXAMINE, PERSISTENT, Run, body_bytes, confirm_frames
from leveret.broker.channel.confirms import Confirms
from leveret.broker.channel.publishing.batch import Batch, Collector
from leveret.broker.channel.publishing.credit_flow import CreditFlow
from leveret.broker.channel.publishing.fan_out import FanOut
from leveret.broker.channel.publishing.message_route import MessageRoute
from leveret.broker.channel.publishing.node_publish import NodePublisher
from leveret.broker.channel.publishing.producers import Predecessors
from leveret.broker.channel.publishing.replies import Replies
from leveret.broker.channel.records import Route
from leveret.broker.channel.reply_consumers import reply_key_of
from leveret.broker.channel.routes import WORK_S
from leveret.broker.mail import Publish
from leveret.broker.queue.storage.store_writes import write_for
from leveret.broker.registry.registry import are_down, some_refuse
from leveret.core.limits import FAN_OUT_MESSAGES, FAN_OUT_QUEUES, PUBLISH_TURN_WORK
from leveret.core.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leveret.broker.channel.session import ChannelActor
    from leveret.broker.mail import ProducerSeq
    from leveret.broker.registry.registry import QueueEntry
    from leveret.broker.vhost.vhost import VHost

# Work, in units of about 0.1 us; a copy (one message for one queue) is one unit.
METHOD_WORK: Final = 100
_RUN_WORK: Final = 30
_MAIL_WORK: Final = 10
_ACCOUNT_WORK: Final = 50  # of a queue that was not published to of late
# A turn may have no time to send so many messages to more queues than these; it sends them to some of the queues.
WIDE_QUEUES: Final = PUBLISH_TURN_WORK // (_MAIL_WORK + FAN_OUT_MESSAGES)
_BULK_MAILS: Final = 32  # so many targets and more get their mail as bulk

# Are told of messages that were routed in a vhost, in the broker's thread. Tests open them, from other threads
# (``testing/publish_hook.py``), so the list is copied and changed in single steps.
publish_hooks: Final[list[Callable[[VHost, list[Message]], None]]] = []


def _takes_turns(width: int, count: int) -> bool:
    """Tell whether one turn has no time to send so many messages to so many queues."""
    return width > FAN_OUT_QUEUES or width * (_MAIL_WORK + count) > PUBLISH_TURN_WORK


class Publisher:
    """The publishing half of a channel.

    Attributes:
        collector: the transaction while it collects; None while it is committed.
        confirms: the confirm state; None before confirm.select or tx.select.
        credit: with the queues.
        fan_out: a batch that some of its queues have not been sent; nothing else is published before.
        is_long_work: the present turn continues work that was too long for an earlier one. Then at
            least one message is published, however many its targets, and they get it as bulk. The channel resets it.
        replies: what it publishes to reply consumers.
        reply_key: of the channel's own reply consumer, if there is one.
        transaction: the channel's; confirms are for it.
        work_left: of the present turn, in units of about 0.1 us; the channel sets it and charges its other work to it.
    """

    __slots__ = (
        "_channel",
        "_message_route",
        "_nodes",
        "_number",
        "_predecessors",
        "_ref",
        "_route",
        "_session",
        "_turns",
        "collector",
        "confirms",
        "credit",
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
        self._nodes: NodePublisher | None = None  # made for the first batch for another node
        self._predecessors: Predecessors | None = None  # made for the first producer
        self._route: Route | None = (
            None  # of the rest of a run, if it or the first message's was not complete
        )
        self._message_route: MessageRoute | None = (
            None  # made for the first message that is routed singly
        )
        self.collector: Collector | None = None
        self.confirms: Confirms | None = None
        self.credit = CreditFlow(channel)
        self.fan_out: FanOut | None = None
        self.is_long_work = False
        self.replies = Replies(channel)
        self.reply_key: bytes | None = None
        self.transaction: Collector | None = None
        self.work_left = PUBLISH_TURN_WORK

    # -- what the channel sets -----------------------------------------------------------------

    def select_confirms(self) -> None:
        """Number publishes from now on."""
        self.confirms = Confirms()

    def select_transaction(self, transaction: Collector) -> None:
        """Have publishes collected; confirms are for the transaction."""
        self.confirms = Confirms()
        self.transaction = self.collector = transaction

    def collect(self, is_collected: bool) -> None:
        """Have publishes collected by the transaction, or routed while it is committed."""
        self.collector = self.transaction if is_collected else None

    def ask_for_replies(self, key: bytes | None) -> None:
        """Have replies to the publishes sent to the channel's reply consumer; None: it has none."""
        self.reply_key = key

    # -- from run to batch ---------------------------------------------------------------------

    def publish(self, run: Run) -> Run | None:
        """Publish a run, or as much of it as this turn has time for.

        Returns the rest of the run; None when all of it was published.

        Raises:
            SoftError: 403, 404 or 406; the messages before the offender have been published.
            HardError: 540 for immediate, 502 for a malformed headers table.
        """
        method: bytes
        mode: int
        messages: list[Message]
        _, _, method, mode, messages = run
        if self._route is None:
            route = self._session.routes.find(method)
        else:
            route, self._route = self._route, None
            if route.walk is not None:
                self._session.routes.advance(method, route, self.work_left)
        if route.work:
            self.work_left -= route.work
            route.work = 0  # cached from now on
            if route.walk is not None:
                self._route = route
                return run
        rest = None
        if mode & EXAMINE or route.needs_headers:
            rest = self._publish_singly(route, messages)
            return None if rest is None else (*run[:4], rest)
        width = len(route.queues)
        work_left = self.work_left
        self.work_left = work_left - _RUN_WORK - width * (_MAIL_WORK + len(messages))
        if self.work_left < 0 and width:
            some = max(int(self.is_long_work), (work_left - _RUN_WORK) // width - _MAIL_WORK)
            if width > WIDE_QUEUES and _takes_turns(width, min(len(messages), FAN_OUT_MESSAGES)):
                some = FAN_OUT_MESSAGES
            if some <= 0:
                return run
            if some < len(messages):
                messages, rest = messages[:some], messages[some:]
        self.send(Batch(route, route.queues, messages, mode == PERSISTENT))
        return None if rest is None else (*run[:4], rest)

    def _publish_singly(self, route: Route, messages: list[Message]) -> list[Message] | None:
        """Route messages one by one; neighbours with equal targets and modes are one batch.

        A message whose header has more bytes than the turn has work left waits for a bulk turn, which routes one at
        least: to decode a long header is long work.
        """
        own = self._message_route = self._message_route or MessageRoute(self._session)
        channel = self._channel
        batch: Batch | None = None
        last_head: bytes | None = None
        width = 0  # queues of the batch
        try:
            for position, message in enumerate(messages):
                head = message[1]
                if self.work_left < len(head) and (position or not channel.is_bulk_turn):
                    channel.runtime.turns.expect(channel.ref, len(head) * WORK_S)
                    return messages[position:]
                if batch is None or head is not last_head:
                    self.work_left -= own.find(route, head, self.reply_key, self.work_left)
                    if own.unfinished is not None:
                        self._route = route
                        return messages[position:]
                    last_head = head if own.holds_for_equals else None
                    if batch is None or not own.leads_with(batch):
                        routed, batch = batch, None
                        self._send_routed(routed)
                        if self.fan_out is not None:
                            return messages[position:]
                        batch, width = own.batch(route), len(own.queues)
                        self.work_left -= 0 if width > WIDE_QUEUES else _MAIL_WORK * width
                # Copies for a wide route are counted when they are sent.
                self.work_left -= 1 if width > WIDE_QUEUES else 1 + width
                batch.head_bytes += len(head)
                if own.head is not head:
                    message = (own.origin or message[0], own.head, message[2])  # noqa: PLW2901
                batch.messages.append(message)
                if own.producer is not None or batch.producers is not None:
                    batch.add_producer(own.producer)
                if width > WIDE_QUEUES and len(batch.messages) >= FAN_OUT_MESSAGES:
                    return messages[position + 1 :] or None
        finally:
            self._send_routed(batch)
        return None

    def _send_routed(self, batch: Batch | None) -> None:
        if batch is not None:
            self.send(batch)
            if len(batch.queues) > WIDE_QUEUES and self.fan_out is None:
                self.work_left -= len(batch.queues) * (_MAIL_WORK + len(batch.messages))

    # -- from batch to mails -------------------------------------------------------------------

    def send(self, batch: Batch) -> None:
        """Send a batch to its queues and reply consumers, or have the transaction keep it."""
        if (self._session.features.firehose is not None or publish_hooks) and (
            self.transaction is None or self.collector is not None
        ):
            self._show(batch)
        messages, queues, confirms = batch.messages, batch.queues, self.confirms
        count = len(messages)
        if confirms is not None:
            if self.collector is not None:
                self.collector.publish(batch)
                return
            batch.first_seqno = confirms.number(count)
        if not queues:
            self._drop(batch)
        else:
            batch.size_bytes = len(messages[0][2]) if count == 1 else body_bytes(messages)
            if len(queues) > WIDE_QUEUES and _takes_turns(len(queues), count):
                self._begin_fan_out(FanOut(batch))
            elif len(reached := self._post(batch, queues, batch.persistent)) < len(queues):
                self._missed(batch, reached)
            elif confirms is not None:
                confirms.wait(batch.first_seqno, count, reached)
            elif queues[0].is_backlogged and all(each.is_backlogged for each in queues):
                self._session.read_control.to_backlogs += count
        for reply_key in batch.reply_keys:
            self.replies.send(reply_key, messages)

    def _show(self, batch: Batch) -> None:
        """Show published messages to the firehose and to the hooks."""
        session, messages = self._session, batch.messages
        firehose = session.features.firehose
        if firehose is not None:
            exchange = batch.route.exchange.name
            firehose.published(session, self._number, exchange, batch.queues, messages)
        for hook in publish_hooks.copy():
            hook(session.vhost, messages)

    def _post(
        self, batch: Batch, queues: Sequence[QueueEntry], persistent: bool, are_alike: bool = False
    ) -> list[Ref]:
        """Store a batch if it is to be kept, and send it to these queues; return the queues that exist.

        Args:
            batch: has its number and size.
            queues: of the batch, all or some.
            persistent: they keep it on the disk.
            are_alike: all are on this node, and none of them keeps it otherwise than the others.
        """
        features = self._session.features
        if not are_alike and (
            features.remote_queues or (features.persisting_queues and not persistent)
        ):
            return self._post_apart(batch, queues)
        messages, expiration_ms, head_bytes = batch.messages, batch.expiration_ms, batch.head_bytes
        count, size_bytes, first_msg_no = len(messages), batch.size_bytes + head_bytes, 0
        publisher = (self._ref, count, size_bytes, batch.first_seqno)
        turns, credit = self._turns, self.credit
        accounts = credit.accounts
        if persistent:
            store, is_awaited = self._session.vhost.store.msg_store, self.confirms is not None
            first_msg_no = write_for(store, queues, messages, is_awaited, batch.size_bytes)
            if store is not None and store.backpressure.is_on:
                credit.wait_for(store.backpressure)
        merges = expiration_ms is None and batch.producers is None
        is_bulk = self.is_long_work or len(queues) >= _BULK_MAILS
        producer_seqs = None if batch.producers is None else self._producer_seqs(batch, queues)
        reached: list[Ref] = []
        for entry in queues:
            ref = entry.ref
            if ref is None:
                continue
            reached.append(ref)
            account = accounts.get(ref)
            if account is None:
                account = credit.open_account(ref)
                self.work_left -= _ACCOUNT_WORK
            if account.spend(count, size_bytes):
                credit.block()
            msg_no = first_msg_no if entry.queue_no else 0
            waiting = ref.cell.inbox
            last = waiting[-1][0] if merges and waiting else None
            if type(last) is Publish and last.extend(
                messages, persistent, [publisher], msg_no, head_bytes
            ):
                continue  # no mail is made only to be absorbed
            mail = Publish(
                messages,
                persistent,
                [publisher],
                expiration_ms,
                msg_no,
                head_bytes,
                None if producer_seqs is None else producer_seqs[entry],
            )
            if is_bulk:
                turns.send_bulk(ref, mail)
            else:
                turns.send(ref, mail)
        return reached

    def _post_apart(self, batch: Batch, queues: Sequence[QueueEntry]) -> list[Ref]:
        """Send a batch to queues of other nodes, then to queues that keep all messages on disk, then to the rest."""
        reached: list[Ref] = []
        if self._session.features.remote_queues:
            here = [entry for entry in queues if not entry.is_remote]
            if len(here) < len(queues):
                reached = self._post_to_nodes(batch, [each for each in queues if each.is_remote])
                queues = here
        if not batch.persistent:
            keeping = [entry for entry in queues if entry.persists_all]
            if keeping:
                reached += self._post(batch, keeping, True, are_alike=True)
                queues = [entry for entry in queues if not entry.persists_all]
        if queues:
            reached += self._post(batch, queues, batch.persistent, are_alike=True)
        return reached

    def _post_to_nodes(self, batch: Batch, queues: Sequence[QueueEntry]) -> list[Ref]:
        if self._nodes is None:
            self._nodes = NodePublisher(self._channel, self.credit)
        producer_seqs = None if batch.producers is None else self._producer_seqs(batch, queues)
        accounts = len(self.credit.accounts)
        reached = self._nodes.send(batch, queues, producer_seqs, self.confirms is not None)
        self.work_left -= _ACCOUNT_WORK * (len(self.credit.accounts) - accounts)
        return reached

    def _producer_seqs(
        self, batch: Batch, queues: Sequence[QueueEntry]
    ) -> dict[QueueEntry, list[ProducerSeq | None]]:
        if self._predecessors is None:
            self._predecessors = Predecessors()
        asks = self.confirms is not None  # a transaction has confirms as well
        return self._predecessors.by_queue(queues, batch.producers or (), asks)

    # -- batches of more than a turn -----------------------------------------------------------

    def _begin_fan_out(self, fan_out: FanOut) -> None:
        """Begin a fan-out; the channel continues it in its next turns."""
        self.fan_out = fan_out
        self.work_left = 0
        if self.confirms is not None:
            batch = fan_out.batch
            self.confirms.wait(batch.first_seqno, len(batch.messages), [self._ref])

    def continue_fan_out(self) -> None:
        """Send the batch of the fan-out to the next of its queues, if there is one; the turn goes on with long work."""
        self.is_long_work = True
        fan_out = self.fan_out
        if fan_out is None:
            return
        batch = fan_out.batch
        per_queue = _MAIL_WORK + len(batch.messages)
        queues = fan_out.next_slice(max(1, min(FAN_OUT_QUEUES, PUBLISH_TURN_WORK // per_queue)))
        self.work_left -= len(queues) * per_queue
        reached = self._post(batch, queues, batch.persistent)
        fan_out.has_reached |= bool(reached)
        fan_out.is_refused |= len(reached) < len(queues) and some_refuse(queues)
        if self.confirms is not None:
            self.confirms.wait_also(self._ref, reached)
        if fan_out.is_complete:
            self.fan_out = None
            if batch.route.mandatory and not (fan_out.has_reached or fan_out.is_refused):
                self._session.write_returns(self._number, batch.messages)
            if self.confirms is not None:
                self.confirms.gone(self._ref, ok=not fan_out.is_refused)

    # -- messages that queues do not get -------------------------------------------------------

    def _missed(self, batch: Batch, reached: list[Ref]) -> None:
        """Answer for messages of which some queues get nothing.

        A queue that is being declared does not count: no client has been told that it is there. A queue
        that could not be started cannot promise anything, so the messages are refused.
        """
        first, messages = batch.first_seqno, batch.messages
        if some_refuse(batch.queues):
            if batch.route.mandatory and are_down(batch.queues):
                self._session.write_returns(self._number, messages)
            if self.confirms is not None:
                self.confirms.settle_now(first, len(messages), ok=False)
        elif not reached:
            self._drop(batch)
        elif self.confirms is not None:
            self.confirms.wait(first, len(messages), reached)

    def _drop(self, batch: Batch) -> None:
        """Answer for messages that no queue gets: some are replies, the others go nowhere."""
        messages = batch.messages
        reply_key = reply_key_of(messages[0][0])
        if reply_key is not None:
            self.replies.send(reply_key, messages)
        if batch.route.mandatory:
            self._session.write_returns(self._number, messages)
        if self.confirms is not None:
            self.confirms.settle_now(batch.first_seqno, len(messages))

    # -- what queues and reply consumers answer ------------------------------------------------

    @property
    def must_wait(self) -> bool:
        """Whether more should be published only when some queue, the store or a reply consumer has caught up."""
        return self.credit.is_blocked or self.replies.is_waiting

    def reply_consumer_resumes(self, channel: Ref) -> None:
        """The channel of a reply consumer takes more, or has ended."""
        self.replies.goes_on(channel)
        self._channel.resume_commit()

    def reply_consumers_stall(self) -> None:
        """The reply consumers that were waited for take nothing."""
        self.replies.waited_enough()
        self._channel.resume_commit()

    def forget_idle(self, queue: Ref) -> bool:
        """Forget a queue that owes this channel nothing; return whether it owed nothing."""
        if not self.credit.is_idle(queue):
            return False
        if self.confirms is not None and not self.confirms.forget(queue):
            return False
        self.credit.forget(queue)
        return True

    def queue_gone(self, queue: Ref, deleted: bool) -> None:
        """Forget an incarnation of a queue: its credit no longer blocks.

        Its open confirms are acked if the queue was ``deleted``, and refused if it died.
        """
        self.reply_consumer_resumes(queue)  # it may be the channel of one
        self.credit.gone(queue)
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

    # -- transactions --------------------------------------------------------------------------

    def commit(self, batch: Batch) -> None:
        """Send a batch of a committed transaction; a queue declared in place of a deleted one gets its messages."""
        queues = batch.queues
        if any(entry.state == "deleted" for entry in queues):
            known = self._session.vhost.topology.queues
            there = [known.get(each.name) if each.state == "deleted" else each for each in queues]
            batch.queues = queues = [each for each in there if each is not None]
        self.work_left -= _RUN_WORK + len(queues) * (_MAIL_WORK + len(batch.messages))
        self.send(batch)

    def close(self) -> None:
        """The channel ends: take back what blocks the connection, answer no confirm any more."""
        if self.transaction is not None:
            self.transaction.rollback()
        self.credit.close()
        self.replies.close()
        self.confirms = self.transaction = self.collector = None
        self._route = self._message_route = self.fan_out = self._nodes = None
