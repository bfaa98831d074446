"""The fair queue and its runtime: no peer waits longer than its share says, whatever the others do."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.fair_queue import FairQueue
from leveret.actors.runtime.ref import Cell, Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.scheduler import DRAIN_S, LONG_TURN_S
from leveret.testing.virtual_clock import VirtualClock
from rigs.ticking_clock import TickingClock

SHORT_TURNS = 14  # at most, until a drain has looked at the clock twice
PUT_OR_TAKE = st.one_of(st.integers(1, 5), st.none())


@given(st.lists(PUT_OR_TAKE, max_size=200))
def test_accounts_take_turns_and_keep_their_order(steps: list[int | None]) -> None:
    queue = FairQueue()
    lines: dict[int, deque[Cell]] = {}
    waited: dict[
        int, set[int]
    ] = {}  # by account: who has had a turn since its first place became it
    for account in steps:
        if account is not None:
            cell = Cell()
            cell.account = account
            queue.put(account, cell)
            if not lines.setdefault(account, deque()):
                waited[account] = set()
            lines[account].append(cell)
        elif queue.count:
            taken = cast("Cell", queue.take())
            queue.charge(0.0)
            assert taken is lines[taken.account].popleft()
            for other, had_turn in waited.items():
                if other != taken.account and lines[other]:
                    assert taken.account not in had_turn, "twice while another waits"
                    had_turn.add(taken.account)
            waited[taken.account] = set()
    assert queue.count == sum(map(len, lines.values()))


TURNS = st.lists(st.floats(0.001, 1.0), min_size=1, max_size=8)


@given(TURNS, st.integers(1, 200))
def test_accounts_with_work_left_have_had_the_same_time_but_for_a_turn(
    turns_s: list[float], steps: int
) -> None:
    queue = FairQueue()
    had_s = dict.fromkeys(range(1, len(turns_s) + 1), 0.0)
    for account in had_s:
        for _ in range(steps):
            cell = Cell()
            cell.account = account
            queue.put(account, cell)
    for _ in range(steps):
        account = cast("Cell", queue.take()).account
        took_s = turns_s[account - 1]
        queue.charge(took_s)
        had_s[account] += took_s
        assert max(had_s.values()) - min(had_s.values()) <= max(turns_s) + 1e-9


def test_nobody_saves_up_and_short_work_goes_first() -> None:
    queue = FairQueue()
    long, short = Cell(), Cell()
    long.account, short.account = 1, 2
    for _ in range(10):
        queue.put(1, long)
    for _ in range(5):
        assert queue.take() is long
        queue.charge(1.0)

    queue.put(2, short)
    taken = []
    for _ in range(6):
        taken.append(queue.take())
        if taken[-1] is short:
            queue.put(2, short)  # its next step
            queue.charge(0.4)
        else:
            queue.charge(1.0)

    assert taken == [short, short, long, short, short, long]


def of(account: int) -> Cell:
    cell = Cell()
    cell.account = account
    return cell


def test_short_work_goes_before_the_long_work_of_many_that_come_again() -> None:
    queue = FairQueue()
    many = [of(account) for account in range(1, 21)]
    for each in many:
        queue.put(each.account, each)
        assert queue.take() is each
        queue.charge(0.004)
    for each in many:
        queue.put(each.account, each)
    short = of(99)
    queue.put(99, short)

    assert queue.take() is short


def test_work_announced_as_long_waits_for_as_much_short_work() -> None:
    queue = FairQueue()
    long, short = of(1), of(2)
    queue.expect(1, 0.004)
    queue.put(1, long)
    queue.put(2, short)
    turns = 0
    while queue.take() is short:
        turns += 1
        queue.put(2, short)
        queue.charge(0.0005)

    assert 6 <= turns <= 8


def test_short_turns_of_an_account_are_no_longer_taken_for_long_ones() -> None:
    queue = FairQueue()
    first, other = of(1), of(2)
    for took_s in (0.004, 0.0001):
        queue.put(1, first)
        queue.take()
        queue.charge(took_s)
    queue.put(1, first)
    queue.put(2, other)

    assert queue.take() is first


def test_many_accounts_that_have_gone_leave_no_objects_behind() -> None:
    queue = FairQueue()

    def turns(first: int, count: int) -> None:
        for account in range(first, first + count):
            queue.put(account, of(account))
            queue.take()
            queue.charge(0.004)

    turns(1 << 20, 1)
    before = sys.getallocatedblocks()
    turns(1 << 21, 900)

    assert sys.getallocatedblocks() - before < 50


class Worker(OtpActor):
    """Does long work in steps, and at each wakes a neighbour that does the same."""

    def init(self, turns: list[int], neighbours: list[Ref], steps: int) -> None:
        self.turns, self.left = turns, steps
        self.neighbour = neighbours[-1] if neighbours else self.ref

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        self.turns.append(self.ref.cell.account)
        if self.left:
            self.left -= 1
            self.post(self.neighbour, "work")
            self.runtime.again(self.ref, "more")


class Peer(OtpActor):
    """The root of what a peer has: as many workers as it likes."""

    def init(self, turns: list[int], size: int, steps: int) -> None:
        self.turns = turns
        self.workers: list[Ref] = []
        for _ in range(size):
            args = (turns, self.workers, steps)
            self.workers.append(self.runtime.start_link(self.ref, Worker, args, lambda _: None))

    def handle_mail(self, message: int, sender: Ref | None) -> None:
        """Do a request of so many steps, each a turn."""
        self.turns.append(self.ref.num)
        if message:
            self.runtime.again(self.ref, message - 1)


SIZES = st.lists(st.tuples(st.integers(1, 90), st.integers(0, 3)), min_size=1, max_size=5)


@given(SIZES)
def test_a_small_request_waits_for_a_turn_of_each_other_peer(sizes: list[tuple[int, int]]) -> None:
    runtime = Runtime(clock=TickingClock(2 * DRAIN_S))  # each turn is seen
    turns: list[int] = []
    peers = [runtime.spawn(Peer, turns, size, steps) for size, steps in sizes]
    small = runtime.spawn(Peer, turns, 0, 0)
    for peer in peers:
        for worker in peer.cell.actor.workers:
            runtime.send(worker, "work")
    runtime.drain()
    turns.clear()

    runtime.send_bulk(small, 10)
    runtime.run_until_idle()

    own = [at for at, account in enumerate(turns) if account == small.num]
    assert len(own) == 11
    waits = [after - before - 1 for before, after in zip([-1, *own], own, strict=False)]
    assert max(waits) <= (len(peers) + 1) * (SHORT_TURNS + 1)


class Waker(OtpActor):
    """Wakes many actors at once."""

    def init(self, woken: list[Ref]) -> None:
        self.woken = woken

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        for ref in self.woken:
            self.post(ref, 0)


class Follower(Peer):
    """Works for who wakes it."""

    def init(self, turns: list[int], size: int, steps: int) -> None:
        super().init(turns, size, steps)
        self.charge_to_callers()


def test_an_actor_that_follows_is_charged_to_the_long_turn_that_wakes_it() -> None:
    runtime = Runtime(clock=VirtualClock())
    follower, other = runtime.spawn(Follower, [], 0, 0), runtime.spawn(Peer, [], 0, 0)
    waker = runtime.spawn(Waker, [follower, other])

    runtime.send(waker, "in the run queue")
    runtime.run_until_idle()
    assert follower.cell.account == follower.num
    runtime.send_bulk(waker, "in the bulk queue")
    runtime.run_until_idle()

    assert (follower.cell.account, other.cell.account) == (waker.num, other.num)


def test_what_is_to_be_written_does_not_wait_for_a_long_turn_but_long_work_goes_on() -> None:
    clock = TickingClock(2 * DRAIN_S)  # each turn seems to be long
    runtime = Runtime(clock=clock)
    turns: list[int] = []
    long = runtime.spawn(Peer, turns, 0, 0)
    runtime.send_bulk(long, 20)
    for _ in range(3):
        runtime.drain()
    seen = []
    for _ in range(6):
        before = len(turns)
        runtime.after_drain(lambda before=before: seen.append(len(turns) - before))
        runtime.drain()

    assert sum(seen) == 3
    assert set(seen) == {0, 1}


def test_a_long_turn_is_passed_over_once_whatever_short_turns_come() -> None:
    runtime = Runtime(clock=VirtualClock())
    turns: list[int] = []
    long, short = runtime.spawn(Peer, turns, 0, 0), runtime.spawn(Peer, turns, 0, 0)
    runtime.turns.expect(long, LONG_TURN_S)
    runtime.send_bulk(long, 0)
    for _ in range(3):
        runtime.after_drain(lambda: None)
        runtime.send_bulk(short, 0)
        runtime.drain()

    assert turns == [short.num, short.num, long.num, short.num]
