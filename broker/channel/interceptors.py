"""Interceptors: plug-ins that see, and may change, the messages that clients publish and get.

An interceptor gets batches: the messages of one read of the socket with the same exchange, key and flags, or those of
one delivery. A message is ``(origin, head, body)`` (``core/message.py``). It returns as many messages as it got, with
the same origins: publisher confirms count them. ``amqp.properties`` decodes and writes heads.

A connection without interceptors costs its channels one look per read and delivery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.amqp.errors import ProtocolError
from leveret.amqp.kernel import EXAMINE, PUBLISH, RUN_KIND, Run
from leveret.broker.channel.session import REFUSED
from leveret.core.message import BODY, exchange_and_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.broker.vhost.vhost import Client
    from leveret.core.message import Message

_HEAD_BYTES: Final = 12  # up to the flags of the properties


class Interceptor:
    """The base of interceptors: it changes nothing."""

    def published(
        self, client: Client, exchange: str, routing_key: bytes, messages: list[Message]
    ) -> list[Message]:
        """Return the messages to publish in place of these, before they are routed.

        Raises:
            ProtocolError: the batch is refused; the channel, or the connection, is closed with this error.
        """
        return messages

    def delivered(self, client: Client, queue: str, messages: list[Message]) -> list[Message]:
        """Return what the client gets in place of these messages; the queue keeps its own."""
        return messages


class Interceptors:
    """The interceptors of a node, in the order of its settings."""

    __slots__ = ("_chain",)

    def __init__(self, chain: Sequence[Interceptor]) -> None:
        self._chain = chain

    def published(self, client: Client, runs: list[Run]) -> list[Run]:
        """Return the runs of a read with other messages.

        Their properties are examined, whatever the kernel has found in the original ones. A batch that is refused is
        a run of the kind ``REFUSED``, with the error.
        """
        return [self._published(client, run) if run[RUN_KIND] == PUBLISH else run for run in runs]

    def _published(self, client: Client, run: Run) -> Run:
        kind, channel, method, mode, messages = run
        name, key = exchange_and_key(method[6:-1])
        exchange = name.decode("utf-8", "surrogateescape")
        changed = messages
        try:
            for each in self._chain:
                changed = each.published(client, exchange, key, changed)
        except ProtocolError as error:
            return (REFUSED, channel, error)
        if changed is messages:
            return run
        return (kind, channel, method, mode | EXAMINE, _whole(messages, changed))

    def delivered(self, client: Client, queue: str, messages: list[Message]) -> list[Message]:
        """Return what a client gets in place of the messages of a queue."""
        changed = messages
        for each in self._chain:
            changed = each.delivered(client, queue, changed)
        return messages if changed is messages else _whole(messages, changed)


def _whole(before: list[Message], after: Sequence[Message]) -> list[Message]:
    """Return changed messages with their sizes in their heads.

    Raises:
        ValueError: a message is missing, or goes to another exchange or key.
    """
    if [each[0] for each in before] != [each[0] for each in after]:
        raise ValueError("an interceptor must return its messages, with their origins")
    return [_sized(message) for message in after]


def _sized(message: Message) -> Message:
    origin, head, body = message
    size = len(message[BODY]).to_bytes(8, "big")
    if head[4:_HEAD_BYTES] == size:
        return message
    return origin, head[:4] + size + head[_HEAD_BYTES:], body
