"""The events of a client's connection: what the broker sends beside its answers to the protocol itself."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from leveret.amqp.fields import Method


class Confirmed(NamedTuple):
    """basic.ack, or basic.nack when it is not ``accepted``."""

    channel: int
    tag: int
    multiple: bool
    accepted: bool


class Delivered(NamedTuple):
    """basic.deliver with its message."""

    channel: int
    consumer_tag: bytes
    tag: int
    redelivered: bool
    head: bytes
    body: bytes


class Returned(NamedTuple):
    """basic.return with its message; ``origin`` is exchange and routing key, as in a message."""

    channel: int
    reply: str
    origin: bytes
    head: bytes
    body: bytes


class Cancelled(NamedTuple):
    """basic.cancel: the broker ended a consumer, because its queue is gone."""

    channel: int
    consumer_tag: str


class Answer(NamedTuple):
    """The answer to a request, which may be channel.close."""

    channel: int
    method: Method


Event: TypeAlias = Confirmed | Delivered | Returned | Cancelled | Answer
