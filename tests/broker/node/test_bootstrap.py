"""Writing rows from outside the actors.

Tests: broker/node/node.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from leveret.actors.runtime.runtime import Runtime
from leveret.broker.node.node import Node
from leveret.core.settings import BrokerSettings
from leveret.metadata.memory import MemoryStore
from leveret.metadata.tables import VhostRow


async def test_a_write_that_is_cancelled_is_told_to_nobody() -> None:
    loop = asyncio.get_running_loop()
    outcomes: list[Callable[[], None]] = []
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    node = Node(Runtime(loop=loop), BrokerSettings(), MemoryStore(outcomes.append))
    writing = asyncio.create_task(node.metadata.write([VhostRow("v")]))
    await asyncio.sleep(0)

    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing
    for outcome in outcomes:
        loop.call_soon(outcome)
    await asyncio.sleep(0)

    assert outcomes
    assert not complaints
    assert not node.metadata.pending.is_being_put(VhostRow("v"))
