"""AmqQueue against a model: random consumers, acks, requeues, cancels and deaths of channels.

After every step: the deliveries are the head of the ready messages, in order, with the redelivered
flag on exactly what had been handed out before; nothing is lost or twice; and no consumer that
could take a message is left waiting while there is one.

Tests: broker/queue/turn_budget.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.broker import mail, queue_requests
from leveret.broker.queue import amqqueue, turn_budget
from leveret.broker.queue.consumers import allotments, dispatch
from leveret.broker.queue.limits import expiry, length_limits
from leveret.queue_backing.actor import SetRamDurationTarget
from leveret.queue_backing.variable.limits import Limits
from leveret.queue_backing.variable.queue import VariableQueue
from leveret.testing.virtual_clock import VirtualClock
from rigs.queues.fake_index import FakeIndex
from rigs.queues.queue_rig import Channel, Rig


@dataclass
class Seen:
    """A consumer as the model sees it."""

    prefetch: int
    no_ack: bool
    rank: tuple[int, int] = (0, 0)  # -priority, number: who becomes active first has the lowest


@dataclass
class Peer:
    """A channel as the model sees it; ``unacked``: message to consumer."""

    channel: Channel
    consumers: dict[bytes, Seen] = field(default_factory=dict)
    unacked: dict[int, bytes | None] = field(default_factory=dict)

    def room(self, tag: bytes) -> int:
        consumer = self.consumers[tag]
        if not self.channel.gate.is_open:
            return 0
        rooms = [1 << 30]
        if consumer.prefetch and not consumer.no_ack:
            rooms.append(consumer.prefetch - sum(own == tag for own in self.unacked.values()))
        if self.channel.limiter.limit:
            rooms.append(self.channel.limiter.limit - self.channel.limiter.in_flight)
        return min(rooms)


pick = st.integers(0, 1000)


_BUDGETS = (dispatch.DELIVERY_BATCH_MESSAGES, amqqueue.TURN_MESSAGES)


def use_budgets(batch: int, turn: int) -> None:
    """Set how much a delivery batch and a turn hold, wherever that is read."""
    for each in (dispatch, allotments):
        each.DELIVERY_BATCH_MESSAGES = batch  # type: ignore[misc]
    for each in (amqqueue, turn_budget, expiry, length_limits):
        each.TURN_MESSAGES = turn  # type: ignore[misc]


class AmqQueueMachine(RuleBasedStateMachine):
    budgets = _BUDGETS

    @initialize()
    def start(self) -> None:
        use_budgets(*self.budgets)
        self.rig = self.new_rig()
        self.peers: list[Peer] = []
        self.ready: set[int] = set()
        self.done: set[int] = set()
        self.handed_out: set[int] = set()
        self.seqs: dict[int, int] = {}
        self.published = 0
        self.tags = 0
        self.publisher = self.rig.channel()
        self.open_channel()

    def new_rig(self) -> Rig:
        return Rig()

    def teardown(self) -> None:
        use_budgets(*_BUDGETS)

    # What happens.

    @rule(count=st.integers(1, 12), mails=st.integers(1, 3))
    def publish(self, count: int, mails: int) -> None:
        for number in range(mails):  # of both kinds, so that they do not merge in the mailbox
            new = range(self.published, self.published + count)
            self.published += count
            self.ready.update(new)
            self.publisher.publish(*[b"%d" % n for n in new], persistent=bool(number % 2))
        self.collect()

    @rule()
    def open_channel(self) -> None:
        if len(self.peers) < 3:
            self.peers.append(Peer(self.rig.channel()))

    @rule(which=pick, prefetch=st.integers(0, 3), no_ack=st.booleans(), priority=st.integers(0, 1))
    def consume(self, which: int, prefetch: int, no_ack: bool, priority: int) -> None:
        peer = self.peer(which)
        tag = b"c%d" % self.tags
        self.tags += 1
        peer.consumers[tag] = Seen(prefetch, no_ack, (-priority, self.tags))
        answer = peer.channel.consume(tag, prefetch=prefetch, no_ack=no_ack, priority=priority)
        assert answer is None
        self.collect()

    @rule(which=pick, number=pick)
    def cancel(self, which: int, number: int) -> None:
        peer = self.peer(which)
        if peer.consumers:
            tag = sorted(peer.consumers)[number % len(peer.consumers)]
            del peer.consumers[tag]
            peer.channel.ask(queue_requests.Cancel(peer.channel.ref, tag))
            self.collect()

    @rule(which=pick, number=pick, size=st.integers(1, 5), how=st.sampled_from(["ack", "reject"]))
    def settle(self, which: int, number: int, size: int, how: str) -> None:
        peer, tag, numbers = self.choose(which, number, size)
        self.done.update(numbers)
        seqs = [self.seqs[number] for number in numbers]
        kind = mail.Ack if how == "ack" else mail.Reject
        peer.channel.send(kind(peer.channel.ref, tag, seqs))
        self.tell_room(peer)
        self.collect()

    @rule(which=pick, number=pick, size=st.integers(1, 5))
    def requeue(self, which: int, number: int, size: int) -> None:
        peer, tag, numbers = self.choose(which, number, size)
        self.come_back(numbers)
        seqs = [self.seqs[number] for number in numbers]
        peer.channel.send(mail.Requeue(peer.channel.ref, tag, seqs))
        self.tell_room(peer)
        self.collect()

    @rule(which=pick, no_ack=st.booleans())
    def get(self, which: int, no_ack: bool) -> None:
        peer = self.peer(which)
        answer = peer.channel.ask(queue_requests.Get(peer.channel.ref, no_ack))
        head = min(self.ready, default=None)
        if head is None:
            assert answer is None
            return
        _, message, seq, redelivered, left = answer
        assert int(message[2]) == head
        assert redelivered == (head in self.handed_out)
        self.ready.discard(head)
        self.handed_out.add(head)
        assert left == len(self.ready)
        if no_ack:
            assert seq is None
            self.done.add(head)
        else:
            assert self.seqs.setdefault(head, seq) == seq
            peer.unacked[head] = None

    @rule(which=pick, how=st.sampled_from(["dies", "leaves"]))
    def end_channel(self, which: int, how: str) -> None:
        peer = self.peer(which)
        self.peers.remove(peer)
        self.come_back(peer.unacked)
        if how == "leaves":
            peer.channel.ask(queue_requests.Leave(peer.channel.ref))
        peer.channel.die()
        self.collect()
        if not self.peers:
            self.open_channel()

    @rule(which=pick)
    def toggle_gate(self, which: int) -> None:
        peer = self.peer(which)
        peer.channel.gate.is_open = not peer.channel.gate.is_open
        self.tell_room(peer)
        self.collect()

    @rule(which=pick, limit=st.integers(0, 3))
    def qos(self, which: int, limit: int) -> None:
        peer = self.peer(which)
        peer.channel.limiter.limit = limit
        self.tell_room(peer)
        self.collect()

    @rule()
    def purge(self) -> None:
        assert self.publisher.ask(queue_requests.Purge()) == len(self.ready)
        self.done.update(self.ready)
        self.ready.clear()

    # How it is driven and watched.

    def come_back(self, numbers: Iterable[int]) -> None:
        self.ready.update(numbers)

    def peer(self, which: int) -> Peer:
        return self.peers[which % len(self.peers)]

    def choose(self, which: int, number: int, size: int) -> tuple[Peer, bytes | None, list[int]]:
        """Take some unacked messages of one consumer off the model, as the channel does."""
        peer = self.peer(which)
        tags = list(dict.fromkeys(peer.unacked.values()))
        if not tags:
            return peer, None, []
        tag = tags[number % len(tags)]
        numbers = [n for n, own in peer.unacked.items() if own == tag][:size]
        for taken in numbers:
            del peer.unacked[taken]
        if tag is not None:
            peer.channel.limiter.in_flight -= len(numbers)
        return peer, tag, numbers

    def tell_room(self, peer: Peer) -> None:
        """As the channel does: refused queues are told when there is room."""
        gate, limiter = peer.channel.gate, peer.channel.limiter
        waiting = set(iter(gate.take_one, None)) if gate.is_open else set()
        waiting |= set(limiter.take_waiting(1_000)) if limiter.room() else set()
        if waiting:
            peer.channel.send(mail.Resume(peer.channel.ref))

    def collect(self) -> None:
        """Compare this step's deliveries with the model."""
        delivered: list[int] = []
        for peer in self.peers:
            for delivery in peer.channel.take(mail.Deliver):
                delivered += self.check(peer, delivery)
        assert len(set(delivered)) == len(delivered), "delivered twice"
        head = sorted(self.ready)[: len(delivered)]
        assert sorted(delivered) == head, "not the head of the queue"
        self.ready.difference_update(delivered)
        self.handed_out.update(delivered)

    def check(self, peer: Peer, delivery: mail.Deliver) -> list[int]:
        numbers = [int(message[2]) for message in delivery.messages]
        consumer = peer.consumers[delivery.consumer]
        again = [n in self.handed_out for n in numbers]
        assert again == [i < delivery.redelivered for i in range(len(numbers))]
        assert numbers == sorted(numbers)
        if consumer.no_ack:
            assert delivery.seqs is None
            self.done.update(numbers)
        else:
            assert delivery.seqs is not None
            assert len(delivery.seqs) == len(numbers)
            for number, seq in zip(numbers, delivery.seqs, strict=True):
                assert self.seqs.setdefault(number, seq) == seq, "its ack tag has changed"
            peer.unacked.update(dict.fromkeys(numbers, delivery.consumer))
            assert peer.room(delivery.consumer) >= 0 or peer.channel.limiter.limit
        return numbers

    @invariant()
    def nothing_is_lost(self) -> None:
        unacked = [n for peer in self.peers for n in peer.unacked]
        assert len(self.ready) + len(unacked) + len(self.done) == self.published
        consumers = sum(len(peer.consumers) for peer in self.peers)
        assert self.rig.stat() == (len(self.ready), consumers)
        assert self.rig.info()["messages_unacknowledged"] == len(unacked)

    def served(self) -> list[tuple[Peer, bytes]]:
        """The consumers that get messages while they have room."""
        return [(peer, tag) for peer in self.peers for tag in peer.consumers]

    @invariant()
    def nobody_waits_who_could_be_served(self) -> None:
        if self.ready:
            for peer, tag in self.served():
                assert peer.room(tag) <= 0, "a message waits and so does a consumer"

    @invariant()
    def the_limiters_count_what_consumers_hold(self) -> None:
        for peer in self.peers:
            held = sum(tag is not None for tag in peer.unacked.values())
            assert peer.channel.limiter.in_flight == held


class TightBudgetsMachine(AmqQueueMachine):
    """Turns so short that everything is cut and goes on by ``Continue``."""

    budgets = (3, 2)


class LimitedMachine(AmqQueueMachine):
    """Messages that come back more often than twice are dropped; nothing else is counted."""

    budgets = (3, 2)
    limit = 2

    def new_rig(self) -> Rig:
        self.counts: Counter[int] = Counter()
        rig = Rig()
        rig.set_policy(delivery_limit=self.limit)
        return rig

    def come_back(self, numbers: Iterable[int]) -> None:
        self.counts.update(list(numbers))
        beyond = {number for number in numbers if self.counts[number] > self.limit}
        self.ready.update(set(numbers) - beyond)
        self.done.update(beyond)

    @invariant()
    def what_is_counted_is_there(self) -> None:
        counted = {number for number in self.counts if number not in self.done}
        assert len(self.rig.queue.cell.actor.backing.counts) == len(counted)  # type: ignore[attr-defined]


class PagingMachine(AmqQueueMachine):
    """Modes and RAM targets change under load; nobody may notice."""

    budgets = (5, 4)

    def new_rig(self) -> Rig:
        limits = Limits(segment=4, io_batch=1, step=3, slack=0)
        return Rig(lambda _: VariableQueue(FakeIndex(), VirtualClock(), limits))

    @rule(mode=st.sampled_from(["lazy", "default"]))
    def change_mode(self, mode: str) -> None:
        self.rig.set_policy(queue_mode=mode)
        assert self.rig.info()["mode"] == mode
        self.collect()

    @rule(duration_s=st.sampled_from([0.0, float("inf")]))
    def change_target(self, duration_s: float) -> None:
        backing = self.rig.entry.backing
        assert backing is not None
        self.rig.runtime.send(backing, SetRamDurationTarget(duration_s))
        self.collect()


class SingleActiveMachine(AmqQueueMachine):
    """One consumer gets all messages until it leaves; then the highest priority, and the oldest of those."""

    budgets = (5, 4)

    def new_rig(self) -> Rig:
        self.active: tuple[Peer, bytes] | None = None
        return Rig(arguments={"x-single-active-consumer": ("t", True)})

    def served(self) -> list[tuple[Peer, bytes]]:
        return [self.active] if self.active is not None else []

    def collect(self) -> None:
        every = super().served()
        if self.active not in every:
            self.active = min(every, key=lambda each: each[0].consumers[each[1]].rank, default=None)
        super().collect()

    def check(self, peer: Peer, delivery: mail.Deliver) -> list[int]:
        assert (peer, delivery.consumer) == self.active, "another than the active one is served"
        return super().check(peer, delivery)

    @invariant()
    def the_figures_name_the_active_one(self) -> None:
        tag = self.active[1].decode() if self.active is not None else ""
        assert self.rig.info()["single_active_consumer_tag"] == tag


LimitedMachine.TestCase.settings = settings(max_examples=150, deadline=None)
TestAmqQueueWithADeliveryLimit = LimitedMachine.TestCase
PagingMachine.TestCase.settings = settings(max_examples=100, deadline=None)
TestAmqQueueThatPages = PagingMachine.TestCase
AmqQueueMachine.TestCase.settings = settings(max_examples=150, deadline=None)
TightBudgetsMachine.TestCase.settings = settings(max_examples=150, deadline=None)
TestAmqQueue = AmqQueueMachine.TestCase
TestAmqQueueWithTightBudgets = TightBudgetsMachine.TestCase
SingleActiveMachine.TestCase.settings = settings(max_examples=150, deadline=None)
TestAmqQueueWithASingleActiveConsumer = SingleActiveMachine.TestCase
