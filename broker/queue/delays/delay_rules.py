"""The messages of a delay queue when they are due: they are published as they are to the exchange of the queue.

They are routed by their key and those of CC and BCC, and with the delay negated, so that neither this exchange nor
another on the way delays them again. As in RabbitMQ 3.10.8 with its plug-in only the routing sees that: consumers get
the header ``x-delay`` as it was published.

Differs from RabbitMQ: a message that is dead-lettered to an exchange that delays is delayed there, each time; in
RabbitMQ it is if it has not been delayed before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.amqp.errors import SyntaxError_
from leveret.amqp.properties import examine, with_headers
from leveret.broker.queue.dead_letters.death_headers import (
    DeadLetter,
    carbon_copies,
    head_without,
)
from leveret.core.message import blind_keys_of, exchange_and_key
from leveret.routing.delayed import DELAY, delay_ms, exchange_of

if TYPE_CHECKING:
    from leveret.core.message import Message

DUE: Final = b"delay"


class DelayHeads:
    """Writes the headers of messages that are due."""

    __slots__ = ()

    def dead_letter(self, origin: bytes, head: bytes) -> DeadLetter:
        """Return the message to publish; where its header cannot be decoded, it has none of the properties."""
        key = exchange_and_key(origin)[1]
        try:
            seen = examine(head)
            headers = dict(seen.headers or {})
        except SyntaxError_:
            bare = head_without(head)
            return DeadLetter(bare, [key], {}, persistent=False, routed_as=bare)
        keys = [key, *carbon_copies(headers), *blind_keys_of(origin)]
        routed_as = head
        if delay := delay_ms(headers):
            headers[DELAY] = ("l", -delay)
            routed_as = with_headers(head, headers)
        return DeadLetter(head, keys, headers, seen.persistent, routed_as)


class DelayRules:
    """The rules of a delay queue; nobody has died."""

    __slots__ = ("exchange",)

    finds_cycles = False

    def __init__(self, queue: str) -> None:
        self.exchange = exchange_of(queue)

    def heads(self, reason: bytes, time_s: int) -> DelayHeads:
        return DelayHeads()

    def origin(self, origin: bytes, key: bytes) -> bytes:
        return origin

    def taken(self, messages: list[Message], reason: bytes) -> None:
        """Do nothing: the firehose is told of publishes and deliveries only."""
