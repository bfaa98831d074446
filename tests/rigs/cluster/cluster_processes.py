"""A cluster of real processes: ``leveret serve --cluster`` with a real etcd, and relays between all of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import SystemRandom

from conformance.raw import Channel, Connection
from leveret.testing.relays import Relays
from rigs.cluster.etcd import Etcd
from rigs.cluster.served_cluster import SECRET
from rigs.nodes import BrokerUnderTest, kill_leveret, start_leveret, stop_leveret
from rigs.waiting import wait_until

PROGRAM = Path(__file__).with_name("relayed_serve.py")
WHOLE_MAX_S = 300.0  # for a machine with much else to do
_LOOK_S = 0.02


class ClusterNode:
    """One node, which may be killed and started again on its data.

    Args:
        name: of the node.
        folder: for its data and its log.
        arguments: of ``leveret serve``.
        environment: of the process.
    """

    broker: BrokerUnderTest

    def __init__(
        self, name: str, folder: Path, arguments: list[str], environment: dict[str, str]
    ) -> None:
        self.name = name
        self.folder = folder
        self._arguments = arguments
        self._environment = environment
        self.is_running = False

    @property
    def address(self) -> tuple[str, int]:
        """Where clients connect; another one after each start."""
        return self.broker.place

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self.folder.mkdir(exist_ok=True)
        program = [sys.executable, "-P", str(PROGRAM)]
        self.broker = start_leveret(
            self.folder, *self._arguments, program=program, **self._environment
        )
        self.is_running = True

    def kill9(self) -> None:
        self.is_running = False
        kill_leveret(self.broker)

    def pause(self) -> None:
        """Stop all its threads; they have stopped when this returns."""
        assert self.broker.pid is not None
        os.kill(self.broker.pid, signal.SIGSTOP)
        os.waitpid(self.broker.pid, os.WUNTRACED)

    def resume(self) -> None:
        assert self.broker.pid is not None
        os.kill(self.broker.pid, signal.SIGCONT)

    def stop(self) -> None:
        self.is_running = False
        stop_leveret(self.broker)


class ProcessCluster:
    """Nodes by name, each linked with all others by relays, and with etcd by one.

    Args:
        folder: for the nodes' folders.
        etcd: that they use.
        cluster: name of the cluster.
        names: of the nodes.
        relays: between them; etcd's name is ``etcd``.

    Attributes:
        nodes: by name.
        relays: as given.
    """

    def __init__(self, folder: Path, etcd: Etcd, cluster: str, names: str, relays: Relays) -> None:
        self.relays = relays
        self.names = names
        relays.place("etcd", f"127.0.0.1:{etcd.port}")
        self.nodes: dict[str, ClusterNode] = {}
        ports = dict(zip(names, _free_ports(len(names)), strict=True))
        for name in names:
            relays.place(name, f"127.0.0.1:{ports[name]}")
            others = {f"{other}:1": relays.address(name, other) for other in names if other != name}
            environment = {"LEVERET_CLUSTER_SECRET": SECRET, "LEVERET_RELAYS": json.dumps(others)}
            arguments = [
                "--cluster", cluster, "--node", name,
                "--etcd", f"http://{relays.address(name, 'etcd')}",
                "--cluster-listen", f"127.0.0.1:{ports[name]}", "--cluster-advertise", f"{name}:1",
            ]  # fmt: skip
            self.nodes[name] = ClusterNode(name, folder / name, arguments, environment)

    def __getitem__(self, name: str) -> ClusterNode:
        return self.nodes[name]

    def others(self, name: str) -> list[str]:
        return [other for other in self.names if other != name]

    def declare_probes(self) -> None:
        """Declare a queue on each node, for ``until_whole``."""
        for name in self.names:
            with channel_of(self[name]) as channel:
                channel.ok("queue.declare", queue=f"probe-{name}", durable=True)

    def waited_s(self) -> float:
        """Return how long the nodes that run have been waiting for a processor so far, which other work had."""
        pids = [node.broker.pid for node in self.nodes.values() if node.is_running]
        files = [Path(f"/proc/{pid}/schedstat") for pid in pids]
        return sum(int(file.read_text().split()[1]) for file in files if file.exists()) / 1e9

    def until_whole(self, since_s: float) -> float:
        """Wait until clients of every node publish to a queue of every node, and get the message.

        Returns:
            How many seconds it took since ``since_s``.
        """
        pairs = [(by, to) for by in self.names for to in self.names]
        fault: object = None

        def is_whole() -> bool:
            nonlocal fault
            while pairs and (fault := self._fault(*pairs[0])) is None:
                del pairs[0]
            return not pairs

        left_s = since_s + WHOLE_MAX_S - time.monotonic()
        wait_until(is_whole, lambda: f"from, to {pairs[0]}: {fault}", left_s, _LOOK_S)
        return time.monotonic() - since_s

    def _fault(self, by: str, to: str) -> object:
        """Return why a message does not get from a client of one node to a queue of another and back; None: it does."""
        try:
            with channel_of(self[by]) as channel:
                channel.ok("confirm.select")
                body = os.urandom(8)
                channel.publish(f"probe-{to}", body, mandatory=True, delivery_mode=2)
                if (event := channel.read()).name != "basic.ack":
                    return event
                while (event := channel.get(f"probe-{to}")).body != body:
                    if event.name != "basic.get-ok":
                        return event
        except (AssertionError, OSError) as error:
            return error
        return None


@contextmanager
def process_cluster(
    folder: Path, etcd: Etcd, cluster: str, names: str = "abc"
) -> Iterator[ProcessCluster]:
    """Run a cluster; in the end its nodes are stopped in order, or killed if there was an error."""
    with Relays() as relays, ExitStack() as ends:
        made = ProcessCluster(folder, etcd, cluster, names, relays)
        for node in made.nodes.values():
            node.start()
            ends.callback(_kill, node)
        made.declare_probes()
        yield made
        for node in made.nodes.values():
            node.stop()


@contextmanager
def channel_of(node: ClusterNode) -> Iterator[Channel]:
    """Open a channel on a connection of its own."""
    connection = Connection(node.address)
    try:
        opened = connection.open()
        assert opened.name == "connection.open-ok", opened
        yield connection.channel()
    finally:
        connection.drop()


def _kill(node: ClusterNode) -> None:
    if node.is_running:
        node.kill9()


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, below those that systems give to outgoing connections."""
    ports: list[int] = []
    while len(ports) < count:
        port = SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
    return ports
