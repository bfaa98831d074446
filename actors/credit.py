"""Credit flow between a sender and a receiver, in messages and in bytes.

Both ends are plain objects; their actors carry the grants as mail. A sender starts with the first
number of each pair ``(initial, more_after)`` and spends it; the receiver grants ``more_after``
whenever so much was taken in. A sender may go below zero (a batch is not cut); it is *blocked*
until both figures are above zero again, and then stops its own source, usually a socket, so nothing
ever waits inside ``send``. When the receiver dies its sender forgets it and goes on.

An idle account costs both ends memory. The receiver may close it at any time: it grants the messages and
bytes that it has counted, and drops its half; the next message opens a new account. A sender whose credit is
whole again has nothing in flight, and may drop its half as well.
"""

from __future__ import annotations

from typing import NamedTuple

from leveret.core.limits import CREDIT_BYTES, CREDIT_MESSAGES


class Grant(NamedTuple):
    """So much more may be sent."""

    messages: int
    size_bytes: int


class CreditSender:
    """One sender's credit with one receiver.

    Args:
        messages: ``(initial, more_after)`` in messages.
        size_bytes: the same in bytes.

    Attributes:
        is_blocked: nothing is left; the source must wait for a grant, or for the receiver's end.

    The account begins at 0, a send adds to it, and a grant subtracts. So its numbers are mostly small, and the
    interpreter has one object for each small integer.
    """

    __slots__ = ("_bytes", "_bytes_initial", "_messages", "_messages_initial", "is_blocked")

    def __init__(
        self,
        messages: tuple[int, int] = CREDIT_MESSAGES,
        size_bytes: tuple[int, int] = CREDIT_BYTES,
    ) -> None:
        self._messages_initial = messages[0]
        self._bytes_initial = size_bytes[0]
        self._messages = self._bytes = 0
        self.is_blocked = False

    def spend(self, messages: int, size_bytes: int) -> bool:
        """Spend credit; return whether that has blocked the sender."""
        self._messages += messages
        self._bytes += size_bytes
        if (
            self._messages < self._messages_initial and self._bytes < self._bytes_initial
        ) or self.is_blocked:
            return False
        self.is_blocked = True
        return True

    def grant(self, messages: int, size_bytes: int) -> bool:
        """Take a grant; return whether the sender was blocked and is free now."""
        self._messages -= messages
        self._bytes -= size_bytes
        if not self.is_blocked:
            return False
        if self._messages >= self._messages_initial or self._bytes >= self._bytes_initial:
            return False
        self.is_blocked = False
        return True

    @property
    def is_whole(self) -> bool:
        """Whether all that was spent has been granted."""
        return not self._messages and not self._bytes


class CreditReceiver:
    """One receiver's side of the credit of one sender, with the same figures."""

    __slots__ = ("_bytes", "_bytes_more_after", "_messages", "_messages_more_after", "_seen")

    def __init__(
        self,
        messages: tuple[int, int] = CREDIT_MESSAGES,
        size_bytes: tuple[int, int] = CREDIT_BYTES,
    ) -> None:
        self._messages_more_after = messages[1]
        self._bytes_more_after = size_bytes[1]
        self._messages = self._bytes = 0
        self._seen = -1

    def received(self, messages: int, size_bytes: int) -> Grant | None:
        """Count messages taken in; return the grant to send, if one is due."""
        self._messages += messages
        self._bytes += size_bytes
        if self._messages < self._messages_more_after and self._bytes < self._bytes_more_after:
            return None
        return self.grant_rest()

    def grant_rest(self) -> Grant:
        """Return a grant of all that was counted since the last one."""
        grant = Grant(self._messages, self._bytes)
        self._messages = self._bytes = 0
        return grant

    def was_idle(self) -> bool:
        """Return whether nothing was counted since the last call.

        A grant can bring the count back to the figure of the last call; then the account closes early, which does no
        harm.

        It compares counts, so that ``received`` need not note anything.
        """
        seen, self._seen = self._seen, self._messages
        return seen == self._messages
