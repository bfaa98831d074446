"""The plug-ins of ``examples/plugins``, installed as packages of their own and used by a broker."""

from __future__ import annotations

import re
import shutil
import sys
import time
from pathlib import Path

import pika
import pytest

from rigs.nodes import BrokerUnderTest, leveret_program, start_leveret, stop_leveret
from rigs.programs import ended, run

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
PLUGINS = Path(__file__).parents[2] / "examples" / "plugins"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install all examples into a folder."""
    folder = tmp_path_factory.mktemp("plugins")
    sources = shutil.copytree(PLUGINS, folder / "sources")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    packages = [str(each) for each in sorted(sources.iterdir())]
    run([*pip, "--no-build-isolation", "--target", str(folder / "site"), *packages], folder)
    return folder / "site"


def connect(broker: BrokerUnderTest) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(broker.url))


def test_the_page_shows_the_examples() -> None:
    shown = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    programs = [file.read_text() for file in PLUGINS.glob("*/*.py")]
    assert len(shown) == len(programs)
    assert all(any(program.endswith(block) for program in programs) for block in shown)


def test_each_example_is_short() -> None:
    for file in PLUGINS.glob("*/*.py"):
        lines = [line for line in file.read_text().splitlines() if line.strip()]
        assert len(lines) <= 20, f"{file} has {len(lines)} lines"


def test_an_exchange_type(tmp_path: Path, installed: Path) -> None:
    broker = start_leveret(tmp_path, PYTHONPATH=str(installed))
    try:
        with connect(broker) as connection:
            channel = connection.channel()
            channel.exchange_declare("x", "x-longest-prefix", durable=True)
            for prefix in ("", "+4", "+49"):
                channel.queue_declare(f"q{prefix}", durable=True)
                channel.queue_bind(f"q{prefix}", "x", prefix)
            for number in ("+4930", "+4131", "+1212"):
                channel.basic_publish("x", number, number)
            got = {name: channel.basic_get(name, auto_ack=True)[2] for name in ("q", "q+4", "q+49")}
        assert got == {"q": b"+1212", "q+4": b"+4131", "q+49": b"+4930"}
    finally:
        stop_leveret(broker)

    without = start_leveret(tmp_path)
    try:
        with connect(without) as connection:
            channel = connection.channel()
            channel.exchange_declare("x", "x-longest-prefix", passive=True)
            channel.basic_publish("x", "+4930", b"")
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
                channel.queue_declare("q", passive=True)
            assert closed.value.reply_code == 406
            assert closed.value.reply_text == (
                "PRECONDITION_FAILED - Cannot route message through exchange 'x' in vhost '/': "
                "exchange type 'x-longest-prefix' not found"
            )
    finally:
        stop_leveret(without)

    again = start_leveret(tmp_path, PYTHONPATH=str(installed))
    try:
        with connect(again) as connection:
            channel = connection.channel()
            channel.basic_publish("x", "+4930", b"back")
            assert channel.basic_get("q+49", auto_ack=True)[2] == b"back"
    finally:
        stop_leveret(again)


def test_an_interceptor(tmp_path: Path, installed: Path) -> None:
    config = tmp_path / "leveret.toml"
    config.write_text('[plugins]\ninterceptors = ["stamp"]')
    broker = start_leveret(tmp_path, "--config", str(config), PYTHONPATH=str(installed))
    try:
        with connect(broker) as connection:
            channel = connection.channel()
            channel.queue_declare("q")
            mine = pika.BasicProperties(content_type="text/plain", headers={"mine": 1})
            channel.basic_publish("", "q", b"body", mine)
            _, properties, body = channel.basic_get("q", auto_ack=True)
        assert (properties.content_type, body) == ("text/plain", b"body")
        assert properties.headers["mine"] == 1
        assert abs(properties.headers["timestamp_in_ms"] / 1000 - time.time()) < 60
    finally:
        stop_leveret(broker)


def test_an_interceptor_that_is_not_installed(tmp_path: Path) -> None:
    config = tmp_path / "leveret.toml"
    config.write_text('[plugins]\ninterceptors = ["stamp"]')

    serve = [leveret_program(), "serve", "--listen", "127.0.0.1:0"]
    done = ended([*serve, "--config", str(config)], tmp_path)

    assert done.returncode == 78
    assert done.stderr.splitlines()[-1] == (
        "leveret: plug-in 'stamp' of leveret.interceptors is not installed; installed: none"
    )


def test_a_back_end(tmp_path: Path, installed: Path) -> None:
    config = tmp_path / "leveret.toml"
    config.write_text('[auth]\nbackends = ["password-file", "internal"]')
    passwords = tmp_path / "passwords"
    passwords.write_text("ann:secret\nbob:hidden\n")
    broker = start_leveret(
        tmp_path, "--config", str(config), PYTHONPATH=str(installed), PASSWORDS=str(passwords)
    )
    try:
        url = broker.url.replace("guest:guest", "ann:secret")
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            channel.queue_declare("ann.q")
            channel.basic_publish("", "ann.q", b"body")
            assert channel.basic_get("ann.q", auto_ack=True)[2] == b"body"
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
                channel.queue_declare("bob.q")
            assert closed.value.reply_code == 403
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            pika.BlockingConnection(pika.URLParameters(url.replace("secret", "wrong")))
        with connect(broker) as connection:
            connection.channel().queue_declare("guests")
    finally:
        stop_leveret(broker)
