"""A broker whose actors can be killed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chaos.rig import Chaos, SkippingClock
from leveret.server.broker import Broker
from leveret.server.config import Address, Config


@pytest.fixture
async def chaos(tmp_path: Path) -> AsyncIterator[Chaos]:
    clock = SkippingClock()
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=tmp_path / "data")
    async with Broker(config, clock) as broker:
        rig = Chaos(broker, clock)
        yield rig
        rig.close()
