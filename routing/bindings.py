"""Bindings, from an exchange to a queue or to another exchange.

A binding is identified by source, kind and name of the destination, routing key and arguments
(RabbitMQ's ``#binding{}`` with its arguments sorted). The type letters of the arguments are part of
it: ``{"a": signedint 1}`` and ``{"a": long 1}`` are two bindings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from leveret.amqp.tables import Field, Table

QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"

Frozen: TypeAlias = tuple[Any, ...]
Identity: TypeAlias = tuple[str, str, bytes, Frozen]  # without the source

NO_ARGUMENTS: Final[Frozen] = ()


class Binding:
    """One binding of an exchange.

    Attributes:
        source: name of the exchange it belongs to.
        kind: ``QUEUE`` or ``EXCHANGE``, the kind of the destination.
        key: the routing key, or the pattern of a topic exchange.
        target: the queue entry or the ``Exchange`` itself, for routes.
        is_durable: whether both ends are durable, so that the binding survives a restart.
        identity: equal for equal bindings of the same source.
    """

    __slots__ = (
        "arguments",
        "destination",
        "identity",
        "is_durable",
        "key",
        "kind",
        "source",
        "target",
    )

    def __init__(
        self,
        source: str,
        identity: Identity,
        arguments: Table,
        target: Any,
        is_durable: bool = False,
    ) -> None:
        self.source = source
        self.identity = identity
        self.kind, self.destination, self.key, _ = identity
        self.arguments = arguments
        self.target = target
        self.is_durable = is_durable

    def __repr__(self) -> str:
        return f"<Binding {self.source!r} -{self.key!r}-> {self.kind} {self.destination!r}>"


def identity_of(kind: str, destination: str, key: bytes, arguments: Table) -> Identity:
    """Return the identity of a binding among those of its source."""
    return (kind, destination, key, freeze(arguments) if arguments else NO_ARGUMENTS)


def freeze(table: Table) -> Frozen:
    """Return a table as nested tuples, sorted by key: equal exactly when types and values are."""
    return tuple((key, *_freeze_field(table[key])) for key in sorted(table))


def _freeze_field(field: Field) -> tuple[str, Any]:
    letter, value = field
    if letter == "F":
        return letter, freeze(value)
    if letter == "A":
        return letter, tuple(_freeze_field(each) for each in value)
    if isinstance(value, float):
        return letter, value.hex()  # so that a NaN is the same binding twice
    return letter, value
