"""The way out of a connection: frames of all its channels, one write per connection and drain.

The transport never blocks, so the writer is an object of the connection, not an actor. Frames written
during one drain of the run queue are joined and given to the transport when the drain ends; a chunk
that is large already goes at once, so that the transport can say ``pause_writing`` in time.

A large body would take the loop a quarter of a second and two copies of itself, so it is framed and written piece by
piece, as the peer's socket takes it. Until its last piece is written, all other frames of the connection stand in line
behind it, in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from leveret.actors.runtime.runtime import Runtime
from leveret.amqp.body_frames import BodyFrames

FLUSH_BYTES: Final = 256 * 1024
TURN_BYTES: Final = 1024 * 1024  # of the line, at one go


class Writer:
    """Collects bytes for one transport.

    Attributes:
        wrote: something was written since the heartbeat last looked (it resets this).
        after_flush: is called when something was handed to the transport.
        is_paused: the transport is full; the reader says so.
        line_begins: is called when a large body begins to wait for the peer.
        line_ends: is called when the transport has taken it all, and takes more.
    """

    __slots__ = (
        "_chunks",
        "_finished",
        "_is_due",
        "_line",
        "_pending_bytes",
        "_runtime",
        "_transport",
        "after_flush",
        "is_paused",
        "line_begins",
        "line_ends",
        "wrote",
    )

    def __init__(self, runtime: Runtime, transport: asyncio.Transport) -> None:
        self._runtime = runtime
        self._transport: asyncio.Transport | None = transport
        self._finished: asyncio.Transport | None = None
        self._chunks: list[bytes] = []
        self._pending_bytes = 0
        self._line: deque[bytes | BodyFrames] | None = None  # None: the transport gets all at once
        self._is_due = False
        self.wrote = False
        self.is_paused = False
        self.after_flush: Callable[[], object] | None = None
        self.line_begins: Callable[[], object] | None = None
        self.line_ends: Callable[[], object] | None = None

    def write(self, data: bytes) -> None:
        """Put whole frames in line; dropped when the connection is closed already."""
        if self._transport is None:
            return
        chunks = self._chunks
        if not chunks:
            self._runtime.after_drain(self.flush)
        chunks.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= FLUSH_BYTES:
            self.flush()

    def write_body(self, channel: int, frame_max: int, body: bytes) -> None:
        """Put the frames of a large body in line, behind its header frame."""
        if self._transport is None:
            return
        self.flush()
        if self._line is None:
            self._line = deque()
            if self.line_begins is not None:
                self.line_begins()
        self._line.append(BodyFrames(channel, frame_max, body))
        self.go_on()

    def flush(self) -> None:
        chunks = self._chunks
        if not chunks or self._transport is None:
            return
        self._chunks = []
        self._pending_bytes = 0
        self.wrote = True
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        if self._line is None:
            self._transport.write(data)
        else:
            self._line.append(data)
        if self.after_flush is not None:
            self.after_flush()

    def go_on(self) -> None:
        """Write more of the line soon, if there is one and the transport is not full."""
        if self._line is not None and not self.is_paused and not self._is_due:
            self._is_due = True
            self._runtime.after_round(self._write_line)

    def _write_line(self) -> None:
        self._is_due = False
        line, transport, left = self._line, self._transport, TURN_BYTES
        if line is None or transport is None or transport.is_closing():
            return
        while line and left > 0 and not self.is_paused:
            first = line[0]
            data = first if isinstance(first, bytes) else first.take(FLUSH_BYTES)
            if isinstance(first, bytes) or not first.left:
                line.popleft()
            left -= len(data)
            transport.write(data)
        self.wrote = True
        if line:
            self.go_on()
            return
        self._line = None
        if self.line_ends is not None and not self.is_paused:
            self.line_ends()

    @property
    def has_line(self) -> bool:
        """Whether a large body waits for the peer."""
        return self._line is not None

    def cut_line(self) -> None:
        """Forget the rest of large bodies and all behind it: connection.close is all that is still to come."""
        if self._line is not None:
            self._line, self._chunks, self._pending_bytes = None, [], 0

    @property
    def descriptor(self) -> int:
        """The socket's file descriptor, -1 when it is closed."""
        transport = self._transport or self._finished
        found = transport.get_extra_info("socket") if transport is not None else None
        return -1 if found is None else int(found.fileno())

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the peer's socket has not taken yet."""
        if self._transport is None:
            return 0
        in_line = sum(
            len(each) if isinstance(each, bytes) else each.left for each in self._line or ()
        )
        return self._pending_bytes + in_line + self._transport.get_write_buffer_size()

    def close(self) -> None:
        if self._transport is not None:
            self.flush()
            self._transport.close()
            self._transport = self._line = None
        if self._finished is not None:
            self._finished.close()
            self._finished = None

    def finish(self) -> None:
        """Send pending frames and the end of the stream; the socket stays open for the peer's end."""
        if self._transport is None:
            return
        self.flush()
        if self._transport.can_write_eof():
            with suppress(OSError):  # the peer has reset it: connection_lost follows
                self._transport.write_eof()
        self._finished, self._transport = self._transport, None

    def drop(self) -> None:
        """Write no more: the peer has ended, and would reset what it has sent and is not read yet."""
        self._finished, self._transport = self._transport or self._finished, None
        self._chunks, self._line = [], None

    def abort(self) -> None:
        transport = self._transport or self._finished
        if transport is not None:
            transport.abort()
            self._transport = self._finished = None
            self._chunks, self._line = [], None
