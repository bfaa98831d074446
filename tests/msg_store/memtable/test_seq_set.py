"""Acked seqs are a set in any order and lengths; slices of many numbers are the same numbers, in order."""

from __future__ import annotations

import random
from itertools import chain, pairwise

from hypothesis import given
from hypothesis import strategies as st

from leveret.msg_store.memtable.seq_set import (
    SEQS_PER_SLICE,
    SeqSet,
    ascending,
    is_run,
    runs_of,
    slices,
)

numbers = st.sets(st.integers(0, 1 << 64), max_size=50)
seqs = st.integers(0, 60)
batches = st.one_of(
    st.lists(seqs, min_size=1, max_size=9, unique=True),
    st.builds(lambda first, count: list(range(first, first + count)), seqs, st.integers(1, 20)),
)


@given(st.lists(batches, max_size=12), st.lists(seqs, max_size=5))
def test_whatever_is_added_it_is_the_set_of_all(added: list[list[int]], asked: list[int]) -> None:
    acked, expected = SeqSet(), set[int]()
    for batch in added:
        if not (is_run(batch) and acked.add_run(batch[0], batch[-1])):
            new = acked.add({seq: -seq for seq in batch})
            assert new == {seq: -seq for seq in batch if seq not in expected}
        expected.update(batch)

        assert len(acked) == len(expected)
        assert sorted(acked) == sorted(expected)
        assert {seq for seq in range(100) if seq in acked} == expected
        assert acked.isdisjoint(asked) == expected.isdisjoint(asked)
        low, high = min(asked, default=0), max(asked, default=0)
        assert acked.reaches(low, high) or expected.isdisjoint(range(low, high + 1))


def test_what_is_acked_in_order_is_one_run() -> None:
    acked = SeqSet()
    for first in range(100, 1_000, 100):
        assert acked.add_run(first, first + 99)
    assert not acked.add_run(990, 1_010)

    assert list(runs_of(acked)) == [(100, 999)]
    assert list(runs_of({3, 1, 2, 7})) == [(1, 3), (7, 7)]


@given(numbers, st.integers(0, 3))
def test_all_numbers_come_once_and_ascending(few: set[int], times: int) -> None:
    many = few | set(random.Random(len(few)).sample(range(1 << 20), times * SEQS_PER_SLICE))
    parts = list(ascending(many))

    assert list(chain(*parts)) == sorted(many)
    assert all(len(part) <= SEQS_PER_SLICE for part in parts)
    assert all(one[-1] < other[0] for one, other in pairwise(parts))


@given(st.lists(st.integers(), max_size=50), st.integers(1, 9))
def test_slices_are_full_but_the_last(items: list[int], count: int) -> None:
    parts = list(slices(items, count))

    assert list(chain(*parts)) == items
    assert all(len(part) == count for part in parts[:-1])
    assert all(parts)
