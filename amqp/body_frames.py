"""Frames of bodies that are not copied: parts for ``transport.writelines``, in which a body is a part of its own.

A copy of 64 KiB costs as much as all other work that a delivery takes, and a fan-out would copy a body once per queue.
The frames of a large body come a piece at a time, so that its time is not needed at once.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

from leveret.amqp.kernel import deliveries
from leveret.amqp.spec import FRAME_BODY
from leveret.core.limits import FRAME_OVERHEAD_BYTES
from leveret.core.message import Message

UNCOPIED_BYTES: Final = 16 * 1024  # a smaller body costs less when it is copied
Part: TypeAlias = bytes | memoryview

_pack_frame: Final = Struct(">BHI").pack


def body_parts(
    channel: int, part_max: int, body: Part, start: int = 0, end: int | None = None
) -> list[Part]:
    """Return frames of ``body[start:end]`` with at most ``part_max`` bytes each."""
    end = len(body) if end is None else end
    parts: list[Part] = []
    if end - start > part_max:
        body = memoryview(body)
    for at in range(start, end, part_max):
        part = body[at : min(at + part_max, end)]  # of bytes: all of them, which is no copy
        parts += (_pack_frame(FRAME_BODY, channel, len(part)), part, b"\xce")
    return parts


def part_max_of(frame_max: int, body: Part) -> int:
    """Return how many bytes of a body one of its frames holds at most."""
    return frame_max - FRAME_OVERHEAD_BYTES if frame_max else len(body) or 1


def delivery_parts(
    channel: int,
    consumer_tag: bytes,
    first_tag: int,
    redelivered: int,
    frame_max: int,
    messages: list[Message],
) -> list[Part]:
    """Return what the kernel's ``deliveries`` returns, in parts."""
    parts: list[Part] = []
    for number, (origin, head, body) in enumerate(messages):
        start: list[Message] = [(origin, head, b"")]
        is_redelivered, tag = int(number < redelivered), first_tag + number
        parts.append(deliveries(channel, consumer_tag, tag, is_redelivered, frame_max, start))
        parts += body_parts(channel, part_max_of(frame_max, body), body)
    return parts


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
        self._part_max = part_max_of(frame_max, body)
        self._body = memoryview(body)
        self.left = len(body)

    def take(self, bytes_max: int) -> list[Part]:
        """Return the next frames, with so many bytes of the body at most; less than a frame's worth is one frame."""
        start = len(self._body) - self.left
        part_max = min(self._part_max, bytes_max)
        end = min(start + bytes_max // part_max * part_max, len(self._body))
        self.left -= end - start
        return body_parts(self._channel, part_max, self._body, start, end)
