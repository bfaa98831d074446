"""The messages of one vhost on their way from source to target, without I/O.

A message is consumed, published to the default exchange with the queue's name as its routing key, and acknowledged at
the source when the target has confirmed it. So it is in one of the two brokers at any time, and in both for a moment:
after a crash the source delivers again what was not acknowledged, at most the prefetch of each queue. All queues
share a channel on either side, so the messages of a queue keep their order.

A message keeps its properties byte for byte, but for the headers ``CC`` and ``BCC``: a broker would route a copy to
each of their keys. Exchange and routing key are those of the default exchange afterwards.

The target must have all queues. A message that it returns or refuses ends the transfer; it stays at the source.
"""

from __future__ import annotations

from typing import Final

from leveret.amqp import kernel, methods
from leveret.amqp.fields import Method
from leveret.amqp.tables import Table
from leveret.client.blocking import CHANNEL
from leveret.client.events import Answer, Cancelled, Confirmed, Delivered, Event, Returned
from leveret.client.protocol import acks
from leveret.core.errors import LeveretError
from leveret.spark.publish import edits
from leveret.spark.publish.errors import RowError

_CC: Final = (b"\x02CC", b"\x03BCC")  # names of headers as they are written
_COPIES: Final = frozenset({"CC", "BCC"})


class MigrationFailed(LeveretError):  # noqa: N818 - what happened
    """The transfer ended; every message that was not confirmed by the target is still at the source."""


class QueueState:
    """A queue.

    Attributes:
        moved: messages that the target has and the source has forgotten.
        flights: published and not confirmed.
        is_cancelled: the source has ended the consumer, because the queue was deleted.
        empty_polls: how often in turn the source had no message left.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.publish = methods.encode(methods.BasicPublish("", name, True))
        self.moved = 0
        self.flights = 0
        self.redelivered = 0
        self.without_cc = 0
        self.is_cancelled = False
        self.empty_polls = 0


class Pump:
    """The queues of a vhost; ``take_acks`` and ``take_publishes`` are the bytes to send.

    Attributes:
        is_stopping: leave what is delivered from now on to the source.

    Args:
        queues: their names; a consumer's tag is the place of its queue.
        frame_max: that of the target's connection.
    """

    def __init__(self, queues: list[str], frame_max: int) -> None:
        self.queues = [QueueState(name) for name in queues]
        self.is_stopping = False
        self._by_name = {queue.name: queue for queue in self.queues}
        self._frame_max = frame_max
        self._next_tag = 1
        self._flights: dict[int, tuple[int, QueueState]] = {}  # tags of target and source
        self._acks: list[int] = []
        self._publishes: list[bytes] = []

    @property
    def flights(self) -> int:
        return len(self._flights)

    def take_acks(self) -> bytes:
        tags, self._acks = self._acks, []
        return acks(CHANNEL, tags, False)

    def take_publishes(self) -> bytes:
        publishes, self._publishes = self._publishes, []
        return b"".join(publishes)

    # The source.

    def consume(self) -> bytes:
        """Return the methods that start a consumer for each queue."""
        return b"".join(
            _frame(methods.BasicConsume(queue.name, str(place), False, False, False, True))
            for place, queue in enumerate(self.queues)
        )

    def poll(self) -> bytes:
        """Return the methods that ask how many messages are left, of queues whose messages have all arrived."""
        return b"".join(
            _frame(methods.QueueDeclare(queue.name, True))
            for queue in self.queues
            if not queue.flights and not queue.is_cancelled
        )

    def from_source(self, event: Event) -> None:
        """Take an event of the source."""
        if isinstance(event, Delivered):
            self._delivered(event)
        elif isinstance(event, Cancelled):
            self.queues[int(event.consumer_tag)].is_cancelled = True
        elif isinstance(event, Answer) and isinstance(event.method, methods.QueueDeclareOk):
            queue = self._by_name[event.method.queue]
            is_empty = not event.method.message_count and not queue.flights
            queue.empty_polls = queue.empty_polls + 1 if is_empty else 0

    def _delivered(self, event: Delivered) -> None:
        if self.is_stopping:
            return
        queue = self.queues[int(event.consumer_tag)]
        queue.flights += 1
        queue.empty_polls = 0
        queue.redelivered += event.redelivered
        head = self._without_copies(event.head, queue)
        content = kernel.content(CHANNEL, queue.publish, self._frame_max, head, event.body)
        self._publishes.append(content)
        self._flights[self._next_tag] = event.tag, queue
        self._next_tag += 1

    def _without_copies(self, head: bytes, queue: QueueState) -> bytes:
        """Return the head without CC and BCC; MigrationFailed: its headers cannot be read."""
        if not any(name in head for name in _CC):
            return head
        try:
            changed = edits.with_headers(head[12:], _kept)
        except RowError as error:
            raise MigrationFailed(f'a message of queue "{queue.name}": {error}') from None
        if changed == head[12:]:
            return head
        queue.without_cc += 1
        return head[:12] + changed

    # The target.

    def from_target(self, event: Event) -> None:
        """Take an event of the target; MigrationFailed: it did not take a message."""
        if isinstance(event, Confirmed):
            self._confirmed(event)
        elif isinstance(event, Returned):
            raise MigrationFailed(
                f"the target has no queue for a message ({event.reply}): import the definitions first"
            )

    def _confirmed(self, event: Confirmed) -> None:
        if event.multiple:
            tags = [tag for tag in self._flights if tag <= event.tag or not event.tag]
        else:
            tags = [event.tag] if event.tag in self._flights else []
        for tag in tags:
            source_tag, queue = self._flights.pop(tag)
            if not event.accepted:
                raise MigrationFailed(
                    f'the target refused a message for queue "{queue.name}":'
                    " look for its length limit, or its log"
                )
            self._acks.append(source_tag)
            queue.flights -= 1
            queue.moved += 1


def _kept(table: Table) -> Table:
    return {name: field for name, field in table.items() if name not in _COPIES}


def _frame(method: Method) -> bytes:
    return methods.method_frame(CHANNEL, methods.encode(method))
