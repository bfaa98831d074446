"""Turns of channels: much work is cut, nothing is lost or overtaken, and others get theirs between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from leveret.actors.runtime import scheduler
from leveret.actors.runtime.ref import MailHandler, Ref
from leveret.actors.runtime.scheduler import DRAIN_S
from leveret.actors.runtime.signals import SHUTDOWN
from leveret.amqp import methods as m
from leveret.amqp.kernel import Run
from leveret.amqp.tables import Table
from leveret.broker.channel import channel, records
from leveret.broker.channel.consuming import deliveries, unacked
from leveret.broker.channel.routes import WORK_S
from leveret.broker.mail import PEER_ENDED, Resume
from leveret.queue_backing.proxy import BackingProxy
from leveret.testing.virtual_clock import VirtualClock
from rigs.broker_rig import Client, Rig


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "PUBLISH_TURN_WORK", 5)
    monkeypatch.setattr(channel, "_FIRST_TURN_WORK", 5)


def drains(rig: Rig) -> int:
    count: int = rig.runtime.drains
    return count


def bound(client: Client, exchange: str, *names: str) -> None:
    for name in names:
        client.ask(1, m.QueueDeclare(name))
        client.ask(1, m.QueueBind(name, exchange, ""))


def ready(client: Client, queue: str) -> int:
    count: int = client.ask(2, m.QueueDeclare(queue, passive=True)).message_count
    return count


@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize(
    ("exchange", "properties"),
    [("amq.fanout", {}), ("amq.headers", {}), ("amq.fanout", {"headers": {"a": ("t", True)}})],
)
def test_a_wide_fan_out_is_cut_into_turns_and_nothing_is_lost_or_overtaken(
    rig: Rig, exchange: str, properties: dict[str, object]
) -> None:
    client = rig.session(channels=2)
    client.ask(1, m.ConfirmSelect())
    bound(client, exchange, "q", "r", "s")
    bodies = [b"%d" % number for number in range(20)]
    before = drains(rig)
    runs = [(exchange, "", body, properties) for body in bodies] + [("", "q", b"last", {})]
    client.feed(client.contents(1, *runs))

    acks = [each for each in client.take() if isinstance(each, m.BasicAck)]
    assert {each.delivery_tag for each in acks} >= {20, 21}
    assert client.wire.is_reading
    client.send(2, m.BasicConsume("q", "c", no_ack=True))
    assert client.bodies() == [*bodies, b"last"]
    assert ready(client, "s") == 20
    assert drains(rig) > before


@pytest.mark.usefixtures("short_turns")
def test_methods_between_publishes_keep_their_place(rig: Rig) -> None:
    client = rig.session(channels=1)
    bound(client, "amq.fanout", "q", "r", "s")
    pieces = []
    for number in range(10):
        pieces.append(client.contents(1, *[("amq.fanout", f"{number}", b"", {})] * 3))
        pieces.append(m.method_frame(1, m.encode(m.QueueDeclare("r", passive=True))))
        pieces.append(m.method_frame(1, m.encode(m.BasicQos(0, number, False))))
    client.feed(b"".join(pieces))

    answers = client.take()
    declared = [each for each in answers if type(each) is m.QueueDeclareOk]
    assert [each.message_count for each in declared] == list(range(3, 31, 3))
    assert [type(each) for each in answers] == [m.QueueDeclareOk, m.BasicQosOk] * 10
    assert client.wire.is_reading


@pytest.mark.usefixtures("short_turns")
def test_an_error_behind_a_cut_run_comes_behind_all_of_it(rig: Rig) -> None:
    client = rig.session(channels=2)
    bound(client, "amq.fanout", "q", "r", "s")
    fine, wrong = ("amq.fanout", "", b"", {}), ("nowhere", "", b"", {})
    client.feed(client.contents(1, *[fine] * 9, wrong, fine))

    (closed,) = client.take()
    assert closed.reply_code == 404
    assert ready(client, "s") == 9


@pytest.mark.usefixtures("short_turns")
def test_a_connection_that_is_lost_drops_what_it_had_not_published(rig: Rig) -> None:
    client, other = rig.session(), rig.session(channels=2)
    bound(client, "amq.fanout", "q", "r", "s")
    client.protocol.data_received(client.contents(1, *[("amq.fanout", "", b"", {})] * 50))
    assert not client.wire.is_reading
    client.hang_up()

    assert ready(other, "q") < 50
    assert rig.runtime.is_idle


def test_a_message_for_a_thousand_queues_waits_for_its_turn(rig: Rig) -> None:
    """Sockets with bytes are read one after the other, so nothing long is done meanwhile."""
    client = rig.session(channels=2)
    names = [f"q{number}" for number in range(1_200)]
    bound(client, "amq.fanout", *names)
    client.protocol.data_received(client.contents(1, *[("amq.fanout", "", b"", {})] * 2))
    assert not client.wire.is_reading
    rig.settle()

    assert client.wire.is_reading
    assert {ready(client, name) for name in names} == {2}


def test_a_read_for_a_thousand_channels_is_handed_over_in_turns(rig: Rig) -> None:
    client = rig.session(channels=1_000)
    client.ask(1, m.QueueDeclare("q"))
    frames = [client.contents(n % 1_000 + 1, ("", "q", b"%d" % n, {})) for n in range(2_500)]
    close = m.method_frame(1_000, m.encode(m.ChannelClose(200, "", 0, 0)))
    opened = m.method_frame(1_001, m.encode(m.ChannelOpen()))
    unfinished = client.contents(1_001, ("", "q", b"last", {}))
    client.protocol.data_received(b"".join([*frames, close, opened, unfinished[:-9]]))
    assert not client.wire.is_reading
    rig.settle()

    assert client.wire.is_reading
    assert [type(each) for each in client.take()] == [m.ChannelCloseOk, m.ChannelOpenOk]
    client.feed(unfinished[-9:])
    client.send(1_001, m.BasicConsume("q", "c", no_ack=True))
    assert client.bodies() == [*(b"%d" % n for n in range(2_500)), b"last"]


def test_an_error_among_runs_for_many_channels_comes_in_its_place(rig: Rig) -> None:
    client, other = rig.session(channels=500), rig.session()
    client.ask(1, m.QueueDeclare("q"))
    frames = [client.contents(n % 500 + 1, ("", "q", b"", {})) for n in range(2_000)]
    wrong = client.contents(501, ("", "q", b"", {}))
    client.protocol.data_received(b"".join([*frames[:1_000], wrong, *frames[1_000:]]))
    rig.settle()

    (closed,) = client.take()
    assert closed.reply_code == 504
    assert other.ask(1, m.QueueDeclare("q", passive=True)).message_count == 1_000


def test_a_connection_that_is_lost_while_runs_are_left_is_gone(rig: Rig) -> None:
    client = rig.session(channels=500)
    client.ask(1, m.QueueDeclare("q", exclusive=True))
    frames = [client.contents(n % 500 + 1, ("", "q", b"", {})) for n in range(2_000)]
    client.protocol.data_received(b"".join(frames))
    client.hang_up()

    assert not client.reader.is_alive
    assert rig.queues == {}


def test_finding_a_long_way_through_exchanges_counts_as_work(rig: Rig) -> None:
    client = rig.session(channels=2)
    count = 200
    for number in range(count):
        client.ask(1, m.ExchangeDeclare(f"x{number}", "fanout"))
    for number in range(count):
        client.ask(1, m.ExchangeBind(f"x{(number + 1) % count}", f"x{number}", ""))
    bound(client, f"x{count - 1}", "q")
    client.protocol.data_received(client.contents(1, *[("x0", f"{n}", b"", {}) for n in range(50)]))
    assert not client.wire.is_reading
    rig.settle()

    assert client.wire.is_reading
    assert ready(client, "q") == 50


def test_what_is_published_again_goes_a_known_way(rig: Rig) -> None:
    client = rig.session(channels=2)
    bound(client, "amq.fanout", *[f"q{number}" for number in range(500)])
    one = client.contents(1, ("amq.fanout", "", b"", {}))
    client.feed(one)
    client.protocol.data_received(one)

    assert client.wire.is_reading
    rig.settle()
    assert ready(client, "q0") == 2


def test_queues_that_were_not_published_to_of_late_count_as_work(rig: Rig) -> None:
    client = rig.session(channels=2)
    names = [f"q{number}" for number in range(200)]
    for name in names:
        client.ask(1, m.QueueDeclare(name))
    flood = client.contents(1, *[("", name, b"", {}) for name in names])
    client.protocol.data_received(flood)
    assert not client.wire.is_reading
    rig.settle()

    client.protocol.data_received(flood)
    assert client.wire.is_reading
    rig.settle()
    assert {ready(client, name) for name in names} == {2}


FLOODS = {
    "wide": [("amq.fanout", "", b"", {})] * 1_000,
    "many": [("", f"q{n % 50}", b"", {}) for n in range(1_000)],
    "examined": [("amq.fanout", "", b"", {"headers": {"a": ("t", True)}})] * 300,
}


@pytest.mark.parametrize("flood", FLOODS)
def test_others_get_their_turns_between_those_of_a_flood(
    rig: Rig, flood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten clients flood fifty queues; what one more asks waits for one drain of that work."""
    monkeypatch.setattr(channel, "PUBLISH_TURN_WORK", 2_000)
    monkeypatch.setattr(channel, "_FIRST_TURN_WORK", 500)
    clients = [rig.session() for _ in range(10)]
    bound(clients[0], "amq.fanout", *[f"q{number}" for number in range(50)])
    other = rig.session()
    question = m.method_frame(1, m.encode(m.BasicQos(0, 1, False)))
    for client in clients:
        client.protocol.data_received(client.contents(1, *FLOODS[flood]))
    clock = rig.runtime.turns.scheduler.clock = SlowTurns()
    for _ in clients:
        rig.runtime.drain()  # what their first turns sent is done

    asked = 0
    while not rig.runtime.is_idle:
        before = clock.looks
        other.protocol.data_received(question)
        while not other.wire.out:
            rig.runtime.drain()
        other.wire.out.clear()
        assert clock.looks - before <= DRAIN_S / SlowTurns.turn_s + 2
        asked += 1

    assert asked > 50
    published = len(clients) * len(FLOODS[flood])
    assert ready_of(rig, "q0") == (published if flood != "many" else published // 50)


TOPOLOGY: dict[str, Callable[[int], list[m.Method]]] = {
    "declared": lambda number: [m.QueueDeclare(f"q{number}.{each}") for each in range(5)],
    "deleted": lambda number: [m.QueueDelete(f"q{number}.{each}") for each in range(5)],
}


@pytest.mark.parametrize("change", TOPOLOGY)
def test_clients_that_declare_or_delete_at_once_have_others_wait_for_a_drain_of_it(
    rig: Rig, change: str
) -> None:
    """Each method takes turns of several actors; the run queue has those only that a drain has begun."""
    clients = [rig.session() for _ in range(200)]
    for number, client in enumerate(clients):
        client.send(1, *TOPOLOGY["declared"](number))
        client.take()
    other = rig.session()
    other.ask(1, m.QueueDeclare("other"))
    question = other.contents(1, ("", "other", b"x", {}))
    question += m.method_frame(1, m.encode(m.BasicGet("other", no_ack=True)))
    for number, client in enumerate(clients):
        frames = [m.method_frame(1, m.encode(each)) for each in TOPOLOGY[change](number)]
        client.protocol.data_received(b"".join(frames))
    clock = rig.runtime.turns.scheduler.clock = SlowTurns()

    asked = most = 0
    while not rig.runtime.is_idle:
        before = clock.looks
        other.protocol.data_received(question)
        while not other.wire.out:
            rig.runtime.drain()
        other.wire.out.clear()
        most = max(most, clock.looks - before)
        asked += 1

    assert most <= 14 * DRAIN_S / SlowTurns.turn_s
    assert asked > 50
    assert all(len(client.take()) == 5 for client in clients)


class SlowTurns(VirtualClock):
    """Time goes on whenever it is looked at, which is after each turn of long work."""

    turn_s = 1e-3
    looks = 0

    def monotonic_s(self) -> float:
        self.looks += 1
        return self.looks * self.turn_s


def ready_of(rig: Rig, queue: str) -> int:
    return BackingProxy(rig.runtime.turns, rig.queues[queue].backing).len()


def test_what_the_channels_of_a_connection_give_back_is_requeued_together(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels, messages = 60, 600
    publisher, consumer = rig.session(), rig.session(channels=channels)
    publisher.ask(1, m.QueueDeclare("q"))
    for number in range(1, channels + 1):
        consumer.ask(number, m.BasicConsume("q", "c"))
    publisher.publish(1, "q", *[b"%d" % number for number in range(messages)])
    requeue, requeued = BackingProxy.requeue, list[int]()

    def counted(self: BackingProxy, seqs: list[int]) -> int:
        requeued.append(len(seqs))
        return requeue(self, seqs)

    monkeypatch.setattr(BackingProxy, "requeue", counted)
    consumer.hang_up()

    assert sum(requeued) == messages  # none is delivered to a channel that is about to end
    assert len(requeued) < 5
    publisher.send(1, m.BasicConsume("q", "all"))
    assert publisher.bodies() == [b"%d" % number for number in range(messages)]


UNACKED = 9_000


def unacked_of(rig: Rig, queues: int) -> Client:
    """A client whose channel 1 has deliveries of several queues that it has not settled."""
    client = rig.session(channels=2)
    for number in range(queues):
        client.ask(1, m.QueueDeclare(f"q{number}"))
        client.ask(1, m.BasicConsume(f"q{number}", f"c{number}"))
    for number in range(queues):
        client.publish(2, f"q{number}", *[b"%d" % n for n in range(UNACKED // queues)])
    assert len(client.bodies()) == UNACKED
    return client


@pytest.mark.parametrize("queues", [1, 10])
@pytest.mark.parametrize(
    ("method", "left"),
    [
        (m.BasicAck(0, multiple=True), 0),
        (m.BasicAck(UNACKED - 1, multiple=True), 1),
        (m.BasicNack(0, True, False), 0),
        (m.BasicNack(0, True, True), UNACKED),
        (m.BasicRecover(requeue=True), UNACKED),
        (m.ChannelClose(200, "", 0, 0), UNACKED),
    ],
    ids=lambda each: type(each).__name__,
)
def test_very_many_deliveries_are_settled_in_turns_and_the_next_method_waits(
    rig: Rig, method: m.Method, left: int, queues: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = unacked_of(rig, queues)
    sizes, by_source = list[int](), unacked._by_source

    def counted(records: list[tuple[records.Source, int]]) -> unacked.Settled:
        sizes.append(len(records))
        return by_source(records)

    turns, next_turn = [1], channel.Channel.next_turn

    def noted(self: channel.Channel, callback: Callable[[Any], None]) -> None:
        turns[0] += 1
        next_turn(self, callback)

    monkeypatch.setattr(unacked, "_by_source", counted)
    monkeypatch.setattr(channel.Channel, "next_turn", noted)
    if isinstance(method, m.ChannelClose):
        client.send(1, method)
    else:
        tags = [f"c{number}" for number in range(queues)]
        client.send(1, *[m.BasicCancel(tag) for tag in tags], method, m.BasicQos(0, 1, False))

    assert sum(sizes) >= UNACKED - 1
    assert max(sizes) <= unacked.SETTLED_MAX
    assert turns[0] >= len(sizes)
    answers = [type(each) for each in client.take()]
    if isinstance(method, m.ChannelClose):
        assert answers == [m.ChannelCloseOk]
    else:
        recovered = [m.BasicRecoverOk] * isinstance(method, m.BasicRecover)
        assert answers == [m.BasicCancelOk] * queues + recovered + [m.BasicQosOk]
        client.send(1, m.ChannelClose(200, "", 0, 0))
    counts = [ready_of(rig, f"q{number}") for number in range(queues)]
    assert sum(counts) == left
    if left == UNACKED:
        client.bodies()
        client.send(2, m.BasicConsume("q0", "again"))
        assert client.bodies() == [b"%d" % n for n in range(UNACKED // queues)]


def first_channel(rig: Rig) -> Ref:
    return next(each.ref for each in rig.runtime.cells() if each.describe() == "channel:1")


ENDS: dict[str, Callable[[Client, Ref], object]] = {
    "its client closes the connection": lambda client, _: client.send(
        0, m.ConnectionClose(200, "", 0, 0)
    ),
    "another channel fails": lambda client, _: client.send(3, m.BasicAck(1)),
    "the socket is lost": lambda client, _: client.hang_up(),
    "the client has ended": lambda client, channel: client.rig.runtime.send(channel, PEER_ENDED),
    "the broker stops": lambda client, _: client.rig.runtime.exit(client.rig.root, SHUTDOWN),
}


@pytest.mark.parametrize("queues", [1, 10])
@pytest.mark.parametrize("kind", [m.BasicAck, m.BasicNack])
@pytest.mark.parametrize("way", ENDS)
def test_what_a_client_has_settled_before_its_end_is_settled_in_turns_and_the_rest_comes_back(
    rig: Rig,
    way: str,
    kind: type[m.BasicAck | m.BasicNack],
    queues: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, other = unacked_of(rig, queues), rig.session()
    ref = first_channel(rig)
    sizes, by_source = Counter[int](), unacked._by_source

    def counted(records: list[tuple[records.Source, int]]) -> unacked.Settled:
        sizes[rig.runtime.drains] += len(records)
        return by_source(records)

    monkeypatch.setattr(unacked, "_by_source", counted)
    monkeypatch.setattr(scheduler, "DRAIN_S", -1.0)  # as if each turn were long
    settlement = kind(UNACKED - 1, True) if kind is m.BasicAck else kind(UNACKED - 1, True, False)
    client.protocol.data_received(m.method_frame(1, m.encode(settlement)))
    assert sizes.total() == unacked.SETTLED_MAX
    ENDS[way](client, ref)
    rig.settle()

    assert sizes.total() >= UNACKED - 1
    assert max(sizes.values()) <= unacked.SETTLED_MAX
    if way != "the broker stops":
        assert [ready_of(rig, f"q{number}") for number in range(queues)] == [0] * (queues - 1) + [1]
        other.send(1, m.BasicConsume(f"q{queues - 1}", "c"))
        assert other.bodies() == [b"%d" % (UNACKED // queues - 1)]


def test_what_a_client_has_settled_before_its_channel_crashes_is_settled(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    client = unacked_of(rig, 1)
    client.protocol.data_received(m.method_frame(1, m.encode(m.BasicAck(0, True))))
    rig.runtime.send(first_channel(rig), "unknown")
    rig.settle()

    assert client.take()[-1].reply_code == 541
    assert ready_of(rig, "q0") == 0
    caplog.clear()  # the crash is meant to happen


def test_a_channel_that_ends_behind_a_settlement_gets_no_delivery_and_handles_no_method(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "DRAIN_S", -1.0)  # as if each turn were long
    client, other = unacked_of(rig, 1), rig.session(channels=2)
    methods = (m.BasicAck(0, True), m.QueueDeclare("late"))
    client.protocol.data_received(b"".join(m.method_frame(1, m.encode(each)) for each in methods))
    client.wire.state = "aborted"
    client.protocol.connection_lost(None)
    settling = first_channel(rig).cell.actor.deliveries
    for _ in range(4):  # the channel has been told meanwhile
        rig.runtime.drain()
    assert settling.is_settling
    other.publish(2, "q0", b"new")
    rig.settle()

    assert "late" not in rig.queues
    other.send(1, m.BasicConsume("q0", "c"))
    delivery, body = other.take()[1:]
    assert (delivery.redelivered, body) == (False, b"new")


def test_methods_with_large_arguments_are_handled_one_a_turn(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = rig.session()
    turns, continue_later = [0], channel.Channel._continue_later

    def counted(self: channel.Channel, runs: list[Run]) -> None:
        turns[0] += 1
        continue_later(self, runs)

    monkeypatch.setattr(channel.Channel, "_continue_later", counted)
    arguments: Table = {f"k{number}": ("V", None) for number in range(10_000)}
    methods = [m.QueueDeclare(f"q{number}", arguments=arguments) for number in range(10)]
    client.send(1, *methods)

    assert turns[0] >= len(methods) - 1
    assert [each.queue for each in client.take()] == [each.queue for each in methods]


def test_methods_count_by_the_time_they_take(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletion of an exchange with bindings may take a millisecond, which its arguments do not tell."""
    client, count = rig.session(), 60
    for number in range(count):
        client.ask(1, m.ExchangeDeclare(f"x{number}", "fanout"))
    turns, continue_later = [0], channel.Channel._continue_later

    def counted(self: channel.Channel, runs: list[Run]) -> None:
        turns[0] += 1
        continue_later(self, runs)

    monkeypatch.setattr(channel.Channel, "_continue_later", counted)
    rig.runtime.clock = SlowTurns()
    client.send(1, *[m.ExchangeDelete(f"x{number}") for number in range(count)])

    turn_s = channel.PUBLISH_TURN_WORK * WORK_S + SlowTurns.turn_s  # the last method is not cut
    assert turns[0] >= count * SlowTurns.turn_s / turn_s - 1
    assert client.take() == [m.ExchangeDeleteOk()] * count


def with_waiting(rig: Rig, taken: int, waiting: int) -> Client:
    """A client with a shared prefetch that some queues have used up; others wait for room."""
    client = rig.session(channels=2)
    client.ask(1, m.BasicQos(0, taken, global_=True))
    for number in range(taken + waiting):
        client.ask(1, m.QueueDeclare(f"q{number}"))
        client.ask(1, m.BasicConsume(f"q{number}", f"c{number}"))
    for number in range(taken + waiting):
        client.publish(2, f"q{number}", b"%d" % number)
    assert len(client.bodies()) == taken
    return client


class CountedList(list[Any]):
    """A list that counts how often somebody goes through it."""

    walks = 0

    def __iter__(self) -> Any:
        type(self).walks += 1
        return super().__iter__()


@pytest.mark.parametrize("method", [m.BasicAck(0, True), m.BasicNack(0, True, False)])
def test_a_settlement_looks_once_at_each_delivery_however_many_queues_wait(
    rig: Rig, method: m.Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = with_waiting(rig, 20, 40)
    take_to = unacked.Unacked.take_to

    def counted(self: unacked.Unacked, last: int) -> unacked.Settled:
        return CountedList(take_to(self, last))

    monkeypatch.setattr(unacked.Unacked, "take_to", counted)
    CountedList.walks = 0
    client.send(1, method)

    assert CountedList.walks <= 4
    assert len(client.bodies()) == 20


class Noting(MailHandler):
    """Handles the mails of a queue, which is noted when it is told to go on."""

    def __init__(self, queue: Ref, resumed: list[Ref]) -> None:
        self._queue = queue
        self._handler = queue.cell.handler
        self._resumed = resumed

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        if type(message) is Resume:
            self._resumed.append(self._queue)
        return self._handler.handle_mail(message, sender)


def test_few_of_the_queues_that_wait_for_room_are_resumed_in_a_turn(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "RESUMES_MAX", 5)
    client = with_waiting(rig, 2, 40)
    resumed: list[Ref] = []
    for entry in rig.node.vhosts["/"].topology.queues.values():
        assert entry.ref is not None
        entry.ref.cell.handler = Noting(entry.ref, resumed)
    client.send(1, m.BasicAck(0, multiple=True))
    assert len(client.bodies()) == 2
    assert len(resumed) == 5, "two of them have used up the room"

    turns, next_turn = [1], channel.Channel.next_turn

    def noted(self: channel.Channel, callback: Callable[[Any], None]) -> None:
        turns[0] += 1
        next_turn(self, callback)

    monkeypatch.setattr(channel.Channel, "next_turn", noted)
    resumed.clear()
    client.send(1, m.BasicQos(0, 0, global_=True))
    assert len(client.bodies()) == 38
    assert len(resumed) == 38
    assert turns[0] == 8


def test_the_work_of_a_client_is_charged_to_its_connection(rig: Rig) -> None:
    """That of its channels, and of the queues that it has declared, until another long turn wakes these."""
    client, other = rig.session(), rig.session()
    client.ask(1, m.QueueDeclare("q"))
    other.ask(1, m.QueueDeclare("r"))

    accounts = {cell.describe(): cell.account for cell in rig.runtime.cells()}
    assert accounts["queue:q"] == client.reader.num
    assert accounts["queue:r"] == other.reader.num
    vhost = rig.node.vhosts["/"].supervisor
    assert vhost is not None
    assert vhost.cell.account == vhost.num
    queue = rig.queues["q"]
    assert queue.ref.cell.account == queue.backing.cell.account == client.reader.num
    channels = [cell.account for cell in rig.runtime.cells() if type(cell.actor) is channel.Channel]
    assert sorted(channels) == sorted([client.reader.num, other.reader.num])

    other.ask(1, m.QueueDeclare("q"))
    assert queue.ref.cell.account == other.reader.num
