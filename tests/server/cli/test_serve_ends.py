"""How ``leveret serve`` ends when clients, or the broker itself, make it hard."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest

from leveret.amqp import methods as m
from rigs.nodes import BrokerUnderTest, clean_environment, start_leveret, stop_leveret
from rigs.programs import ended

LIMIT_S = 10.0

DYING = """
import asyncio, sys
from pathlib import Path
from typing import Any
from leveret.server.cli import serve
from leveret.core.addresses import Address

class Dying(serve.Broker):
    async def start(self):
        await super().start()
        asyncio.get_running_loop().call_later(0.1, self.runtime.exit, self._root, "kill")

serve.Broker = Dying
sys.exit(serve.run(None, {"listen": (Address("127.0.0.1", 0),), "data_dir": Path("data")}))
"""


def test_a_dead_tree_ends_the_process_with_one_line(tmp_path: Path) -> None:
    done = ended([sys.executable, "-c", DYING], tmp_path)

    assert done.returncode == 70
    assert "ready" in done.stdout
    said = [line for line in done.stderr.splitlines() if line.startswith("leveret: ")]
    assert said == ["leveret: the broker's supervision tree has ended: killed"]


NO_THREAD = """
import sys, threading
from leveret.server.cli.main import main

started = threading.Thread.start

def start(thread):
    if thread.name == sys.argv[1] and len(threading.enumerate()) > int(sys.argv[2]):
        raise RuntimeError("can't start new thread")
    started(thread)

threading.Thread.start = start
sys.exit(main(["serve", "--listen", "127.0.0.1:0", "--data", "data", *sys.argv[3:]]))
"""


@pytest.mark.parametrize(
    ("name", "beside", "arguments"),
    [
        ("leveret-log", 0, ()),  # the log of the configuration
        ("leveret-log", 1, ("--config", "l.toml")),  # that of stderr beside the file's
        ("leveret-metadata", 0, ()),
    ],
)
def test_a_start_without_threads_exits_71_with_one_line(
    tmp_path: Path, name: str, beside: int, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "l.toml").write_text('[log]\nfile = "l.log"\n')
    command = [sys.executable, "-c", NO_THREAD, name, str(beside), *arguments]
    done = ended(command, tmp_path)

    assert done.returncode == 71, done.stderr
    assert done.stderr.splitlines() == [
        f"leveret: no thread for {name}: can't start new thread;"
        " raise the limit of processes and threads (ulimit -u)"
    ]


HELD = """
import sys
from leveret.broker.node.bootstrap import QueueStarter
from leveret.broker.node.store_server import StoreServer
from leveret.broker.script import Until
from leveret.server.cli.main import main

def hold(*_):
    print("held", flush=True)

def held_steps(starter):
    yield Until(starter._vhost.store.when_open)
    yield Until(hold)

if sys.argv[1] == "store":
    StoreServer._open_in_turn = hold
else:
    QueueStarter._steps = held_steps
sys.exit(main(["serve", "--listen", "127.0.0.1:0", "--data", "data"]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("at", ["store", "queues"])
def test_a_signal_during_the_start_ends_it_in_order(
    tmp_path: Path, at: str, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HELD, at],
        cwd=tmp_path,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as starting:
        try:
            assert starting.stdout is not None
            assert starting.stdout.readline() == "held\n"
            starting.send_signal(number)
            output, errors = starting.communicate(timeout=LIMIT_S)
        finally:
            starting.kill()

    assert (starting.returncode, output) == (0, "")
    assert not [line for line in errors.splitlines() if " info " not in line], errors
    assert "leveret.server.cli.serve stopped" in errors
    if at == "queues":
        node = start_leveret(tmp_path)
        stop_leveret(node)
        assert "message store opened vhost=/ clean=True" in (tmp_path / "log").read_text()


def frame(channel: int, method: Any) -> bytes:
    return m.method_frame(channel, m.encode(method))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_clients_that_neither_read_nor_answer_do_not_hold_it_up(
    own_leveret: Callable[..., BrokerUnderTest], number: signal.Signals
) -> None:
    node = own_leveret()
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("backlog", durable=True)
        channel.confirm_delivery()
        for _ in range(64):
            channel.basic_publish("", "backlog", b"x" * 1_000_000)
    silent = [socket.create_connection((node.host, node.port)) for _ in range(20)]
    half = socket.create_connection((node.host, node.port))
    half.sendall(b"AMQP\0\0\x09\x01")
    deaf = socket.create_connection((node.host, node.port))
    deaf.sendall(
        b"AMQP\0\0\x09\x01"
        + frame(0, m.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest"))
        + frame(0, m.ConnectionTuneOk(10, 131072, 0))
        + frame(0, m.ConnectionOpen("/"))
        + frame(1, m.ChannelOpen())
        + frame(1, m.BasicConsume("backlog", "c"))
    )
    while "backlog\t1" not in node.control("-q", "list_queues", "name", "consumers"):
        """Until it consumes; and it reads nothing."""

    assert node.process is not None
    began = time.monotonic()
    node.process.send_signal(number)
    status = node.process.wait(LIMIT_S + 5)
    took_s = time.monotonic() - began

    assert status == 0
    assert took_s < LIMIT_S
    for each in (*silent, half, deaf):
        each.close()
