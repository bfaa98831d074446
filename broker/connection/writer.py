"""The way out of a connection: frames of all its channels, one write per connection and drain.

The transport never blocks, so the writer is an object of the connection, not an actor. Frames written
during one drain of the run queue are joined and given to the transport when the drain ends; a chunk
that is large already goes at once, so that the transport can say ``pause_writing`` in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from leveret.actors.runtime.runtime import Runtime

FLUSH_BYTES: Final = 256 * 1024


class Writer:
    """Collects bytes for one transport.

    Attributes:
        wrote: something was written since the heartbeat last looked (it resets this).
        after_flush: is called when something was handed to the transport.
    """

    __slots__ = (
        "_chunks",
        "_finished",
        "_pending_bytes",
        "_runtime",
        "_transport",
        "after_flush",
        "wrote",
    )

    def __init__(self, runtime: Runtime, transport: asyncio.Transport) -> None:
        self._runtime = runtime
        self._transport: asyncio.Transport | None = transport
        self._finished: asyncio.Transport | None = None
        self._chunks: list[bytes] = []
        self._pending_bytes = 0
        self.wrote = False
        self.after_flush: Callable[[], object] | None = None

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

    def flush(self) -> None:
        chunks = self._chunks
        if not chunks or self._transport is None:
            return
        self._chunks = []
        self._pending_bytes = 0
        self.wrote = True
        self._transport.write(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if self.after_flush is not None:
            self.after_flush()

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
        return self._pending_bytes + self._transport.get_write_buffer_size()

    def close(self) -> None:
        if self._transport is not None:
            self.flush()
            self._transport.close()
            self._transport = None
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
        self._chunks = []

    def abort(self) -> None:
        transport = self._transport or self._finished
        if transport is not None:
            transport.abort()
            self._transport = self._finished = None
            self._chunks = []
