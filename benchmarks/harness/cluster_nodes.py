#!/usr/bin/env python3
"""Three nodes of a cluster, as children of this process, until its standard input is closed.

    python benchmarks/harness/cluster_nodes.py leveret-c|leveret-py|rabbitmq

Leveret's have one etcd, which is a child, too. When all is ready a line of JSON tells the port of each node. Queues
whose names begin with ``lg.`` come to the last one, whatever node they are declared on: by the locator
``min-masters``, for which the others have queues that nobody uses.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))  # also where PYTHONSAFEPATH is set
from harness import brokers
from harness.peer import Peer

from leveret.amqp.methods import QueueDeclare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.brokers import Broker

NODES = 3
UNUSED_QUEUES = 100
POLICY = ("placed", r"^lg\.", '{"queue-master-locator":"min-masters"}')
START_S = 30.0


def main() -> None:
    name = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="leveret-bench") as folder:
        start = rabbitmq if name == "rabbitmq" else leveret
        with start(Path(folder), name) as nodes:
            for node in nodes[:-1]:
                peer = Peer((node.host, node.port))
                names = [f"unused.{node.port}.{number}" for number in range(UNUSED_QUEUES)]
                peer.calls(1, [QueueDeclare(each, durable=True) for each in names])
                peer.close()
            print(json.dumps([node.port for node in nodes]), flush=True)
            sys.stdin.read()


@contextmanager
def leveret(folder: Path, name: str) -> Iterator[list[Broker]]:
    """Run Leveret's nodes, and their etcd."""
    os.environ["LEVERET_CLUSTER_SECRET"] = secrets.token_hex()
    with etcd(folder) as url, ExitStack() as stack:
        nodes = []
        for number in range(NODES):
            (own := folder / str(number)).mkdir()
            options = ["--cluster", "bench", "--etcd", url, "--node", f"n{number}"]
            options += ["--cluster-listen", "127.0.0.1:0"]
            kernel = name.removeprefix("leveret-")
            nodes.append(stack.enter_context(brokers.leveret_in(own, kernel, options=options)))
        control = [*brokers.leveret_command(), "ctl", "--data", f"{folder}/0/data", "-q"]
        subprocess.run(
            [*control, "set_policy", *POLICY], check=True, env=brokers.environment(), cwd=folder
        )
        yield nodes


@contextmanager
def etcd(folder: Path) -> Iterator[str]:
    """Run an etcd with its defaults; its clients' URL."""
    program = shutil.which("etcd")
    if program is None:
        raise brokers.StartError("no etcd on PATH; install etcd-server")
    url, peers = (f"http://127.0.0.1:{brokers.free_port()}" for _ in range(2))
    command = [program, "--data-dir", f"{folder}/etcd", "--listen-peer-urls", peers]
    command += ["--listen-client-urls", url, "--advertise-client-urls", url]
    command += ["--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}"]
    with (folder / "etcd.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _await_health(url)
        yield url
    finally:
        process.terminate()
        process.wait()


def _await_health(url: str) -> None:
    end_s = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (OSError, urllib.error.URLError) as error:
            if time.monotonic() > end_s:
                raise brokers.StartError(f"etcd was not ready within {START_S:g} s") from error
            time.sleep(0.1)


@contextmanager
def rabbitmq(folder: Path, _: str) -> Iterator[list[Broker]]:
    """Run RabbitMQ's nodes."""
    with ExitStack() as stack:
        nodes = []
        for number in range(NODES):
            node = f"leveret_bench_{os.getpid()}_{number}@localhost"
            nodes.append(stack.enter_context(brokers.rabbitmq(node=node)))
        for other in nodes[1:]:
            for words in (["stop_app"], ["join_cluster", nodes[0].node], ["start_app"]):
                _rabbitmqctl(folder, other, *words)
        _rabbitmqctl(folder, nodes[0], "set_policy", *POLICY)
        yield nodes


def _rabbitmqctl(folder: Path, node: Broker, *words: str) -> None:
    command = ["rabbitmqctl", "-q", "-n", node.node, *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)


if __name__ == "__main__":
    main()
