"""Runs of seqs against sets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from leveret.mirroring.replicas.seq_runs import (
    ALL_SEQS,
    LiveSeqs,
    SeqRuns,
    between,
    first_seq_of,
    first_seqs,
    runs_of,
    seqs_of,
    without,
)

sets = st.sets(st.integers(0, 40))
ends = st.integers(0, 41)


def set_of(runs: SeqRuns) -> set[int]:
    assert all(first < end for first, end in runs)
    assert all(one[1] < other[0] for one, other in pairwise(runs)), "there is a gap between runs"
    return set(seqs_of(runs))


@given(sets, sets, ends, ends)
def test_runs_are_sets(one: set[int], other: set[int], first: int, end: int) -> None:
    runs, others = runs_of(sorted(one)), runs_of(sorted(other))

    assert set_of(runs) == one
    assert set_of(without(runs, others)) == one - other
    assert set_of(between(runs, first, end)) == one & set(range(first, end))


@given(sets, st.integers(0, 50))
def test_the_first_seqs(seqs: set[int], count: int) -> None:
    assert set_of(first_seqs(runs_of(sorted(seqs)), count)) == set(sorted(seqs)[:count])


@given(st.lists(st.tuples(st.booleans(), ends, ends)), ends, st.integers(1, 5))
def test_live_seqs_are_a_set(changes: list[tuple[bool, int, int]], low: int, limit: int) -> None:
    live, model = LiveSeqs(), set[int]()
    for is_added, one, other in changes:
        first, end = sorted((one, other))
        if first == end:
            continue
        if is_added:
            live.add(first, end)
            model |= set(range(first, end))
        else:
            live.remove(first, end)
            model -= set(range(first, end))
        runs = runs_of(sorted(model))
        assert live.from_seq(0, 100) == (runs, ALL_SEQS)
        assert live.end == (runs[-1][1] if runs else 0)

    expected = between(runs_of(sorted(model)), low, ALL_SEQS)
    runs, following = live.from_seq(low, limit)
    assert runs == expected[:limit]
    assert following == (expected[limit][0] if len(expected) > limit else ALL_SEQS)
    assert live.within(low, low + 7) == between(expected, low, low + 7)


def test_the_seqs_of_an_epoch_are_above_those_of_the_epochs_before() -> None:
    assert first_seq_of(1) < first_seq_of(2) < first_seq_of(1_000_000) < ALL_SEQS
