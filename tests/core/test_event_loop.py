"""Which event loop ``leveret serve`` takes, and that a client is served on both."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pika
import pytest

from leveret.core.errors import ConfigError
from leveret.core.event_loop import loop_factory, name_of
from rigs.nodes import (
    BrokerUnderTest,
    clean_environment,
    leveret_program,
    start_leveret,
    stop_leveret,
)
from rigs.programs import ended

SOON_S = 10.0
LARGE_BYTES = 5_000_000  # read in many pieces
HAS_UVLOOP = find_spec("uvloop") is not None
LOOPS = [
    "asyncio",
    pytest.param(
        "uvloop", marks=pytest.mark.skipif(not HAS_UVLOOP, reason="uvloop is not installed")
    ),
]


def made_loop() -> asyncio.AbstractEventLoop:
    raise AssertionError("it is only looked at")


@pytest.fixture
def fake_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("uvloop")
    module.new_event_loop = made_loop  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "uvloop", module)


@pytest.fixture
def no_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)  # type: ignore[arg-type]


@pytest.mark.usefixtures("fake_uvloop")
@pytest.mark.parametrize(
    ("wanted", "factory"),
    [("", made_loop), ("uvloop", made_loop), ("asyncio", asyncio.new_event_loop)],
)
def test_uvloop_is_taken_where_it_is_unless_the_other_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, wanted: str, factory: object
) -> None:
    monkeypatch.setenv("LEVERET_LOOP", wanted)
    assert loop_factory() is factory


@pytest.mark.usefixtures("no_uvloop")
@pytest.mark.parametrize("wanted", ["", "asyncio"])
def test_without_uvloop_it_is_asyncio(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    monkeypatch.setenv("LEVERET_LOOP", wanted)
    assert loop_factory() is asyncio.new_event_loop


@pytest.mark.usefixtures("no_uvloop")
def test_uvloop_that_is_asked_for_and_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVERET_LOOP", "uvloop")
    with pytest.raises(ConfigError, match=r"LEVERET_LOOP is uvloop: .*pip install uvloop"):
        loop_factory()


async def test_the_name_of_a_loop_is_its_packages() -> None:
    assert name_of(asyncio.get_running_loop()) in {"asyncio", "uvloop"}


def status(node: BrokerUnderTest) -> dict[str, Any]:
    told = subprocess.run(
        [leveret_program(), "status", "--json", "--data", str(node.data)],
        env=clean_environment(),
        capture_output=True,
        check=True,
        timeout=SOON_S,
    )
    found: dict[str, Any] = json.loads(told.stdout)
    return found


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_is_served_and_a_signal_ends_it(tmp_path: Path, loop: str) -> None:
    node = start_leveret(tmp_path, LEVERET_LOOP=loop)
    try:
        assert node.event_loop == loop
        with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            channel.confirm_delivery()
            channel.basic_publish("", "q", b"hello", pika.BasicProperties(delivery_mode=2))
            assert channel.basic_get("q", auto_ack=True)[2] == b"hello"
            bodies = [bytes([n]) * LARGE_BYTES for n in range(20)]
            for body in bodies:
                channel.basic_publish("", "q", body)
            assert [channel.basic_get("q", auto_ack=True)[2] for _ in bodies] == bodies
        assert status(node)["event_loop"] == loop
    finally:
        stop_leveret(node)


def test_another_loop_is_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    done = ended(
        [leveret_program(), "serve", "--listen", "127.0.0.1:0"], tmp_path, LEVERET_LOOP="trio"
    )
    assert (done.returncode, done.stderr) == (
        78,
        "leveret: LEVERET_LOOP is 'trio', not uvloop or asyncio\n",
    )
