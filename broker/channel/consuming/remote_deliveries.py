"""Deliveries from queues of other nodes: the window of each such queue, and its places in the shared prefetch.

A queue of this node looks at the channel's gate and limiter itself. A queue elsewhere has stand-ins for them
(``broker/remote/remote_gate.py``), which this object serves:

* What a delivery took of the queue's window goes back when the delivery has been written, a part of the window at
  once, and not while the connection takes no more: then it is kept until the gate opens.
* A queue that asks for places of the shared prefetch gets all that are free, and they count as in flight from then on.
  It uses them at once or gives them back. If there are none it waits in the limiter as any other queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.remote.mail_between_nodes import DeliveryRoom, PrefetchGranted
from leveret.broker.remote.remote_gate import RETURN_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leveret.actors.runtime.ref import Ref
    from leveret.broker.channel.session import ChannelActor
    from leveret.broker.limiter import ChannelLimiter, DeliveryGate
    from leveret.broker.mail import DeliverFromNode


class RemoteDeliveries:
    """What a channel owes to queues of other nodes that deliver to it.

    Args:
        resume: has queues that wait in the limiter told when there is room.
    """

    __slots__ = ("_channel", "_gate", "_granted", "_is_waiting", "_limiter", "_resume", "_written")

    def __init__(
        self,
        channel: ChannelActor,
        gate: DeliveryGate,
        limiter: ChannelLimiter,
        resume: Callable[[], None],
    ) -> None:
        self._channel = channel
        self._gate = gate
        self._limiter = limiter
        self._resume = resume
        self._written: dict[Ref, int] = {}  # bytes that a queue does not have back yet
        self._granted: dict[Ref, int] = {}  # that a queue has not used yet
        self._is_waiting = False  # for the gate

    def delivered(self, delivery: DeliverFromNode) -> None:
        """Note that a delivery has been written."""
        queue, size_bytes = delivery.queue, delivery.waiting_bytes
        if self._limiter.limit and delivery.seqs is not None:
            self._use_granted(queue, len(delivery.seqs))
        written = self._written[queue] = self._written.get(queue, 0) + size_bytes
        if written < RETURN_BYTES:
            return
        if self._gate.is_open:
            self._give_back(queue)
        elif not self._is_waiting and not self._gate.is_closed:
            self._is_waiting = True
            self._gate.wait(self._channel.ref)

    def _use_granted(self, queue: Ref, count: int) -> None:
        """Count deliveries of consumers; some may have been under way when the limit began, without a place."""
        granted = self._granted.get(queue, 0)
        used = min(granted, count)
        if used:
            self._granted[queue] = granted - used
        self._limiter.in_flight += count - used

    def gate_opens(self) -> None:
        """The connection takes more: give back what was kept."""
        self._is_waiting = False
        for queue, written in list(self._written.items()):
            if written >= RETURN_BYTES:
                self._give_back(queue)

    def _give_back(self, queue: Ref) -> None:
        room = DeliveryRoom(self._channel.ref, self._written.pop(queue))
        self._channel.runtime.send(queue, room)

    def prefetch_wanted(self, queue: Ref) -> None:
        """A queue has messages; give it the places that are free, or let it wait."""
        limiter = self._limiter
        if not limiter.limit:
            self._grant(queue, 0)
            return
        room = limiter.room()
        if not room:
            limiter.wait(queue)
            return
        limiter.in_flight += room
        if queue not in self._granted:
            self._channel.watch(queue)
        self._granted[queue] = self._granted.get(queue, 0) + room
        self._grant(queue, room)

    def prefetch_unused(self, queue: Ref, count: int) -> None:
        """A queue gives places back."""
        granted = self._granted.get(queue, 0)
        unused = min(count, granted)
        if unused:
            self._granted[queue] = granted - unused
            self._free(unused)

    def limit_changed(self, queues: Iterable[Ref]) -> None:
        """Tell the queues of other nodes that deliver to the channel of another shared prefetch."""
        for queue in queues:
            self._grant(queue, 0)

    def queue_gone(self, queue: Ref) -> None:
        """Forget a queue; the places that it has not used are free."""
        self._written.pop(queue, None)
        granted = self._granted.pop(queue, 0)
        if granted:
            self._free(granted)

    def _free(self, granted: int) -> None:
        limiter = self._limiter
        limiter.in_flight = max(0, limiter.in_flight - granted)
        self._resume()

    def _grant(self, queue: Ref, count: int) -> None:
        granted = PrefetchGranted(self._channel.ref, count, self._limiter.limit)
        self._channel.runtime.send(queue, granted)
