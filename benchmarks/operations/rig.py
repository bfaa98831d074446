"""The rig of an operation: a broker with a meter, and the figures of its loop."""

from __future__ import annotations

import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import brokers
from harness.meter import FIGURES
from harness.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOK_S = 0.15
QUIET_S = 0.006  # of CPU time between two looks
QUIET_LOOKS = 4
IDLE_S = 180.0
SHOWN = 2  # iterations of an operation, with their stacks
KERNEL, LOOP = "c", "asyncio"


class Rig:
    """A broker with a meter, for one operation."""

    def __init__(self, broker: brokers.Broker, folder: Path, scale: float) -> None:
        self.broker = broker
        self._scale = scale
        self._folder = folder
        self._file = (folder / "meter").open("r+b")
        self._map = mmap.mmap(self._file.fileno(), FIGURES.size)
        self._stacks_at = 0

    def scaled(self, count: int) -> int:
        """Return a size of the operation, scaled."""
        return max(1, int(count * self._scale))

    def peer(self, **options: Any) -> Peer:
        """Open a connection with channel 1."""
        return Peer((self.broker.host, self.broker.port), **options)

    @property
    def tls(self) -> tuple[str, int]:
        """The address of the TLS listener."""
        return self._listener(1)

    @property
    def proxied(self) -> tuple[str, int]:
        """The address of the listener with the PROXY protocol."""
        return self._listener(2)

    def _listener(self, number: int) -> tuple[str, int]:
        place: str = self.control("status")["listeners"][number]
        host, _, port = place.rpartition("/")[2].rpartition(":")
        return host, int(port)

    def send(self, data: bytes) -> socket.socket:
        """Send bytes on a connection of their own, as far as the broker takes them."""
        client = socket.create_connection((self.broker.host, self.broker.port), 60)
        with suppress(ConnectionError):
            client.sendall(data)
        return client

    def control(self, verb: str, **arguments: Any) -> Any:
        """Ask the broker as an operator does."""
        from leveret.server.control_client import ask

        return ask(self._folder / "data", verb, arguments, 600.0)

    def control_bytes(self, data: bytes) -> None:
        """Send bytes to the control socket until it is closed."""
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self._folder / "data" / "control.sock"))
            with suppress(ConnectionError):
                client.sendall(data)

    def measure(self) -> None:
        """Wait until the broker is idle, and begin to measure."""
        self.settle()
        self._stacks_at = self._stacks.stat().st_size
        FIGURES.pack_into(self._map, 0, 0.0, 0.0, 0.0)

    def settle(self) -> None:
        """Wait until the broker is idle."""
        deadline_s, quiet = time.monotonic() + IDLE_S, 0
        before_s = self._cpu_s()
        while quiet < QUIET_LOOKS and time.monotonic() < deadline_s:
            time.sleep(LOOK_S)
            now_s = self._cpu_s()
            quiet = quiet + 1 if now_s - before_s < QUIET_S else 0
            before_s = now_s

    @property
    def _stacks(self) -> Path:
        return self._folder / "stacks"

    def _cpu_s(self) -> float:
        tasks = Path(f"/proc/{self.broker.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def found(self) -> dict[str, float]:
        """Return the figures since ``measure``."""
        iteration_s, collection_s, count = FIGURES.unpack(self._map)
        return {
            "iteration_ms": iteration_s * 1000,
            "collection_ms": collection_s * 1000,
            "iterations": count,
        }

    def stacks(self) -> str:
        """Return the stacks of long iterations since ``measure``."""
        with self._stacks.open() as file:
            file.seek(self._stacks_at)
            several = file.read().split("\n\n")[:-1]
        several.sort(key=lambda each: -float(each.split()[0]))
        return "\n".join(several[:SHOWN])


@contextmanager
def rig(scale: float, stacks: str = "", settings: str = "") -> Iterator[Rig]:
    """Start a broker with a meter in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="leveret-turns") as name:
        folder = Path(name)
        (folder / "meter").write_bytes(bytes(FIGURES.size))
        (folder / "stacks").touch()
        (folder / "leveret.toml").write_text(settings + brokers.tls_settings(folder))
        command = [
            sys.executable,
            str(Path(__file__).parents[1] / "harness/meter.py"),
            name,
            "serve",
        ]
        command += ["--listen", "127.0.0.1:0", "--listen", "amqps://127.0.0.1:0"]
        command += [
            "--listen",
            "127.0.0.2:0?proxy_protocol=true",
            "--data",
            f"{name}/data",
            "--log-level",
            "critical",
        ]
        command += ["--config", f"{name}/leveret.toml"]
        process = subprocess.Popen(
            command,
            env=brokers.environment(
                LEVERET_KERNEL=KERNEL, LEVERET_LOOP=LOOP, LEVERET_TURNS_STACKS=stacks
            ),
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            ready = brokers.READY.match(line := process.stdout.readline())
            if ready is None:
                raise brokers.StartError(line)
            broker = brokers.Broker("leveret", ready[1], int(ready[2]), process.pid)
            yield Rig(broker, folder, scale)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
