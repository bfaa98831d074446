"""The types of queues, and what each takes: arguments, arguments of its consumers, keys of policies.

The lists and their order are RabbitMQ's (``capabilities`` of ``rabbit_classic_queue``, ``rabbit_quorum_queue`` and
``rabbit_stream_queue``, 3.10.8). Differs from RabbitMQ: a policy with ``delivery-limit`` applies to classic queues too.

A *quorum* queue is a durable queue that RabbitMQ would replicate by Raft. On a node by itself it has one replica:
RabbitMQ's checks and answers for that type hold, every message in it is persistent whatever its delivery mode, and
its messages count how often they came back. A *stream* does not exist here and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.amqp.tables import Table

QUEUE_TYPE: Final = "x-queue-type"
CLASSIC: Final = "classic"
QUORUM: Final = "quorum"
STREAM: Final = "stream"


@dataclass(frozen=True, slots=True)
class QueueType:
    """One type.

    Attributes:
        name: the value of ``x-queue-type``.
        arguments: in the order in which a second declaration is compared with the first.
        consumer_arguments: of basic.consume.
        foreign_keys: a policy with one of them does not apply to queues of this type, the rest of its keys included.
    """

    name: str
    arguments: tuple[str, ...]
    consumer_arguments: frozenset[str]
    foreign_keys: frozenset[str]

    @property
    def module(self) -> str:
        """The name in RabbitMQ's texts."""
        return f"rabbit_{self.name}_queue"


_OF_STREAMS: Final = frozenset({"max-age", "stream-max-segment-size-bytes", "initial-cluster-size"})
_TYPES: Final = (
    QueueType(
        CLASSIC,
        (
            "x-expires", "x-message-ttl", "x-dead-letter-exchange", "x-dead-letter-routing-key",
            "x-max-length", "x-max-length-bytes", "x-max-priority", "x-overflow", "x-queue-mode",
            "x-queue-version", "x-single-active-consumer", QUEUE_TYPE, "x-queue-master-locator",
        ),
        frozenset({"x-priority", "x-cancel-on-ha-failover", "x-credit"}),
        _OF_STREAMS | {"queue-leader-locator", "dead-letter-strategy"},
    ),
    QueueType(
        QUORUM,
        (
            "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy",
            "x-expires", "x-max-length", "x-max-length-bytes", "x-max-in-memory-length",
            "x-max-in-memory-bytes", "x-overflow", "x-single-active-consumer", QUEUE_TYPE,
            "x-quorum-initial-group-size", "x-delivery-limit", "x-message-ttl",
            "x-queue-leader-locator",
        ),
        frozenset({"x-priority", "x-credit"}),
        _OF_STREAMS | {
            "max-priority", "queue-mode", "single-active-consumer", "ha-mode", "ha-params",
            "ha-sync-mode", "ha-promote-on-shutdown", "ha-promote-on-failure",
            "queue-master-locator",
        },
    ),
    QueueType(
        STREAM,
        (
            "x-max-length-bytes", QUEUE_TYPE, "x-max-age", "x-stream-max-segment-size-bytes",
            "x-initial-cluster-size", "x-queue-leader-locator",
        ),
        frozenset({"x-stream-offset", "x-credit"}),
        frozenset(),
    ),
)  # fmt: skip
TYPES: Final[Mapping[str, QueueType]] = {each.name: each for each in _TYPES}

DEFAULT_TYPES: Final = ("", CLASSIC, QUORUM)
"""What a vhost may say of queues that are declared without a type."""


def type_of(arguments: Table) -> QueueType:
    """Return the type that arguments ask for; classic where the value is none of the types."""
    letter, value = arguments.get(QUEUE_TYPE, ("S", b"classic"))
    name = value.decode("utf-8", "replace") if letter == "S" else CLASSIC
    return TYPES.get(name, TYPES[CLASSIC])
