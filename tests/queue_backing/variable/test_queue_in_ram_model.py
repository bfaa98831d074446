"""A variable queue that cannot page against a model that keeps every message in two plain dicts."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from leveret.core.entry import EXPIRY_MS, MESSAGE, SEQ
from leveret.core.message import Message
from leveret.queue_backing.variable.invariants import check
from leveret.queue_backing.variable.queue import VariableQueue

UNBOUNDED = 1 << 40


class ModelQueue:
    """Ready and unacked messages by seq, and who was handed out before."""

    def __init__(self) -> None:
        self.ready: dict[int, tuple[Message, int]] = {}
        self.unacked: dict[int, tuple[Message, int]] = {}
        self.seen: set[int] = set()
        self.next_seq = 0

    def add(self, messages: list[Message], expiries: list[int], to: dict) -> int:
        first = self.next_seq
        for message, expiry in zip(messages, expiries, strict=True):
            to[self.next_seq] = (message, expiry)
            self.next_seq += 1
        return first

    def take(self, limit: int, bytes_max: int, keep: bool) -> list[tuple[int, Message, bool]]:
        taken, size = [], 0
        for seq in sorted(self.ready):
            message = self.ready[seq][0]
            size += len(message[2])
            if len(taken) == limit or (taken and size > bytes_max):
                break
            taken.append((seq, message, seq in self.seen))
        for seq, _, _ in taken:
            entry = self.ready.pop(seq)
            self.seen.add(seq)
            if keep:
                self.unacked[seq] = entry
        return taken


def message(size: int) -> Message:
    return (b"o", b"h", b"x" * size)


sizes = st.lists(st.integers(0, 9), min_size=1, max_size=12)
some = st.integers(0, 15)


class QueueInRamMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.real = VariableQueue()
        self.model = ModelQueue()

    @rule(sizes=sizes, ttl=st.none() | st.integers(1, 5), told=st.booleans())
    def publish(self, sizes: list[int], ttl: int | None, told: bool) -> None:
        messages = [message(size) for size in sizes]
        expiries = [ttl or 0] * len(sizes)
        first = self.model.add(messages, expiries, self.model.ready)

        answer = self.real.publish(
            messages, False, expiries if ttl else None, sum(sizes) if told else None
        )

        assert answer == (first, True)

    @rule(sizes=sizes)
    def publish_delivered(self, sizes: list[int]) -> None:
        if self.model.ready:
            return
        messages = [message(size) for size in sizes]
        first = self.model.add(messages, [0] * len(sizes), self.model.unacked)
        self.model.seen.update(range(first, self.model.next_seq))

        assert self.real.publish_delivered(messages, True) == (first, True)

    @rule(limit=some, bytes_max=st.sampled_from([0, 3, 20, UNBOUNDED]), keep=st.booleans())
    def fetch(self, limit: int, bytes_max: int, keep: bool) -> None:
        expected = self.model.take(limit, bytes_max, keep)

        fetched = self.real.fetch(limit, bytes_max, keep)

        again = [True] * fetched.redelivered
        flags = again + [False] * (len(fetched.seqs) - len(again))
        assert list(zip(fetched.seqs, fetched.messages, flags, strict=True)) == expected
        assert not fetched.pending

    @rule(limit=some, keep=st.booleans())
    def drop(self, limit: int, keep: bool) -> None:
        expected = [seq for seq, _, _ in self.model.take(limit, UNBOUNDED, keep)]

        assert self.real.drop(limit, keep) == expected

    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        seqs = self._pick(data)
        known = [seq for seq in seqs if self.model.unacked.pop(seq, None)]

        assert self.real.ack(seqs) == len(known)

    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        seqs = self._pick(data)
        back = {seq: self.model.unacked.pop(seq) for seq in seqs if seq in self.model.unacked}
        self.model.ready.update(back)

        assert self.real.requeue(seqs) == len(back)

    def _pick(self, data: st.DataObject) -> list[int]:
        pool = [*self.model.unacked, 10_000]  # one that was never handed out
        return data.draw(st.lists(st.sampled_from(pool), unique=True))

    @rule(now=st.integers(0, 6), limit=some)
    def dropwhile(self, now: int, limit: int) -> None:
        count = self._expired(now, limit)
        self.model.take(count, UNBOUNDED, keep=False)

        dropped = self.real.dropwhile(lambda entry: 0 < entry[EXPIRY_MS] <= now, limit)

        assert dropped.count == count
        assert (dropped.head and dropped.head[SEQ]) == min(self.model.ready, default=None)

    @rule(now=st.integers(0, 6), limit=some, bytes_max=st.sampled_from([0, 3, 20, UNBOUNDED]))
    def fetchwhile(self, now: int, limit: int, bytes_max: int) -> None:
        expected = self.model.take(self._expired(now, limit), bytes_max, keep=True)

        fetched, head = self.real.fetchwhile(
            lambda entry: 0 < entry[EXPIRY_MS] <= now, limit, bytes_max
        )

        assert fetched.seqs == [seq for seq, _, _ in expected]
        assert (head and head[SEQ]) == min(self.model.ready, default=None)

    def _expired(self, now: int, limit: int) -> int:
        count = 0
        for seq in sorted(self.model.ready):
            if count == limit or not 0 < self.model.ready[seq][1] <= now:
                break
            count += 1
        return count

    @rule()
    def purge(self) -> None:
        assert self.real.purge() == len(self.model.ready)
        self.model.ready.clear()

    @rule()
    def purge_acks(self) -> None:
        assert self.real.purge_acks() == len(self.model.unacked)
        self.model.unacked.clear()

    @rule(stop_after=some)
    def fold(self, stop_after: int) -> None:
        everything = sorted((self.model.ready | self.model.unacked).items())
        expected = [(seq, seq in self.model.unacked) for seq, _ in everything]

        def step(entry: tuple, unacked: bool, seen: list) -> tuple[bool, list]:
            seen.append((entry[SEQ], unacked))
            return len(seen) < stop_after, seen

        assert self.real.fold(step, []) == expected[: max(1, stop_after)]

    @rule(data=st.data())
    def ackfold(self, data: st.DataObject) -> None:
        seqs = self._pick(data)
        expected = [self.model.unacked[seq][0] for seq in seqs if seq in self.model.unacked]

        folded = self.real.ackfold(lambda entry, acc: [*acc, entry[MESSAGE]], [], seqs)

        assert folded == expected

    @invariant()
    def counts_agree(self) -> None:
        check(self.real)
        assert self.real.len() == len(self.model.ready)
        assert self.real.is_empty() == (not self.model.ready)
        assert self.real.depth() == len(self.model.ready) + len(self.model.unacked)
        info = self.real.info()
        assert info["messages"] == self.real.depth()
        assert info["next_seq_id"] == self.model.next_seq


QueueInRamMachine.TestCase.settings = settings(max_examples=150, deadline=None)
TestQueueInRam = QueueInRamMachine.TestCase
