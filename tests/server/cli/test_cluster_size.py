"""Three nodes with 10,000 queues and as many bindings: known everywhere, and there after a restart."""

from __future__ import annotations

import asyncio
import json
import os
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from conformance.raw import Connection
from leveret.broker.node.bootstrap import first_rows
from leveret.core.settings import BrokerSettings
from leveret.etcd.settings import EtcdSettings
from leveret.metadata.etcd.session_settings import SessionSettings
from leveret.metadata.etcd.store import EtcdMetadata
from leveret.metadata.tables import BindingRow, ExchangeRow, QueueRow, Row
from rigs.cluster.etcd import Etcd
from rigs.cluster.served_cluster import nodes, start_node
from rigs.nodes import BrokerUnderTest, stop_leveret
from rigs.waiting import wait_until

ROWS = 10_000
RESTARTED_S = 10.0  # of processor time: other work on the machine does not count
PATIENCE_S = 180.0  # of a machine with much else to do
NODE_BYTES = 600 * 2**20
ETCD_BYTES = 64 * 2**20
VALID_S = 8  # of a node that gets no processor time for long


async def fill(etcd: Etcd, cluster: str) -> None:
    """Write the rows of a cluster whose queues are on node ``a``."""
    settings = SessionSettings(prefix=f"/leveret/{cluster}", valid_s=VALID_S, lease_s=2 * VALID_S)
    rows = await EtcdMetadata.open(EtcdSettings((etcd.url,)), "loader", "loader", settings)
    names = [f"q{number:05}" for number in range(ROWS)]
    puts: list[Row] = [*first_rows(BrokerSettings()), ExchangeRow("/", "e", "direct")]
    puts += [
        QueueRow("/", name, queue_no=rows.next_queue_no(), user="guest", node="a") for name in names
    ]
    puts += [BindingRow("/", "e", "queue", name, name.encode()) for name in names]
    written = asyncio.get_running_loop().create_future()
    rows.write(puts, [], written.set_result)
    assert await written is None
    await rows.leave()


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


def processor_s(node: BrokerUnderTest) -> float:
    assert node.process is not None
    fields = Path(f"/proc/{node.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_routed(node: BrokerUnderTest, number: int) -> bool:
    """Publish by the binding of one queue, and get it back from there."""
    connection = Connection((node.host, node.port))
    if connection.open().name != "connection.open-ok":  # it has lost etcd, or its vhost is down
        connection.drop()
        return False
    channel, name = connection.channel(), f"q{number:05}"
    channel.ok("confirm.select")
    channel.publish(name, b"there", exchange="e", mandatory=True)
    found = channel.read(60.0)
    if found.name == "basic.ack":
        found = channel.call("basic.get", queue=name, no_ack=True)
    connection.drop()
    return found.name == "basic.get-ok"


@pytest.mark.slow
def test_a_node_of_a_cluster_with_many_queues_is_started_again(
    tmp_path: Path, name: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    stats: dict[str, object] = {}
    config = tmp_path / "leveret.toml"
    config.write_text(f"[cluster]\nvalid_s = {VALID_S}\nlease_s = {2 * VALID_S}\n")
    patient = ("--config", str(config))
    with Etcd(tmp_path / "etcd") as etcd:
        asyncio.run(fill(etcd, name))
        with nodes(tmp_path, etcd, name, "abc", *patient, stop_timeout_s=PATIENCE_S) as started:
            for node in started:
                wait_until(partial(is_routed, node, 0), "a queue is unknown", PATIENCE_S)
                assert is_routed(node, ROWS - 1)
            stats["MiB of a node"] = [resident_bytes(node) >> 20 for node in started]
            stats["MiB of etcd"] = round(stored_bytes(etcd) / 2**20, 1)
            for at in (1, 0):  # a node that has none of the queues, and the one that has all
                stop_leveret(started[at], PATIENCE_S)
                began_s = time.monotonic()
                started[at] = start_node(tmp_path / "abc"[at], etcd, name, "abc"[at], *patient)
                node = started[at]
                wait_until(
                    partial(is_routed, node, ROWS // 2), "the node does not serve", PATIENCE_S
                )
                stats[f"s until {'abc'[at]} serves"] = round(time.monotonic() - began_s, 1)
                stats[f"s of processor time of {'abc'[at]}"] = processor_s(started[at])
            assert max(map(resident_bytes, started)) < NODE_BYTES
            assert stored_bytes(etcd) < ETCD_BYTES
            assert processor_s(started[0]) < RESTARTED_S
    record_testsuite_property("10,000 queues", str(stats))
