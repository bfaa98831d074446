"""Control of reading: whether the socket of one connection is read, and how much at a time.

The socket is read unless something blocks it (``Block`` in ``channel/session.py``):

=============  =============================================  ===========================================
blocked by     because                                        until
=============  =============================================  ===========================================
CREDIT         a channel is as far ahead of a queue as it may  the queue grants more, or is gone
BACK_PRESSURE  a disk, or a link to a node, does not follow   the store, or the link, has caught up
HELD_RUNS      a channel holds runs behind a waiting method    the channel has handled them
LONG_READ      a read holds too many runs for one turn         the reader has handled them
UNSENT         the client sends and does not read the replies  it has read them
ALARM          it published while memory or disk were short    the last alarm is over
COALESCING     its acks come one by one                        a delivery to it, or some milliseconds
COALESCING     its publishes stream in                         a millisecond or two are over
REPLIES        it publishes replies that are not read         they are, or 5 s are over
ENDING         the connection ends, or its client closes it    its channels have ended
=============  =============================================  ===========================================

A connection whose last block has gone, and one whose read was full, waits for its turn to be read again; only acks
that were left together are read at once. Its parts decide: ``Throttle`` which runs of a read pass while an alarm is
raised, ``AckCoalescing`` and ``PublishCoalescing`` when acks and publishes may wait, ``read_sizes`` how much is read,
``ReadingTurns`` in which order the connections of the node are read again, and ``EndWatch`` finds the ends of
connections that are not read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from leveret.amqp.kernel import ACK, PUBLISH, Run, Scanner
from leveret.amqp.spec import HEARTBEAT_FRAME
from leveret.broker.channel.session import Block
from leveret.broker.connection.reading.ack_coalescing import AckCoalescing
from leveret.broker.connection.reading.end_watch import EndWatch, is_unreachable
from leveret.broker.connection.reading.publish_coalescing import PublishCoalescing
from leveret.broker.connection.reading.read_sizes import (
    AWAITED_BYTES,
    FIRST_READ_BYTES,
    limit_reads,
    next_read_bytes,
    read_rest,
)
from leveret.broker.mail import PEER_ENDED
from leveret.core.transports import descriptor_of

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.connection.alarms import Alarms
    from leveret.broker.connection.reading.throttle import Throttle
    from leveret.broker.connection.writer import Writer
    from leveret.core.batching import Batching
    from leveret.core.clock import TimerHandle


READS_PER_ROUND: Final = 4  # connections held up or flooding that are read again after one round


class ReadingTurns:
    """The connections of a node that may be read again, in the order in which they became free.

    A read costs milliseconds where a client floods, the queues' work for it costs more, and asyncio reads
    all sockets that have something before anything else runs. So connections that were blocked, or whose
    read was full (as all are that flood), come back a few after each round of the run queue: the work of
    one round is done before the next brings more. Otherwise mail would pile up as far as credit allows,
    and every other request to a queue would wait behind all of it.

    Attributes:
        batching: whether acks and publishes wait to be read.
    """

    def __init__(self, runtime: Runtime, batching: Batching) -> None:
        self.clock = runtime.clock
        self.batching = batching
        self.end_watch = EndWatch(runtime.clock)
        self.tell = runtime.send
        self._after_round = runtime.after_round
        self._waiting: deque[ReadControl] = deque()

    def wait(self, read_control: ReadControl) -> None:
        if not self._waiting:
            self._after_round(self._resume)
        self._waiting.append(read_control)

    def _resume(self) -> None:
        waiting = self._waiting
        try:
            for _ in range(min(len(waiting), READS_PER_ROUND)):
                waiting.popleft().resume()
        finally:  # a failing transport does not keep the others from their turn
            if waiting:
                self._after_round(self._resume)


def messages_of(runs: list[Run]) -> int:
    """Return how many messages publishes have; 0 when some of the runs are none."""
    messages = 0
    for run in runs:
        if run[0] != PUBLISH:
            return 0
        messages += len(run[4])
    return messages


# What blocks a connection while it is opened or ends; while it is open, a long read is soon over.
_AT_THE_EDGES: Final = frozenset((Block.LONG_READ, Block.ENDING))
_NO_BLOCKS: Final[Mapping[Block, int]] = MappingProxyType({})  # shared: most connections have none


class ReadControl:
    """Reads the socket of one connection, or pauses it.

    Args:
        writer: of the same connection; a flush ends the wait of coalesced acks.
        reader: of the same connection.

    Attributes:
        blocks: how often each reason blocks at present.
        read_bytes: the size of a full read.
        blocks_seen: what ``EndWatch`` has last seen of ``blocks``; None: it does not look at this connection.
        to_backlogs: messages that its channels have published behind others that wait for a consumer.
    """

    __slots__ = (
        "_acks",
        "_alarms",
        "_coalesced",
        "_coalesced_until_s",
        "_has_published",
        "_is_paused",
        "_is_waiting",
        "_publishes",
        "_reader",
        "_rest_bytes",
        "_transport",
        "_turns",
        "_writer",
        "blocks",
        "blocks_seen",
        "read_bytes",
        "throttle",
        "to_backlogs",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        writer: Writer,
        turns: ReadingTurns,
        alarms: Alarms,
        throttle: Throttle,
        reader: Ref,
    ) -> None:
        self._transport: asyncio.Transport | None = transport
        self._writer = writer
        self._turns = turns
        self._alarms = alarms
        self._reader = reader
        self._is_paused = False
        self._is_waiting = False  # for its turn
        self._has_published = False  # with its last full read
        self._rest_bytes = 0  # that ``read_rest`` has read since the last ``count``
        self._coalesced: TimerHandle | None = None
        self._coalesced_until_s = 0.0
        self.throttle = throttle
        acks, publishes = turns.batching.acks, turns.batching.publishes
        self._acks = None if acks is None else AckCoalescing(acks)  # None: they do not wait
        self._publishes = None if publishes is None else PublishCoalescing(publishes)
        self.blocks = _NO_BLOCKS
        self.blocks_seen: Mapping[Block, int] | None = None
        self.to_backlogs = 0
        self.read_bytes = limit_reads(transport, FIRST_READ_BYTES)

    @property
    def is_blocked(self) -> bool:
        """Whether reading is paused, for more than acks that are coalesced."""
        return self._is_paused and (self._coalesced is None or len(self.blocks) > 1)

    @property
    def descriptor(self) -> int:
        """The socket's file descriptor, -1 when it is closed."""
        return -1 if self._transport is None else descriptor_of(self._transport)

    def provoke_reset(self) -> None:
        """Send a heartbeat where nothing is lost if that shows that the peer has ended.

        Not before connection.open-ok nor behind a close, where a client need not expect one.
        """
        if self._alarms.raised and self.blocks.keys().isdisjoint(_AT_THE_EDGES):
            self._writer.write(HEARTBEAT_FRAME)
            self._writer.flush()

    def peer_ended(self) -> None:
        """Tell the reader; the transport reports no end while it is paused."""
        self._turns.tell(self._reader, PEER_ENDED)

    def is_unreachable(self, silence_s: float) -> bool:
        """Whether the peer's system has been silent for so long, although something was sent to it."""
        return self._transport is not None and is_unreachable(self._transport, silence_s)

    def block(self, reason: Block) -> None:
        """Stop reading until the same party unblocks."""
        self.blocks = {**self.blocks, reason: self.blocks.get(reason, 0) + 1}
        if self.blocks_seen is None and self._transport is not None:
            self._turns.end_watch.watch(self)
        self._pause()

    def unblock(self, reason: Block) -> None:
        """Take one block back; harmless when all were released meanwhile."""
        count = self.blocks.get(reason, 0)
        if count > 1:
            self.blocks = {**self.blocks, reason: count - 1}
        elif count:
            others = {each: times for each, times in self.blocks.items() if each is not reason}
            self.blocks = others or _NO_BLOCKS
            self._wait_for_turn()

    def release(self) -> None:
        """Drop all blocks and read: the channels are gone, killed ones without taking theirs back."""
        self._stop_coalescing()
        self.blocks = _NO_BLOCKS
        self._has_published = False
        self._read()

    def resume(self) -> None:
        """It is this connection's turn: read again, unless it has been blocked meanwhile.

        One that floods the broker with publishes is not read once more when an alarm is raised: a thousand of
        them would bring as many megabytes.
        """
        self._is_waiting = False
        if self.blocks:
            return
        if self._has_published and self._alarms.raised and self._transport is not None:
            self._has_published = False
            self.passing([], True)
        else:
            self._read()

    def close(self) -> None:
        """Forget the transport, which is closed or about to be, and the runs that are held back."""
        self._transport = None
        self._stop_coalescing()
        self.blocks = _NO_BLOCKS
        if self.blocks_seen is not None:
            self._turns.end_watch.forget(self)
        self.throttle.close()

    def _pause(self) -> None:
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def _wait_for_turn(self) -> None:
        if not self.blocks and not self._is_waiting:
            self._is_waiting = True
            self._turns.wait(self)

    def _read(self) -> None:
        self._is_paused = False
        if self._transport is not None:
            self._transport.resume_reading()

    # -- after a read --------------------------------------------------------------------------

    def passing(self, runs: list[Run], is_publish_pending: bool) -> list[Run]:
        """Return the runs that are handled while an alarm is raised.

        ``is_publish_pending``: the scanner has the header of a content and waits for its body.
        """
        was_blocked = self.throttle.is_blocked
        passes = self.throttle.passing(runs, is_publish_pending)
        if self.throttle.is_blocked and not was_blocked:
            self.block(Block.ALARM)
        return passes

    def read_rest(self, scanner: Scanner) -> list[Run]:
        """Read more of a large body whose beginning has come; return the runs that it completes."""
        awaited_bytes = scanner.awaited
        if awaited_bytes < AWAITED_BYTES or self._transport is None:
            return []
        runs = read_rest(self._transport, scanner)
        self._rest_bytes = awaited_bytes - scanner.awaited
        return runs

    def count(self, size_bytes: int, runs: list[Run], scanner: Scanner) -> None:
        """Note a read of ``COUNTED_READ_BYTES`` or more, and what ``read_rest`` has read behind it.

        A connection whose read was full floods, so its next one waits for its turn.
        """
        rest_bytes, self._rest_bytes = self._rest_bytes, 0
        self._alarms.read(size_bytes + rest_bytes)
        if size_bytes < self.read_bytes:
            return
        self._has_published = bool(scanner.pending) or (bool(runs) and runs[-1][0] == PUBLISH)
        read_bytes = next_read_bytes(
            self.read_bytes, len(runs), scanner.frames, scanner.buffered, rest_bytes
        )
        if self._transport is not None and read_bytes != self.read_bytes:
            self.read_bytes = limit_reads(self._transport, read_bytes)
        self._pause()
        self._wait_for_turn()

    def note(self, runs: list[Run], size_bytes: int) -> None:
        """Look at a read of so many bytes: after many that were alike, the next waits until it brings more."""
        acks, publishes = self._acks, self._publishes
        if len(runs) != 1 or runs[0][0] != ACK:
            if acks is not None and acks.reads:
                acks.other()
            if publishes is not None:
                count = len(runs)
                if count == 1 and runs[0][0] == PUBLISH:
                    count = len(runs[0][4])
                policy = publishes.policy
                if publishes.reads or (
                    count <= policy.many_messages
                    and (count >= policy.few_messages or self.to_backlogs)
                ):
                    self._note_publishes(publishes, runs, size_bytes)
            return
        if publishes is not None and publishes.reads:
            publishes.other()
        if acks is None:
            return
        clock = self._turns.clock
        now_s = clock.monotonic_s()
        pause_s = acks.acked(len(runs[0][2]), now_s)
        if pause_s and self._coalesced is None:
            self.block(Block.COALESCING)
            self._coalesced_until_s = now_s + pause_s
            self._writer.after_flush = self._written
            self._coalesced = clock.call_later(pause_s * acks.policy.latest, self._coalesced_enough)

    def _note_publishes(
        self, publishes: PublishCoalescing, runs: list[Run], size_bytes: int
    ) -> None:
        """Look at a read of something else than acks, which may belong to a stream of publishes."""
        to_backlogs, self.to_backlogs = self.to_backlogs, 0
        messages = messages_of(runs)
        if not messages:
            publishes.other()
            return
        clock = self._turns.clock
        pause_s = publishes.published(messages, size_bytes, clock.monotonic_s(), to_backlogs)
        if pause_s and self._coalesced is None:
            self.block(Block.COALESCING)
            self._coalesced = clock.call_later(pause_s, self._coalesced_enough)

    def coalesce_no_acks(self) -> None:
        """From now on an ack may spare a message the disk, if it is read in time."""
        self._acks = None

    def coalesce_no_publishes(self) -> None:
        """From now on the client may wait for answers to its publishes."""
        self._publishes = None

    def limit_coalescing(self, prefetch: int) -> None:
        """Keep the wait of acks short enough for a prefetch of the connection (0 = none)."""
        if self._acks is not None:
            self._acks.limit(prefetch)

    def _written(self) -> None:
        """Something was written to the client: acks that have waited long enough are read."""
        if self._turns.clock.monotonic_s() >= self._coalesced_until_s:
            self._stop_coalescing()
            self._coalesced_enough()

    def _coalesced_enough(self) -> None:
        self._coalesced = self._writer.after_flush = None
        if len(self.blocks) == 1 and not self._is_waiting:
            self.blocks = _NO_BLOCKS
            self._read()  # at once: a turn would cost as much as the wait has saved
        else:
            self.unblock(Block.COALESCING)

    def _stop_coalescing(self) -> None:
        if self._coalesced is not None:
            self._coalesced.cancel()
            self._coalesced = self._writer.after_flush = None
