"""A busy wait polls for a while, and only as long as that pays."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from leveret.actors.runtime import busy_wait
from leveret.actors.runtime.busy_wait import BusyWait
from leveret.actors.runtime.runtime import Runtime
from leveret.core.batching import BusyWaits
from rigs.waiting import eventually

POLICY = BusyWaits()


class Wait:
    """A busy wait on a loop that does a round when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1.0
        self.callback: Callable[[], None] | None = None
        monkeypatch.setattr(busy_wait, "monotonic", lambda: self.now_s)
        loop: Any = self
        self.wait = BusyWait(loop, POLICY)

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
        assert self.round(POLICY.wait_s * 1.1)

    def pause(self) -> None:
        assert [self.drain() for _ in range(POLICY.pause_drains)] == [False] * POLICY.pause_drains


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Wait:
    return Wait(monkeypatch)


def test_the_loop_does_not_sleep_for_a_while(wait: Wait) -> None:
    assert wait.drain()

    assert not wait.round(POLICY.wait_s / 2)
    assert wait.wait.handle is not None
    assert wait.round(POLICY.wait_s)
    assert wait.wait.handle is None


def test_mail_begins_the_wait_anew(wait: Wait) -> None:
    assert wait.drain()
    assert not wait.round(POLICY.wait_s * 0.9)
    assert wait.drain()

    assert not wait.round(POLICY.wait_s * 0.9)
    assert wait.round(POLICY.wait_s * 0.9)


def test_after_waits_in_vain_comes_a_pause(wait: Wait) -> None:
    for _ in range(3):
        for _ in range(POLICY.tries):
            wait.in_vain()
        wait.pause()


@pytest.mark.parametrize("mails", [1, 2, 3, 1_000])
def test_waits_that_mail_ends_earn_others(wait: Wait, mails: int) -> None:
    assert wait.drain()
    for _ in range(mails):
        assert wait.drain()
    assert wait.round(POLICY.wait_s * 1.1)

    credit = min(POLICY.tries * POLICY.cost + POLICY.earned * mails, POLICY.credit_max)
    for _ in range(math.ceil(credit / POLICY.cost) - 1):
        wait.in_vain()
    wait.pause()


def test_mail_behind_every_second_drain_does_not_pay(wait: Wait) -> None:
    waits = 0
    for _ in range(POLICY.pause_drains):
        waits += wait.drain()
        wait.drain()
        wait.round(POLICY.wait_s * 1.1)

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


async def test_without_a_policy_the_loop_sleeps_at_once() -> None:
    assert Runtime(busy_wait=None).turns.scheduler._busy_wait is None
