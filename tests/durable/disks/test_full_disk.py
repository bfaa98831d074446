"""A node on a small disk that is full: it starts after kill -9, drains, and comes back when there is room.

The disk is a tmpfs of 160 MB, so these tests run where the process may mount one, and as Linux.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.raw import Connection, error_of
from rigs.nodes import clean_environment, leveret_program
from rigs.store.small_disk import fill, small_disk
from rigs.waiting import wait_until

DISK_BYTES = 160 * 1000 * 1000
BODY = bytes(64 * 1024)
REFUSED = "INTERNAL_ERROR - access to vhost '/' refused for user 'guest': vhost '/' is down"
LINE = re.compile(r"leveret \S+ (ready|degraded): amqp://127.0.0.1:(\d+) (.*)")


class Node:
    """``leveret serve`` with its data on a small disk of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = folder / "disk"
        self.data = self.disk / "data"
        self.log = folder / "log"
        self.port = 0
        self._process: subprocess.Popen[str] | None = None
        self._connections: list[Connection] = []

    def start(self) -> str:
        """Start it; return the first line that it says."""
        command = [leveret_program(), "serve", "--listen", "127.0.0.1:0", "--data", str(self.data)]
        with self.log.open("a") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=clean_environment(),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        return self.line()

    def line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        text = self._process.stdout.readline()
        found = LINE.match(text)
        assert found, f"{text!r}\n{self.log.read_text()[-4000:]}"
        self.port = int(found[2])
        return found[1] + " " + found[3]

    def kill9(self) -> None:
        for each in self._connections:
            each.drop()
        self._connections.clear()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def asked(self, *words: str) -> tuple[int, str]:
        """Ask ``leveret``; return the exit code and all that it says."""
        done = subprocess.run(
            [leveret_program(), *words, "--data", str(self.data)],
            env=clean_environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def connected(self) -> Connection:
        connection = self.connection()
        connection.open()
        return connection

    def connection(self) -> Connection:
        connection = Connection(("127.0.0.1", self.port))
        self._connections.append(connection)
        return connection

    def free_bytes(self) -> int:
        found = os.statvfs(self.disk)
        return found.f_bavail * found.f_frsize

    def fill(self) -> Path:
        """Let other files take all the room that is left."""
        return fill(self.disk)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    with small_disk(node.disk, DISK_BYTES):
        try:
            yield node
        finally:
            node.kill9()


def published(node: Node, count: int) -> None:
    """Publish so many large messages, and wait until all are confirmed."""
    connection = node.connected()
    channel = connection.channel()
    channel.ok("queue.declare", queue="q", durable=True)
    channel.ok("confirm.select")
    unconfirmed = set()
    for tag in range(1, count + 1):
        channel.publish("q", BODY, delivery_mode=2)
        unconfirmed.add(tag)
    channel.read_confirms(unconfirmed)


def test_after_kill_9_on_a_full_disk_the_node_starts_and_consumers_make_room(node: Node) -> None:
    assert node.start().startswith("ready")
    published(node, 1_300)  # 85 MB
    node.fill()
    node.kill9()

    assert node.start().startswith("ready"), "the reserve is there for this"

    assert (node.data / "reserve").exists() is False
    connection = node.connected()
    publisher = connection.channel()
    publisher.publish("q", b"one more", delivery_mode=2)
    blocked = connection.read()
    assert (blocked.name, blocked.reason) == ("connection.blocked", "low on disk")
    consumer = node.connected().channel()
    for _ in range(1_300):
        found = consumer.get("q", no_ack=False)
        assert found.body == BODY
        consumer.send("basic.ack", delivery_tag=found.delivery_tag)
    unblocked = connection.read(timeout_s=30.0)
    assert unblocked.name == "connection.unblocked", "segments that are acked are removed"
    wait_until((node.data / "reserve").exists)


def test_a_vhost_without_room_to_start_is_named_and_serves_when_there_is_room(node: Node) -> None:
    assert node.start().startswith("ready")
    published(node, 100)
    node.kill9()
    (node.data / "reserve").unlink()
    filler = node.fill()

    line = node.start()

    assert line.startswith("degraded vhost=/ reason="), line
    assert "No space left on device" in line
    assert error_of(node.connection().open()) == ("connection", 541, REFUSED, "connection.open")
    code, text = node.asked("ctl", "check_virtual_hosts")
    assert code == os.EX_UNAVAILABLE
    assert "/: " in text
    assert "No space left on device" in text
    assert "stopped" in node.asked("ctl", "list_vhosts", "name", "cluster_state")[1]
    assert re.search(r"down +/ for .*No space left on device", node.asked("status")[1])

    os.truncate(filler, 0)
    assert node.line().startswith("ready")
    assert node.asked("ctl", "check_virtual_hosts")[0] == 0
    assert node.connected().channel().ready("q") == 100
    log = node.log.read_text()
    assert log.count("vhost is down vhost=/") == 1
    assert log.count("vhost serves again vhost=/") == 1
    assert "Traceback" not in log


def test_on_a_full_disk_declares_and_new_vhosts_are_refused_and_the_node_still_starts(
    node: Node,
) -> None:
    assert node.start().startswith("ready")
    published(node, 10)
    other = node.connected().channel()
    node.fill()
    (node.data / "reserve").unlink()
    filler = node.fill()

    for number in range(600):  # more than the free pages of the metadata store take
        channel = node.connected().channel()
        answer = channel.call("queue.declare", queue=f"{number:0>200}", durable=True)
        if answer.name != "queue.declare-ok":
            break
    assert error_of(answer) == ("connection", 541, "INTERNAL_ERROR", "queue.declare"), answer
    code, text = node.asked("ctl", "add_vhost", "new")
    assert code in {os.EX_DATAERR, os.EX_SOFTWARE}, text
    assert "new" not in node.asked("ctl", "list_vhosts", "-q")[1].split()
    assert other.get("q").body == BODY
    node.kill9()
    for _ in range(5):
        assert node.start().startswith("degraded vhost=/"), "there is no room at all"
        node.kill9()
    node.start()

    os.truncate(filler, 0)
    assert node.line().startswith("ready")
    channel = node.connected().channel()
    channel.ok("queue.declare", queue="there is room", durable=True)
    assert node.asked("ctl", "add_vhost", "new")[0] == 0
    node.kill9()
    assert node.start().startswith("ready")
    assert node.connected().channel().ready("there is room") == 0


def test_consumers_make_room_on_a_disk_that_other_files_have_filled(node: Node) -> None:
    assert node.start().startswith("ready")
    published(node, 1_300)  # 85 MB
    wait_until((node.data / "reserve").exists)
    node.fill()
    connection = node.connected()
    publisher = connection.channel()
    publisher.ok("confirm.select")
    publisher.publish("q", BODY, delivery_mode=2)
    assert publisher.read().name in {"basic.nack", "connection.blocked"}

    consumer = node.connected().channel()
    for _ in range(1_300):
        found = consumer.get("q", no_ack=False)
        assert found.body == BODY
        consumer.send("basic.ack", delivery_tag=found.delivery_tag)

    wait_until(lambda: node.free_bytes() > 60_000_000, within_s=30.0)
    wait_until((node.data / "reserve").exists)
    assert node.asked("ctl", "check_virtual_hosts")[0] == 0
