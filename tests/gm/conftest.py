"""Rings on a simulated network, and stores of records in etcd."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from leveret.actors.runtime.runtime import Runtime
from leveret.cluster.background import Background
from leveret.cluster.client import EtcdClient
from leveret.cluster.settings import EtcdSettings
from leveret.gm.records.etcd_store import EtcdGroupStore
from leveret.testing.gm.ring import SimulatedRing
from rigs.etcd import Etcd


@pytest.fixture
def ring(seed: int) -> SimulatedRing:
    return SimulatedRing(seed)


@asynccontextmanager
async def opened(url: str, prefix: str, timeout_s: float = 20.0) -> AsyncIterator[EtcdGroupStore]:
    """A store whose requests have all been answered when the block is left."""
    client = EtcdClient(EtcdSettings((url,), timeout_s=timeout_s, connect_timeout_s=timeout_s))
    background = Background(client)
    try:
        yield EtcdGroupStore(background, prefix)
    finally:
        await client.close()
        await background.settle()


@pytest.fixture
async def etcd_store(etcd: Etcd, name: str) -> AsyncIterator[EtcdGroupStore]:
    async with opened(etcd.url, f"/{name}") as store:
        yield store


@pytest.fixture
async def live() -> AsyncIterator[Runtime]:
    runtime = Runtime()
    yield runtime
    await runtime.shutdown()
