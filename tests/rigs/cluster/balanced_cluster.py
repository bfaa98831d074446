"""A cluster behind a balancer: one address, and every connection is made with another node.

As a program it serves until it is stopped, for suites of clients that are not part of this one::

    PYTHONSAFEPATH=1 PYTHONPATH=tests .venv/bin/python -m rigs.cluster.balanced_cluster --port 5672
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path

from rigs.cluster.balancer import Balancer
from rigs.cluster.etcd import Etcd
from rigs.cluster.served_cluster import nodes
from rigs.nodes import BrokerUnderTest

SLOW_SERVE = Path(__file__).with_name("relayed_serve.py")
SLOWNESS = 10
FIRST = {"set_vm_memory_high_watermark", "set_disk_free_limit"}
EACH = {"trace_on", "trace_off"}


class Operator:
    """Gives every command to another node; those that are about one node to the first, or to each."""

    def __init__(self, nodes: Sequence[BrokerUnderTest]) -> None:
        self._nodes = nodes
        self._turns = cycle(nodes)

    def control(self, *words: str) -> str:
        """Run ``leveret ctl`` and return what it has printed."""
        if EACH.intersection(words):
            for node in self._nodes[1:]:
                node.control(*words)
            return self._nodes[0].control(*words)
        node = self._nodes[0] if FIRST.intersection(words) else next(self._turns)
        return node.control(*words)


@contextmanager
def balanced(
    folder: Path, etcd: Etcd, cluster: str, count: int, port: int = 0, *, is_patient: bool = False
) -> Iterator[BrokerUnderTest]:
    """One address for a cluster: each connection, and each command of an operator, goes to another node.

    The balancer tells the nodes the addresses of the clients, by the PROXY protocol.

    Args:
        folder: where the nodes have theirs.
        etcd: of the cluster.
        cluster: its name.
        count: of its nodes, named ``a``, ``b``, ...
        port: of the balancer; 0: a free one.
        is_patient: the nodes wait for etcd and each other ten times as long as usual, so that they serve on a machine
            with much else to do. What is declared in the first 20 s waits for their end (``metadata.etcd.nodes``).
    """
    names = [chr(ord("a") + at) for at in range(count)]
    config = folder / "leveret.toml"
    config.write_text("proxy_protocol = true\n")
    program = [sys.executable, "-P", str(SLOW_SERVE)] if is_patient else []
    options, slowness = ("--config", str(config)), str(SLOWNESS)
    with (
        nodes(
            folder, etcd, cluster, names, *options, program=program, LEVERET_SLOWNESS=slowness
        ) as started,
        Balancer([node.place for node in started], port, sends_proxy=True) as balancer,
    ):
        operator = Operator(started)
        yield BrokerUnderTest("leveret", balancer.host, balancer.port, operator.control)


def main() -> None:
    """Serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="rigs.cluster.balanced_cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, default=3, metavar="N")
    parser.add_argument("--port", type=int, default=0, help="of the balancer, on 127.0.0.1")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix="leveret-cluster-") as folder,
        Etcd(Path(folder) / "etcd") as etcd,
        balanced(Path(folder), etcd, "suites", asked.nodes, asked.port, is_patient=True) as broker,
    ):
        sys.stdout.write(f"{asked.nodes} nodes behind {broker.url}\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main()
