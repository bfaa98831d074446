"""Interceptors: what they see, what they may change, and how they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.amqp import methods as m
from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.kernel import PUBLISH
from leveret.amqp.properties import decode_properties, with_headers
from leveret.broker.channel.interceptors import Interceptor, Interceptors
from leveret.core.message import Message
from rigs.broker_rig import Client, Rig


class Notes(Interceptor):
    """Notes what it sees."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def published(
        self, client: Any, exchange: str, routing_key: bytes, messages: list[Message]
    ) -> list[Message]:
        bodies = [body for _, _, body in messages]
        self.seen.append((client.user.name, exchange, routing_key, bodies))
        return messages

    def delivered(self, client: Any, queue: str, messages: list[Message]) -> list[Message]:
        self.seen.append((client.user.name, queue, [body for _, _, body in messages]))
        return messages


class Upper(Interceptor):
    """Doubles bodies when they come, and turns them to capitals when they go."""

    def published(
        self, client: Any, exchange: str, routing_key: bytes, messages: list[Message]
    ) -> list[Message]:
        return [(origin, head, body * 2) for origin, head, body in messages]

    def delivered(self, client: Any, queue: str, messages: list[Message]) -> list[Message]:
        return [(origin, head, body.upper()) for origin, head, body in messages]


class ToAll(Interceptor):
    """Sends a copy to the queue ``copies``, by CC."""

    def published(
        self, client: Any, exchange: str, routing_key: bytes, messages: list[Message]
    ) -> list[Message]:
        headers: Any = {"CC": ("A", [("S", b"copies")])}
        return [(origin, with_headers(head, headers), body) for origin, head, body in messages]


class NoSecrets(Interceptor):
    def published(
        self, client: Any, exchange: str, routing_key: bytes, messages: list[Message]
    ) -> list[Message]:
        if any(b"secret" in body for _, _, body in messages):
            raise PreconditionFailed("no secrets")
        return messages


class Loses(Interceptor):
    def published(
        self, client: Any, exchange: str, routing_key: bytes, messages: list[Message]
    ) -> list[Message]:
        return messages[1:]


def client(rig: Rig, *chain: Interceptor) -> Client:
    rig.node.connections.interceptors = Interceptors(chain)
    found = rig.session(channels=2)
    found.ask(1, m.QueueDeclare("q"))
    return found


def test_batches_are_seen_when_they_come_and_go(rig: Rig) -> None:
    notes = Notes()
    c = client(rig, notes)
    c.feed(c.contents(1, *(("", "q", b"%d" % number, {}) for number in range(3))))
    c.send(1, m.BasicConsume("q", "tag", no_ack=True))
    c.publish(1, "nowhere", b"x", exchange="amq.topic")

    assert notes.seen == [
        ("guest", "", b"q", [b"0", b"1", b"2"]),
        ("guest", "q", [b"0", b"1", b"2"]),
        ("guest", "amq.topic", b"nowhere", [b"x"]),
    ]


@pytest.mark.parametrize("by", ["get", "consume"])
def test_bodies_may_change_on_both_ways(rig: Rig, by: str) -> None:
    c = client(rig, Upper())
    c.publish(1, "q", b"ab")
    if by == "get":
        c.send(1, m.BasicGet("q"))
    else:
        c.send(1, m.BasicConsume("q", "tag"))

    frames = c.frames()

    head, body = frames[-2].payload, frames[-1].payload
    assert body == b"ABAB"
    assert int.from_bytes(head[4:12], "big") == 4


def test_the_queue_keeps_what_was_published(rig: Rig) -> None:
    c = client(rig, Upper())
    c.publish(1, "q", b"ab")
    c.send(1, m.BasicGet("q"))
    rig.node.connections.interceptors = None
    other = rig.session()
    c.send(1, m.BasicRecover(True))

    other.send(1, m.BasicGet("q"))

    assert other.bodies() == [b"abab"]


def test_headers_are_examined_after_the_interceptors(rig: Rig) -> None:
    c = client(rig, ToAll())
    c.ask(1, m.QueueDeclare("copies"))
    c.publish(1, "q", b"one", b"two")

    assert c.ask(1, m.QueueDeclare("copies", passive=True)).message_count == 2
    assert c.ask(1, m.QueueDeclare("q", passive=True)).message_count == 2


def test_interceptors_see_what_those_before_them_have_made(rig: Rig) -> None:
    notes = Notes()
    c = client(rig, Upper(), notes)
    c.publish(1, "q", b"ab")
    c.send(1, m.BasicGet("q"))

    assert notes.seen == [("guest", "", b"q", [b"abab"]), ("guest", "q", [b"ABAB"])]


def test_a_batch_may_be_refused_in_its_place(rig: Rig) -> None:
    c = client(rig, NoSecrets())
    c.send(1, m.ConfirmSelect())
    c.take()
    c.feed(
        c.contents(1, ("", "q", b"before", {}))
        + c.contents(1, ("", "other", b"secret", {}))
        + c.contents(1, ("", "q", b"after", {}))
    )

    *_, closed = c.take()

    assert (closed.reply_code, closed.reply_text) == (406, "PRECONDITION_FAILED - no secrets")
    assert (closed.class_id, closed.method_id) == (60, 40)
    assert c.ask(2, m.QueueDeclare("q", passive=True)).message_count == 1


def test_an_interceptor_that_loses_messages_is_an_error() -> None:
    method = m.encode(m.BasicPublish("", "q"))
    run = (PUBLISH, 1, method, 0, [(method[6:-1], b"\0" * 14, b"")])

    with pytest.raises(ValueError, match="must return its messages"):
        Interceptors([Loses()]).published(None, [run])  # type: ignore[arg-type]


def test_properties_stay(rig: Rig) -> None:
    c = client(rig, Upper())
    c.publish(1, "q", b"ab", content_type="text/plain", priority=3)
    c.send(1, m.BasicGet("q"))

    head = c.frames()[-2].payload

    properties = decode_properties(head)
    assert (properties.content_type, properties.priority) == ("text/plain", 3)
