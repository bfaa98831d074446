from __future__ import annotations

import asyncio
from contextvars import ContextVar

from leveret.core.clock import SystemClock

NAME: ContextVar[str] = ContextVar("NAME")


async def test_calls_run_in_the_context_in_which_the_clock_was_made() -> None:
    NAME.set("of the clock")
    clock = SystemClock(asyncio.get_running_loop())
    seen: list[str] = []
    called = asyncio.Event()

    def call() -> None:
        seen.append(NAME.get())
        called.set()

    NAME.set("of the caller")
    clock.call_later(0.0, call)
    await called.wait()

    assert seen == ["of the clock"]
