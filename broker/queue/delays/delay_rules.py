"""The messages of a delay queue when they are due: what becomes of their headers, and where they go.

As in RabbitMQ's plug-in (``rabbit_delayed_message_utils:swap_delay_header``) the header ``x-delay`` is negated, and the
headers are sorted by name. Origin and all else stay. The message is published to the exchange that has delayed it, by
its routing key and those of CC.

Differs from RabbitMQ: keys of BCC, which are forgotten when a message is published, do not count when it is due.
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
from leveret.core.message import exchange_and_key
from leveret.routing.delayed import DELAY, delay_ms, exchange_of

if TYPE_CHECKING:
    from leveret.core.message import Message

DUE: Final = b"delay"
_S32_MAX: Final = 2**31 - 1


class DelayHeads:
    """Writes the headers of messages that are due."""

    __slots__ = ()

    def letter(self, origin: bytes, head: bytes) -> DeadLetter:
        """Return the message to publish; where its header cannot be decoded, it has none of the properties."""
        key = exchange_and_key(origin)[1]
        try:
            seen = examine(head)
            headers = dict(seen.headers or {})
        except SyntaxError_:
            return DeadLetter(head_without(head), [key], {}, persistent=False)
        if delay := delay_ms(headers):
            headers[DELAY] = ("I" if delay <= _S32_MAX else "l", -delay)
            head = with_headers(head, headers)
        return DeadLetter(head, [key, *carbon_copies(headers)], headers, seen.persistent)


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
        """Tell nobody: the firehose gets what is published and delivered."""
