"""Collects the youngest objects once a second; ``leveret serve`` only.

The interpreter begins a collection when 2,000 more objects have been made than freed (``docs/decisions/0025``). Objects
that replace others are not counted: half a million messages that a client had requeued one by one were looked at by
the next collection, which took 70 ms. In a second there are some 40,000 at most.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Final

PAUSE_S: Final = 1.0


async def collect_young() -> None:
    """Do so for ever."""
    while True:
        gc.collect(0)
        await asyncio.sleep(PAUSE_S)
