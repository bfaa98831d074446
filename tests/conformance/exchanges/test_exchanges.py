"""exchange.declare, delete, bind and unbind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.raw import Channel, hard, soft
from conformance.wire import Typed

DEFAULT = "ACCESS_REFUSED - operation not permitted on the default exchange"
PRECONDITION = "PRECONDITION_FAILED - "
Declare = Callable[..., str]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            {"exchange": "x", "type": "nope"},
            hard(503, "COMMAND_INVALID - unknown exchange type 'nope'", "exchange.declare"),
        ),
        ({"exchange": "", "type": "direct"}, soft(403, DEFAULT, "exchange.declare")),
        (
            {"exchange": "", "passive": True, "type": "direct"},
            soft(403, DEFAULT, "exchange.declare"),
        ),
        (
            {"exchange": "amq.foo", "type": "direct"},
            soft(
                403,
                "ACCESS_REFUSED - exchange name 'amq.foo' contains reserved prefix 'amq.*'",
                "exchange.declare",
            ),
        ),
        (
            {"exchange": "amq.direct", "type": "direct"},
            soft(
                406,
                PRECONDITION + "inequivalent arg 'durable' for exchange 'amq.direct' in vhost '/':"
                " received 'false' but current is 'true'",
                "exchange.declare",
            ),
        ),
        (
            {"exchange": "no-such-x", "type": "direct", "passive": True},
            soft(404, "NOT_FOUND - no exchange 'no-such-x' in vhost '/'", "exchange.declare"),
        ),
    ],
)
def test_refused_declarations(
    channel: Channel, options: dict[str, Any], error: tuple[str, int, str, str]
) -> None:
    assert channel.error("exchange.declare", **options) == error


def test_an_empty_type(channel: Channel, name: str) -> None:
    """The text is "invalid exchange type ''" where Erlang knows the word, as it does this one."""
    scope, code, text, method = channel.error("exchange.declare", exchange=name, type="")

    assert (scope, code, method) == ("connection", 503, "exchange.declare")
    assert text in {
        "COMMAND_INVALID - unknown exchange type ''",
        "COMMAND_INVALID - invalid exchange type ''",
    }


@pytest.mark.parametrize(
    ("exchange", "kind"),
    [
        ("amq.direct", "direct"),
        ("amq.fanout", "fanout"),
        ("amq.topic", "topic"),
        ("amq.headers", "headers"),
        ("amq.match", "headers"),
    ],
)
def test_exchanges_that_every_vhost_has(channel: Channel, exchange: str, kind: str) -> None:
    channel.ok("exchange.declare", exchange=exchange, type=kind, durable=True)


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        ({}, {"type": "fanout"}, "arg 'type' for exchange '{}' in vhost '/': received 'fanout' but current is 'direct'"),
        ({}, {"durable": True}, "arg 'durable' for exchange '{}' in vhost '/': received 'true' but current is 'false'"),
        ({}, {"auto_delete": True}, "arg 'auto_delete' for exchange '{}' in vhost '/': received 'true' but current is 'false'"),
        ({}, {"internal": True}, "arg 'internal' for exchange '{}' in vhost '/': received 'true' but current is 'false'"),
        (
            {},
            {"arguments": {"alternate-exchange": "ae"}},
            "arg 'alternate-exchange' for exchange '{}' in vhost '/': received the value 'ae' of type 'longstr' but current is none",
        ),
        (
            {"arguments": {"alternate-exchange": "ae"}},
            {"arguments": {"alternate-exchange": "be"}},
            "arg 'alternate-exchange' for exchange '{}' in vhost '/': received 'be' but current is 'ae'",
        ),
        (
            {"arguments": {"alternate-exchange": "ae"}},
            {},
            "arg 'alternate-exchange' for exchange '{}' in vhost '/': received none but current is the value 'ae' of type 'longstr'",
        ),
    ],
)  # fmt: skip
def test_a_second_declaration_must_be_equal(
    channel: Channel,
    exchange: Declare,
    first: dict[str, Any],
    second: dict[str, Any],
    difference: str,
) -> None:
    x = exchange(**first)

    error = channel.error("exchange.declare", exchange=x, **({"type": "direct"} | second))

    text = PRECONDITION + "inequivalent " + difference.format(x)
    assert error == soft(406, text, "exchange.declare")


def test_unknown_arguments_are_not_compared(channel: Channel, exchange: Declare) -> None:
    x = exchange(arguments={"mine": 1})

    channel.ok("exchange.declare", exchange=x, type="direct", arguments={"mine": 2, "other": True})


def test_an_alternate_exchange_must_be_a_string(channel: Channel, name: str) -> None:
    error = channel.error(
        "exchange.declare",
        exchange=name,
        type="direct",
        arguments={"alternate-exchange": Typed("b", 5)},
    )

    text = f"invalid type 'byte' for arg 'alternate-exchange' in exchange '{name}' in vhost '/'"
    assert error == soft(406, PRECONDITION + text, "exchange.declare")


def test_a_passive_declaration_compares_nothing(channel: Channel, exchange: Declare) -> None:
    channel.ok("exchange.declare", exchange=exchange(), type="fanout", passive=True, durable=True)


@pytest.mark.parametrize(
    ("exchange", "text"),
    [
        ("", DEFAULT),
        (
            "amq.direct",
            "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed",
        ),
        (
            "amq.nothing",
            "ACCESS_REFUSED - deletion of system exchange 'amq.nothing' in vhost '/' not allowed",
        ),
    ],
)
def test_refused_deletions(channel: Channel, exchange: str, text: str) -> None:
    error = channel.error("exchange.delete", exchange=exchange)

    assert error == soft(403, text, "exchange.delete")


def test_deleting_what_is_missing_is_fine(channel: Channel, name: str) -> None:
    assert channel.ok("exchange.delete", exchange=name).name == "exchange.delete-ok"


def test_delete_if_unused(channel: Channel, exchange: Declare, queue: str) -> None:
    x = exchange()
    channel.ok("queue.bind", queue=queue, exchange=x)

    error = channel.error("exchange.delete", exchange=x, if_unused=True)

    text = f"PRECONDITION_FAILED - exchange '{x}' in vhost '/' in use"
    assert error == soft(406, text, "exchange.delete")


def test_delete_takes_the_bindings_along(channel: Channel, exchange: Declare, queue: str) -> None:
    x = exchange("fanout")
    channel.ok("queue.bind", queue=queue, exchange=x)

    channel.ok("exchange.delete", exchange=x)

    channel.ok("exchange.declare", exchange=x, type="fanout")
    channel.publish("", "m", exchange=x)
    assert channel.ready(queue) == 0


@pytest.mark.parametrize("missing", ["destination", "source"])
@pytest.mark.parametrize("method", ["bind"])
def test_bind_with_an_end_missing(
    channel: Channel, exchange: Declare, name: str, missing: str, method: str
) -> None:
    ends = {"source": exchange(), "destination": exchange()} | {missing: name}

    error = channel.error(f"exchange.{method}", **ends)

    text = f"NOT_FOUND - no exchange '{name}' in vhost '/'"
    assert error == soft(404, text, f"exchange.{method}")


@pytest.mark.parametrize("end", ["destination", "source"])
@pytest.mark.parametrize("method", ["bind", "unbind"])
def test_bind_on_the_default_exchange(
    channel: Channel, exchange: Declare, end: str, method: str
) -> None:
    ends = {"source": exchange(), "destination": exchange()} | {end: ""}

    assert channel.error(f"exchange.{method}", **ends) == soft(403, DEFAULT, f"exchange.{method}")


def test_unbinding_what_is_not_bound_is_fine(channel: Channel, exchange: Declare) -> None:
    reply = channel.ok("exchange.unbind", source=exchange(), destination=exchange())

    assert reply.name == "exchange.unbind-ok"


def test_auto_delete_with_the_last_unbind(channel: Channel, exchange: Declare, queue: str) -> None:
    x = exchange(auto_delete=True)
    channel.ok("queue.bind", queue=queue, exchange=x, routing_key="a")
    channel.ok("queue.bind", queue=queue, exchange=x, routing_key="b")

    channel.ok("queue.unbind", queue=queue, exchange=x, routing_key="a")
    channel.ok("exchange.declare", exchange=x, type="direct", passive=True)
    channel.ok("queue.unbind", queue=queue, exchange=x, routing_key="b")

    assert channel.error("exchange.declare", exchange=x, type="direct", passive=True)[1] == 404


def test_auto_delete_with_the_last_queue(channel: Channel, exchange: Declare, queue: str) -> None:
    x = exchange(auto_delete=True)
    channel.ok("queue.bind", queue=queue, exchange=x)

    channel.ok("queue.delete", queue=queue)

    assert channel.error("exchange.declare", exchange=x, type="direct", passive=True)[1] == 404


def test_auto_delete_runs_up_a_chain(channel: Channel, exchange: Declare, queue: str) -> None:
    upper, lower = exchange(auto_delete=True), exchange(auto_delete=True)
    channel.ok("exchange.bind", source=upper, destination=lower)
    channel.ok("queue.bind", queue=queue, exchange=lower)

    channel.ok("queue.delete", queue=queue)

    assert channel.error("exchange.declare", exchange=upper, type="direct", passive=True)[1] == 404


def test_auto_delete_without_bindings_ever_stays(channel: Channel, exchange: Declare) -> None:
    x = exchange(auto_delete=True)
    source = exchange()
    channel.ok("exchange.bind", source=source, destination=x)

    channel.ok("exchange.unbind", source=source, destination=x)

    channel.ok("exchange.declare", exchange=x, type="direct", passive=True)


def test_an_internal_exchange_takes_no_publishes(channel: Channel, exchange: Declare) -> None:
    x = exchange("fanout", internal=True)

    channel.publish("", "m", exchange=x)

    text = f"ACCESS_REFUSED - cannot publish to internal exchange '{x}' in vhost '/'"
    assert channel.read_error() == soft(403, text, "basic.publish")


def test_the_trace_exchange_is_internal(channel: Channel) -> None:
    channel.publish("", "m", exchange="amq.rabbitmq.trace")

    text = "ACCESS_REFUSED - cannot publish to internal exchange 'amq.rabbitmq.trace' in vhost '/'"
    assert channel.read_error() == soft(403, text, "basic.publish")


def test_carriage_returns_and_line_feeds_are_taken_out_of_names(
    channel: Channel, name: str, litter: Callable[..., None]
) -> None:
    litter(exchange=name)

    channel.ok("exchange.declare", exchange=f"{name[:3]}\r\n{name[3:]}\n", type="direct")

    channel.ok("exchange.declare", exchange=name, type="direct", passive=True)
