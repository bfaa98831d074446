"""VariableQueue beside the executable reference, on random runs: the same parts after every step.

The reference works message by message and reduces when told to; so does the queue here, in batches.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from leveret.core.entry import INDEX_ON_DISK, MESSAGE
from leveret.core.segmented_dict import SEGMENT_KEYS
from leveret.queue_backing.variable import pending_acks, queue
from leveret.queue_backing.variable.invariants import check
from leveret.queue_backing.variable.limits import Limits
from rigs.queues.variable_rig import MANUAL, UNBOUNDED, VariableRig, message, parts_of
from rigs.queues.vq_reference import VQ
from rigs.segments import segmented_from

NEVER = 1 << 40
OPERATIONS = ("publish",) * 5 + ("straight", "fetch", "fetch", "fetch", "fetch_no_ack", "drop",
    "ack", "ack", "requeue", "requeue", "target", "purge", "mode", "rates")  # fmt: skip


class Pair:
    """Both queues, and one method per operation."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        segment, io_batch = rng.choice([2, 4, 8, 64]), rng.choice([0, 1, 2, 5])
        credit, read_max = rng.choice([1, 3, 100]), rng.choice([1, 3, 8])
        target = rng.choice([float("inf"), 0, 1, 3, 7])
        limits = Limits(segment, io_batch, 2 * credit, read_max, MANUAL, windows=1_000)
        self.rig = VariableRig(limits, target)
        self.reference = VQ(segment, io_batch, credit, NEVER, read_max, target)
        self.persistent_share = rng.random()
        self.unacked: list[int] = []

    def reduce(self) -> None:
        self.reference.reduce()
        self.rig.queue.resume()
        if self.reference.mode == "lazy":
            self.rig.settle()  # the reference has no steps in lazy mode

    def publish(self) -> None:
        self._publish(is_straight=False)

    def straight(self) -> None:
        if not self.reference.len:
            self._publish(is_straight=True)

    def _publish(self, is_straight: bool) -> None:
        count, persistent = self.rng.randint(1, 3), self.rng.random() < self.persistent_share
        numbers = range(self.rig.next_msg_no, self.rig.next_msg_no + count)
        publish = self.reference.publish_delivered if is_straight else self.reference.publish
        seqs = [publish(number, b"x", persistent) for number in numbers]
        first, _ = self.rig.publish([message(1)] * count, persistent, is_straight=is_straight)
        assert first == seqs[0]
        self.unacked += seqs if is_straight else []
        self.reduce()

    def fetch(self) -> None:
        self.unacked += self._fetch(keep=True)

    def fetch_no_ack(self) -> None:
        self._fetch(keep=False)

    def _fetch(self, keep: bool) -> list[int]:
        limit = self.rng.randint(1, 4)
        expected = [self.reference.fetch(keep) for _ in range(min(limit, self.reference.len))]
        fetched = self.rig.queue.fetch(limit, UNBOUNDED, keep)
        assert fetched.seqs == [seq for _, _, seq in expected]
        return fetched.seqs

    def drop(self) -> None:
        limit = self.rng.randint(1, 4)
        expected = [self.reference.drop(False) for _ in range(min(limit, self.reference.len))]
        assert self.rig.queue.drop(limit, ack_required=False) == [seq for _, seq in expected]

    def _some(self) -> list[int]:
        some = self.rng.sample(self.unacked, self.rng.randint(0, len(self.unacked)))
        self.unacked = [seq for seq in self.unacked if seq not in some]
        return some

    def ack(self) -> None:
        some = self._some()
        assert self.rig.queue.ack(some) == len(self.reference.ack(some))

    def requeue(self) -> None:
        some = self._some()
        assert self.rig.queue.requeue(some) == len(self.reference.requeue(some))
        self.reduce()

    def target(self) -> None:
        target = self.rng.choice([float("inf"), 0, 1, 2, 5])
        rates, self.reference.rates = self.reference.rates, (1.0, 0.0, 0.0, 0.0)  # as the rig does
        self.reference.set_target(target)
        self.reference.rates = rates
        self.rig.set_target(target)
        if self.reference.mode == "lazy":
            self.rig.settle()

    def purge(self) -> None:
        if self.rng.random() < 0.3:
            queue = self.rig.queue
            assert queue.purge() == self.reference.purge()
            while queue.releasing:
                queue.releasing.do_some()

    def mode(self) -> None:
        if self.rng.random() < 0.3:
            mode: Any = self.rng.choice(["default", "lazy"])
            is_change = mode != self.reference.mode
            self.reference.set_mode(mode)
            self.rig.queue.set_queue_mode(mode)
            if mode == "lazy":
                self.rig.settle()
                if is_change:
                    self.reference.reduce()  # ours goes on until it keeps to its target

    def rates(self) -> None:
        rates = [self.rng.random() for _ in range(4)]
        self.reference.rates = tuple(rates)
        r = self.rig.queue.ram.rates
        r.incoming, r.outgoing, r.ack_in, r.ack_out = rates

    def compare(self) -> None:
        queue, reference = self.rig.queue, self.reference
        check(queue)
        for name, part in parts_of(queue).items():
            ours = [(e[0], e[MESSAGE] is not None, e[INDEX_ON_DISK]) for e in part]
            theirs = [(m.seq, m.body is not None, m.idx) for m in getattr(reference, name)]
            assert ours == theirs, name
        delta = queue.paged.delta
        assert [delta.start, delta.length, delta.end] == (
            reference.d if delta.length else [0, 0, 0]
        )
        assert (delta.length == 0) == (reference.d[1] == 0)
        assert (queue.count, queue.ram_count) == (reference.len, reference.ram)
        assert set(queue.pending.in_ram) == set(reference.rpa)
        assert set(queue.pending.on_disk) == set(reference.dpa)
        assert set(self.rig.index.rows) == set(reference.idx)
        assert set(self.rig.index.contents) == set(reference.store)
        assert (self.rig.index.writes, self.rig.index.reads) == (reference.writes, reference.reads)


@pytest.mark.parametrize(
    ("block", "plain_max"), [(0, SEGMENT_KEYS), (1, SEGMENT_KEYS), (2, 0), (3, 2)]
)
def test_random_runs_take_the_same_way_as_the_reference(
    block: int, plain_max: int, seed: int
) -> None:
    with segmented_from(plain_max, pending_acks, queue):
        take_the_same_way(block, seed)


def take_the_same_way(block: int, seed: int) -> None:
    for run in range(50):
        rng = random.Random(f"{seed} {block} {run}")
        pair = Pair(rng)
        for step in range(120):
            operation = rng.choice(OPERATIONS)
            getattr(pair, operation)()
            try:
                pair.compare()
            except AssertionError as error:
                raise AssertionError(f"run {run}, step {step}, {operation}: {error}") from error
