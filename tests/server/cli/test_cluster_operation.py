"""What operators of a cluster do: restart nodes one by one under load, and restore a node from its snapshot."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, NackError

from rigs.cluster.etcd import Etcd
from rigs.cluster.served_cluster import channel, nodes, start_node
from rigs.nodes import BrokerUnderTest, kill_leveret, leveret_program, stop_leveret
from rigs.programs import ended
from rigs.waiting import wait_until

PERSISTENT = pika.BasicProperties(delivery_mode=2)
SOON_S = 60.0


class Publisher:
    """Publishes numbered messages to ``q``, one after the other."""

    def __init__(self, channel: BlockingChannel) -> None:
        self._channel = channel
        self.count = 0
        self.confirmed: set[bytes] = set()

    def publish(self) -> bool:
        """Publish one; return whether it was confirmed."""
        self.count += 1
        body = b"%d" % self.count
        try:
            self._channel.basic_publish("", "q", body, PERSISTENT)
        except NackError:
            return False
        self.confirmed.add(body)
        return True


def answer_for(node: BrokerUnderTest, queue: str) -> str:
    """Return what a node answers to a passive declare."""
    with channel(node) as asking:
        try:
            asking.queue_declare(queue, passive=True)
        except ChannelClosedByBroker as error:
            return f"{error.reply_code} {error.reply_text}"
    return "ok"


@pytest.mark.slow
def test_nodes_are_restarted_one_by_one_under_load_and_nothing_confirmed_is_lost(
    tmp_path: Path, etcd: Etcd, name: str
) -> None:
    down = "404 NOT_FOUND - home node 'a' of durable queue 'q' in vhost '/' is down or inaccessible"
    with nodes(tmp_path, etcd, name, "ab") as (a, b):
        with channel(a) as at_a, channel(b) as at_b:
            at_a.queue_declare("q", durable=True)
            publisher = Publisher(at_b)
            for _ in range(20):
                assert publisher.publish()
            assert a.process is not None
            a.process.terminate()
            wait_until(lambda: not publisher.publish(), "the queue takes messages still", SOON_S)
            with pytest.raises(ConnectionClosedByBroker, match="CONNECTION_FORCED") as closed:
                at_a.connection.process_data_events(SOON_S)
            assert closed.value.reply_code == 320
            wait_until(lambda: answer_for(b, "q") == down, lambda: answer_for(b, "q"), SOON_S)
            assert a.process.wait(SOON_S) == 0
            assert a.process.stdout is not None
            a.process.stdout.close()
            a.process = start_node(tmp_path / "a", etcd, name, "a").process
            wait_until(publisher.publish, "the queue takes no messages again", SOON_S)
        stop_leveret(b)
        again = start_node(tmp_path / "b", etcd, name, "b")
        b.process, b.port = again.process, again.port
        with channel(b) as at_b:
            count = at_b.queue_declare("q", passive=True).method.message_count
            found = {at_b.basic_get("q", auto_ack=True)[2] for _ in range(count)}
        assert publisher.confirmed <= found


@pytest.mark.slow
def test_a_node_whose_disk_is_lost_is_restored_from_its_snapshot(
    tmp_path: Path, etcd: Etcd, name: str
) -> None:
    with nodes(tmp_path, etcd, name, "ab") as (a, b):
        with channel(a) as at_a, channel(b) as at_b:
            at_b.queue_declare("of b", durable=True)
            at_a.queue_declare("q", durable=True)
            at_b.basic_publish("", "q", b"before", PERSISTENT)
            snapshot = ["snapshot", "create", "s", "--copy", str(tmp_path / "backup")]
            leveret(tmp_path, *snapshot, "--data", str(a.data))
            at_b.basic_publish("", "q", b"after", PERSISTENT)
            at_a.queue_declare("later", durable=True)
        kill_leveret(a)
        assert a.data is not None
        shutil.rmtree(a.data)

        leveret(
            tmp_path, "snapshot", "restore", str(tmp_path / "backup" / "s"), "--to", str(a.data)
        )
        manifest = json.loads((tmp_path / "backup" / "s" / "MANIFEST.json").read_text())
        (a.data / "node").write_text(manifest["node"] + "\n")
        shutil.rmtree(a.data / "metadata")
        a.process = start_node(tmp_path / "a", etcd, name, "a").process
        with channel(b) as at_b:
            counts = [
                at_b.queue_declare(each, passive=True).method.message_count
                for each in ("q", "later", "of b")
            ]
            assert counts == [1, 0, 0]
            assert at_b.basic_get("q", auto_ack=True)[2] == b"before"


def leveret(folder: Path, *arguments: str) -> None:
    done = ended([leveret_program(), *arguments], folder)
    assert done.returncode == 0, done.stderr
