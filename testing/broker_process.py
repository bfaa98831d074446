"""A broker in a process of its own, which can be killed with ``kill -9`` and restarted on its data.

::

    with BrokerProcess(tmp_path) as broker:
        publish_to(broker.url)
        broker.kill9()
        broker.start()

The process is ``leveret serve``; its port stays the same over restarts.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final, Self

from leveret.core.errors import LeveretError

START_S: Final = 60.0
STOP_S: Final = 15.0
_PAUSE_S: Final = 0.02


class BrokerProcessError(LeveretError):
    """The process did not start or did not end; the text contains its log."""


class BrokerProcess:
    """One node.

    Args:
        folder: for its data (``data``) and its log (``log``).
        arguments: further arguments of ``leveret serve``.
    """

    process: subprocess.Popen[bytes]  # the last one started

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.port = _free_port()
        self.log = folder / "log"
        self._arguments = arguments
        self._is_started = False

    def __repr__(self) -> str:
        return f"<broker process at 127.0.0.1:{self.port} in {self.folder}>"

    @property
    def url(self) -> str:
        """An AMQP URL with the default user."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}"

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def is_running(self) -> bool:
        return self._is_started and self.process.poll() is None

    def start(self) -> None:
        """Start the process, and wait until clients can connect.

        Raises:
            BrokerProcessError: the process ended or took too long.
        """
        assert not self.is_running, "it runs"
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-P", "-m", "leveret", "serve"]
        command += ["--listen", f"127.0.0.1:{self.port}", "--data", str(self.folder / "data")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self._arguments],
                cwd=self.folder,
                env=os.environ | {"PYTHONSAFEPATH": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._is_started = True
        self._wait_until_it_accepts()

    def _wait_until_it_accepts(self) -> None:
        deadline_s = time.monotonic() + START_S
        while True:
            if self.process.poll() is not None:
                raise BrokerProcessError(f"the broker ended:\n{self._tail()}")
            try:
                socket.create_connection(self.address, 1.0).close()
            except OSError:
                pass
            else:
                return
            if time.monotonic() > deadline_s:
                self.kill9()
                raise BrokerProcessError(f"not ready within {START_S} s:\n{self._tail()}")
            time.sleep(_PAUSE_S)

    def kill9(self) -> None:
        """Kill the process with SIGKILL, and wait for its end."""
        if self.is_running:
            self.process.send_signal(signal.SIGKILL)
        if self._is_started:
            self.process.wait(STOP_S)

    def stop(self) -> None:
        """Stop the process in order; harmless when it has ended.

        Raises:
            BrokerProcessError: the process did not end in time and was killed.
        """
        if not self.is_running:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise BrokerProcessError(f"did not stop in {STOP_S} s:\n{self._tail()}") from None

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-4_000:]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill9()


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
