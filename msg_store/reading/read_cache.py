"""The read cache: contents that have been read and not been taken; bounded, the oldest is evicted first.

The queue that asked last will take its messages soonest; a queue that asked long ago has stopped consuming,
or asks again.
Keys are numbers: a ``msg_no``, or for a transient, which has none, one of ``transient_keys``.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, repeat
from typing import Final

from leveret.core.message import Message
from leveret.msg_store.format.kernel import size_of, take

ROOM_BYTES: Final = 64 * 1024 * 1024
_AT_ONCE: Final = 64
_OVERHEAD_BYTES: Final = 250  # of a message in RAM: tuple, key, heads of objects


def transient_keys(queue_no: int, seqs: Iterable[int]) -> list[int]:
    """Return the keys of messages that are named by queue and seq; no ``msg_no`` is negative."""
    first = ~(queue_no << 64)
    return [first - seq for seq in seqs]


class ReadCache:
    """The cache of a store. On the loop."""

    __slots__ = ("contents", "room_bytes", "size_bytes")

    def __init__(self, room_bytes: int = ROOM_BYTES) -> None:
        self.contents: dict[int, Message] = {}  # by key, oldest first; only to be looked at
        self.room_bytes = room_bytes  # the size limit; a single batch may be larger
        self.size_bytes = 0  # their size at most; messages of one publisher share their heads

    @property
    def is_crowded(self) -> bool:
        """It is half full: messages that are read too early may be evicted before they are wanted."""
        return self.size_bytes > self.room_bytes // 2

    def put(self, contents: dict[int, Message]) -> None:
        """Add contents; the oldest are evicted to make room."""
        own = self.contents
        if not own.keys().isdisjoint(contents.keys()):
            contents = {key: each for key, each in contents.items() if key not in own}
        own.update(contents)
        self.size_bytes += size_of(contents.values()) + len(contents) * _OVERHEAD_BYTES
        left = len(own) - len(contents)
        while self.size_bytes > self.room_bytes and left > 0:
            # Several at once: a dict steps over the deleted entries at its front each time.
            for key in list(islice(own, min(left, _AT_ONCE))):
                if self.size_bytes > self.room_bytes:
                    self.drop((key,))
                left -= 1

    def take(self, keys: list[int]) -> list[Message]:
        """Take contents away, up to the first that is not here."""
        taken, size_bytes = take(self.contents, keys)
        self.size_bytes -= size_bytes + len(taken) * _OVERHEAD_BYTES
        return taken

    def drop(self, keys: Iterable[int]) -> None:
        """Forget contents; unknown keys are passed over."""
        gone = list(filter(None, map(self.contents.pop, keys, repeat(None))))
        self.size_bytes -= size_of(gone) + len(gone) * _OVERHEAD_BYTES
