"""How much of a socket is read at a time, on asyncio's loop and on uvloop.

asyncio's transports read ``max_size`` bytes at most, which can be set. uvloop's read 256,000. Where bodies are large
both read into a buffer of 1 MiB, from which the kernel copies each body once, to where it stays; and few bodies are
cut by the end of a read, which costs more. All connections of a thread share the buffer, for its bytes are scanned
before anything else happens there; uvloop lets other threads run while it reads.

Of bodies that are larger still only the beginning is read so; the rest is read from the socket right to where it stays
(``read_rest``), which spares the copy: a fifth of the CPU of messages of 1 MiB.

Turned down: a buffer for all reads. It costs a call more, which small ones would feel.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Final

from leveret.amqp.kernel import Run, Scanner
from leveret.broker.connection.layers.tls import TlsTransport
from leveret.core.transports import plain_descriptor_of

FIRST_READ_BYTES: Final = 64 * 1024  # beyond some 128 KiB a read costs the process fresh pages
READ_BYTES: Final = 256 * 1024
BODY_READ_BYTES: Final = 32 * 1024  # before a body that is read to where it stays
WIDE_READ_BYTES: Final = 1024 * 1024
UVLOOP_READ_BYTES: Final = 256_000

_MANY_RUNS: Final = 64  # in a read: each is work of its own
_MANY_FRAMES: Final = 4_096  # likewise, of those that are no whole messages
_LARGE_BYTES: Final = 8 * 1024  # of a body cut by a full read: bodies are large
AWAITED_BYTES: Final = 128 * 1024  # of a body; so many are read to where they stay

_of_thread: Final = threading.local()


class WideReads(asyncio.BufferedProtocol):
    """A buffered protocol: reads into a large buffer for another protocol, which has all other events."""

    def __init__(self, protocol: Any) -> None:
        self.protocol = protocol
        self._buffer = self._whole = _buffer()
        self.eof_received = protocol.eof_received  # type: ignore[method-assign]
        self.connection_lost = protocol.connection_lost  # type: ignore[method-assign]
        self.pause_writing = protocol.pause_writing  # type: ignore[method-assign]
        self.resume_writing = protocol.resume_writing  # type: ignore[method-assign]

    def limit(self, read_bytes: int) -> None:
        """Read so much at a time."""
        self._buffer = self._whole[:read_bytes]

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Hand the bytes on; the next read overwrites them."""
        self.protocol.data_received(self._buffer[:nbytes])


def _buffer() -> memoryview:
    """Return the buffer of this thread."""
    if not hasattr(_of_thread, "buffer"):
        _of_thread.buffer = memoryview(bytearray(WIDE_READ_BYTES))
    found: memoryview = _of_thread.buffer
    return found


def next_read_bytes(
    read_bytes: int, runs: int, frames: int, cut_bytes: int, rest_bytes: int = 0
) -> int:
    """Return how much to read behind a full read: more, unless this one was work enough.

    ``frames`` were taken one by one, as those of a body of which each has one byte. ``cut_bytes`` is the part of a
    frame at the end of the read; a large body that is cut may be copied once more. ``rest_bytes`` were read to where
    they stay.
    """
    if rest_bytes:
        return BODY_READ_BYTES
    if runs > _MANY_RUNS or frames > _MANY_FRAMES:
        return FIRST_READ_BYTES
    if read_bytes in {FIRST_READ_BYTES, BODY_READ_BYTES}:
        return READ_BYTES
    return WIDE_READ_BYTES if cut_bytes >= _LARGE_BYTES else read_bytes


def limit_reads(transport: Any, read_bytes: int) -> int:
    """Have a transport read so much at a time, or as near as it can; return the size of a full read.

    With uvloop it holds from when reading is resumed after a pause.
    """
    if isinstance(transport, TlsTransport):
        return transport.limit_reads(read_bytes)
    can_be_set = hasattr(transport, "max_size")
    if can_be_set:
        transport.max_size = read_bytes
    protocol = transport.get_protocol()
    if read_bytes in {WIDE_READ_BYTES, BODY_READ_BYTES}:
        if not isinstance(protocol, WideReads):
            protocol = WideReads(protocol)
            transport.set_protocol(protocol)
        protocol.limit(read_bytes)
        return read_bytes
    if isinstance(protocol, WideReads):
        transport.set_protocol(protocol.protocol)
    return read_bytes if can_be_set else min(read_bytes, UVLOOP_READ_BYTES)


def read_rest(transport: Any, scanner: Scanner) -> list[Run]:
    """Read more of the body whose beginning has come to where it stays; return the runs that it completes."""
    descriptor = plain_descriptor_of(transport)
    return scanner.read_body(descriptor, WIDE_READ_BYTES) if descriptor >= 0 else []
