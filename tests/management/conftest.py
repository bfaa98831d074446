"""A broker with a data directory, and its administration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leveret.core.addresses import Address
from leveret.management.node_admin import NodeAdmin
from leveret.server.broker import Broker
from leveret.server.config.config import Config


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=tmp_path)
    async with Broker(config) as running:
        yield running


@pytest.fixture
def admin(broker: Broker) -> NodeAdmin:
    return NodeAdmin(broker)
