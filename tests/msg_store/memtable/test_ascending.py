"""Slices of many numbers are the same numbers, in order."""

from __future__ import annotations

import random
from itertools import chain, pairwise

from hypothesis import given
from hypothesis import strategies as st

from leveret.msg_store.memtable.seq_set import SLICE, ascending, slices

numbers = st.sets(st.integers(0, 1 << 64), max_size=50)


@given(numbers, st.integers(0, 3))
def test_all_numbers_come_once_and_ascending(few: set[int], times: int) -> None:
    many = few | set(random.Random(len(few)).sample(range(1 << 20), times * SLICE))
    parts = list(ascending(many))

    assert list(chain(*parts)) == sorted(many)
    assert all(len(part) <= SLICE for part in parts)
    assert all(one[-1] < other[0] for one, other in pairwise(parts))


@given(st.lists(st.integers(), max_size=50), st.integers(1, 9))
def test_slices_are_full_but_the_last(items: list[int], count: int) -> None:
    parts = list(slices(items, count))

    assert list(chain(*parts)) == items
    assert all(len(part) == count for part in parts[:-1])
    assert all(parts)
