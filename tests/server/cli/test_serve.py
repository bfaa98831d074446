"""``leveret serve`` as a process: its ready line, its exit codes, its end."""

from __future__ import annotations

import fcntl
import json
import re
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest

from rigs import nodes
from rigs.nodes import READY, clean_environment, leveret_program
from rigs.programs import ended

ENDS_S = 10


def leveret(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return ended([leveret_program(), *arguments], cwd)


NO_UTF_8 = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.mark.parametrize("environment", [NO_UTF_8, {"PYTHONIOENCODING": "ascii"}])
def test_names_and_paths_are_utf_8_whatever_the_locale_says(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    folder = tmp_path / "größe 中 \udcff"  # and a byte that is no UTF-8
    folder.mkdir()

    with nodes.serving(folder, **environment) as node:
        said = ended(
            [leveret_program(), "ctl", "--data", str(node.data), "add_vhost", "größe 中"],
            folder,
            **environment,
        )
        assert said.stdout == 'Adding vhost "größe 中" ...\n', said.stderr
        assert node.control("list_vhosts", "-q") == "name\n/\ngröße 中\n"


class Serving:
    """A running ``leveret serve``."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [leveret_program(), "serve", *arguments],
            cwd=folder,
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.ready_line = self.process.stdout.readline()
        self.ready = READY.match(self.ready_line.rstrip("\n"))

    @property
    def port(self) -> int:
        assert self.ready is not None, self.process.communicate()
        return int(self.ready[3])

    def connect(self, user: str = "guest", password: str = "guest") -> pika.BlockingConnection:
        credentials = pika.PlainCredentials(user, password)
        return pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self.port, credentials=credentials)
        )

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=ENDS_S)
        return self.process.returncode, errors


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Serving]:
    running = Serving(folder, *arguments)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.process.communicate()


FREE = ("--listen", "127.0.0.1:0")


def test_the_ready_line_names_version_port_directory_kernel_loop_and_path(tmp_path: Path) -> None:
    with serving(tmp_path, *FREE, "--data", "d") as running:
        assert re.fullmatch(
            r"leveret \d+\.\d+\.\d+ ready: amqp://127\.0\.0\.1:[1-9]\d* data=d "
            r"kernel=(c|py) loop=(uvloop|asyncio) path=(compiled|sources)\n",
            running.ready_line,
        )


def test_the_default_data_directory_is_data_and_private(tmp_path: Path) -> None:
    with serving(tmp_path, *FREE):
        assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "data" / "control.sock").stat().st_mode) == 0o600


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_clients_are_told(
    tmp_path: Path, number: signal.Signals
) -> None:
    with serving(tmp_path, *FREE) as running:
        connection = running.connect()
        running.process.send_signal(number)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
            connection.process_data_events(ENDS_S)
        code, errors = running.process.wait(ENDS_S), running.process.communicate()[1]

    assert caught.value.reply_code == 320
    assert caught.value.reply_text == (
        "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
    )
    assert code == 0
    assert "Traceback" not in errors
    assert not (tmp_path / "data" / "control.sock").exists()


def test_several_addresses_may_be_listened_on(tmp_path: Path) -> None:
    with serving(tmp_path, *FREE, "--listen", "127.0.0.2:0") as running:
        socket.create_connection(("127.0.0.2", running.port), 5).close()


def test_a_port_in_use_exits_69_with_one_line(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        place = f"127.0.0.1:{other.getsockname()[1]}"

        done = leveret("serve", "--listen", place, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr == (
        f"leveret: cannot listen on {place}: port in use; choose another with --listen HOST:PORT\n"
    )


def test_a_locked_data_directory_exits_78_with_one_line(tmp_path: Path) -> None:
    with serving(tmp_path, *FREE) as running:
        done = leveret("serve", *FREE, cwd=tmp_path)

        assert (done.returncode, done.stdout) == (78, "")
        assert done.stderr == (
            f"leveret: data directory {tmp_path / 'data'} is in use by the broker with process id"
            f" {running.process.pid}\n"
        )


def test_an_unwritable_data_directory_exits_78_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    done = leveret("serve", *FREE, "--data", "file/data", cwd=tmp_path)

    assert done.returncode == 78
    assert done.stderr == (
        f"leveret: data directory {tmp_path / 'file/data'} is not writable: not a directory\n"
    )


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("a.toml", "[amqp]\nheartbeet_s = 1", 'a.toml:2: unknown key "amqp.heartbeet_s"; did you mean "amqp.heartbeat_s"?'),
        ("a.conf", "heartbeet = 1", 'a.conf:1: unknown key "heartbeet"; did you mean "heartbeat"?'),
        ("a.toml", '[log]\nfile = "/nowhere/log"', "cannot write /nowhere/log: No such file or directory"),
        ("a.conf", "load_definitions = none.json", "Bad argument: File none.json does not exist"),
    ],
)  # fmt: skip
def test_a_bad_configuration_exits_78_with_one_line(
    tmp_path: Path, name: str, source: str, said: str
) -> None:
    (tmp_path / name).write_text(source)

    done = leveret("serve", *FREE, "--config", name, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr == f"leveret: {said}\n"
    assert not (tmp_path / "data").exists()


def test_a_bad_address_exits_78_with_one_line(tmp_path: Path) -> None:
    done = leveret("serve", "--listen", "here", cwd=tmp_path)

    assert done.returncode == 78
    assert done.stderr == ('leveret: address "here" is not HOST:PORT with a port from 0 to 65535\n')


def test_rabbitmqs_configuration_file_takes_effect(tmp_path: Path) -> None:
    definitions = {
        "vhosts": [{"name": "/"}],
        "users": [{"name": "hare", "password": "form"}],
        "permissions": [{"user": "hare", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
        "queues": [{"vhost": "/", "name": "kept", "durable": True, "auto_delete": False, "arguments": {}}],
    }  # fmt: skip
    (tmp_path / "d.json").write_text(json.dumps(definitions))
    (tmp_path / "rabbitmq.conf").write_text(
        "listeners.tcp.1 = 127.0.0.1:0\n"
        "heartbeat = 33\nframe_max = 8192\nchannel_max = 7\nload_definitions = d.json\n"
        "log.console.level = warning\nnum_acceptors.tcp = 10\n"
    )
    with serving(tmp_path, "--config", "rabbitmq.conf") as running:
        connection = running.connect("hare", "form")
        found = connection.channel().queue_declare("kept", passive=True)
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            running.connect()
        tuned = connection._impl.params
        connection.close()
        code, errors = running.stop()

    assert found.method.message_count == 0
    assert (tuned.frame_max, tuned.channel_max, tuned.heartbeat) == (8192, 7, 33)
    assert code == 0
    assert "num_acceptors.tcp has no effect" in errors


def test_the_log_goes_to_stderr_and_the_file_at_their_levels(tmp_path: Path) -> None:
    (tmp_path / "leveret.toml").write_text(
        '[log]\nlevel = "none"\nfile = "l.log"\nfile_level = "info"'
    )
    with serving(tmp_path, *FREE, "--config", "leveret.toml") as running:
        code, errors = running.stop()

    assert (code, errors) == (0, "")
    assert " info leveret.server.cli.serve stopped" in (tmp_path / "l.log").read_text()


def test_a_log_that_nobody_reads_holds_up_no_client(tmp_path: Path) -> None:
    with serving(tmp_path, *FREE) as running:
        assert running.process.stderr is not None
        fcntl.fcntl(running.process.stderr, fcntl.F_SETPIPE_SZ, 4096)
        for _ in range(25):  # 12 kB of lines
            running.connect().close()

        code, errors = running.stop()

    assert code == 0
    assert len(errors) > 2 * 4096
    assert "stopped" in errors


def test_the_command_line_asks_the_running_broker(tmp_path: Path) -> None:
    with serving(tmp_path, *FREE) as running:
        connection = running.connect()
        connection.channel().queue_declare("q")
        status = json.loads(leveret("status", "--json", cwd=tmp_path).stdout)
        tree = leveret("tree", cwd=tmp_path).stdout
        queues = leveret("ctl", "-q", "list_queues", "name", "consumers", cwd=tmp_path).stdout
        added = leveret("ctl", "add_user", "guest", "x", cwd=tmp_path)
        perf = leveret(
            "perf", "-h", f"amqp://127.0.0.1:{running.port}", "-C", "100", "-u", "p", cwd=tmp_path
        )
        connection.close()

    assert status["pid"] == running.process.pid
    assert (status["connections"], status["queues"]["count"]) == (1, 1)
    assert re.search(r"^ +queue:q +supervisor running restarts=0$", tree, re.MULTILINE)
    assert queues == "name\tconsumers\nq\t0\n"
    assert (added.returncode, added.stderr) == (70, 'Error:\nUser "guest" already exists\n')
    assert (perf.returncode, perf.stderr) == (0, "")
    assert "verified" in perf.stdout


def test_after_the_end_nobody_answers(tmp_path: Path) -> None:
    with serving(tmp_path, *FREE) as running:
        running.stop()

    done = leveret("status", cwd=tmp_path)

    assert done.returncode == 69
    assert done.stderr.startswith(f"leveret: no broker is running in {tmp_path / 'data'};")
    assert done.stderr.count("\n") == 1


def test_a_killed_broker_leaves_nothing_that_keeps_the_next_from_starting(tmp_path: Path) -> None:
    with serving(tmp_path, *FREE) as running:
        running.process.kill()
        running.process.wait()
        with serving(tmp_path, *FREE) as again:
            assert again.ready is not None
            assert leveret("status", cwd=tmp_path).returncode == 0


def test_asking_loads_neither_the_broker_nor_rich(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom leveret.server.cli.main import main\n"
        "assert main(['status']) == 69\n"
        "print([m for m in ('leveret.broker', 'thespian', 'lmdb', 'rich', 'asyncio.unix_events')"
        " if m in sys.modules])"
    )
    beside = Path(leveret_program()).with_name("python")
    done = subprocess.run(
        [str(beside), "-c", program],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "[]\n"
