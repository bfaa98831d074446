"""Brokers that tests talk to: a ``leveret serve`` of our own, or a RabbitMQ that runs already."""

from __future__ import annotations

import io
import json
import os
import re
import select
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from leveret.server.cli.main import main
from leveret.server.control_client import ask
from rigs.certificates import Authority

READY_TIMEOUT_S = 180.0  # for a machine with much else to do
STOP_TIMEOUT_S = 15.0


@dataclass(slots=True)
class BrokerUnderTest:
    """Where the broker listens, which one it is, and its command line for users and permissions."""

    kind: str  # "leveret" or "rabbitmq"
    host: str
    port: int
    control: Callable[..., str]
    pid: int | None = None
    data: Path | None = None
    log: Path | None = None
    kernel: str = ""
    event_loop: str = ""
    path: str = ""
    process: subprocess.Popen[str] | None = field(default=None, repr=False)
    tls_port: int | None = None  # where the raw client connects, with --tls
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    @property
    def place(self) -> tuple[str, int]:
        """Where the raw client connects."""
        return self.host, self.tls_port or self.port

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.host}:{self.port}/"

    def expected(self, *, rabbitmq: Any, leveret: Any) -> Any:
        """Return this broker's expected value, where Leveret differs from RabbitMQ on purpose."""
        return rabbitmq if self.kind == "rabbitmq" else leveret

    def import_definitions(self, document: dict[str, Any]) -> None:
        """Import definitions from a file that every user of the machine can read, as rabbitmqctl changes its user."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            Path(file.name).chmod(0o644)
            json.dump(document, file)
            file.flush()
            self.control("import_definitions", file.name)


def clean_environment(**extra: str) -> dict[str, str]:
    """Return the environment for a subprocess: nothing of the checkout on ``sys.path``."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return environment | {"PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"} | extra


def leveret_program() -> str:
    beside = Path(sys.executable).with_name("leveret")
    return str(beside) if beside.exists() else str(shutil.which("leveret"))


READY = re.compile(
    r"leveret (\S+) ready: amqps?://(.+):(\d+) data=(.+) kernel=(c|py) loop=(uvloop|asyncio) path=(compiled|sources)( cluster=\S+ node=\S+)?$"
)


def start_leveret(
    folder: Path, *arguments: str, program: Sequence[str] = (), **environment: str
) -> BrokerUnderTest:
    """Start ``leveret serve`` on a free port with its data and log in ``folder``; wait until ready.

    Args:
        folder: the process's.
        arguments: more of them.
        program: another one that serves, instead of ``leveret``.
        environment: of the process, besides that of the tests.
    """
    data, log = folder / "data", folder / "log"
    command = [
        *(program or [leveret_program()]),
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        str(data),
        *arguments,
    ]
    with log.open("a") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=clean_environment(**environment),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    ready = _ready_line(process, log)

    def control(*words: str) -> str:
        return command_line("ctl", "--data", str(data), *words)

    return BrokerUnderTest(
        "leveret",
        ready[2],
        int(ready[3]),
        control,
        pid=process.pid,
        data=data,
        log=log,
        kernel=ready[5],
        event_loop=ready[6],
        path=ready[7],
        process=process,
    )


def command_line(*words: str) -> str:
    """Run a verb of ``leveret`` in the process of the tests; return what the verb prints.

    A process for each verb would take half a second to start.

    Raises:
        subprocess.CalledProcessError: it failed, as if it had been a process.
    """
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as errors:
        try:
            code = main(words)
        except SystemExit as end:  # wrong arguments
            code = int(end.code or 0)
    if code:
        raise subprocess.CalledProcessError(code, words, output.getvalue(), errors.getvalue())
    return output.getvalue()


def _ready_line(process: subprocess.Popen[str], log: Path) -> re.Match[str]:
    output = process.stdout.fileno()
    deadline, seen = time.monotonic() + READY_TIMEOUT_S, b""
    while (left := deadline - time.monotonic()) > 0 and select.select([output], [], [], left)[0]:
        piece = os.read(output, 4096)
        seen += piece
        for line in seen.decode().splitlines():
            if ready := READY.match(line):
                return ready
        if not piece:
            break
    process.kill()
    process.wait()
    process.stdout.close()  # else its ResourceWarning fails a test that has nothing to do with it
    pytest.fail(f"leveret serve was not ready; it said {seen!r} and\n{log.read_text()}")


def stop_leveret(broker: BrokerUnderTest, timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Stop it with SIGTERM unless it has ended; hold it to exit 0 in time and no traceback in its log."""
    process = broker.process
    assert process is not None
    assert broker.log is not None
    process.terminate()
    try:
        status = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()
    process.stdout.close()
    log = broker.log.read_text()
    assert status == 0, f"leveret serve ended with {status}:\n{log[-4000:]}"
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:4000]


def anonymous_bytes(node: BrokerUnderTest) -> int:
    """Return how much anonymous memory of the node is resident."""
    status = Path(f"/proc/{node.pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) << 10


def kill_leveret(broker: BrokerUnderTest) -> None:
    """End it with kill -9."""
    process = broker.process
    assert process is not None
    process.kill()
    process.wait()
    process.stdout.close()


def start_leveret_with_tls(folder: Path) -> BrokerUnderTest:
    """Start ``leveret serve`` with a TLS listener, where the raw client connects; others connect without TLS."""
    authority = Authority(folder)
    issued = authority.issue("localhost")
    config = folder / "tls.toml"
    config.write_text(f'[tls]\ncert_file = "{issued.cert}"\nkey_file = "{issued.key}"\n')
    broker = start_leveret(folder, "--config", str(config), "--listen", "amqps://127.0.0.1:0")
    assert broker.data is not None
    listeners = ask(broker.data, "status", {}, READY_TIMEOUT_S)["listeners"]
    (place,) = [each for each in listeners if each.startswith("amqps://")]
    broker.tls_port, broker.tls = int(place.rpartition(":")[2]), authority.client()
    return broker


@contextmanager
def serving(folder: Path, *arguments: str, **environment: str) -> Iterator[BrokerUnderTest]:
    """Serve from a folder, which another node may serve from afterwards; when the test fails, the node is killed."""
    with _until_the_end(start_leveret(folder, *arguments, **environment)) as node:
        yield node


@contextmanager
def serving_by(program: Path, folder: Path, **environment: str) -> Iterator[BrokerUnderTest]:
    """Serve by a ``leveret`` that is installed elsewhere."""
    with _until_the_end(start_leveret(folder, program=[str(program)], **environment)) as node:
        yield node


@contextmanager
def _until_the_end(node: BrokerUnderTest) -> Iterator[BrokerUnderTest]:
    try:
        yield node
    except BaseException:
        kill_leveret(node)
        raise
    stop_leveret(node)


def rabbitmq(address: str) -> BrokerUnderTest:
    host, _, port = address.rpartition(":")

    def control(*words: str) -> str:
        return subprocess.run(
            ["rabbitmqctl", "-q", *words], check=True, capture_output=True, text=True
        ).stdout

    return BrokerUnderTest("rabbitmq", host, int(port), control)
