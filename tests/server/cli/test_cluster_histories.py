"""What clients of three ``leveret serve --cluster`` were answered can have happened one after the other."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random

import pytest

from rigs.cluster.cluster_processes import ClusterNode, ProcessCluster, process_cluster
from rigs.cluster.etcd import Etcd
from rigs.cluster.served_cluster import nodes
from rigs.cluster.topology_histories import histories, judge
from rigs.nodes import BrokerUnderTest


@pytest.mark.parametrize("operations", [20, pytest.param(80, marks=pytest.mark.slow)])
def test_declarations_bindings_and_deletions_have_an_order(
    tmp_path: Path, etcd: Etcd, name: str, seed: int, operations: int
) -> None:
    with nodes(tmp_path, etcd, name, "abc") as started:
        addresses = [partial(_place, each) for each in started]
        for is_durable in (True, False):
            names = (f"x-{is_durable}", f"y-{is_durable}")
            found = histories(
                addresses, seed, names=names, clients=6, operations=operations,
                is_durable=is_durable,
            )  # fmt: skip
            answered = [each.answered_at is not None for some in found.values() for each in some]
            assert sum(answered) > len(answered) / 2  # a node may lose etcd on a busy machine
            for history in found.values():
                assert not judge(history)


ROUNDS = 10  # of each fault


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["killed", "cut from etcd", "cut from the others"])
def test_so_have_those_during_faults(
    tmp_path: Path, etcd: Etcd, name: str, rng: Random, fault: str
) -> None:
    with process_cluster(tmp_path, etcd, name) as cluster, ThreadPoolExecutor(1) as thread:
        addresses = [partial(_address, each) for each in cluster.nodes.values()]
        for number in range(ROUNDS):
            names = [f"{pair}{number}" for pair in "xyz"]
            work = thread.submit(
                histories, addresses, rng.getrandbits(30), names=names, clients=6,
                operations=15, is_durable=True, pause_s=0.8,
            )  # fmt: skip
            time.sleep(1.0)
            play(cluster, fault, rng.choice(cluster.names))
            for history in work.result().values():
                assert not judge(history)
            cluster.until_whole(time.monotonic())


def play(cluster: ProcessCluster, fault: str, name: str) -> None:
    if fault == "killed":
        cluster[name].kill9()
        cluster[name].start()
        return
    cluster.relays.cut(name, ["etcd"] if fault == "cut from etcd" else cluster.others(name))
    time.sleep(4.0)
    cluster.relays.heal()


def _place(node: BrokerUnderTest) -> tuple[str, int]:
    return node.host, node.port


def _address(node: ClusterNode) -> tuple[str, int]:
    return node.address
