"""All backing queues do the same: random runs beside a variable queue in RAM, which has its own model.

So the RAM target, the mode and the constants change no answer, and the work on disk stays within its bounds.

Tests: core/mypyc.py, queue_backing/api.py
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from leveret.actors.runtime.runtime import Runtime
from leveret.core.entry import EXPIRY_MS, MESSAGE, SEQ
from leveret.core.message import BODY
from leveret.queue_backing.actor import BackingActor, StoreResumes
from leveret.queue_backing.api import BackingQueue
from leveret.queue_backing.priority_queue import PriorityQueue
from leveret.queue_backing.proxy import BackingProxy
from leveret.queue_backing.variable import release
from leveret.queue_backing.variable.invariants import check
from leveret.queue_backing.variable.limits import Limits
from leveret.queue_backing.variable.queue import VariableQueue
from leveret.testing.virtual_clock import VirtualClock
from rigs.queues.fake_index import FakeIndex
from rigs.queues.open_queue import OpenQueue
from rigs.queues.patient_queue import PatientQueue
from rigs.queues.stored_rig import StoreBench, StoredQueue
from rigs.queues.variable_rig import UNBOUNDED, VariableRig, message

SMALL = Limits(segment=4, io_batch=1, step=3, read_max=3, slack=1)
OPERATIONS = ("publish",) * 4 + ("straight", "fetch", "fetch", "fetch", "drop", "ack", "ack",
    "requeue", "requeue", "dropwhile", "fetchwhile", "purge", "purge_acks", "fold",
    "ackfold", "stats")  # fmt: skip
BENCHES: list[StoreBench] = []  # of the test that runs


@pytest.fixture(autouse=True)
def _close_benches() -> Iterator[None]:
    yield
    while BENCHES:
        BENCHES.pop().close()


class Subject(NamedTuple):
    """A queue, and how contents of persistent messages get into its store: returns their number."""

    queue: Any
    route: Callable[[int, list], int]
    indexes: list[FakeIndex]
    begin: Callable[[], None] | None = None


def subject(queue: Any, indexes: list[FakeIndex]) -> Subject:
    def route(first_msg_no: int, messages: list) -> int:
        for index in indexes[:1]:
            index.route(first_msg_no, messages)
        return first_msg_no

    return Subject(queue, route, indexes)


def variable(
    limits: Limits, target: float, mode: Any = "default", is_late: bool = False
) -> Subject:
    rig = VariableRig(limits, target, is_late, mode=mode)
    rig.index.forgets = False
    return subject(PatientQueue(rig.queue, rig.settle) if is_late else rig.queue, [rig.index])


def priority() -> Subject:
    indexes = [FakeIndex() for _ in range(3)]
    levels = [VariableQueue(index, VirtualClock(), SMALL) for index in indexes]
    return subject(PriorityQueue(levels, lambda message: 0), indexes)


def beginning(
    limits: Limits, target: float, mode: Any = "default", is_late: bool = False
) -> Subject:
    """A queue that is not durable: ``begin`` has it page."""
    rig = VariableRig(limits, is_late=is_late, is_durable=False)
    rig.index.forgets = False

    def begin() -> None:
        if not rig.queue.can_page:
            assert rig.queue.begin_paging()
            rig.queue.set_queue_mode(mode)
            rig.set_target(target)

    queue = PatientQueue(rig.queue, rig.settle) if is_late else rig.queue
    return Subject(queue, lambda first_msg_no, _: first_msg_no, [], begin)


def priorities(levels: list[VariableQueue]) -> PriorityQueue:
    return PriorityQueue(levels, lambda message: len(message[BODY]) % len(levels))


def beginning_priority(target: float, mode: Any = "default") -> Subject:
    """A queue with priorities that is not durable: with each ``begin`` another of them pages."""
    rigs = [VariableRig(SMALL, is_durable=False) for _ in range(3)]
    for rig in rigs:
        rig.index.forgets = False
    queue = priorities([rig.queue for rig in rigs])
    left = rigs.copy()

    def begin() -> None:
        if left:
            rig = left.pop(1 % len(left))
            rig.set_target(target)
            rig.queue.set_queue_mode(mode)

    return Subject(queue, lambda first_msg_no, _: first_msg_no, [], begin)


def stored(limits: Limits, target: float, mode: Any = "default") -> Subject:
    rng = random.Random(f"{limits} {target} {mode}")
    bench = StoreBench(rng, rdq_file_bytes=500, checkpoint_rows=10, room_bytes=100_000)
    queue = StoredQueue(bench, 1, limits, target, mode)
    BENCHES.append(bench)

    def route(first_msg_no: int, messages: list) -> int:
        return bench.store.write(messages, (1,))

    return Subject(PatientQueue(queue.queue, queue.settle), route, [])


class Driven(OpenQueue):
    """A lazy queue that is called by way of its actor, whose turns do the housekeeping."""

    def __init__(self, queue: BackingQueue) -> None:
        self.runtime = Runtime(clock=VirtualClock())
        self.backing = self.runtime.spawn(BackingActor, lambda _: queue, self)
        super().__init__(BackingProxy(self.runtime.turns, self.backing))
        self.set_queue_mode("lazy")

    def needs_timeout(self) -> bool:
        return not self.runtime.is_idle

    def timeout(self) -> None:
        self.runtime.run_until_idle()

    def resume(self) -> None:
        self.runtime.send(self.backing, StoreResumes())


def driven() -> Subject:
    index = FakeIndex()
    return subject(Driven(VariableQueue(index, VirtualClock(), SMALL)), [index])


KINDS: dict[str, Callable[[], Subject]] = {
    "memory": lambda: subject(VariableQueue(), []),
    "variable": lambda: variable(Limits(), float("inf")),
    "paging": lambda: variable(SMALL, 2),
    "paging, late": lambda: variable(SMALL, 2, is_late=True),
    "all on disk": lambda: variable(SMALL, 0),
    "all on disk, late": lambda: variable(SMALL, 0, is_late=True),
    "lazy": lambda: variable(SMALL, 2, "lazy"),
    "lazy, late": lambda: variable(SMALL, 2, "lazy", is_late=True),
    "priority": priority,
    "beginning": lambda: beginning(Limits(), float("inf")),
    "beginning, paging": lambda: beginning(SMALL, 2),
    "beginning, all on disk, late": lambda: beginning(SMALL, 0, is_late=True),
    "beginning, lazy": lambda: beginning(SMALL, 2, "lazy"),
    "beginning, lazy, late": lambda: beginning(SMALL, 2, "lazy", is_late=True),
    "beginning, priorities, paging": lambda: beginning_priority(2),
    "beginning, priorities, all on disk": lambda: beginning_priority(0),
    "beginning, priorities, lazy": lambda: beginning_priority(2, "lazy"),
    "by way of its actor": driven,
    "stored": lambda: stored(Limits(), float("inf")),
    "stored, paging": lambda: stored(SMALL, 2),
    "stored, all on disk": lambda: stored(SMALL, 0),
    "stored, lazy": lambda: stored(SMALL, 2, "lazy"),
}


class Run:
    """Two queues that get the same operations and must give the same answers."""

    def __init__(self, rng: random.Random, kind: str) -> None:
        self.rng = rng
        self.model: Any = VariableQueue()
        if "priorities" in kind:
            self.model = priorities([VariableQueue() for _ in range(3)])
        self.real, self.route, self.indexes, self.begin = KINDS[kind]()
        self.can_be_safe = kind == "memory"
        self.can_persist = self.begin is None  # else it is not durable
        self.unacked: list[int] = []
        self.next_msg_no = int(self.can_persist)

    def both(self, operation: str, *arguments: Any) -> Any:
        expected = getattr(self.model, operation)(*arguments)
        answer = getattr(self.real, operation)(*arguments)
        if isinstance(expected, int | list):
            assert answer == expected, operation
        return expected, answer

    def publish(self, operation: str = "publish") -> None:
        rng = self.rng
        messages = [message(rng.randint(0, 9)) for _ in range(rng.randint(1, 5))]
        persistent = rng.random() < 0.4 and self.can_persist
        expiries = [rng.randint(1, 6)] * len(messages) if rng.random() < 0.4 else None
        more = (False,) if operation == "publish" else ()
        first_msg_no = self.next_msg_no
        self.next_msg_no += len(messages)
        if persistent:
            first_msg_no = self.route(first_msg_no, messages)
        expected, answer = self.both(
            operation, messages, persistent, expiries, None, *more, first_msg_no
        )
        assert answer[0] == expected[0]
        assert answer[1] == (not persistent or self.can_be_safe)
        if operation == "publish_delivered":
            self.unacked += range(answer[0], answer[0] + len(messages))

    def straight(self) -> None:
        if self.model.is_empty():
            self.publish("publish_delivered")

    def _compare_fetched(self, expected: Any, answer: Any) -> None:
        for name in ("messages", "seqs", "redelivered", "pending"):
            assert getattr(answer, name) == getattr(expected, name), name

    def fetch(self) -> None:
        limit, keep = self.rng.randint(0, 6), self.rng.random() < 0.7
        size = self.rng.choice([0, 5, 20, UNBOUNDED])
        expected, answer = self.both("fetch", limit, size, keep)
        self._compare_fetched(expected, answer)
        self.unacked += answer.seqs if keep else []

    def drop(self) -> None:
        keep = self.rng.random() < 0.5
        _, answer = self.both("drop", self.rng.randint(0, 4), keep)
        self.unacked += answer if keep else []

    def _some(self, forget: bool) -> list[int]:
        some = self.rng.sample(self.unacked, self.rng.randint(0, len(self.unacked)))
        if forget:
            self.unacked = [seq for seq in self.unacked if seq not in some]
        return [*some, 1 << 40] if self.rng.random() < 0.3 else some

    def ack(self) -> None:
        self.both("ack", self._some(forget=True))

    def requeue(self) -> None:
        self.both("requeue", self._some(forget=True))

    def _expired(self) -> Callable[[Any], bool]:
        now = self.rng.randint(0, 7)
        return lambda entry: 0 < entry[EXPIRY_MS] <= now

    def dropwhile(self) -> None:
        expected, answer = self.both("dropwhile", self._expired(), self.rng.randint(0, 6))
        assert answer.count == expected.count
        assert (answer.head and answer.head[SEQ]) == (expected.head and expected.head[SEQ])

    def fetchwhile(self) -> None:
        size = self.rng.choice([0, 5, 20, UNBOUNDED])
        expected, answer = self.both("fetchwhile", self._expired(), self.rng.randint(0, 6), size)
        self._compare_fetched(expected[0], answer[0])
        assert (answer[1] and answer[1][SEQ]) == (expected[1] and expected[1][SEQ])
        self.unacked += answer[0].seqs

    def purge(self) -> None:
        if self.rng.random() < 0.2:
            self.both("purge")

    def purge_acks(self) -> None:
        if self.rng.random() < 0.2:
            self.both("purge_acks")
            self.unacked = []

    def fold(self) -> None:
        seen: list[list] = [[], []]
        for queue, own in zip((self.model, self.real), seen, strict=True):
            queue.fold(
                lambda entry, unacked, acc: (True, acc.append((*entry[:4], unacked)) or acc), own
            )
        assert seen[0] == seen[1]

    def ackfold(self) -> None:
        some = self._some(forget=False)
        self.both("ackfold", lambda entry, acc: [*acc, entry[SEQ], entry[MESSAGE]], [], some)

    def stats(self) -> None:
        for name in ("len", "is_empty", "depth"):
            self.both(name)
        ours, theirs = self.real.info(), self.model.info()
        for name in ("messages_ready", "messages_unacknowledged", "message_bytes", "next_seq_id"):
            assert ours[name] == theirs[name]

    def unseen(self, may_change_mode: bool) -> None:
        """Do what must not be seen."""
        if self.begin is not None and self.rng.random() < 0.05:
            self.begin()
        if self.real.needs_timeout() and self.rng.random() < 0.5:
            self.real.timeout()
        if self.rng.random() < 0.1:
            self.real.resume()
        if may_change_mode and self.rng.random() < 0.1:
            self.real.set_queue_mode(self.rng.choice(["lazy", "default"]))

    def check(self) -> None:
        queue = getattr(self.real, "queue", self.real)
        for each in getattr(queue, "_levels", [queue]):
            if isinstance(each, VariableQueue):
                check(each)


@pytest.mark.parametrize("may_change_mode", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_queue_answers_as_the_model(
    kind: str, may_change_mode: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(15):
        if number == 7:  # what is purged is freed one by one, beside later operations
            monkeypatch.setattr(release, "FREED_AT_ONCE", 0)
            monkeypatch.setattr(release, "FREED_PER_TURN", 1)
        run = Run(random.Random(f"{seed} {kind} {number}"), kind)
        for _ in range(120):
            getattr(run, run.rng.choice(OPERATIONS))()
            run.unseen(may_change_mode)
            run.check()


@pytest.mark.parametrize("kind", ["paging", "all on disk", "lazy"])
def test_the_disk_does_no_more_than_it_must(kind: str, seed: int) -> None:
    """Each content and each row is written once at most, and read for a delivery or a requeue."""
    run = Run(random.Random(f"{seed} {kind}"), kind)
    index = run.indexes[0]
    handed_out = put_back = 0
    for _ in range(400):
        operation = run.rng.choice(["publish", "publish", "fetch", "fetch", "ack", "requeue"])
        unacked = len(run.unacked)
        if operation == "fetch":
            fetched = run.real.fetch(3, UNBOUNDED, True)
            run.unacked += fetched.seqs
            handed_out += len(fetched.seqs)
            continue
        if operation == "publish":
            run.model.purge()
            run.publish()
        else:
            some = run._some(forget=True)
            getattr(run.real, operation)(some)
            put_back += unacked - len(run.unacked) if operation == "requeue" else 0
        published = run.next_msg_no - 1
        assert index.writes <= published
        assert index.row_writes <= published
        assert index.reads <= handed_out + put_back


@pytest.mark.parametrize("kind", KINDS)
def test_a_requeue_in_any_order_restores_the_queue(kind: str, rng: random.Random) -> None:
    queue = KINDS[kind]().queue
    queue.publish([message(3, n) for n in range(20)], False, None, None, False, 1)
    before = queue.fetch(12, UNBOUNDED, True)

    seqs = list(before.seqs)
    rng.shuffle(seqs)
    for cut in (seqs[:5], seqs[5:]):
        assert queue.requeue(cut) == len(cut)

    after = queue.fetch(20, UNBOUNDED, True)
    assert after.seqs == list(range(20))
    assert after.messages[:12] == before.messages
    assert after.redelivered == 12
