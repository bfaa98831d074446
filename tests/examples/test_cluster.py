"""The example of a cluster, run as its README says."""

from __future__ import annotations

import sys
from pathlib import Path

from rigs.cluster.etcd import require_etcd
from rigs.programs import ended

PROGRAM = Path(__file__).parents[2] / "examples" / "cluster" / "fail_over.py"


def test_a_node_is_killed_and_comes_back_with_all_that_was_confirmed(tmp_path: Path) -> None:
    require_etcd()
    done = ended([sys.executable, str(PROGRAM)], tmp_path, timeout_s=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "three nodes serve: ann, bob, cem",
        "orders, on ann, has 100 messages that were published at bob and confirmed",
        "ann is killed",
        "  a client at ann: StreamLostError",
        "  a client at bob asks for orders: 404 NOT_FOUND - home node 'ann' of durable queue 'orders'"
        " in vhost '/' is down or inaccessible",
        "  a client at bob publishes to orders: nacked",
        "  a client at bob publishes to invoices, on bob: confirmed",
        "ann is started again",
        "  a client at bob asks for orders: 100 messages",
        "  all 100 are there, in order",
    ]


def test_without_etcd_the_example_says_what_to_install(tmp_path: Path) -> None:
    done = ended([sys.executable, str(PROGRAM)], tmp_path, PATH="/nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "no program etcd on PATH (Debian: apt install etcd-server)\n"
