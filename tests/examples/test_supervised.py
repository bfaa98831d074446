"""The examples of supervision, run as they are written down."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rigs.nodes import clean_environment
from rigs.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
ENDS_S = 60


class Program:
    """An example that runs."""

    def __init__(self, name: str, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", str(EXAMPLES / name)],
            cwd=folder,
            env=clean_environment(TMPDIR=str(folder)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def lines_until(self, last: str) -> list[str]:
        lines = [self.line()]
        while lines[-1] != last:
            assert lines[-1], self.process.communicate()
            lines.append(self.line())
        return lines

    def rest(self) -> str:
        out, errors = self.process.communicate(timeout=ENDS_S)
        assert (self.process.returncode, errors) == (0, "")
        return out


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[[str], Program]]:
    running: list[Program] = []

    def started(name: str) -> Program:
        running.append(Program(name, tmp_path))
        return running[-1]

    yield started
    for one in running:
        one.process.kill()
        one.process.communicate()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_asyncio_service(program: Callable[[str], Program], number: signal.Signals) -> None:
    service = program("service.py")
    port = int(service.line().rpartition(":")[2])
    tree = [service.line() for _ in range(3)]

    def restarts() -> int:
        with socket.create_connection(("127.0.0.1", port), ENDS_S) as customer:
            customer.sendall(b"tea\n")
            customer.shutdown(socket.SHUT_WR)
            said = customer.makefile().read()
        return int(re.fullmatch(r"tea: \d+ after (\d+) restarts\n", said)[1])  # type: ignore[index]

    wait_until(lambda: restarts() >= 2)
    service.process.send_signal(number)

    assert re.match(r"shop +Supervisor running", tree[0])
    assert [line.split()[1] for line in tree[1:]] == ["feed", "server"]
    assert service.rest() == "stopped\n"


def test_an_aiohttp_application(program: Callable[[str], Program]) -> None:
    site = program("web_app.py")
    url = f"http://127.0.0.1:{site.line().split()[1]}/"

    def get(path: str = "", data: bytes | None = None) -> str:
        with urllib.request.urlopen(url + path, data, timeout=ENDS_S) as response:
            return str(response.read().decode())

    assert [get(), get()] == ["visit 1\n", "visit 2\n"]
    assert get("crash", b"") == "crashed\n"
    assert get() == "visit 1\n"  # a request that finds nobody there is answered 503, and fails here
    site.process.send_signal(signal.SIGTERM)

    assert site.rest() == "stopped\n"


def test_a_worker_pool_with_processes(program: Callable[[str], Program]) -> None:
    out = program("worker_pool.py").rest()

    assert "1001: the worker is gone (noconnection), once more\n" in out
    assert "\n1001 = 7 x 11 x 13\n" in out
    assert out.endswith("in other processes: True\n")


def test_a_service_with_the_broker_in_its_tree(program: Callable[[str], Program]) -> None:
    service = program("service_with_broker.py")

    lines = service.lines_until("order 6")
    os.kill(service.process.pid, signal.SIGTERM)

    assert lines[lines.index("order 3") + 1] == "order 3 again"
    assert [line for line in lines if not line.endswith("again")] == [
        f"order {number}" for number in range(1, 7)
    ]
    assert service.rest().endswith("stopped\n")
