"""The input of one connection: from the bytes of a read to the mails of its channels.

The socket calls it, as a turn of the reader. While the connection runs, the kernel cuts the bytes into runs, the
channel table gives each channel its own, and read control decides when more is read. The reader handles the bytes of
all other states, and the runs of channel 0.

It owns the scanner and the heartbeats. A file of its own, because the reads of a running connection are compiled, and
the rest of the reader, which no message needs, is not (docs/decisions/0041).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from leveret.amqp.kernel import Run, Scanner
from leveret.broker.channel.session import Block
from leveret.broker.connection.alarms import COUNTED_READ_BYTES
from leveret.broker.connection.channel_table import ChannelTable
from leveret.broker.connection.reading.read_control import ReadControl
from leveret.broker.connection.states import ConnectionState, State
from leveret.broker.connection.writer import Writer
from leveret.broker.mail import RunsLeft
from leveret.core.limits import FRAME_MIN_BYTES, UNSENT_BYTES_MAX

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.amqp.heartbeat import Heartbeat
    from leveret.broker.connection.connections import Connections

_RUNNING: Final = State.RUNNING


class _Reader(Protocol):
    """The reader, as its input uses it."""

    connections: Connections[Any]
    state: ConnectionState
    writer: Writer
    read_control: ReadControl
    channels: ChannelTable

    @property
    def ref(self) -> Ref: ...

    @property
    def runtime(self) -> Runtime: ...

    def received_while_not_running(self, data: bytes) -> None: ...


class Input:
    """What the client of one connection sends.

    Attributes:
        scanner: cuts it into runs.
        heartbeat: is told of each read; None: none are agreed.
    """

    __slots__ = ("_alarms", "_channels", "_message_max", "_read_control", "_reader", "_ref", "_state", "_turns",
        "_writer", "heartbeat", "scanner")  # fmt: skip

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader
        self._ref = reader.ref
        self._turns = reader.runtime.turns
        self._state = reader.state
        self._writer = reader.writer
        self._read_control = reader.read_control
        self._channels = reader.channels
        self._alarms = reader.connections.alarms
        self._message_max = reader.connections.settings.message_bytes_max
        self.heartbeat: Heartbeat | None = None
        self.scanner = Scanner(FRAME_MIN_BYTES, self._message_max)
        self.scanner.stepwise = True

    def agree_on(self, frame_max: int, heartbeat: Heartbeat | None) -> None:
        """Read as the handshake has agreed: larger frames, and heartbeats."""
        self.scanner.frame_max = frame_max
        self.heartbeat = heartbeat

    def read_whole_runs(self) -> None:
        """Cut runs of any length from now on: the handshake, of one frame after the other, is over."""
        self.scanner.stepwise = False

    def received(self, data: bytes | memoryview) -> None:
        """Take the bytes of a read; those of a memoryview are there until this returns.

        Mostly they are one run for one channel, which takes the shortest way.
        """
        if self.heartbeat is not None:
            self.heartbeat.received()
        if self._state.now is not _RUNNING:
            self._reader.received_while_not_running(bytes(data))
            return
        scanner, read_control, channels = self.scanner, self._read_control, self._channels
        runs = scanner.scan(data)
        is_counted = len(data) >= COUNTED_READ_BYTES
        if self._alarms.raised:
            runs = read_control.passing(runs, bool(scanner.pending))
        elif is_counted:
            runs += read_control.read_rest(scanner)
        read_control.note(runs, len(data))
        if len(runs) != 1 or channels.writing_is_paused or not channels.hand_over_one(runs):
            self.hand_over(runs)
        if is_counted:
            read_control.count(len(data), runs, scanner)

    def hand_over(self, runs: list[Run]) -> None:
        """Give the channels and the reader their runs; go on in a later turn if they are many."""
        rest = self._channels.hand_over_all(runs)
        if rest:
            self.hand_over_later(rest)
        elif self.scanner.pending:
            self._channels.check_contents(self.scanner.pending)
        if (
            self._channels.writing_is_paused
            and Block.UNSENT not in self._read_control.blocks
            and self._writer.unsent_bytes > UNSENT_BYTES_MAX
        ):
            self._read_control.block(Block.UNSENT)

    def hand_over_later(self, runs: list[Run]) -> None:
        """Go on with runs in a later turn of the reader, and read nothing before."""
        self._read_control.block(Block.LONG_READ)
        self._turns.again(self._ref, RunsLeft(runs))

    def renew_scanner(self) -> None:
        """Replace a scanner that met an error.

        A fresh one finds the client's answer to connection.close when its next bytes begin a frame; else the timer ends
        the connection. What the old one holds of contents is freed in slices.
        """
        self._reader.connections.content_release.take(self.scanner)
        self.scanner = Scanner(self.scanner.frame_max, self._message_max)
