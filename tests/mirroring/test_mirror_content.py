"""The content of a mirror against a dict, over each kind of backing queue, on random runs.

Tests: mirroring/sync_points.py, queue_backing/variable/queue.py, queue_backing/priority_queue.py
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leveret.core.message import BODY
from leveret.mirroring.mirror_content import MirrorContent
from leveret.mirroring.replicas.ports import SyncPoint
from leveret.mirroring.replicas.seq_runs import ALL_SEQS, first_seq_of, runs_of
from leveret.mirroring.replicated import Batch, Replicated
from leveret.queue_backing.priority_queue import PriorityQueue
from leveret.queue_backing.variable.invariants import check
from leveret.queue_backing.variable.limits import Limits
from leveret.queue_backing.variable.queue import VariableQueue
from leveret.testing.virtual_clock import VirtualClock
from rigs.queues.fake_index import FakeIndex
from rigs.queues.patient_queue import PatientQueue
from rigs.queues.stored_rig import StoreBench, StoredQueue
from rigs.queues.variable_rig import ON_DISK, UNBOUNDED, VariableRig, message

SMALL = Limits(segment=4, io_batch=1, step=3, read_max=3, slack=1)
STEPS = 150
BENCHES: list[StoreBench] = []


@pytest.fixture(autouse=True)
def _close_benches() -> Iterator[None]:
    yield
    while BENCHES:
        BENCHES.pop().close()


class Subject:
    """A backing queue, with what a mirror and a test do to it."""

    def __init__(
        self,
        rng: random.Random,
        queue: Any,
        levels: list[VariableQueue],
        write: Callable[[list[Any]], int],
        settle: Callable[[], None],
    ) -> None:
        self.rng = rng
        self.queue = queue
        self.levels = levels
        self.write = write
        self.settle = settle
        self.acks_on_way: Callable[[], set[int]] = set

    def disturb(self) -> None:
        """Page out, or change the mode."""
        level = self.rng.choice(self.levels)
        if level.can_page:
            level.set_queue_mode(self.rng.choice(("default", "default", "lazy")))
            rates = level.ram.rates
            rates.incoming = 1.0
            level.set_ram_duration_target(self.rng.choice((ON_DISK, 2, 5, float("inf"))))


def in_ram(rng: random.Random) -> Subject:
    queue = VariableQueue()
    return Subject(rng, queue, [queue], lambda _: 0, lambda: None)


def faked(rng: random.Random, is_late: bool) -> Subject:
    rig = VariableRig(SMALL, is_late=is_late)

    def write(messages: list[Any]) -> int:
        first, rig.next_msg_no = rig.next_msg_no, rig.next_msg_no + len(messages)
        rig.index.route(first, messages)
        return first

    return Subject(rng, rig.queue, [rig.queue], write, rig.settle)


def priorities(rng: random.Random) -> Subject:
    indexes = [FakeIndex(is_late=True) for _ in range(3)]
    levels = [VariableQueue(index, VirtualClock(), SMALL) for index in indexes]
    queue = PriorityQueue(levels, priority_of)
    next_msg_no = 1

    def write(messages: list[Any]) -> int:
        nonlocal next_msg_no
        first, next_msg_no = next_msg_no, next_msg_no + len(messages)
        for number, each in enumerate(messages, first):
            indexes[priority_of(each)].route(number, [each])
        return first

    def settle() -> None:
        for _ in range(1_000):
            if queue.needs_timeout():
                queue.timeout()
            elif any(list(map(FakeIndex.arrive, indexes))):
                queue.resume()
            else:
                return
        raise AssertionError("the queue does not come to rest")

    return Subject(rng, queue, levels, write, settle)


def stored(rng: random.Random) -> Subject:
    bench = StoreBench(rng, rdq_file_bytes=500, checkpoint_rows=10, room_bytes=100_000)
    BENCHES.append(bench)
    rig = StoredQueue(bench, 1, SMALL)
    write = lambda messages: bench.store.write(messages, (1,))  # noqa: E731
    subject = Subject(rng, rig.queue, [rig.queue], write, rig.settle)
    subject.acks_on_way = lambda: bench.store.core.acked_meanwhile(1)
    return subject


def priority_of(each: tuple[bytes, ...]) -> int:
    return len(each[BODY]) % 3


class Run:
    """Random steps; ``model`` has the messages by seq."""

    def __init__(self, subject: Subject) -> None:
        self.rng, self.subject = subject.rng, subject
        self.synced: list[int] = []
        self.content = MirrorContent(
            subject.queue,
            subject.write,
            subject.acks_on_way,
            lambda point: self.synced.append(point.no),
        )
        self.model: dict[int, Replicated] = {}
        self.lacking: dict[int, Replicated] = {}
        self.next_seq = first_seq_of(1)

    def step(self) -> None:
        kinds = [self.publish] * 3 + [
            self.insert,
            self.remove_first,
            self.remove_first,
            self.remove,
        ]
        self.rng.choice([*kinds, self.subject.disturb, self.work, self.next_epoch])()
        for level in self.subject.levels:
            check(level)
        assert self.content.live.from_seq(0, 10_000) == (runs_of(sorted(self.model)), ALL_SEQS)

    def _batch(self) -> Batch:
        count = self.rng.randint(1, 4)
        expiries = [self.rng.choice((0, 5)) for _ in range(count)]
        messages = [message(self.rng.randint(1, 9)) for _ in range(count)]
        return Batch(messages, self.rng.random() < 0.6, self.rng.choice((None, expiries)))

    def publish(self) -> None:
        """Publish some, and have others for later."""
        batch = self._batch()
        some = [batch[at] for at in range(len(batch))]
        if self.rng.random() < 0.4:
            self.lacking.update(enumerate(some, self.next_seq))
        else:
            self.content.publish(self.next_seq, batch)
            self.model.update(enumerate(some, self.next_seq))
        self.next_seq += len(some)

    def next_epoch(self) -> None:
        self.next_seq = first_seq_of((self.next_seq >> 42) + 1)

    def insert(self) -> None:
        """Add some that were not published, or were removed."""
        self.content.settle()
        self.work()
        if not self.content.is_settled:
            return
        seqs = sorted(self.rng.sample(sorted(self.lacking), min(len(self.lacking), 5)))
        pairs = [(seq, self.lacking.pop(seq)) for seq in seqs]
        self.content.insert(pairs)
        self.model.update(pairs)

    def remove_first(self) -> None:
        self._remove(sorted(self.model)[: self.rng.randint(1, 6)])

    def remove(self) -> None:
        self._remove(sorted(self.rng.sample(sorted(self.model), min(len(self.model), 3))))

    def _remove(self, seqs: list[int]) -> None:
        for seq in seqs:
            each = self.model.pop(seq)
            if self.rng.random() < 0.3:
                self.lacking[seq] = each
        self.content.remove(runs_of([*seqs, self.next_seq + 1]))

    def work(self) -> None:
        self.subject.settle()
        for _ in range(1_000):
            if not (self.content.resume() or self.subject.queue.take_fetch_ready()):
                return
            self.subject.settle()
        raise AssertionError("messages do not leave")

    def finish(self) -> None:
        """Become master, and hand out everything."""
        self.work()
        handed_out = self.rng.choice([0, *self.model])
        self.content.handed_out = handed_out
        for _ in range(1_000):
            if self.content.put_back():
                break
            self.subject.settle()
        queue = PatientQueue(self.subject.queue, self.subject.settle)
        got: dict[int, tuple[bytes, ...]] = {}
        while queue.len():
            fetched = queue.fetch(7, UNBOUNDED, True)
            got.update(zip(fetched.seqs, fetched.messages, strict=True))
            assert fetched.redelivered == sum(seq < handed_out for seq in fetched.seqs)
            expiries = {seq: self.model[seq].expiry_ms for seq in fetched.seqs}
            assert queue.expiries(fetched.seqs) == expiries
        assert got == {seq: each.message for seq, each in self.model.items()}
        if len(self.subject.levels) == 1:
            assert list(got) == sorted(got)


@pytest.mark.parametrize("number", range(30))
@pytest.mark.parametrize("kind", ["ram", "disk", "late", "priorities", "store"])
def test_a_mirror_has_what_it_was_told(seed: int, kind: str, number: int) -> None:
    rng = random.Random(f"{seed} {kind} {number}")
    subject = {
        "ram": in_ram,
        "disk": lambda rng: faked(rng, False),
        "late": lambda rng: faked(rng, True),
        "priorities": priorities,
        "store": stored,
    }[kind](rng)
    run = Run(subject)
    for _ in range(STEPS):
        run.step()
    run.finish()


@pytest.mark.parametrize("number", range(10))
def test_what_the_disk_has_kept_is_known_after_a_start(seed: int, number: int) -> None:
    rng = random.Random(f"{seed} start {number}")
    bench = StoreBench(rng, rdq_file_bytes=500, checkpoint_rows=10, room_bytes=100_000)
    BENCHES.append(bench)
    rig = StoredQueue(bench, 1, SMALL)
    subject = Subject(
        rng, rig.queue, [rig.queue], lambda some: bench.store.write(some, (1,)), rig.settle
    )
    subject.acks_on_way = lambda: bench.store.core.acked_meanwhile(1)
    run = Run(subject)
    for _ in range(STEPS):
        run.step()
    run.work()
    bench.idle_disk()
    durable = {seq: each for seq, each in run.model.items() if each.is_persistent}

    bench.boot_epoch = rng.choice((1, 10_000))  # its seqs may be above those of the next epoch
    if rng.random() < 0.5:
        bench.crash()
    else:
        rig.queue.terminate()
        bench.restart()
    rig.begin()
    subject.queue, subject.levels = rig.queue, [rig.queue]
    run = Run(subject)
    run.model = durable
    for _ in range(1_000):
        if run.content.load():
            break
        rig.settle()

    assert run.content.live.from_seq(0, 10_000) == (runs_of(sorted(durable)), ALL_SEQS)
    assert run.content.handed_out == run.content.live.end
    run.next_seq = first_seq_of(1_000)
    for _ in range(STEPS):
        run.step()
    run.finish()


def test_a_message_is_added_again_when_its_ack_is_on_the_disk() -> None:
    rng = random.Random("settle")
    bench = StoreBench(rng)
    BENCHES.append(bench)
    rig = StoredQueue(bench, 1, SMALL)

    def on_way() -> set[int]:
        return bench.store.core.acked_meanwhile(1)

    content = MirrorContent(rig.queue, lambda some: bench.store.write(some, (1,)), on_way, print)
    batch = Batch([message(1)] * 3, True)
    content.publish(5, batch)
    bench.idle_disk()
    content.remove(((6, 7),))

    content.settle()
    assert not content.is_settled
    content.remove(((5, 6),))
    bench.idle_disk()
    assert content.is_settled
    content.insert([(6, batch[1])])
    content.remove(((6, 7),))
    assert content.is_settled, "what is removed later is not waited for"
    bench.idle_disk()
    assert [row[0] for row in bench.rows(1)] == [7]


def test_a_point_is_reached_when_what_came_before_is_safe() -> None:
    rig = VariableRig()
    reached: list[int] = []

    def write(messages: list[Any]) -> int:
        rig.index.route(1, messages)
        return 1

    content = MirrorContent(rig.queue, write, set, lambda point: reached.append(point.no))
    content.sync(SyncPoint(1, 0, 0))
    assert reached == [0]
    content.publish(10, Batch([message(1)], False))
    content.sync(SyncPoint(1, 0, 1))
    assert reached == [0, 1]
    content.publish(11, Batch([message(1)] * 2, True))
    content.sync(SyncPoint(1, 0, 2))
    content.points.confirmed([(11, 1)])
    assert reached == [0, 1]
    content.points.confirmed([(12, 1)])
    assert reached == [0, 1, 2]
