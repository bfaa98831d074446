"""Mail of the loop's callbacks is handled in the same round: no poll of the selector lies between."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.scheduler import EVENTS_MAX


class Rounds:
    """Writes down each poll of the loop's selector, beside what actors see.

    ``idle`` is set when the loop has nothing to do but wait.
    """

    def __init__(self, loop: Any, seen: list[Any]) -> None:
        self._select = loop._selector.select
        self._seen = seen
        self.idle = threading.Event()
        loop._selector.select = self._counted

    def _counted(self, timeout: float | None) -> Any:
        if timeout != 0:
            self.idle.set()
        events = self._select(timeout)
        self._seen.append("poll")
        return events


@pytest.mark.parametrize("mails", [1, 2])
async def test_mail_of_a_threads_call_is_handled_in_the_round_it_came(
    log_class: Any, mails: int
) -> None:
    loop, seen = asyncio.get_running_loop(), []
    runtime, done = Runtime(), asyncio.Event()
    log = runtime.spawn(log_class, seen)
    await asyncio.sleep(0)
    rounds = Rounds(loop, seen)

    def came(number: int) -> None:
        seen.append("came")
        runtime.send(log, f"mail {number}")
        if number == mails:
            runtime.send(log, lambda _: done.set())

    def thread() -> None:
        assert rounds.idle.wait(10)
        for number in range(1, mails + 1):
            loop.call_soon_threadsafe(runtime.run_callback, came, number)

    threading.Thread(target=thread).start()
    await asyncio.wait_for(done.wait(), 10)

    for number in range(1, mails + 1):
        handled = seen.index(f"mail {number}")
        began = max(index for index in range(handled) if seen[index] == "came")
        assert "poll" not in seen[began:handled]


class Changing(list[Any]):
    """The rest of a round while threads add to it: a deque refuses to be iterated."""

    def __iter__(self) -> Any:
        raise RuntimeError("deque mutated during iteration")


async def test_threads_may_add_to_the_round_while_it_is_looked_at(log_class: Any) -> None:
    seen: list[Any] = []
    runtime = Runtime()
    log = runtime.spawn(log_class, seen)
    runtime.run_until_idle()
    loop: Any = asyncio.get_running_loop()
    waker = asyncio.Handle(loop._read_from_self, (), loop)
    runtime.turns.scheduler._loop_ready = Changing([waker])

    runtime.run_callback(runtime.send, log, "mail")

    assert seen == ["mail"]


async def test_mail_of_a_socket_event_is_handled_in_the_round_it_came(log_class: Any) -> None:
    loop, seen = asyncio.get_running_loop(), []
    runtime, done = Runtime(), asyncio.Event()
    log, other = runtime.spawn(log_class, seen), runtime.spawn(log_class, [])
    await asyncio.sleep(0)
    Rounds(loop, seen)

    def came(_: bytes) -> None:
        seen.append("came")
        runtime.send(log, "mail")
        runtime.send(log, lambda _: done.set())

    loop.call_later(0, runtime.run_event, other, came, b"")
    await asyncio.wait_for(done.wait(), 10)

    assert "poll" not in seen[seen.index("came") : seen.index("mail")]


async def test_with_other_events_in_the_round_their_mail_is_handled_together(
    log_class: Any,
) -> None:
    loop, seen = asyncio.get_running_loop(), []
    runtime, done = Runtime(), asyncio.Event()
    log, other = runtime.spawn(log_class, seen), runtime.spawn(log_class, [])
    await asyncio.sleep(0)
    before = runtime.drains

    def came(then: Callable[[], object]) -> Callable[[bytes], None]:
        def event(_: bytes) -> None:
            seen.append("came")
            runtime.send(log, lambda _: then())

        return event

    for then in (lambda: None, lambda: None, done.set):
        loop.call_soon(runtime.run_event, other, came(then), b"")
    await asyncio.wait_for(done.wait(), 10)

    assert seen == ["came"] * 3
    assert runtime.drains == before + 1


async def test_what_many_events_of_a_round_have_brought_is_handled_between_them(
    log_class: Any,
) -> None:
    """uvloop reads all sockets that have bytes, thousands maybe, before it calls anything else."""
    loop, seen = asyncio.get_running_loop(), []
    runtime, done = Runtime(), asyncio.Event()
    log, other = runtime.spawn(log_class, seen), runtime.spawn(log_class, [])
    bulk = runtime.spawn(log_class, seen)
    await asyncio.sleep(0)
    count = 3 * EVENTS_MAX

    def came(_: bytes) -> None:
        seen.append("came")
        runtime.send(log, "mail")
        if len(seen) == 1:
            runtime.send_bulk(bulk, "long work")

    for _ in range(count):
        loop.call_soon(runtime.run_event, other, came, b"")
    loop.call_soon(done.set)
    await asyncio.wait_for(done.wait(), 10)
    runtime.run_until_idle()

    assert seen.count("mail") == count
    rounds = "".join("m" if each == "mail" else "." for each in seen).split("m")
    assert max(map(len, rounds)) <= EVENTS_MAX + 1
    assert "came" not in seen[seen.index("long work") :], "it would make the round longer"
