"""Which queues a message reaches. The matrices were recorded from RabbitMQ 3.10.8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.raw import Channel, soft
from conformance.wire import Typed

Declare = Callable[..., str]
Litter = Callable[..., None]

PATTERNS = [
    "", "#", "*", "*.*", "a.#", "#.b", "a.*.b", "a..b", "*..*", ".#", "#.#", "a.#.b", "*.#", "#.*",
    "a*", "a", ".", "*.",
]  # fmt: skip
TOPIC = {
    "": "['', '#', '#.#']",
    "a": "['#', '*', 'a.#', '#.#', '*.#', '#.*', 'a']",
    "a.b": "['#', '*.*', 'a.#', '#.b', '#.#', 'a.#.b', '*.#', '#.*']",
    "a..b": "['#', 'a.#', '#.b', 'a.*.b', 'a..b', '*..*', '#.#', 'a.#.b', '*.#', '#.*']",
    ".": "['#', '*.*', '.#', '#.#', '*.#', '#.*', '.', '*.']",
    "a.": "['#', '*.*', 'a.#', '#.#', '*.#', '#.*', '*.']",
    ".b": "['#', '*.*', '#.b', '.#', '#.#', '*.#', '#.*']",
    "a.x.b": "['#', 'a.#', '#.b', 'a.*.b', '#.#', 'a.#.b', '*.#', '#.*']",
    "a*": "['#', '*', '#.#', '*.#', '#.*', 'a*']",
    "..": "['#', '*..*', '.#', '#.#', '*.#', '#.*']",
    "a.x.y.b": "['#', 'a.#', '#.b', '#.#', 'a.#.b', '*.#', '#.*']",
}


def _queues(channel: Channel, count: int) -> list[str]:
    return [channel.ok("queue.declare", exclusive=True).queue for _ in range(count)]


def _got(channel: Channel, queues: list[str]) -> list[int]:
    """Return which of the queues have got a message, and empty them."""
    return [
        n for n, queue in enumerate(queues) if channel.ok("queue.purge", queue=queue).message_count
    ]


def test_topic_patterns_match_the_recorded_keys(channel: Channel, exchange: Declare) -> None:
    x, queues = exchange("topic"), _queues(channel, len(PATTERNS))
    for queue, pattern in zip(queues, PATTERNS, strict=True):
        # a named queue, so that the empty pattern stays one
        channel.ok("queue.bind", queue=queue, exchange=x, routing_key=pattern)

    matched = {}
    for key in TOPIC:
        channel.publish(key, "m", exchange=x)
        matched[key] = str([PATTERNS[n] for n in _got(channel, queues)])

    assert matched == TOPIC


def test_topic_bindings_that_go_leave_the_others(channel: Channel, exchange: Declare) -> None:
    x, queues = exchange("topic"), _queues(channel, 2)
    for queue in queues:
        for pattern in ("a.#", "a.*.c"):
            channel.ok("queue.bind", queue=queue, exchange=x, routing_key=pattern)

    channel.ok("queue.unbind", queue=queues[0], exchange=x, routing_key="a.#")

    channel.publish("a.b", "m", exchange=x)
    assert _got(channel, queues) == [1]
    channel.publish("a.b.c", "m", exchange=x)
    assert _got(channel, queues) == [0, 1]


BINDINGS: list[dict[str, Any]] = [
    {},
    {"x-match": "any"},
    {"x-match": "all", "a": 1},
    {"x-match": "any", "a": 1, "b": "two"},
    {"a": 1, "b": "two"},
    {"x-match": "all", "a": None},
    {"x-match": "all", "x-special": "s", "a": 1},
    {"x-match": "all-with-x", "x-special": "s", "a": 1},
    {"x-match": "any", "x-special": "s"},
    {"x-match": "any-with-x", "x-special": "s", "b": "two"},
]
HEADERS: list[tuple[dict[str, Any] | None, list[int]]] = [
    (None, [0]),
    ({}, [0]),
    ({"a": 1}, [0, 2, 3, 5, 6]),
    ({"a": 1.0}, [0, 2, 3, 5, 6]),
    ({"a": Typed("l", 1)}, [0, 2, 3, 5, 6]),
    ({"a": "1"}, [0, 5]),
    ({"b": "two"}, [0, 3, 9]),
    ({"a": 1, "b": "two"}, [0, 2, 3, 4, 5, 6, 9]),
    ({"x-special": "s"}, [0, 9]),
    ({"a": 1, "x-special": "s"}, [0, 2, 3, 5, 6, 7, 9]),
    ({"a": None, "c": [1]}, [0, 5]),
]


def test_headers(channel: Channel, exchange: Declare) -> None:
    x, queues = exchange("headers"), _queues(channel, len(BINDINGS))
    for queue, arguments in zip(queues, BINDINGS, strict=True):
        channel.ok("queue.bind", queue=queue, exchange=x, arguments=arguments)

    matched = []
    for headers, _ in HEADERS:
        channel.publish("k", "m", exchange=x, **({} if headers is None else {"headers": headers}))
        matched.append((headers, _got(channel, queues)))

    assert matched == HEADERS


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("some", 'value <<"some">>; expected all, any, all-with-x, or any-with-x'),
        (Typed("b", 1), "type byte (value 1); expected longstr"),
    ],
)
def test_x_match_must_be_a_known_word(
    channel: Channel, queue: str, exchange: Declare, value: Any, text: str
) -> None:
    x = exchange("headers")

    error = channel.error("queue.bind", queue=queue, exchange=x, arguments={"x-match": value})

    text = f"PRECONDITION_FAILED - Invalid x-match field {text}"
    assert error == soft(406, text, "queue.bind")


def test_direct_and_fanout(channel: Channel, exchange: Declare) -> None:
    direct, fanout, queues = exchange("direct"), exchange("fanout"), _queues(channel, 3)
    for queue, key in zip(queues, ("a", "a", "b"), strict=True):
        channel.ok("queue.bind", queue=queue, exchange=direct, routing_key=key)
        channel.ok("queue.bind", queue=queue, exchange=fanout, routing_key=key)

    for x, key, reached in (
        (direct, "a", [0, 1]),
        (direct, "b", [2]),
        (direct, "c", []),
        (fanout, "c", [0, 1, 2]),
    ):
        channel.publish(key, "m", exchange=x)
        assert _got(channel, queues) == reached


def test_a_cycle_of_exchanges_and_two_paths_give_one_copy(
    channel: Channel, exchange: Declare
) -> None:
    first, second, third = (exchange("fanout") for _ in range(3))
    for source, destination in ((first, second), (second, third), (third, first), (first, third)):
        channel.ok("exchange.bind", source=source, destination=destination)
    (queue,) = _queues(channel, 1)
    for x in (second, third):
        channel.ok("queue.bind", queue=queue, exchange=x)

    for x in (first, second, third):
        channel.publish("", "m", exchange=x)
        assert channel.ok("queue.purge", queue=queue).message_count == 1


def test_the_key_decides_at_each_exchange(channel: Channel, exchange: Declare) -> None:
    topic, direct, queues = exchange("topic"), exchange("direct"), _queues(channel, 1)
    channel.ok("exchange.bind", source=topic, destination=direct, routing_key="a.#")
    channel.ok("queue.bind", queue=queues[0], exchange=direct, routing_key="a.b")

    for key, reached in (("a.b", [0]), ("a.c", []), ("b", [])):
        channel.publish(key, "m", exchange=topic)
        assert _got(channel, queues) == reached


def test_cc_and_bcc(channel: Channel) -> None:
    queues = _queues(channel, 4)
    to, copy, blind, also = queues

    channel.publish(to, "m", headers={"CC": [copy, to, also], "BCC": [blind, also], "z": 1, "a": 2})

    channel.settle(*queues)
    for queue in queues:
        got = channel.get(queue)
        assert got.routing_key == to
        assert got.properties["headers"] == {"CC": [copy, to, also], "z": 1, "a": 2}
        assert channel.get(queue).name == "basic.get-empty"


def test_cc_counts_for_topic_exchanges_too(channel: Channel, exchange: Declare) -> None:
    x, queues = exchange("topic"), _queues(channel, 2)
    channel.ok("queue.bind", queue=queues[0], exchange=x, routing_key="a.*")
    channel.ok("queue.bind", queue=queues[1], exchange=x, routing_key="b.*")

    channel.publish("c", "m", exchange=x, headers={"CC": ["a.1", "b.1", "b.2"]})

    assert _got(channel, queues) == [0, 1]


def test_what_is_no_string_in_cc_is_passed_over(channel: Channel) -> None:
    queues = _queues(channel, 1)

    channel.publish("nowhere", "m", headers={"CC": [1, queues[0], None]})

    assert _got(channel, queues) == [0]


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ({"CC": "no array"}, '"CC",longstr'),
        ({"BCC": "no array"}, '"BCC",longstr'),
        ({"CC": 1}, '"CC",signedint'),
        ({"BCC": None}, '"BCC",void'),
        ({"CC": {"a": 1}}, '"CC",table'),
    ],
)
def test_cc_must_be_an_array(
    channel: Channel, queue: str, headers: dict[str, Any], shown: str
) -> None:
    channel.publish(queue, "m", headers=headers)

    text = f"PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,{shown}}}"
    assert channel.read_error() == soft(406, text, "basic.publish")


def test_bcc_is_taken_out_of_a_return_too(channel: Channel) -> None:
    channel.publish("nowhere", "m", mandatory=True, headers={"BCC": ["no"], "b": 1, "a": 2})

    returned = channel.read()
    assert (returned.name, returned.properties["headers"]) == ("basic.return", {"a": 2, "b": 1})


def test_mandatory_through_exchanges_that_lead_nowhere(channel: Channel, exchange: Declare) -> None:
    first, second = exchange("fanout"), exchange("fanout")
    channel.ok("exchange.bind", source=first, destination=second)

    channel.publish("k", "m", exchange=first, mandatory=True)

    returned = channel.read()
    assert (returned.name, returned.exchange, returned.routing_key) == ("basic.return", first, "k")


def test_an_alternate_exchange_takes_what_its_exchange_cannot_route(
    channel: Channel, exchange: Declare
) -> None:
    (queue, other) = _queues(channel, 2)
    last = exchange("fanout")
    middle = exchange("direct", arguments={"alternate-exchange": last})
    first = exchange("direct", arguments={"alternate-exchange": middle})
    channel.ok("queue.bind", queue=queue, exchange=last)
    channel.ok("queue.bind", queue=other, exchange=first, routing_key="bound")

    for key, reached in (("not bound", [0]), ("bound", [1])):
        channel.publish(key, "m", exchange=first, mandatory=True)
        assert channel.settle() == []
        assert _got(channel, [queue, other]) == reached


@pytest.mark.parametrize("alternate", ["itself", "each other", "missing", "without a match"])
def test_what_no_alternate_exchange_routes_is_returned_from_where_it_was_published(
    channel: Channel, exchange: Declare, name: str, alternate: str
) -> None:
    first, second = f"{name}-x0", f"{name}-x1"
    of_first = {"itself": first, "missing": f"{name}-none"}.get(alternate, second)
    exchange("direct", arguments={"alternate-exchange": of_first})
    to_first = {"alternate-exchange": first} if alternate == "each other" else {}
    exchange("topic", arguments=to_first)

    channel.publish("k", "m", exchange=first, mandatory=True)

    returned = channel.read()
    assert (returned.name, returned.exchange, returned.routing_key) == ("basic.return", first, "k")
    assert channel.settle() == []


def test_a_binding_made_later_takes_effect_at_once(channel: Channel, exchange: Declare) -> None:
    """One publish before and one after each change, on one channel and without a pause."""
    x, queues = exchange("direct"), _queues(channel, 2)
    reached = []
    for change in ("bind", "unbind", "bind"):
        fields = {"queue": queues[0], "exchange": x, "routing_key": "k"}
        channel.publish("k", "m", exchange=x)
        channel.ok(f"queue.{change}", **fields)
        channel.publish("k", "m", exchange=x)
        reached.append(channel.ok("queue.purge", queue=queues[0]).message_count)

    assert reached == [1, 1, 1]
