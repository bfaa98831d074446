"""Runs of seqs against sets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from leveret.mirroring.replicas.seq_runs import SeqRuns, common, first_seqs, runs_of, without

sets = st.sets(st.integers(0, 40))


def seqs_of(runs: SeqRuns) -> set[int]:
    assert all(first < end for first, end in runs)
    assert all(one[1] < other[0] for one, other in pairwise(runs)), "there is a gap between runs"
    return {seq for first, end in runs for seq in range(first, end)}


@given(sets, sets)
def test_runs_are_sets(one: set[int], other: set[int]) -> None:
    runs, others = runs_of(sorted(one)), runs_of(sorted(other))

    assert seqs_of(runs) == one
    assert seqs_of(without(runs, others)) == one - other
    assert seqs_of(common(runs, others)) == one & other


@given(sets, st.integers(0, 50))
def test_the_first_seqs(seqs: set[int], count: int) -> None:
    assert seqs_of(first_seqs(runs_of(sorted(seqs)), count)) == set(sorted(seqs)[:count])
