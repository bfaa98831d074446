"""However a broker ends, its stores are closed: the next one in the process can open them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from chaos.rig import Chaos
from leveret.core.addresses import Address
from leveret.server.broker import Broker
from leveret.server.config.config import Config
from leveret.testing.manual_clock import ManualClock
from rigs.waiting import eventually


async def test_a_store_whose_actor_was_killed_last_is_closed(tmp_path: Path) -> None:
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=tmp_path / "data")
    for _ in range(2):
        clock = ManualClock(asyncio.get_running_loop())
        async with Broker(config, clock) as broker:
            chaos = Chaos(broker, clock)
            store = chaos.find("queues_and_stores", "msg_store")
            chaos.kill(chaos.find("leveret"))
            chaos.kill(store)
            await asyncio.sleep(0)

    def threads() -> list[str]:
        return [each.name for each in threading.enumerate() if each.name.startswith("leveret-")]

    await eventually(lambda: not threads(), threads)  # the one that tells of the end ends last
