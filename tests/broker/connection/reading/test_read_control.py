"""Control of reading: who blocks a connection, and in which order connections are read again."""

from __future__ import annotations

import pytest

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.runtime import Runtime
from leveret.amqp.fields import Method
from leveret.broker.channel.session import Block
from leveret.broker.connection.alarms import Alarms
from leveret.broker.connection.pending_writes import PendingWrites
from leveret.broker.connection.reading.read_control import (
    READS_PER_ROUND,
    ReadControl,
    ReadingTurns,
)
from leveret.broker.connection.reading.read_sizes import (
    FIRST_READ_BYTES,
    READ_BYTES,
    WIDE_READ_BYTES,
    next_read_bytes,
)
from leveret.broker.connection.reading.throttle import Throttle
from leveret.broker.connection.writer import Writer
from leveret.core.batching import BALANCED
from rigs.broker_rig import Wire


def control_of(runtime: Runtime, wire: Wire, turns: ReadingTurns) -> ReadControl:
    def tell(method: Method) -> None:
        raise AssertionError(method)

    alarms, reader = Alarms(runtime), runtime.spawn(OtpActor)
    throttle, writer = (
        Throttle(alarms, reader, tell),
        Writer(runtime, PendingWrites(runtime).add, wire, lambda: None, lambda: None),
    )
    return ReadControl(wire, writer, turns, alarms, throttle, reader)


def test_reading_pauses_while_anybody_blocks(runtime: Runtime, wire: Wire) -> None:
    read_control = control_of(runtime, wire, ReadingTurns(runtime, BALANCED))
    read_control.block(Block.CREDIT)
    read_control.block(Block.CREDIT)
    assert (wire.is_reading, read_control.is_blocked) == (False, True)
    read_control.unblock(Block.CREDIT)
    assert (wire.is_reading, read_control.is_blocked) == (False, True)
    read_control.unblock(Block.CREDIT)
    runtime.run_until_idle()
    assert (wire.is_reading, read_control.is_blocked) == (True, False)


def test_those_that_were_held_up_are_read_again_a_few_at_a_time(runtime: Runtime) -> None:
    turns, wires = ReadingTurns(runtime, BALANCED), [Wire() for _ in range(2 * READS_PER_ROUND + 1)]
    controls = [control_of(runtime, wire, turns) for wire in wires]
    for read_control in controls:
        read_control.block(Block.CREDIT)
        read_control.unblock(Block.CREDIT)
        read_control.block(Block.CREDIT)
        read_control.unblock(Block.CREDIT)
    controls[1].block(Block.CREDIT)

    reading = []
    while not runtime.is_idle:
        runtime.drain()
        reading.append([number for number, wire in enumerate(wires) if wire.is_reading])

    in_turn = [number for number in range(len(wires)) if number != 1]
    assert reading == [in_turn[:3], in_turn[:7], in_turn]
    assert controls[1].is_blocked


def test_a_transport_that_cannot_be_read_again_holds_nobody_up(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise RuntimeError("the transport is gone")

    turns, wires = ReadingTurns(runtime, BALANCED), [Wire(), Wire()]
    monkeypatch.setattr(wires[0], "resume_reading", fails)
    for wire in wires:
        read_control = control_of(runtime, wire, turns)
        read_control.block(Block.CREDIT)
        read_control.unblock(Block.CREDIT)

    runtime.run_until_idle()

    assert wires[1].is_reading


def test_a_closed_read_control_leaves_the_transport_alone(runtime: Runtime, wire: Wire) -> None:
    read_control = control_of(runtime, wire, ReadingTurns(runtime, BALANCED))
    read_control.block(Block.CREDIT)
    read_control.close()
    read_control.unblock(Block.CREDIT)
    runtime.run_until_idle()

    assert not wire.is_reading


def test_each_reason_is_counted_by_itself(runtime: Runtime, wire: Wire) -> None:
    read_control = control_of(runtime, wire, ReadingTurns(runtime, BALANCED))
    for reason in (Block.CREDIT, Block.CREDIT, Block.HELD_RUNS):
        read_control.block(reason)
    assert read_control.blocks == {Block.CREDIT: 2, Block.HELD_RUNS: 1}

    read_control.unblock(Block.UNSENT)
    for reason in (Block.HELD_RUNS, Block.CREDIT):
        read_control.unblock(reason)
    runtime.run_until_idle()

    assert read_control.blocks == {Block.CREDIT: 1}
    assert not wire.is_reading


def test_blocks_that_were_released_need_not_be_taken_back(runtime: Runtime, wire: Wire) -> None:
    read_control = control_of(runtime, wire, ReadingTurns(runtime, BALANCED))
    read_control.block(Block.CREDIT)
    read_control.release()
    assert wire.is_reading

    read_control.unblock(Block.CREDIT)
    read_control.block(Block.ENDING)

    assert not wire.is_reading


@pytest.mark.parametrize(
    ("read_bytes", "runs", "frames", "cut_bytes", "following"),
    [
        (FIRST_READ_BYTES, 1, 3, 0, READ_BYTES),
        (FIRST_READ_BYTES, 65, 0, 0, FIRST_READ_BYTES),
        (READ_BYTES, 1, 3, 8 * 1024 - 1, READ_BYTES),
        (READ_BYTES, 1, 3, 8 * 1024, WIDE_READ_BYTES),
        (WIDE_READ_BYTES, 64, 4_096, 0, WIDE_READ_BYTES),
        (WIDE_READ_BYTES, 65, 0, 60_000, FIRST_READ_BYTES),
        (WIDE_READ_BYTES, 0, 4_097, 60_000, FIRST_READ_BYTES),
    ],
)
def test_how_much_is_read_behind_a_full_read(
    read_bytes: int, runs: int, frames: int, cut_bytes: int, following: int
) -> None:
    assert next_read_bytes(read_bytes, runs, frames, cut_bytes) == following
