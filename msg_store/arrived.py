"""Contents that have been read and wait to be taken: a bounded cache, the oldest goes first.

Whoever asked last will come soonest; who asked long ago has stopped consuming, and asks again if not.
Keys are numbers: a ``msg_no``, or for a transient, which has none, ``transient_key``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from leveret.core.message import BODY, HEAD, Message

ROOM_BYTES: Final = 64 * 1024 * 1024
_OVERHEAD_BYTES: Final = 250  # of a message in RAM: tuple, key, heads of objects


def transient_key(queue_no: int, seq: int) -> int:
    """Return the key of a message that is named by queue and seq; no ``msg_no`` is negative."""
    return -(queue_no << 64 | seq) - 1


class Arrived:
    """The cache of a store. On the loop.

    Args:
        room_bytes: what it may hold; what came last may be more.

    Attributes:
        contents: by key, oldest first; only to be looked at.
        size_bytes: what they take.
    """

    __slots__ = ("contents", "room_bytes", "size_bytes")

    def __init__(self, room_bytes: int = ROOM_BYTES) -> None:
        self.contents: dict[int, Message] = {}
        self.room_bytes = room_bytes
        self.size_bytes = 0

    def put(self, contents: dict[int, Message]) -> None:
        """Take what was read; what came before it makes room."""
        own, size_bytes = self.contents, 0
        for key, message in contents.items():
            if key not in own:
                own[key] = message
                size_bytes += len(message[BODY]) + len(message[HEAD]) + _OVERHEAD_BYTES
        self.size_bytes += size_bytes
        left = len(own) - len(contents)
        while self.size_bytes > self.room_bytes and left > 0:
            self.drop((next(iter(own)),))
            left -= 1

    def drop(self, keys: Iterable[int]) -> None:
        """Forget contents; unknown keys are passed over."""
        take, size_bytes = self.contents.pop, 0
        for key in keys:
            message = take(key, None)
            if message is not None:
                size_bytes += len(message[BODY]) + len(message[HEAD]) + _OVERHEAD_BYTES
        self.size_bytes -= size_bytes
