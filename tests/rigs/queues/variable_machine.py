"""VariableQueue against a model that keeps every message in two dicts, whatever the disk does.

The machine of the design: RAM targets, modes, credit, late reading and restarts change nothing of what
comes out; the invariants hold after every step; nothing is left on disk that nobody needs.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from leveret.core.entry import EXPIRY_MS, MESSAGE, MSG_NO, PERSISTENT, SEQ
from leveret.queue_backing.api import Fetched
from leveret.queue_backing.variable.invariants import check
from leveret.queue_backing.variable.limits import Limits
from rigs.queues.variable_rig import MANUAL, UNBOUNDED, VariableRig, message

sizes = st.lists(st.integers(0, 9), min_size=1, max_size=6)
some = st.integers(0, 12)
bytes_max = st.sampled_from([0, 5, 30, UNBOUNDED])
limits = st.builds(
    Limits,
    segment=st.sampled_from([2, 4, 8, 64]),
    io_batch=st.sampled_from([0, 1, 2, 5]),
    step=st.sampled_from([1, 2, 6, 200]),
    read_max=st.sampled_from([1, 3, 8]),
    slack=st.sampled_from([0, 2, MANUAL]),
    windows=st.sampled_from([1, 8]),
    read_ahead=st.sampled_from([1, 4]),
)


class VariableQueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, tuple] = {}  # everything ever published: message, expiry, persistent
        self.ready: set[int] = set()
        self.unacked: set[int] = set()
        self.watermark = 0
        self.next_seq = 0
        self.owed: set[int] = set()
        self.delivered = self.put_back = 0

    @initialize(
        limits=limits,
        is_late=st.booleans(),
        credit=st.none() | st.integers(0, 4),
        mode=st.sampled_from(["default", "default", "lazy"]),
        ram=st.sampled_from([float("inf"), 0, 1, 3, 7]),
    )
    def start(
        self, limits: Limits, is_late: bool, credit: int | None, mode: Any, ram: float
    ) -> None:
        self.rig = VariableRig(limits, ram, is_late, credit, mode)

    def may_be_late(self) -> bool:
        """Return whether anything has to be read before it can be had."""
        return self.rig.index.is_late

    # In.

    def _number(self, sizes: list[int], ttl: int | None, persistent: bool) -> tuple[list, list]:
        first = self.next_seq
        messages = [message(size, first + n) for n, size in enumerate(sizes)]
        self.next_seq += len(messages)
        for seq, each in enumerate(messages, first):
            self.known[seq] = (each, ttl or 0, persistent)
        return messages, list(range(first, self.next_seq))

    @rule(
        sizes=sizes, ttl=st.none() | st.integers(1, 5), persistent=st.booleans(), told=st.booleans()
    )
    def publish(self, sizes: list[int], ttl: int | None, persistent: bool, told: bool) -> None:
        messages, seqs = self._number(sizes, ttl, persistent)
        self.ready.update(seqs)

        first, safe = self.rig.publish(
            messages, persistent, [ttl] * len(sizes) if ttl else None,
            size_bytes=sum(sizes) if told else None,
        )  # fmt: skip

        assert (first, safe) == (seqs[0], not persistent)
        self.owed.update(seqs if persistent else ())

    @precondition(lambda self: not self.ready)
    @rule(sizes=sizes, persistent=st.booleans())
    def publish_delivered(self, sizes: list[int], persistent: bool) -> None:
        messages, seqs = self._number(sizes, None, persistent)
        self.unacked.update(seqs)
        self.watermark = self.next_seq

        first, safe = self.rig.publish(messages, persistent, is_straight=True)

        assert (first, safe) == (seqs[0], not persistent)
        self.owed.update(seqs if persistent else ())

    @rule()
    def discard(self) -> None:
        number = self.rig.next_msg_no
        self.rig.next_msg_no += 1
        self.rig.index.route(number, [message(1)])

        self.rig.queue.discard([message(1)], True, number)

    # Out.

    def _expected(self, limit: int, bytes_max: int, now: int | None = None) -> list[int]:
        taken, size = [], 0
        for seq in sorted(self.ready):
            each, expiry, _ = self.known[seq]
            size += len(each[2])
            is_full = len(taken) == limit or (taken and size > bytes_max)
            if is_full or (now is not None and not 0 < expiry <= now):
                break
            taken.append(seq)
        return taken

    def _took(self, seqs: list[int], keep: bool) -> None:
        self.ready.difference_update(seqs)
        self.unacked.update(seqs if keep else ())
        self.watermark = max([self.watermark, *[seq + 1 for seq in seqs]])
        self.delivered += len(seqs)

    def _check_fetched(
        self, fetched: Fetched, expected: list[int], keep: bool, bytes_max: int
    ) -> None:
        seqs = fetched.seqs
        if fetched.pending:
            assert self.may_be_late() or self.rig.queue.paged.loads_next_turn
            size = sum(len(self.known[seq][0][2]) for seq in seqs)
            assert len(seqs) < len(expected) or size <= bytes_max, "full, and waits for more"
        assert seqs == (expected[: len(seqs)] if fetched.pending else expected)
        assert fetched.messages == [self.known[seq][0] for seq in seqs]
        assert fetched.redelivered == len([seq for seq in seqs if seq < self.watermark])
        self._took(seqs, keep)

    @rule(limit=some, bytes_max=bytes_max, keep=st.booleans())
    def fetch(self, limit: int, bytes_max: int, keep: bool) -> None:
        expected = self._expected(limit, bytes_max)

        fetched = self.rig.queue.fetch(limit, bytes_max, keep)

        assert not fetched.pending or len(fetched.seqs) < min(limit, len(self.ready))
        self._check_fetched(fetched, expected, keep, bytes_max)

    @rule(limit=some, keep=st.booleans())
    def drop(self, limit: int, keep: bool) -> None:
        expected = self._expected(limit, UNBOUNDED)

        seqs = self.rig.queue.drop(limit, keep)

        complete = len(seqs) == len(expected) or self.rig.queue.paged.rows_awaited
        assert complete, "fewer than there are"
        assert seqs == expected[: len(seqs)]
        self._took(seqs, keep)

    @rule(now=st.integers(0, 6), limit=some)
    def dropwhile(self, now: int, limit: int) -> None:
        expected = self._expected(limit, UNBOUNDED, now)

        dropped = self.rig.queue.dropwhile(lambda entry: 0 < entry[EXPIRY_MS] <= now, limit)

        assert dropped.count <= len(expected)
        assert dropped.pending or dropped.count == len(expected)
        self._took(expected[: dropped.count], keep=False)
        self._check_head(dropped.head, dropped.pending)

    @rule(now=st.integers(0, 6), limit=some, bytes_max=bytes_max)
    def fetchwhile(self, now: int, limit: int, bytes_max: int) -> None:
        expected = self._expected(limit, bytes_max, now)

        fetched, head = self.rig.queue.fetchwhile(
            lambda entry: 0 < entry[EXPIRY_MS] <= now, limit, bytes_max
        )

        if fetched.pending and len(fetched.seqs) == len(expected):
            self._took(expected, keep=True)  # all in RAM; the next ones must be read
        else:
            self._check_fetched(fetched, expected, keep=True, bytes_max=bytes_max)
        self._check_head(head, fetched.pending)

    def _check_head(self, head: Any, pending: bool) -> None:
        if head is not None or not pending:
            assert (head and head[SEQ]) == min(self.ready, default=None)

    # Settling.

    def _pick(self, data: st.DataObject) -> list[int]:
        pool = [*sorted(self.unacked), 10_000]  # one that was never handed out
        return data.draw(st.lists(st.sampled_from(pool), unique=True))

    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        seqs = self._pick(data)
        known = self.unacked.intersection(seqs)
        self.unacked -= known

        assert self.rig.queue.ack(seqs) == len(known)

    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        seqs = self._pick(data)
        known = self.unacked.intersection(seqs)
        self.unacked -= known
        self.ready |= known
        self.put_back += len(known)

        assert self.rig.queue.requeue(seqs) == len(known)

    @rule(really=st.integers(0, 3))
    def purge(self, really: int) -> None:
        if not really:
            assert self.rig.queue.purge() == len(self.ready)
            self.ready.clear()
            self.watermark = self.next_seq

    @rule(really=st.integers(0, 3))
    def purge_acks(self, really: int) -> None:
        if not really:
            assert self.rig.queue.purge_acks() == len(self.unacked)
            self.unacked.clear()

    # What must not be seen.

    @rule(ram=st.sampled_from([float("inf"), 0, 1, 2, 5]))
    def set_target(self, ram: float) -> None:
        self.rig.set_target(ram)

    @rule(rates=st.tuples(*[st.floats(0, 9)] * 4))
    def set_rates(self, rates: tuple) -> None:
        r = self.rig.queue.ram.rates
        r.incoming, r.outgoing, r.ack_in, r.ack_out = rates

    @rule(mode=st.sampled_from(["default", "lazy"]))
    def set_mode(self, mode: Any) -> None:
        self.rig.queue.set_queue_mode(mode)
        assert self.rig.queue.info()["mode"] == mode

    @rule(credit=st.none() | st.integers(0, 5))
    def grant(self, credit: int | None) -> None:
        self.rig.index.grant(credit)
        self.rig.queue.resume()

    @rule()
    def arrive(self) -> None:
        waited = self.rig.queue.paged.fetch_is_pending
        if self.rig.index.arrive():
            self.rig.queue.resume()
            assert self.rig.queue.take_fetch_ready() or not waited

    @rule()
    def timeout(self) -> None:
        if self.rig.queue.needs_timeout():
            self.rig.queue.timeout()

    @rule(elapsed=st.floats(0, 10))
    def pass_time(self, elapsed: float) -> None:
        self.rig.clock.jump(elapsed)
        assert self.rig.queue.ram_duration() >= 0

    @rule()
    def settle(self) -> None:
        """Without limits the target is reached, and a change of mode is made."""
        self.rig.index.grant(None)
        self.rig.queue.resume()
        self.rig.settle()
        queue = self.rig.queue
        assert queue.ram_count + len(queue.pending.in_ram) <= queue.ram.target
        assert not queue.to_lazy
        if queue.mode == "lazy":
            assert queue.ram_count == 0

    @rule()
    def sync(self) -> None:
        self.rig.index.sync()
        self._drain()
        assert not self.owed, "synced, but not confirmed"

    @rule()
    def take_confirmed(self) -> None:
        self._drain()

    def _drain(self) -> None:
        for first, count in self.rig.take_confirmed():
            assert self.owed.issuperset(range(first, first + count))
            self.owed.difference_update(range(first, first + count))

    # Walks.

    @rule(stop_after=some, from_seq=some)
    def fold(self, stop_after: int, from_seq: int) -> None:
        everything = sorted(seq for seq in self.ready | self.unacked if seq >= from_seq)
        expected = [(seq, self.known[seq][0], seq in self.unacked) for seq in everything]
        seen: list = []

        def step(entry: Any, unacked: bool, acc: list) -> tuple[bool, list]:
            seen.append(entry and (entry[SEQ], entry[MESSAGE], unacked))
            return len(seen) < stop_after, seen

        self.rig.queue.fold(step, seen, from_seq)

        if seen and seen[-1] is None:
            assert self.may_be_late()
            seen.pop()  # rows that may be there must be read
            assert seen == expected[: len(seen)]
        else:
            assert seen == expected[: max(1, stop_after)]

    @rule(data=st.data())
    def ackfold(self, data: st.DataObject) -> None:
        seqs = self._pick(data)
        expected = [(seq, self.known[seq][0]) for seq in seqs if seq in self.unacked]

        folded = self.rig.queue.ackfold(
            lambda entry, acc: [*acc, (entry[SEQ], entry[MESSAGE])], [], seqs
        )

        assert [seq for seq, _ in folded] == [seq for seq, _ in expected]
        for got, wanted in zip(folded, expected, strict=True):
            assert got == wanted or (got[1] is None and self.may_be_late())

    # Restarts.

    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        if crash:
            survivors = set(self.rig.index.synced)
            self.rig.restart(crash=True)
            self.next_seq = self.watermark = self.rig.queue.next_seq
            assert self.next_seq > max(survivors, default=-1)
        else:
            everything = self.ready | self.unacked
            survivors = {seq for seq in everything if self.known[seq][2]}
            self.rig.restart(crash=False)
            assert self.rig.queue.next_seq == self.next_seq
        self.ready, self.unacked, self.owed = survivors, set(), set()
        self.delivered = self.put_back = 0

    # What holds always.

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "rig"):
            return
        queue = self.rig.queue
        check(queue)
        assert queue.len() == len(self.ready)
        assert queue.is_empty() == (not self.ready)
        assert queue.depth() == len(self.ready) + len(self.unacked)
        held = [self.known[seq] for seq in self.ready | self.unacked]
        kept = [len(each[2]) for each, _, persistent in held if persistent]
        assert queue.persistent() == (len(kept), sum(kept))
        assert queue.ready_bytes == sum(len(self.known[seq][0][2]) for seq in self.ready)
        assert queue.pending.size_bytes == sum(len(self.known[seq][0][2]) for seq in self.unacked)
        self._nothing_leaks()

    def _nothing_leaks(self) -> None:
        index, queue = self.rig.index, self.rig.queue
        if queue.releasing:
            return
        rows = index.rows
        held = self.ready | self.unacked
        assert held.issuperset(rows), "a row that nobody needs"
        assert all(seq in rows for seq in held if self.known[seq][2]), "a row is lost"
        in_ram = [
            *queue.q4,
            *queue.paged.q3,
            *queue.paged.q2,
            *queue.q1,
            *queue.pending.in_ram.values(),
        ]
        numbers = {
            entry[MSG_NO] for entry in [*in_ram, *queue.pending.on_disk.values(), *rows.values()]
        }
        assert numbers.issuperset(index.contents), "a content that nobody needs"
        assert queue.paged.delta.transient == len(
            [s for s in rows if queue.paged.delta.start <= s < queue.paged.delta.end
             and s in self.ready and not rows[s][PERSISTENT]]
        ) or queue.paged.delta.length == 0  # fmt: skip

    def teardown(self) -> None:
        """Fetch the rest in order, ack all: nothing stays on disk."""
        if not hasattr(self, "rig"):
            return
        for _ in range(10_000):
            if not self.ready:
                break
            self.fetch(3, 50, keep=True)
            self.rig.settle()
        assert not self.ready
        self.rig.queue.ack(sorted(self.unacked))
        self.rig.settle()
        assert not self.rig.index.rows
        assert not self.rig.index.contents
        assert not self.rig.queue.depth()
