"""Rules of names and exchanges: which may be declared and deleted, and which exchanges every vhost has.

Line breaks are taken out of names in declare, delete and bind. ``amq.`` is reserved for creation; existing
objects may be declared again. Names made by the server are 16 random bytes in URL-safe base64.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from leveret.amqp.errors import AccessRefused, CommandInvalid
from leveret.broker.queue.equivalence import assert_argument, assert_property
from leveret.routing.exchange import ALTERNATE_EXCHANGE, DEFAULT_EXCHANGE, Exchange, is_type

if TYPE_CHECKING:
    from leveret.amqp.methods import ExchangeDeclare

RESERVED: Final = "amq."
RANDOM_BYTES: Final = 16

RandomBytes = Callable[[int], bytes]

_DEFAULTS: Final = (
    (DEFAULT_EXCHANGE, "direct", False),
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.topic", "topic", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    ("amq.rabbitmq.trace", "topic", True),
)
_WITHOUT_CRLF: Final = {ord("\r"): None, ord("\n"): None}


def default_exchanges() -> list[Exchange]:
    """Return the exchanges that every vhost has, newly made."""
    return [
        Exchange(name, kind, durable=True, internal=internal) for name, kind, internal in _DEFAULTS
    ]


def strip_crlf(name: str) -> str:
    """Return a name without line breaks."""
    return name.translate(_WITHOUT_CRLF)


def new_queue_name(given: str, random_bytes: RandomBytes = os.urandom) -> str:
    """Return the name that an active queue.declare means; an empty one gets a name made here.

    Raises:
        AccessRefused: it starts with ``amq.``, even if such a queue exists.
    """
    name = strip_crlf(given)
    if not name:
        return "amq.gen-" + _random_text(random_bytes)
    if name.startswith(RESERVED):
        raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
    return name


def consumer_tag(random_bytes: RandomBytes = os.urandom) -> str:
    """Return a new consumer tag."""
    return "amq.ctag-" + _random_text(random_bytes)


def _random_text(random_bytes: RandomBytes) -> str:
    return urlsafe_b64encode(random_bytes(RANDOM_BYTES)).rstrip(b"=").decode()


def refuse_default(name: str) -> None:
    """Raise AccessRefused for the nameless exchange, which cannot be declared, deleted or bound."""
    if name == DEFAULT_EXCHANGE:
        raise AccessRefused("operation not permitted on the default exchange")


def check_type(type_: str) -> None:
    """Raise CommandInvalid for an unknown exchange type.

    Differs from RabbitMQ: it says *invalid* instead of *unknown* for words its virtual machine knows.
    """
    if not is_type(type_):
        raise CommandInvalid(f"unknown exchange type '{type_}'")


def check_new_name(name: str) -> None:
    """Raise AccessRefused for the name of a new exchange that is reserved."""
    if name.startswith(RESERVED):
        raise AccessRefused(f"exchange name '{name}' contains reserved prefix 'amq.*'")


def check_deletable(name: str, vhost: str) -> None:
    """Raise AccessRefused for names of system exchanges, even of missing ones."""
    if name.startswith(RESERVED):
        raise AccessRefused(f"deletion of system exchange '{name}' in vhost '{vhost}' not allowed")


def check_equivalent(current: Exchange, method: ExchangeDeclare, vhost: str) -> None:
    """Check that an exchange is as it is declared now; of the arguments only the alternate counts.

    Raises:
        PreconditionFailed: with the first difference.
    """
    what = f"exchange '{current.name}' in vhost '{vhost}'"
    assert_property(what, "type", current.type, method.type)
    assert_property(what, "durable", current.durable, method.durable)
    assert_property(what, "auto_delete", current.auto_delete, method.auto_delete)
    assert_property(what, "internal", current.internal, method.internal)
    assert_argument(what, ALTERNATE_EXCHANGE, current.arguments, method.arguments)
