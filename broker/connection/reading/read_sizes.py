"""How much of a socket is read at a time, on asyncio's loop and on uvloop.

asyncio's transports read ``max_size`` bytes at most, which can be set. uvloop's read 256,000, unless their
protocol gives them a buffer to read into; so one of 1 MiB is given where bodies are large, each
of which is copied once more when a read cuts it: a third of the CPU of messages of 64 KiB. All
connections of a thread share the buffer, for its bytes are copied before anything else happens there; uvloop lets other
threads run while it reads.

Turned down: a buffer for all reads. It costs a call more, which small ones would feel.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from leveret.broker.connection.layers.tls import TlsTransport

FIRST_READ_BYTES: Final = 64 * 1024  # beyond some 128 KiB a read costs the process fresh pages
READ_BYTES: Final = 256 * 1024
WIDE_READ_BYTES: Final = 1024 * 1024
UVLOOP_READ_BYTES: Final = 256_000

_MANY_RUNS: Final = 64  # in a read: each is work of its own
_LARGE_BYTES: Final = 8 * 1024  # of a body cut by a full read: bodies are large

_of_thread: Final = threading.local()


class WideReads:
    """A buffered protocol: reads into a large buffer for another protocol, which has all other events."""

    def __init__(self, protocol: Any) -> None:
        self.protocol = protocol
        self._buffer = _buffer()
        self.eof_received = protocol.eof_received
        self.connection_lost = protocol.connection_lost
        self.pause_writing = protocol.pause_writing
        self.resume_writing = protocol.resume_writing

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.protocol.data_received(bytes(self._buffer[:nbytes]))


def _buffer() -> memoryview:
    """Return the buffer of this thread."""
    if not hasattr(_of_thread, "buffer"):
        _of_thread.buffer = memoryview(bytearray(WIDE_READ_BYTES))
    found: memoryview = _of_thread.buffer
    return found


def next_read_bytes(read_bytes: int, runs: int, cut_bytes: int) -> int:
    """Return how much to read behind a full read: more, unless this one was work enough.

    ``cut_bytes`` is the part of a frame at its end; a large body that is cut is copied once more.
    """
    if runs > _MANY_RUNS:
        return FIRST_READ_BYTES
    if read_bytes == FIRST_READ_BYTES:
        return READ_BYTES
    return WIDE_READ_BYTES if cut_bytes >= _LARGE_BYTES else read_bytes


def limit_reads(transport: Any, read_bytes: int) -> int:
    """Have a transport read so much at a time, or as near as it can; return the size of a full read.

    With uvloop it holds from when reading is resumed after a pause.
    """
    if isinstance(transport, TlsTransport):
        return transport.limit_reads(read_bytes)
    if hasattr(transport, "max_size"):
        transport.max_size = read_bytes
        return read_bytes
    protocol = transport.get_protocol()
    is_wide = isinstance(protocol, WideReads)
    if read_bytes == WIDE_READ_BYTES:
        if not is_wide:
            transport.set_protocol(WideReads(protocol))
        return read_bytes
    if is_wide:
        transport.set_protocol(protocol.protocol)
    return min(read_bytes, UVLOOP_READ_BYTES)
