"""The producer filter: which messages are new, duplicates, refused or fenced, and when duplicates are confirmed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.actors.runtime.ref import DEAD_CELL, Ref
from leveret.broker.channel.publishing.producers import Predecessors
from leveret.broker.mail import NO_PREDECESSOR, ProducerSeq
from leveret.broker.queue.publishers.producers import (
    DUPLICATE,
    FENCED,
    NEW,
    REFUSED,
    Change,
    Entry,
    ProducerFilter,
)
from leveret.broker.registry.registry import QueueEntry

QUEUE = QueueEntry("/", "q")
NAMES = {NEW: "new", DUPLICATE: "duplicate", REFUSED: "refused", FENCED: "fenced"}


class Kept:
    """The store's part: what was written, in order."""

    def __init__(self, known: dict[bytes, Entry] | None = None) -> None:
        self.known = known or {}
        self.changes: list[Change] = []

    def entries(self) -> dict[bytes, Entry]:
        return dict(self.known)

    def changed(self, changes: Any) -> None:
        self.changes += changes
        for _, producer, epoch, seq, used_ms in changes:
            if seq < 0:
                del self.known[producer]
            else:
                self.known[producer] = epoch, seq, used_ms


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


def sent(
    seq: int, epoch: int = 0, after: int = NO_PREDECESSOR, producer: bytes = b"p"
) -> ProducerSeq:
    return producer, epoch, seq, after


def filter_after(*taken: ProducerSeq, **options: Any) -> ProducerFilter:
    made = ProducerFilter(options.pop("kept", None), options.pop("clock", Clock()), **options)
    for row, each in enumerate(taken):
        made.taken_in([each], row, 0, is_persistent=True)
    return made


@pytest.mark.parametrize(
    ("taken", "next_one", "verdict"),
    [
        ((), sent(0), "new"),
        ((), sent(7, 3), "new"),
        ((sent(4),), sent(5), "new"),
        ((sent(4),), sent(9), "new"),  # gaps are allowed
        ((sent(4),), sent(4), "duplicate"),
        ((sent(4),), sent(0), "duplicate"),
        ((sent(4, 1),), sent(0, 2), "new"),
        ((sent(4, 1),), sent(9, 0), "fenced"),
        ((sent(4, 1),), sent(1, 0), "fenced"),
        ((sent(4),), sent(5, 0, 4), "new"),
        ((sent(4),), sent(6, 0, 5), "refused"),  # 5 was never taken in
        ((sent(4),), sent(4, 0, 3), "duplicate"),
        ((), sent(6, 0, 5), "refused"),
        ((sent(4, 1),), sent(2, 2, 1), "refused"),  # 1 of epoch 2 was not
        ((sent(4),), sent(1, 0, producer=b"other"), "new"),
    ],
)
def test_what_becomes_of_a_message(
    taken: tuple[ProducerSeq, ...], next_one: ProducerSeq, verdict: str
) -> None:
    found, count = filter_after(*taken).next_run([next_one], 0, 1)

    assert (NAMES[found], count) == (verdict, 1)


def test_a_run_is_cut_where_the_verdict_changes() -> None:
    run = [sent(1), sent(2, 0, 1), None, sent(2), sent(1), sent(3), sent(9, 0, 8)]
    known, stretches, at = filter_after(), [], 0
    while at < len(run):
        verdict, count = known.next_run(run, at, 100)
        if verdict == NEW:
            known.taken_in(run[at : at + count], at, 0, is_persistent=False)
        stretches.append((NAMES[verdict], count))
        at += count

    assert stretches == [("new", 3), ("duplicate", 2), ("new", 1), ("refused", 1)]


def test_only_persistent_messages_are_written_each_with_its_row() -> None:
    kept = Kept()
    known = filter_after(kept=kept)
    known.taken_in([sent(1), None, sent(2)], 10, 0, is_persistent=True)
    known.taken_in([sent(3)], 13, 0, is_persistent=False)

    assert kept.changes == [(10, b"p", 0, 1, 1_000), (12, b"p", 0, 2, 1_000)]
    assert known.entries() == [(b"p", (0, 3, 1_000))]


def test_the_least_recently_used_producer_goes_first() -> None:
    kept = Kept()
    known = filter_after(kept=kept, limits=(2, 1_000))
    for number, producer in enumerate([b"a", b"b", b"a", b"c"]):
        known.taken_in([sent(number, producer=producer)], number, 0, is_persistent=True)

    assert [producer for producer, _ in known.entries()] == [b"a", b"c"]
    assert kept.known.keys() == {b"a", b"c"}


def test_a_duplicate_keeps_its_producer_in_use() -> None:
    known = filter_after(sent(1, producer=b"a"), sent(1, producer=b"b"))
    known.use([sent(1, producer=b"a")])

    assert [producer for producer, _ in known.entries()] == [b"b", b"a"]


def test_a_producer_that_was_not_used_for_long_is_unknown() -> None:
    clock = Clock()
    known = filter_after(sent(5), clock=clock, limits=(10, 500))
    clock.now_ms += 500
    assert known.next_run([sent(5)], 0, 1) == (DUPLICATE, 1)
    clock.now_ms += 1
    assert known.next_run([sent(5)], 0, 1) == (NEW, 1)

    known.taken_in([sent(1, producer=b"q")], 9, 0, is_persistent=True)

    assert [producer for producer, _ in known.entries()] == [b"q"]


def test_what_the_store_has_kept_is_known_from_the_start() -> None:
    known = filter_after(kept=Kept({b"new": (0, 1, 900), b"old": (0, 1, 100)}))

    assert [producer for producer, _ in known.entries()] == [b"old", b"new"]
    assert known.next_run([sent(1, producer=b"new")], 0, 1) == (DUPLICATE, 1)


def test_a_forgotten_producer_begins_anew() -> None:
    kept = Kept()
    known = filter_after(sent(5, 2), kept=kept)

    assert known.forget(b"p")
    assert not known.forget(b"p")
    assert known.next_run([sent(1, 0)], 0, 1) == (NEW, 1)
    assert kept.known == {}


def test_a_duplicate_waits_for_all_rows_before_it_and_for_no_later_one() -> None:
    known = filter_after(kept=Kept())
    channel = Ref("n/1", 1, DEAD_CELL)
    known.taken_in([sent(1), sent(2), sent(3)], 0, 0, is_persistent=True)
    known.wait(channel, 4, 1)
    known.taken_in([sent(4)], 3, 0, is_persistent=True)

    assert known.became_safe([(0, 1), (2, 1)]) == []
    assert known.became_safe([(1, 1)]) == [(2, channel, 4, 1)]
    assert not known.is_safe
    assert known.became_safe([(3, 1)]) == []
    assert known.is_safe


def test_a_duplicate_of_a_row_that_cannot_be_written_is_refused_once() -> None:
    known = filter_after(kept=Kept())
    channel = Ref("n/1", 1, DEAD_CELL)
    known.taken_in([sent(1)], 0, 0, is_persistent=True)
    known.wait(channel, 2, 1)

    assert known.refused([(0, 1)]) == [(0, channel, 2, 1)]
    assert known.refused([(0, 1)]) == []
    assert not known.is_safe


def test_messages_that_have_no_row_are_safe() -> None:
    known = filter_after(kept=Kept())
    known.taken_in([sent(1), sent(2)], -1, 2, is_persistent=True)

    assert known.is_safe


class FilterMachine(RuleBasedStateMachine):
    """A publisher that sends, resends and skips, over a queue that refuses, restarts and loses its mail.

    The publisher goes back to what was refused before it sends anything new, as the page says it must.
    """

    @initialize()
    def make(self) -> None:
        self.kept = Kept()
        self.filter = ProducerFilter(self.kept, Clock())
        self.epoch = self.next_seq = 0
        self.queued: list[tuple[int, int]] = []
        self.confirmed: set[tuple[int, int]] = set()
        self.unconfirmed: list[tuple[int, int]] = []
        self.channel = Predecessors()
        self.row = 0

    def send(
        self, number: tuple[int, int], is_refused: bool = False, is_lost: bool = False
    ) -> None:
        epoch, seq = number
        (producer_seqs,) = self.channel.number(QUEUE, [(b"p", epoch, seq)])
        if number not in self.unconfirmed and number not in self.confirmed:
            self.unconfirmed.append(number)
        if is_lost:
            return
        verdict, _ = self.filter.next_run([producer_seqs], 0, 1)
        if verdict == NEW and not is_refused:
            self.filter.taken_in([producer_seqs], self.row, 0, is_persistent=True)
            self.row += 1
            self.queued.append(number)
        if (verdict == NEW and not is_refused) or verdict == DUPLICATE:
            self.confirmed.add(number)
            if number in self.unconfirmed:
                self.unconfirmed.remove(number)

    @rule(gap=st.integers(1, 3), is_refused=st.booleans(), is_lost=st.booleans())
    def send_next(self, gap: int, is_refused: bool, is_lost: bool) -> None:
        self.next_seq += gap
        self.send((self.epoch, self.next_seq), is_refused, is_lost)

    @rule(which=st.integers(0, 100))
    def send_a_duplicate(self, which: int) -> None:
        done = sorted(each for each in self.confirmed if each[0] == self.epoch)
        if done:
            self.send(done[which % len(done)])

    @rule()
    def send_all_that_was_not_confirmed_again(self) -> None:
        for number in list(self.unconfirmed):
            self.send(number)
        assert not self.unconfirmed

    @rule()
    def the_queue_begins_again(self) -> None:
        self.filter = ProducerFilter(self.kept, Clock())

    @rule()
    def the_publisher_connects_anew_and_resends(self) -> None:
        self.channel = Predecessors()
        self.send_all_that_was_not_confirmed_again()

    @rule()
    def the_next_epoch_begins(self) -> None:
        self.send_all_that_was_not_confirmed_again()
        self.epoch += 1
        self.next_seq = -1

    @invariant()
    def each_confirmed_message_is_there_once_and_in_order(self) -> None:
        if hasattr(self, "queued"):
            assert self.queued == sorted(set(self.queued))
            assert self.confirmed == set(self.queued)


TestFilter = FilterMachine.TestCase
