"""Dead letters: where they go, and the bytes of their headers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from conformance.conftest import Connect
from conformance.raw import Channel, Event, arrived, error_of, soft
from conformance.wire import Typed, head
from rigs.nodes import BrokerUnderTest
from rigs.waiting import wait_until

Declare = Callable[..., str]
TIME = Typed("T", 0)


@pytest.fixture
def declare(name: str, channel: Channel, litter: Callable[..., None]) -> Declare:
    """Declare queues with arguments: ``declare("a", dead_letter_exchange="", max_length=3)``."""

    def make(short: str, **arguments: Any) -> str:
        queue = f"{name}-{short}"
        table = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        channel.ok("queue.declare", queue=queue, arguments=table)
        litter(queue)
        return queue

    return make


@pytest.fixture
def pair(declare: Declare) -> tuple[str, str]:
    """A queue that dead-letters to a second one, with the second's name as the key."""
    grave = declare("grave")
    return declare("q", dead_letter_exchange="", dead_letter_routing_key=grave), grave


def reject(channel: Channel, queue: str, count: int = 1) -> None:
    for _ in range(count):
        tag = channel.get(queue, no_ack=False).delivery_tag
        channel.send("basic.reject", delivery_tag=tag, requeue=False)


def timeless(header: bytes) -> bytes:
    """Return a header with the times of its deaths, which are near now, set to 0."""
    at = -1
    while (at := header.find(b"\x04timeT", at + 1)) != -1:
        stamp = int.from_bytes(header[at + 6 : at + 14], "big")
        assert abs(stamp - time.time()) < 60
        header = header[: at + 6] + bytes(8) + header[at + 14 :]
    return header


def death(queue: str, reason: str, exchange: str, *keys: str, **more: Any) -> dict[str, Any]:
    """Return the table of a first death, in its order."""
    return {
        "count": Typed("l", more.pop("count", 1)),
        "reason": reason,
        "queue": queue,
        "time": TIME,
        "exchange": exchange,
        "routing-keys": list(keys),
        **{key.replace("_", "-"): value for key, value in more.items()},
    }


def by_name(table: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(table.items()))


def first_death(queue: str, reason: str, exchange: str) -> dict[str, str]:
    return {
        "x-first-death-exchange": exchange,
        "x-first-death-queue": queue,
        "x-first-death-reason": reason,
    }


def test_a_rejected_message_goes_with_its_properties_and_body(
    channel: Channel, pair: tuple[str, str]
) -> None:
    queue, grave = pair
    properties = {"content_type": "t/x", "delivery_mode": 2, "priority": 3, "message_id": "m"}
    channel.publish(queue, "body", **properties)

    reject(channel, queue)

    letter = arrived(channel, grave)
    assert (letter.exchange, letter.routing_key, letter.body) == ("", grave, b"body")
    assert not letter.redelivered
    headers = {
        "x-death": [death(queue, "rejected", "", queue)],
        **first_death(queue, "rejected", ""),
    }
    assert timeless(letter.head) == head(4, properties | {"headers": headers})


def test_an_expired_one_keeps_its_key_and_loses_its_expiration(
    channel: Channel, declare: Declare, exchange: Callable[..., str]
) -> None:
    dlx = exchange("topic")
    queue, grave = declare("q", dead_letter_exchange=dlx), declare("grave")
    for key in (queue, f"{queue}-copy"):
        channel.ok("queue.bind", queue=grave, exchange=dlx, routing_key=key)
    headers = {"zz": Typed("L", 5), "CC": [f"{queue}-copy"], "aa": {"zz": 1, "aa": 2}}

    channel.publish(queue, "x", expiration="1", headers=headers)

    letter = arrived(channel, grave)
    assert (letter.exchange, letter.routing_key) == (dlx, queue)
    expected = {
        "CC": [f"{queue}-copy"],
        "aa": {"zz": 1, "aa": 2},
        "x-death": [death(queue, "expired", "", queue, f"{queue}-copy", original_expiration="1")],
        **first_death(queue, "expired", ""),
        "zz": Typed("l", 5),
    }
    assert timeless(letter.head) == head(1, {"headers": expected})
    assert channel.get(grave).name == "basic.get-empty"


def test_copies_are_routed_by_all_keys(channel: Channel, declare: Declare) -> None:
    other = declare("other")
    queue = declare("q", dead_letter_exchange="", message_ttl=0)

    channel.publish(queue, "x", headers={"CC": [other, f"{queue}-nowhere"]})

    assert arrived(channel, other).body == b"x"  # as published
    letter = arrived(channel, other)
    assert letter.properties["headers"]["x-death"][0]["reason"] == "expired"


def test_blind_copies_are_routed_again_at_each_death(channel: Channel, declare: Declare) -> None:
    blind = [declare("blind"), declare("also")]
    queue = declare("q", dead_letter_exchange="")

    channel.publish(queue, "x", headers={"BCC": blind, "CC": ["nowhere"]})

    for each in blind:
        assert arrived(channel, each).properties["headers"] == {"CC": ["nowhere"]}
    for count in (1, 2):
        reject(channel, queue)
        for each in blind:
            headers = arrived(channel, each).properties["headers"]
            assert "BCC" not in headers
            (table,) = headers["x-death"]
            assert table["count"] == count
            assert table["routing-keys"] == [queue, "nowhere"]


def test_an_own_key_takes_the_place_of_all_keys(channel: Channel, pair: tuple[str, str]) -> None:
    queue, grave = pair
    channel.publish(queue, "x", headers={"CC": ["elsewhere"], "BCC": ["nowhere"], "h": 1})

    reject(channel, queue)

    letter = arrived(channel, grave)
    headers = {
        "h": 1,
        "x-death": [death(queue, "rejected", "", queue, "elsewhere")],
        **first_death(queue, "rejected", ""),
    }
    assert timeless(letter.head) == head(1, {"headers": headers})


def test_drop_head_dead_letters_the_oldest(channel: Channel, declare: Declare) -> None:
    grave = declare("grave")
    queue = declare("q", max_length=2, dead_letter_exchange="", dead_letter_routing_key=grave)

    for body in "01234":
        channel.publish(queue, body)

    letters = [arrived(channel, grave) for _ in range(3)]
    assert [letter.body for letter in letters] == [b"0", b"1", b"2"]
    deaths = letters[0].properties["headers"]["x-death"]
    assert [each["reason"] for each in deaths] == ["maxlen"]
    assert channel.ready(queue) == 2


@pytest.mark.parametrize("confirms", [True, False])
def test_reject_publish_dlx_refuses_and_dead_letters(
    channel: Channel, declare: Declare, confirms: bool
) -> None:
    grave = declare("grave")
    queue = declare(
        "q",
        max_length=1,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key=grave,
    )
    if confirms:
        channel.ok("confirm.select")

    channel.publish(queue, "0")
    if confirms:
        assert channel.read().name == "basic.ack"
    channel.publish(queue, "1")
    if confirms:
        assert channel.read().name == "basic.nack"

    letter = arrived(channel, grave)
    assert letter.body == b"1"
    assert letter.properties["headers"]["x-death"][0]["reason"] == "maxlen"
    assert channel.settle(queue, grave) == []
    assert channel.ready(queue) == 1


def test_deaths_are_counted_and_ordered_in_a_ping_pong(channel: Channel, declare: Declare) -> None:
    names = [declare(short) for short in "cd"]
    queue = declare("q", dead_letter_exchange="", dead_letter_routing_key=names[0])
    back = declare("back", dead_letter_exchange="", dead_letter_routing_key=queue)
    channel.publish(queue, "x", headers={"first": 1})

    def pass_on(message: Event) -> None:
        channel.publish(back, message.body, head=message.head)
        reject(channel, back)

    reject(channel, queue)
    pass_on(arrived(channel, names[0]))
    wait_until(lambda: channel.ready(queue) == 1)
    reject(channel, queue)
    letter = arrived(channel, names[0])

    headers = {
        "first": 1,
        "x-death": [
            by_name(death(queue, "rejected", "", queue, count=2)),
            by_name(death(back, "rejected", "", back)),
        ],
        **first_death(queue, "rejected", ""),
    }
    assert timeless(letter.head) == head(1, {"headers": headers})


def test_three_queues_in_a_row_twice(channel: Channel, declare: Declare) -> None:
    a, b, c = (f"{declare('z')}"[:-1] + short for short in "abc")
    for queue, following in ((a, b), (b, c), (c, a)):
        declare(queue[-1], dead_letter_exchange="", dead_letter_routing_key=following)
    channel.publish(a, "x")

    seen = []
    for number in range(8):
        queue = (a, b, c)[number % 3]
        wait_until(lambda queue=queue: channel.ready(queue) == 1)  # type: ignore[misc]
        message = channel.get(queue, no_ack=False)
        deaths = message.properties.get("headers", {}).get("x-death", [])
        seen.append([(each["queue"][-1], each["count"]) for each in deaths])
        channel.send("basic.reject", delivery_tag=message.delivery_tag, requeue=False)

    # RabbitMQ reverses the order of all but the first each time.
    assert [each[:1] for each in seen] == [
        [],
        [("a", 1)],
        [("b", 1)],
        [("c", 1)],
        [("a", 2)],
        [("b", 2)],
        [("c", 2)],
        [("a", 3)],
    ]
    assert [dict(each) for each in seen][3:6] == [
        {"a": 1, "b": 1, "c": 1},
        {"a": 2, "b": 1, "c": 1},
        {"a": 2, "b": 2, "c": 1},
    ]


def test_the_first_death_is_told_once(channel: Channel, declare: Declare) -> None:
    c = declare("c")
    b = declare("b", dead_letter_exchange="", dead_letter_routing_key=c, message_ttl=1)
    a = declare("a", dead_letter_exchange="", dead_letter_routing_key=b)
    channel.publish(a, "x")

    reject(channel, a)

    headers = arrived(channel, c).properties["headers"]
    assert headers["x-first-death-queue"] == a
    assert headers["x-first-death-reason"] == "rejected"
    assert [each["queue"] for each in headers["x-death"]] == [b, a]


@pytest.mark.parametrize("count", [1, 2])
def test_a_cycle_of_expiry_ends(channel: Channel, declare: Declare, name: str, count: int) -> None:
    queues = [f"{name}-{number}" for number in range(count)]
    for number, following in enumerate([*queues[1:], queues[0]]):
        declare(
            str(number), message_ttl=1, dead_letter_exchange="", dead_letter_routing_key=following
        )

    channel.publish(queues[0], "x")

    # Between two queues it is in neither, but not at so many looks.
    wait_until(lambda: not any(channel.ready(queue) for _ in range(50) for queue in queues))


def test_a_cycle_of_length_limits_ends(channel: Channel, declare: Declare, name: str) -> None:
    a, b = f"{name}-a", f"{name}-b"
    declare("a", max_length=1, dead_letter_exchange="", dead_letter_routing_key=b)
    declare("b", max_length=1, dead_letter_exchange="", dead_letter_routing_key=a)

    for body in "012345":
        channel.publish(a, body)

    wait_until(lambda: [channel.ready(queue) for queue in (a, b)] == [1, 1])
    assert arrived(channel, a).body == b"5"
    assert arrived(channel, b).body == b"4"


def test_a_message_may_be_rejected_into_its_own_queue(
    channel: Channel, declare: Declare, name: str
) -> None:
    queue = declare("q", dead_letter_exchange="", dead_letter_routing_key=f"{name}-q")
    channel.publish(queue, "x")

    for _ in range(3):
        reject(channel, queue)
        wait_until(lambda: channel.ready(queue) == 1)

    message = channel.get(queue)
    assert not message.redelivered
    assert message.properties["headers"]["x-death"][0]["count"] == 3


def test_a_rejection_in_a_cycle_of_expiry_lets_it_go_on(channel: Channel, declare: Declare) -> None:
    grave = declare("grave", dead_letter_exchange="", dead_letter_routing_key="")
    queue = declare("q", message_ttl=1, dead_letter_exchange="", dead_letter_routing_key=grave)
    back = declare("back", dead_letter_exchange="", dead_letter_routing_key=queue)
    channel.publish(queue, "x")

    letter = arrived(channel, grave)
    channel.publish(back, letter.body, head=letter.head)
    reject(channel, back)

    headers = arrived(channel, grave).properties["headers"]
    assert [(each["queue"], each["count"]) for each in headers["x-death"]] == [
        (queue, 2),
        (back, 1),
    ]


def test_without_its_exchange_a_message_is_dropped(channel: Channel, declare: Declare) -> None:
    queue = declare("q", dead_letter_exchange="not-there-at-all", max_length=1)
    channel.ok("confirm.select")
    for body in "012":
        channel.publish(queue, body)
    channel.read_confirms({1, 2, 3})

    reject(channel, queue)

    assert channel.settle(queue) == []
    assert channel.ready(queue) == 0


def test_an_exchange_may_be_declared_later(
    channel: Channel, declare: Declare, name: str, litter: Callable[..., None]
) -> None:
    queue, grave = declare("q", dead_letter_exchange=f"{name}-x"), declare("grave")
    channel.publish(queue, "0")
    reject(channel, queue)
    assert channel.ready(queue) == 0
    channel.ok("exchange.declare", exchange=f"{name}-x", type="fanout", internal=True)
    litter(exchange=f"{name}-x")
    channel.ok("queue.bind", queue=grave, exchange=f"{name}-x")

    channel.publish(queue, "1")
    reject(channel, queue)

    assert arrived(channel, grave).body == b"1"


def test_an_x_death_of_another_type_is_replaced(channel: Channel, pair: tuple[str, str]) -> None:
    queue, grave = pair
    channel.publish(queue, "x", headers={"x-death": "text", "b": 1})

    reject(channel, queue)

    headers = {"b": 1, "x-death": [death(queue, "rejected", "", queue)]}
    assert timeless(arrived(channel, grave).head) == head(1, {"headers": headers})


def test_the_tables_of_a_client_are_kept_and_counted(
    channel: Channel, pair: tuple[str, str]
) -> None:
    queue, grave = pair
    own = {"queue": queue, "reason": "rejected", "extra": True}
    other = {"queue": "other", "reason": "r"}
    channel.publish(queue, "x", headers={"x-death": [other, own, other]})

    reject(channel, queue)

    counted = {"count": Typed("l", 2), "extra": True, "queue": queue, "reason": "rejected"}
    headers = {"x-death": [counted, {"count": Typed("l", 2), **other}]}
    assert timeless(arrived(channel, grave).head) == head(1, {"headers": headers})


def test_a_death_without_count_counts_from_1(channel: Channel, pair: tuple[str, str]) -> None:
    queue, grave = pair
    own = {"reason": "rejected", "queue": queue}
    channel.publish(queue, "x", headers={"x-death": [own]})

    reject(channel, queue)

    expected = {"count": Typed("l", 1), "queue": queue, "reason": "rejected"}
    assert timeless(arrived(channel, grave).head) == head(1, {"headers": {"x-death": [expected]}})


def test_an_empty_x_death_is_one_already(channel: Channel, pair: tuple[str, str]) -> None:
    queue, grave = pair
    channel.publish(queue, "x", headers={"x-death": []})

    reject(channel, queue)

    headers = {"x-death": [by_name(death(queue, "rejected", "", queue))]}
    assert timeless(arrived(channel, grave).head) == head(1, {"headers": headers})


def test_a_client_may_tell_of_first_deaths(channel: Channel, pair: tuple[str, str]) -> None:
    queue, grave = pair
    channel.publish(queue, "x", headers={"x-first-death-queue": 7, "x-first-death-time": 1})

    reject(channel, queue)

    headers = {
        "x-death": [death(queue, "rejected", "", queue)],
        **first_death(queue, "rejected", ""),
        "x-first-death-time": 1,
    }
    assert timeless(arrived(channel, grave).head) == head(1, {"headers": headers})


def test_nack_multiple_dead_letters_in_order(channel: Channel, pair: tuple[str, str]) -> None:
    queue, grave = pair
    for body in "0123456789":
        channel.publish(queue, body)
    tags = [channel.get(queue, no_ack=False).delivery_tag for _ in range(10)]

    channel.send("basic.nack", delivery_tag=tags[6], multiple=True, requeue=False)

    assert [arrived(channel, grave).body for _ in range(7)] == [b"%d" % n for n in range(7)]
    assert channel.ready(grave) == 0


def test_headers_exchanges_see_the_new_headers(
    channel: Channel, declare: Declare, exchange: Callable[..., str]
) -> None:
    dlx, grave, other = exchange("headers"), declare("grave"), declare("other")
    queue = declare("q", dead_letter_exchange=dlx)
    for each, reason in ((grave, "rejected"), (other, "expired")):
        arguments = {"x-match": "all-with-x", "x-first-death-reason": reason}
        channel.ok("queue.bind", queue=each, exchange=dlx, arguments=arguments)
    channel.publish(queue, "x")

    reject(channel, queue)

    assert arrived(channel, grave).body == b"x"
    assert channel.ready(other) == 0


def test_dead_letters_take_alternate_exchanges_and_bindings_of_exchanges(
    channel: Channel, declare: Declare, exchange: Callable[..., str]
) -> None:
    fanout = exchange("fanout")
    dlx = exchange("direct", arguments={"alternate-exchange": fanout})
    queue, grave = declare("q", dead_letter_exchange=dlx), declare("grave")
    channel.ok("queue.bind", queue=grave, exchange=fanout)
    channel.publish(queue, "x")

    reject(channel, queue)

    letter = arrived(channel, grave)
    assert (letter.exchange, letter.routing_key) == (dlx, queue)


def test_purge_and_delete_dead_letter_nothing(
    channel: Channel, pair: tuple[str, str], declare: Declare
) -> None:
    queue, grave = pair
    for body in "01":
        channel.publish(queue, body)
    assert channel.ok("queue.purge", queue=queue).message_count == 2
    channel.publish(queue, "2")
    channel.ok("queue.delete", queue=queue)

    assert channel.settle(grave) == []
    assert channel.ready(grave) == 0


def test_a_ttl_of_0_dead_letters_what_no_consumer_takes(channel: Channel, declare: Declare) -> None:
    grave = declare("grave")
    queue = declare("q", message_ttl=0, dead_letter_exchange="", dead_letter_routing_key=grave)

    channel.publish(queue, "nobody")
    assert arrived(channel, grave).body == b"nobody"

    channel.ok("basic.consume", queue=queue, consumer_tag="c")
    channel.publish(queue, "somebody")
    assert channel.bodies(1) == [b"somebody"]


def test_a_policy_names_exchange_and_key(
    broker: BrokerUnderTest, channel: Channel, declare: Declare, name: str
) -> None:
    grave, queue = declare("grave"), declare("q")
    definition = f'{{"dead-letter-exchange": "", "dead-letter-routing-key": "{grave}"}}'
    broker.control("set_policy", f"{name}-p", f"^{queue}$", definition)

    def is_dead_lettered() -> bool:
        channel.publish(queue, "x")
        reject(channel, queue)
        return channel.get(grave).name == "basic.get-ok"

    wait_until(is_dead_lettered)
    broker.control("clear_policy", f"{name}-p")

    def is_dropped() -> bool:
        while channel.get(grave).name == "basic.get-ok":
            pass
        channel.publish(queue, "x")
        reject(channel, queue)
        channel.settle(queue, grave)
        return channel.get(grave).name == "basic.get-empty"

    wait_until(is_dropped)


def test_an_argument_is_stronger_than_a_policy(
    broker: BrokerUnderTest, channel: Channel, declare: Declare, name: str
) -> None:
    grave, other = declare("grave"), declare("other")
    definition = f'{{"dead-letter-exchange": "amq.fanout", "dead-letter-routing-key": "{other}"}}'
    broker.control("set_policy", f"{name}-p", f"^{name}-q", definition)
    queue = declare("q", dead_letter_exchange="", dead_letter_routing_key=grave)
    half = declare("q-half", dead_letter_exchange="")
    for each in (queue, half):
        channel.publish(each, "x")
        reject(channel, each)

    assert arrived(channel, grave).routing_key == grave
    assert arrived(channel, other).routing_key == other
    broker.control("clear_policy", f"{name}-p")


def test_messages_of_a_queue_whose_consumer_rejects_flow_through(
    connect: Connect, channel: Channel, pair: tuple[str, str]
) -> None:
    queue, grave = pair
    consumer = connect().channel()
    consumer.ok("basic.qos", prefetch_count=10)
    consumer.ok("basic.consume", queue=queue, consumer_tag="c")
    channel.ok("confirm.select")
    for number in range(200):
        channel.publish(queue, b"%d" % number, delivery_mode=1 + number % 2)
    channel.read_confirms(set(range(1, 201)))

    for _ in range(200):
        tag = consumer.read().delivery_tag
        consumer.send("basic.reject", delivery_tag=tag, requeue=False)

    assert [arrived(channel, grave).body for _ in range(200)] == [b"%d" % n for n in range(200)]


def test_to_declare_it_takes_read_on_the_queue_and_write_on_the_exchange(
    broker: BrokerUnderTest, connect: Connect, name: str, litter: Callable[..., None]
) -> None:
    user = f"{name}-user"
    broker.control("add_user", user, "secret")
    try:
        broker.control("set_permissions", user, f"^{name}", f"^{name}-w", f"^{name}-r")

        def declare(queue: str, exchange: str) -> tuple[str, int, str, str] | None:
            channel = connect(user=user, password="secret").channel()
            arguments = {"x-dead-letter-exchange": exchange}
            reply = channel.call("queue.declare", queue=f"{name}-{queue}", arguments=arguments)
            return None if reply.name == "queue.declare-ok" else error_of(reply)

        def refused(what: str) -> tuple[str, int, str, str]:
            text = f"ACCESS_REFUSED - access to {what} in vhost '/' refused for user '{user}'"
            return soft(403, text, "queue.declare")

        assert declare("c", f"{name}-w") == refused(f"queue '{name}-c'")
        assert declare("r", f"{name}-c") == refused(f"exchange '{name}-c'")
        assert declare("r", "") == refused("exchange 'amq.default'")
        assert declare("r", f"{name}-w") is None
        litter(f"{name}-r")
    finally:
        broker.control("delete_user", user)
