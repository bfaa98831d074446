"""Control of reading: whether the socket of one connection is read, and how much at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from leveret.amqp.kernel import ACK, Run
from leveret.broker.connection.ack_coalescing import LATEST, AckCoalescing
from leveret.broker.connection.read_sizes import (
    FIRST_READ_BYTES,
    READ_BYTES,
    WIDE_READ_BYTES,
    limit_reads,
)
from leveret.core.limits import READS_PER_ROUND

if TYPE_CHECKING:
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.connection.writer import Writer
    from leveret.core.clock import TimerHandle

_MANY_RUNS: Final = 64  # in a read: each is work of its own
_LARGE_BYTES: Final = 8 * 1024  # so much of a body cut by a full read: bodies are large


class ReadingTurns:
    """The inlets of a node that may be read again, in the order in which they were let go.

    A read costs milliseconds where a client floods, what it brings costs the queues more, and asyncio
    reads all sockets that have something before anything else runs. So those that were held up, by
    credit or because a read was full (all that flood are), come back a few after each round of the run
    queue: what one round has brought is handled before the next brings more. Otherwise mail would pile
    up as far as credit allows, and whoever wants something of a queue would wait behind all of it.
    """

    __slots__ = ("_after_round", "_waiting", "clock")

    def __init__(self, runtime: Runtime) -> None:
        self.clock = runtime.clock
        self._after_round = runtime.after_round
        self._waiting: deque[ReadControl] = deque()

    def wait(self, read_control: ReadControl) -> None:
        """Read a connection again when it is its turn."""
        if not self._waiting:
            self._after_round(self._resume)
        self._waiting.append(read_control)

    def _resume(self) -> None:
        waiting = self._waiting
        try:
            for _ in range(min(len(waiting), READS_PER_ROUND)):
                waiting.popleft().resume()
        finally:  # one that fails does not keep the others from their turn
            if waiting:
                self._after_round(self._resume)


class ReadControl:
    """The way in: reading pauses while anybody blocks it (a channel without credit or with held work).

    Counts the blockers; pausing and resuming the transport, and how much it reads, is all it does.

    Attributes:
        lulls: when acks may wait, which blocks it for a moment.
        read_bytes: what a full read holds; how much is read at a time, as far as that is ours to say.
    """

    __slots__ = (
        "_blockers",
        "_is_paused",
        "_is_waiting",
        "_lull",
        "_lull_until_s",
        "_transport",
        "_turns",
        "_writer",
        "lulls",
        "read_bytes",
    )

    def __init__(self, transport: asyncio.Transport, writer: Writer, turns: ReadingTurns) -> None:
        self._transport: asyncio.Transport | None = transport
        self._writer = writer
        self._turns = turns
        self._blockers = 0
        self._is_paused = False
        self._is_waiting = False
        self._lull: TimerHandle | None = None
        self._lull_until_s = 0.0
        self.lulls = AckCoalescing()
        self.read_bytes = limit_reads(transport, FIRST_READ_BYTES)

    @property
    def is_blocked(self) -> bool:
        """Whether reading is paused, for more than a lull."""
        return self._is_paused and (self._lull is None or self._blockers > 1)

    def block(self) -> None:
        """Stop reading until the same party unblocks."""
        self._blockers += 1
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def unblock(self) -> None:
        """Take one block back."""
        if not self._blockers:
            return  # released meanwhile
        self._blockers -= 1
        if self._blockers == 0 and not self._is_waiting:
            self._is_waiting = True
            self._turns.wait(self)

    def note(self, runs: list[Run]) -> None:
        """See what a read held: after many that held a few acks each, the next may hold more."""
        if len(runs) != 1 or runs[0][0] != ACK:
            self.lulls.other()
            return
        clock = self._turns.clock
        now_s = clock.monotonic_s()
        lull_s = self.lulls.acked(len(runs[0][2]), now_s)
        if lull_s and self._lull is None:
            self.block()
            self._lull_until_s = now_s + lull_s
            self._writer.after_flush = self._written
            self._lull = clock.call_later(lull_s * LATEST, self._lull_over)

    def _written(self) -> None:
        """End a lull that has lasted long enough: something was written to the client."""
        if self._turns.clock.monotonic_s() >= self._lull_until_s:
            self._end_lull()
            self._lull_over()

    def _lull_over(self) -> None:
        self._lull = self._writer.after_flush = None
        if self._blockers == 1 and not self._is_waiting:
            self._blockers = 0
            self._read()  # at once: a turn would cost what the lull has saved
        else:
            self.unblock()

    def release(self) -> None:
        """Read whoever blocks: the channels are gone, killed ones without taking theirs back."""
        self._end_lull()
        self._blockers = 0
        self._read()

    def resume(self) -> None:
        """It is this connection's turn: read again, unless it has been blocked meanwhile."""
        self._is_waiting = False
        if self._blockers == 0:
            self._read()

    def _read(self) -> None:
        self._is_paused = False
        if self._transport is not None:
            self._transport.resume_reading()

    def was_full(self, runs: int, cut_bytes: int) -> None:
        """Note a read that was full: its connection floods, so the next one waits for its turn.

        That one is larger, unless what was read is work enough.

        Args:
            runs: how many it held.
            cut_bytes: what it held of a frame that it did not hold whole. Such bodies are copied
                once more, which counts when they are large.
        """
        if runs > _MANY_RUNS:
            self._read_at_most(FIRST_READ_BYTES)
        elif self.read_bytes == FIRST_READ_BYTES:
            self._read_at_most(READ_BYTES)
        elif cut_bytes >= _LARGE_BYTES:
            self._read_at_most(WIDE_READ_BYTES)
        self.block()
        self.unblock()

    def _read_at_most(self, read_bytes: int) -> None:
        if self._transport is not None and read_bytes != self.read_bytes:
            self.read_bytes = limit_reads(self._transport, read_bytes)

    def close(self) -> None:
        """Forget the transport; it is closed or about to be."""
        self._transport = None
        self._end_lull()

    def _end_lull(self) -> None:
        if self._lull is not None:
            self._lull.cancel()
            self._lull = self._writer.after_flush = None
