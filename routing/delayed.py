"""Exchanges of the type ``x-delayed-message``: a message with the header ``x-delay`` is routed so many ms later.

As RabbitMQ's plug-in ``rabbitmq_delayed_message_exchange``. The exchange's argument ``x-delayed-type`` names the type
that routes: messages without a delay at once, the others when they are due. Until then they are in the *delay queue*
of the exchange, which is no binding's target and has a name that no client may use (``queue_of``). It has each routed
by the exchange again, with the delay negated, when its time has come (``broker/queue/delays``).

``x-delay`` is an integer of any wire type, a float, whose fraction is cut off, or a text of digits, in ms. A message
with another value, or one that is not positive, is routed at once.

Differs from RabbitMQ: delays may be longer than 2^32 - 1 ms, where its messages are routed at once; and a delayed
message does not go to the alternate exchange when it is published.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from leveret.amqp.errors import CommandInvalid, PreconditionFailed
from leveret.routing.exchange_type import Head, Matcher

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from leveret.amqp.tables import Table
    from leveret.routing.bindings import Binding
    from leveret.routing.exchange_type import ExchangeType

DELAYED: Final = "x-delayed-message"
DELAYED_TYPE: Final = "x-delayed-type"
DELAY: Final = "x-delay"
QUEUE_PREFIX: Final = "amq.delayed."

_INTEGERS: Final = frozenset("bBsuIilL")
_FLOATS: Final = frozenset("fd")
_TEXT_DELAY: Final = re.compile(rb"[+-]?[0-9]{1,19}")
_DELAY_WORK: Final = 5  # units of work: the headers are decoded


class DelayedMatcher(Matcher):
    """The matcher of the type that routes, behind a check of the delay.

    Args:
        arguments: of the exchange.
        types: all exchange types by name.

    Raises:
        PreconditionFailed: there is no ``x-delayed-type``, or it is this type.
        CommandInvalid: there is no such type.

    Attributes:
        inner: the matcher of the type that routes.
        queue: where delayed messages go; None until the vhost has set it.
    """

    __slots__ = ("inner", "per_message", "queue")

    uses_headers = True

    def __init__(self, arguments: Table, types: Mapping[str, ExchangeType]) -> None:
        super().__init__(arguments)
        self.inner = _type_in(arguments, types)(arguments)
        self.per_message = self.inner.per_message
        self.queue: Any = None

    def check(self, key: bytes, arguments: Table) -> None:
        self.inner.check(key, arguments)

    def add(self, binding: Binding) -> None:
        self.inner.add(binding)

    def remove(self, binding: Binding) -> None:
        self.inner.remove(binding)

    def match(self, keys: Sequence[bytes], head: Head | None, found: dict[Any, Any]) -> int:
        if head is not None and self.queue is not None and delay_ms(head.headers) > 0:
            found[self.queue] = None
            return _DELAY_WORK
        return self.inner.match(keys, head, found)

    def walk(
        self, keys: Sequence[bytes], head: Head | None, found: dict[Any, Any]
    ) -> Iterator[int]:
        return self.inner.walk(keys, head, found)


def _type_in(arguments: Table, types: Mapping[str, ExchangeType]) -> ExchangeType:
    kind, value = arguments.get(DELAYED_TYPE, ("V", None))
    if kind != "S":
        text = f"Invalid argument, '{DELAYED_TYPE}' must be an existing exchange type"
        raise PreconditionFailed(text)
    name = value.decode("utf-8", "surrogateescape")
    if name == DELAYED:
        text = f"Invalid argument, '{DELAYED}' can't be used for '{DELAYED_TYPE}'"
        raise PreconditionFailed(text)
    if name not in types:
        raise CommandInvalid(f"unknown exchange type '{name}'")
    return types[name]


def delay_ms(headers: Table | None) -> int:
    """Return the delay that headers ask for; 0 when they ask for none."""
    if headers is None or DELAY not in headers:
        return 0
    kind, value = headers[DELAY]
    if kind in _INTEGERS:
        return int(value)
    if kind in _FLOATS and abs(value) < 2.0**63:  # neither infinite nor NaN
        return int(value)
    if kind == "S" and _TEXT_DELAY.fullmatch(value):
        return int(value)
    return 0


def queue_of(exchange: str) -> str:
    """Return the name of an exchange's delay queue."""
    return QUEUE_PREFIX + exchange


def exchange_of(queue: str) -> str | None:
    """Return the name of the exchange whose delay queue this is; None: it is another queue."""
    return queue[len(QUEUE_PREFIX) :] if queue.startswith(QUEUE_PREFIX) else None
