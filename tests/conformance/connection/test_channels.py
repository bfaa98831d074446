"""Channels: open, flow, close, and what a closing channel still hears."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance import wire
from conformance.conftest import Connect
from conformance.raw import Channel, error_of, hard, soft

SECOND_OPEN = hard(504, "CHANNEL_ERROR - second 'channel.open' seen", "channel.open")


def test_a_method_before_open(connect: Connect) -> None:
    connection = connect()

    connection.send("queue.declare", 5, queue="q")

    assert error_of(connection.read(5)) == hard(
        504, "CHANNEL_ERROR - expected 'channel.open'", "queue.declare"
    )


def test_a_second_open(connect: Connect) -> None:
    connection = connect()
    connection.channel(1)

    connection.send("channel.open", 1)

    assert error_of(connection.read(1)) == SECOND_OPEN


def test_channel_max_counts_open_channels(connect: Connect) -> None:
    connection = connect(channel_max=2)
    connection.channel(1)
    connection.channel(2)

    connection.send("channel.open", 3)

    reached = (
        "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)"
    )
    assert error_of(connection.read(3)) == hard(530, reached)


def test_channel_numbers_are_not_limited_by_channel_max(connect: Connect) -> None:
    connection = connect(channel_max=2)

    assert connection.channel(500).ok("channel.flow", active=True).active is True


def test_a_closed_number_opens_again(channel: Channel) -> None:
    assert channel.call("channel.close", reply_code=200).name == "channel.close-ok"

    assert channel.call("channel.open").name == "channel.open-ok"


def test_channel_flow_is_always_active_and_cannot_be_stopped(channel: Channel) -> None:
    assert channel.ok("channel.flow", active=True).active is True
    assert channel.error("channel.flow", active=False) == hard(
        540, "NOT_IMPLEMENTED - active=false", "channel.flow"
    )


def test_other_channels_go_on_after_a_channel_error(connect: Connect, name: str) -> None:
    connection = connect()
    good, bad = connection.channel(), connection.channel()

    error = bad.error("queue.declare", queue=name, passive=True)

    assert error == soft(404, f"NOT_FOUND - no queue '{name}' in vhost '/'", "queue.declare")
    assert good.ok("channel.flow", active=True)


def test_the_number_is_free_after_close_ok(channel: Channel, name: str) -> None:
    channel.error("queue.declare", queue=name, passive=True)

    channel.send("channel.close-ok")

    assert channel.call("channel.open").name == "channel.open-ok"


def test_what_is_sent_right_behind_close_is_discarded(channel: Channel, queue: str) -> None:
    number, connection = channel.number, channel.connection
    publish = wire.method("basic.publish", exchange="", routing_key=queue)
    behind = wire.frame(1, number, publish) + wire.frame(2, number, wire.head(0, {}))

    connection.send_bytes(
        wire.frame(1, number, wire.method("channel.close", reply_code=200)) + behind
    )

    assert channel.read().name == "channel.close-ok"
    channel.ok("channel.open")
    assert channel.ready(queue) == 0


@pytest.mark.parametrize("behind", ["basic.publish", "basic.ack", "queue.declare", "channel.close"])
@pytest.mark.parametrize("closes", ["channel.close-ok", "channel.close"])
def test_a_method_right_behind_close_ok_closes_the_connection(
    connect: Connect, channel: Channel, queue: str, behind: str, closes: str
) -> None:
    connection = channel.connection
    if closes == "channel.close-ok":  # of an error; else the client says close-ok to nothing
        channel.error("queue.declare", queue=queue + "-no", passive=True)
    connection.hold()
    for name in dict.fromkeys([closes, "channel.close-ok"]):
        channel.send(name)
    if behind == "basic.publish":
        channel.publish(queue, "lost")
    else:
        channel.send(behind)
    connection.release()

    assert error_of(connection.read()) == hard(
        504, "CHANNEL_ERROR - expected 'channel.open'", behind
    )
    assert connect().channel().ready(queue) == 0


def test_open_right_behind_close_ok_opens_the_number_again(channel: Channel, queue: str) -> None:
    channel.error("queue.declare", queue=queue + "-no", passive=True)

    channel.connection.hold()
    channel.send("channel.close-ok")
    channel.send("channel.open")
    channel.publish(queue, "kept")
    channel.connection.release()

    assert channel.read().name == "channel.open-ok"
    assert channel.ready(queue) == 1


def test_open_before_close_ok(channel: Channel, name: str) -> None:
    channel.error("queue.declare", queue=name, passive=True)

    channel.send("channel.open")

    assert channel.read_error() == SECOND_OPEN


def test_a_closing_channel_hears_nothing_but_close(
    connect: Connect, channel: Channel, queue: str
) -> None:
    channel.error("queue.declare", queue=queue + "-no", passive=True)

    channel.publish(queue, "lost")
    channel.send("queue.delete", queue=queue)
    channel.publish(queue, "lost too")

    assert channel.call("channel.close", reply_code=200).name == "channel.close-ok"
    assert connect().channel().ready(queue) == 0


def test_publishes_sent_together_with_what_fails_are_discarded(
    connect: Connect, channel: Channel, queue: str
) -> None:
    passive = wire.method("queue.declare", queue=queue + "-no", passive=True)
    publish = wire.frame(1, 1, wire.method("basic.publish", routing_key=queue))
    content = wire.frame(2, 1, wire.head(4)) + wire.frame(3, 1, b"lost")

    channel.connection.send_bytes(wire.frame(1, 1, passive) + (publish + content) * 3)

    assert channel.read_error()[1] == 404
    channel.send("channel.close-ok")
    assert channel.call("channel.open").name == "channel.open-ok"
    assert connect().channel().ready(queue) == 0


def test_close_with_confirms_pending_gets_close_ok_last(channel: Channel, queue: str) -> None:
    channel.ok("confirm.select")
    for _ in range(10):
        channel.publish(queue, "m", delivery_mode=2)

    channel.send("channel.close", reply_code=200)

    names = []
    while not names or names[-1] != "channel.close-ok":
        names.append(channel.read().name)
    assert set(names[:-1]) <= {"basic.ack"}


def test_nowait_methods_still_fail(channel: Channel, name: str) -> None:
    channel.send("exchange.declare", exchange=name, type="nope", nowait=True)

    assert channel.read_error() == hard(
        503, "COMMAND_INVALID - unknown exchange type 'nope'", "exchange.declare"
    )


def test_nowait_methods_act_and_say_nothing(
    channel: Channel, name: str, litter: Callable[..., None]
) -> None:
    x, q = name + "-x", name
    litter(q, exchange=x)
    channel.send("exchange.declare", exchange=x, type="fanout", nowait=True)
    channel.send("queue.declare", queue=q, nowait=True)
    channel.send("queue.bind", queue=q, exchange=x, nowait=True)
    channel.send("confirm.select", nowait=True)
    channel.send("basic.consume", queue=q, consumer_tag="c", no_ack=True, nowait=True)

    channel.publish("", "m", exchange=x)

    came = [channel.read().name for _ in range(2)]
    assert sorted(came) == ["basic.ack", "basic.deliver"]
    channel.send("basic.cancel", consumer_tag="c", nowait=True)
    channel.publish("", "m", exchange=x)
    assert [event.name for event in channel.settle(q)] == ["basic.ack"]
    channel.send("queue.purge", queue=q, nowait=True)
    assert channel.ready(q) == 0
    channel.send("queue.delete", queue=q, nowait=True)
    channel.send("exchange.delete", exchange=x, nowait=True)
    assert channel.error("queue.declare", queue=q, passive=True)[1] == 404
