"""Three nodes with 10,000 queues and as many bindings: imported once, known everywhere, and there after a restart."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path

import pytest

from conformance.raw import Connection
from rigs.etcd import Etcd
from rigs.nodes import BrokerUnderTest, stop_leveret
from rigs.served_cluster import nodes, start_node

ROWS = 10_000
RESTARTED_S = 60.0  # of a machine with much else to do; docs/cluster.md says what it takes on one that is idle
NODE_BYTES = 600 * 2**20
ETCD_BYTES = 64 * 2**20


def definitions(count: int) -> dict[str, object]:
    queues = [f"q{number:05}" for number in range(count)]
    common = {"vhost": "/", "arguments": {}}
    flags = {"durable": True, "auto_delete": False}
    return {
        "exchanges": [{"name": "e", "type": "direct", "internal": False, **flags, **common}],
        "queues": [{"name": name, **flags, **common} for name in queues],
        "bindings": [
            {
                "source": "e", "destination": name, "destination_type": "queue",
                "routing_key": name, **common,
            }
            for name in queues
        ],
    }  # fmt: skip


def resident_bytes(node: BrokerUnderTest) -> int:
    assert node.process is not None
    (line,) = [
        each
        for each in Path(f"/proc/{node.process.pid}/status").read_text().splitlines()
        if each.startswith("VmRSS")
    ]
    return int(line.split()[1]) * 1024


def stored_bytes(etcd: Etcd) -> int:
    request = urllib.request.Request(f"{etcd.url}/v3/maintenance/status", b"{}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return int(json.load(answer)["dbSizeInUse"])


def is_routed(node: BrokerUnderTest, number: int) -> bool:
    """Publish by the binding of one queue, and get it back from there."""
    connection = Connection((node.host, node.port))
    assert connection.open().name == "connection.open-ok"
    channel, name = connection.channel(), f"q{number:05}"
    channel.ok("confirm.select")
    channel.publish(name, b"there", exchange="e", mandatory=True)
    is_confirmed = channel.read(60.0).name == "basic.ack"
    found = channel.call("basic.get", queue=name, no_ack=True)
    connection.close()
    return is_confirmed and found.name == "basic.get-ok"


@pytest.mark.slow
def test_a_node_of_a_cluster_with_many_queues_is_started_again(
    tmp_path: Path, name: str, record_property: pytest.RecordProperty
) -> None:
    with Etcd(tmp_path / "etcd") as etcd, nodes(tmp_path, etcd, name, "abc") as started:
        file = tmp_path / "definitions.json"
        file.write_text(json.dumps(definitions(ROWS)))
        before = [resident_bytes(node) for node in started]
        figures: dict[str, object] = {}
        began_s = time.monotonic()
        started[0].control("import_definitions", str(file))
        figures["import s"] = round(time.monotonic() - began_s, 1)
        for node in started:
            assert is_routed(node, 0)
            assert is_routed(node, ROWS - 1)
        figures["nodes MiB"] = [
            f"{was >> 20} to {resident_bytes(node) >> 20}"
            for was, node in zip(before, started, strict=True)
        ]
        figures["etcd MiB"] = round(stored_bytes(etcd) / 2**20, 1)
        assert max(map(resident_bytes, started)) < NODE_BYTES
        assert stored_bytes(etcd) < ETCD_BYTES
        for at in (1, 0):  # a node that has none of the queues, and the one that has all
            stop_leveret(started[at])
            began_s = time.monotonic()
            again = start_node(tmp_path / "abc"[at], etcd, name, "abc"[at])
            assert is_routed(again, ROWS // 2)
            took_s = time.monotonic() - began_s
            figures[f"restart of {'abc'[at]} s"] = round(took_s, 1)
            assert took_s < RESTARTED_S
            started[at].process, started[at].port = again.process, again.port
        assert all(is_routed(node, 1) for node in started)
        record_property("figures", str(figures))
