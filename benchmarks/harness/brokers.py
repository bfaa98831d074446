"""Brokers of a benchmark: started on free ports in temporary folders, stopped at the end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from leveret.server.perf.cpu import descendants

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

READY = re.compile(r"leveret \S+ ready: amqps?://(\S+):(\d+) data=.* kernel=(\S+) loop=(\S+)")
START_S = 180.0  # RabbitMQ beside other work
STOP_S = 15.0
RABBITMQ = "rabbitmq-server"


class Broker(NamedTuple):
    """A running broker; ``pid`` is the root of its processes, ``node`` RabbitMQ's name for it.

    ``event_loop`` and ``data``, the data directory, are Leveret's. ``has_tls``: the port is that of a TLS listener.
    """

    name: str
    host: str
    port: int
    pid: int
    node: str = ""
    event_loop: str = ""
    has_tls: bool = False
    data: Path | None = None


class StartError(Exception):
    """A broker did not start."""


def leveret_command() -> list[str]:
    """Return the command of this checkout's ``leveret``, on the interpreter of the benchmark."""
    return [sys.executable, "-m", "leveret"]


def environment(**more: str) -> dict[str, str]:
    """Return the environment for Leveret's processes: the root's ``amqp`` must not shadow py-amqp."""
    return os.environ | {"PYTHONSAFEPATH": "1"} | more


@contextmanager
def leveret(form: str, settings: str = "", *, has_tls: bool = False) -> Iterator[Broker]:
    """Run Leveret in one of its forms (``leveret_in``), with the text of a ``leveret.toml``."""
    with (
        tempfile.TemporaryDirectory(prefix="leveret-bench") as folder,
        leveret_in(Path(folder), form, settings, has_tls=has_tls) as broker,
    ):
        yield broker


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate of its own with a key of RSA, 2048 bits; return both files."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    subprocess.run(
        [*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True
    )
    key.chmod(0o644)  # RabbitMQ has a user of its own
    return cert, key


def tls_settings(folder: Path) -> str:
    """Make a certificate; return the settings of Leveret that use it."""
    return '[tls]\ncert_file = "{}"\nkey_file = "{}"\n'.format(*certificate(folder))


@contextmanager
def leveret_in(
    folder: Path,
    form: str,
    settings: str = "",
    *,
    has_tls: bool = False,
    options: Sequence[str] = (),
) -> Iterator[Broker]:
    """Run Leveret in an existing folder, which stays; its data is in ``data``.

    The form is ``c`` or ``py``, by the kernel, or ``path``: kernel and the message's path are compiled.
    """
    kernel = "c" if form == "path" else form
    compiled = "require" if form == "path" else "0"
    config = folder / "leveret.toml"
    config.write_text(settings + (tls_settings(folder) if has_tls else ""))
    listen = "amqps://127.0.0.1:0" if has_tls else "127.0.0.1:0"
    command = [*leveret_command(), "serve", "--listen", listen, "--data", f"{folder}/data"]
    command += ["--log-level", "error", "--config", str(config), *options]
    process = subprocess.Popen(
        command,
        env=environment(LEVERET_KERNEL=kernel, LEVERET_COMPILED=compiled),
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = READY.match(line := process.stdout.readline())
        if found is None or found[3] != kernel:
            raise StartError(f"leveret in the form {form} did not start: {line.strip()}")
        yield Broker(
            f"leveret-{form}",
            found[1],
            int(found[2]),
            process.pid,
            event_loop=found[4],
            has_tls=has_tls,
            data=folder / "data",
        )
    finally:
        _stop(process)
        process.stdout.close()


@contextmanager
def rabbitmq(*, has_tls: bool = False, node: str = "") -> Iterator[Broker]:
    """Run RabbitMQ as a node of its own, of that name, with its defaults and no plugins."""
    folder = Path(tempfile.mkdtemp(prefix="rabbitmq-bench"))
    folder.chmod(0o777)  # the server runs as user rabbitmq
    port = free_port()
    node = node or f"leveret_bench_{os.getpid()}@localhost"
    settings = {
        "RABBITMQ_NODENAME": node,
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(folder / ("rabbitmq.conf" if has_tls else "none")),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
    }
    (folder / "rabbitmq-env.conf").write_text("ulimit -n $(ulimit -Hn)\n")  # else 832 sockets
    if has_tls:
        del settings["RABBITMQ_NODE_IP_ADDRESS"], settings["RABBITMQ_NODE_PORT"]
        cert, key = certificate(folder)
        (folder / "rabbitmq.conf").write_text(
            f"listeners.tcp = none\nlisteners.ssl.default = 127.0.0.1:{port}\n"
            f"ssl_options.certfile = {cert}\nssl_options.keyfile = {key}\n"
        )
    (folder / "plugins").write_text("[].\n")
    process = subprocess.Popen(
        [RABBITMQ],
        env=os.environ | settings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _await_amqp("127.0.0.1", port, process, has_tls)
        yield Broker("rabbitmq", "127.0.0.1", port, process.pid, node, has_tls=has_tls)
    finally:
        _stop_rabbitmq(process)
        shutil.rmtree(folder, ignore_errors=True)


def set_policy(broker: Broker, pattern: str, definition: str) -> None:
    """Give queues a policy."""
    if broker.data is None:
        control, where = ["rabbitmqctl", "-n", broker.node], None
    else:
        control, where = [*leveret_command(), "ctl", "--data", str(broker.data)], broker.data
    command = [*control, "set_policy", "bench", pattern, definition]
    subprocess.run(command, check=True, env=environment(), cwd=where, stdout=subprocess.DEVNULL)


def rabbitmq_is_installed() -> bool:
    """Return whether RabbitMQ is installed."""
    return shutil.which(RABBITMQ) is not None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_amqp(
    host: str, port: int, process: subprocess.Popen[bytes], has_tls: bool = False
) -> None:
    """Wait until connection.start comes."""
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s:
        if process.poll() is not None:
            raise StartError(f"{RABBITMQ} ended with {process.returncode}")
        try:
            with _dial(host, port, has_tls) as probe:
                probe.sendall(b"AMQP\x00\x00\x09\x01")
                if probe.recv(1) == b"\x01":
                    return
        except OSError:
            time.sleep(0.2)
    raise StartError(f"{RABBITMQ} was not ready within {START_S:g} s")


def _dial(host: str, port: int, has_tls: bool) -> socket.socket:
    probe = socket.create_connection((host, port), 5)
    if not has_tls:
        return probe
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(probe)


def _stop_rabbitmq(process: subprocess.Popen[bytes]) -> None:
    """End RabbitMQ's virtual machine, to whose end its wrapper scripts wait: they pass no signal on."""
    machines = [pid for pid in descendants(process.pid)[1:] if _command(pid) == "beam.smp"]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in machines:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
            return
    process.kill()
    process.wait()


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
