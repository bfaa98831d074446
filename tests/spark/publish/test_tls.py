from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.spark.publish.errors import ConnectionFailed
from leveret.spark.publish.job import publish_batches
from leveret.spark.publish.report import Report
from rigs.nodes import BrokerUnderTest, start_leveret_with_tls, stop_leveret
from rigs.sink_rows import keyed


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerUnderTest, Path]]:
    folder = tmp_path_factory.mktemp("tls")
    running = start_leveret_with_tls(folder)
    yield running, folder
    stop_leveret(running)


def ca_of(folder: Path) -> Path:
    return folder / "Test" / "ca.pem"


def publish(node: BrokerUnderTest, **tls: str) -> Report:
    options = {f"tls.{name}": value for name, value in tls.items()}
    options |= {"uri": f"amqps://localhost:{node.tls_port}", "exchange": "amq.fanout"}
    options |= {"routingKey": "", "onUnroutable": "drop"}
    return publish_batches(keyed(range(500)), options)


def test_messages_pass_over_tls(node: tuple[BrokerUnderTest, Path]) -> None:
    broker, folder = node

    report = publish(broker, ca=str(ca_of(folder)))

    assert (report.returned, report.dropped) == (500, 500)


def test_an_unknown_certificate_or_name_is_refused(node: tuple[BrokerUnderTest, Path]) -> None:
    broker, folder = node

    with pytest.raises(ConnectionFailed, match="certificate verify failed"):
        publish(broker)
    with pytest.raises(ConnectionFailed, match="certificate verify failed"):
        publish(broker, ca=str(ca_of(folder)), serverName="other.example")
    assert publish(broker, verify="false").dropped == 500
