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


def test_the_cache_is_bounded(client: Client, routes: Routes) -> None:
    client.ask(1, m.QueueDeclare("q"))
    first = routes.find(raw("q"))
    for number in range(ROUTES_PER_CONNECTION - 1):
        routes.find(raw(f"k{number}"))
    assert routes.find(raw("q")) is first
    routes.find(raw("one more"))

    assert len(routes._cache) == 1
    assert names(routes, raw("q")) == ["q"]


def test_behind_a_headers_exchange_every_message_is_routed_by_itself(
    client: Client, routes: Routes
) -> None:
    client.ask(1, m.QueueDeclare("q"))
    client.ask(1, m.QueueBind("q", "amq.headers", "", arguments={"x": ("I", 1)}))
    found = routes.find(raw("k", "amq.headers"))

    assert found.needs_headers
    budget = 1_000
    again = routes.again(found, [b"k"], head(x=("I", 1)), budget)
    assert [entry.name for entry in again.queues] == ["q"]
    assert routes.again(found, [b"k"], head(x=("I", 2)), budget).queues == []
    assert routes.again(found, [b"k"], head(), budget).queues == []


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
