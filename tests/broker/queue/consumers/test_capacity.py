"""The consumer capacity: RabbitMQ's average, timed at changes only."""

from __future__ import annotations

import math

import pytest

from leveret.broker.queue.consumers.capacity import CYCLES_S, Capacity
from leveret.broker.queue.consumers.consumers import Consumers
from rigs.queues.queue_rig import Rig
from rigs.refs import named
from rigs.wire.consumers import QUEUE, consume


class Clock:
    """A clock that counts how often it is looked at."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.now_s


class Reference:
    """RabbitMQ's ``update_use/2``, one fold per cycle."""

    def __init__(self) -> None:
        self.average = 1.0

    def cycle(self, ready_s: float, busy_s: float) -> None:
        time_s = ready_s + busy_s
        weight = math.exp(time_s * math.log(0.5) / 1.0)
        self.average = ready_s / time_s * (1 - weight) + self.average * weight


@pytest.mark.parametrize(
    ("ready_s", "busy_s", "cycles"),
    [(0.5, 0.5, 1), (0.2, 0.6, 7), (0.0, 3.0, 2), (3.0, 0.0, 2), (0.0004, 0.0006, 5_000)],
)
def test_the_average_is_rabbitmqs(ready_s: float, busy_s: float, cycles: int) -> None:
    clock, reference = Clock(), Reference()
    capacity = Capacity(clock)
    for _ in range(cycles):
        clock.now_s += ready_s
        capacity.busy()
        clock.now_s += busy_s
        capacity.ready()
        reference.cycle(ready_s, busy_s)

    assert capacity.now() == pytest.approx(reference.average, abs=0.02)


def test_an_idle_queue_has_full_capacity_and_no_look_at_the_clock() -> None:
    clock = Clock()
    capacity = Capacity(clock)
    before = clock.looks
    for _ in range(10):
        capacity.ready()

    assert clock.looks == before
    assert capacity.now() == 1.0


def test_busy_consumers_lose_capacity_while_it_is_read_and_get_it_back() -> None:
    clock = Clock()
    capacity = Capacity(clock)
    capacity.busy()
    clock.now_s += 1.0
    assert capacity.now() == pytest.approx(0.5)
    assert capacity.now() == pytest.approx(0.5)
    clock.now_s += 9.0
    capacity.busy()
    assert capacity.now() == pytest.approx(0.0, abs=0.001)
    capacity.ready()
    clock.now_s += 1.0
    assert capacity.now() == pytest.approx(0.5, abs=0.001)
    clock.now_s += 20.0
    assert capacity.now() == pytest.approx(1.0, abs=0.001)


def test_short_cycles_are_added_up() -> None:
    clock = Clock()
    capacity = Capacity(clock)
    capacity.busy()
    clock.now_s += CYCLES_S / 2
    capacity.ready()
    assert capacity.now() == pytest.approx(math.exp(CYCLES_S / 2 * math.log(0.5)))


def test_a_queues_consumers_are_busy_from_a_refused_message_to_the_next_place() -> None:
    clock = Clock()
    consumers = Consumers(QUEUE, now_s=clock)
    consumers.add(consume(named("ch"), b"c", prefetch=1))
    assert not consumers.capacity.is_busy

    consumers.deal(consumers.room_for(1))
    consumers.channels[named("ch")].consumers[b"c"].owe([0])
    assert not consumers.capacity.is_busy, "its prefetch is used up, but nothing waits"
    consumers.block_all()
    assert consumers.capacity.is_busy
    clock.now_s += 1.0
    assert consumers.capacity.now() == pytest.approx(0.5)
    assert consumers.settle(named("ch"), b"c", [0])
    assert not consumers.capacity.is_busy


def test_a_queue_measures_by_the_clock_of_its_runtime() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"c", prefetch=1)
    channel.publish(b"0", b"1")
    rig.settle()

    rig.clock.jump(5.0)
    busy = rig.info()["consumer_capacity"]
    channel.ack(b"c", *[seq for _, seq, _ in channel.deliveries() if seq is not None])
    channel.ack(b"c", *[seq for _, seq, _ in channel.deliveries() if seq is not None])
    rig.clock.jump(5.0)

    assert busy < 0.1
    assert rig.info()["consumer_capacity"] > 0.9
