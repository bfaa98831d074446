"""Stores of groups' records in an etcd."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from leveret.etcd.background import Background
from leveret.etcd.client import EtcdClient
from leveret.etcd.settings import EtcdSettings
from leveret.gm.records.etcd_store import EtcdGroupStore


@asynccontextmanager
async def opened(
    url: str, prefix: str, timeout_s: float = 20.0, *more: str
) -> AsyncIterator[EtcdGroupStore]:
    """A store whose requests have all been answered when the block is left."""
    client = EtcdClient(
        EtcdSettings((url, *more), timeout_s=timeout_s, connect_timeout_s=timeout_s)
    )
    background = Background(client)
    try:
        yield EtcdGroupStore(background, prefix)
    finally:
        await client.close()
        await background.settle()
