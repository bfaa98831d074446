"""A real etcd of the tests' own: one server or three, on free ports, with little memory, in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from rigs.waiting import wait_until

PROGRAM = shutil.which("etcd") or "/usr/bin/etcd"
READY_S = 60.0  # for a machine with much else to do
TRIES = 5
SERVING = (  # in the logs of etcd 3.4, and of 3.5 and 3.6
    "serving insecure client requests", "serving client requests",
    "serving client traffic insecurely", "serving client traffic securely",
)  # fmt: skip
MISSING = f"no etcd: install etcd-server (Debian) or put etcd on PATH; looked for {PROGRAM}"


def require_etcd() -> None:
    """Skip the test where there is no etcd; fail it in continuous integration."""
    if os.access(PROGRAM, os.X_OK):
        return
    if os.environ.get("CI"):
        pytest.fail(MISSING)
    pytest.skip(MISSING)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Etcd:
    """One server. Leaving the context kills it.

    Args:
        folder: for its data and its log.
        options: more arguments.
        scheme: of the URL of its clients.
    """

    def __init__(self, folder: Path, *options: str, scheme: str = "http") -> None:
        require_etcd()
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._options = options
        self._scheme = scheme
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self._peer_port = 0

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self._peer_port}"

    def start(self) -> Self:
        """Start it on free ports; again, after ``kill``, on the same ones and with the same data."""
        for _ in range(TRIES):  # somebody else may take a port meanwhile
            if self._process is None:
                self.choose_ports()
            self.spawn()
            if self.is_ready():
                return self
            assert "address already in use" in self.log, self.log[-3000:]
            self._process = None
        raise AssertionError("etcd found no free ports")

    def choose_ports(self) -> None:
        self.port, self._peer_port = _free_ports(2)

    def spawn(self, name: str = "one", members: str = "") -> None:
        """Start the process, as one of the members of a cluster, or as the only one."""
        command = [
            PROGRAM, "--name", name, "--data-dir", str(self._folder / "data"),
            "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
            "--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url,
            "--initial-cluster", members or f"{name}={self.peer_url}",
            "--quota-backend-bytes", str(64 << 20),
            "--heartbeat-interval", "50", "--election-timeout", "500", *self._options,
        ]  # fmt: skip
        with (self._folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                env={"PATH": "/usr/bin:/bin", "GOGC": "50", "GOMAXPROCS": "2"},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def is_ready(self) -> bool:
        """Wait until it serves; return False if it has ended."""
        process = self._process
        assert process is not None

        def serves() -> bool:
            return any(text in self.log for text in SERVING)

        wait_until(
            lambda: serves() or process.poll() is not None,
            lambda: self.log[-3000:],
            READY_S,
            0.02,
        )
        return process.poll() is None

    def kill(self) -> None:
        """End it as a crash of its machine would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Stop all its threads; they have stopped when this returns."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def revive(self) -> None:
        """Have it run again, whether it is paused, was killed, or neither."""
        self.resume()
        assert self._process is not None
        if self._process.poll() is not None:
            self.start()

    def post(self, path: str, body: str, token: str = "") -> bytes:
        """Ask the server by other means than those under test."""
        request = urllib.request.Request(self.url + path, body.encode())
        if token:
            request.add_header("Authorization", token)
        with urllib.request.urlopen(request, timeout=10.0) as answer:
            content: bytes = answer.read()
            return content

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.kill()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


@contextmanager
def three_servers(folder: Path) -> Iterator[list[Etcd]]:
    """Three servers that are one cluster, the leader first."""
    for attempt in range(TRIES):
        servers = [Etcd(folder / f"{attempt}-{at}") for at in range(3)]
        for each in servers:
            each.choose_ports()
        members = ",".join(f"m{at}={each.peer_url}" for at, each in enumerate(servers))
        try:
            for at, each in enumerate(servers):
                each.spawn(f"m{at}", members)
            if all(each.is_ready() for each in servers):
                yield sorted(servers, key=_is_follower)
                return
        finally:
            for each in servers:
                each.kill()
    raise AssertionError("etcd found no free ports")


def _is_follower(server: Etcd) -> bool:
    status: dict[str, Any] = {}

    def knows_leader() -> bool:
        status.update(json.loads(server.post("/v3/maintenance/status", "{}")))
        return "leader" in status

    wait_until(knows_leader, "no leader was elected", READY_S)
    return bool(status["leader"] != status["header"]["member_id"])
