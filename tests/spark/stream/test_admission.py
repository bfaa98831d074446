"""Limits, cuts and partitions, as tables; offsets as Spark keeps them.

Tests: spark/stream/offsets.py
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.msg_store.archive.archive import (
    ArchivedQueue,
    Freed,
    Position,
    Retention,
)
from leveret.msg_store.archive.archive_file import ArchiveContents
from leveret.spark.errors import OptionError
from leveret.spark.stream import admission
from leveret.spark.stream.admission import Limit, Meter, cut, packed, room_of, shares
from leveret.spark.stream.losses import is_lost, losses
from leveret.spark.stream.offsets import Range, StoreOffset, decoded, encoded

SHARES = [
    (Limit(10), {"a": 100, "b": 100}, {"a": Limit(5), "b": Limit(5)}),
    (Limit(10), {"a": 999, "b": 1}, {"a": Limit(9), "b": Limit(1)}),
    (Limit(10, 1_000), {"a": 100, "b": 0}, {"a": Limit(10, 1_000)}),
    (Limit(None, 7), {"a": 1, "b": 2}, {"a": Limit(None, 2), "b": Limit(None, 4)}),
    (Limit(1), {"a": 1, "b": 1}, {"a": Limit(1), "b": Limit(1)}),
    (Limit(1), {}, {}),
]


@pytest.mark.parametrize(("limit", "unread", "expected"), SHARES)
def test_a_limit_is_divided_by_unread_bytes(
    limit: Limit, unread: dict[str, int], expected: dict[str, Limit]
) -> None:
    assert shares(limit, unread) == expected


METERED = [  # limit, rows and lengths of records, how many are taken
    (Limit(3), [1, 1, 1, 1], [5, 5, 5, 5], 3),
    (Limit(3), [2, 2, 2], [5, 5, 5], 1),
    (Limit(3), [5, 1], [5, 5], 1),
    (Limit(3), [0, 0, 5, 0, 1], [5, 5, 5, 5, 5], 3),
    (Limit(3), [0, 0, 3, 0, 1], [5, 5, 5, 5, 5], 4),
    (Limit(3), [0, 0, 0], [5, 5, 5], 3),
    (Limit(None, 10), [1, 1, 1], [5, 5, 5], 2),
    (Limit(None, 10), [2, 1], [5, 5], 1),
    (Limit(None, 10), [1, 1], [50, 5], 1),
    (Limit(2, 100), [1, 1, 1], [5, 5, 5], 2),
]


@pytest.mark.parametrize(("limit", "rows", "lengths", "taken"), METERED)
def test_records_are_taken_up_to_the_limit_and_one_at_least(
    limit: Limit, rows: list[int], lengths: list[int], taken: int
) -> None:
    assert Meter(limit).take(np.array(rows), np.array(lengths)) == taken


@pytest.mark.parametrize("at_once", [1, 2, 3])
@pytest.mark.parametrize(("limit", "rows", "lengths", "taken"), METERED)
def test_records_in_pieces_are_taken_as_at_once(
    limit: Limit, rows: list[int], lengths: list[int], taken: int, at_once: int
) -> None:
    meter, total = Meter(limit), 0
    for first in range(0, len(rows), at_once):
        some = np.array(rows[first : first + at_once]), np.array(lengths[first : first + at_once])
        count = meter.take(*some)
        total += count
        if count < len(some[0]):
            break

    assert total == taken


def test_other_queues_are_passed_over_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "PASSED_BYTES_MAX", 20)
    meter = Meter(Limit(100))
    meter.take(np.array([1, 0, 0]), np.array([50, 9, 9]))
    assert not meter.is_far
    meter.take(np.array([0]), np.array([9]))
    assert meter.is_far


RANGES = (Range(1, 64, 100), Range(3, 64, 200), Range(4, 64, 90))


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (Position(5, 0), RANGES),
        (Position(4, 90), RANGES),
        (Position(4, 64), RANGES[:2]),
        (Position(3, 150), (RANGES[0], Range(3, 64, 150))),
        (Position(2, 500), RANGES[:1]),
        (Position(1, 64), ()),
    ],
)
def test_ranges_are_cut_at_a_position(end: Position, expected: tuple[Range, ...]) -> None:
    assert cut(RANGES, end) == expected


@given(
    sizes=st.lists(st.integers(1, 1_000), max_size=30),
    partition_bytes=st.integers(1, 3_000),
    count_min=st.integers(1, 40),
)
def test_partitions_have_everything_in_order_and_are_of_equal_size(
    sizes: list[int], partition_bytes: int, count_min: int
) -> None:
    room = room_of(sizes, partition_bytes, count_min)
    made = packed(sizes, room)

    assert [place for each in made for place in each] == list(range(len(sizes)))
    assert all(made)
    for each in made:
        assert len(each) == 1 or sum(sizes[place] for place in each) < room + max(sizes)


offsets = st.dictionaries(
    st.sampled_from(["aa", "bb", "cc"]),
    st.builds(
        StoreOffset,
        st.builds(Position, st.integers(0, 1 << 32), st.integers(0, 1 << 32)),
        st.integers(0, 1 << 40),
        st.dictionaries(st.integers(1, 1 << 32), st.text(), max_size=3),
        st.lists(st.integers(1, 99), unique=True, max_size=3).map(
            lambda numbers: tuple(Range(number, 64, 64 + number) for number in sorted(numbers))
        ),
    ),
)


@given(given_offsets=offsets)
def test_offsets_are_the_same_text_after_spark_has_kept_them(
    given_offsets: dict[str, StoreOffset],
) -> None:
    text = json.dumps(encoded(given_offsets))

    assert decoded(json.loads(text)) == given_offsets
    assert json.dumps(encoded(decoded(json.loads(text)))) == text


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"byte": 5},
        {"segment": "x"},
        {"segment": 1, "ranges": {"1": "64"}},
        {"segment": 1, "queues": 5},
    ],
)
def test_offsets_of_another_form_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(OptionError, match=r"offset of store aa is .* it must be as"):
        decoded({"aa": fields})


def contents(
    freed: Freed | None = None,
    since: tuple[int, int] = (1, 0),
    watermark: tuple[int, int] = (9, 500),
    begun: int = 1,
) -> ArchiveContents:
    queue = ArchivedQueue("q", (7,), Retention(1), Position(*since), 1, freed)
    end = Position(*watermark)
    return ArchiveContents(bytes(16), "/", 1, end, 1, begun, 5, {}, {}, [queue])


AT = StoreOffset(Position(4, 100), 3, {7: "q"})
LOSSES = [
    (contents(), AT, ""),
    (contents(Freed(4, 100, 4)), AT, ""),
    (contents(Freed(3, 999, 4)), AT, ""),
    (contents(Freed(4, 101, 4)), AT, "queue 'q' behind 00000004:100 were freed"),
    (contents(Freed(6, 80, 5)), AT, "segment 00000006 is gone"),
    (contents(Freed(6, 80, 3)), AT, ""),  # before the offset was made
    (contents(since=(4, 101)), AT, "queue 'q' was not archived from 00000004:100 to 00000004:101"),
    (contents(since=(5, 0)), StoreOffset(Position(4, 100)), ""),
    (contents(begun=5), AT, "its archive begins with segment 00000005"),
    (contents(watermark=(4, 99)), AT, "it was restored from an older state"),
    (contents(), StoreOffset(Position(4, 100), 3, {8: "r"}), "queue 'r' is not archived any more"),
    (None, AT, "no queue of it is archived any more"),
]  # fmt: skip


@pytest.mark.parametrize(("now", "start", "expected"), LOSSES)
def test_losses_are_told_from_what_archive_json_says(
    now: ArchiveContents | None, start: StoreOffset, expected: str
) -> None:
    found = list(losses(now, now.queues if now else (), start))

    assert len(found) == bool(expected)
    assert expected in "".join(found)


@pytest.mark.parametrize(
    ("now", "queues", "expected"),
    [
        (contents(), {7: "q"}, False),
        (contents(Freed(4, 100, 1)), {7: "q"}, False),
        (contents(Freed(4, 101, 1)), {7: "q"}, True),
        (contents(), {8: "r"}, True),
        (contents(begun=5), {7: "q"}, True),
        (None, {7: "q"}, True),
        (contents(Freed(9, 0, 1)), {}, False),
    ],
)
def test_a_segment_that_is_gone_is_a_loss_if_it_may_have_had_records(
    now: ArchiveContents | None, queues: dict[int, str], expected: bool
) -> None:
    assert is_lost(now, queues, 4, 100) == expected
