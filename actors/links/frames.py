"""Frames of a link, after the handshake.

::

    size:u32  incarnation:u32  kind:u8  stream:u32  then ``size`` bytes      (big-endian)

    HEARTBEAT  nothing
    OPEN       msgpack [sender, receiver]   the stream carries mail of this sender to this receiver
    RUN        messages, one after the other (``codec``)
    FIRST      size:u32  packed_bytes:u32  and the first bytes of a large mail, which are: its message, its bodies
    MORE       further bytes of it
    GRANT      messages:u32  size:u32       the receiver has taken in so much of the stream
    CLOSE      nothing: the stream is not used any more, and its number may be given again
    SIGNAL     msgpack [op, ...]            of the stream, in order with its mail; of the whole link if it is 0

``incarnation`` is the sending side's from the handshake; a frame with another one breaks the link. FIRST and MORE are
handed on as their bytes come; all other frames are handed on whole, and are short.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, Protocol

from leveret.actors.links.codec import Buffer
from leveret.actors.links.limits import CHUNK_BYTES_MAX, SIGNAL_BYTES_MAX
from leveret.actors.links.sendable import WireError

HEADER: Final = struct.Struct(">IIBI")
LARGE: Final = struct.Struct(">II")
GRANTED: Final = struct.Struct(">II")

RUN_BYTES: Final = 64 * 1024  # a message of more goes as a large mail, and a run of more is closed
_RUN_BYTES_MAX: Final = 2 * RUN_BYTES
_OPEN_BYTES_MAX: Final = 4 * 1024


class Kind(IntEnum):
    """The kinds of frames."""

    HEARTBEAT = 0
    OPEN = 1
    RUN = 2
    FIRST = 3
    MORE = 4
    GRANT = 5
    CLOSE = 6
    SIGNAL = 7


_FIRST, _MORE = int(Kind.FIRST), int(Kind.MORE)
_BYTES_MAX: Final = (
    0, _OPEN_BYTES_MAX, _RUN_BYTES_MAX, CHUNK_BYTES_MAX + LARGE.size, CHUNK_BYTES_MAX, GRANTED.size, 0,
    SIGNAL_BYTES_MAX,
)  # fmt: skip  # by kind
RUN_BYTES_MAX: Final = _RUN_BYTES_MAX


class Receiver(Protocol):
    """Takes the frames of a ``FrameReader``."""

    def frame(self, kind: int, stream: int, payload: memoryview) -> None:
        """Take a whole frame; the payload is valid during the call."""

    def first(self, stream: int, size: int, packed_bytes: int) -> None:
        """Take the beginning of a large mail of ``size`` bytes."""

    def part(self, stream: int, data: memoryview) -> None:
        """Take the next bytes of a large mail, of memory that nobody changes."""


class FrameReader:
    """Bytes in, frames out. It keeps less than one short frame.

    Args:
        incarnation: that every frame must have.
        receiver: gets the frames.
    """

    def __init__(self, incarnation: int, receiver: Receiver) -> None:
        self._incarnation = incarnation
        self._receiver = receiver
        self._kept = b""
        self._stream = 0  # of the part that is being read
        self._part_bytes = 0  # of it that are still to come

    def feed(self, data: bytes) -> None:
        """Take bytes of the socket.

        Raises:
            WireError: they are no frames of this connection; it must be closed.
        """
        if self._kept:
            data = self._kept + data
        view, at, end = memoryview(data), 0, len(data)
        while True:
            if self._part_bytes:
                at = self._read_part(view, at)
            if end - at < HEADER.size:
                break
            size, incarnation, kind, stream = HEADER.unpack_from(view, at)
            if incarnation != self._incarnation:
                raise WireError(f"frame of incarnation {incarnation}, expected {self._incarnation}")
            if kind >= len(_BYTES_MAX) or size > _BYTES_MAX[kind]:
                raise WireError(f"frame of kind {kind} and {size} bytes, which is not allowed")
            begin = at + HEADER.size
            if kind in (_FIRST, _MORE):
                begin += self._begin_part(kind, view, begin, size, stream)
                if begin > end:
                    break
                at = begin
            elif begin + size > end:
                break
            else:
                at = begin + size
                self._receiver.frame(kind, stream, view[begin:at])
        self._kept = data[at:] if at < end else b""

    def _begin_part(self, kind: int, view: memoryview, begin: int, size: int, stream: int) -> int:
        """Begin to read a part; return the bytes of its own header, even if they have not come yet."""
        taken = 0
        if kind == _FIRST:
            taken = LARGE.size
            if size < taken:
                raise WireError(f"first part of {size} bytes, it must have at least {taken}")
            if begin + taken > len(view):
                return taken
            self._receiver.first(stream, *LARGE.unpack_from(view, begin))
        self._stream, self._part_bytes = stream, size - taken
        return taken

    def _read_part(self, view: memoryview, at: int) -> int:
        taken = min(self._part_bytes, len(view) - at)
        if taken:
            self._part_bytes -= taken
            self._receiver.part(self._stream, view[at : at + taken])
        return at + taken


def frame(incarnation: int, kind: Kind, stream: int, payload: Buffer = b"") -> bytes:
    """Return a frame."""
    return HEADER.pack(len(payload), incarnation, kind, stream) + payload
