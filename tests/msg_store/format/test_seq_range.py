"""Ranges of seqs but for some, compared with sets."""

from __future__ import annotations

import random
from itertools import pairwise

from leveret.msg_store.format.seq_range import SeqRange


def test_a_range_is_its_seqs_but_for_those_that_are_kept(rng: random.Random) -> None:
    for _ in range(200):
        low, high = sorted(rng.sample(range(40), 2))
        kept = sorted(rng.sample(range(low, 45), rng.randint(0, 45 - low)))
        seqs = SeqRange(low, high, kept)
        expected = set(range(low, high)).difference(kept)

        assert {seq for seq in range(50) if seq in seqs} == expected
        runs = [range(first, last + 1) for first, last in seqs.runs()]
        assert [seq for run in runs for seq in run] == sorted(expected)
        assert all(after.start > run.stop for run, after in pairwise(runs))
        for seq in range(low, high + 1):
            found = seqs.first_from(seq)
            assert min(found, high) == min([each for each in expected if each >= seq], default=high)
        for seq in expected:
            end = seqs.end_from(seq)
            assert end not in expected
            assert expected.issuperset(range(seq, end))


def test_a_stretch_of_kept_seqs_is_passed_by_a_search() -> None:
    class Counted(list[int]):
        looks = 0

        def __getitem__(self, at: int) -> int:  # type: ignore[override]
            Counted.looks += 1
            return super().__getitem__(at)

    seqs = SeqRange(0, 1_000_000, Counted(range(1, 100_000)))

    assert seqs.first_from(1) == 100_000
    assert Counted.looks < 100
