"""Calls of the system fail in a node that runs: descriptors, threads and memory are used up, the disk has errors.

The actors of the node's infrastructure live through it, and do their work afterwards.

Tests: broker/node/background.py, broker/node/maintenance.py, broker/node/store_server.py,
    broker/node/vhost_restarter.py
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from conformance.raw import Connection, Event, error_of
from leveret.broker.node.maintenance import PERIOD_S
from leveret.core.addresses import Address
from leveret.core.sizes import SizeLimit
from leveret.metadata.tables import ExchangeRow
from leveret.server.broker import Broker
from leveret.server.config.config import Config
from leveret.supervisors.tree_view import walk
from leveret.testing.manual_clock import ManualClock
from rigs.waiting import eventually


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[Broker, ManualClock]]:
    clock = ManualClock(asyncio.get_running_loop())
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=folder / "data")
    async with Broker(config, clock) as broker:
        yield broker, clock


def failing(code: int) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise OSError(code, os.strerror(code))

    return fail


def no_thread(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def infrastructure(broker: Broker) -> dict[str, tuple[object, int]]:
    """Return address and restarts of the actors that must live."""
    assert broker.root is not None
    return {
        node.label: (node.ref, node.restarts)
        for node in walk(broker.runtime, broker.root)
        if len(node.labels) < 4
    }


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO])
async def test_a_node_without_descriptors_or_threads_lives_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    async with running(tmp_path) as (broker, clock):
        node = broker.node
        node.resources.set_limits(memory=SizeLimit(1))  # the alarm is raised
        await clock.advance(10.0)
        assert node.resources.alarms.raised == ("memory",)
        before = infrastructure(broker)
        with monkeypatch.context() as patched:
            for module, name in [
                (os, "open"), (os, "listdir"), (os, "scandir"), (os, "statvfs"), (io, "open"),
                (os, "unlink"), (os, "rename"), (os, "replace"),
            ]:  # fmt: skip
                patched.setattr(module, name, failing(code))
            patched.setattr(threading.Thread, "start", no_thread)
            await clock.advance(3 * PERIOD_S)
            assert node.resources.alarms.raised == ("memory",), "what is not known has not changed"
        await clock.advance(2 * PERIOD_S)

        assert infrastructure(broker) == before
        node.resources.set_limits(memory=SizeLimit(1 << 50))
        await clock.advance(10.0)
        assert node.resources.alarms.raised == ()
        await eventually((tmp_path / "data" / "ballast").exists)


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EIO, "of the test")])
async def test_metadata_that_cannot_be_written_is_refused_and_nothing_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async with running(tmp_path) as (broker, _):
        node = broker.node
        store: Any = node.metadata.store

        def fail(*_: object) -> None:
            raise error

        for number in range(30):
            row = ExchangeRow("/", f"e{number}", "direct")
            with monkeypatch.context() as patched:
                patched.setattr(store._environment, "_write", fail)
                with pytest.raises(Exception, match="metadata cannot be written"):
                    await node.metadata.write([row])
            await node.metadata.write([row])


async def test_a_queue_without_a_number_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as (broker, _):
        store: Any = broker.node.metadata.store
        before = infrastructure(broker)

        def declared() -> Event:
            connection = Connection(tuple(broker.addresses[0]))
            connection.open()
            answer = connection.channel().call("queue.declare", queue="q", durable=True)
            connection.drop()
            return answer

        with monkeypatch.context() as patched:
            patched.setattr(store, "_queue_nos_end", 0)
            patched.setattr(store._environment, "_write", failing(errno.ENOSPC))
            answer = await asyncio.to_thread(declared)
            assert error_of(answer) == ("connection", 541, "INTERNAL_ERROR", "queue.declare")
        assert (await asyncio.to_thread(declared)).name == "queue.declare-ok"
        assert infrastructure(broker) == before
