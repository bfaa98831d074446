"""``leveret ctl`` on the nodes of a cluster: processes with a real etcd."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pika
import pytest

from rigs.cluster.etcd import Etcd
from rigs.cluster.served_cluster import SECRET, arguments, channel, nodes, start_node
from rigs.nodes import (
    BrokerUnderTest,
    clean_environment,
    kill_leveret,
    leveret_program,
    stop_leveret,
)
from rigs.programs import ended
from rigs.waiting import wait_until

COUNT = 300
LEASE_S = 30.0


def ctl(node: BrokerUnderTest, *words: str) -> tuple[int, str, str]:
    """Run a verb; return exit code, output and errors."""
    command = [leveret_program(), "ctl", "--data", str(node.data), "-q", *words]
    done = subprocess.run(
        command, cwd=node.data, env=clean_environment(), capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def as_json(node: BrokerUnderTest, *words: str) -> Any:
    code, out, err = ctl(node, *words, "--formatter", "json")
    assert (code, err) == (0, ""), err
    return json.loads(out)


def definitions() -> dict[str, Any]:
    """Return ``COUNT`` queues, each with a binding, in two vhosts of which one is new."""
    vhosts = ["/", "new"]
    permission = {"configure": ".*", "write": ".*", "read": ".*"}
    return {
        "vhosts": [{"name": each} for each in vhosts],
        "users": [{"name": "ann", "password": "ann", "tags": []}],
        "permissions": [permission | {"user": "ann", "vhost": each} for each in vhosts],
        "policies": [
            {"vhost": "new", "name": "p", "pattern": "^q", "definition": {"max-length": 9}}
        ],
        "exchanges": [
            {"vhost": each, "name": "e", "type": "topic", "durable": each == "new"}
            for each in vhosts
        ],
        "queues": [
            {"vhost": vhosts[each % 2], "name": f"q{each}", "durable": each % 3 > 0}
            for each in range(COUNT)
        ],
        "bindings": [
            {
                "vhost": vhosts[each % 2],
                "source": "e",
                "destination": f"q{each}",
                "destination_type": "queue",
                "routing_key": f"key.{each}",
            }
            for each in range(COUNT)
        ],
    }


def exported(node: BrokerUnderTest) -> dict[str, Any]:
    found = as_json(node, "export_definitions", "-")
    return {
        name: sorted(map(json.dumps, value)) if isinstance(value, list) else value
        for name, value in found.items()
    }


def test_definitions_are_imported_into_all_nodes(tmp_path: Path, etcd: Etcd, name: str) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(definitions()))
    with nodes(tmp_path, etcd, name, "ab") as (a, b):
        for _ in range(2):  # the second time nothing changes
            assert ctl(a, "import_definitions", str(file))[::2] == (0, "")
        document = exported(a)
        assert document == exported(b)
        assert len(document["queues"]) == len(document["bindings"]) == COUNT
        for node in (a, b):
            rows = as_json(node, "list_queues", "-p", "new", "name", "state", "policy")
            assert {(row["state"], row["policy"]) for row in rows} == {("running", "p")}
            assert len(rows) == COUNT // 2
        assert len(as_json(b, "list_queues", "-p", "new", "--local", "name")) == 0
        with channel(b, "ann") as on_b:
            for number in range(0, COUNT, 30):
                on_b.basic_publish("e", f"key.{number}", b"1", mandatory=True)
        rows = as_json(b, "list_queues", "name", "messages")
        assert sum(row["messages"] for row in rows) == COUNT // 30


def test_operators_use_any_node_and_forget_one_that_is_gone(
    tmp_path: Path, etcd: Etcd, name: str
) -> None:
    with nodes(tmp_path, etcd, name, "ab") as (a, b):
        assert ctl(b, "await_online_nodes", "2") == (0, "", "")
        with channel(a) as on_a:
            on_a.queue_declare("q", durable=True)
            on_a.basic_publish("", "q", b"1")
        assert as_json(b, "list_queues", "name", "messages") == [{"name": "q", "messages": 1}]
        assert ctl(b, "purge_queue", "q")[0] == 0
        parameters = pika.ConnectionParameters("127.0.0.1", a.port)
        connection = pika.BlockingConnection(parameters)
        pids = [row["pid"] for row in as_json(b, "list_connections", "pid")]
        assert ctl(b, "close_connection", pids[0], "by b")[::2] == (0, "")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="by b"):
            connection.process_data_events(20)
        found = as_json(b, "cluster_status")
        assert found["disk_nodes"] == found["running_nodes"] == list(found["versions"])
        assert found["disk_nodes"] == ["a", "b"]
        code, _, err = ctl(b, "forget_cluster_node", "a")
        assert (code, "must be stopped" in err) == (69, True)

        stop_leveret(a)
        assert as_json(b, "cluster_status")["running_nodes"] == ["b"]
        code, out, _ = ctl(b, "forget_cluster_node", "a")
        assert (code, "q in vhost /" in out) == (0, True)
        assert as_json(b, "cluster_status")["disk_nodes"] == ["b"]
        assert as_json(b, "list_queues", "name") == []
        assert refused(tmp_path / "a", etcd, name, "a").startswith(
            f"leveret: cluster {name} has forgotten the node of this data directory"
        )
        again = start_node(tmp_path / "new a", etcd, name, "a")
        a.process, a.log = again.process, again.log  # it is stopped with b
        assert as_json(b, "cluster_status")["disk_nodes"] == ["a", "b"]


@pytest.mark.slow
def test_the_name_of_a_node_that_is_down_is_taken_until_it_is_forgotten(
    tmp_path: Path, etcd: Etcd, name: str
) -> None:
    with nodes(tmp_path, etcd, name, "abc") as (a, b, c):
        with channel(a) as on_a:
            on_a.queue_declare("q", durable=True)
        kill_leveret(a)
        code, _, err = ctl(b, "forget_cluster_node", "a")
        assert (code, "must be stopped" in err) == (69, True)
        wait_until(
            lambda: as_json(b, "cluster_status")["running_nodes"] == ["b", "c"],
            "the lease of the killed node has not ended",
            LEASE_S,
        )
        assert as_json(c, "list_queues", "--offline", "name", "state") == [
            {"name": "q", "state": "down"}
        ]
        assert "of the data directory" in refused(tmp_path / "other", etcd, name, "a")
        assert ctl(b, "forget_cluster_node", "a")[0] == 0
        assert as_json(c, "list_queues", "name") == []
        again = start_node(tmp_path / "other", etcd, name, "a")
        a.process, a.log = again.process, again.log  # it is stopped with the others
        with channel(a) as on_a:
            on_a.queue_declare("q", durable=True)
        assert as_json(c, "list_queues", "name", "state") == [{"name": "q", "state": "running"}]


def refused(folder: Path, etcd: Etcd, cluster: str, node: str) -> str:
    """Start a node that is refused; return its last line."""
    folder.mkdir(exist_ok=True)
    command = [leveret_program(), "serve", "--listen", "127.0.0.1:0", "--log-level", "error"]
    done = ended(
        [*command, *arguments(etcd, cluster, node)],
        folder,
        timeout_s=90,
        LEVERET_CLUSTER_SECRET=SECRET,
    )
    assert done.returncode == os.EX_CONFIG
    return str(done.stderr.splitlines()[-1])
