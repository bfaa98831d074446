"""Cuts of a cluster of three nodes under load, in virtual time: nothing that was confirmed is lost.

A client of each node publishes to queues of all nodes, one for each queue of other clients consumes. In a round one
node is cut off from another, from both, from etcd, or from all. What clients have seen is judged by
``leveret.testing.history``; every publish must be answered, and all must go on soon after the cut has ended.
``tests/broker/cluster/test_process_histories.py`` does the same with processes, and kills them, too.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from leveret.amqp import methods as m
from leveret.testing.history import History
from rigs.broker_rig import Client, durable
from rigs.cluster.etcd_cluster import EtcdCluster

NAMES = "abc"
WORKED = [f"worked-{name}" for name in NAMES]
QUEUES = [*WORKED, *(f"kept-{name}" for name in NAMES)]
FAN_OUT = "fan-out"
STEP_S = 0.1
WHOLE_S = 5.0
MOST_S = 20.0  # of a cut: longer than a lease


class Connected:
    """A client of one node, which makes another connection when one has ended.

    Attributes:
        life: names the channel.
    """

    def __init__(self, cluster: EtcdCluster, node: str, history: History, what: str) -> None:
        self._cluster = cluster
        self._node = node
        self._what = what
        self._lives = 0
        self.history = history
        self.client: Client | None = None
        self.life = ""

    def step(self) -> bool:
        """Take what has come; return whether the client may send."""
        if self._cluster.clocks[self._node].is_stopped:
            return False
        if self.client is None:
            self._connect()
        client = self.client
        if client is None:
            return False
        taken = client.take()
        for at, each in enumerate(taken):
            if isinstance(each, m.ConnectionClose):
                client.hang_up()
                self.client = None
                self.ended()
                return False
            if type(each) is not bytes:
                self.told(each, taken[at + 1 : at + 2])
        return self.client is not None and client.is_up and client.wire.is_reading

    def _connect(self) -> None:
        client = self._cluster[self._node].client()
        client.log_in()
        client.send(1, m.ChannelOpen())
        if type(client.take()[-1]) is m.ChannelOpenOk:
            self._lives += 1
            self.life = f"{self._what}, {self._lives}"
            self.client = client
            self.opened(client)
        else:
            client.hang_up()

    def opened(self, client: Client) -> None:
        """Begin on a new channel."""

    def told(self, method: Any, body: list[bytes]) -> None:
        """Take one method."""

    def ended(self) -> None:
        """The connection has ended."""


class Publisher(Connected):
    """Publishes one message to each queue, and one to all of them.

    Attributes:
        waiting: publishes that are not answered.
        reached: when the last message was sent that was confirmed by each queue.
    """

    def __init__(self, cluster: EtcdCluster, node: str, history: History) -> None:
        super().__init__(cluster, node, history, f"publisher at {node}")
        self._numbers = 0
        self._tag = 0
        self.waiting: dict[int, tuple[str, str, float]] = {}
        self.reached = dict.fromkeys([*QUEUES, FAN_OUT], -1.0)

    def opened(self, client: Client) -> None:
        assert type(client.ask(1, m.ConfirmSelect())) is m.ConfirmSelectOk
        self._tag = 0

    def publish(self) -> None:
        assert self.client is not None
        for target in [*QUEUES, FAN_OUT]:
            self._tag += 1
            self._numbers += 1
            name = f"{self._node}{self._numbers}"
            is_fan_out = target == FAN_OUT
            self.history.sent(self.life, name, *(QUEUES if is_fan_out else [target]))
            self.waiting[self._tag] = name, target, self._cluster.clock.monotonic_s()
            key, exchange = ("", FAN_OUT) if is_fan_out else (target, "")
            self.client.publish(
                1, key, name.encode(), exchange=exchange, mandatory=True, delivery_mode=2
            )

    def told(self, method: Any, body: list[bytes]) -> None:
        if isinstance(method, m.BasicReturn):
            return
        assert isinstance(method, m.BasicAck | m.BasicNack), method
        tags = [method.delivery_tag]
        if method.multiple:
            tags = [tag for tag in self.waiting if tag <= method.delivery_tag]
        for tag in tags:
            assert tag in self.waiting, f"answered twice: {method}"
            name, target, sent_s = self.waiting.pop(tag)
            if isinstance(method, m.BasicAck):
                self.history.confirmed(name)
                self.reached[target] = sent_s

    def ended(self) -> None:
        self.waiting.clear()


class Consumer(Connected):
    """Consumes a queue, and acknowledges what it has got up to its last look.

    Attributes:
        is_subscribed: the queue delivers.
    """

    def __init__(self, cluster: EtcdCluster, node: str, history: History, queue: str) -> None:
        super().__init__(cluster, node, history, f"consumer of {queue} at {node}")
        self._queue = queue
        self._held: list[tuple[int, str]] = []
        self.is_subscribed = False

    def opened(self, client: Client) -> None:
        client.send(1, m.BasicQos(prefetch_count=20))

    def work(self) -> None:
        """Acknowledge, or subscribe again."""
        assert self.client is not None
        if self._held:
            for _, name in self._held:
                self.history.acked(self._queue, self.life, name)
            tag = self._held[-1][0]
            self._held.clear()
            self.client.send(1, m.BasicAck(tag, multiple=True))
        elif not self.is_subscribed:
            self.client.send(1, m.BasicConsume(self._queue, "c"))

    def told(self, method: Any, body: list[bytes]) -> None:
        assert self.client is not None
        if isinstance(method, m.BasicDeliver):
            name = body[0].decode()
            self.history.delivered(self._queue, self.life, name, method.redelivered)
            self._held.append((method.delivery_tag, name))
        elif isinstance(method, m.BasicConsumeOk):
            self.is_subscribed = True
        elif isinstance(method, m.BasicCancel):
            self.is_subscribed = False
        elif isinstance(method, m.ChannelClose):
            assert method.reply_code == 404, method
            self.client.send(1, m.ChannelCloseOk(), m.ChannelOpen())
            self.client.send(1, m.BasicQos(prefetch_count=20))
            self.ended()

    def ended(self) -> None:
        self.is_subscribed = False
        self._held.clear()


class Clients:
    """The clients of all nodes, and what they have seen in this round."""

    def __init__(self, cluster: EtcdCluster) -> None:
        self._cluster = cluster
        self.history = History()
        self.publishers = [Publisher(cluster, name, self.history) for name in NAMES]
        self.consumers = [
            Consumer(cluster, name, self.history, queue) for name in NAMES for queue in WORKED
        ]

    def go_on(self, for_s: float, *, is_publishing: bool = True) -> None:
        clock = self._cluster.clock
        end_s = clock.monotonic_s() + for_s
        while clock.monotonic_s() < end_s:
            for publisher in self.publishers:
                if publisher.step() and is_publishing:
                    publisher.publish()
            for consumer in self.consumers:
                if consumer.step():
                    consumer.work()
            clock.jump(min(STEP_S, max(0.001, end_s - clock.monotonic_s())))

    def have_all_since(self, since_s: float) -> bool:
        """Return whether each publisher has reached each queue since then, and all consumers are subscribed."""
        return all(
            reached_s > since_s for each in self.publishers for reached_s in each.reached.values()
        ) and all(each.is_subscribed for each in self.consumers)

    def end(self, random: Random) -> None:
        """Have all publishes answered, and all of the worked queues consumed; judge the history."""
        self.go_on(3.0, is_publishing=False)
        assert [each.waiting for each in self.publishers] == [{}] * len(NAMES)
        self.history.check({queue: self._taken(random, queue) for queue in QUEUES})
        for each in [*self.publishers, *self.consumers]:
            if each.client is not None:
                each.client.hang_up()
        self._cluster.clock.jump(1.0)

    def _taken(self, random: Random, queue: str) -> list[str]:
        witness = self._cluster[random.choice(NAMES)].session()
        witness.send(1, m.BasicConsume(queue, "look", no_ack=True))
        self._cluster.clock.jump(1.0)
        names = [body.decode() for body in witness.bodies()]
        witness.hang_up()
        return names


Cut = Callable[[EtcdCluster, str, Random], None]


def from_one(cluster: EtcdCluster, name: str, random: Random) -> None:
    cluster.network.silence(name, random.choice([each for each in NAMES if each != name]))


def from_others(cluster: EtcdCluster, name: str, random: Random) -> None:
    for other in NAMES:
        if other != name:
            cluster.network.silence(name, other)


def from_etcd(cluster: EtcdCluster, name: str, random: Random) -> None:
    cluster.stores[name].client.faults.is_cut = True


def from_all(cluster: EtcdCluster, name: str, random: Random) -> None:
    from_others(cluster, name, random)
    from_etcd(cluster, name, random)


def stopped(cluster: EtcdCluster, name: str, random: Random) -> None:
    """As SIGSTOP does."""
    cluster.stop(name)


def heal(cluster: EtcdCluster) -> None:
    for name in NAMES:
        cluster.stores[name].client.faults.is_cut = False
        cluster.resume(name)


def play(cluster: EtcdCluster, cut: Cut, random: Random) -> float:
    """Play one round; return how long it took after the cut until all clients went on."""
    clients = Clients(cluster)
    clients.go_on(1.0)
    with clients.history.disturbance():
        cut(cluster, random.choice(NAMES), random)
        clients.go_on(random.random() * MOST_S)
        heal(cluster)
        healed_s = cluster.clock.monotonic_s()
        while not clients.have_all_since(healed_s):
            assert cluster.clock.monotonic_s() < healed_s + 60, "it is never whole again"
            clients.go_on(STEP_S)
    whole_s = cluster.clock.monotonic_s() - healed_s
    clients.end(random)
    assert clients.history.confirmed_count > 100
    return whole_s


@pytest.fixture
def cluster() -> EtcdCluster:
    cluster = EtcdCluster(NAMES)
    for name in NAMES:
        there = cluster[name].session()
        there.ask(1, m.ExchangeDeclare(FAN_OUT, "fanout", durable=True))
        for queue in (f"worked-{name}", f"kept-{name}"):
            there.ask(1, durable(queue))
            there.ask(1, m.QueueBind(queue, FAN_OUT))
    cluster.settle_s = 0.0
    return cluster


CUTS: list[Cut] = [from_one, from_others, from_etcd, from_all, stopped]


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.__name__)
def test_nothing_is_lost_and_all_is_whole_soon_after_a_cut(
    cluster: EtcdCluster, cut: Cut, rng: Random
) -> None:
    assert play(cluster, cut, rng) < WHOLE_S


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.__name__)
def test_nothing_is_lost_in_many_cuts(cluster: EtcdCluster, cut: Cut, rng: Random) -> None:
    assert max(play(cluster, cut, rng) for _ in range(50)) < WHOLE_S
