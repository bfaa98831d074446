"""Rings on a simulated network, and stores of records in etcd."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from leveret.actors.runtime.runtime import Runtime
from leveret.gm.records.etcd_store import EtcdGroupStore
from rigs.cluster.etcd import Etcd
from rigs.cluster.etcd_stores import opened
from rigs.gm.ring import SimulatedRing


@pytest.fixture
def ring(seed: int) -> SimulatedRing:
    return SimulatedRing(seed)


@pytest.fixture
async def etcd_store(etcd: Etcd, name: str) -> AsyncIterator[EtcdGroupStore]:
    async with opened(etcd.url, f"/{name}") as store:
        yield store


@pytest.fixture
async def live() -> AsyncIterator[Runtime]:
    runtime = Runtime()
    yield runtime
    await runtime.shutdown()
