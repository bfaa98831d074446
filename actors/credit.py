"""Credit flow between a sender and a receiver, in messages and in bytes.

Both ends are plain objects; their actors carry the grants as mail. A sender starts with the first
number of each pair ``(initial, more_after)`` and spends it; the receiver grants ``more_after``
whenever so much was taken in. A sender may go below zero (a batch is not cut); it is *blocked*
until both figures are above zero again, and then stops its own source, usually a socket, so nothing
ever waits inside ``send``. When the receiver dies its sender forgets it and goes on.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from leveret.core.limits import CREDIT_BYTES, CREDIT_MESSAGES

_NOTHING: Final = 0


class Grant(NamedTuple):
    """So much more may be sent."""

    messages: int
    size_bytes: int


class CreditSender:
    """One sender's credit with all its receivers.

    Args:
        messages: ``(initial, more_after)`` in messages.
        size_bytes: the same in bytes.
    """

    __slots__ = ("_blocked", "_initial", "_left")

    def __init__(
        self,
        messages: tuple[int, int] = CREDIT_MESSAGES,
        size_bytes: tuple[int, int] = CREDIT_BYTES,
    ) -> None:
        self._initial = (messages[0], size_bytes[0])
        self._left: dict[object, tuple[int, int]] = {}
        self._blocked: set[object] = set()

    @property
    def is_blocked(self) -> bool:
        """Whether any receiver has no credit left for us."""
        return bool(self._blocked)

    def spend(self, receiver: object, messages: int, size_bytes: int) -> bool:
        """Take note of what was sent to ``receiver``; return whether the sender is blocked now."""
        left_messages, left_bytes = self._left.get(receiver, self._initial)
        left_messages -= messages
        left_bytes -= size_bytes
        self._left[receiver] = (left_messages, left_bytes)
        if left_messages <= 0 or left_bytes <= 0:
            self._blocked.add(receiver)
        return bool(self._blocked)

    def grant(self, receiver: object, messages: int, size_bytes: int) -> bool:
        """Take a grant; return whether the sender was blocked and is free now."""
        left = self._left.get(receiver)
        if left is None:
            return False
        left = (left[0] + messages, left[1] + size_bytes)
        if left == self._initial:
            del self._left[receiver]
        else:
            self._left[receiver] = left
        return left[0] > 0 and left[1] > 0 and self._unblock(receiver)

    def gone(self, receiver: object) -> bool:
        """Forget a dead receiver; return whether the sender was blocked and is free now."""
        self._left.pop(receiver, None)
        return self._unblock(receiver)

    def _unblock(self, receiver: object) -> bool:
        if receiver not in self._blocked:
            return False
        self._blocked.discard(receiver)
        return not self._blocked


class CreditReceiver:
    """What one receiver owes one sender.

    Args:
        messages: ``(initial, more_after)`` in messages, the same as the sender's.
        size_bytes: the same in bytes.
    """

    __slots__ = ("_bytes", "_messages", "_more_after")

    def __init__(
        self,
        messages: tuple[int, int] = CREDIT_MESSAGES,
        size_bytes: tuple[int, int] = CREDIT_BYTES,
    ) -> None:
        self._more_after = (messages[1], size_bytes[1])
        self._messages = self._bytes = _NOTHING

    def received(self, messages: int, size_bytes: int) -> Grant | None:
        """Take note of what was taken in; return the grant to send, if one is due."""
        self._messages += messages
        self._bytes += size_bytes
        if self._messages < self._more_after[0] and self._bytes < self._more_after[1]:
            return None
        grant = Grant(self._messages, self._bytes)
        self._messages = self._bytes = _NOTHING
        return grant
