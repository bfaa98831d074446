"""Routes: when the cached way of a publish is used, and when it is dropped."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from leveret.amqp import methods as m
from leveret.amqp.errors import AccessRefused, NotFound, NotImplemented_, ProtocolError
from leveret.amqp.properties import Examined, Properties, examine, head_of
from leveret.amqp.tables import Field
from leveret.broker.channel.routes import WORK_S, Routes
from leveret.core.limits import ROUTES_PER_CONNECTION
from leveret.metadata.tables import PermissionRow, TopicPermissionRow
from rigs.broker_rig import Client, Rig


def raw(key: str, exchange: str = "", mandatory: bool = False, immediate: bool = False) -> bytes:
    return m.encode(m.BasicPublish(exchange, key, mandatory, immediate))


@pytest.fixture
def client(rig: Rig) -> Client:
    return rig.session()


@pytest.fixture
def routes(rig: Rig) -> Routes:
    return Routes(rig.node.vhosts["/"], rig.node.access.users["guest"])


def head(**headers: Field) -> Examined:
    return examine(head_of(Properties(headers=headers), 0))


def names(routes: Routes, method: bytes) -> list[str]:
    return [entry.name for entry in routes.find(method).queues]


def test_a_route_is_worked_out_once(client: Client, routes: Routes) -> None:
    client.ask(1, m.QueueDeclare("q"))
    found = routes.find(raw("q", mandatory=True))

    assert [entry.name for entry in found.queues] == ["q"]
    assert (found.mandatory, found.needs_headers, found.routing_key) == (True, False, b"q")
    assert found.origin == b"\0\1q"
    assert routes.find(raw("q", mandatory=True)) is found
    assert routes.find(raw("q")) is not found


def bind(client: Client) -> None:
    client.ask(1, m.QueueBind("b", "amq.direct", "k"))


def unbind(client: Client) -> None:
    client.ask(1, m.QueueUnbind("a", "amq.direct", "k"))


def delete(client: Client) -> None:
    client.ask(1, m.QueueDelete("a"))


def bind_exchange(client: Client) -> None:
    client.ask(1, m.QueueBind("b", "amq.fanout", ""))
    client.ask(1, m.ExchangeBind("amq.fanout", "amq.direct", "k"))


@pytest.mark.parametrize(
    ("change", "after"),
    [(bind, ["a", "b"]), (unbind, []), (delete, []), (bind_exchange, ["a", "b"])],
)
def test_a_change_of_the_topology_is_seen_by_the_next_publish(
    client: Client, routes: Routes, change: Callable[[Client], None], after: list[str]
) -> None:
    client.ask(1, m.QueueDeclare("a"))
    client.ask(1, m.QueueDeclare("b"))
    client.ask(1, m.QueueBind("a", "amq.direct", "k"))
    method = raw("k", "amq.direct")
    assert names(routes, method) == ["a"]
    change(client)

    assert sorted(names(routes, method)) == after


def test_a_change_of_permissions_is_seen_by_the_next_publish(rig: Rig, routes: Routes) -> None:
    method = raw("k", "amq.direct")
    routes.find(method)
    rig.node.access.put(PermissionRow("guest", "/", ".*", "^x", ".*"))

    with pytest.raises(
        AccessRefused, match=r"access to exchange 'amq[.]direct' in vhost '/' refused"
    ):
        routes.find(method)
    rig.node.access.put(PermissionRow("guest", "/", ".*", ".*", ".*"))
    assert routes.find(method).queues == []


def test_a_route_outlives_a_restart_of_its_queue(rig: Rig, client: Client, routes: Routes) -> None:
    client.ask(1, m.QueueDeclare("q"))
    found = routes.find(raw("q"))
    before = found.queues[0].ref
    assert before is not None
    rig.runtime.exit(before, "kill")
    rig.settle()

    assert routes.find(raw("q")) is found
    assert found.queues[0].ref is not before


def change_elsewhere(client: Client) -> None:
    client.ask(1, m.QueueDeclare("c"))
    client.ask(1, m.ExchangeDeclare("x", "fanout"))
    client.ask(1, m.ExchangeBind("amq.fanout", "x", ""))
    client.ask(1, m.QueueBind("c", "amq.fanout", ""))
    client.ask(1, m.QueueDelete("c"))
    client.ask(1, m.ExchangeDelete("x"))


def test_a_change_elsewhere_leaves_a_route_of_one_exchange_as_it_is(
    client: Client, routes: Routes
) -> None:
    client.ask(1, m.QueueDeclare("a"))
    client.ask(1, m.QueueBind("a", "amq.direct", "k"))
    found = routes.find(raw("k", "amq.direct"))
    change_elsewhere(client)

    assert routes.find(raw("k", "amq.direct")) is found


def test_a_route_over_two_exchanges_is_found_anew_after_each_change(
    client: Client, routes: Routes
) -> None:
    client.ask(1, m.QueueDeclare("a"))
    client.ask(1, m.ExchangeBind("amq.fanout", "amq.direct", "k"))
    method = raw("k", "amq.direct")
    assert names(routes, method) == []
    client.ask(1, m.QueueBind("a", "amq.fanout", ""))
    assert names(routes, method) == ["a"]
    client.ask(1, m.QueueUnbind("a", "amq.fanout", ""))

    assert names(routes, method) == []


def test_an_alternate_exchange_counts_once_nothing_matches(client: Client, routes: Routes) -> None:
    client.ask(1, m.QueueDeclare("a"))
    client.ask(1, m.QueueDeclare("b"))
    client.ask(1, m.ExchangeDeclare("x", arguments={"alternate-exchange": ("S", b"amq.fanout")}))
    client.ask(1, m.QueueBind("a", "x", "k"))
    client.ask(1, m.QueueBind("b", "amq.fanout", ""))
    assert names(routes, raw("k", "x")) == ["a"]
    client.ask(1, m.QueueDelete("a"))

    assert names(routes, raw("k", "x")) == ["b"]


@pytest.mark.parametrize("bindings", [1, 300])
def test_a_deleted_queue_is_on_no_route_however_many_bindings_it_had(
    client: Client, routes: Routes, bindings: int
) -> None:
    client.ask(1, m.QueueDeclare("a"))
    client.ask(1, m.QueueDeclare("b"))
    client.ask(1, m.QueueBind("b", "amq.topic", "k0"))
    for number in range(bindings):
        client.ask(1, m.QueueBind("a", "amq.topic", f"k{number}"))
    assert names(routes, raw("k0", "amq.topic")) == ["b", "a"]
    client.ask(1, m.QueueDelete("a"))

    assert names(routes, raw("k0", "amq.topic")) == ["b"]


def test_an_exchange_declared_anew_has_routes_of_its_own(client: Client, routes: Routes) -> None:
    client.ask(1, m.QueueDeclare("a"))
    client.ask(1, m.ExchangeDeclare("x", "fanout"))
    client.ask(1, m.QueueBind("a", "x", ""))
    assert names(routes, raw("k", "x")) == ["a"]
    client.ask(1, m.ExchangeDelete("x"))
    with pytest.raises(NotFound):
        routes.find(raw("k", "x"))
    client.ask(1, m.ExchangeDeclare("x", "fanout"))

    assert names(routes, raw("k", "x")) == []


def test_in_a_full_cache_the_oldest_route_makes_room(client: Client, routes: Routes) -> None:
    client.ask(1, m.QueueDeclare("q"))
    client.ask(1, m.QueueBind("q", "amq.topic", "#"))
    methods = [raw(f"k{number}", "amq.topic") for number in range(ROUTES_PER_CONNECTION)]
    found = [routes.find(method) for method in methods]
    assert all(routes.find(method) is before for method, before in zip(methods, found, strict=True))

    newest = routes.find(raw("one more", "amq.topic"))

    assert routes.find(raw("one more", "amq.topic")) is newest
    assert routes.find(methods[1]) is found[1]
    assert routes.find(methods[0]) is not found[0]
    assert len(routes._cache) == ROUTES_PER_CONNECTION


def test_exchanges_published_to_are_forgotten_when_they_are_many(
    rig: Rig, client: Client, routes: Routes
) -> None:
    client.ask(1, m.QueueDeclare("q"))
    for number in range(1_001):
        client.ask(1, m.ExchangeDeclare(f"x{number}", "fanout"))
        assert names(routes, raw("", f"x{number}")) == []

    assert len(routes._granted) == 1
    client.ask(1, m.QueueBind("q", "x0", ""))
    assert names(routes, raw("", "x0")) == ["q"]


def test_exchanges_that_are_not_there_take_no_room(routes: Routes) -> None:
    for number in range(3):
        with pytest.raises(NotFound):
            routes.find(raw("k", f"none{number}"))

    assert routes.size_bytes == 0


def test_routes_of_the_default_exchange_are_kept_by_their_queues(
    rig: Rig, client: Client, routes: Routes
) -> None:
    client.ask(1, m.QueueDeclare("q"))
    found = routes.find(raw("q"))
    size_bytes = routes.size_bytes
    other = Routes(rig.node.vhosts["/"], rig.node.access.users["guest"])
    for number in range(100):
        client.ask(1, m.QueueDeclare(f"q{number}"))
        assert names(routes, raw(f"q{number}")) == [f"q{number}"]

    assert routes.find(raw("q")) is found
    assert other.find(raw("q")) is routes.find(raw("q"))
    assert routes.size_bytes == size_bytes
    client.ask(1, m.QueueDelete("q"))
    assert names(routes, raw("q")) == []
    client.ask(1, m.QueueDeclare("q"))
    assert routes.find(raw("q")) is not found
    assert names(routes, raw("q")) == ["q"]
    assert names(routes, raw("q", mandatory=True)) == ["q"]


def test_a_kept_route_of_the_default_exchange_is_refused_to_who_may_not_publish(
    rig: Rig, client: Client, routes: Routes
) -> None:
    client.ask(1, m.QueueDeclare("q"))
    routes.find(raw("q"))
    rig.node.access.put(PermissionRow("guest", "/", ".*", "^x", ".*"))

    for _ in range(2):
        with pytest.raises(AccessRefused, match=r"access to exchange 'amq[.]default'"):
            routes.find(raw("q"))


def test_behind_a_headers_exchange_every_message_is_routed_by_itself(
    client: Client, routes: Routes
) -> None:
    client.ask(1, m.QueueDeclare("q"))
    client.ask(1, m.QueueBind("q", "amq.headers", "", arguments={"x": ("I", 1)}))
    found = routes.find(raw("k", "amq.headers"))

    assert found.needs_headers
    budget = 1_000
    again = routes.by_properties(found, [b"k"], head(x=("I", 1)), budget)
    assert [entry.name for entry in again.queues] == ["q"]
    assert routes.by_properties(found, [b"k"], head(x=("I", 2)), budget).queues == []
    assert routes.by_properties(found, [b"k"], head(), budget).queues == []


@pytest.mark.parametrize(
    ("method", "error", "text"),
    [
        (raw("k", immediate=True), NotImplemented_, "immediate=true"),
        (raw("k", "none"), NotFound, "no exchange 'none' in vhost '/'"),
        (raw("k", "in"), AccessRefused, "cannot publish to internal exchange 'in' in vhost '/'"),
    ],
)
def test_what_cannot_be_is_refused_each_time(
    client: Client, routes: Routes, method: bytes, error: type[ProtocolError], text: str
) -> None:
    client.ask(1, m.ExchangeDeclare("in", "direct", internal=True))
    for _ in range(2):
        with pytest.raises(error) as refused:
            routes.find(method)
        assert text in str(refused.value)


def test_topic_permissions_are_part_of_a_route(rig: Rig, routes: Routes) -> None:
    rig.node.access.put(TopicPermissionRow("guest", "/", "amq.topic", "^ok", ".*"))

    assert routes.find(raw("ok.1", "amq.topic")).queues == []
    with pytest.raises(AccessRefused, match=r"access to topic 'no\.1' in exchange"):
        routes.find(raw("no.1", "amq.topic"))


def test_the_search_of_a_topic_permission_is_work_of_the_turn(
    rig: Rig, routes: Routes, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = routes.find(raw("k", "amq.topic")).work
    monkeypatch.setattr(rig.node.access, "_now_s", count(0, 0.001).__next__)

    assert routes.find(raw("l", "amq.topic")).work < free + 5  # no topic permission: no search
    rig.node.access.put(TopicPermissionRow("guest", "/", "amq.topic", ".*", ".*"))
    assert routes.find(raw("l", "amq.topic")).work == pytest.approx(0.001 / WORK_S, abs=50)
