"""Deliveries that wait for a settlement, against a plain dict."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp.errors import PreconditionFailed
from leveret.broker.channel.consuming import unacked as module
from leveret.broker.channel.consuming.unacked import Settled, Unacked
from leveret.broker.channel.records import Source
from leveret.core.segmented_dict import SEGMENT_KEYS
from rigs.refs import named
from rigs.segments import segmented_from

A = Source(named("queue a"), b"ctag")
B = Source(named("queue b"), None)


def take_all(unacked: Unacked) -> Settled:
    return unacked.take_to(unacked.last_of(0))


def test_tags_ascend_over_all_sources_and_no_ack_deliveries_use_them_up() -> None:
    unacked = Unacked()

    firsts = [unacked.add(A, [7, 8]), unacked.skip(3), unacked.add(B, [1])]

    assert firsts == [1, 3, 6]
    assert unacked.take_to(6) == [(A, [7, 8]), (B, [1])]


def test_an_unknown_tag_stops_a_batch_and_leaves_what_comes_after_it() -> None:
    unacked = Unacked()
    unacked.add(A, [10, 11, 12, 13])

    assert unacked.take([1, 9, 3, 4]) == ([(A, [10])], 9)

    assert take_all(unacked) == [(A, [11, 12, 13])]


@pytest.mark.parametrize("tag", [0, 2, 9])
def test_an_unknown_single_tag_is_refused_with_rabbitmqs_text(tag: int) -> None:
    unacked = Unacked()
    unacked.add(A, [5])

    with pytest.raises(PreconditionFailed, match=f"unknown delivery tag {tag}$"):
        unacked.take_single(tag)


def test_multiple_needs_its_own_tag_even_if_lower_ones_are_outstanding() -> None:
    unacked = Unacked()
    unacked.add(A, [1, 2])
    unacked.take_single(2)

    with pytest.raises(PreconditionFailed):
        unacked.last_of(2)

    assert len(unacked) == 1


def test_multiple_looks_at_what_is_outstanding_not_at_all_that_ever_was() -> None:
    unacked = Unacked()
    unacked.add(A, [1])
    unacked.skip(1 << 62)
    last = unacked.add(B, [2])

    assert unacked.take_to(last) == [(A, [1]), (B, [2])]


def test_multiple_with_tag_zero_takes_all_and_may_take_nothing() -> None:
    unacked = Unacked()
    assert take_all(unacked) == []

    unacked.add(A, [1, 2])
    assert take_all(unacked) == [(A, [1, 2])]


def test_very_many_are_taken_a_turns_worth_at_a_time() -> None:
    unacked = Unacked()
    unacked.add(A, list(range(10_000)))
    unacked.take(list(range(1, 10_000, 2)))
    last = unacked.last_of(9_000)
    sizes = []
    while some := unacked.take_to(last):
        sizes.append(len(some[0][1]))

    assert sum(sizes) == 4_500
    assert max(sizes) <= module.SETTLED_MAX
    assert not unacked.has_to(last)
    assert len(unacked) == 500


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 4)),
        st.tuples(st.just("skip"), st.integers(1, 3)),
        st.tuples(st.just("take"), st.lists(st.integers(0, 30), max_size=4)),
        st.tuples(st.just("to"), st.integers(0, 30)),
        st.tuples(st.just("single"), st.integers(0, 30)),
    )
)


@given(STEPS, st.integers(1, 5), st.sampled_from([2, SEGMENT_KEYS]))
def test_it_agrees_with_a_dict(steps: list, limit: int, plain_max: int) -> None:  # type: ignore[type-arg]
    with pytest.MonkeyPatch.context() as patch, segmented_from(plain_max, module):
        patch.setattr(module, "SETTLED_MAX", limit)
        patch.setattr(module, "_SPARSE", 3)
        agrees_with_a_dict(steps, limit)


def agrees_with_a_dict(steps: list, limit: int) -> None:  # type: ignore[type-arg]
    unacked, model, tag, seq = Unacked(), {}, 1, 100
    for what, argument in steps:
        if what == "add":
            seqs = list(range(seq, seq + argument))
            assert unacked.add(A, seqs) == tag
            model.update(zip(range(tag, tag + argument), seqs, strict=True))
            tag, seq = tag + argument, seq + argument
        elif what == "skip":
            assert unacked.skip(argument) == tag
            tag += argument
        elif what == "take":
            expected, bad = [], -1
            for each in argument:
                if each not in model:
                    bad = each
                    break
                expected.append(model.pop(each))
            assert unacked.take(list(argument)) == ([(A, expected)] if expected else [], bad)
        elif what == "to" and (argument in model or argument == 0):
            taken = [each for each in sorted(model) if each <= argument or argument == 0]
            expected = [model.pop(each) for each in taken]
            last = unacked.last_of(argument)
            some = []
            while taken_now := unacked.take_to(last):
                ((_, seqs),) = taken_now
                assert len(seqs) <= limit
                some += seqs
            assert some == expected
            assert not unacked.has_to(last)
        elif what == "single" and argument in model:
            assert unacked.take_single(argument) == (A, model.pop(argument))
        assert len(unacked) == len(model)
        assert unacked.oldest_tag() == min(model, default=None)


def test_an_unknown_tag_among_acks_moves_no_other_delivery() -> None:
    unacked = Unacked()
    unacked.add(A, list(range(100)))
    records = unacked._records

    assert unacked.take([1, 200, 3]) == ([(A, [0])], 200)

    assert unacked._records is records
    assert unacked.oldest_tag() == 2


def test_very_many_records_are_freed_in_slices_after_the_end_of_their_channel() -> None:
    later: list[Callable[[], None]] = []
    clock: Any = SimpleNamespace(call_later=lambda _, callback: later.append(callback))
    source, unacked = Source(named("queue"), b"ctag"), Unacked()
    unacked.add(source, list(range(120_000)))
    before = sys.getrefcount(source) - 120_000

    unacked.free_later(clock)
    del unacked
    left = []
    while later:
        left.append(sys.getrefcount(source) - before)
        later.pop()()

    assert left == [120_000, 70_000, 20_000]
    assert sys.getrefcount(source) == before
