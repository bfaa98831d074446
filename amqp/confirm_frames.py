"""The frames of publisher confirms, in pure Python; the contract is in ``leveret/amqp/kernel.py``."""

from __future__ import annotations

from struct import Struct
from typing import Final

from leveret.amqp.spec import FRAME_END

# basic.ack and basic.nack (its bits: multiple, requeue) as whole frames.
_FRAME: Final = Struct(">BHIHHQBB")


def confirm_frames(channel: int, answers: list[tuple[bool, int, bool]]) -> bytes:
    """Return a basic.ack or basic.nack for each answer."""
    frames = []
    for is_ack, tag, multiple in answers:
        method, bits = (80, multiple) if is_ack else (120, multiple | 2)
        frames.append(_FRAME.pack(1, channel, 13, 60, method, tag, bits, FRAME_END))
    return frames[0] if len(frames) == 1 else b"".join(frames)
