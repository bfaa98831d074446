"""Verbs that wait for the start of a broker process, or end it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from leveret.core.addresses import Address
from leveret.management.errors import RefusedError
from leveret.management.node_admin import NodeAdmin
from leveret.server.broker import Broker
from leveret.server.cli.commands import NODE
from leveret.server.cli.main import main
from leveret.server.config.config import Config
from rigs.nodes import (
    BrokerUnderTest,
    start_leveret,
    stop_leveret,
)
from rigs.waiting import wait_until


@pytest.fixture
def node(tmp_path: Path) -> BrokerUnderTest:
    return start_leveret(tmp_path)


def ctl(node: BrokerUnderTest, *words: str) -> int:
    return main(["ctl", "--data", str(node.data), *words])


@pytest.mark.parametrize("verb", ["stop", "shutdown"])
def test_a_process_ends_as_by_a_signal(
    verb: str, node: BrokerUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    assert node.data is not None
    assert node.process is not None
    lock = str(node.data / "lock")
    try:
        assert ctl(node, "wait", lock) == 0
        assert ctl(node, "wait", "--pid", str(node.pid), "-q") == 0
        said = capsys.readouterr().out.splitlines()
        assert said[0] == f"Waiting for pid file '{lock}' to appear"
        assert said[-1] == f"Applications 'rabbit_and_plugins' are running on node '{NODE}'"
        if verb == "stop":
            assert ctl(node, "stop") == 0
        else:
            assert ctl(node, "shutdown", "--no-wait") == 0
        assert node.process.wait(10) == 0
        assert node.log is not None
        assert "stop requested" in node.log.read_text()
        capsys.readouterr()
        assert ctl(node, "stop") == 69
        capsys.readouterr()
        assert ctl(node, "stop", "-q", "--idempotent") == 0
        assert capsys.readouterr().out == f"Node {NODE} is no longer running\n"
    finally:
        stop_leveret(node)


def test_a_process_that_ends_is_waited_for_also_when_its_parent_does_not_ask_for_it(
    node: BrokerUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        assert ctl(node, "shutdown") == 0
        assert capsys.readouterr().out.splitlines() == [
            f"Shutting down RabbitMQ node {NODE} running at PID {node.pid}",
            f"Waiting for PID {node.pid} to terminate",
            f"RabbitMQ node {NODE} running at PID {node.pid} successfully shut down",
        ]
        assert node.process is not None
        assert node.process.wait(0) == 0
    finally:
        stop_leveret(node)


def test_the_level_of_the_log_is_set_until_the_settings_are_read_again(
    node: BrokerUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    assert node.log is not None
    assert node.pid is not None
    try:
        assert ctl(node, "set_log_level", "error") == 0
        assert ctl(node, "add_vhost", "unseen") == 0
        os.kill(node.pid, signal.SIGHUP)
        wait_until(lambda: "settings read again changed=" in node.log.read_text())
        assert ctl(node, "add_vhost", "seen") == 0
        capsys.readouterr()
        assert ctl(node, "-q", "set_log_level", "loud") == 70
        assert capsys.readouterr().err == (
            "Error:\nlevel loud is not supported. "
            "Try one of debug, info, warning, error, critical, none\n"
        )
        wait_until(lambda: "vhost added vhost=seen" in node.log.read_text())
        assert "vhost=unseen" not in node.log.read_text()
        assert ctl(node, "rotate_logs") == 69
    finally:
        stop_leveret(node)


def test_what_is_waited_for_may_not_come(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["ctl", "--data", str(tmp_path), "-q", "wait", "-t", "0.01"]
    assert main(asked) == 64
    assert main([*asked, "x", "--pid", "1"]) == 64
    capsys.readouterr()
    assert main([*asked, str(tmp_path / "none")]) == 75
    assert "operation wait on node" in capsys.readouterr().err
    (tmp_path / "garbage").write_text("not a number")
    assert main([*asked, str(tmp_path / "garbage")]) == 70
    assert capsys.readouterr().err == "Error:\nError: garbage in pid file.\n"
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert main([*asked, "--pid", str(gone.pid)]) == 70
    assert capsys.readouterr().err == "Error:\nError: process is not running.\n"
    assert main([*asked, str(tmp_path)]) == 70


async def test_a_broker_within_a_service_is_not_ended() -> None:
    async with Broker(Config(listen=(Address("127.0.0.1", 0),), data_dir=None)) as broker:
        with pytest.raises(RefusedError, match="belongs to a service"):
            await NodeAdmin(broker).health.stop()
        with pytest.raises(RefusedError, match="belongs to a service"):
            await NodeAdmin(broker).health.set_log_level("debug")
