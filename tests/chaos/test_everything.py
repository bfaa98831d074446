"""Everything that may die does, under load, in random order: nothing is lost and the rest goes on."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from chaos.load import PREFETCH, Consumer, Publisher, Worker
from leveret.actors.runtime.ref import Ref
from leveret.broker.queue.supervisor import RESTARTS_MAX
from leveret.management.node_admin import NodeAdmin
from leveret.supervisors.tree_view import SEPARATOR, Node
from leveret.testing.broker import BrokerThread, memory_config
from leveret.testing.chaos import Chaos
from leveret.testing.history import History
from leveret.testing.tree_paths import PathError
from leveret.testing.vhost import FreshVhost
from rigs.waiting import wait_until

QUEUES = ("kept", "first", "second")  # of a fan-out; the first has no consumer
CONSUMED = QUEUES[1:]
SPACED_S = 301.0  # beyond any intensity's window
PROGRESS = (
    PREFETCH + 1
)  # of each worker, after each death: all its messages from the dead actor are settled
WITHIN_S = 60.0
SEEDS = (1, 2, 3)
CRASHED = "NOT_FOUND - queue '{}' in vhost 'loaded' has crashed and failed to restart"
DOWN = "INTERNAL_ERROR - access to vhost 'loaded' refused for user 'guest': vhost 'loaded' is down"


class Site:
    """A node with a vhost under load, and another that must not notice anything.

    Attributes:
        chaos: of a seed.
        history: what the load's clients do and see.
        workers: the load's clients.
    """

    def __init__(self, node: BrokerThread, seed: int) -> None:
        self.node = node
        self.chaos = Chaos(node.broker, seed, node.run)
        self.history = History()
        self.loaded, self.quiet = FreshVhost(node, "loaded"), FreshVhost(node, "quiet")
        with channel_in(self.loaded) as channel:
            for queue in QUEUES:
                channel.queue_declare(queue, durable=True)
                channel.queue_bind(queue, "amq.fanout")
        url, history = self.loaded.url, self.history
        self.workers: list[Worker] = [
            *(Publisher(url, history, f"publisher{number}", QUEUES) for number in range(2)),
            *(Consumer(url, history, f"consumer of {queue}", queue) for queue in CONSUMED),
        ]
        for worker in self.workers:
            worker.start()

    def goes_on(self, why: object) -> None:
        """See that every client gets on with its work, and that the node answers."""
        before = [worker.done for worker in self.workers]
        with channel_in(self.quiet) as channel:
            channel.queue_declare("q")
            channel.basic_publish("", "q", b"x")
            assert channel.basic_get("q", auto_ack=True)[2] == b"x"
        assert self.node.wait_for(NodeAdmin(self.node.broker).status())["vhosts"] == 3
        for worker, done in zip(self.workers, before, strict=True):
            wait_until(
                lambda worker=worker, done=done: worker.done >= done + PROGRESS,
                lambda worker=worker: f"{worker.name} stands still after {why}: {worker.losses}",
                WITHIN_S,
            )

    def is_left_alone(self) -> None:
        """Let consumers learn, while nothing is done to anybody, that their acks have been taken."""
        consumers = [worker for worker in self.workers if isinstance(worker, Consumer)]
        before = [consumer.settled for consumer in consumers]
        for consumer, settled in zip(consumers, before, strict=True):
            wait_until(
                lambda consumer=consumer, settled=settled: consumer.settled >= settled + 2,
                f"{consumer.name} learns nothing",
                WITHIN_S,
            )

    def stop_load(self) -> None:
        for worker in self.workers:
            worker.over.set()
        for worker in self.workers:
            worker.join(WITHIN_S)
            assert not worker.is_alive(), worker.name
        assert {worker.name: worker.surprises for worker in self.workers if worker.surprises} == {}

    def check(self) -> None:
        """Hold what the queues have against what clients know."""
        look = {queue: self.loaded.queue(queue) for queue in QUEUES}
        self.history.check(
            {name: [body.decode() for body in queue.bodies] for name, queue in look.items()}
        )


@contextmanager
def channel_in(vhost: FreshVhost) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(vhost.url)) as connection:
        yield connection.channel()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(memory_config(data_dir=tmp_path / "data")) as running:
        yield running


@pytest.fixture
def site(node: BrokerThread, request: pytest.FixtureRequest) -> Iterator[Site]:
    site = Site(node, getattr(request, "param", SEEDS[0]))
    try:
        yield site
    finally:
        for worker in site.workers:
            worker.over.set()
        sys.stdout.write(site.chaos.report())


def end_of(site: Site, path: str) -> None:
    """Kill the actor at a path, waiting for it to appear, and assert that it is dead."""
    victims: list[Ref] = []

    def is_there() -> bool:
        with suppress(PathError):  # it is being started
            victims.append(site.chaos.find(path))
        return bool(victims)

    wait_until(is_there, path)
    site.chaos.kill(path)
    wait_until(lambda: not victims[0].is_alive, path)


def place_of(node: Node) -> str:
    """A path in the tree; the actor there may change, since connections come and go."""
    return place_of_path(node.path)


def place_of_path(path: str) -> str:
    labels = path.split(SEPARATOR)
    return SEPARATOR.join(
        "connection" if each.startswith("connection:") else each for each in labels
    )


def is_to_die(node: Node) -> bool:
    """Leave out the quiet vhosts, whose stores hold nothing."""
    return not any(label.startswith("vhost:") for label in node.labels) or (
        "vhost:loaded" in node.labels
    )


def die(site: Site, place: str) -> None:
    """End the actor at a place, and return the actors that end with it."""
    chaos, losses = site.chaos, [len(worker.losses) for worker in site.workers]
    site.node.run(site.node.clock.skip, SPACED_S)
    wait_until(lambda: place in map(place_of, chaos.mortal_nodes()), place)
    there = [node for node in chaos.mortal_nodes() if place_of(node) == place]
    victim, verb = chaos.random.choice(there), chaos.random.choice([chaos.kill, chaos.crash])
    assert victim.ref is not None

    with site.history.disturbance():
        verb(victim)
        wait_until(lambda: not victim.ref.is_alive, place)
        if victim.label.startswith("queue:"):
            put_right(site, victim.label.removeprefix("queue:"))
        site.goes_on(chaos.deeds[-1])
    site.is_left_alone()

    pairs = zip(site.workers, losses, strict=True)
    hit = [worker.name for worker, count in pairs if len(worker.losses) > count]
    if victim.label in {"reader", "channel:1"} or victim.label.startswith("connection:"):
        assert len(hit) <= 1, (place, hit)
    elif victim.label.startswith("queue:"):
        assert set(hit) <= {f"consumer of {victim.label.removeprefix('queue:')}"}, (place, hit)
    elif "listeners" not in victim.labels:
        assert hit == [], (place, [worker.losses for worker in site.workers])


def put_right(site: Site, queue: str) -> None:
    """A queue whose supervisor has died stays down, alone, until its vhost is recovered."""
    with channel_in(site.loaded) as channel:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
            channel.queue_declare(queue, passive=True)
        assert (error.value.reply_code, error.value.reply_text) == (404, CRASHED.format(queue))
    others = [name for name in QUEUES if name != queue]
    assert [site.loaded.queue(name).state for name in others] == ["running"] * len(others)
    end_of(site, "vhost:loaded > msg_store")


def everything_dies(site: Site, times: int) -> None:
    site.goes_on("the start")
    places = sorted({place_of(node) for node in site.chaos.mortal_nodes() if is_to_die(node)})
    labels = {place.rpartition(SEPARATOR)[2] for place in places}
    assert labels >= {"amqqueue", "backing", "queue:kept", "queues", "queues_and_stores"}
    assert labels >= {"reader", "connection", "channel:1", "readers", "connections", "listener"}
    assert labels >= {"metadata_store", "maintenance", "msg_store", "recovery"}
    order = places * times
    site.chaos.random.shuffle(order)

    for place in order:
        die(site, place)

    deaths = Counter(place_of_path(deed.path) for deed in site.chaos.deeds)
    assert {place: deaths[place] for place in places if deaths[place] < times} == {}
    site.stop_load()
    site.check()


def test_every_actor_dies_under_load(site: Site) -> None:
    everything_dies(site, 1)


@pytest.mark.slow
@pytest.mark.parametrize("site", SEEDS, indirect=True)
def test_every_actor_dies_twenty_times_under_load(site: Site) -> None:
    everything_dies(site, 20)


def test_a_queue_that_dies_too_often_stays_down_alone(site: Site) -> None:
    site.goes_on("the start")
    with site.history.disturbance():
        for _ in range(RESTARTS_MAX + 1):
            end_of(site, "queue:kept > backing")
        wait_until(lambda: site.loaded.queue("kept").state == "crashed")
        put_right(site, "kept")
        site.goes_on("the crash of a queue")

    site.stop_load()
    assert [worker.losses for worker in site.workers] == [[]] * len(site.workers)
    site.check()


def test_connections_are_cut_and_everybody_is_slow(site: Site) -> None:
    chaos = site.chaos
    site.goes_on("the start")
    for path in ("connection:*", "queue:* > amqqueue", "queue:* > backing", "connection:* > *"):
        with site.history.disturbance():
            chaos.cut(chaos.choose("connection:*"))
            site.goes_on(chaos.deeds[-1])
        site.is_left_alone()
        with chaos.slow(path, 0.001):
            site.goes_on(chaos.deeds[-1])
        chaos.pause(path).resume()
        site.goes_on(chaos.deeds[-1])

    site.stop_load()
    site.check()


def test_a_store_that_crashes_twice_in_five_minutes_has_its_vhost_recovered(site: Site) -> None:
    site.goes_on("the start")
    for _ in range(2):
        with site.history.disturbance():
            end_of(site, "vhost:loaded > msg_store")
            site.goes_on("the crash of the store")
        site.is_left_alone()

    site.stop_load()
    assert [worker.losses for worker in site.workers] == [[]] * len(site.workers)
    site.check()


def test_the_third_crash_takes_the_vhost_down_alone_and_nothing_is_lost(
    site: Site, node: BrokerThread
) -> None:
    site.goes_on("the start")
    with site.history.disturbance():
        for _ in range(3):
            end_of(site, "vhost:loaded > msg_store")
            wait_until(lambda: is_settled(site), within_s=WITHIN_S)

    with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as error, channel_in(site.loaded):
        pass
    assert DOWN in str(error.value)
    with channel_in(site.quiet) as channel:
        channel.queue_declare("q")
    site.stop_load()
    node.stop()
    node.start()
    site.check()


def is_settled(site: Site) -> bool:
    """Whether the vhost has been recovered, or stays down."""
    labels = {node.label for node in site.chaos.nodes() if "vhost:loaded" in node.labels}
    return not labels or labels >= {f"queue:{queue}" for queue in QUEUES}
