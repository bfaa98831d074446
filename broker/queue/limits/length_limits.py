"""Length limits: how many ready messages a queue may hold, and what happens to those above.

``x-max-length`` counts ready messages, ``x-max-length-bytes`` their bodies; unacked messages do not count. With
``x-overflow`` *drop-head*, the default, a new message is taken in, and messages at the head are dropped or
dead-lettered until the queue is within its limits again: of a queue with priorities those of the highest. With
*reject-publish* and *reject-publish-dlx* a message that would pass a limit is refused instead. That is decided for one
message after the other: a small one may fit behind a large one that does not. As in RabbitMQ a limit of 0 refuses all,
also when a consumer waits, while drop-head lets consumers that wait have them.

Sans-IO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.core.entry import SIZE
from leveret.core.limits import TURN_MESSAGES
from leveret.core.message import BODY

if TYPE_CHECKING:
    from leveret.core.entry import Entry
    from leveret.core.message import Message
    from leveret.queue_backing.proxy import BackingProxy

_UNLIMITED: Final = 1 << 62


class LengthLimits:
    """The limits of one queue.

    Attributes:
        length: in ready messages.
        size_bytes: in bytes of their bodies.
        has_bytes: they are limited.
        refuses: messages that would pass a limit are refused.
        dead_letters_refused: and dead-lettered.
    """

    __slots__ = ("dead_letters_refused", "has_bytes", "length", "refuses", "size_bytes")

    def __init__(self, length: int | None, size_bytes: int | None, overflow: str | None) -> None:
        self.length = _UNLIMITED if length is None else length
        self.size_bytes = _UNLIMITED if size_bytes is None else size_bytes
        self.has_bytes = size_bytes is not None
        self.dead_letters_refused = overflow == "reject-publish-dlx"
        self.refuses = self.dead_letters_refused or overflow == "reject-publish"

    def excess(self, ready: int, backing: BackingProxy) -> tuple[int, int]:
        """Return how many messages and bytes are above the limits, none or fewer if not positive."""
        bytes_above = backing.len_bytes() - self.size_bytes if self.has_bytes else 0
        return ready - self.length, bytes_above

    def drop(self, excess: tuple[int, int], backing: BackingProxy) -> None:
        """Drop a turn's worth of messages that are too many from the head."""
        count, size_bytes = excess
        if size_bytes > 0:
            backing.dropwhile(Excess(count, size_bytes), TURN_MESSAGES)
            return
        left = min(count, TURN_MESSAGES)
        while left and (dropped := len(backing.drop(left, False))):
            left -= dropped

    def leading(
        self, messages: list[Message], ready: int, ready_bytes: int, start: int = 0
    ) -> tuple[bool, int]:
        """Look at the messages of a run, from ``start`` on, that comes to a queue with this much in it.

        Returns:
            Whether the first fits, and how many do, or do not, one after the other; those that fit add up.
        """
        fits = False
        for position in range(start, len(messages)):
            size = len(messages[position][BODY])
            if ready < self.length and ready_bytes + size <= self.size_bytes:
                if not fits and position > start:
                    return False, position - start
                fits = True
                ready += 1
                ready_bytes += size
            elif fits:
                return True, position - start
            elif ready >= self.length:
                break
        return fits, len(messages) - start


class Excess:
    """A predicate on entries from the head: they are among those too many.

    It counts what it was asked of, so it is good for one operation of a backing queue, which asks it of each entry
    once and in order.
    """

    __slots__ = ("_count", "_size_bytes")

    def __init__(self, count: int, size_bytes: int) -> None:
        self._count = count
        self._size_bytes = size_bytes

    def __call__(self, entry: Entry) -> bool:
        if self._count <= 0 and self._size_bytes <= 0:
            return False
        self._count -= 1
        self._size_bytes -= entry[SIZE]
        return True
