"""Nodes in processes of their own, which are killed and stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from leveret.actors.actor import OtpActor
from leveret.actors.links.node import Node, NodeDown, NodeUp
from leveret.actors.links.security import Security
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import CallExit, Down
from rigs.links import node_process
from rigs.programs import Background
from rigs.waiting import eventually

SECRET = "a secret of tests"
LONG_S = 60.0  # for a machine with much else to do


class Noting(OtpActor):
    trap_exits = True

    def init(self) -> None:
        self.seen: list[Any] = []

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        if callable(message):
            message(self)
        else:
            self.seen.append(message)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    node = Node(Runtime(name="here"), Security(SECRET.encode()))
    yield node
    await node.close()
    for cell in list(node.runtime.cells()):  # Noting does not end when it is told to
        if isinstance(cell.actor, Noting):
            node.runtime.exit(cell.ref, "kill")
    await node.runtime.shutdown(5)


@pytest.fixture
async def address(node: Node) -> str:
    return await node.listen("127.0.0.1:0")


@pytest.fixture
def there(address: str, tmp_path: Path) -> Iterator[Background]:
    with Background(
        [sys.executable, node_process.__file__, "there", address, SECRET], tmp_path
    ) as it:
        yield it


async def _counter(node: Node) -> Ref:
    await node.connected("there", LONG_S)
    for _ in range(1_000):
        counter = await node.whereis("counter", "there", LONG_S)
        if counter is not None:
            return counter
    raise AssertionError("there is no counter")


async def test_mail_and_calls_reach_another_process(node: Node, there: Background) -> None:
    counter = await _counter(node)
    send = node.runtime.send
    for size in (10, 100_000, 20, 5_000_000, 1):
        send(counter, b"." * size)

    assert await node.runtime.call(counter, "count", LONG_S) == 5_100_031
    assert await node.runtime.call(counter, b"z" * 10_000_000, LONG_S) == b"z" * 10_000_000


async def test_a_process_that_is_killed_is_one_down_behind_all_that_came(
    node: Node, there: Background
) -> None:
    counter = await _counter(node)
    ref = node.runtime.spawn(Noting)
    noting: Noting = ref.cell.actor
    node.runtime.send(ref, lambda self: (self.monitor(counter), self.link(counter)))
    node.runtime.send(counter, ref)
    await eventually(lambda: len(noting.seen) > 5_000, within_s=LONG_S)
    there.process.send_signal(signal.SIGKILL)
    await eventually(
        lambda: not any(isinstance(each, int) for each in noting.seen[-2:]), within_s=LONG_S
    )
    handled: list[Noting] = []
    node.runtime.send(ref, handled.append)  # behind all that the end has brought
    await eventually(lambda: handled, within_s=LONG_S)

    numbers = [each for each in noting.seen if isinstance(each, int)]
    ends = noting.seen[len(numbers) :]
    assert [number % 1_000 for number in numbers] == [at % 1_000 for at in range(len(numbers))]
    assert sorted(type(each).__name__ for each in ends) == ["Down", "Exit"]
    assert {each.reason for each in ends} == {"noconnection"}
    assert not counter.is_alive


async def test_a_process_that_is_stopped_is_down_and_comes_back_as_another_incarnation(
    node: Node, there: Background
) -> None:
    counter = await _counter(node)
    ref = node.runtime.spawn(Noting)
    noting: Noting = ref.cell.actor
    node.watch_nodes(ref)
    node.runtime.send(ref, lambda self: self.monitor(counter))
    there.process.send_signal(signal.SIGSTOP)
    waiting = asyncio.ensure_future(node.runtime.call(counter, 1, LONG_S))
    with pytest.raises(CallExit, match="noconnection"):
        await waiting
    there.process.send_signal(signal.SIGCONT)
    again = await _counter(node)

    await eventually(lambda: len(noting.seen) >= 3, within_s=LONG_S)
    assert {type(each) for each in noting.seen[:2]} == {Down, NodeDown}
    assert type(noting.seen[2]) is NodeUp
    assert not counter.is_alive
    assert await node.runtime.call(again, "hello", LONG_S) == "hello"


async def test_a_process_that_reads_nothing_for_a_moment_loses_nothing(
    node: Node, there: Background
) -> None:
    counter = await _counter(node)
    for _ in range(20):
        node.runtime.send(counter, bytes(1_000_000))
    there.process.send_signal(signal.SIGSTOP)
    await asyncio.to_thread(os.waitid, os.P_PID, there.process.pid, os.WSTOPPED | os.WNOWAIT)
    await eventually(lambda: node._peers["there"]._wire.is_full)
    there.process.send_signal(signal.SIGCONT)

    assert await node.runtime.call(counter, "count", LONG_S) == 20_000_000
