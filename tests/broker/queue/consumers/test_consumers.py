"""Consumers: dealing batches gives what dealing message by message gives.

Tests: broker/limiter.py, broker/queue/consumers/allotments.py
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.actors.runtime.ref import Ref
from leveret.broker.limiter import ChannelLimiter, DeliveryGate
from leveret.broker.queue.consumers.allotments import in_order
from leveret.broker.queue.consumers.consumers import Consumers
from rigs.refs import named
from rigs.wire.consumers import QUEUE, consume


def dealt(consumers: Consumers, wanted: int) -> str:
    """Deal as many messages as there is room for; return who got each, as one letter."""
    room = consumers.room_for(wanted)
    owners = [""] * room
    for share in consumers.deal(room):
        for position in share.of(list(range(room))):
            owners[position] = share.consumer.spec.tag.decode()
    if room < wanted:
        consumers.block_all()
    return "".join(owners)


@pytest.mark.parametrize(
    ("shape", "wanted", "expected"),
    [
        ({"a": 0, "b": 0, "c": 0}, 7, "abcabca"),
        ({"a": 1, "b": 3, "c": 2}, 9, "abcbcb"),
        ({"a": 2}, 5, "aa"),
        ({"a": 2, "b": 0}, 6, "ababbb"),
        ({"a": 0, "b": 0}, 1, "a"),
    ],
)
def test_consumers_take_turns(shape: dict[str, int], wanted: int, expected: str) -> None:
    consumers = Consumers(QUEUE)
    for tag, prefetch in shape.items():
        consumers.add(consume(named(tag), tag.encode(), prefetch=prefetch))

    assert dealt(consumers, wanted) == expected


def test_the_next_batch_goes_on_with_the_next_consumer() -> None:
    consumers = Consumers(QUEUE)
    for tag in (b"a", b"b", b"c"):
        consumers.add(consume(named("ch"), tag))

    assert [dealt(consumers, 2) for _ in range(4)] == ["ab", "ca", "bc", "ab"]


def test_lower_priorities_get_what_the_higher_cannot_take() -> None:
    consumers = Consumers(QUEUE)
    consumers.add(consume(named("low"), b"l"))
    consumers.add(consume(named("high"), b"h", priority=10, prefetch=2))

    assert dealt(consumers, 4) == "hhll"

    consumers.settle(named("high"), b"h", [])
    assert dealt(consumers, 1) == "l", "nothing was settled, so it stays blocked"


def test_the_limit_of_a_channel_is_shared_by_its_consumers() -> None:
    consumers = Consumers(QUEUE)
    limiter = ChannelLimiter()
    limiter.limit = 3
    consumers.add(consume(named("ch"), b"a", limiter=limiter))
    consumers.add(consume(named("ch"), b"b", limiter=limiter))

    assert dealt(consumers, 10) == "aba"
    assert limiter.in_flight == 3
    assert limiter.take_waiting(10) == [QUEUE]

    limiter.in_flight -= 2
    assert consumers.resume(named("ch"))
    assert dealt(consumers, 10) == "ba", "the ring went on behind the one who got the last"


def test_full_rounds_end_when_a_shared_limit_is_used_up() -> None:
    consumers = Consumers(QUEUE)
    limiter = ChannelLimiter()
    limiter.limit = 3
    consumers.add(consume(named("x"), b"a", limiter=limiter))
    consumers.add(consume(named("x"), b"b", limiter=limiter))
    consumers.add(consume(named("y"), b"c"))

    assert dealt(consumers, 9) == "abcaccccc"
    assert limiter.in_flight == 3


def test_room_in_the_channels_limit_goes_to_its_consumers_in_order() -> None:
    consumers = Consumers(QUEUE)
    limiter = ChannelLimiter()
    limiter.limit = 2
    first = consumers.add(consume(named("ch"), b"a", limiter=limiter))
    assert dealt(consumers, 4) == "aa"
    first.owe([0, 1])
    consumers.add(consume(named("ch"), b"b", limiter=limiter))
    assert dealt(consumers, 2) == ""

    limiter.in_flight -= 2
    assert not consumers.settle(named("ch"), b"a", [0, 1]), "the channel says which queue is next"
    assert consumers.resume(named("ch"))

    assert dealt(consumers, 2) == "ab"


def test_a_channel_gets_the_messages_of_its_consumers_in_the_queues_order() -> None:
    consumers = Consumers(QUEUE)
    x, y = CHANNELS
    for channel, tag in ((x, b"a"), (y, b"b"), (x, b"c")):
        consumers.add(consume(channel, tag))
    batch = list(range(7))

    sent: dict[Ref, list[tuple[str, int]]] = {x: [], y: []}
    for share in in_order(consumers.deal(7)):
        spec = share.consumer.spec
        sent[spec.channel] += [(spec.tag.decode(), place) for place in share.of(batch)]

    assert sent == {
        x: [("a", 0), ("c", 2), ("a", 3), ("c", 5), ("a", 6)],
        y: [("b", 1), ("b", 4)],
    }


def test_a_consumer_that_is_alone_for_a_while_gets_a_stretch() -> None:
    consumers = Consumers(QUEUE)
    consumers.add(consume(named("ch"), b"h", priority=1, prefetch=3))
    consumers.add(consume(named("ch"), b"l"))

    shares = in_order(consumers.deal(8))

    assert [(share.consumer.spec.tag, share.picks) for share in shares] == [
        (b"h", [range(3)]),
        (b"l", [range(3, 8)]),
    ]


def test_no_ack_counts_for_neither_limit() -> None:
    consumers = Consumers(QUEUE)
    limiter = ChannelLimiter()
    limiter.limit = 1
    consumers.add(consume(named("ch"), b"a", no_ack=True, prefetch=1, limiter=limiter))

    assert dealt(consumers, 5) == "aaaaa"
    assert limiter.in_flight == 0


def test_no_ack_waits_while_its_channel_has_no_room() -> None:
    consumers = Consumers(QUEUE)
    limiter = ChannelLimiter()
    limiter.limit = 2
    consumers.add(consume(named("ch"), b"n", no_ack=True, limiter=limiter))
    consumers.add(consume(named("ch"), b"a", limiter=limiter))

    assert dealt(consumers, 9) == "nana"
    assert limiter.take_waiting(10) == [QUEUE]

    limiter.in_flight -= 1
    assert consumers.resume(named("ch"))
    assert dealt(consumers, 9) == "na"


def test_queues_that_wait_for_a_channel_take_turns_in_being_first() -> None:
    limiter = ChannelLimiter()
    limiter.limit = 1
    queues = [named("a"), named("b"), named("c")]
    first = []
    for _ in range(6):
        for queue in queues:
            limiter.wait(queue)
        taken = limiter.take_waiting(1_000)
        assert sorted(taken, key=queues.index) == queues
        first.append(taken[0])

    assert Counter(first) == dict.fromkeys(queues, 2)


def test_a_consumer_waits_for_a_closed_gate() -> None:
    consumers = Consumers(QUEUE)
    gate = DeliveryGate()
    gate.is_open = False
    consumers.add(consume(named("ch"), b"a", no_ack=True, gate=gate))

    assert dealt(consumers, 5) == ""
    assert consumers.active == 0
    assert not consumers.resume(named("ch")), "still closed"
    assert gate.take_one() == QUEUE

    gate.is_open = True
    assert consumers.resume(named("ch"))
    assert dealt(consumers, 2) == "aa"


def test_an_ack_does_not_unblock_a_consumer_that_waits_for_its_gate() -> None:
    consumers = Consumers(QUEUE)
    gate = DeliveryGate()
    consumer = consumers.add(consume(named("ch"), b"a", prefetch=1, gate=gate))
    assert dealt(consumers, 2) == "a"
    consumer.owe([0])
    gate.is_open = False

    assert not consumers.settle(named("ch"), b"a", [0])
    assert gate.take_one() == QUEUE, "now it is the gate that will say when"


def test_a_cancelled_consumer_leaves_its_unacked_with_the_channel() -> None:
    consumers = Consumers(QUEUE)
    consumers.add(consume(named("ch"), b"a")).owe([3, 1])
    consumers.add(consume(named("ch"), b"b")).owe([2])

    assert consumers.remove(named("ch"), b"a")
    assert not consumers.remove(named("ch"), b"a")
    consumers.settle(named("ch"), b"a", [3])

    assert consumers.remove_channel(named("ch")) == (1, [{1}, {2}])
    assert consumers.remove_channel(named("ch")) == (0, [])
    assert (consumers.count, consumers.active) == (0, 0)


def test_a_tag_used_again_has_its_whole_prefetch() -> None:
    consumers = Consumers(QUEUE)
    first = consumers.add(consume(named("ch"), b"a", prefetch=1))
    assert dealt(consumers, 1) == "a"
    first.owe([0])
    consumers.remove(named("ch"), b"a")

    second = consumers.add(consume(named("ch"), b"a", prefetch=1))
    assert dealt(consumers, 2) == "a"
    second.owe([1])
    consumers.settle(named("ch"), b"a", [0])

    assert second.in_flight == 1, "the ack of the old delivery is not its own"
    assert consumers.channels[named("ch")].unacked_without_consumer == set()


def test_exclusive_ends_with_its_consumer() -> None:
    consumers = Consumers(QUEUE)
    consumers.add(consume(named("ch"), b"a", exclusive=True))
    assert consumers.exclusive

    consumers.remove(named("ch"), b"a")
    assert not consumers.exclusive


def test_an_allotment_counts_the_redelivered_messages_it_holds() -> None:
    consumers = Consumers(QUEUE)
    consumers.add(consume(named("ch"), b"a"))
    consumers.add(consume(named("ch"), b"b", prefetch=2))

    shares = {share.consumer.spec.tag: share for share in consumers.deal(consumers.room_for(7))}

    assert shares[b"a"].of(list(range(7))) == [0, 2, 4, 5, 6]
    assert [shares[b"a"].count_below(n) for n in range(8)] == [0, 1, 1, 2, 2, 3, 4, 5]
    assert [shares[b"b"].count_below(n) for n in range(5)] == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("count", [2, 40])
def test_all_consumers_of_a_channel_leave_the_others_and_their_order(count: int) -> None:
    consumers = Consumers(QUEUE)
    limiter = ChannelLimiter()
    limiter.limit = 1
    for number in range(count):
        consumers.add(
            consume(named("leaving"), b"%d" % number, priority=number % 3, limiter=limiter)
        )
        if number < 2:
            consumers.add(consume(named("staying"), b"ab"[number : number + 1], priority=1))
    assert len(dealt(consumers, 2)) == 2
    consumers.deal(1)
    consumers.block_all()  # of the leaving consumers some are set aside, some are not
    consumers.add(consume(named("leaving"), b"late", priority=5))
    assert consumers.resume(named("staying"))

    gone, _ = consumers.remove_channel(named("leaving"))

    assert (gone, consumers.count, consumers.active) == (count + 1, 2, 2)
    assert sorted(dealt(consumers, 4)) == ["a", "a", "b", "b"]


def test_consumers_that_come_and_go_leave_nothing_in_a_queue_without_messages() -> None:
    consumers = Consumers(QUEUE)
    for number in range(50):
        for tag in range(10):
            consumers.add(consume(named(f"ch{number}"), b"%d" % tag, priority=tag % 2))
        consumers.remove_channel(named(f"ch{number}"))

        assert consumers.count == consumers.active == 0
        assert not consumers._gone
        assert not consumers._rings


def test_channels_that_end_together_leave_their_rings_in_few_walks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walks, tidy = [0], Consumers._drop_gone

    def counted(self: Consumers) -> None:
        walks[0] += 1
        tidy(self)

    monkeypatch.setattr(Consumers, "_drop_gone", counted)
    consumers = Consumers(QUEUE)
    for number in range(200):
        consumers.add(consume(named(f"ch{number}"), b"%d" % number, priority=number % 2))
    for number in range(2, 200):
        consumers.remove_channel(named(f"ch{number}"))

    assert (consumers.count, consumers.active) == (2, 2)
    assert dealt(consumers, 1) == "1"
    assert walks[0] < 10, "a walk when half of the consumers have gone, not one for each channel"


@dataclass
class Slow:
    """A consumer of the model."""

    tag: bytes
    channel: Ref
    priority: int
    prefetch: int
    no_ack: bool
    unacked: list[int] = field(default_factory=list)


class SlowConsumers:
    """The rule, message by message, as RabbitMQ's queue process walks its priority queue."""

    def __init__(self) -> None:
        self.rings: dict[int, deque[Slow]] = {}
        self.all: dict[bytes, Slow] = {}
        self.blocked: list[Slow] = []
        self.limit: dict[str, int] = {}
        self.in_flight: dict[str, int] = {}
        self.is_open: dict[str, bool] = {}
        self.suspended: set[str] = set()

    def can_take(self, consumer: Slow) -> bool:
        if not self.is_open[consumer.channel]:
            return False
        limit = self.limit[consumer.channel]
        if limit and self.in_flight[consumer.channel] >= limit:
            self.suspended.add(consumer.channel)
            return False
        return consumer.no_ack or not consumer.prefetch or len(consumer.unacked) < consumer.prefetch

    def deliver(self, seq: int) -> bytes | None:
        for priority in sorted(self.rings, reverse=True):
            ring = self.rings[priority]
            while ring:
                consumer = ring.popleft()
                if not self.can_take(consumer):
                    self.blocked.append(consumer)
                    continue
                if not consumer.no_ack:
                    consumer.unacked.append(seq)
                    self.in_flight[consumer.channel] += 1
                ring.append(consumer)
                return consumer.tag
        return None

    def join(self, consumer: Slow) -> None:
        self.rings.setdefault(consumer.priority, deque()).append(consumer)

    def try_unblock(self, consumer: Slow) -> None:
        if consumer in self.blocked and self.can_take(consumer):
            self.blocked.remove(consumer)
            self.join(consumer)

    def resume(self, channel: Ref) -> None:
        self.suspended.discard(channel)
        for consumer in list(self.blocked):
            if consumer.channel == channel:
                self.try_unblock(consumer)


CHANNELS = (named("x"), named("y"))


class ConsumersMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.real = Consumers(QUEUE)
        self.model = SlowConsumers()
        self.outlets = {name: DeliveryGate() for name in CHANNELS}
        self.limiters = {name: ChannelLimiter() for name in CHANNELS}
        for name in CHANNELS:
            self.model.limit[name] = self.model.in_flight[name] = 0
            self.model.is_open[name] = True
        self.next_tag = 0
        self.next_seq = 0

    @rule(
        channel=st.sampled_from(CHANNELS),
        priority=st.sampled_from([0, 0, 5]),
        prefetch=st.integers(0, 4),
        no_ack=st.booleans(),
    )
    def add(self, channel: Ref, priority: int, prefetch: int, no_ack: bool) -> None:
        tag = b"%d" % self.next_tag
        self.next_tag += 1
        self.real.add(
            consume(
                channel,
                tag,
                no_ack,
                priority,
                prefetch,
                self.limiters[channel],
                self.outlets[channel],
            )
        )
        consumer = Slow(tag, channel, priority, 0 if no_ack else prefetch, no_ack)
        self.model.all[tag] = consumer
        self.model.join(consumer)

    @rule(wanted=st.integers(1, 25))
    def deal(self, wanted: int) -> None:
        room = self.real.room_for(wanted)
        owners: list[bytes | None] = [None] * room
        seqs = list(range(self.next_seq, self.next_seq + room))
        for share in self.real.deal(room):
            own = share.of(seqs)
            if not share.consumer.no_ack:
                share.consumer.owe(own)
            for seq in own:
                owners[seq - self.next_seq] = share.consumer.spec.tag
        if room < wanted:
            self.real.block_all()

        expected = [self.model.deliver(seq) for seq in range(self.next_seq, self.next_seq + wanted)]

        assert owners == [tag for tag in expected if tag is not None]
        self.next_seq += room

    @rule(data=st.data(), fraction=st.integers(1, 3))
    def ack(self, data: st.DataObject, fraction: int) -> None:
        owing = [consumer for consumer in self.model.all.values() if consumer.unacked]
        if not owing:
            return
        consumer = data.draw(st.sampled_from(owing))
        seqs = consumer.unacked[::fraction]
        consumer.unacked = [seq for seq in consumer.unacked if seq not in seqs]
        self.model.in_flight[consumer.channel] -= len(seqs)
        if consumer.channel not in self.model.suspended:
            self.model.try_unblock(consumer)

        self.limiters[consumer.channel].in_flight -= len(seqs)
        self.real.settle(consumer.channel, consumer.tag, seqs)
        self._resume_waiting()

    @rule(channel=st.sampled_from(CHANNELS), limit=st.integers(0, 4))
    def qos(self, channel: Ref, limit: int) -> None:
        self.model.limit[channel] = self.limiters[channel].limit = limit
        self._resume_waiting()

    @rule(channel=st.sampled_from(CHANNELS))
    def toggle_gate(self, channel: Ref) -> None:
        is_open = not self.model.is_open[channel]
        self.model.is_open[channel] = self.outlets[channel].is_open = is_open
        self._resume_waiting()

    def _resume_waiting(self) -> None:
        """As the channel does: refused queues are told when there is room."""
        for channel in CHANNELS:
            gate, limiter = self.outlets[channel], self.limiters[channel]
            waits = gate.is_open and list(iter(gate.take_one, None))
            waits = (limiter.room() and limiter.take_waiting(1_000)) or waits
            if waits:
                self.real.resume(channel)
                self.model.resume(channel)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if not self.model.all:
            return
        consumer = self.model.all.pop(data.draw(st.sampled_from(sorted(self.model.all))))
        if consumer in self.model.blocked:
            self.model.blocked.remove(consumer)
        else:
            self.model.rings[consumer.priority].remove(consumer)

        assert self.real.remove(consumer.channel, consumer.tag)

    @invariant()
    def figures_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        assert self.real.count == len(self.model.all)
        assert self.real.active == sum(map(len, self.model.rings.values()))
        for name in CHANNELS:
            assert self.limiters[name].in_flight == self.model.in_flight[name]


ConsumersMachine.TestCase.settings = settings(max_examples=200, deadline=None)
TestConsumersAgainstTheRule = ConsumersMachine.TestCase
