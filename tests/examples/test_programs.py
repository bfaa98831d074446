"""The programs of ``examples/`` and of the page on embedding, run the way they are written down."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aio_pika
import pika
import pytest

from leveret.server import Address, Broker, Config
from leveret.supervisors.tree_view import walk
from rigs.nodes import BrokerUnderTest, clean_environment
from rigs.programs import ended

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "embedding.md"
ENDS_S = 30


def run(folder: Path, program: Path, *arguments: str) -> str:
    done = ended([sys.executable, str(program), *arguments], folder)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@contextmanager
def started(folder: Path, program: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(program)],
        cwd=folder,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_hello_says_hello(tmp_path: Path, broker: BrokerUnderTest) -> None:
    assert run(tmp_path, EXAMPLES / "hello.py", broker.url) == "Hello World!\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_service_with_a_broker_inside_takes_orders(
    tmp_path: Path, number: signal.Signals
) -> None:
    with started(tmp_path, EXAMPLES / "embed_broker.py") as service:
        assert service.stdout is not None
        said = re.fullmatch(
            r"orders: 127\.0\.0\.1:(\d+) broker: (amqp://.+)\n", service.stdout.readline()
        )
        assert said is not None
        with socket.create_connection(("127.0.0.1", int(said[1])), ENDS_S) as customer:
            customer.sendall(b"tea\ncoffee\n")
            customer.shutdown(socket.SHUT_WR)
            assert customer.makefile("rb").read() == b"2 taken\n"
        with pika.BlockingConnection(pika.URLParameters(said[2])) as connection:
            channel = connection.channel()
            orders = [channel.basic_get("orders", auto_ack=True)[2] for _ in range(3)]
        service.send_signal(number)
        rest, errors = service.communicate(timeout=ENDS_S)

    assert orders == [b"tea", b"coffee", None]
    assert (rest, errors, service.returncode) == ("stopped\n", "", 0)
    assert list(tmp_path.iterdir()) == []


def test_a_service_with_a_tree_of_its_own_outlives_its_broker(tmp_path: Path) -> None:
    said = run(tmp_path, EXAMPLES / "supervise_service.py")
    before, after = said.split("killed, and started again on the same port:")

    assert re.search(r"─ broker +Service running restarts=0", before)
    assert re.search(r"─ broker +Service running restarts=1", after)
    assert re.search(r"─ counter +Counter running restarts=0", after)
    assert after.endswith("somebody knocks, and the port is open\nstopped\n")


def programs() -> list[str]:
    """The complete programs of the page, which call ``asyncio.run``."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [block for block in blocks if "asyncio.run(" in block]


@pytest.mark.parametrize("program", programs())
def test_the_programs_of_the_page_run(tmp_path: Path, program: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "program.py").write_text(program.replace("5673", str(port)))

    assert "done" in run(tmp_path, tmp_path / "program.py")


def test_the_page_has_programs() -> None:
    assert len(programs()) == 3


async def test_the_tree_of_the_page_on_architecture_is_the_one_that_runs() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    lines = [line for line in page.split("```")[1].splitlines() if "in a cluster:" not in line]
    drawn = set(re.findall(r"^[│ ]*(?:[├└]─ )?(\S+) {2,}\S", "\n".join(lines), re.MULTILINE))
    place = Config(listen=(Address("127.0.0.1", 0),), data_dir=None)
    async with Broker(place) as broker:
        connection = await aio_pika.connect(broker.url)
        async with connection:
            channel = await connection.channel()
            await channel.declare_queue("q")
            assert broker._root is not None
            running = {node.label for node in walk(broker.runtime, broker._root)}

    generic = {
        re.sub(r"^(vhost|queue|connection):.*", r"\1:NAME", label).replace(":1", ":N")
        for label in running
    }
    assert drawn == generic | {"vhost_starter"}
