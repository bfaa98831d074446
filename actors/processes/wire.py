"""Frames between a process and its parent.

A frame is ``size:u32`` (big-endian, without itself) and a msgpack array ``[op, ...]``, packed as ``links.codec`` says.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from leveret.actors.links.codec import Codec, Peer, Unreadable
from leveret.actors.links.sendable import WireError

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024

_SIZE: Final = struct.Struct(">I")


class FrameCodec:
    """Frames of values to bytes and back, for one link."""

    def __init__(self, peer: Peer) -> None:
        self._codec = Codec(peer)

    def frame(self, *parts: Any) -> bytes:
        """Return a frame; WireError: a part cannot go to another process, or it is too long."""
        packed, _ = self._codec.pack(list(parts))
        if len(packed) > FRAME_BYTES_MAX:
            raise WireError(f"message of {len(packed)} bytes, limit {FRAME_BYTES_MAX}")
        return _SIZE.pack(len(packed)) + packed

    def parts(self, packed: bytes) -> list[Any]:
        """Return the parts ``frame`` was given; WireError: they cannot be read here."""
        parts = self._codec.unpack(packed)
        if isinstance(parts, Unreadable):
            raise WireError(parts.error)
        if not isinstance(parts, list):
            raise WireError(f"frame that is no list: {parts!r:.80}")
        return parts


class Frames:
    """Bytes in, whole frames out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take bytes of the socket, yield whole frames without the size; WireError: too long."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _SIZE.size:
                (size,) = _SIZE.unpack_from(buffer, start)
                if size > FRAME_BYTES_MAX:
                    raise WireError(f"frame of {size} bytes, limit {FRAME_BYTES_MAX}")
                first, last = start + _SIZE.size, start + _SIZE.size + size
                if len(buffer) < last:
                    return
                start = last
                yield bytes(buffer[first:last])
        finally:
            del buffer[:start]
