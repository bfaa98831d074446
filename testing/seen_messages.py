"""A message as seen by tests: exchange, routing key, properties and body."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from leveret.amqp.properties import Properties, decode_properties
from leveret.amqp.tables import plain
from leveret.core.message import BODY, HEAD, ORIGIN, exchange_and_key

if TYPE_CHECKING:
    from leveret.core.message import Message

_SHOWN_BYTES: Final = 60


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """One message.

    Attributes:
        exchange: it was published to.
        routing_key: it was published with.
        body: as published.
        properties: the set ones, by their names in the specification with ``_`` for ``-``
            (``content_type``, ``delivery_mode``); ``headers`` without the types of their fields.
        is_unacked: whether it has been delivered and waits for its ack; else it is ready.
    """

    exchange: str
    routing_key: str
    body: bytes
    properties: dict[str, Any]
    is_unacked: bool = False

    @property
    def headers(self) -> dict[str, Any]:
        headers: dict[str, Any] = self.properties.get("headers", {})
        return headers

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)

    def __str__(self) -> str:
        body = self.body[:_SHOWN_BYTES]
        more = f"... ({len(self.body)} bytes)" if len(body) < len(self.body) else ""
        set_ones = "".join(f" {name}={value!r}" for name, value in self.properties.items())
        return f"exchange={self.exchange!r} routing_key={self.routing_key!r}{set_ones} body={body!r}{more}"


def seen(message: Message, is_unacked: bool = False) -> SeenMessage:
    """Return a message in the form for tests."""
    exchange, key = exchange_and_key(message[ORIGIN])
    return SeenMessage(
        exchange.decode("utf-8", "surrogateescape"),
        key.decode("utf-8", "surrogateescape"),
        message[BODY],
        _shown(decode_properties(message[HEAD])),
        is_unacked,
    )


def _shown(properties: Properties) -> dict[str, Any]:
    values = {each.name: getattr(properties, each.name) for each in fields(properties)}
    if properties.headers is not None:
        values["headers"] = plain(properties.headers)
    return {name: value for name, value in values.items() if value is not None}
