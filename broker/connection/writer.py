"""The way out of a connection: frames of all its channels, one write per connection at the end of a drain.

The transport never blocks, so the writer is an object of the connection, not an actor. Frames are joined until the
node's ``PendingWrites`` send them, or, where the socket has TLS, its transport gets them. An amount
that is large already goes to the transport at once, so that it can say ``pause_writing`` in time. Bodies of some size
are parts of their own, which are not joined: uvloop gives them to the system where they lie. asyncio's transports join
them before Python 3.12.

A large body would take the loop a quarter of a second, so it is framed and written piece by piece, as the peer's
socket takes it. Until its last piece is written, all other frames of the connection queue behind it, in the order in
which they came.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from leveret.actors.runtime.runtime import Runtime
from leveret.amqp.body_frames import BodyFrames, Part
from leveret.broker.channel.session import Output
from leveret.broker.connection.pacing import stop_pacing
from leveret.core.transports import descriptor_of, plain_descriptor_of, write_parts

FLUSH_BYTES: Final = 256 * 1024
TURN_BYTES: Final = 1024 * 1024  # of a large body and what queues behind it, per round


class Writer(Output):
    """Collects bytes for one transport.

    Args:
        send_later: has the node's ``PendingWrites`` call ``take`` at the end of the drain.
        large_body_begun: is called when a large body begins to wait for the peer.
        large_body_ended: is called when the transport has taken it all, and takes more.

    Attributes:
        plain_descriptor: of a socket to which bytes can be sent as they are; -1: all goes to the transport.
        wrote: something was written since ``forget_written``; heartbeats need it.
        after_flush: is called when something was sent, or handed to the transport.
    """

    __slots__ = (
        "_chunks",
        "_finished",
        "_has_parts",
        "_is_clear",
        "_is_due",
        "_is_paused",
        "_large_body_begun",
        "_large_body_ended",
        "_may_be_paced",
        "_output",
        "_pending_bytes",
        "_runtime",
        "_send_later",
        "_transport",
        "after_flush",
        "plain_descriptor",
        "wrote",
    )

    def __init__(
        self,
        runtime: Runtime,
        send_later: Callable[[Writer], object],
        transport: asyncio.Transport,
        large_body_begun: Callable[[], object],
        large_body_ended: Callable[[], object],
    ) -> None:
        self._runtime = runtime
        self._send_later = send_later
        self._transport: asyncio.Transport | None = transport
        self._finished: asyncio.Transport | None = None
        self._chunks: list[Part] = []
        self._has_parts = False  # among the chunks
        self._pending_bytes = 0
        self._large_body_begun = large_body_begun
        self._large_body_ended = large_body_ended
        # A large body and what queues behind it; None: the transport gets all at once.
        self._output: deque[list[Part] | BodyFrames] | None = None
        self._is_paused = False  # the transport is full
        self._is_due = False
        self._may_be_paced = True  # nobody has looked
        self._is_clear = True  # nothing was handed to the transport since it was last seen empty
        self.plain_descriptor = plain_descriptor_of(transport)
        self.wrote = False
        self.after_flush: Callable[[], object] | None = None

    def write(self, data: bytes) -> None:
        """Write whole frames; dropped when the connection is closed already."""
        if self._transport is None:
            return
        chunks = self._chunks
        if not chunks:
            if self.plain_descriptor < 0:
                self._runtime.after_drain(self.flush, is_first=True)
            else:
                self._send_later(self)
        chunks.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= FLUSH_BYTES:
            self.flush()

    def write_parts(self, parts: list[Part]) -> None:
        """Write whole frames, in parts that are not joined; dropped as by ``write``."""
        if self._transport is None:
            return
        self._stop_pacing()
        if not self._chunks:
            self._runtime.after_drain(self.flush, is_first=True)
        self._chunks += parts
        self._has_parts = True
        self._pending_bytes += sum(map(len, parts))
        if self._pending_bytes >= FLUSH_BYTES:
            self.flush()

    def forget_written(self) -> None:
        """Begin another half of a heartbeat's interval."""
        self.wrote = False

    def write_body(self, channel: int, frame_max: int, body: bytes) -> None:
        """Write the frames of a large body, behind its header frame, as the peer takes them."""
        if self._transport is None:
            return
        self._stop_pacing()
        self.flush()
        if self._output is None:
            self._output = deque()
            self._large_body_begun()
        self._output.append(BodyFrames(channel, frame_max, body))
        self._write_later()

    def _stop_pacing(self) -> None:
        """Have the bodies of a client on the same machine sent at once, from the first one of some size."""
        if self._may_be_paced and self._transport is not None:
            self._may_be_paced = False
            stop_pacing(self._transport)

    def take(self) -> bytes:
        """Return what can be sent to the socket as it is; b"" when nothing waits, or it has gone to the transport."""
        transport = self._transport
        if transport is None or not self._chunks:
            return b""
        if not self._is_clear and not transport.get_write_buffer_size():
            self._is_clear = True
        if (
            not self._is_clear
            or self._has_parts
            or self._output is not None
            or transport.is_closing()
        ):
            self.flush()
            return b""
        output = b"".join(self._chunks)
        self._chunks = []
        self._pending_bytes = 0
        self.wrote = True
        return output

    def leave(self, rest: bytes) -> None:
        """Hand to the transport what the socket has not taken."""
        self._is_clear = False
        if self._transport is not None:
            self._transport.write(rest)

    def flush(self) -> None:
        """Hand all that waits to the transport."""
        chunks = self._chunks
        if not chunks or self._transport is None:
            return
        self._chunks = []
        self._pending_bytes = 0
        self._is_clear = False
        self.wrote = True
        if self._output is not None:
            self._output.append(chunks)
        elif self._has_parts:
            write_parts(self._transport, chunks)
        else:
            self._transport.write(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        self._has_parts = False
        if self.after_flush is not None:
            self.after_flush()

    def pause(self) -> None:
        """The transport is full."""
        self._is_paused = True

    def resume(self) -> None:
        """The transport takes more."""
        self._is_paused = False
        self._write_later()

    def _write_later(self) -> None:
        """Write more of a large body soon, if there is one and the transport is not full."""
        if self._output is not None and not self._is_paused and not self._is_due:
            self._is_due = True
            self._runtime.after_round(self._write_some)

    def _write_some(self) -> None:
        self._is_due = self._is_clear = False
        output, transport, left = self._output, self._transport, TURN_BYTES
        if output is None or transport is None or transport.is_closing():
            return
        while output and left > 0 and not self._is_paused:
            first = output[0]
            parts = first if isinstance(first, list) else first.take(FLUSH_BYTES)
            if isinstance(first, list) or not first.left:
                output.popleft()
            left -= sum(map(len, parts))
            write_parts(transport, parts)
        self.wrote = True
        if output:
            self._write_later()
            return
        self._output = None
        if not self._is_paused:
            self._large_body_ended()

    @property
    def has_large_body(self) -> bool:
        """Whether a large body waits for the peer."""
        return self._output is not None

    def drop_output(self) -> None:
        """Forget the rest of large bodies and all behind it: connection.close is all that is still to come."""
        if self._output is not None:
            self._output, self._chunks, self._pending_bytes = None, [], 0

    @property
    def descriptor(self) -> int:
        """The socket's file descriptor, -1 when it is closed."""
        transport = self._transport or self._finished
        return -1 if transport is None else descriptor_of(transport)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the peer's socket has not taken yet."""
        if self._transport is None:
            return 0
        queued = sum(
            sum(map(len, each)) if isinstance(each, list) else each.left
            for each in self._output or ()
        )
        return self._pending_bytes + queued + self._transport.get_write_buffer_size()

    def close(self) -> None:
        if self._transport is not None:
            self.flush()
            self._transport.close()
            self._transport = self._output = None
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
        self._chunks, self._output = [], None

    def abort(self) -> None:
        transport = self._transport or self._finished
        if transport is not None:
            transport.abort()
            self._transport = self._finished = None
            self._chunks, self._output = [], None
