"""The route of a message whose header must be looked at: its keys in CC and BCC, its properties, and how it is stored.

The checks of basic.publish come first, with RabbitMQ's texts (``message_checks.py``). A route that is much work is
found in several turns of the channel (``routing/work.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.amqp import properties
from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.producer_headers import EPOCH, ID, SEQ, producer_of
from leveret.broker.channel.publishing.batch import Batch
from leveret.broker.channel.publishing.message_checks import (
    checked_keys,
    checked_properties,
    without_bcc,
)
from leveret.broker.channel.reply_consumers import REPLY_TO, is_reply_key
from leveret.core.message import exchange_and_key, origin_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.amqp.producer_headers import Sent
    from leveret.broker.channel.records import Route
    from leveret.broker.channel.session import Session
    from leveret.broker.registry.registry import QueueEntry
    from leveret.routing.router import Routed

_EXAMINE_WORK: Final = 100  # and the bytes of the header; in units of about 0.1 us


class MessageRoute:
    """Where a message of a channel goes by its header; ``find`` has it tell of the next message.

    Attributes:
        head: the header as it is stored.
        origin: with the keys of BCC; None: the message's own.
        persistent: delivery-mode 2.
        expiration_ms: None = none.
        producer: None: it has none.
        queues: void while the route is ``unfinished``.
        reply_keys: of the reply consumers that get the message as well.
        holds_for_equals: an equal header leads there, too.
        unfinished: the route, if it is not complete.
    """

    __slots__ = (
        "_session",
        "expiration_ms",
        "head",
        "holds_for_equals",
        "origin",
        "persistent",
        "producer",
        "queues",
        "reply_keys",
        "unfinished",
    )

    def __init__(self, session: Session) -> None:
        self._session = session
        self.head = b""
        self.origin: bytes | None = None
        self.persistent = False
        self.expiration_ms: int | None = None
        self.producer: Sent | None = None
        self.queues: Sequence[QueueEntry] = ()
        self.reply_keys: tuple[bytes, ...] = ()
        self.holds_for_equals = True
        self.unfinished: Routed[QueueEntry] | None = None

    def find(self, route: Route, head: bytes, reply_key: bytes | None, budget: int) -> int:
        """Find the route of the next message, or go on with the unfinished one; return the work.

        Args:
            route: of the message's basic.publish.
            head: the payload of its content header.
            reply_key: of the channel's own reply consumer, if there is one.
            budget: of work.

        Raises:
            PreconditionFailed: a property is wrong.
            HardError: 502 for a malformed headers table, which must not reach a consumer.
        """
        if self.unfinished is not None:
            before = self.unfinished.work
            return self._advance(self.unfinished, budget) - before
        session, work = self._session, _EXAMINE_WORK + len(head)
        seen = properties.examine(head)
        headers = seen.headers
        self.producer = None
        if headers and (SEQ in headers or ID in headers or EPOCH in headers):
            self.producer = producer_of(headers)
        if seen.reply_to == REPLY_TO:
            if reply_key is None:
                raise PreconditionFailed("fast reply consumer does not exist")
            head = properties.with_reply_to(head, reply_key)
        self.persistent, self.expiration_ms = (
            seen.persistent,
            checked_properties(seen, session.user),
        )
        keys, blind = checked_keys(route.routing_key, seen)
        self.origin, self.reply_keys = None, ()
        if blind is not None:
            head = without_bcc(head)
            self.origin = origin_of(*exchange_and_key(route.origin), *blind)
            keys += blind
        self.head = head
        if len(keys) == 1 and not route.needs_headers:
            self.queues, self.holds_for_equals = route.queues, True
            return work
        routed = session.routes.by_properties(route, keys, seen, budget - work)
        work += self._advance(routed, 0)
        if not route.exchange.name:
            # A routing key that leads to no queue may be that of a reply consumer: the publisher looks at it.
            known = () if self.queues else (route.routing_key,)
            others = sorted({*keys}.difference(known))
            self.reply_keys = tuple([key for key in others if is_reply_key(key)])
        return work

    def _advance(self, routed: Routed[QueueEntry], budget: int) -> int:
        """Go on with a route until it is complete, or has taken so much work more; return all its work."""
        is_complete = routed.advance(budget)
        self.queues, self.holds_for_equals = routed.queues, not routed.per_message
        self.unfinished = None if is_complete else routed
        return routed.work

    def leads_with(self, batch: Batch) -> bool:
        """Whether the message can be part of a batch."""
        return (
            self.queues == batch.queues
            and self.persistent is batch.persistent
            and self.expiration_ms == batch.expiration_ms
            and self.reply_keys == batch.reply_keys
        )

    def batch(self, route: Route) -> Batch:
        """Return a batch for such messages, without any."""
        return Batch(route, self.queues, [], self.persistent, self.expiration_ms, self.reply_keys)
