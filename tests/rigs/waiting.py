"""Waiting, within a limit, for what another process, a thread or an actor brings about.

For tests that talk to a real broker, ours or RabbitMQ. What runs on a virtual clock needs none of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

SOON_S = 10.0
PAUSE_S = 0.005
NEVER = "it never happened"


def wait_until(
    holds: Callable[[], object],
    why: object = NEVER,
    within_s: float = SOON_S,
    pause_s: float = PAUSE_S,
) -> None:
    """Return as soon as a condition holds; after the limit fail with ``why`` or its result.

    A condition whose look is work for the broker takes a longer pause.
    """
    for _ in _pauses(holds, why, within_s):
        time.sleep(pause_s)


async def eventually(
    holds: Callable[[], object], why: object = NEVER, within_s: float = SOON_S
) -> None:
    """Do as ``wait_until`` does, while the loop runs."""
    for _ in _pauses(holds, why, within_s):
        await asyncio.sleep(PAUSE_S)


def _pauses(holds: Callable[[], object], why: object, within_s: float) -> Iterator[None]:
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s, why() if callable(why) else why
        yield
