"""Kills and partitions of a cluster of real processes under load: nothing that was confirmed is lost.

Three nodes of ``leveret serve --cluster``, a real etcd, and relays between all of them. Clients of every node publish
to queues of every node and consume from them. A round is one fault; after it the cluster has to be whole again by
itself, and what clients saw is judged by ``leveret.testing.history``. ``LEVERET_CLUSTER_ROUNDS`` says how many rounds
of each fault ``--slow`` plays. On a machine with much else to do processes stand still for seconds: there
``LEVERET_SLOWNESS=4`` has the nodes wait four times as long for one another.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from conformance.raw import Channel
from leveret.testing.history import History
from rigs.cluster.cluster_clients import FAN_OUT, ClusterClient, ClusterConsumer, ClusterPublisher
from rigs.cluster.cluster_processes import ProcessCluster, channel_of, process_cluster
from rigs.cluster.etcd import Etcd
from rigs.waiting import wait_until

ROUNDS = int(os.environ.get("LEVERET_CLUSTER_ROUNDS", "50"))
FIGURES = os.environ.get("LEVERET_CLUSTER_FIGURES", "")  # a file: a line of JSON for each round
STOP_S = 20.0
WHOLE_S = 5.0 * int(os.environ.get("LEVERET_SLOWNESS", "1"))
PATIENCE_S = 300.0  # for a machine with much else to do: before something counts as hanging


class Healed(NamedTuple):
    """The end of a fault.

    Attributes:
        at_s: when it was.
        waited_s: how long the nodes had been waiting for a processor then.
    """

    at_s: float
    waited_s: float


# A fault that lasts so many seconds at most; it returns when it has ended.
Fault = Callable[[ProcessCluster, Random, float], Healed]


def healed(cluster: ProcessCluster) -> Healed:
    return Healed(time.monotonic(), cluster.waited_s())


def killed(cluster: ProcessCluster, random: Random, most_s: float) -> Healed:
    """``kill -9``; the time begins when it is started again."""
    node = cluster[random.choice(cluster.names)]
    node.kill9()
    time.sleep(random.random() * most_s)
    now = healed(cluster)
    node.start()
    return now


def stopped(cluster: ProcessCluster, random: Random, most_s: float) -> Healed:
    """SIGSTOP and SIGCONT: for longer than its lease."""
    node = cluster[random.choice(cluster.names)]
    node.pause()
    time.sleep(min(STOP_S, most_s * 2))
    node.resume()
    return healed(cluster)


def cut_off(cluster: ProcessCluster, random: Random, most_s: float) -> Healed:
    """Cut from the other nodes, but not from etcd."""
    name = random.choice(cluster.names)
    return _cut(cluster, name, cluster.others(name), random.random() * most_s)


def cut_from_etcd(cluster: ProcessCluster, random: Random, most_s: float) -> Healed:
    return _cut(cluster, random.choice(cluster.names), ["etcd"], random.random() * most_s)


def cut_from_each_other(cluster: ProcessCluster, random: Random, most_s: float) -> Healed:
    """Two nodes, which are both linked with the third."""
    one, other = random.sample(cluster.names, 2)
    return _cut(cluster, one, [other], random.random() * most_s)


def _cut(cluster: ProcessCluster, name: str, those: list[str], for_s: float) -> Healed:
    cluster.relays.cut(name, those)
    time.sleep(for_s)
    cluster.relays.heal()
    return healed(cluster)


FAULTS: list[Fault] = [killed, stopped, cut_off, cut_from_etcd, cut_from_each_other]


class Round:
    """Clients on all nodes, from before a fault until after it."""

    def __init__(self, cluster: ProcessCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._worked = [f"worked-{name}" for name in cluster.names]
        self._queues = [*self._worked, *(f"kept-{name}" for name in cluster.names)]
        self.history = History()
        nodes = list(cluster.nodes.values())
        self.publishers = [
            ClusterPublisher(node, self.history, self._queues, Random(random.random()))
            for node in nodes
        ]
        self.consumers = [
            ClusterConsumer(node, self.history, queue) for node in nodes for queue in self._worked
        ]

    @property
    def clients(self) -> list[ClusterClient]:
        return [*self.publishers, *self.consumers]

    def begin(self) -> None:
        """Start the clients; return when all of them have something to do."""
        for name in self._cluster.names:
            with channel_of(self._cluster[name]) as channel:
                channel.ok("exchange.declare", exchange=FAN_OUT, type="fanout", durable=True)
                for queue in (f"worked-{name}", f"kept-{name}"):
                    channel.ok("queue.declare", queue=queue, durable=True)
                    channel.ok("queue.bind", queue=queue, exchange=FAN_OUT)
        for client in self.clients:
            client.start()
        self.all_work()

    def all_work(self) -> None:
        """Wait until all clients have got on."""
        before = {client: _progress(client) for client in self.clients}

        def do() -> bool:
            for client in self.clients:
                if client.error is not None:
                    raise client.error
            return all(_progress(client) > before[client] for client in self.clients)

        wait_until(
            do, lambda: [c.name for c in self.clients if _progress(c) <= before[c]], PATIENCE_S
        )

    def end(self) -> None:
        """End the clients, and hold what the queues have to what they saw."""
        for client in self.publishers:
            client.is_ending = True
        for client in self.publishers:
            client.join_or_raise()
        for consumer in self.consumers:
            consumer.is_ending = True
        for consumer in self.consumers:
            consumer.join_or_raise()
        with channel_of(self._cluster[self._random.choice(self._cluster.names)]) as channel:
            self.history.check({queue: _taken(channel, queue) for queue in self._queues})

    def stats(self) -> dict[str, float]:
        """Return what publishers have been answered, and the longest time until then."""
        found: dict[str, float] = {
            what: sum(getattr(each, what) for each in self.publishers)
            for what in ("confirmed", "nacked", "returned", "closed")
        }
        found["redelivered"] = sum(each.redelivered for each in self.consumers)
        found["slowest_s"] = round(max(each.slowest_s for each in self.publishers), 2)
        return found


def _progress(client: ClusterClient) -> int:
    if isinstance(client, ClusterPublisher):
        return client.confirmed
    assert isinstance(client, ClusterConsumer)
    return client.delivered


def _taken(channel: Channel, queue: str) -> list[str]:
    """Take all messages of a queue."""
    count = channel.ready(queue)
    if not count:
        return []
    channel.ok("basic.consume", queue=queue, consumer_tag="look", no_ack=True)
    names = [body.decode() for body in channel.bodies(count)]
    channel.ok("basic.cancel", consumer_tag="look")
    assert channel.ready(queue) == 0, "messages have come that nobody was about to publish"
    return names


class Played(NamedTuple):
    """A round.

    Attributes:
        fault: of the round.
        fault_s: how long it lasted.
        whole_s: how long it took then until the cluster was whole again.
        waited_s: how long nodes waited for a processor meanwhile, each of them, all together.
        figures: of the clients.
    """

    fault: str
    fault_s: float
    whole_s: float
    waited_s: float
    stats: dict[str, float]


def play(cluster: ProcessCluster, fault: Fault, random: Random, most_s: float) -> Played:
    """Play one round."""
    clients = Round(cluster, random)
    clients.begin()
    began_s = time.monotonic()
    with clients.history.disturbance():
        end = fault(cluster, random, most_s)
        whole_s = cluster.until_whole(end.at_s)
        waited_s = cluster.waited_s() - end.waited_s
        clients.all_work()
    clients.end()
    played = Played(fault.__name__, end.at_s - began_s, whole_s, waited_s, clients.stats())
    if FIGURES:
        with Path(FIGURES).open("a") as file:
            file.write(json.dumps(played._asdict()) + "\n")
    return played


def test_nothing_confirmed_is_lost_in_a_short_cut_and_a_kill(
    tmp_path: Path, etcd: Etcd, name: str, rng: Random
) -> None:
    with process_cluster(tmp_path, etcd, name) as cluster:
        for fault in (cut_from_each_other, killed):
            play(cluster, fault, rng, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_nothing_confirmed_is_lost_in_many_rounds(
    tmp_path: Path, etcd: Etcd, name: str, rng: Random, fault: Fault
) -> None:
    with process_cluster(tmp_path, etcd, name) as cluster:
        played = [play(cluster, fault, rng, 12.0) for _ in range(ROUNDS)]
    # Real time, for this is promised to people. That in which nodes had no processor does not count.
    assert max(each.whole_s - each.waited_s for each in played) < WHOLE_S, played
