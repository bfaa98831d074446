"""A batch: messages of one channel that go the same way, from the route to the mails of their queues.

``Publisher`` makes one of each run that it has routed, or of neighbours in a run whose headers lead to the same queues.
A transaction keeps batches until its commit. A fan-out keeps one batch while it sends it in several turns. A queue of
this node gets the batch as a ``Publish``, another node gets it as a ``NodePublish``.

The class is written out, because each message may make one: where it is compiled, the ``__init__`` of a dataclass takes
1.1 us for nine fields, and this one 0.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.amqp.producer_headers import Sent
    from leveret.broker.channel.confirms import Answer
    from leveret.broker.channel.records import Route
    from leveret.broker.registry.registry import QueueEntry
    from leveret.core.message import Message


class Batch:
    """Messages that go the same way, in the order published.

    Attributes:
        route: of their basic.publish.
        queues: that the messages go to; where headers are looked at, others than those of ``route``.
        persistent: delivery-mode 2.
        expiration_ms: of every message; None = none.
        head_bytes: of the headers; 0 where no header has a table of its own, and all are small.
        reply_keys: of reply consumers that get the messages as well: keys in CC and BCC.
        producers: per message its producer; None when no message has one.
        size_bytes: of the bodies, once the batch is sent.
        first_seqno: the confirm number of the first message, once the batch is sent; 0 = no confirms.
        kept_bytes: that it takes in memory, about, while a transaction keeps it.
    """

    __slots__ = (
        "expiration_ms",
        "first_seqno",
        "head_bytes",
        "kept_bytes",
        "messages",
        "persistent",
        "producers",
        "queues",
        "reply_keys",
        "route",
        "size_bytes",
    )

    def __init__(
        self,
        route: Route,
        queues: Sequence[QueueEntry],
        messages: list[Message],
        persistent: bool,
        expiration_ms: int | None = None,
        reply_keys: Sequence[bytes] = (),
    ) -> None:
        self.route = route
        self.queues = queues
        self.messages = messages
        self.persistent = persistent
        self.expiration_ms = expiration_ms
        self.reply_keys = reply_keys
        self.head_bytes = 0
        self.producers: list[Sent | None] | None = None
        self.size_bytes = 0
        self.first_seqno = 0
        self.kept_bytes = 0

    def add_producer(self, producer: Sent | None) -> None:
        """Note the producer of the last message, None if it has none."""
        if self.producers is None:
            self.producers = [None] * (len(self.messages) - 1)
        self.producers.append(producer)

    def extend(self, later: Batch) -> None:
        """Take in the messages of a later batch that goes the same way."""
        if self.producers is not None or later.producers is not None:
            own = self.producers or [None] * len(self.messages)
            self.producers = own + (later.producers or [None] * len(later.messages))
        self.messages += later.messages
        self.head_bytes += later.head_bytes

    def goes_with(self, later: Batch) -> bool:
        """Whether a batch goes the same way."""
        return (
            later.route is self.route
            and later.queues is self.queues
            and later.persistent is self.persistent
            and later.expiration_ms == self.expiration_ms
            and later.reply_keys == self.reply_keys
        )


class Collector(Protocol):
    """A transaction, as the publisher uses it (``transaction.py``)."""

    def publish(self, batch: Batch) -> None: ...

    def answered(self, answers: list[Answer]) -> None: ...

    def rollback(self) -> None: ...
