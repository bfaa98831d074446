"""The methods a client may send on a channel, each as a function or a script of the channel.

A handler takes (channel, method). It returns None when it is done, or a script (``broker/script.py``)
whose result is the reply to write, None for no reply (nowait). Errors are raised; the channel or the
connection closes with them. basic.publish and single acks never come here: the kernel puts them in
runs. The order of checks is RabbitMQ's (``rabbit_channel:handle_method``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from leveret.amqp import methods, spec
from leveret.amqp.errors import (
    CommandInvalid,
    NotAllowed,
    NotFound,
    NotImplemented_,
    PreconditionFailed,
    ResourceLocked,
    SoftError,
)
from leveret.amqp.tables import pack
from leveret.broker.channel.records import Subscription
from leveret.broker.channel.reply_consumers import REPLY_TO
from leveret.broker.channel.session import ChannelActor
from leveret.broker.channel.transaction import Transaction
from leveret.broker.queue.arguments import check_consumer_arguments
from leveret.broker.queue.calls import ask_queue, await_remote_deletion
from leveret.broker.queue_requests import Cancel, Consume, Get, Purge, Stat
from leveret.broker.remote.mail_between_nodes import FindReplyConsumer
from leveret.broker.script import Ask, Steps, Until
from leveret.broker.vhost.exchange_declare import declare_exchange
from leveret.broker.vhost.exchange_rules import consumer_tag, strip_crlf
from leveret.broker.vhost.queue_declare import declare_queue
from leveret.broker.vhost.read_your_writes import await_gone
from leveret.routing.bindings import EXCHANGE, QUEUE

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.amqp.fields import Method
    from leveret.amqp.tables import Table
    from leveret.broker.channel.consuming.deliveries import Deliveries
    from leveret.broker.channel.publishing.publish import Publisher
    from leveret.broker.registry.registry import QueueEntry


class Channel(ChannelActor, Protocol):
    """The channel's actor, as its methods use it."""

    last_queue: str
    publisher: Publisher

    @property
    def deliveries(self) -> Deliveries: ...

    @property
    def settlements(self) -> Deliveries | Transaction: ...

    @property
    def transaction(self) -> Transaction | None: ...

    def begin_transaction(self) -> None: ...

    def declared(self, name: str) -> None: ...

    def refuse_held(self) -> None: ...

    def when_commit_resumes(self, callback: Callable[[Any], None]) -> None: ...

    def send_method(self, method: Method) -> None: ...

    def when_writable(self, callback: Callable[[Any], None]) -> None: ...

    def call(
        self, to: Ref, request: Any, then: Callable[[Any], object], timeout_s: float | None
    ) -> None: ...


def unimplemented() -> CommandInvalid:
    """Return RabbitMQ's error for a method the server does not take."""
    return CommandInvalid("unimplemented method")


def _wire(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def queue_name(channel: Channel, given: str) -> str:
    """Return the given name, or that of the queue declared last; NotFound: none was declared."""
    if given:
        return given
    if not channel.last_queue:
        raise NotFound("no previously declared queue")
    return channel.last_queue


def _readable_queue(channel: Channel, given: str) -> QueueEntry:
    """Return the queue meant, after checking that the user may read it and the connection use it.

    As in RabbitMQ, methods that read a queue take its name as it is; the others take line breaks out.
    """
    session, name = channel.session, queue_name(channel, given)
    session.vhost.access.check_queue(session.user, session.vhost.name, name, "read")
    return session.vhost.find_queue(name, session.reader)


# -- channel, access, confirm ---------------------------------------------------------------------


def channel_flow(channel: Channel, method: methods.ChannelFlow) -> None:
    """channel.flow: the broker never stops sending on request."""
    if not method.active:
        raise NotImplemented_("active=false")
    channel.send_method(methods.ChannelFlowOk(True))


def access_request(channel: Channel, method: methods.AccessRequest) -> None:
    """access.request of AMQP 0-8: always granted, tickets are ignored."""
    channel.send_method(methods.AccessRequestOk(1))


def confirm_select(channel: Channel, method: methods.ConfirmSelect) -> None:
    """confirm.select: number publishes from now on."""
    if channel.publisher.transaction is not None:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    if channel.publisher.confirms is None:
        channel.publisher.select_confirms()
        channel.session.read_control.coalesce_no_publishes()
    if not method.nowait:
        channel.send_method(methods.ConfirmSelectOk())


def tx_select(channel: Channel, method: methods.TxSelect) -> None:
    """tx.select: collect publishes and settlements from now on."""
    publisher = channel.publisher
    if channel.transaction is None:
        if publisher.confirms is not None:
            raise PreconditionFailed("cannot switch from confirm to tx mode")
        channel.begin_transaction()
        channel.session.read_control.coalesce_no_publishes()
    channel.send_method(methods.TxSelectOk())


def tx_commit(channel: Channel, method: methods.TxCommit) -> Steps:
    """tx.commit: carry out the publishes and acks of the transaction; commit-ok is sent when the queues have them."""
    return _transaction(channel).commit()


def tx_rollback(channel: Channel, method: methods.TxRollback) -> None:
    """tx.rollback: forget the publishes and acks of the transaction; deliveries are not sent again."""
    _transaction(channel).rollback()
    channel.send_method(methods.TxRollbackOk())


def _transaction(channel: Channel) -> Transaction:
    if channel.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    return channel.transaction


# -- exchange -------------------------------------------------------------------------------------


def exchange_declare(channel: Channel, method: methods.ExchangeDeclare) -> Steps:
    """exchange.declare."""
    method.exchange = strip_crlf(method.exchange)
    yield from declare_exchange(channel.session.vhost, channel.session.user, method)
    return None if method.nowait else methods.ExchangeDeclareOk()


def exchange_delete(channel: Channel, method: methods.ExchangeDelete) -> Steps:
    """exchange.delete."""
    method.exchange = strip_crlf(method.exchange)
    yield from channel.session.vhost.delete_exchange(channel.session.user, method)
    return None if method.nowait else methods.ExchangeDeleteOk()


def exchange_bind(channel: Channel, method: methods.ExchangeBind) -> Steps:
    """exchange.bind."""
    yield from channel.session.vhost.bind(channel.session, *_between_exchanges(method))
    return None if method.nowait else methods.ExchangeBindOk()


def exchange_unbind(channel: Channel, method: methods.ExchangeUnbind) -> Steps:
    """exchange.unbind."""
    yield from channel.session.vhost.unbind(channel.session, *_between_exchanges(method))
    return None if method.nowait else methods.ExchangeUnbindOk()


def _between_exchanges(
    method: methods.ExchangeBind | methods.ExchangeUnbind,
) -> tuple[str, str, str, bytes, Table]:
    key = _wire(method.routing_key)
    return (
        strip_crlf(method.source),
        EXCHANGE,
        strip_crlf(method.destination),
        key,
        method.arguments,
    )


# -- queue ----------------------------------------------------------------------------------------


def queue_declare(channel: Channel, method: methods.QueueDeclare) -> Steps:
    """queue.declare, active and passive; both make the queue the channel's last one."""
    session = channel.session
    is_reply_name = method.queue.startswith(REPLY_TO)
    method.queue = strip_crlf(method.queue)
    if is_reply_name:
        return (yield from _declare_reply_consumer(channel, method))
    while True:
        if method.passive:
            entry, is_new = session.vhost.find_queue(method.queue, session.reader), False
        else:
            entry, is_new = yield from declare_queue(session.vhost, session, method)
        channel.declared(entry.name)
        if method.nowait:
            return None
        if is_new:
            return methods.QueueDeclareOk(entry.name, 0, 0)
        try:
            ready, consumers = yield from ask_queue(entry, Stat())
        except NotFound:
            if method.passive:
                raise
            yield from await_remote_deletion(entry)
            if entry.state != "deleted":
                raise
            continue  # another client has deleted it: it is declared anew, as in RabbitMQ
        return methods.QueueDeclareOk(entry.name, ready, consumers)


def _declare_reply_consumer(channel: Channel, method: methods.QueueDeclare) -> Steps:
    """Tell whether replies to a key have a consumer, on whatever node; the bare name is always there."""
    session, name = channel.session, method.queue
    is_there = name == REPLY_TO or session.reply_consumers.has(_wire(name))
    delegate = None if is_there else session.reply_consumers.delegate_of(_wire(name))
    if delegate is not None:
        is_there = (yield Ask(delegate, FindReplyConsumer(_wire(name)))) is True
    if not is_there:
        raise NotFound(f"no queue '{name}' in vhost '{session.vhost.name}'")
    channel.declared(name)
    return None if method.nowait else methods.QueueDeclareOk(name, 0, 1)


def queue_bind(channel: Channel, method: methods.QueueBind) -> Steps:
    """queue.bind; with neither queue nor key the key is the queue's name."""
    yield from channel.session.vhost.bind(channel.session, *_to_queue(channel, method))
    return None if method.nowait else methods.QueueBindOk()


def queue_unbind(channel: Channel, method: methods.QueueUnbind) -> Steps:
    """queue.unbind."""
    yield from channel.session.vhost.unbind(channel.session, *_to_queue(channel, method))
    return methods.QueueUnbindOk()


def _to_queue(
    channel: Channel, method: methods.QueueBind | methods.QueueUnbind
) -> tuple[str, str, str, bytes, Table]:
    name = strip_crlf(queue_name(channel, method.queue))
    key = method.routing_key if method.queue or method.routing_key else name
    return strip_crlf(method.exchange), QUEUE, name, _wire(key), method.arguments


def queue_purge(channel: Channel, method: methods.QueuePurge) -> Steps:
    """queue.purge: ready messages only."""
    entry = _readable_queue(channel, method.queue)
    count = yield from ask_queue(entry, Purge())
    return None if method.nowait else methods.QueuePurgeOk(count)


def queue_delete(channel: Channel, method: methods.QueueDelete) -> Steps:
    """queue.delete."""
    name = strip_crlf(queue_name(channel, method.queue))
    count = yield from channel.session.vhost.delete_queue(
        channel.session, name, method.if_unused, method.if_empty
    )
    return None if method.nowait else methods.QueueDeleteOk(count)


# -- basic ----------------------------------------------------------------------------------------


def basic_qos(channel: Channel, method: methods.BasicQos) -> None:
    """basic.qos: per consumer started later, or (global) for the whole channel now."""
    if method.prefetch_size:
        raise NotImplemented_(f"prefetch_size!=0 ({method.prefetch_size})")
    deliveries = channel.deliveries
    if method.global_:
        deliveries.set_limit(method.prefetch_count)
    else:
        deliveries.set_prefetch(method.prefetch_count)
        deliveries.set_limit(0)
    channel.send_method(methods.BasicQosOk())


def basic_consume(channel: Channel, method: methods.BasicConsume) -> Steps:
    """basic.consume; consume-ok comes before the first delivery."""
    deliveries = channel.deliveries
    tag = _wire(method.consumer_tag)
    replies = deliveries.reply_consumer
    is_reply_consumer = queue_name(channel, method.queue) == REPLY_TO
    if tag in deliveries.subscriptions or (
        replies is not None and tag == replies.tag and not is_reply_consumer
    ):
        raise NotAllowed(f"attempt to reuse consumer tag '{method.consumer_tag}'")
    if is_reply_consumer:
        return _consume_replies(channel, method)
    entry = _readable_queue(channel, method.queue)
    priority = check_consumer_arguments(method.arguments, entry)
    if entry.settings.is_quorum and deliveries.limiter.limit:
        raise NotImplemented_(f"{entry} does not support global qos")
    tag = tag or _wire(consumer_tag())
    subscription = Subscription(
        tag,
        entry,
        method.no_ack,
        method.exclusive,
        deliveries.prefetch,
        priority,
        method.arguments.get("x-cancel-on-ha-failover") == ("t", True),
        pack(method.arguments),
    )
    deliveries.add(subscription)
    answer = yield from ask_queue(entry, consume_request(channel, subscription), raises=False)
    if answer is not None:
        deliveries.remove(tag)
        raise answer
    return None if method.nowait else methods.BasicConsumeOk(tag.decode("utf-8", "surrogateescape"))


def _consume_replies(
    channel: Channel, method: methods.BasicConsume
) -> methods.BasicConsumeOk | None:
    """Make the channel's reply consumer; requests published from now on ask for replies to it."""
    deliveries, session = channel.deliveries, channel.session
    if not method.no_ack:
        raise PreconditionFailed("reply consumer cannot acknowledge")
    if deliveries.reply_consumer is not None:
        raise PreconditionFailed("reply consumer already set")
    tag = _wire(method.consumer_tag or consumer_tag())
    consumer = session.reply_consumers.new(
        tag, channel.ref, deliveries.gate, session, session.writer
    )
    deliveries.set_reply_consumer(consumer)
    channel.publisher.ask_for_replies(consumer.key)
    return None if method.nowait else methods.BasicConsumeOk(tag.decode("utf-8", "surrogateescape"))


def consume_request(channel: Channel, subscription: Subscription) -> Consume:
    """Return what subscribes this consumer at its queue."""
    return Consume(
        channel=channel.ref,
        owner=channel.session.reader,
        tag=subscription.tag,
        no_ack=subscription.no_ack,
        exclusive=subscription.exclusive,
        priority=subscription.priority,
        prefetch=subscription.prefetch,
        limiter=channel.deliveries.limiter,
        gate=channel.deliveries.gate,
    )


def basic_cancel(channel: Channel, method: methods.BasicCancel) -> Steps:
    """basic.cancel; unacked messages stay with the channel, nothing is delivered after cancel-ok."""
    tag = _wire(method.consumer_tag)
    deliveries, replies = channel.deliveries, channel.deliveries.reply_consumer
    subscription = deliveries.subscriptions.get(tag)
    if replies is not None and replies.tag == tag:
        channel.session.reply_consumers.remove(replies)
        deliveries.set_reply_consumer(None)
        channel.publisher.ask_for_replies(None)
    elif subscription is not None:
        with suppress(NotFound):  # a queue that is gone delivers nothing either
            yield from ask_queue(subscription.entry, Cancel(channel.ref, tag), raises=False)
        deliveries.remove(tag)
        if subscription.entry.auto_delete:
            yield from await_gone(channel.session.vhost, [subscription.entry])
    return None if method.nowait else methods.BasicCancelOk(method.consumer_tag)


def basic_get(channel: Channel, method: methods.BasicGet) -> Steps:
    """basic.get; the message stays in its queue when the client ends before the queue is asked."""
    entry = _readable_queue(channel, method.queue)
    if entry.settings.is_quorum and entry.settings.single_active_consumer:
        raise ResourceLocked(
            f"cannot obtain access to locked {entry}. basic.get operations are not supported by"
            " quorum queues with single active consumer"
        )
    if channel.deliveries.client_reads and not channel.deliveries.gate.is_open:
        yield Until(channel.when_writable)  # as consumers wait: the client reads too slowly
    if not channel.deliveries.client_reads:
        return None
    answer = yield from ask_queue(entry, Get(channel.ref, method.no_ack))
    if answer is None:
        return methods.BasicGetEmpty()
    source, message, seq, redelivered, ready = answer
    channel.deliveries.got(source, message, seq, redelivered, ready, entry.name)
    return None


def basic_ack(channel: Channel, method: methods.BasicAck) -> Steps | None:
    """basic.ack with multiple (single ones come in runs)."""
    return channel.settlements.ack(method)


def basic_nack(channel: Channel, method: methods.BasicNack) -> Steps | None:
    """basic.nack."""
    return channel.settlements.nack(method)


def basic_reject(channel: Channel, method: methods.BasicReject) -> None:
    """basic.reject."""
    channel.settlements.reject(method.delivery_tag, method.requeue)


def basic_recover(channel: Channel, method: methods.BasicRecover) -> Steps | None:
    """basic.recover: recover-ok first, redeliveries after it."""
    return _recover(channel, method, methods.BasicRecoverOk())


def basic_recover_async(channel: Channel, method: methods.BasicRecoverAsync) -> Steps | None:
    """basic.recover-async."""
    return _recover(channel, method, None)


def _recover(
    channel: Channel,
    method: methods.BasicRecover | methods.BasicRecoverAsync,
    answer: Method | None,
) -> Steps | None:
    if not method.requeue:
        raise NotImplemented_("requeue=false")
    return channel.settlements.recover(answer)


def ignored(channel: Channel, method: methods.BasicCancelOk) -> None:
    """basic.cancel-ok: the answer to a basic.cancel that asked for none.

    Differs from RabbitMQ: it closes the connection with 503.
    """


# -- after a restart of a queue -----------------------------------------------------------------
# Its consumers subscribe again, without a word to the client. RabbitMQ does the same for a classic queue
# that crashed (``queue_down_consumer_action`` recover): no basic.cancel, the same consumer tag, unacked
# messages come back redelivered. A consumer is cancelled where that is not possible, because the queue will
# not be started again or refuses, and where its argument ``x-cancel-on-ha-failover`` asks for it.


def resubscribe(channel: Channel, entry: QueueEntry) -> None:
    """Subscribe the channel's consumers of this queue at its new incarnation, or cancel them."""
    for subscription in channel.deliveries.of_queue(entry):
        if subscription.cancel_on_restart:
            _cancel(channel, subscription)
        else:
            _subscribe(channel, subscription)


def _subscribe(channel: Channel, subscription: Subscription) -> None:
    entry = subscription.entry
    assert entry.ref is not None

    def answered(answer: Any) -> None:
        # A queue that died again is up again later, and then this is done once more.
        if isinstance(answer, SoftError):
            _cancel(channel, subscription)
        elif (
            channel.deliveries.subscriptions.get(subscription.tag) is not subscription
            and entry.is_running
        ):
            # The client cancelled it meanwhile, and the queue heard of that first.
            assert entry.ref is not None
            channel.call(entry.ref, Cancel(channel.ref, subscription.tag), _ignore, None)

    channel.call(entry.ref, consume_request(channel, subscription), answered, None)


def _ignore(_: object) -> None:
    pass


def cancel_consumers(channel: Channel, entry: QueueEntry) -> None:
    """Cancel the channel's consumers of a queue that is gone for good."""
    for subscription in channel.deliveries.of_queue(entry):
        _cancel(channel, subscription)


def _cancel(channel: Channel, subscription: Subscription) -> None:
    if channel.deliveries.remove(subscription.tag) and channel.session.cancel_notify:
        channel.send_method(
            methods.BasicCancel(subscription.tag.decode("utf-8", "surrogateescape"), True)
        )


HANDLERS: Final[dict[int, Callable[[Channel, Any], Steps | None]]] = {
    spec.CHANNEL_FLOW: channel_flow,
    spec.ACCESS_REQUEST: access_request,
    spec.EXCHANGE_DECLARE: exchange_declare,
    spec.EXCHANGE_DELETE: exchange_delete,
    spec.EXCHANGE_BIND: exchange_bind,
    spec.EXCHANGE_UNBIND: exchange_unbind,
    spec.QUEUE_DECLARE: queue_declare,
    spec.QUEUE_BIND: queue_bind,
    spec.QUEUE_UNBIND: queue_unbind,
    spec.QUEUE_PURGE: queue_purge,
    spec.QUEUE_DELETE: queue_delete,
    spec.BASIC_QOS: basic_qos,
    spec.BASIC_CONSUME: basic_consume,
    spec.BASIC_CANCEL: basic_cancel,
    spec.BASIC_CANCEL_OK: ignored,
    spec.BASIC_GET: basic_get,
    spec.BASIC_ACK: basic_ack,
    spec.BASIC_NACK: basic_nack,
    spec.BASIC_REJECT: basic_reject,
    spec.BASIC_RECOVER: basic_recover,
    spec.BASIC_RECOVER_ASYNC: basic_recover_async,
    spec.CONFIRM_SELECT: confirm_select,
    spec.TX_SELECT: tx_select,
    spec.TX_COMMIT: tx_commit,
    spec.TX_ROLLBACK: tx_rollback,
}
