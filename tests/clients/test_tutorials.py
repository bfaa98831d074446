"""The programs of ``examples/tutorials``, run the way their README says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pika
import pytest

from rigs.nodes import BrokerUnderTest
from rigs.programs import Background, python
from rigs.waiting import wait_until

TUTORIALS = Path(__file__).parents[2] / "examples" / "tutorials"
QUEUES = ("hello", "task_queue", "rpc_queue")
EXCHANGES = ("logs", "direct_logs", "topic_logs")


@pytest.fixture(autouse=True)
def fresh(broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The programs use fixed names: have them to ourselves, and find the broker by AMQP_URL."""
    monkeypatch.setenv("AMQP_URL", broker.url)
    monkeypatch.setenv("SECONDS_PER_DOT", "0.05")
    yield
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        for queue in QUEUES:
            channel.queue_delete(queue)
        for exchange in EXCHANGES:
            channel.exchange_delete(exchange)


def _start(program: str, *arguments: str, folder: Path, ready: str = "CTRL+C") -> Background:
    command = [sys.executable, str(TUTORIALS / program), *arguments]
    started = Background(command, folder, log=f"{program}-{len(list(folder.iterdir()))}")
    started.wait_for(ready)
    return started


def _run(program: str, *arguments: str, folder: Path) -> str:
    return python(TUTORIALS / program, *arguments, folder=folder)


def test_hello(tmp_path: Path) -> None:
    with _start("receive.py", folder=tmp_path) as receiver:
        assert "Sent 'Hello World!'" in _run("send.py", folder=tmp_path)

        receiver.wait_for("[x] Received Hello World!")


def test_hello_waits_in_the_queue(tmp_path: Path) -> None:
    _run("send.py", folder=tmp_path)

    with _start("receive.py", folder=tmp_path) as receiver:
        receiver.wait_for("[x] Received Hello World!")


def test_work_queues(tmp_path: Path) -> None:
    workers = [_start("worker.py", folder=tmp_path) for _ in range(2)]
    with workers[0], workers[1]:
        for number in range(1, 7):
            _run("new_task.py", f"task {number}", "." * 4, folder=tmp_path)
        for worker in workers:
            worker.wait_for("[x] Done")

        def takers(number: int) -> list[Background]:
            return [worker for worker in workers if f"task {number} " in worker.output]

        for number in range(1, 7):
            wait_until(partial(takers, number), f"nobody took task {number}")
            assert len(takers(number)) == 1


def test_publish_and_subscribe(tmp_path: Path) -> None:
    listeners = [_start("receive_logs.py", folder=tmp_path) for _ in range(2)]
    with listeners[0], listeners[1]:
        _run("emit_log.py", "info: all well", folder=tmp_path)

        for listener in listeners:
            listener.wait_for("[x] info: all well")


def test_routing(tmp_path: Path) -> None:
    some = _start("receive_logs_direct.py", "warning", "error", folder=tmp_path)
    every = _start("receive_logs_direct.py", "info", "warning", "error", folder=tmp_path)
    with some, every:
        for severity in ("info", "error"):
            _run("emit_log_direct.py", severity, "it burns", folder=tmp_path)

        assert "error:it burns" in every.wait_for("it burns", 2)
        assert "info:it burns" not in some.wait_for("error:it burns")


def test_topics(tmp_path: Path) -> None:
    kernel = _start("receive_logs_topic.py", "kern.*", "*.critical", folder=tmp_path)
    every = _start("receive_logs_topic.py", "#", folder=tmp_path)
    with kernel, every:
        for topic in ("kern.critical", "cron.info", "disk.critical"):
            _run("emit_log_topic.py", topic, "a line", folder=tmp_path)

        every.wait_for("a line", 3)
        kernel.wait_for("disk.critical:a line")
        assert kernel.output.count("a line") == 2
        assert kernel.output.count("kern.critical") == 1


def test_rpc(tmp_path: Path) -> None:
    with _start("rpc_server.py", folder=tmp_path, ready="Awaiting"):
        assert "Got 832040" in _run("rpc_client.py", folder=tmp_path)
        assert "Got 55" in _run("rpc_client.py", "10", folder=tmp_path)
