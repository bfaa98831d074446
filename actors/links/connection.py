"""A connection between two nodes, without I/O: mail in, bytes out, and the other way round.

Theory. The mail of one sender to one receiver is a *stream*; its order is kept, and nothing else is ordered by it.

* Small messages are written as *runs*: those of a stream that come one after the other share a frame. They go before
  everything that waits.
* A large mail is written in chunks, and streams that have something waiting take turns, chunk by chunk. So a mail
  waits behind what the socket's buffer holds, and never behind the rest of another stream's body. Mail of its own
  stream does wait behind it.
* Each stream has a credit of messages and bytes, which the receiving node grants again as the receiver handles its
  mail. Mail without credit waits here. When more than ``unsent_bytes_max`` waits in all, the connection ends.
* A *signal* (an exit, the end of an actor) keeps its place behind mail. ``signal`` is ordered with one stream,
  ``signal_behind`` with several: it goes when all that waits in them has been written. Mail that stands before a signal
  is written without credit, so a receiver that handles no mail cannot hold up the news that an actor has ended. At
  most the mail that waited when the signal came is written so.
* A side that has nothing to write sends heartbeats. Silence is counted in ticks of the own clock, between which the
  loop reads its sockets, and not as time that has passed: a process that was stopped for a while, or had a long turn,
  does not suspect the others when it goes on. Between a process and its parent there are no heartbeats.

The owner calls ``take`` while the socket accepts bytes, ``receive`` with the bytes that arrive, ``tick`` once per
``heartbeat_s``, and ``grant`` when actors have handled mail. A ``WireError`` of ``receive``, or False from ``tick``,
is the end of the connection.

Turned down: credit for the whole connection (one slow actor would stop all); a socket per pair; suspending a sender
without credit, as Erlang does while a socket is full: two actors that send each other much would wait for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, Protocol

from leveret.actors.links.codec import Buffer, Codec
from leveret.actors.links.frames import GRANTED, HEADER, LARGE, RUN_BYTES, FrameReader, Kind, frame
from leveret.actors.links.limits import LARGE_MAILS_MAX, STREAMS_MAX, LinkLimits
from leveret.actors.links.sendable import WireError
from leveret.actors.links.streams import (
    Barrier,
    InStream,
    LargeMail,
    Mail,
    Notice,
    OutStream,
    Signal,
)

SWEPT_STREAMS: Final = 1_000  # that one tick checks
WAITING_MAIL_BYTES: Final = 200  # about the memory that a waiting mail takes besides its own bytes
_RUN, _FIRST, _MORE = int(Kind.RUN), int(Kind.FIRST), int(Kind.MORE)
_EMPTY: Final = b"\xc4\x00"  # msgpack: no bytes


class Owner(Protocol):
    """What a connection tells its owner."""

    def opened(self, payload: memoryview) -> tuple[Any, Any]:
        """Return sender and receiver of a new stream; WireError: they are malformed."""

    def deliver(self, stream: InStream, messages: list[Any]) -> None:
        """Take messages of a stream, in order."""

    def signal(self, payload: memoryview) -> None:
        """Take a signal; WireError: it is malformed."""

    def closed(self, stream: OutStream) -> None:
        """Forget a stream that has long been idle."""

    def wake(self) -> None:
        """Call ``take`` soon."""


class Connection:
    """One end of a connection.

    Args:
        mine: this side's incarnation, in every frame that is sent.
        theirs: the other side's.
        limits: bounds and times.
        codec: of the messages.
        owner: gets the mail and signals that arrive.
        has_heartbeats: silence is the end of the connection.

    Attributes:
        sent_messages: ever.
        received_messages: ever.
    """

    def __init__(
        self,
        mine: int,
        theirs: int,
        limits: LinkLimits,
        codec: Codec,
        owner: Owner,
        has_heartbeats: bool = True,
    ) -> None:
        self._mine = mine
        self._limits = limits
        self._codec = codec
        self._owner = owner
        self._has_heartbeats = has_heartbeats
        self._reader = FrameReader(theirs, self)
        self.sent_messages = self.received_messages = 0
        # Out.
        self._written: list[Buffer] = []
        self._written_bytes = 0
        self._waiting_bytes = 0  # of mail in queues, and of large mails that are being written
        self._run: list[bytes] = []
        self._run_bytes = 0
        self._run_stream: OutStream | None = None
        self._out: dict[int, OutStream] = {}
        self._free: list[int] = []
        self._ready: deque[OutStream] = deque()
        self._large_count = 0  # that are being written
        self._waiting_large: deque[OutStream] = deque()
        self._has_written = False
        # In.
        self._in: dict[int, InStream] = {}
        self._incoming_count = 0  # large mails that are coming
        self._due: list[InStream] = []
        self._noted: list[InStream] = []  # have something to be granted
        self._has_received = False
        self._silent_ticks = 0
        self._silent_ticks_max = round(limits.suspect_s / limits.heartbeat_s)

    # Out.

    def open(self, payload: bytes, key: Any) -> OutStream:
        """Return a new stream.

        Args:
            payload: tells the other side's owner sender and receiver.
            key: for this side's owner.
        """
        if len(self._out) >= STREAMS_MAX:
            raise WireError(
                f"{len(self._out)} pairs of actors have mail under way, limit {STREAMS_MAX}"
            )
        number = self._free.pop() if self._free else len(self._out) + 1
        stream = self._out[number] = OutStream(number, key, self._limits)
        self._close_run()
        self._write(frame(self._mine, Kind.OPEN, number, payload))
        return stream

    def send(self, stream: OutStream, message: Any) -> None:
        """Send a message.

        Raises:
            WireError: it cannot be sent; nothing of it is.
        """
        packed, bodies = self._codec.pack(message)
        size = len(packed)
        if bodies or size > RUN_BYTES or stream.queue or stream.credit.is_blocked or stream.parts:
            self._enqueue(stream, packed, bodies)
            return
        if stream is not self._run_stream:
            self._close_run()
            self._run_stream = stream
            self._owner.wake()
        self._run.append(packed)
        self._run_bytes += size
        if self._run_bytes >= RUN_BYTES:
            self._close_run()

    def signal(self, stream: OutStream | None, packed: bytes) -> None:
        """Send a signal, behind the stream's mail if one is given."""
        if stream is not None and (stream.queue or stream.parts):
            stream.queue.append(Signal(packed))
            self._waive(stream)
        else:
            self._write_signal(0 if stream is None else stream.number, packed)

    def signal_behind(self, streams: Iterable[OutStream], packed: bytes) -> None:
        """Send a signal when all that waits in these streams has been written."""
        waiting = [stream for stream in streams if stream.queue or stream.parts]
        if not waiting:
            self._write_signal(0, packed)
            return
        barrier = Barrier(packed, len(waiting))
        for stream in waiting:
            stream.queue.append(barrier)
            self._waive(stream)

    def when_written(self, stream: OutStream, call: Callable[[], None]) -> bool:
        """Call back when all that waits in a stream has been written; return False, at once, if nothing does."""
        if not (stream.queue or stream.parts):
            return False
        stream.queue.append(Notice(call))
        return True

    def finish(self) -> None:
        """Send all waiting mail without credit, because this side ends."""
        for stream in self._out.values():
            self._waive(stream)

    def take(self, size_max: int) -> list[Buffer]:
        """Return about ``size_max`` bytes for the socket; an empty list if no mail may be sent now.

        At least one waiting stream has its turn, however many small messages there are.
        """
        self._close_run()
        ready = self._ready
        is_first = True
        while ready and (is_first or self._written_bytes < size_max):
            is_first = False
            stream = ready.popleft()
            stream.is_ready = False
            self._turn(stream)
            self._make_ready(stream)
        written = self._written
        if written:
            self._written, self._written_bytes = [], 0
            self._has_written = True
        return written

    @property
    def unsent_bytes(self) -> int:
        """The bytes that ``take`` has not returned yet; each waiting mail counts ``WAITING_MAIL_BYTES`` more."""
        return self._written_bytes + self._waiting_bytes + self._run_bytes

    def _write(self, data: Buffer) -> None:
        self._written.append(data)
        self._written_bytes += len(data)
        self._owner.wake()

    def _write_signal(self, number: int, packed: bytes) -> None:
        self._close_run()
        self._write(frame(self._mine, Kind.SIGNAL, number, packed))

    def _close_run(self) -> None:
        """Write the run that is being collected."""
        run, stream = self._run, self._run_stream
        if stream is None or not run:
            return
        self._write_run(stream, run, self._run_bytes)
        self._run, self._run_bytes, self._run_stream = [], 0, None

    def _write_run(self, stream: OutStream, run: list[bytes], size: int) -> None:
        written = self._written
        written.append(HEADER.pack(size, self._mine, _RUN, stream.number))
        written += run
        self._written_bytes += HEADER.size + size
        self.sent_messages += len(run)
        stream.credit.spend(len(run), size)

    def _enqueue(self, stream: OutStream, packed: bytes, bodies: list[Buffer]) -> None:
        size = len(packed) + sum(map(len, bodies))
        if size > self._limits.mail_bytes_max:
            raise WireError(f"message of {size} bytes, limit {self._limits.mail_bytes_max}")
        if stream is self._run_stream:
            self._close_run()
        self._waiting_bytes += size + WAITING_MAIL_BYTES
        stream.queue.append(Mail(packed, bodies, size))
        self._make_ready(stream)

    def _waive(self, stream: OutStream) -> None:
        stream.waive()
        self._make_ready(stream)

    def _make_ready(self, stream: OutStream) -> None:
        """Let a stream have its turn if it has something that may go."""
        if not stream.is_ready and (stream.parts or (stream.queue and not stream.is_held)):
            stream.is_ready = True
            self._ready.append(stream)
            self._owner.wake()

    def _turn(self, stream: OutStream) -> None:
        """Write the next chunk, or run, of a stream that has something waiting, or its next signal."""
        if stream.parts is not None:
            self._write_chunk(stream, _MORE, b"")
            return
        item = stream.queue[0]
        if type(item) is Mail:
            if item.bodies or item.size > RUN_BYTES:
                self._begin_large(stream, item)
            else:
                self._write_waiting_run(stream)
        elif type(item) is Signal:
            stream.pop()
            self._write_signal(stream.number, item.packed)
        elif type(item) is Barrier:
            stream.pop()
            item.left -= 1
            if not item.left:
                self._write_signal(0, item.packed)
        elif type(item) is Notice:
            stream.pop()
            item.call()

    def _write_waiting_run(self, stream: OutStream) -> None:
        run: list[bytes] = []
        size = 0
        while stream.queue and size < RUN_BYTES and (not run or not stream.is_held):
            item = stream.queue[0]
            if type(item) is not Mail or item.bodies or item.size > RUN_BYTES:
                break
            stream.pop()
            run.append(item.packed)
            size += item.size
        self._waiting_bytes -= size + len(run) * WAITING_MAIL_BYTES
        self._write_run(stream, run, size)

    def _begin_large(self, stream: OutStream, mail: Mail) -> None:
        if self._large_count >= LARGE_MAILS_MAX:
            stream.is_ready = True  # it has its turn when one of the others is written
            self._waiting_large.append(stream)
            return
        stream.pop()
        self._large_count += 1
        self._waiting_bytes -= WAITING_MAIL_BYTES
        stream.credit.spend(1, mail.size)
        self.sent_messages += 1
        stream.begin_large(mail)
        self._write_chunk(stream, _FIRST, LARGE.pack(mail.size, len(mail.packed)))

    def _write_chunk(self, stream: OutStream, kind: int, header: bytes) -> None:
        chunk = stream.next_chunk(self._limits.chunk_bytes)
        size = sum(map(len, chunk))
        self._written.append(
            HEADER.pack(len(header) + size, self._mine, kind, stream.number) + header
        )
        self._written += chunk
        self._written_bytes += HEADER.size + len(header) + size
        self._waiting_bytes -= size
        if stream.parts is None:
            self._large_count -= 1
            if self._waiting_large:
                waiting = self._waiting_large.popleft()
                waiting.is_ready = False
                self._make_ready(waiting)

    # In.

    def receive(self, data: bytes) -> None:
        """Take bytes of the socket; WireError: the connection must be closed."""
        self._has_received = True
        self._reader.feed(data)

    def frame(self, kind: int, number: int, payload: memoryview) -> None:
        """Take a frame of the reader."""
        if kind == _RUN:
            stream = self._in_stream(number)
            if stream.large is not None:
                raise WireError(f"stream {number} has a run within a large mail")
            messages = self._codec.unpack_run(payload)
            self._count(stream, len(messages), len(payload))
            self._owner.deliver(stream, messages)
        else:
            _READERS[kind](self, number, payload)

    def first(self, number: int, size: int, packed_bytes: int) -> None:
        """Take the head of a large mail of the reader."""
        stream = self._in_stream(number)
        if stream.large is not None or self._incoming_count >= LARGE_MAILS_MAX:
            raise WireError(f"stream {number} begins a large mail while others are under way")
        if not 0 < packed_bytes <= size <= self._limits.mail_bytes_max:
            raise WireError(
                f"mail of {size} bytes with a message of {packed_bytes}, limit {self._limits.mail_bytes_max}"
            )
        self._incoming_count += 1
        stream.large = LargeMail(size, packed_bytes)

    def part(self, number: int, data: memoryview) -> None:
        """Take a part of a large mail of the reader."""
        stream = self._in_stream(number)
        large = stream.large
        if large is None:
            raise WireError(f"stream {number} goes on with a large mail that it has not begun")
        try:
            is_whole = large.add(data)
        except ValueError:
            raise WireError(
                f"a large mail is longer than the {large.size} bytes announced"
            ) from None
        if is_whole:
            stream.large = None
            self._incoming_count -= 1
            message = self._codec.unpack(*large.take())
            self._count(stream, 1, large.size)
            self._owner.deliver(stream, [message])

    def _in_stream(self, number: int) -> InStream:
        stream = self._in.get(number)
        if stream is None:
            raise WireError(f"stream {number} is not open")
        return stream

    def _opened(self, number: int, payload: memoryview) -> None:
        if number in self._in or not number:
            raise WireError(f"stream {number} cannot be opened: it is open")
        if len(self._in) >= STREAMS_MAX:
            raise WireError(f"{len(self._in)} streams are open, limit {STREAMS_MAX}")
        self._in[number] = InStream(number, *self._owner.opened(payload))

    def _closed(self, number: int, _: memoryview) -> None:
        if self._in_stream(number).large is not None:
            raise WireError(f"stream {number} is closed within a large mail")
        del self._in[number]

    def _signalled(self, number: int, payload: memoryview) -> None:
        stream = self._in_stream(number) if number else None
        if stream is not None and stream.large is not None:
            raise WireError(f"stream {number} has a signal within a large mail")
        self._owner.signal(payload)

    def _granted(self, number: int, payload: memoryview) -> None:
        stream = self._out.get(number)
        if stream is None or len(payload) != GRANTED.size:
            raise WireError(f"grant of {len(payload)} bytes for stream {number}, which is not open")
        stream.credit.grant(*GRANTED.unpack(payload))
        self._make_ready(stream)

    # Credit for the other side.

    @property
    def is_grant_due(self) -> bool:
        """Whether a sender has used half of its credit, and stops soon unless more is granted."""
        return bool(self._due)

    def grant(self, may: Callable[[InStream], bool]) -> None:
        """Give credit back for the streams that are due, where ``may`` says that the receiver has handled its mail."""
        due, self._due = self._due, []
        for stream in due:
            if may(stream):
                stream.is_due = False
                self._grant(stream)
            else:
                self._due.append(stream)

    def _count(self, stream: InStream, messages: int, size: int) -> None:
        self.received_messages += messages
        stream.messages += messages
        stream.size += size
        if not stream.is_noted:
            stream.is_noted = True
            self._noted.append(stream)
        if not stream.is_due and (
            2 * stream.messages >= self._limits.credit_messages
            or 2 * stream.size >= self._limits.credit_bytes
        ):
            stream.is_due = True
            self._due.append(stream)

    def _grant(self, stream: InStream) -> None:
        if stream.messages:
            granted = GRANTED.pack(stream.messages, stream.size)
            stream.messages = stream.size = 0
            self._write(frame(self._mine, Kind.GRANT, stream.number, granted))

    # Time.

    def tick(self, may: Callable[[InStream], bool]) -> bool:
        """Grant credit, close idle streams and send a heartbeat; the owner calls this every ``heartbeat_s``.

        Args:
            may: whether the receiver of a stream has handled enough of its mail to give its credit back. A stream can
                be closed only when its credit is whole.

        Returns:
            False if the other side has been silent for too long.
        """
        noted, self._noted = self._noted, []
        for stream in noted:
            if may(stream):
                stream.is_noted = False
                self._grant(stream)
            else:
                self._noted.append(stream)
        self._sweep()
        if self._has_heartbeats and not (self._has_written or self._written):
            self._write(frame(self._mine, Kind.HEARTBEAT, 0))
        self._has_written = False
        self._silent_ticks = 0 if self._has_received else self._silent_ticks + 1
        self._has_received = False
        return self._silent_ticks < self._silent_ticks_max or not self._has_heartbeats

    @property
    def needs_ticks(self) -> bool:
        """Whether ``tick`` has something to do later, even if nothing is sent or received until then."""
        return self._has_heartbeats or bool(self._out or self._noted)

    def _sweep(self) -> None:
        """Check the next ``SWEPT_STREAMS`` streams, and close the idle ones."""
        self._close_run()
        for number in list(islice(self._out, SWEPT_STREAMS)):
            stream = self._out.pop(number)
            if stream.is_idle:
                self._free.append(number)
                self._write(frame(self._mine, Kind.CLOSE, number))
                self._owner.closed(stream)
            else:
                self._out[number] = stream


_READERS: Final[dict[int, Callable[[Connection, int, memoryview], None]]] = {
    Kind.HEARTBEAT: lambda *_: None,
    Kind.OPEN: Connection._opened,  # noqa: SLF001  # a table of its own methods
    Kind.GRANT: Connection._granted,  # noqa: SLF001
    Kind.CLOSE: Connection._closed,  # noqa: SLF001
    Kind.SIGNAL: Connection._signalled,  # noqa: SLF001
}
