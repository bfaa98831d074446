"""Bindings, from an exchange to a queue or to another exchange.

A binding is identified by source, kind and name of the destination, routing key and arguments
(RabbitMQ's ``#binding{}`` with its arguments sorted). The type letters of the arguments are part of
it: ``{"a": signedint 1}`` and ``{"a": long 1}`` are two bindings. Arguments are kept as the bytes of
their table, once, in the identity: bindings are many, their arguments can be large, and are seldom read.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from leveret.amqp.tables import Table, pack, unpack

QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"

Identity: TypeAlias = tuple[str, str, bytes, bytes]
"""Kind, destination, key, and the table of the arguments, sorted by name; without the source."""


class Binding:
    """One binding of an exchange.

    Attributes:
        source: name of the exchange it belongs to.
        kind: ``QUEUE`` or ``EXCHANGE``, the kind of the destination.
        key: the routing key, or the pattern of a topic exchange.
        target: the queue entry or the ``Exchange`` itself, for routes.
        is_durable: whether both ends are durable, so that the binding survives a restart.
        identity: equal for equal bindings of the same source.
        decoded: the arguments, sorted by name, while the exchange takes the binding in; else None.
    """

    __slots__ = (
        "decoded",
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
        target: Any,
        is_durable: bool = False,
    ) -> None:
        self.source = source
        self.identity = identity
        self.kind, self.destination, self.key, _ = identity
        self.target = target
        self.is_durable = is_durable
        self.decoded: Table | None = None

    @property
    def arguments(self) -> Table:
        """The arguments, sorted by name; they are decoded now, unless they are at hand."""
        return unpack(self.identity[3]) if self.decoded is None else self.decoded

    @property
    def arguments_bytes(self) -> int:
        return len(self.identity[3])

    @property
    def weight(self) -> int:
        """The work of dropping it: 1 with a short key and without arguments."""
        return 1 + (len(self.key) + len(self.identity[3]) >> 5)

    def __repr__(self) -> str:
        return f"<Binding {self.source!r} -{self.key!r}-> {self.kind} {self.destination!r}>"


def identity_of(kind: str, destination: str, key: bytes, arguments: Table) -> Identity:
    """Return the identity of a binding among those of its source."""
    return (kind, destination, key, pack(dict(sorted(arguments.items()))) if arguments else b"")
