"""Processes are noticed to end, with the system's help and without."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import pytest

from leveret.actors.processes.os_process import OsProcess

SLEEP = [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]


@pytest.fixture(params=["pidfd", "polling", "no pidfd left"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    def refused(_: int) -> int:
        raise OSError("too many open files")

    if request.param == "polling":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    elif request.param == "no pidfd left":
        monkeypatch.setattr(os, "pidfd_open", refused, raising=False)
    return request.param


@pytest.mark.usefixtures("way")
async def test_the_status_is_told() -> None:
    loop = asyncio.get_running_loop()
    one = OsProcess(["sh", "-c", "exit 5"], loop)
    other = OsProcess(SLEEP, loop)
    other.signal(signal.SIGTERM)

    assert await one.ended == 5
    assert await other.ended == -signal.SIGTERM


@pytest.mark.usefixtures("way")
async def test_one_that_is_ended_now_is_dead_at_once() -> None:
    process = OsProcess(SLEEP, asyncio.get_running_loop())

    process.end_now()

    assert process._is_dead()
    assert not process.ended.done()
    assert await process.ended == -signal.SIGKILL
    process.end_now()
    process.kill()


async def test_a_signal_to_one_that_has_ended_goes_nowhere() -> None:
    process = OsProcess(["true"], asyncio.get_running_loop())
    await process.ended

    process.signal(signal.SIGTERM)

    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
