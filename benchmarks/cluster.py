#!/usr/bin/env python3
"""Clusters of three nodes: Leveret's, with an etcd, beside RabbitMQ's, on the same machine.

    python benchmarks/cluster.py --loadgen DIR                        # all, 5 rounds
    python benchmarks/cluster.py --loadgen DIR --only b1k --rounds 3
    python benchmarks/cluster.py --only declare                       # needs no generator

Messages go through queues of the third node; publishers and consumers are connected with the first. ``declare``: each
of 50 connections, of all nodes in turn, declares durable queues, one after the other. CPU time is that of all nodes
together, with Leveret's etcd. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set
from harness import brokers, results, rounds
from harness.brokers import Broker
from harness.peer import Peer, RefusedError
from harness.scenarios import Bar

from leveret.amqp.methods import QueueDeclare, QueueDelete

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leveret.amqp.fields import Method

BARS: dict[str, Bar] = {
    "b1k": Bar((0.25, 0.25), (5, 5)),
    "c1k": Bar(),
    "j4": Bar(),
    "d1kc": Bar(rate=(4, 4)),
    "k50": Bar(),
    "h2k": Bar(),
    "declare": Bar(rate=(1, 1)),
}
CONNECTIONS = 50
DECLARES = 40  # of each connection
HOME_SHARE_MIN = 0.1  # of the CPU time: less, and the queue is not there


class Cluster:
    """A running cluster.

    Attributes:
        root: its first node, with the process of which all nodes are children.
        ports: of the nodes.
    """

    def __init__(self, name: str, ports: list[int], pid: int) -> None:
        self.root = Broker(name, "127.0.0.1", ports[0], pid)
        self.ports = ports
        # In the order in which they were started; Leveret's etcd was the first.
        self._nodes = list(rounds.children(pid))[-len(ports) :]

    def node_cpu_s(self) -> list[float]:
        """Return the CPU time of each node."""
        return [rounds.cpu_s(self.root._replace(pid=pid)) for pid in self._nodes]


@contextmanager
def cluster(name: str) -> Iterator[Cluster]:
    """Run a cluster of ``leveret-c``, ``leveret-py`` or ``rabbitmq``."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "harness/cluster_nodes.py"), name],
        env=brokers.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise brokers.StartError(f"a cluster of {name} did not start")
        yield Cluster(name, json.loads(line), process.pid)
    finally:
        process.communicate()  # which closes its standard input


def main() -> int:
    """Run and report; 1 when a run was wrong or, with --check, a bar was missed."""
    options = _parser().parse_args()
    names = [
        each if each == "rabbitmq" else f"leveret-{each}" for each in options.brokers.split(",")
    ]
    keys = options.only.split(",")
    if options.loadgen is None and keys != ["declare"]:
        print("--loadgen DIR is needed for all but --only declare", file=sys.stderr)
        return 2
    found: list[dict[str, Any]] = []
    with ExitStack() as stack:
        running = [stack.enter_context(cluster(name)) for name in names]
        for key in keys:
            for number in range(options.rounds):
                for each in running if number % 2 else reversed(running):
                    result = (
                        _declares(each, number, options.scale)
                        if key == "declare"
                        else _messages(each, key, options)
                    )
                    result |= {"scenario": key, "target": each.root.name, "round": number}
                    found.append(result | {"loadavg": os.getloadavg()[0]})
                    _say(found[-1])
    medians = results.medians(found)
    about = {
        "commit": results.commit(),
        "machine": results.machine(),
        "versions": results.versions("rabbitmq" in names),
        "command": results.command_line("benchmarks/cluster.py"),
    }
    target = results.write(options.out, options.name, {"medians": medians, "rounds": found}, about)
    print(results.table(medians, rates_count=True, bars=BARS))
    print(f"\n{target}")
    wrong = [each for each in found if not each.get("ok")]
    for each in wrong:
        print(
            f"WRONG {each['scenario']} {each['target']}: {each.get('error') or each}",
            file=sys.stderr,
        )
    missed = [row for row in results.judge(medians, rates_count=True, bars=BARS) if not row[-1]]
    return 1 if wrong or (options.check and missed) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--brokers", default="rabbitmq,c", help="of c, py and rabbitmq")
    parser.add_argument("--only", default=",".join(BARS), help="scenarios, with commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies every count")
    parser.add_argument("--loadgen", type=Path, help="folder with a loadgen.py")
    parser.add_argument("--name", default="cluster", help="last part of the results file's name")
    parser.add_argument("--out", type=Path, default=results.RESULTS, help="folder of the results")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    return parser


def _messages(under_test: Cluster, key: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a scenario of the generator; its queue must be on the last node."""
    root = under_test.root
    before = under_test.node_cpu_s()
    with tempfile.TemporaryDirectory(prefix="leveret-bench") as folder:
        out = Path(folder, "out.jsonl")
        command = [sys.executable, str(options.loadgen / "loadgen.py"), "--scenario", key]
        command += ["--target", f"{root.name}={root.host}:{root.port},pid={root.pid}"]
        command += ["--scale", str(options.scale), "--out", str(out)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        result: dict[str, Any] = json.loads(out.read_text())
    spent = [after - was for after, was in zip(under_test.node_cpu_s(), before, strict=True)]
    share = spent[-1] / sum(spent)
    if share < HOME_SHARE_MIN:
        result |= {"ok": False, "error": f"the last node has spent {share:.0%} of the CPU time"}
    return result | {"cpu_shares": [round(each / sum(spent), 3) for each in spent]}


def _declares(under_test: Cluster, number: int, scale: float) -> dict[str, Any]:
    """Declare queues, and delete them again, which is not measured."""
    count, ports = max(1, int(DECLARES * scale)), under_test.ports
    names = [[f"d.{number}.{at}.{each}" for each in range(count)] for at in range(CONNECTIONS)]
    try:
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            peers = [
                Peer((under_test.root.host, ports[at % len(ports)])) for at in range(CONNECTIONS)
            ]

            def call_each(method: Callable[[str], Method]) -> None:
                """Have all connections call at once, each for one queue after the other."""

                def call(peer: Peer, own: list[str]) -> None:
                    for name in own:
                        peer.call(1, method(name))

                list(threads.map(call, peers, names))

            cpu_s, began_s = rounds.cpu_s(under_test.root), time.monotonic()
            call_each(lambda name: QueueDeclare(name, durable=True))
            took_s, cpu_s = time.monotonic() - began_s, rounds.cpu_s(under_test.root) - cpu_s
            call_each(QueueDelete)
            for peer in peers:
                peer.close()
    except (OSError, RefusedError) as error:
        return {"ok": False, "error": str(error)}
    total = count * CONNECTIONS
    return {"ok": True, "msgs_per_s": total / took_s, "broker_cpu_us_per_msg": cpu_s / total * 1e6}


def _say(result: dict[str, Any]) -> None:
    rate, cpu = result.get("msgs_per_s", 0), result.get("broker_cpu_us_per_msg") or 0
    text = f"{result['scenario']:8} {result['target']:12} {rate:12,.0f}/s {cpu:9.3f} µs"
    text += f"  load {result['loadavg']:.1f}  {result.get('cpu_shares', '')}"
    print(text + ("" if result["ok"] else "  WRONG"), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
