"""The queues that wait for a connection: few are resumed at once, each gets its turn, nobody is forgotten."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.actors.runtime.ref import Ref
from leveret.amqp import methods as m
from leveret.broker.connection.reading.resume_queue import RESUMES, WAITING_BYTES_MAX, ResumeQueue
from leveret.broker.limiter import DeliveryGate
from leveret.broker.mail import Resume
from rigs.broker_rig import Rig
from rigs.refs import named


class Runtime:
    """Queues as addresses; a round is over when the test says so."""

    def __init__(self) -> None:
        self.sent: deque[tuple[Any, Resume]] = deque()
        self.callbacks: list[Callable[[], None]] = []

    def send(self, queue: Any, resume: Resume) -> None:
        self.sent.append((queue, resume))

    def after_round(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def end_round(self) -> None:
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()


class Connection:
    """A connection that takes some messages and is full then, and the queues that wait for it."""

    def __init__(self, channels: list[list[Ref]], room: int) -> None:
        self.runtime = Runtime()
        self.resume_queue = ResumeQueue(self.runtime, self)  # type: ignore[arg-type]
        self.room = room
        self.served: Counter[Ref] = Counter()
        self.gates: dict[Ref, DeliveryGate] = {}
        self.most_sent = 0
        self.active: deque[tuple[Any, DeliveryGate]] = deque()
        self.close_gates()
        for number, queues in enumerate(channels):
            gate = DeliveryGate(self.resume_queue)
            gate.channel = named(f"channel {number}")
            self.gates[gate.channel] = gate
            gate.is_open = False
            for queue in queues:
                gate.wait(queue)

    def close_gates(self) -> None:
        self.resume_queue.close()
        for gate in self.gates.values():
            gate.is_open = False

    def open_gates(self) -> None:
        """Take ``room`` messages, then be full."""
        self.left = self.room
        for gate in self.gates.values():
            gate.is_open = True
        self.resume_queue.open()
        while self.runtime.sent or self.runtime.callbacks or self.active:
            self.most_sent = max(self.most_sent, len(self.runtime.sent))
            while self.runtime.sent:
                self.resumed(*self.runtime.sent.popleft())
            for _ in range(len(self.active)):
                self.turn(*self.active.popleft())
            self.runtime.end_round()

    def resumed(self, queue: Any, resume: Resume) -> None:
        gate = self.gates[resume.channel]
        if gate.is_open:
            self.turn(queue, gate)
        else:
            gate.wait_again(queue)

    def turn(self, queue: Any, gate: DeliveryGate) -> None:
        """Deliver one of many messages."""
        if gate.is_open:
            self.served[queue] += 1
            self.left -= 1
            self.active.append((queue, gate))
            if not self.left:
                self.close_gates()
        else:
            gate.wait(queue)


def waiting_at(gate: DeliveryGate) -> list[Any]:
    if isinstance(gate.waiting, OrderedDict):
        return list(gate.waiting)
    return [] if gate.waiting is None else [gate.waiting]


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any),
    st.integers(1, 30),
    st.integers(1, 60),
)
def test_queues_are_resumed_in_turn(sizes: list[int], room: int, openings: int) -> None:
    channels = [
        [named(f"{number}.{each}") for each in range(size)] for number, size in enumerate(sizes)
    ]
    queues = [queue for names in channels for queue in names]
    connection = Connection(channels, room)
    for _ in range(openings):
        connection.open_gates()

    assert connection.most_sent <= RESUMES
    assert sum(connection.served.values()) == openings * room
    waiting = {queue for gate in connection.gates.values() for queue in waiting_at(gate)}
    waiting |= {queue for _, queue in connection.resume_queue._resumed_for_nothing}
    assert waiting == set(queues), "nobody is forgotten"
    served = [connection.served[queue] for queue in channels[0]]
    if len(channels) == 1:
        # A queue that is resumed in a second round may each time have one turn less than the first.
        assert max(served) <= 2 * min(served) + room
    if openings >= 2 * len(channels) * max(sizes):
        assert set(connection.served) == set(queues), "nobody starves"


def test_channels_take_turns() -> None:
    connection = Connection(
        [[named(f"a{number}") for number in range(100)], [named("b")], [named("c")]], room=3
    )
    connection.open_gates()

    assert set(connection.served) == {named("a0"), named("b"), named("c")}


def test_a_channel_that_has_ended_has_no_place() -> None:
    connection = Connection([[named("a")], [named("b")]], room=5)
    first = next(iter(connection.gates.values()))
    connection.resume_queue.leave(first)
    connection.resume_queue.leave(first)
    connection.open_gates()

    assert connection.served == {named("b"): 5}


def test_a_queue_at_a_gate_that_stays_closed_is_resumed_once() -> None:
    connection = Connection([[]], room=5)
    (gate,) = connection.gates.values()
    connection.resume_queue.open()
    gate.wait(named("a"))
    connection.runtime.end_round()
    assert [queue for queue, _ in connection.runtime.sent] == [named("a")]
    connection.resumed(*connection.runtime.sent.popleft())
    connection.runtime.end_round()

    assert not connection.runtime.sent
    assert not connection.runtime.callbacks


@pytest.mark.parametrize("channels", [1, 20])
def test_a_connection_that_is_full_again_has_resumed_few_queues(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, channels: int
) -> None:
    publisher, consumer = rig.session(), rig.session(channels=channels)
    names = [f"q{number}" for number in range(200)]
    for number, name in enumerate(names):
        publisher.ask(1, m.QueueDeclare(name))
        publisher.ask(1, m.QueueBind(name, "amq.fanout", ""))
        consumer.ask(number % channels + 1, m.BasicConsume(name, no_ack=True))
    reader = rig.node.connections.readers[consumer.reader]
    reader.writing_paused()
    publisher.publish(1, "", b"a", b"b", exchange="amq.fanout")
    resumed: list[object] = []
    send = rig.runtime.send

    def counted(to: Any, message: Any, *rest: Any) -> None:
        if type(message) is Resume:
            resumed.append(to)
        send(to, message, *rest)

    monkeypatch.setattr(rig.runtime, "send", counted)
    reader.writing_resumed()
    reader.writing_paused()
    rig.settle()
    assert len(resumed) == RESUMES
    assert consumer.bodies() == []

    reader.writing_resumed()
    rig.settle()
    assert sorted(consumer.bodies()) == [b"a"] * 200 + [b"b"] * 200
    assert len(resumed) == 200 + RESUMES


def test_a_connection_takes_no_more_while_too_many_bytes_wait_in_mailboxes() -> None:
    connection = Connection([[], []], room=5)
    connection.open_gates()
    first, second = connection.gates.values()
    some, many = 1_000, WAITING_BYTES_MAX
    first.delivery_waits(some)
    assert connection.resume_queue.is_open
    second.delivery_waits(many)
    assert not connection.resume_queue.is_open

    second.delivery_written(many)
    assert not connection.resume_queue.is_open, "there is more to write"
    first.delivery_written(some)
    assert connection.resume_queue.is_open


def test_what_waits_for_a_channel_that_has_ended_holds_nobody_up() -> None:
    connection = Connection([[], []], room=5)
    connection.open_gates()
    first, second = connection.gates.values()
    second.delivery_waits(WAITING_BYTES_MAX + 1)
    connection.resume_queue.leave(second)
    assert connection.resume_queue.is_open

    second.delivery_waits(WAITING_BYTES_MAX + 1)  # of a queue that does not know yet
    connection.resume_queue.leave(second)
    assert connection.resume_queue.is_open
    assert first.is_open
