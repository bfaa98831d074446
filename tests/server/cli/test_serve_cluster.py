"""``leveret serve --cluster``: processes that are one broker, with a real etcd.

Tests: server/cluster.py
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPConnectionError, ConnectionClosedByBroker

from rigs.cluster.etcd import Etcd
from rigs.cluster.served_cluster import SECRET, arguments, channel, nodes, start_node
from rigs.nodes import kill_leveret, leveret_program
from rigs.programs import ended
from rigs.waiting import wait_until

_SOCKETS = shutil.ignore_patterns("control.sock")

LOST = "this node has lost its cluster's store"


def publish_until(
    channel: pika.adapters.blocking_connection.BlockingChannel, deadline_s: float
) -> None:
    while time.monotonic() < deadline_s:
        channel.basic_publish("", "q", b"1")


def refused(folder: Path, etcd: Etcd, name: str, *more: str) -> str:
    """Start node a of the cluster in the folder; return the error it ends with."""
    done = ended(
        [leveret_program(), "serve", "--listen", "127.0.0.1:0", *more, *arguments(etcd, name, "a")],
        folder,
        timeout_s=60,
        LEVERET_CLUSTER_SECRET=SECRET,
    )
    assert done.returncode == 78
    return done.stderr


def test_two_nodes_are_one_broker(tmp_path: Path, etcd: Etcd, name: str) -> None:
    with nodes(tmp_path, etcd, name, "ab") as (a, b), channel(a) as on_a, channel(b) as on_b:
        for number in range(5):
            on_a.queue_declare(f"q{number}", durable=True)
            on_b.basic_publish("", f"q{number}", b"through b", mandatory=True)
            assert on_a.basic_get(f"q{number}", auto_ack=True)[2] == b"through b"
        on_b.exchange_declare("e", "topic")
        on_b.queue_bind("q0", "e", "a.*")
        on_a.basic_publish("e", "a.b", b"by a binding of b", mandatory=True)
        assert on_b.basic_get("q0", auto_ack=True)[2] == b"by a binding of b"
        a.control("add_user", "ann", "ann")
        a.control("set_permissions", "ann", ".*", ".*", ".*")
        with channel(b, "ann") as by_ann:
            by_ann.queue_delete("q0")
        a.control("delete_user", "ann")
        with pytest.raises(pika.exceptions.ProbableAuthenticationError), channel(b, "ann"):
            pass


@pytest.mark.slow
def test_a_node_that_is_killed_and_started_again_has_its_queues(
    tmp_path: Path, etcd: Etcd, name: str
) -> None:
    with nodes(tmp_path, etcd, name, "abc") as (a, b, c):
        with channel(a) as on_a:
            on_a.queue_declare("q", durable=True)
            on_a.basic_publish("", "q", b"kept", pika.BasicProperties(delivery_mode=2))
        kill_leveret(a)
        with channel(c) as on_c:
            on_c.queue_declare("other", durable=True)
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="home node 'a'"):
                wait_until(lambda: on_c.queue_declare("q", passive=True) is None)
        again = start_node(tmp_path / "a", etcd, name, "a")
        with channel(b) as on_b:
            assert on_b.basic_get("q", auto_ack=True)[2] == b"kept"
        a.process = again.process  # it is stopped with the others


@pytest.mark.slow
def test_a_name_that_another_node_has_is_refused(tmp_path: Path, etcd: Etcd, name: str) -> None:
    with nodes(tmp_path, etcd, name, "a"):
        (tmp_path / "other").mkdir()
        error = refused(tmp_path / "other", etcd, name)
    assert "is another node, of the data directory" in error


@pytest.mark.slow
def test_a_copy_of_a_nodes_directory_is_refused_and_the_node_serves_on(
    tmp_path: Path, etcd: Etcd, name: str
) -> None:
    with nodes(tmp_path, etcd, name, "ab") as (a, _), channel(a) as on_a:
        on_a.queue_declare("q", durable=True)
        shutil.copytree(tmp_path / "a" / "data", tmp_path / "copy" / "data", ignore=_SOCKETS)
        error = refused(tmp_path / "copy", etcd, name)
        assert "runs already, with another copy of this data directory" in error
        on_a.basic_publish("", "q", b"1")
        assert on_a.queue_declare("q", passive=True).method.message_count == 1
        assert "joins again" not in (tmp_path / "a" / "log").read_text()
        # Nor does etcd without this cluster's metadata pass as a new cluster.
    shutil.rmtree(tmp_path / "copy")
    with Etcd(tmp_path / "new") as new:
        error = refused(tmp_path / "a", new, name, "--data", "data")
    assert f"cluster {name} does not know the node of" in error


@pytest.mark.slow
def test_a_node_without_etcd_closes_its_connections_and_comes_back(
    tmp_path: Path, name: str
) -> None:
    with Etcd(tmp_path / "etcd") as etcd, nodes(tmp_path, etcd, name, "ab") as (a, _):
        with channel(a) as on_a:
            on_a.queue_declare("q", durable=True)
            etcd.pause()
            began_s = time.monotonic()
            with pytest.raises(ConnectionClosedByBroker, match=LOST):
                publish_until(on_a, began_s + 30)
            with pytest.raises(AMQPConnectionError, match=LOST), channel(a):
                pass
            etcd.resume()

        def serves() -> bool:
            try:
                with channel(a) as on_a:
                    return bool(on_a.queue_declare("q", passive=True).method.message_count)
            except AMQPConnectionError:
                return False

        wait_until(serves, "the node has not come back", 30.0)


def test_a_cluster_needs_a_secret_and_the_directory_stays_as_it_is(tmp_path: Path) -> None:
    more = ["--cluster", "c", "--etcd", "http://127.0.0.1:1", "--node", "a"]
    listen = ["--listen", "127.0.0.1:0", "--cluster-listen", "127.0.0.1:0"]
    done = ended([leveret_program(), "serve", *listen, *more], tmp_path)
    assert done.returncode == 78
    assert "a cluster needs a secret: set cluster_secret_file" in done.stderr
