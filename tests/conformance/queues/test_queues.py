"""queue.declare, bind, unbind, purge and delete."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from conformance import wire
from conformance.conftest import Connect
from conformance.raw import Channel, error_of, soft
from conformance.wire import Typed

Declare = Callable[..., str]
PRECONDITION = "PRECONDITION_FAILED - "
DEFAULT = "ACCESS_REFUSED - operation not permitted on the default exchange"
LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{}' in vhost '/'. It could be"
    " originally declared on another connection or the exclusive property value does not match that"
    " of the original declaration."
)


def _no_queue(name: str) -> str:
    return f"NOT_FOUND - no queue '{name}' in vhost '/'"


def test_a_new_queue_is_declared_empty_and_without_consumers(
    channel: Channel, name: str, litter: Callable[..., None]
) -> None:
    litter(name)

    reply = channel.ok("queue.declare", queue=name)

    assert reply.fields == {"queue": name, "message_count": 0, "consumer_count": 0}


def test_declare_counts_ready_messages_and_consumers(channel: Channel, queue: str) -> None:
    for _ in range(3):
        channel.publish(queue, "m")
    assert channel.get(queue, no_ack=False).message_count == 2
    channel.ok("basic.qos", prefetch_count=1)
    channel.ok("basic.consume", queue=queue)
    channel.deliveries(1)

    reply = channel.ok("queue.declare", queue=queue)

    assert (reply.message_count, reply.consumer_count) == (1, 1)


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        ({}, {"durable": True}, "arg 'durable' for {}: received 'true' but current is 'false'"),
        ({"durable": True}, {}, "arg 'durable' for {}: received 'false' but current is 'true'"),
        ({}, {"auto_delete": True}, "arg 'auto_delete' for {}: received 'true' but current is 'false'"),
        (
            {},
            {"arguments": {"x-message-ttl": Typed("s", 1000)}},
            "arg 'x-message-ttl' for {}: received the value '1000' of type 'short' but current is none",
        ),
        (
            {"arguments": {"x-message-ttl": Typed("s", 1000)}},
            {"arguments": {"x-message-ttl": Typed("s", 2000)}},
            "arg 'x-message-ttl' for {}: received '2000' but current is '1000'",
        ),
        (
            {"arguments": {"x-message-ttl": Typed("s", 1000)}},
            {},
            "arg 'x-message-ttl' for {}: received none but current is the value '1000' of type 'short'",
        ),
        (
            {"arguments": {"x-message-ttl": 1000}},
            {},
            "arg 'x-message-ttl' for {}: received none but current is the value '1000' of type 'signedint'",
        ),
        (
            {},
            {"arguments": {"x-expires": Typed("l", 60000)}},
            "arg 'x-expires' for {}: received the value '60000' of type 'long' but current is none",
        ),
        (
            {"arguments": {"x-queue-mode": "default"}},
            {"arguments": {"x-queue-mode": "lazy"}},
            "arg 'x-queue-mode' for {}: received 'lazy' but current is 'default'",
        ),
        (
            {},
            {"arguments": {"x-max-priority": Typed("b", 5)}},
            "arg 'x-max-priority' for {}: received the value '5' of type 'byte' but current is none",
        ),
        (
            {"arguments": {"x-single-active-consumer": True}},
            {},
            "arg 'x-single-active-consumer' for {}: received none but current is the value 'true' of type 'bool'",
        ),
    ],
)  # fmt: skip
def test_a_second_declaration_must_be_equal(
    channel: Channel,
    name: str,
    litter: Callable[..., None],
    first: dict[str, Any],
    second: dict[str, Any],
    difference: str,
) -> None:
    litter(name)
    channel.ok("queue.declare", queue=name, **first)

    error = channel.error("queue.declare", queue=name, **second)

    text = f"{PRECONDITION}inequivalent " + difference.format(f"queue '{name}' in vhost '/'")
    assert error == soft(406, text, "queue.declare")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"x-mine": 1}, {"x-mine": 2}),
        ({"x-mine": 1}, {}),
        ({}, {"x-queue-type": "classic"}),
        ({"x-message-ttl": Typed("s", 1000)}, {"x-message-ttl": Typed("l", 1000)}),
        ({"x-message-ttl": 0}, {"x-message-ttl": 0}),
    ],
)
def test_arguments_that_do_not_differ(
    channel: Channel,
    name: str,
    litter: Callable[..., None],
    first: dict[str, Any],
    second: dict[str, Any],
) -> None:
    litter(name)

    channel.ok("queue.declare", queue=name, arguments=first)
    channel.ok("queue.declare", queue=name, arguments=second)


def test_nowait_does_not_hide_a_difference(channel: Channel, queue: str) -> None:
    channel.send("queue.declare", queue=queue, durable=True, nowait=True)

    assert channel.read_error()[1] == 406


def test_the_exclusive_flag_on_a_shared_queue(channel: Channel, queue: str) -> None:
    error = channel.error("queue.declare", queue=queue, exclusive=True)

    assert error == soft(405, LOCKED.format(queue), "queue.declare")


@pytest.mark.parametrize("queue_name", ["", "amq.foo-missing", "no-such-queue"])
def test_a_passive_declaration_of_what_is_missing(channel: Channel, queue_name: str) -> None:
    error = channel.error("queue.declare", queue=queue_name, passive=True)

    assert error == soft(404, _no_queue(queue_name), "queue.declare")


def test_a_passive_declaration_compares_nothing(channel: Channel, queue: str) -> None:
    channel.ok("queue.declare", queue=queue, passive=True, durable=True, auto_delete=True)


def test_reserved_names(channel: Channel) -> None:
    error = channel.error("queue.declare", queue="amq.foo")

    text = "ACCESS_REFUSED - queue name 'amq.foo' contains reserved prefix 'amq.*'"
    assert error == soft(403, text, "queue.declare")


def test_a_name_of_the_brokers_making(channel: Channel) -> None:
    names = {channel.ok("queue.declare", exclusive=True).queue for _ in range(3)}

    assert len(names) == 3
    assert all(re.fullmatch(r"amq\.gen-[\w-]{22}", name) for name in names)


def test_carriage_returns_and_line_feeds_are_taken_out_of_names(
    channel: Channel, name: str
) -> None:
    reply = channel.ok("queue.declare", queue=f"{name[:2]}\r\n{name[2:]}\n", exclusive=True)

    assert reply.queue == name


@pytest.mark.parametrize(
    ("method", "field", "is_stripped"),
    [
        ("queue.declare", "queue", True),
        ("queue.bind", "queue", True),
        ("queue.bind", "exchange", True),
        ("queue.unbind", "queue", True),
        ("queue.unbind", "exchange", True),
        ("queue.purge", "queue", False),
        ("queue.delete", "queue", True),
        ("exchange.declare", "exchange", True),
        ("exchange.bind", "destination", True),
        ("exchange.bind", "source", True),
        ("exchange.unbind", "destination", True),
        ("exchange.unbind", "source", True),
        ("exchange.delete", "exchange", True),
        ("basic.consume", "queue", False),
        ("basic.get", "queue", False),
        ("basic.publish", "exchange", False),
    ],
)
def test_methods_that_take_line_feeds_out_of_the_names_they_are_given(
    channel: Channel, queue: str, exchange: Declare, method: str, field: str, is_stripped: bool
) -> None:
    names = {
        "queue": queue,
        "exchange": exchange(),
        "source": exchange(),
        "destination": exchange(),
    }
    given = names | {field: f"{names[field][:2]}\r\n{names[field][2:]}\n"}

    error = _error_of(channel, method, given)

    what = "queue" if field == "queue" else "exchange"
    missing = f"NOT_FOUND - no {what} '{given[field]}' in vhost '/'"
    assert error == (None if is_stripped else soft(404, missing, method))


def _error_of(
    channel: Channel, method: str, names: dict[str, str]
) -> tuple[str, int, str, str] | None:
    """Send a method with those of the names that it has; return the error it meets."""
    if method == "basic.publish":
        channel.publish("k", "m", exchange=names["exchange"])
        return channel.read_error()
    taken = {key: name for key, name in names.items() if key in dict(wire.FIELDS[method])}
    passive = {"passive": True} if method.endswith("declare") else {}
    reply = channel.call(method, **taken, **passive)
    return error_of(reply) if reply.name == "channel.close" else None


@pytest.mark.parametrize("durable", [True, False])
def test_durable_means_nothing_on_an_exclusive_queue(
    channel: Channel, name: str, durable: bool
) -> None:
    channel.ok("queue.declare", queue=name, exclusive=True, durable=True)

    channel.ok("queue.declare", queue=name, exclusive=True, durable=durable)


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("queue.declare", {"exclusive": True}),
        ("queue.declare", {}),
        ("queue.declare", {"passive": True}),
        ("queue.bind", {"exchange": "amq.direct", "routing_key": "k"}),
        ("queue.purge", {}),
        ("queue.delete", {}),
        ("basic.consume", {}),
        ("basic.get", {}),
    ],
)
def test_another_connections_exclusive_queue(
    connect: Connect, channel: Channel, name: str, method: str, fields: dict[str, Any]
) -> None:
    connect().channel().ok("queue.declare", queue=name, exclusive=True)

    error = channel.error(method, queue=name, **fields)

    assert error == soft(405, LOCKED.format(name), method)


def test_another_connection_unbinds_an_exclusive_queue(
    connect: Connect, channel: Channel, name: str
) -> None:
    owner = connect().channel()
    owner.ok("queue.declare", queue=name, exclusive=True)
    binding = {"queue": name, "exchange": "amq.direct", "routing_key": name}

    assert channel.call("queue.unbind", **binding).name == "queue.unbind-ok", "nothing is bound"
    owner.ok("queue.bind", **binding)
    assert channel.error("queue.unbind", **binding) == soft(
        405, LOCKED.format(name), "queue.unbind"
    )


def test_other_channels_of_the_owner_may_use_an_exclusive_queue(
    channel: Channel, name: str
) -> None:
    channel.ok("queue.declare", queue=name, exclusive=True)

    assert channel.connection.channel().get(name).name == "basic.get-empty"


def test_anyone_may_publish_to_an_exclusive_queue(
    connect: Connect, channel: Channel, name: str
) -> None:
    channel.ok("queue.declare", queue=name, exclusive=True)
    publisher = connect().channel()

    publisher.publish(name, "m")
    publisher.ok("channel.flow", active=True)

    channel.settle(name)
    assert channel.get(name).body == b"m"


def test_delete_answers_the_ready_messages(channel: Channel, queue: str) -> None:
    for _ in range(3):
        channel.publish(queue, "m")
    channel.get(queue, no_ack=False)

    assert channel.ok("queue.delete", queue=queue).message_count == 2
    assert channel.ok("queue.delete", queue=queue).message_count == 0


def test_delete_if_empty(channel: Channel, queue: str) -> None:
    channel.publish(queue, "m")

    error = channel.error("queue.delete", queue=queue, if_empty=True, if_unused=True)

    text = f"{PRECONDITION}queue '{queue}' in vhost '/' not empty"
    assert error == soft(406, text, "queue.delete")


def test_delete_if_unused(channel: Channel, queue: str) -> None:
    channel.ok("basic.consume", queue=queue)

    error = channel.error("queue.delete", queue=queue, if_unused=True)

    text = f"{PRECONDITION}queue '{queue}' in vhost '/' in use"
    assert error == soft(406, text, "queue.delete")


def test_purge_returns_how_many_messages_it_removed(channel: Channel, queue: str) -> None:
    for _ in range(3):
        channel.publish(queue, "m")

    assert channel.ok("queue.purge", queue=queue).message_count == 3
    assert channel.ready(queue) == 0
    assert channel.error("queue.purge", queue=queue + "-no")[1:3] == (404, _no_queue(queue + "-no"))


def test_purge_leaves_what_is_unacked(channel: Channel, queue: str) -> None:
    for body in "abc":
        channel.publish(queue, body)
    got = channel.get(queue, no_ack=False)

    assert channel.ok("queue.purge", queue=queue).message_count == 2

    channel.send("basic.nack", delivery_tag=got.delivery_tag, requeue=True)
    channel.settle(queue)
    again = channel.get(queue)
    assert (again.body, again.redelivered) == (b"a", True)


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("queue.bind", {"exchange": "amq.direct"}),
        ("queue.unbind", {"exchange": "amq.direct"}),
        ("queue.purge", {}),
        ("queue.delete", {}),
        ("basic.get", {}),
        ("basic.consume", {}),
    ],
)
def test_the_last_declared_queue(channel: Channel, method: str, fields: dict[str, Any]) -> None:
    assert channel.error(method, **fields) == soft(
        404, "NOT_FOUND - no previously declared queue", method
    )
    channel.send("channel.close-ok")
    channel.ok("channel.open")
    channel.ok("queue.declare", exclusive=True)

    channel.ok(method, **fields)


def test_an_empty_queue_and_an_empty_key_bind_the_queue_name(
    channel: Channel, queue: str, exchange: Declare
) -> None:
    x = exchange()

    channel.ok("queue.bind", exchange=x)

    channel.publish(queue, "by name", exchange=x)
    channel.publish("", "by nothing", exchange=x)
    assert channel.ready(queue) == 1


def test_a_named_queue_and_an_empty_key_bind_the_empty_key(
    channel: Channel, queue: str, exchange: Declare
) -> None:
    x = exchange()

    channel.ok("queue.bind", queue=queue, exchange=x)

    channel.publish(queue, "by name", exchange=x)
    channel.publish("", "by nothing", exchange=x)
    channel.settle(queue)
    assert [channel.get(queue).body, channel.get(queue).name] == [b"by nothing", "basic.get-empty"]


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ({"exchange": "no-x"}, "NOT_FOUND - no exchange 'no-x' in vhost '/'"),
        ({"queue": "no-q"}, "NOT_FOUND - no queue 'no-q' in vhost '/'"),
        ({"exchange": "no-x", "queue": "no-q"}, "NOT_FOUND - no exchange 'no-x' in vhost '/'"),
    ],
)
def test_bind_with_an_end_missing(
    channel: Channel, queue: str, ends: dict[str, str], text: str
) -> None:
    fields = {"queue": queue, "exchange": "amq.direct", "routing_key": "k"} | ends

    assert channel.error("queue.bind", **fields) == soft(404, text, "queue.bind")


@pytest.mark.parametrize("ends", [{"exchange": "no-x"}, {"queue": "no-q"}, {}])
def test_unbind_with_an_end_missing_is_fine(
    channel: Channel, queue: str, ends: dict[str, str]
) -> None:
    fields = {"queue": queue, "exchange": "amq.direct", "routing_key": "k"} | ends

    assert channel.ok("queue.unbind", **fields).name == "queue.unbind-ok"


@pytest.mark.parametrize("method", ["queue.bind", "queue.unbind"])
def test_the_default_exchange_has_no_bindings(channel: Channel, queue: str, method: str) -> None:
    error = channel.error(method, queue=queue, exchange="", routing_key="k")

    assert error == soft(403, DEFAULT, method)


def test_binding_twice_gives_one_copy(channel: Channel, queue: str, exchange: Declare) -> None:
    x = exchange()
    for _ in range(2):
        channel.ok("queue.bind", queue=queue, exchange=x, routing_key="k")

    channel.publish("k", "m", exchange=x)
    assert channel.ready(queue) == 1
    channel.ok("queue.unbind", queue=queue, exchange=x, routing_key="k")
    channel.publish("k", "m", exchange=x)
    assert channel.ready(queue) == 1


def test_bindings_that_differ_in_arguments_are_two(
    channel: Channel, queue: str, exchange: Declare
) -> None:
    x = exchange()
    for number in (1, 2):
        arguments = {"n": number}
        channel.ok("queue.bind", queue=queue, exchange=x, routing_key="k", arguments=arguments)

    channel.ok("queue.unbind", queue=queue, exchange=x, routing_key="k", arguments={"n": 1})
    channel.publish("k", "m", exchange=x)
    assert channel.ready(queue) == 1
    channel.ok("queue.unbind", queue=queue, exchange=x, routing_key="k", arguments={"n": 2})
    channel.publish("k", "m", exchange=x)
    assert channel.ready(queue) == 1


def test_a_transient_queue_binds_to_a_durable_exchange(channel: Channel, queue: str) -> None:
    channel.ok("queue.bind", queue=queue, exchange="amq.topic", routing_key=queue)

    channel.publish(queue, "m", exchange="amq.topic")

    assert channel.ready(queue) == 1


def test_nothing_remains_of_a_deleted_queue(
    channel: Channel, queue: str, exchange: Declare
) -> None:
    x = exchange("fanout")
    channel.ok("queue.bind", queue=queue, exchange=x)
    channel.publish(queue, "old")

    channel.ok("queue.delete", queue=queue)
    channel.ok("queue.declare", queue=queue)

    channel.publish("", "unbound", exchange=x)
    assert channel.ready(queue) == 0


def test_a_queue_name_of_255_bytes(channel: Channel, name: str) -> None:
    long = (name * 30)[:255]

    assert channel.ok("queue.declare", queue=long, exclusive=True).queue == long
    error = channel.error("queue.declare", queue=long[:-1], passive=True)
    assert len(error[2]) == 255
    assert error[2].endswith("...")
