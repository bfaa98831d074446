"""Three nodes and an etcd on this machine; one node is killed while clients use its queue, and comes back.

pip install 'leveret[cluster]' pika
python examples/cluster/fail_over.py            # needs the program etcd (Debian: apt install etcd-server)
python examples/cluster/fail_over.py --stay     # the nodes go on until Ctrl-C, for clients of your own
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker, NackError

NAMES = ("ann", "bob", "cem")
PERSISTENT = pika.BasicProperties(delivery_mode=2)
START_S = 60


class Cluster:
    """Processes that are one broker, their data in a folder."""

    def __init__(self, folder: Path, etcd: str) -> None:
        self._folder = folder
        self._port = free_port()
        self._environment = os.environ | {"LEVERET_CLUSTER_SECRET": secrets.token_hex(32)}
        self._nodes: dict[str, subprocess.Popen[str]] = {}
        self.ports: dict[str, int] = {}
        self._etcd = self._spawn("etcd", [
            etcd, "--data-dir", str(folder / "etcd"), "--listen-peer-urls", "http://127.0.0.1:0",
            "--listen-client-urls", self.etcd_url, "--advertise-client-urls", self.etcd_url,
        ])  # fmt: skip

    @property
    def etcd_url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self, name: str) -> None:
        """Start a node; return when it serves clients."""
        node = self._nodes[name] = self._spawn(name, [
            sys.executable, "-m", "leveret", "serve", "--listen", "127.0.0.1:0",
            "--data", str(self._folder / name), "--cluster", "example", "--etcd", self.etcd_url,
            "--node", name, "--cluster-listen", "127.0.0.1:0",
        ])  # fmt: skip
        assert node.stdout is not None
        for line in node.stdout:
            if ready := re.match(r"leveret \S+ ready: amqp://.+?:(\d+) ", line):
                self.ports[name] = int(ready[1])
                return
        sys.exit(f"node {name} did not start:\n{(self._folder / f'{name}.log').read_text()}")

    def kill(self, name: str) -> None:
        """End a node as a power cut would."""
        end(self._nodes[name])

    def stop(self) -> None:
        """End all nodes in order, then etcd."""
        for node in self._nodes.values():
            node.terminate()
        for node in self._nodes.values():
            end(node, within_s=15)
        end(self._etcd)

    def _spawn(self, name: str, command: list[str]) -> subprocess.Popen[str]:
        with (self._folder / f"{name}.log").open("a") as log:
            output = log if name == "etcd" else subprocess.PIPE
            return subprocess.Popen(
                command, env=self._environment, stdout=output, stderr=log, text=True
            )


def end(process: subprocess.Popen[str], *, within_s: float = 0.0) -> None:
    """Kill a process, unless it ends by itself in time."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(within_s)
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@contextmanager
def channel(cluster: Cluster, name: str) -> Iterator[BlockingChannel]:
    """A channel at a node, with publisher confirms."""
    place = pika.ConnectionParameters("127.0.0.1", cluster.ports[name])
    connection = pika.BlockingConnection(place)
    try:
        opened = connection.channel()
        opened.confirm_delivery()
        yield opened
    finally:
        if connection.is_open:
            connection.close()


def publish(opened: BlockingChannel, queue: str, count: int) -> None:
    for number in range(count):
        opened.basic_publish("", queue, b"%d" % number, PERSISTENT, mandatory=True)


def is_down(cluster: Cluster, through: str, queue: str) -> str:
    """Wait until a node knows that a queue's node is gone; return what it answers."""
    for _ in range(100):
        try:
            with channel(cluster, through) as asking:
                asking.queue_declare(queue, passive=True)
        except ChannelClosedByBroker as error:
            return f"{error.reply_code} {error.reply_text}"
        time.sleep(0.1)
    sys.exit(f"{through} still says that {queue} runs")


def show(cluster: Cluster) -> None:
    """Show what clients see while a node is killed and started again."""
    for name in NAMES:
        cluster.start(name)
    print("three nodes serve:", ", ".join(NAMES))
    with channel(cluster, "ann") as at_ann, channel(cluster, "bob") as at_bob:
        at_ann.queue_declare("orders", durable=True)  # on the node of the client that declares it
        at_bob.queue_declare("invoices", durable=True)
        publish(at_bob, "orders", 100)
        print("orders, on ann, has 100 messages that were published at bob and confirmed")

        cluster.kill("ann")
        print("ann is killed")
        try:
            at_ann.connection.process_data_events(10)
        except AMQPConnectionError as error:
            print(f"  a client at ann: {type(error).__name__}")
        print("  a client at bob asks for orders:", is_down(cluster, "bob", "orders"))
        try:
            at_bob.basic_publish("", "orders", b"not taken", PERSISTENT)
        except NackError:
            print("  a client at bob publishes to orders: nacked")
        publish(at_bob, "invoices", 10)
        print("  a client at bob publishes to invoices, on bob: confirmed")

        cluster.start("ann")
        print("ann is started again")
        count = at_bob.queue_declare("orders", durable=True, passive=True).method.message_count
        print(f"  a client at bob asks for orders: {count} messages")
        found = [at_bob.basic_get("orders", auto_ack=True)[2] for _ in range(count)]
        assert found == [b"%d" % number for number in range(100)], found
        print("  all 100 are there, in order")


def main() -> None:
    etcd = shutil.which("etcd")
    if etcd is None:
        sys.exit("no program etcd on PATH (Debian: apt install etcd-server)")
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), etcd)
        try:
            show(cluster)
            if "--stay" in sys.argv[1:]:
                for name, port in cluster.ports.items():
                    print(f"{name}: amqp://guest:guest@127.0.0.1:{port}/ data={folder}/{name}")
                with suppress(KeyboardInterrupt):
                    while True:
                        time.sleep(60)
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
