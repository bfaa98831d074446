"""The frames of a large body, a piece at a time, so that neither the bytes nor the time of all are needed at once."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from leveret.amqp.spec import FRAME_BODY
from leveret.core.limits import FRAME_OVERHEAD_BYTES

_pack_frame: Final = Struct(">BHI").pack


class BodyFrames:
    """The body frames of one content.

    Args:
        frame_max: negotiated frame size in bytes, 0 = no limit; frames may be smaller.

    Attributes:
        left: bytes of the body that have not been taken.
    """

    __slots__ = ("_body", "_channel", "_part_max", "left")

    def __init__(self, channel: int, frame_max: int, body: bytes) -> None:
        self._channel = channel
        self._part_max = frame_max - FRAME_OVERHEAD_BYTES if frame_max else len(body)
        self._body = memoryview(body)
        self.left = len(body)

    def take(self, bytes_max: int) -> bytes:
        """Return the next frames, with so many bytes of the body at most; less than a frame's worth is one frame."""
        start = len(self._body) - self.left
        part_max = min(self._part_max, bytes_max)
        end = min(start + bytes_max // part_max * part_max, len(self._body))
        parts: list[Any] = []
        for at in range(start, end, part_max):
            part = self._body[at : min(at + part_max, end)]
            parts += (_pack_frame(FRAME_BODY, self._channel, len(part)), part, b"\xce")
        self.left -= end - start
        return b"".join(parts)
