"""The delivery gate of a connection and the limiter of a channel: may a queue deliver more?

Both are plain objects on the one event loop, owned by the channel and read by the queues that feed
it, the way RabbitMQ's queues ask ``rabbit_limiter:can_send`` and count unsent messages in a writer.
Asking them costs no mail; only a queue that was refused hears from the channel again, by ``Resume``.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref


class GateQueue(Protocol):
    """Where the gates of a connection wait (``connection/reading/resume_queue.py``)."""

    def join(self, gate: DeliveryGate) -> None:
        """A gate has its first queue that waits."""

    def rejoin(self, gate: DeliveryGate, queue: Ref) -> None:
        """A queue was resumed, but the gate was closed again before its turn."""

    def deliveries_wait(self, size_bytes: int) -> None:
        """A delivery waits in the mailbox of its channel."""

    def deliveries_written(self, size_bytes: int) -> None:
        """Deliveries that waited have been written, or have ended with their channel."""


class DeliveryGate:
    """Whether the connection takes more, and which queues wait until it does.

    Attributes:
        is_open: False while the transport's buffer is above its high-water mark, too many bytes wait
            in the mailboxes of the connection's channels, or the channel is closing.
        channel: that it belongs to; None until it has started.
        is_closed: the channel is closing; it does not open any more.
        waiting: queues to send ``Resume`` to when it opens, the first come first: one, or an ordered dict of several.
            Channels that publish replies to this one wait among them.
        waiting_bytes: of deliveries and replies in the channel's mailbox.
    """

    __slots__ = ("_gates", "channel", "is_closed", "is_open", "waiting", "waiting_bytes")

    def __init__(self, gates: GateQueue | None = None) -> None:
        self._gates = gates
        self.channel: Ref | None = None
        self.is_open = True
        self.is_closed = False
        self.waiting: Ref | OrderedDict[Ref, None] | None = None
        self.waiting_bytes = 0

    def close(self) -> None:
        """Let queues deliver nothing more: a channel that is closing returns each delivery to its queue."""
        self.is_open, self.is_closed = False, True

    def wait(self, queue: Ref) -> None:
        waiting = self.waiting
        if waiting is None:
            self.waiting = queue
            if self._gates is not None:
                self._gates.join(self)
        elif waiting is not queue:
            if not isinstance(waiting, OrderedDict):
                self.waiting = waiting = OrderedDict.fromkeys((waiting,))
            waiting[queue] = None

    def wait_again(self, queue: Ref) -> None:
        """Keep the place of a queue that was resumed for nothing."""
        if self._gates is None:
            self.wait(queue)
        else:
            self._gates.rejoin(self, queue)

    def forget_waiting(self) -> bool:
        """Forget the queues that wait; return whether there were some."""
        had_some = self.waiting is not None
        self.waiting = None
        return had_some

    def delivery_waits(self, size_bytes: int) -> None:
        """A delivery waits in the mailbox of the channel."""
        if self._gates is not None:
            self.waiting_bytes += size_bytes
            self._gates.deliveries_wait(size_bytes)

    def delivery_written(self, size_bytes: int) -> None:
        """The channel has written a delivery that waited."""
        if self._gates is not None:
            self.waiting_bytes -= size_bytes
            self._gates.deliveries_written(size_bytes)

    def channel_ended(self) -> None:
        """Deliveries that waited have ended with the channel."""
        gates, self._gates = self._gates, None
        if gates is not None and self.waiting_bytes:
            gates.deliveries_written(self.waiting_bytes)

    def take_one(self) -> Ref | None:
        """Return the queue that has waited longest, and forget it."""
        waiting = self.waiting
        if not isinstance(waiting, OrderedDict):
            self.waiting = None
            return waiting
        queue, _ = waiting.popitem(last=False)
        if not waiting:
            self.waiting = None
        return queue


class ChannelLimiter:
    """The prefetch shared by all consumers of a channel (basic.qos global=true).

    Consumers without acknowledgements do not count, but wait as well while there is no room.

    Attributes:
        limit: 0 = none.
        in_flight: unacked deliveries of all consumers that count (not basic.get, not no-ack).
            The queue adds when it delivers; the channel takes away when it settles.
        waiting: queues that were refused; the channel sends them ``Resume`` when there is room.
    """

    __slots__ = ("_turn", "in_flight", "limit", "waiting")

    def __init__(self) -> None:
        self.limit = 0
        self.in_flight = 0
        self.waiting: set[Ref] | None = None
        self._turn = 0

    def room(self) -> int:
        """Return how many more may be delivered; a large number when there is no limit."""
        return max(0, self.limit - self.in_flight) if self.limit else 1 << 30

    def wait(self, queue: Ref) -> None:
        if self.waiting is None:
            self.waiting = set()
        self.waiting.add(queue)

    def resumed(self) -> None:
        """A queue that waited has been sent ``Resume``. Here ``take_waiting`` has forgotten it already."""

    def take_waiting(self, count_max: int) -> list[Ref]:
        """Return the queues to resume and forget them.

        The first of them may take all the room, so they take turns in being the first.
        """
        queues, self.waiting = list(self.waiting or ()), None
        if len(queues) < 2:
            return queues
        queues.sort(key=id)  # the same order every time, whichever it is
        self._turn = (self._turn + 1) % len(queues)
        queues = queues[self._turn :] + queues[: self._turn]
        if len(queues) > count_max:
            self.waiting = set(queues[count_max:])
        return queues[:count_max]
