"""Publishes whose route is much work: cut into turns, whatever changes meanwhile; order and confirms stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leveret.actors.runtime import scheduler
from leveret.amqp import methods as m
from leveret.amqp.kernel import Run
from leveret.broker.channel.channel import Channel
from leveret.broker.channel.publishing.publish import Publisher
from leveret.broker.channel.routes import FIRST_ROUTE_WORK, Routes
from leveret.core.limits import (
    PUBLISH_TURN_WORK,
    ROUTE_BYTES_PER_CONNECTION,
)
from leveret.metadata.tables import PermissionRow
from leveret.routing.bindings import EXCHANGE, QUEUE
from leveret.routing.exchange import Exchange
from leveret.routing.topology import Topology
from leveret.routing.work import WALK_STEP_WORK
from rigs.broker_rig import Client, Rig

Route = tuple[str, str, dict[str, Any]]  # exchange, key and properties of a publish


class Turns:
    """Records the work of each call of a publisher.

    Attributes:
        spent: the work of each call.
        spent_at_first: the work of each call outside of bulk turns.
        between: is called after each of them.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spent: list[int] = []
        self.spent_at_first: list[int] = []
        self.between: Callable[[], object] = lambda: None
        publish = Publisher.publish

        def counted(publisher: Publisher, *run: Any) -> Any:
            before = publisher.work_left
            try:
                return publish(publisher, *run)
            finally:
                spent = before - publisher.work_left
                self.spent.append(spent)
                if not publisher._channel.is_bulk_turn:
                    self.spent_at_first.append(spent)
                self.between()

        monkeypatch.setattr(Publisher, "publish", counted)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    return Turns(monkeypatch)


@pytest.fixture
def client(rig: Rig) -> Client:
    client = rig.session(channels=2)
    client.ask(1, m.QueueDeclare("q"))
    client.ask(1, m.ConfirmSelect())
    return client


def topology(rig: Rig) -> Topology[Any]:
    return rig.node.vhosts["/"].topology


def patterns(rig: Rig) -> Route:
    """Patterns that keep many nodes live, and a message with a routing key and ten more."""
    for number in range(512):
        ways = [b"a.#" if bit == "0" else b"*.a.#" for bit in f"{number:09b}"]
        topology(rig).bind("amq.topic", QUEUE, "q", b"#." + b".".join(ways) + b".b", {})
    topology(rig).bind("amq.topic", QUEUE, "q", b"#.a", {})
    keys = ["a." * number + "a" for number in range(110, 121)]
    cc = ("A", [("S", key.encode()) for key in keys[1:]])
    return "amq.topic", keys[0], {"headers": {"CC": cc}}


def one_key(rig: Rig) -> Route:
    exchange, key, _ = patterns(rig)
    return exchange, key, {}


def rules(rig: Rig) -> Route:
    """Headers rules that all share a value with the message."""
    for number in range(10_000):
        own = dict.fromkeys("abcdef", ("I", 1)) | {"g": ("I", number % 3)}
        topology(rig).bind("amq.headers", QUEUE, "q", b"%d" % number, own | {"h": ("I", 1)})
    headers = dict.fromkeys("abcdef", ("I", 1)) | {"g": ("I", 7), "h": ("I", 1)}
    topology(rig).bind("amq.headers", QUEUE, "q", b"", {"h": ("I", 1)})
    for each in topology(rig).exchanges["amq.headers"].matcher._rules.values():  # type: ignore[attr-defined]
        each.target = object() if each.all_of and len(each.pairs) > 1 else each.target
    return "amq.headers", "", {"headers": headers}


def chain(rig: Rig) -> Route:
    """Exchanges in a row."""
    for number in range(8_000):
        topology(rig).add_exchange(Exchange(f"e{number}", "fanout"))
        if number:
            topology(rig).bind(f"e{number - 1}", EXCHANGE, f"e{number}", b"", {})
    topology(rig).bind("e7999", QUEUE, "q", b"", {})
    return "e0", "", {}


def keys(rig: Rig) -> Route:
    """A headers table full of keys, each bound to hundreds of exchanges."""
    for number in range(100):
        topology(rig).add_exchange(Exchange(f"e{number}", "direct"))
        topology(rig).bind("amq.fanout", EXCHANGE, f"e{number}", b"", {})
        topology(rig).bind(f"e{number}", QUEUE, "q", b"k9", {})
    cc = ("A", [("S", b"k%d" % number) for number in range(10_000)])
    return "amq.fanout", "", {"headers": {"CC": cc}}


ROUTES = [patterns, one_key, rules, chain, keys]


@pytest.mark.parametrize("make", ROUTES)
def test_a_long_route_is_found_in_turns_and_order_stays(
    rig: Rig, client: Client, turns: Turns, make: Callable[[Rig], Route]
) -> None:
    exchange, key, properties = make(rig)
    client.feed(client.contents(1, (exchange, key, b"long", properties), ("", "q", b"short", {})))

    assert len(turns.spent) > 2
    head_bytes = 131_072  # are examined in one piece
    assert max(turns.spent) < PUBLISH_TURN_WORK + FIRST_ROUTE_WORK + 5 * WALK_STEP_WORK + head_bytes
    assert sorted(turns.spent)[-2] < PUBLISH_TURN_WORK + FIRST_ROUTE_WORK + 5 * WALK_STEP_WORK
    acks = [each for each in client.take() if type(each) is m.BasicAck]
    assert acks[-1].delivery_tag == 2
    client.send(2, m.BasicConsume("q", "c", no_ack=True))
    assert client.bodies() == [b"long", b"short"]


@pytest.mark.parametrize("make", ROUTES)
def test_others_are_served_while_a_long_route_is_found(
    rig: Rig, client: Client, turns: Turns, make: Callable[[Rig], Route]
) -> None:
    exchange, key, properties = make(rig)
    other = rig.session()
    served_at: list[int] = []

    def look() -> None:
        writer = rig.node.connections.readers[other.reader].writer
        if (writer.unsent_bytes or other.wire.out) and not served_at:
            served_at.append(len(turns.spent))

    turns.between = look
    client.protocol.data_received(client.contents(1, (exchange, key, b"", properties)))
    other.protocol.data_received(m.method_frame(1, m.encode(m.BasicQos(0, 1, False))))
    rig.settle()

    assert other.take() == [m.BasicQosOk()]
    assert served_at
    assert served_at[0] < len(turns.spent)


@pytest.mark.parametrize("make", ROUTES)
def test_changes_of_the_topology_by_others_do_not_hold_a_publisher_up(
    rig: Rig, client: Client, turns: Turns, make: Callable[[Rig], Route]
) -> None:
    exchange, key, properties = make(rig)
    client.publish(1, key, b"first", exchange=exchange, **properties)
    quiet = len(turns.spent)
    topology(rig).touch()
    turns.between = topology(rig).touch
    client.publish(1, key, b"second", exchange=exchange, **properties)

    assert len(turns.spent) - quiet <= quiet + 1
    client.send(2, m.BasicConsume("q", "c", no_ack=True))
    assert client.bodies() == [b"first", b"second"]


def test_a_route_that_is_complete_is_cached_unless_something_changed(
    rig: Rig, client: Client, turns: Turns
) -> None:
    exchange, key, _ = chain(rig)
    client.publish(1, key, b"", exchange=exchange)
    turns.spent.clear()
    client.publish(1, key, b"", exchange=exchange)
    assert len(turns.spent) == 1

    topology(rig).touch()
    client.publish(1, key, b"", exchange=exchange)
    assert len(turns.spent) > 2
    once: list[None] = [None]
    turns.between = lambda: once and (once.pop(), topology(rig).touch())
    topology(rig).touch()
    client.publish(1, key, b"", exchange=exchange)
    turns.spent.clear()
    client.publish(1, key, b"", exchange=exchange)
    assert len(turns.spent) > 2


def test_a_queue_that_is_deleted_meanwhile_gets_nothing_and_the_message_is_confirmed(
    rig: Rig, client: Client, turns: Turns
) -> None:
    exchange, key, properties = patterns(rig)
    other = rig.session()
    client.protocol.data_received(client.contents(1, (exchange, key, b"", properties)))
    turns.between = lambda: (
        other.protocol.data_received(m.method_frame(1, m.encode(m.QueueDelete("q"))))
        if len(turns.spent) == 2
        else None
    )
    rig.settle()

    assert m.QueueDeleteOk(0) in other.take()
    assert [each for each in client.take() if type(each) is m.BasicAck][-1].delivery_tag == 1


def test_a_connection_that_ends_drops_its_unfinished_route(
    rig: Rig, client: Client, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange, key, properties = keys(rig)
    monkeypatch.setattr(scheduler, "DRAIN_MAILS", 5)  # as no time passes in a drain here
    client.protocol.data_received(client.contents(1, (exchange, key, b"", properties)))
    turns.between = lambda: client.protocol.connection_lost(None) if len(turns.spent) == 2 else None
    rig.settle()

    assert len(turns.spent) < 20
    assert rig.session().ask(1, m.QueueDeclare("q", passive=True)).message_count == 0
    assert rig.runtime.is_idle


def test_a_large_header_counts_by_its_bytes(rig: Rig, client: Client, turns: Turns) -> None:
    headers = {f"{number:x}": ("V", None) for number in range(10_000)} | {"CC": ("A", [])}
    client.publish(1, "q", *[b""] * 5, headers=headers)

    assert max(turns.spent) < PUBLISH_TURN_WORK + 100_000
    assert len(turns.spent) >= 5


def test_a_large_header_waits_for_a_bulk_turn(rig: Rig, client: Client, turns: Turns) -> None:
    """The sockets that have something are read one after the other, and others wait for all of these reads."""
    headers = {f"{number:x}": ("V", None) for number in range(10_000)} | {"CC": ("A", [])}
    client.publish(1, "q", b"small", headers={"k": ("I", 1)})
    client.publish(1, "q", b"large", headers=headers)

    assert max(turns.spent) > 50_000
    assert max(turns.spent_at_first) < 1_000
    client.send(2, m.BasicConsume("q", "c", no_ack=True))
    assert client.bodies() == [b"small", b"large"]


def test_a_method_with_large_arguments_waits_for_a_bulk_turn(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_bulk: list[bool] = []
    handle = Channel._method

    def noted(channel: Channel, run: Run) -> None:
        in_bulk.append(channel.is_bulk_turn)
        handle(channel, run)

    monkeypatch.setattr(Channel, "_method", noted)
    arguments = {f"{number:x}": ("V", None) for number in range(10_000)}
    client.send(1, m.BasicConsume("q", "small"), m.BasicConsume("q", "large", arguments=arguments))

    assert in_bulk == [False, True]
    assert client.take() == [m.BasicConsumeOk("small"), m.BasicConsumeOk("large")]


# The cache.


@pytest.fixture
def routes(rig: Rig) -> Routes:
    return Routes(rig.node.vhosts["/"], rig.node.access.users["guest"])


def raw(key: str, exchange: str) -> bytes:
    return m.encode(m.BasicPublish(exchange, key))


def test_routes_that_lead_to_the_same_queues_share_the_list(rig: Rig, routes: Routes) -> None:
    client = rig.session()
    for number in range(100):
        client.ask(1, m.QueueDeclare(f"q{number}"))
        client.ask(1, m.QueueBind(f"q{number}", "amq.fanout", ""))
    one, other = routes.find(raw("a", "amq.fanout")), routes.find(raw("b", "amq.fanout"))

    assert one is not other
    assert one.queues is other.queues
    assert len(one.queues) == 100


def test_the_cache_is_bounded_in_bytes(rig: Rig, routes: Routes) -> None:
    client = rig.session()
    names = [f"q{number}" for number in range(600)]
    for name in names:
        client.ask(1, m.QueueDeclare(name))
    for number in range(3_000):  # lists that differ in two queues
        for other in {number % 60, number // 60}:
            topology(rig).bind("amq.topic", QUEUE, names[540 + other], b"k%d.#" % number, {})
    for name in names[:540]:
        topology(rig).bind("amq.topic", QUEUE, name, b"#", {})
    sizes = []
    for number in range(3_000):
        found = routes.find(raw(f"k{number}.{'x' * 200}", "amq.topic"))
        assert len(found.queues) == 541 + (number % 60 != number // 60)
        sizes.append(routes.size_bytes)
        held = sum(8 * len(queues) for queues in routes._queue_lists) + 400 * len(routes._cache)
        assert held <= routes.size_bytes <= ROUTE_BYTES_PER_CONNECTION

    assert min(sizes[1_500:]) > 0.9 * ROUTE_BYTES_PER_CONNECTION
    assert len(routes._cache) == sum(shared.routes for shared in routes._queue_lists.values())
    rig.node.access.put(PermissionRow("guest", "/", ".*", ".*", ".*"))
    routes.find(raw("k1", "amq.topic"))
    assert routes.size_bytes < 10_000
