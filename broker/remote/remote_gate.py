"""Delivery gate and limiter of a channel on another node, as queues of this node know them.

The objects of ``limiter.py`` are on the channel's node, so a queue on another node cannot read them. In their place
it has these, one of each per channel:

* ``RemoteGate``: a window in bytes. A delivery takes its bytes from it, and the channel gives them back when it has
  written the delivery and its connection takes more. So a client that reads slowly, and a slow link, hold the queue up
  with no more than ``WINDOW_BYTES`` under way.
* ``RemoteLimiter``: places of the prefetch that the channel's consumers share (basic.qos global=true). A queue that
  has messages for it asks for places, uses them in the turn in which they come, and gives back those that it could
  not use, so that an idle queue keeps none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.broker.limiter import ChannelLimiter, DeliveryGate

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.runtime.ref import Ref

WINDOW_BYTES: Final = 1024 * 1024
RETURN_BYTES: Final = WINDOW_BYTES // 4  # that a channel gives back at once


class RemoteGate(DeliveryGate):
    """The window of a channel on another node.

    Attributes:
        room_bytes: may be delivered still; the last delivery may be larger.
    """

    __slots__ = ("room_bytes",)

    def __init__(self) -> None:
        super().__init__()
        self.room_bytes = WINDOW_BYTES

    def wait(self, queue: Ref) -> None:
        """Do nothing: the channel sends the queue ``DeliveryRoom`` without being asked."""

    def wait_again(self, queue: Ref) -> None:
        """Do nothing, as ``wait``."""

    def delivery_waits(self, size_bytes: int) -> None:
        """Take a delivery's bytes from the window."""
        self.room_bytes -= size_bytes
        self.is_open = self.room_bytes > 0

    def give_back(self, size_bytes: int) -> None:
        """Give back the bytes of deliveries that have been written."""
        self.room_bytes = min(WINDOW_BYTES, self.room_bytes + size_bytes)
        self.is_open = self.room_bytes > 0


class RemoteLimiter(ChannelLimiter):
    """The places of a shared prefetch that a channel on another node has given to one queue.

    Attributes:
        limit: the channel's limit; 0 = none.
        granted: places that may be used now.
        ask: asks the channel for places.
    """

    __slots__ = ("_is_asking", "ask", "granted")

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.granted = 0
        self.ask: Callable[[], object] | None = None
        self._is_asking = False

    def room(self) -> int:
        return max(0, self.granted - self.in_flight) if self.limit else 1 << 30

    def wait(self, queue: Ref) -> None:
        if not self._is_asking and self.ask is not None:
            self._is_asking = True
            self.ask()

    def resumed(self) -> None:
        """The channel has places again: the queue may ask."""
        self._is_asking = False

    def give(self, count: int) -> None:
        """Take places from the channel."""
        self._is_asking = False
        self.granted = self.room() + count if self.limit else 0
        self.in_flight = 0

    def take_unused(self) -> int:
        """Return how many places were not used; they are the channel's again."""
        unused = self.room() if self.limit else 0
        self.granted = self.in_flight = 0
        return unused
