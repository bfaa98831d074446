"""PendingAcks lists the unacked seqs in order, however they were added, taken and paged out."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from leveret.core.entry import SEQ
from leveret.queue_backing.variable.pending_acks import PendingAcks

SEQS = st.integers(0, 40)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sets(SEQS, min_size=1)),
        st.tuples(st.just("take"), st.sets(SEQS)),
        st.tuples(st.just("page out"), st.integers(0, 8)),
        st.tuples(st.just("put back"), st.integers(0, 8)),
    )
)


def entry(seq: int) -> tuple[Any, ...]:
    return seq, None, 0, False, seq, 1, False, False


# No message with content is left, and the last ones were not sorted.
@example([("add", {1, 2}), ("add", {0}), ("page out", 1), ("take", {0, 1}), ("page out", 1)], 0)
@given(STEPS, SEQS)
def test_the_seqs_from_one_on_ascend_and_none_is_missing(
    steps: list[tuple[str, Any]], low: int
) -> None:
    pending, unacked = PendingAcks(), set[int]()
    for step, argument in steps:
        if step == "add":
            seqs = sorted(argument - unacked)
            unacked.update(seqs)
            if len(seqs) == 1:
                pending.add_one(seqs[0], entry(seqs[0]), 1)
            elif seqs:
                pending.add(seqs, map(entry, seqs), len(seqs))
        elif step == "take":
            assert {each[SEQ] for each in pending.take(sorted(argument))} == argument & unacked
            unacked -= argument
        else:
            youngest = pending.take_youngest(argument)
            if step == "put back":
                pending.put_back(youngest)
            else:
                pending.add_on_disk(youngest, 0)
    assert pending.seqs_from(low) == sorted(seq for seq in unacked if seq >= low)
