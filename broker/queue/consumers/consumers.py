"""Consumers: which of them gets the next message of a queue.

The rule is RabbitMQ's, message by message: take the first consumer of the highest priority that has
one; if it cannot take a message (its connection's gate is closed, its prefetch or its channel's is
used up) set it aside as *blocked* and take the next; otherwise it gets the message and goes to the
end of its priority's *ring*. Blocked consumers that can take messages again join the end, in the
order in which they were blocked.

Batches give the same result without a step per message. While all consumers in a ring of ``k`` have room,
``rounds`` full rounds leave the ring as it was and consumer ``i`` gets the messages ``i``, ``i + k``,
``i + 2k``...: a slice. Only the passes in which a consumer becomes full are walked step by step, so the
work is one slice per consumer and pass, and a single message costs one step.

``room_for`` tells how many messages will be taken, so that no more than that is fetched; ``deal``
gives out exactly so many.

With a *single active consumer* only that one is in a ring or blocked; the others wait (``waiting_consumers.py``).
It is the first that came. When it leaves, the waiting one of the highest priority takes over, the oldest of those;
a higher priority alone does not displace it. As ``rabbit_amqqueue_process`` does for a classic queue.
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leveret.broker.queue.consumers.allotments import Allotment, allot
from leveret.broker.queue.consumers.capacity import Capacity
from leveret.broker.queue.consumers.consumer import ChannelRecord, Consumer
from leveret.broker.queue.consumers.waiting_consumers import WaitingConsumers

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.broker.limiter import ChannelLimiter
    from leveret.broker.queue_requests import Consume
    from leveret.broker.registry.queue_settings import QueueSettings

_ONE_BY_ONE_MAX: Final = 2  # with so many consumers in the rings they leave singly
_level_of: Final[Callable[[Any], int]] = itemgetter(0)


_Level: TypeAlias = "tuple[int, deque[Consumer]]"  # -priority, ring


class Consumers:
    """The consumers of one queue.

    Attributes:
        channels: by reference.
        count: consumers, blocked ones included.
        active: consumers in a ring, that is, not known to be blocked.
        no_ack_count: consumers that do not acknowledge.
        exclusive: the only consumer, if it is exclusive.
        single_active: the active consumer of a queue that has but one; always None in others.
        capacity: how much of the time they could take messages at once.
    """

    __slots__ = ("_by_priority", "_gone", "_only", "_queue", "_rings", "_waiting", "active", "capacity", "channels",
        "count", "exclusive", "no_ack_count", "single_active")  # fmt: skip

    def __init__(
        self,
        queue: Ref,
        has_single_active: bool = False,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        # First what each message needs: compiled, fields lie in memory in this order.
        self.active = 0
        self._only: Consumer | None = None  # in a ring; None: not looked for, or there are others
        self._queue = queue
        self.capacity = Capacity(now_s)
        self._waiting = WaitingConsumers() if has_single_active else None
        self.single_active: Consumer | None = None
        self._rings: list[_Level] = []  # sorted
        self._by_priority: dict[int, deque[Consumer]] = {}  # the same
        self._gone: set[Consumer] | None = None  # of ended channels, still in their rings
        self.channels: dict[Ref, ChannelRecord] = {}
        self.count = 0
        self.no_ack_count = 0
        self.exclusive: Consumer | None = None

    # Coming and going.

    def channel(self, channel: Ref) -> ChannelRecord:
        record = self.channels.get(channel)
        if record is None:
            record = self.channels[channel] = ChannelRecord()
        return record

    def has(self, channel: Ref, tag: bytes) -> bool:
        record = self.channels.get(channel)
        return record is not None and tag in record.consumers

    def add(self, spec: Consume) -> Consumer:
        """Add a consumer at the end of its ring, or to those that wait.

        The consumers of a channel share its gate and limiter, also where it is on another node.
        """
        consumers = self.channel(spec.channel).consumers
        assert spec.tag not in consumers, "a channel uses each tag once"
        for other in consumers.values():
            spec.gate, spec.limiter = other.gate, other.limiter
            break
        consumer = Consumer(spec)
        consumers[spec.tag] = consumer
        self.count += 1
        self.no_ack_count += spec.no_ack
        if spec.exclusive:
            self.exclusive = consumer
        if self._waiting is None:
            self._join(consumer)
        else:
            self._waiting.add(consumer)
            self._activate_next(self._waiting)
        return consumer

    def _activate_next(self, waiting: WaitingConsumers) -> None:
        """Let the first that waits be active unless another is."""
        if self.single_active is None:
            self.single_active = waiting.take_first()
            if self.single_active is not None:
                self._join(self.single_active)

    def remove(self, channel: Ref, tag: bytes) -> bool:
        """Cancel a consumer; its unacked messages stay with the channel. Return whether it was there."""
        record = self.channels.get(channel)
        consumer = record.consumers.pop(tag, None) if record is not None else None
        if record is None or consumer is None:
            return False
        if consumer.unacked:
            record.owe(consumer.unacked)
        if consumer.blocked:
            del self._blocked_beside(consumer)[consumer]
        self._leave(consumer)
        if self._waiting is not None:
            self._activate_next(self._waiting)
        return True

    def remove_channel(self, channel: Ref) -> tuple[int, list[set[int]]]:
        """Forget a channel; return how many consumers went, and its unacked seqs."""
        record = self.channels.pop(channel, None)
        if record is None:
            return 0, []
        if self.active <= _ONE_BY_ONE_MAX:
            for consumer in record.consumers.values():
                self._leave(consumer)
        else:  # often other channels end as well
            gone = self._gone = self._gone or set()
            for consumer in record.consumers.values():
                self._count_out(consumer)
                if not consumer.blocked:
                    gone.add(consumer)
            if len(gone) > self.active:
                self._drop_gone()
        if self._waiting is not None:
            self._activate_next(self._waiting)
        return len(record.consumers), record.unacked()

    def unacked(self) -> Iterator[set[int]]:
        """Yield the seqs that channels owe; the sets are the records' own."""
        for record in self.channels.values():
            yield from record.unacked()

    def _leave(self, consumer: Consumer) -> None:
        if self._waiting is not None and self._waiting.discard(consumer):
            self.count -= 1
            self.no_ack_count -= consumer.no_ack
            return
        self._count_out(consumer)
        priority = consumer.spec.priority
        ring = self._by_priority.get(priority)
        if ring and not consumer.blocked:
            ring.remove(consumer)
        if ring is not None and not ring:
            del self._by_priority[priority]
            del self._rings[bisect_left(self._rings, -priority, key=_level_of)]

    def _drop_gone(self) -> None:
        """Take the consumers of ended channels out of their rings, with one walk over each."""
        gone, self._gone = self._gone or set(), None
        for priority in {each.spec.priority for each in gone}:
            ring = self._by_priority[priority]
            others = [each for each in ring if each not in gone]
            ring.clear()
            ring.extend(others)
            if not ring:
                del self._by_priority[priority]
        self._rings = [level for level in self._rings if -level[0] in self._by_priority]

    def _count_out(self, consumer: Consumer) -> None:
        self.count -= 1
        self.no_ack_count -= consumer.no_ack
        self.active -= not consumer.blocked
        self._only = None
        if consumer is self.exclusive:
            self.exclusive = None
        if consumer is self.single_active:
            self.single_active = None

    def _join(self, consumer: Consumer) -> None:
        consumer.blocked = False
        priority = consumer.spec.priority
        ring = self._by_priority.get(priority)
        if ring is None:
            ring = self._by_priority[priority] = deque()
            insort(self._rings, (-priority, ring), key=_level_of)
        ring.append(consumer)
        self.active += 1
        self._only = None
        if self.capacity.is_busy:
            self.capacity.ready()

    # Blocking.

    def _blocked_beside(self, consumer: Consumer) -> dict[Consumer, None]:
        blocked = self.channels[consumer.channel].blocked
        assert blocked is not None
        return blocked

    def _block(self, consumer: Consumer) -> None:
        """Block a consumer that has left its ring."""
        consumer.blocked = True
        self.active -= 1
        self._only = None
        record = self.channels[consumer.channel]
        if record.blocked is None:
            record.blocked = {}
        record.blocked[consumer] = None
        self._ask_to_resume(consumer)

    def _ask_to_resume(self, consumer: Consumer) -> None:
        limiter = consumer.limiter
        if not consumer.gate.is_open:
            consumer.gate.wait(self._queue)
        elif limiter.limit and not limiter.room():
            limiter.wait(self._queue)
            self.channels[consumer.channel].waits_for_resume = True

    def block_all(self) -> None:
        """Block all consumers: there is a message, and none of them has room."""
        if self._gone:
            self._drop_gone()
        asked: Ref | None = None
        blocked: dict[Consumer, None] = {}
        for _, ring in self._rings:
            for consumer in ring:
                channel = consumer.channel
                if channel is not asked:  # neighbours often share gate and limiter
                    asked = channel
                    record = self.channels[channel]
                    if record.blocked is None:
                        record.blocked = {}
                    blocked = record.blocked
                    self._ask_to_resume(consumer)
                consumer.blocked = True
                blocked[consumer] = None
            self.active -= len(ring)
            ring.clear()
        self._only = None
        self.capacity.busy()

    def unblock(self, consumer: Consumer) -> bool:
        """Let a blocked consumer join its ring if it has room; return whether it did."""
        if not consumer.blocked:
            return False
        if consumer.room():
            del self._blocked_beside(consumer)[consumer]
            self._join(consumer)
            return True
        self._ask_to_resume(consumer)
        return False

    def resume(self, channel: Ref) -> bool:
        """Unblock the consumers of a channel that have room; return whether any joined its ring."""
        record = self.channels.get(channel)
        if record is None:
            return False
        record.waits_for_resume = False
        if not record.blocked:
            return False
        first = next(iter(record.blocked))
        first.limiter.resumed()
        gate = first.gate
        if not gate.is_open:
            gate.wait_again(self._queue)
            return False
        return sum(self.unblock(consumer) for consumer in list(record.blocked)) > 0

    def settle(self, channel: Ref, tag: bytes | None, seqs: list[int]) -> bool:
        """Forget messages that a channel acked, rejected or requeued; return whether that unblocked a consumer."""
        record = self.channels.get(channel)
        if record is None:
            return False
        consumer = record.consumers.get(tag) if tag is not None else None
        settled = consumer.settle(seqs) if consumer is not None else 0
        if settled < len(seqs) and record.unacked_without_consumer:
            record.unacked_without_consumer.difference_update(seqs)
        if consumer is None or record.waits_for_resume:
            return False
        return self.unblock(consumer)

    # Dealing.

    def room_for(self, wanted: int) -> int:
        """Return how many of ``wanted`` messages the consumers will take, at most all."""
        if self._gone:
            self._drop_gone()
        if self.active == 1:
            return min(wanted, self.only().room())
        room = 0
        limited: dict[ChannelLimiter, int] = {}
        for _, ring in self._rings:
            for consumer in ring:
                if 0 < consumer.prefetch <= consumer.in_flight or not consumer.gate.is_open:
                    continue  # spares 100,000 of them the rest
                own = consumer.room()
                limiter = consumer.limiter
                if limiter.limit:
                    if consumer.no_ack:
                        return self._room_in_steps(wanted)
                    left = limited.get(limiter, limiter.room())
                    own = min(own, left)
                    limited[limiter] = left - own
                room += own
                if room >= wanted:
                    return wanted
        return room

    def _room_in_steps(self, wanted: int) -> int:
        """As ``room_for``, where no-ack consumers take messages only while others leave their limiter room."""
        own: dict[Consumer, int] = {}
        shared: dict[ChannelLimiter, int] = {}
        taken = 0
        for _, ring in self._rings:
            line = deque(ring)
            while line and taken < wanted:
                consumer = line.popleft()
                limiter = consumer.limiter
                room = own.setdefault(consumer, consumer.room())
                left = shared.setdefault(limiter, limiter.room())
                if room and left:
                    taken += 1
                    line.append(consumer)
                    if not consumer.no_ack:
                        own[consumer] = room - 1
                        shared[limiter] = left - 1
        return taken

    def deal(self, count: int) -> list[Allotment]:
        """Allot the messages 0 to ``count`` - 1; ``room_for`` has said that there is room."""
        if self._gone:
            self._drop_gone()
        allotments: dict[Consumer, Allotment] = {}
        if self.active == 1:
            allot(allotments, self.only(), range(count))
            return list(allotments.values())
        position = 0
        for _, ring in self._rings:
            while position < count and ring:
                position = self._deal_ring(ring, position, count, allotments)
            if position == count:
                break
        assert position == count, "more dealt than there was room for"
        return list(allotments.values())

    def only(self) -> Consumer:
        """Return the one consumer that is in a ring."""
        only = self._only
        if only is None:
            if self._gone:
                self._drop_gone()
            (only,) = [ring[0] for _, ring in self._rings if ring]
            self._only = only
        return only

    def _deal_ring(
        self,
        ring: deque[Consumer],
        position: int,
        count: int,
        allotments: dict[Consumer, Allotment],
    ) -> int:
        """Deal full rounds as slices; then go round once, step by step, and block full consumers."""
        size = len(ring)
        rounds = _full_rounds(ring, (count - position) // size)
        if rounds:
            end = position + rounds * size
            for consumer in ring:
                allot(allotments, consumer, range(position, end, size))
                position += 1
            position = end
        for _ in range(size):
            if position == count:
                break
            consumer = ring.popleft()
            if consumer.room():
                allot(allotments, consumer, range(position, position + 1))
                ring.append(consumer)
                position += 1
            else:
                self._block(consumer)
        return position


def refuses(consumers: Consumers | None, spec: Consume, settings: QueueSettings) -> bool:
    """Whether a consumer cannot be added beside the others, since one of them is exclusive, or it wants to be.

    A queue with a single active consumer takes no exclusive one at all, and a quorum queue ignores the flag,
    as in RabbitMQ.
    """
    if settings.is_quorum:
        return False
    if spec.exclusive and settings.single_active_consumer:
        return True
    if consumers is None or not consumers.count:
        return False
    return spec.exclusive or consumers.exclusive is not None


def _full_rounds(ring: deque[Consumer], rounds: int) -> int:
    """Return how many rounds, at most ``rounds``, all consumers in the ring can take part in."""
    if not rounds:
        return 0
    sharing: dict[ChannelLimiter, int] = {}
    unlimited: set[ChannelLimiter] = set()  # of no-ack consumers, which take while there is room
    for consumer in ring:
        rounds = min(rounds, consumer.room())
        if not rounds:
            return 0
        limiter = consumer.limiter
        if limiter.limit and consumer.no_ack:
            unlimited.add(limiter)
        elif limiter.limit:
            sharing[limiter] = sharing.get(limiter, 0) + 1
    for limiter, members in sharing.items():
        rounds = min(rounds, (limiter.room() - (limiter in unlimited)) // members)
    return rounds
