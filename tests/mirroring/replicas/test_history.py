"""Where the messages of two replicas part."""

from __future__ import annotations

import pytest

from leveret.mirroring.replicas.history import EpochStart, History, continued, parting


def history(*starts: tuple[int, int]) -> History:
    return tuple(EpochStart(*each) for each in starts)


@pytest.mark.parametrize(
    ("one", "one_end", "other", "other_end", "expected"),
    [
        ([], 0, [(1, 0)], 9, 0),
        ([(1, 0)], 9, [(1, 0)], 9, 9),
        ([(1, 0)], 7, [(1, 0)], 9, 7),
        ([(1, 0)], 9, [(1, 0), (2, 6)], 8, 6),  # 6 to 8 are others of epoch 1
        ([(1, 0), (2, 5)], 9, [(1, 0), (3, 7)], 10, 5),
        ([(1, 0), (2, 5), (3, 7)], 8, [(1, 0), (2, 5), (3, 7), (4, 9)], 12, 8),
        ([(2, 0)], 4, [(1, 0), (3, 3)], 8, 0),
        ([(1, 0), (3, 5)], 9, [(2, 0), (3, 5)], 7, 7),
    ],
)
def test_replicas_part_where_the_last_common_epoch_ends_first(
    one: list[tuple[int, int]],
    one_end: int,
    other: list[tuple[int, int]],
    other_end: int,
    expected: int,
) -> None:
    assert parting(history(*one), one_end, history(*other), other_end) == expected
    assert parting(history(*other), other_end, history(*one), one_end) == expected


def test_an_epoch_without_a_seq_leaves_no_trace() -> None:
    assert continued(history((1, 0), (2, 5)), 3, 5) == history((1, 0), (3, 5))
    assert continued(history((1, 0), (2, 5)), 3, 6) == history((1, 0), (2, 5), (3, 6))
