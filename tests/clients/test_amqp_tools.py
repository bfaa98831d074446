"""The tools of rabbitmq-c (Debian: amqp-tools)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rigs.nodes import BrokerUnderTest, clean_environment
from rigs.programs import Background, run

pytestmark = pytest.mark.skipif(
    not shutil.which("amqp-publish"), reason="amqp-tools are not installed"
)
Tool = Callable[..., str]


@pytest.fixture
def tool(broker: BrokerUnderTest, tmp_path: Path) -> Tool:
    """Run a tool: ``tool("get", "-q", name)``."""

    def call(verb: str, *arguments: str, text: str | None = None) -> str:
        return run([f"amqp-{verb}", "-u", broker.url.rstrip("/"), *arguments], tmp_path, text=text)

    return call


@pytest.fixture
def queue(tool: Tool, name: str) -> str:
    assert tool("declare-queue", "-q", name).strip() == name
    return name


def test_publish_and_get(tool: Tool, queue: str) -> None:
    tool("publish", "-r", queue, "-b", "hello", "-p", "-C", "text/plain")

    assert tool("get", "-q", queue) == "hello"
    assert tool("delete-queue", "-q", queue).strip() == "0"


def test_a_line_is_a_message(tool: Tool, queue: str) -> None:
    tool("publish", "-r", queue, "-l", text="one\ntwo\nthree\n")

    assert [tool("get", "-q", queue) for _ in range(3)] == ["one\n", "two\n", "three\n"]
    tool("delete-queue", "-q", queue)


def test_consume(tool: Tool, queue: str) -> None:
    for number in range(5):
        tool("publish", "-r", queue, "-b", f"{number} ")

    assert tool("consume", "-q", queue, "-c", "5", "-p", "1", "cat") == "0 1 2 3 4 "
    assert tool("delete-queue", "-q", queue).strip() == "0"


def test_consume_from_an_exchange(
    broker: BrokerUnderTest, tool: Tool, tmp_path: Path, name: str
) -> None:
    command = [
        "amqp-consume",
        "-u",
        broker.url.rstrip("/"),
        "-e",
        "amq.topic",
        "-r",
        f"{name}.#",
        "-c",
        "2",
        "cat",
    ]
    with Background(command, tmp_path) as consumer:
        consumer.wait_for("Server provided queue name")
        for _ in range(100):
            if consumer.process.poll() is not None:
                break
            tool("publish", "-e", "amq.topic", "-r", f"{name}.a.b", "-b", "hit")
        assert consumer.process.wait(10) == 0

    assert consumer.output.count("hit") == 2


def test_an_empty_queue_and_a_missing_one(
    broker: BrokerUnderTest, tool: Tool, queue: str, tmp_path: Path
) -> None:
    for name, status in ((queue, 2), (queue + "-no", 1)):
        done = subprocess.run(
            ["amqp-get", "-u", broker.url.rstrip("/"), "-q", name],
            cwd=tmp_path,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status
    assert "404" in done.stderr
    tool("delete-queue", "-q", queue)


def test_a_body_of_a_megabyte(tool: Tool, queue: str) -> None:
    body = "0123456789abcdef" * 65536

    tool("publish", "-r", queue, text=body)

    assert tool("get", "-q", queue) == body
    tool("delete-queue", "-q", queue)
