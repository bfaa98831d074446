"""The firehose of a vhost: copies of the messages that clients publish and get (RabbitMQ's ``rabbit_trace``).

A copy goes to the exchange ``amq.rabbitmq.trace`` with the key ``publish.EXCHANGE`` or ``deliver.QUEUE``; its body is
the message's, and its headers describe the event. Channels hand over batches (``published``, ``delivered``), which wait
here until the publisher of the node's own messages fetches them (``next``). The queue of batches is bounded; further
batches are counted and dropped, so that the firehose holds no client up.

Settlements, dead-letterings and expiries are traced too, with the key ``settle.QUEUE`` and no body; settlements of
copies are not, since these would be copies again.

A vhost whose firehose is off has no such object, and costs its channels one check per batch.

Sans-IO.
"""

from __future__ import annotations

from collections import deque
from dataclasses import fields
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from leveret.amqp.errors import SyntaxError_
from leveret.amqp.properties import Properties, decode_properties, head_of
from leveret.broker.mail import OwnMessage
from leveret.broker.queue.dead_letters.death_headers import carbon_copies
from leveret.core.limits import FIREHOSE_BYTES_MAX, FIREHOSE_MESSAGES_MAX, SHORTSTR_BYTES_MAX
from leveret.core.message import blind_keys_of, exchange_and_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leveret.amqp.tables import Field, Table
    from leveret.broker.registry.registry import QueueEntry
    from leveret.core.message import Message

TRACE_EXCHANGE: Final = "amq.rabbitmq.trace"
QUEUES_NAMED_MAX: Final = 1_000  # in ``routed_queues``

_TRACE_ORIGIN: Final = b"%c%b" % (len(TRACE_EXCHANGE), TRACE_EXCHANGE.encode())
_NAMES: Final = [each.name for each in reversed(fields(Properties))]  # RabbitMQ's order
_INT32: Final = range(-(2**31), 2**31)


class Named(Protocol):
    """A user."""

    @property
    def name(self) -> str: ...


class Client(Protocol):
    """A connection (``vhost.Client``)."""

    @property
    def name(self) -> str: ...

    @property
    def user(self) -> Named: ...


class _Batch(Struct, eq=False):
    """Messages that were published, or delivered, at once.

    Attributes:
        subject: ``publish.EXCHANGE`` or ``deliver.QUEUE``, as far as a routing key may be long.
        client: connection and user.
        channel: its number.
        queues: that a published message was routed to; None: it was delivered.
        redelivered: how many of the first were delivered before.
        at: how many have been copied.
    """

    subject: bytes
    messages: list[Message]
    client: Client
    channel: int
    queues: Sequence[QueueEntry] | None
    redelivered: int = 0
    at: int = 0


class Settled(Protocol):
    """Where deliveries came from that a client settles (``channel.records.Source``)."""

    @property
    def queue_name(self) -> str: ...

    @property
    def has_copies(self) -> bool: ...


class _Settlement(Struct, eq=False):
    """Deliveries of one queue that a client has settled at once, or messages that died.

    Attributes:
        client: None where messages died by themselves.
        reason: of their death.
    """

    subject: bytes
    outcome: bytes
    count: int
    client: Client | None = None
    channel: int = 0
    reason: bytes = b""


class Firehose:
    """The firehose of one vhost: batches that its channels hand over.

    Args:
        vhost: its name.
        node: its name, for a header.
        wake: called when there is something to publish.
        rate: the share of the messages that is copied, above 0 and at most 1.
        is_short: whether memory is short; then nothing is copied, as copies bypass the alarm that blocks publishers.

    Attributes:
        dropped: how many messages were not copied since the last report.
    """

    def __init__(
        self,
        vhost: str,
        node: str,
        wake: Callable[[], None],
        rate: float = 1.0,
        random: Random | None = None,
        is_short: Callable[[], bool] = lambda: False,
    ) -> None:
        self.vhost = vhost
        self.rate = rate
        self.dropped = 0
        self._node = node
        self._wake = wake
        self._random = random or Random()
        self._is_short = is_short
        self._batches: deque[_Batch | _Settlement] = deque()
        self._count = self._size_bytes = 0

    def published(
        self,
        client: Client,
        channel: int,
        exchange: str,
        queues: Sequence[QueueEntry],
        messages: list[Message],
    ) -> None:
        """Take messages that a client has published to these queues."""
        subject = f"publish.{exchange}".encode("utf-8", "surrogateescape")
        self._take(_Batch(subject[:SHORTSTR_BYTES_MAX], messages, client, channel, queues))

    def delivered(
        self, client: Client, channel: int, queue: str, messages: list[Message], redelivered: int
    ) -> None:
        """Take messages of a queue that a client gets, of which the first were delivered before."""
        if is_copy(messages[0]):  # else each copy would be copied again
            messages = [each for each in messages if not is_copy(each)]
        subject = f"deliver.{queue}".encode("utf-8", "surrogateescape")
        self._take(
            _Batch(subject[:SHORTSTR_BYTES_MAX], messages, client, channel, None, redelivered)
        )

    def settled(
        self,
        client: Client,
        channel: int,
        outcome: bytes,
        settled: Sequence[tuple[Settled, list[int]]],
    ) -> None:
        """Take deliveries that a client has settled: ``ack``, ``requeue`` or ``reject``. The rate is of messages."""
        for source, seqs in settled:
            if source.queue_name and not source.has_copies:
                subject = _settlement_of(source.queue_name)
                self._tell(_Settlement(subject, outcome, len(seqs), client, channel))
        self._wake()

    def died(
        self, queue: str, reason: bytes, messages: list[Message], is_dropped: bool = False
    ) -> None:
        """Take messages of a queue that were dead-lettered, or dropped."""
        count = sum([not is_copy(message) for message in messages])
        if count:
            outcome = b"drop" if is_dropped else b"dead-letter"
            self._tell(_Settlement(_settlement_of(queue), outcome, count, reason=reason))
            self._wake()

    def _tell(self, settlement: _Settlement) -> None:
        if self.rate < 1.0 and self._random.random() >= self.rate:
            return
        if self._count >= FIREHOSE_MESSAGES_MAX or self._is_short():
            self.dropped += 1
            return
        self._count += 1
        self._batches.append(settlement)

    def _take(self, batch: _Batch) -> None:
        if self.rate < 1.0:
            self._sample(batch)
        count = len(batch.messages)
        if not count:
            return
        size_bytes = sum([len(head) + len(body) for _, head, body in batch.messages])
        if (
            self._count + count > FIREHOSE_MESSAGES_MAX
            or self._size_bytes + size_bytes > FIREHOSE_BYTES_MAX
            or self._is_short()
        ):
            self.dropped += count
        else:
            self._count += count
            self._size_bytes += size_bytes
            batch.messages = batch.messages.copy()  # a transaction adds others to the list
            self._batches.append(batch)
        self._wake()

    def _sample(self, batch: _Batch) -> None:
        random, rate = self._random.random, self.rate
        chosen = [at for at in range(len(batch.messages)) if random() < rate]
        batch.redelivered = sum([at < batch.redelivered for at in chosen])
        batch.messages = [batch.messages[at] for at in chosen]

    # For the publisher.

    def next(self) -> OwnMessage | None:
        """Return the copy of the next message; None: nothing waits."""
        if not self._batches:
            return None
        batch = self._batches[0]
        if isinstance(batch, _Settlement):
            self._batches.popleft()
            self._count -= 1
            head = head_of(Properties(headers=self._outcome(batch)), 0)
            return OwnMessage(self.vhost, TRACE_EXCHANGE, batch.subject, head, b"")
        origin, head, body = batch.messages[batch.at]
        is_redelivered = batch.at < batch.redelivered
        batch.at += 1
        self._count -= 1
        self._size_bytes -= len(head) + len(body)
        if batch.at == len(batch.messages):
            self._batches.popleft()
        headers = self._headers(batch, origin, head, is_redelivered)
        copy = head_of(Properties(headers=headers), len(body))
        return OwnMessage(self.vhost, TRACE_EXCHANGE, batch.subject, copy, body)

    def _headers(self, batch: _Batch, origin: bytes, head: bytes, is_redelivered: bool) -> Table:
        exchange, key = exchange_and_key(origin)
        client = batch.client
        properties = _decoded(head)
        keys = [key, *carbon_copies(properties.headers or {}), *blind_keys_of(origin)]
        headers: Table = {
            "exchange_name": ("S", exchange),
            "routing_keys": ("A", [("S", each) for each in keys]),
            "properties": ("F", _table(properties)),
            "node": _text(self._node),
        }
        if batch.queues is None:
            headers["redelivered"] = ("I", int(is_redelivered))
        headers |= self._place(client, batch.channel)
        if batch.queues is not None:
            named = [_text(each.name) for each in batch.queues[:QUEUES_NAMED_MAX]]
            headers["routed_queues"] = ("A", named)
        return headers

    def _outcome(self, settlement: _Settlement) -> Table:
        table: Table = {"outcome": ("S", settlement.outcome), "count": ("I", settlement.count)}
        table["node"] = _text(self._node)
        if settlement.client is not None:
            return table | self._place(settlement.client, settlement.channel)
        return table | {"vhost": _text(self.vhost), "reason": ("S", settlement.reason)}

    def _place(self, client: Client, channel: int) -> Table:
        return {
            "vhost": _text(self.vhost),
            "connection": _text(client.name),
            "channel": ("I", channel),
            "user": _text(client.user.name),
        }


def _settlement_of(queue: str) -> bytes:
    return f"settle.{queue}".encode("utf-8", "surrogateescape")[:SHORTSTR_BYTES_MAX]


def is_copy(message: Message) -> bool:
    """Return whether a message was published by a firehose."""
    return message[0].startswith(_TRACE_ORIGIN)


def _decoded(head: bytes) -> Properties:
    try:
        return decode_properties(head)
    except SyntaxError_:  # in a property that nobody had to read before
        return Properties()


def _table(properties: Properties) -> Table:
    """Return the properties that are set, as RabbitMQ's ``msg_to_table``."""
    table: Table = {}
    for name in _NAMES:
        value = getattr(properties, name)
        if isinstance(value, dict):
            table[name] = ("F", value)
        elif isinstance(value, int):
            table[name] = ("I" if value in _INT32 else "l", value)
        elif value is not None:
            table[name] = _text(value)
    return table


def _text(text: str) -> Field:
    return ("S", text.encode("utf-8", "surrogateescape"))
