"""Fan-out to more queues than one turn sends to: slices, whatever happens between them; order and confirms stay.

Tests: broker/channel/session.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp import methods as m
from leveret.broker.channel import channel
from leveret.broker.channel.publishing import publish
from leveret.broker.channel.publishing.publish import Publisher
from leveret.broker.channel.session import Block
from leveret.broker.mail import Publish
from rigs.broker_rig import Client, Rig

SLICE = 3
QUEUES = [f"q{number}" for number in range(10)]
FANOUT, HEADERS = "amq.fanout", "amq.headers"


class Slices:
    """Looks at the slices of publishers.

    Attributes:
        sent: how many queues were sent to in each of a publisher's steps.
        mails: how many messages each of them was sent.
        before: is called before a fan-out's first slice, once.
        between: is called behind each slice.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sent: list[int] = []
        self.mails: list[int] = []
        self.before: Callable[[], object] = lambda: None
        self.between: Callable[[], object] = lambda: None
        patch.setattr(publish, "FAN_OUT_QUEUES", SLICE)
        patch.setattr(publish, "WIDE_QUEUES", SLICE)
        patch.setattr(publish, "Publish", self._publish)
        for name in ("publish", "continue_fan_out"):
            patch.setattr(Publisher, name, self._counted(getattr(Publisher, name)))

    def _publish(self, *fields: Any) -> Publish:
        self.sent[-1] += 1
        self.mails.append(len(fields[0]))
        return Publish(*fields)

    def _counted(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def counted(publisher: Publisher, *arguments: Any) -> Any:
            was_fanning_out = publisher.fan_out is not None
            self.sent.append(0)
            try:
                return step(publisher, *arguments)
            finally:
                if was_fanning_out:
                    self.between()
                elif publisher.fan_out is not None:
                    before, self.before = self.before, lambda: None
                    before()

        return counted


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> Slices:
    return Slices(monkeypatch)


def declare(client: Client, name: str) -> None:
    client.send(1, m.QueueDeclare(name), m.QueueBind(name, FANOUT, ""))
    client.send(1, m.QueueBind(name, HEADERS, "", arguments={"h": ("I", 1)}))


def declared(rig: Rig) -> Client:
    """A client with confirms on channel 1, and all queues."""
    client = rig.session(channels=2)
    for name in QUEUES:
        declare(client, name)
    client.send(1, m.ConfirmSelect())
    client.take()
    return client


@pytest.fixture
def client(rig: Rig) -> Client:
    return declared(rig)


def feed(client: Client, *methods: m.Method) -> None:
    """Let the broker read, within a turn of an actor."""
    client.protocol.data_received(
        b"".join(m.method_frame(1, m.encode(method)) for method in methods)
    )


def found(rig: Rig, name: str) -> list[bytes]:
    """Take all messages of a queue."""
    client = rig.session()
    client.send(1, m.BasicConsume(name, no_ack=True))
    bodies = client.bodies()
    client.hang_up()
    return bodies


def answers(client: Client) -> dict[int, type]:
    """Take the confirms; each number may be answered once."""
    told: dict[int, type] = {}
    for answer in client.take():
        assert isinstance(answer, m.BasicAck | m.BasicNack), answer
        first = 1 if answer.multiple else answer.delivery_tag
        numbers = set(range(first, answer.delivery_tag + 1))
        assert answer.multiple or not numbers & told.keys()
        told |= dict.fromkeys(numbers - told.keys(), type(answer))
    return told


WAYS: list[tuple[str, dict[str, Any]]] = [(FANOUT, {}), (HEADERS, {"headers": {"h": ("I", 1)}})]


@pytest.mark.parametrize(("exchange", "properties"), WAYS)
def test_no_turn_sends_to_more_queues_than_a_slice_has(
    rig: Rig, client: Client, slices: Slices, exchange: str, properties: dict[str, Any]
) -> None:
    client.publish(1, "", b"a", b"b", exchange=exchange, mandatory=True, **properties)

    assert max(slices.sent) == SLICE
    assert answers(client) == {1: m.BasicAck, 2: m.BasicAck}
    assert [found(rig, name) for name in QUEUES] == [[b"a", b"b"]] * len(QUEUES)


@pytest.mark.parametrize(("exchange", "properties"), WAYS)
def test_a_batch_that_is_too_much_for_a_turn_keeps_its_messages_together(
    rig: Rig,
    client: Client,
    slices: Slices,
    monkeypatch: pytest.MonkeyPatch,
    exchange: str,
    properties: dict[str, Any],
) -> None:
    monkeypatch.setattr(publish, "FAN_OUT_MESSAGES", 8)
    for module in (publish, channel):
        monkeypatch.setattr(module, "PUBLISH_TURN_WORK", 2_000)
    monkeypatch.setattr(channel, "_FIRST_TURN_WORK", 2_000)
    bodies = [b"%d" % number for number in range(200)]

    client.publish(1, "", *bodies, exchange=exchange, **properties)

    assert max(slices.sent) <= SLICE
    assert min(slices.mails) == 8
    assert set(answers(client)) == set(range(1, 201))
    assert [found(rig, name) for name in QUEUES] == [bodies] * len(QUEUES)


def test_messages_of_a_run_go_together(client: Client, slices: Slices) -> None:
    client.publish(1, "", *[b"x"] * 20, exchange=FANOUT)

    assert sum(slices.sent) == len(QUEUES)


@pytest.mark.parametrize(("exchange", "properties"), WAYS)
def test_every_queue_gets_messages_in_the_order_of_their_channel(
    rig: Rig, client: Client, slices: Slices, exchange: str, properties: dict[str, Any]
) -> None:
    wide = (exchange, "", properties)
    order = [("", "q9", {}), wide, ("", "q9", {}), wide, wide, ("", "q0", {})]
    contents = [(name, key, b"%d" % number, more) for number, (name, key, more) in enumerate(order)]
    client.feed(client.contents(1, *contents))

    assert answers(client) == dict.fromkeys(range(1, 7), m.BasicAck)
    assert found(rig, "q9") == [b"0", b"1", b"2", b"3", b"4"]
    assert found(rig, "q0") == [b"1", b"3", b"4", b"5"]


def test_others_have_their_turns_between_two_slices(
    rig: Rig, client: Client, slices: Slices
) -> None:
    other = rig.session()
    bodies = iter([b"1", b"2", b"3", b"4"])
    slices.between = lambda: other.protocol.data_received(
        other.contents(1, ("", "q9", next(bodies), {}))
    )
    client.publish(1, "", b"wide", exchange=FANOUT)

    assert found(rig, "q9") == [b"1", b"2", b"3", b"wide", b"4"]


def test_a_message_is_confirmed_when_the_queue_of_the_last_slice_has_it(
    rig: Rig, client: Client, slices: Slices
) -> None:
    rig.runtime.suspend(rig.queues["q9"].ref)
    client.publish(1, "", b"a", b"b", exchange=FANOUT)
    assert answers(client) == {}
    rig.runtime.resume(rig.queues["q9"].ref)
    rig.settle()

    assert answers(client) == {1: m.BasicAck, 2: m.BasicAck}


def test_queues_that_answer_before_the_last_slice_confirm_nothing(
    rig: Rig, client: Client, slices: Slices
) -> None:
    seen: list[int] = []
    slices.between = lambda: seen.append(len(client.wire.out))
    client.publish(1, "", b"a", exchange=FANOUT)

    assert seen == [0, 0, 0, 0]
    assert answers(client) == {1: m.BasicAck}


def test_the_next_method_waits_for_the_last_slice(rig: Rig, client: Client, slices: Slices) -> None:
    passive = m.method_frame(1, m.encode(m.QueueDeclare("q9", passive=True)))
    client.feed(client.contents(1, (FANOUT, "", b"a", {})) + passive)

    answer = next(each for each in client.take() if isinstance(each, m.QueueDeclareOk))
    assert answer.message_count == 1


@pytest.mark.parametrize("number", [0, 1])
def test_the_client_may_close_channel_or_connection_right_behind(
    rig: Rig, client: Client, slices: Slices, number: int
) -> None:
    close = m.ConnectionClose(200, "", 0, 0) if number == 0 else m.ChannelClose(200, "", 0, 0)
    end = m.method_frame(number, m.encode(close))
    client.feed(client.contents(1, (FANOUT, "", b"a", {}), (FANOUT, "", b"b", {})) + end)

    assert [found(rig, name) for name in QUEUES] == [[b"a", b"b"]] * len(QUEUES)


def test_nothing_is_read_before_the_last_slice(rig: Rig, client: Client, slices: Slices) -> None:
    read_control = rig.node.connections.readers[client.reader].read_control
    seen: list[bool] = []
    slices.between = lambda: seen.append(Block.HELD_RUNS in read_control.blocks)
    client.publish(1, "", b"a", exchange=FANOUT)

    assert seen == [True] * 4
    assert client.wire.is_reading


def test_a_queue_that_is_deleted_before_its_slice_owes_nothing(
    rig: Rig, client: Client, slices: Slices
) -> None:
    other = rig.session()
    slices.between = lambda: feed(other, m.QueueDelete("q9")) if "q9" in rig.queues else None
    client.publish(1, "", b"a", exchange=FANOUT)

    assert "q9" not in rig.queues
    assert answers(client) == {1: m.BasicAck}


@pytest.mark.parametrize("mandatory", [False, True])
def test_messages_whose_queues_have_all_gone_are_returned_if_they_are_mandatory(
    rig: Rig, client: Client, slices: Slices, mandatory: bool
) -> None:
    def delete_all() -> None:
        for name in QUEUES:
            rig.queues[name].deleted()

    slices.before = delete_all
    client.publish(1, "", b"a", exchange=FANOUT, mandatory=mandatory)

    taken = client.take()
    assert [type(each) for each in taken[-1:]] == [m.BasicAck]
    assert (b"a" in taken) is mandatory


def test_a_queue_that_could_not_be_started_refuses_the_message(
    rig: Rig, client: Client, slices: Slices
) -> None:
    def crash() -> None:
        rig.queues["q8"].ref = None
        rig.queues["q8"].crashed()

    slices.before = crash
    client.publish(1, "", b"a", exchange=FANOUT)

    assert answers(client) == {1: m.BasicNack}
    assert found(rig, "q9") == [b"a"]


def test_a_channel_that_is_killed_between_two_slices_leaves_no_block(
    rig: Rig, client: Client, slices: Slices
) -> None:
    reader = rig.node.connections.readers[client.reader]
    channel = reader.channels._slots[1].ref
    slices.between = lambda: rig.runtime.exit(channel, "kill")
    client.publish(1, "", b"a", exchange=FANOUT)

    assert client.take()[0].reply_code == 541
    client.send(0, m.ConnectionCloseOk())
    assert client.wire.state == "closed"
    assert found(rig, "q0") == [b"a"]


ACTIONS = st.tuples(
    st.sampled_from(["kill", "delete", "declare", "publish", "nothing", "nothing"]),
    st.integers(0, len(QUEUES) - 1),
)
RUNS = st.lists(
    st.tuples(st.sampled_from([FANOUT, HEADERS, ""]), st.integers(1, 3)), min_size=1, max_size=4
)
Content = tuple[str, str, bytes, dict[str, Any]]


class Meddler:
    """Does one thing after another to queues, and notes which are not what they were."""

    def __init__(self, rig: Rig, actions: list[tuple[str, int]]) -> None:
        self.has_killed = False
        self.touched: set[str] = set()
        self._rig = rig
        self._client = rig.session()
        self._actions = actions

    def act(self) -> None:
        client = self._client
        if not self._actions or not client.wire.is_reading:
            return
        action, number = self._actions.pop()
        name = QUEUES[number]
        entry = self._rig.queues.get(name)
        if action == "publish":
            client.protocol.data_received(client.contents(1, ("", name, b"other", {})))
        elif action == "kill" and entry is not None and entry.ref is not None:
            self.touched.add(name)
            self.has_killed = True
            self._rig.runtime.exit(entry.ref, "kill")
        elif action == "delete":
            self.touched.add(name)
            feed(client, m.QueueDelete(name))
        elif action == "declare":
            feed(client, m.QueueDeclare(name), m.QueueBind(name, FANOUT, ""))


def numbered(runs: list[tuple[str, int]]) -> list[Content]:
    """Messages of these runs, whose bodies are numbers."""
    contents: list[Content] = []
    for exchange, count in runs:
        properties = {"headers": {"h": ("I", 1)}} if exchange == HEADERS else {}
        for _ in range(count):
            key = "" if exchange else QUEUES[len(contents) % len(QUEUES)]
            contents.append((exchange, key, b"%d" % len(contents), properties))
    return contents


@given(RUNS, st.lists(ACTIONS, max_size=12))
def test_all_is_in_order_whatever_happens_to_queues_between_slices(
    runs: list[tuple[str, int]], actions: list[tuple[str, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        slices, rig = Slices(patch), Rig()
        client, meddler, contents = declared(rig), Meddler(rig, actions), numbered(runs)
        slices.between = slices.before = meddler.act
        client.feed(client.contents(1, *contents))
        rig.settle()

        assert max(slices.sent) <= SLICE
        told = answers(client)
        assert sorted(told) == list(range(1, len(contents) + 1))
        assert meddler.has_killed or set(told.values()) == {m.BasicAck}
        for name in rig.queues:
            bodies = [body for body in found(rig, name) if body != b"other"]
            assert bodies == sorted(set(bodies), key=int)
            if name not in meddler.touched:
                assert bodies == [
                    body for exchange, key, body, _ in contents if exchange or key == name
                ]
