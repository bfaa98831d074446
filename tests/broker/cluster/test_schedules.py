"""Random schedules of traffic over a link that breaks: what was confirmed is delivered, and nothing waits for ever."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from leveret.amqp import methods as m
from rigs.broker_rig import Client, durable
from rigs.cluster.cluster_rig import Cluster

STEPS = 120
QUEUES = ("q0", "q1")


class Schedule:
    """Clients of node b use queues of node a; publisher and consumer have channels of their own.

    Attributes:
        answers: by the number of the publish: whether it was confirmed.
        seen: bodies delivered, by queue.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = Cluster(seed=seed)
        self.network = self.cluster.network
        there = self.cluster["a"].session()
        for name in QUEUES:
            there.ask(1, durable(name))
            there.ask(1, m.QueueBind(name, "amq.fanout"))
        self.publisher = self.cluster["b"].session()
        self.publisher.ask(1, m.ConfirmSelect())
        self.consumer: Client = self.cluster["b"].session(channels=2)
        self.consumer.ask(
            1, m.BasicQos(prefetch_count=self.random.choice((1, 3, 40)), global_=seed % 2 == 0)
        )
        self.number = 0
        self.answers: dict[int, bool] = {}
        self.bodies: dict[int, bytes] = {}
        self.seen: dict[str, set[bytes]] = {name: set() for name in QUEUES}
        self.consuming: set[str] = set()
        self.unacked: list[int] = []
        self.cluster.settle_s = 0.0

    def step(self) -> None:
        acts = {
            self.publish: 4,
            self.consume: 2,
            self.settle: 4,
            self.pass_time: 5,
            self.break_link: 1,
        }
        (act,) = self.random.choices(list(acts), weights=list(acts.values()))
        act()
        self.look()

    def publish(self) -> None:
        if not self.publisher.wire.is_reading:
            return
        size = self.random.choice((1, 1, 300, 40_000))
        bodies = []
        for _ in range(self.random.choice((1, 5, 60))):
            self.number += 1
            body = self.bodies[self.number] = b"%d " % self.number + bytes(size)
            bodies.append(body)
        self.publisher.publish(1, "", *bodies, exchange="amq.fanout", delivery_mode=2)

    def consume(self) -> None:
        if not self.consumer.wire.is_reading:
            return
        for name in QUEUES:
            if name not in self.consuming:
                self.consuming.add(name)
                self.consumer.send(1, m.BasicConsume(name, name))
                self.look()

    def settle(self) -> None:
        if not self.unacked or not self.consumer.wire.is_reading:  # acks are being coalesced
            return
        tag = self.unacked.pop(self.random.randrange(len(self.unacked)))
        if self.random.random() < 0.3:
            self.consumer.send(1, m.BasicNack(tag, False, True))
        else:
            self.consumer.send(1, m.BasicAck(tag))

    def pass_time(self) -> None:
        self.cluster.clock.jump(self.random.choice((0.001, 0.01, 0.1, 3.0)))

    def break_link(self) -> None:
        if self.random.random() < 0.5:
            self.network.reset("a", "b")
        else:
            self.network.silence("a", "b", is_one_way=self.random.random() < 0.5)
            self.cluster.clock.jump(self.random.choice((0.01, 0.5, 4.0)))
            self.network.heal()

    def look(self) -> None:
        """Note what the clients were told."""
        for answer in self.publisher.take():
            assert type(answer) in {m.BasicAck, m.BasicNack}, answer
            first = answer.delivery_tag
            if answer.multiple:
                waiting = [n for n in range(1, self.number + 1) if n not in self.answers]
                first = min(waiting)
            for number in range(first, answer.delivery_tag + 1):
                self.answers.setdefault(number, type(answer) is m.BasicAck)
        queue = ""
        for each in self.consumer.take():
            if isinstance(each, m.BasicDeliver):
                queue = each.consumer_tag
                self.unacked.append(each.delivery_tag)
            elif isinstance(each, m.BasicCancel):
                self.consuming.discard(each.consumer_tag)
            elif isinstance(each, m.ChannelClose):
                self._reopen(each)
            elif type(each) is bytes:
                self.seen[queue].add(each)

    def _reopen(self, closed: m.ChannelClose) -> None:
        """Open the channel again, which was closed because the node of a queue was not there."""
        assert closed.reply_code == 404, closed
        self.consuming.clear()
        self.unacked.clear()
        self.consumer.send(1, m.ChannelCloseOk())
        self.consumer.send(1, m.ChannelOpen())
        self.look()

    def end(self) -> None:
        """Let the nodes find each other, and consume all that is left."""
        self.network.heal()
        self.cluster.clock.jump(15.0)
        self.look()
        for _ in range(3 * self.number + 10):
            self.consume()
            self.cluster.clock.jump(0.1)
            self.look()
            if not self.unacked and len(self.consuming) == len(QUEUES):
                break
            if self.unacked:
                self.consumer.send(1, m.BasicAck(0, True))
                self.unacked.clear()


@pytest.mark.parametrize("seed", range(8))
def test_what_is_confirmed_is_delivered_and_nothing_waits_for_ever(seed: int) -> None:
    schedule = Schedule(seed)
    for _ in range(STEPS):
        schedule.step()
    schedule.end()
    assert set(schedule.answers) == set(range(1, schedule.number + 1))
    confirmed = {schedule.bodies[number] for number, ok in schedule.answers.items() if ok}
    assert confirmed
    for name in QUEUES:
        assert confirmed <= schedule.seen[name]
    assert schedule.publisher.wire.is_reading
    assert schedule.consumer.wire.is_reading
    witness: Any = schedule.cluster["a"].session()
    for name in QUEUES:
        stats = witness.ask(1, m.QueueDeclare(name, passive=True))
        assert (stats.message_count, stats.consumer_count) == (0, 1)
