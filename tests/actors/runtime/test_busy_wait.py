"""A busy wait polls for a while, and only as long as that pays."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from leveret.actors.runtime import busy_wait
from leveret.actors.runtime.busy_wait import (
    BUSY_WAIT_S,
    COST,
    CREDIT_MAX,
    EARNED,
    PAUSE,
    TRIED,
    BusyWait,
)
from leveret.actors.runtime.runtime import Runtime
from rigs.waiting import eventually


class Wait:
    """A busy wait on a loop that does a round when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1.0
        self.callback: Callable[[], None] | None = None
        monkeypatch.setattr(busy_wait, "monotonic", lambda: self.now_s)
        loop: Any = self
        self.wait = BusyWait(loop)

    def call_soon(self, callback: Callable[[], None], context: object) -> object:
        assert self.callback is None, "one at a time"
        self.callback = callback
        return self

    def round(self, later_s: float) -> bool:
        """Run the callback; return whether the loop may sleep then."""
        self.now_s += later_s
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()
        return self.callback is None

    def drain(self) -> bool:
        """End a drain; return whether a wait begins."""
        self.wait.begin()
        return self.callback is not None

    def in_vain(self) -> None:
        assert self.drain()
        assert self.round(BUSY_WAIT_S * 1.1)

    def pause(self) -> None:
        assert [self.drain() for _ in range(PAUSE)] == [False] * PAUSE


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Wait:
    return Wait(monkeypatch)


def test_the_loop_does_not_sleep_for_a_while(wait: Wait) -> None:
    assert wait.drain()

    assert not wait.round(BUSY_WAIT_S / 2)
    assert wait.wait.handle is not None
    assert wait.round(BUSY_WAIT_S)
    assert wait.wait.handle is None


def test_mail_begins_the_wait_anew(wait: Wait) -> None:
    assert wait.drain()
    assert not wait.round(BUSY_WAIT_S * 0.9)
    assert wait.drain()

    assert not wait.round(BUSY_WAIT_S * 0.9)
    assert wait.round(BUSY_WAIT_S * 0.9)


def test_after_waits_in_vain_comes_a_pause(wait: Wait) -> None:
    for _ in range(3):
        for _ in range(TRIED):
            wait.in_vain()
        wait.pause()


@pytest.mark.parametrize("mails", [1, 2, 3, 1_000])
def test_waits_that_mail_ends_earn_others(wait: Wait, mails: int) -> None:
    assert wait.drain()
    for _ in range(mails):
        assert wait.drain()
    assert wait.round(BUSY_WAIT_S * 1.1)

    credit = min(TRIED * COST + EARNED * mails, CREDIT_MAX)
    for _ in range(math.ceil(credit / COST) - 1):
        wait.in_vain()
    wait.pause()


def test_mail_behind_every_second_drain_does_not_pay(wait: Wait) -> None:
    waits = 0
    for _ in range(PAUSE):
        waits += wait.drain()
        wait.drain()
        wait.round(BUSY_WAIT_S * 1.1)

    assert waits < 10


async def test_a_loop_polls_behind_a_drain_before_it_sleeps(log_class: Any) -> None:
    loop: Any = asyncio.get_running_loop()
    timeouts: list[float | None] = []
    select = loop._selector.select

    def counted(timeout: float | None) -> Any:
        timeouts.append(timeout)
        return select(timeout)

    runtime = Runtime()
    log = runtime.spawn(log_class, [])
    wait = runtime.turns.scheduler._busy_wait
    assert wait is not None
    await eventually(lambda: wait.handle is None)  # starts wait, too
    loop._selector.select = counted
    runtime.send(log, "mail")
    await eventually(lambda: any(timeouts))

    sleeps = [at for at, timeout in enumerate(timeouts) if timeout != 0]
    assert sleeps[0] > 1  # the drain's own round comes first
