"""Starting and ending ``tests/rigs/broker_worker.py``."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path

from rigs.nodes import READY_TIMEOUT_S, clean_environment

TESTS = Path(__file__).parents[1]
WORKER = TESTS / "rigs" / "broker_worker.py"
_READY = re.compile(rb"ready (\d+)\n")


class BrokerWorker:
    """One such process.

    Args:
        folder: for its data and its log.
        seed: of its random choices.
        disk: ``real`` or ``faulty``.
    """

    def __init__(self, folder: Path, seed: int, disk: str) -> None:
        self._folder = folder
        self._disk = disk
        self._address: tuple[str, int] | None = None
        self.log = folder / "log"
        command = [sys.executable, "-P", str(WORKER), str(folder / "data"), str(seed), disk]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=clean_environment(PYTHONPATH=str(TESTS)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def address(self) -> tuple[str, int]:
        """Wait until clients can connect."""
        if self._address is None:
            self._address = "127.0.0.1", self._port()
        return self._address

    def _port(self) -> int:
        assert self.process.stdout is not None
        output, said = self.process.stdout.fileno(), b""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while (left := deadline - time.monotonic()) > 0:
            if select.select([output], [], [], left)[0]:
                piece = os.read(output, 100)
                said += piece
                if ready := _READY.search(said):
                    return int(ready[1])
                if not piece:
                    break
        raise AssertionError(f"not ready: {self.log.read_text()}")

    def kill(self) -> None:
        """End it with kill -9."""
        self.process.kill()
        self._wait()

    def cut_power(self) -> None:
        """Kill it, and drop unsynced data."""
        self._tell(b"cut\n")
        assert self._wait() == 9, self.log.read_text()

    def crash(self) -> None:
        """End it as badly as its disk lets it: a faulty one loses unsynced data."""
        if self._disk == "faulty":
            self.cut_power()
        else:
            self.kill()

    def stop(self) -> None:
        """End it in order."""
        self._tell(b"stop\n")
        assert self._wait() == 0, self.log.read_text()

    def _tell(self, command: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command)
        self.process.stdin.flush()

    def _wait(self) -> int:
        code = self.process.wait(30)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        return code

    def end(self) -> None:
        """Leave no process behind, also when the test failed."""
        self.kill()
