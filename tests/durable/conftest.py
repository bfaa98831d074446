"""Brokers that can be killed: their actors, as in ``chaos``, and whole processes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.conftest import chaos
from durable.workers import BrokerWorker
from rigs.failing_vhost import Disk

__all__ = ["chaos"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def disk(data: Path) -> Disk:
    """The disk of a vhost that fails or hangs as a test says."""
    return Disk(data)


@pytest.fixture
def start_worker(tmp_path: Path, rng: random.Random) -> Iterator[Callable[[], BrokerWorker]]:
    """Start ``broker_worker.py`` on one folder, again and again; none is left behind."""
    started: list[BrokerWorker] = []

    def start() -> BrokerWorker:
        started.append(BrokerWorker(tmp_path, rng.getrandbits(32), "real"))
        return started[-1]

    yield start
    for worker in started:
        worker.end()
