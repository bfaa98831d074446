"""Memory that a burst of work has left behind goes back to the system once the process is idle."""

from __future__ import annotations

import asyncio
import gc
import re
import sys
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from leveret.core.system.machine import Machine
from leveret.server.cli import spare_memory
from leveret.server.cli.spare_memory import (
    CHECK_S,
    IDLE_SHARE,
    PAUSE_S_MAX,
    SPARE_S,
    SWEEP_S,
    SWEEPS_S,
    SpareMemory,
)

BASE_BYTES = 30 << 20
BURST_BYTES = 800 << 20
STEPS = 5


class FakeMachine(Machine):
    """Uses as many bytes as it is told; ``spare_bytes`` of them are given back when it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = BASE_BYTES
        self.spare_bytes = 0
        self.asked = 0

    def used_bytes(self) -> int:
        return self.bytes

    def give_back_in_steps(self) -> Iterator[None]:
        self.asked += 1
        for _ in range(STEPS):
            self.bytes -= self.spare_bytes // STEPS
            yield
        self.spare_bytes = 0


@pytest.fixture(autouse=True, scope="module")
def _others_are_frozen_again() -> Iterator[None]:
    yield
    gc.collect()
    gc.freeze()  # as in conftest.py: what is tested has undone it


class Process:
    """An idle process whose seconds pass by hand."""

    def __init__(self) -> None:
        self.machine = FakeMachine()
        self.spare = SpareMemory(self.machine)
        self.now_s = self.worked_s = 1_000.0
        self.passes(3)

    def passes(self, seconds: int, worked: float = 0.01) -> None:
        """Let time pass, of which the process works a share."""
        for _ in range(round(seconds / CHECK_S)):
            self.now_s += CHECK_S
            self.worked_s += worked * CHECK_S
            self.spare.check(self.now_s, self.worked_s)
            while self.spare.step():
                pass


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    monkeypatch.setattr(spare_memory, "timed", lambda function: function() or 0.0)
    return Process()


def test_what_a_burst_leaves_behind_is_given_back_within_seconds(process: Process) -> None:
    process.machine.bytes = BURST_BYTES
    process.machine.spare_bytes = BURST_BYTES - BASE_BYTES
    process.passes(int(SPARE_S) + 3)

    assert process.machine.bytes == BASE_BYTES
    process.passes(60)
    assert process.machine.asked == 1


@pytest.mark.parametrize("traffic", [0.01, 0.3])
def test_what_busy_clients_leave_behind_is_given_back_within_five_seconds(
    process: Process, traffic: float
) -> None:
    """Also while others go on."""
    process.machine.bytes = BURST_BYTES
    process.machine.spare_bytes = BURST_BYTES - BASE_BYTES
    process.passes(3, worked=0.9)
    process.passes(4, worked=traffic)

    assert process.machine.bytes == BASE_BYTES


def test_what_a_client_leaves_behind_is_given_back_though_its_end_was_little_work(
    process: Process,
) -> None:
    """Most of its memory is freed at once; that ends the pause behind rounds that gained little."""
    process.machine.bytes = BURST_BYTES
    process.passes(60, worked=0.3)
    process.machine.bytes = BURST_BYTES // 2
    process.machine.spare_bytes = BURST_BYTES // 2 - BASE_BYTES
    process.passes(4, worked=0.3)

    assert process.machine.bytes == BASE_BYTES


@pytest.mark.parametrize("seconds", range(10, 20))
def test_what_a_client_leaves_behind_that_worked_little_is_given_back_within_five_seconds(
    process: Process, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """A round while the client works puts the next one off for less than that, whenever the client ends."""
    monkeypatch.setattr(spare_memory, "timed", lambda function: function() or 0.001)
    kept_bytes = BASE_BYTES + spare_memory.SPARE_BYTES
    for _ in range(seconds):
        process.machine.bytes = kept_bytes + 20 * spare_memory.GAIN_BYTES
        process.machine.spare_bytes = 20 * spare_memory.GAIN_BYTES
        process.passes(1, worked=0.3)
    assert process.spare.rounds
    process.passes(5, worked=0.3)

    assert process.machine.bytes <= kept_bytes


def kept_pairs(capfd: pytest.CaptureFixture[str]) -> int:
    """Return how many freed pairs the interpreter keeps for their next use."""
    sys._debugmallocstats()
    found = re.search(r"(\d+) free 2-sized PyTuple", capfd.readouterr().err)
    assert found
    return int(found[1])


def test_the_free_lists_are_swept_for_seconds_behind_a_burst(
    process: Process, capfd: pytest.CaptureFixture[str]
) -> None:
    """Else objects that live for a short time are made in the arenas of the burst, each where the last one was."""
    process.passes(3, worked=0.9)
    process.passes(1)
    assert not process.spare.sweep(process.now_s)  # that was no burst: no memory is spare
    process.machine.bytes = BURST_BYTES
    process.passes(3, worked=0.9)
    assert not process.spare.sweep(process.now_s)
    process.passes(1)
    pairs = [(1, number) for number in range(1_000)]
    del pairs

    assert kept_pairs(capfd) >= 1_000
    assert process.spare.sweep(process.now_s)
    assert kept_pairs(capfd) < 500
    assert process.spare.sweep(process.now_s + SWEEPS_S - 1)
    assert not process.spare.sweep(process.now_s + SWEEPS_S)


def test_checks_come_every_half_second_although_sleeps_between_sweeps_last_longer(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[float] = []

    async def sleep(pause_s: float) -> None:
        process.now_s += 1.1 * pause_s
        if len(checks) > 10:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: process.now_s)
    monkeypatch.setattr(process.spare, "check", lambda now_s, _: checks.append(now_s))
    monkeypatch.setattr(process.spare, "sweep", lambda _: True)
    with pytest.raises(asyncio.CancelledError):
        process.spare.run().send(None)

    assert all(
        0.0 <= after - before - CHECK_S <= SWEEP_S / 10 for before, after in pairwise(checks)
    )


def test_bursts_with_seconds_between_them_keep_their_memory(process: Process) -> None:
    for _ in range(20):
        process.machine.bytes = BURST_BYTES
        process.machine.spare_bytes = BURST_BYTES - BASE_BYTES
        process.passes(1, worked=0.9)
        process.passes(2)

    assert process.spare.rounds == 0


def test_a_backlog_that_is_drained_after_minutes_leaves_nothing_either(process: Process) -> None:
    process.machine.bytes = BURST_BYTES
    process.passes(300)
    process.passes(2, worked=0.4)
    process.machine.spare_bytes = BURST_BYTES - BASE_BYTES
    process.passes(4)

    assert process.machine.bytes == BASE_BYTES


def test_a_round_while_there_is_traffic_does_not_put_off_the_one_after_it(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spare_memory, "timed", lambda function: function() or 0.1)
    process.machine.bytes = 2 * BURST_BYTES
    process.machine.spare_bytes = BURST_BYTES
    process.passes(int(SPARE_S) + 2, worked=0.4)
    assert process.machine.bytes == BURST_BYTES
    process.machine.spare_bytes = BURST_BYTES - BASE_BYTES
    process.passes(6)

    assert process.machine.bytes == BASE_BYTES


def test_a_process_that_comes_to_rest_again_and_again_has_rounds_for_a_share_of_the_time(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spare_memory, "timed", lambda function: function() or 0.2)
    process.machine.bytes = BURST_BYTES
    for _ in range(200):
        process.passes(1, worked=spare_memory.SERVING_SHARE + 0.01)
        process.passes(1)

    assert 0 < process.spare.rounds <= 400 * spare_memory.ROUND_SHARE / 1.4 + 1  # 1.4 s each


@pytest.mark.parametrize("kept_bytes", [0, 2 * spare_memory.SPARE_BYTES])
def test_bursts_that_follow_one_another_keep_their_memory(
    process: Process, kept_bytes: int
) -> None:
    """What goes back has to be taken anew, page by page: two of three bursts find it."""
    bursts = 12
    for _ in range(bursts):
        process.machine.bytes = BURST_BYTES
        process.machine.spare_bytes = BURST_BYTES - BASE_BYTES - kept_bytes
        process.passes(3)

    assert 0 < process.spare.rounds <= bursts / 3


def test_a_process_at_rest_does_nothing(process: Process) -> None:
    process.machine.bytes += spare_memory.SPARE_BYTES
    process.passes(60)

    assert process.spare.rounds == 0


def test_a_busy_process_is_left_alone(process: Process) -> None:
    process.machine.bytes = BURST_BYTES
    process.passes(60, worked=IDLE_SHARE + 0.1)

    assert process.spare.rounds == 0


def test_memory_in_use_is_looked_at_less_and_less_often(process: Process) -> None:
    process.machine.bytes = BURST_BYTES
    process.passes(600)
    rounds = process.spare.rounds
    assert 0 < rounds <= 600 / PAUSE_S_MAX + 5

    process.machine.spare_bytes = BURST_BYTES - BASE_BYTES
    process.passes(int(PAUSE_S_MAX) + 2)
    assert process.machine.bytes == BASE_BYTES


def test_arenas_that_become_free_one_by_one_are_given_back_soon(process: Process) -> None:
    process.machine.bytes = BURST_BYTES
    arenas = 0
    process.passes(int(SPARE_S))
    for _ in range(60):
        if not process.machine.spare_bytes:
            process.machine.spare_bytes = 2 * spare_memory.GAIN_BYTES
            arenas += 2
        process.passes(1)

    assert arenas >= 30


def test_rounds_that_take_long_are_few(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_memory, "timed", lambda function: function() or 1.0)
    process.machine.bytes = BURST_BYTES
    process.passes(600)

    assert process.spare.rounds == 2  # 7 s each, 2 % of the time


def test_rounds_are_few_while_there_is_traffic(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spare_memory, "timed", lambda function: function() or 0.005)
    process.machine.bytes = BURST_BYTES
    for _ in range(60):  # each round gains an arena
        process.machine.spare_bytes = 2 * spare_memory.GAIN_BYTES
        process.passes(1, worked=spare_memory.SERVING_SHARE + 0.1)

    assert process.spare.rounds == 8  # 0.035 s each, 0.5 % of the time


def test_a_machine_that_does_not_tell_is_asked_another_time(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> int:
        raise OSError("no descriptor")

    monkeypatch.setattr(process.machine, "used_bytes", fails)
    process.passes(10)

    assert process.spare.rounds == 0


class Knot:
    """Garbage once it is let go: it refers to itself."""

    count = 0

    def __init__(self) -> None:
        self.own = self
        Knot.count += 1

    def __del__(self) -> None:
        Knot.count -= 1


def test_a_collection_frees_garbage_of_all_generations_unless_there_is_traffic(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops the broker for 20 ms."""
    monkeypatch.setattr(spare_memory, "BLOCKS_MAX", sys.maxsize)
    Knot.count = 0
    knot = Knot()
    gc.collect()  # it is old now
    del knot
    process.passes(1, worked=spare_memory.SERVING_SHARE + 0.01)
    process.spare.collect()
    assert Knot.count == 1
    process.passes(1)
    process.spare.collect()

    assert not Knot.count


def test_among_many_objects_only_the_free_lists_are_emptied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collected = list[int]()
    monkeypatch.setattr(spare_memory, "BLOCKS_MAX", 0)
    full = gc.get_stats()[2]["collections"]
    Knot.count = 0
    knot = Knot()
    del knot
    gc.callbacks.append(lambda phase, info: collected.append(info["generation"]))
    try:
        SpareMemory(Machine()).collect()
    finally:
        gc.callbacks.pop()

    assert collected == [2, 2]  # its beginning and its end
    assert gc.get_stats()[2]["collections"] == full + 1
    assert Knot.count == 1  # the walk passes over all containers
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert not Knot.count
