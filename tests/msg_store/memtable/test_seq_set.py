"""Acked seqs are a set, in whatever order and lengths they come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.msg_store.memtable.seq_set import SeqSet, is_run, runs_of

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
