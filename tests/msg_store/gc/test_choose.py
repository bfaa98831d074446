"""Which segments the collector merges: tables, and a model that merges until nothing is left to do."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.msg_store.format.file_header import HEADER_BYTES
from leveret.msg_store.format.pins import Pins
from leveret.msg_store.gc.choose import ChoiceLimits, choose, dead

LIMIT = 1000
LIMITS = ChoiceLimits(file_bytes=LIMIT, sources_max=4, small_files_max=4, small_sources_max=6)


@dataclass(frozen=True)
class State:
    valid_bytes: int
    size_bytes: int
    is_sealed: bool = True


def states(*valid_and_payload: tuple[int, int]) -> dict[int, State]:
    return {
        file_no: State(valid, payload + HEADER_BYTES)
        for file_no, (valid, payload) in enumerate(valid_and_payload, 1)
    }


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        ([], []),
        ([(0, 1000), (0, 1000), (0, 1000)], []),  # unlinked as they are
        ([(100, 1000), (100, 1000)], []),  # not more than two files' worth
        ([(100, 1000), (100, 1000), (100, 1000)], [1, 2, 3]),
        ([(500, 1000), (500, 1000), (500, 1000)], []),  # half, not more
        ([(1000, 1000), (100, 1000), (100, 1000)], [2, 3]),
        ([(1000, 1000), (100, 1000), (0, 1000), (100, 1000)], [2, 4]),  # the dead do not part them
        ([(400, 1000), (100, 1000), (499, 1000), (490, 1000)], [1, 2, 3]),  # then it is full
        ([(400, 1000), (100, 1000), (499, 1000), (501, 1000)], [1, 2, 3]),
        ([(499, 1000), (490, 1000), (498, 1000)], [2, 3]),  # the lesser neighbour, then no room
        ([(1, 1000)] * 8, [1, 2, 3, 4]),
        ([(1400, 3000), (10, 300)], [2]),  # nothing goes with the large one
        ([(100, 100)] * 4, []),
        ([(100, 100)] * 5, [1, 2, 3, 4, 5]),
        ([(100, 100)] * 9, [1, 2, 3, 4, 5, 6]),
        ([(126, 126)] * 5, []),  # above an eighth of the limit
    ],
)
def test_chosen(files: list[tuple[int, int]], chosen: list[int]) -> None:
    assert choose(states(*files), (), LIMITS) == chosen


def test_what_is_open_or_taken_does_not_count() -> None:
    files = states((100, 1000), (100, 1000), (100, 1000), (100, 1000))

    assert choose(files, {2}, LIMITS) == [1, 3, 4]
    assert choose(files, {2, 3}, LIMITS) == []
    assert choose(files | {1: State(100, 1064, is_sealed=False)}, (), LIMITS) == [2, 3, 4]


def test_segments_in_which_nothing_is_needed_are_dead_unless_open_or_taken() -> None:
    files = states((0, 1000), (1, 1000), (0, 0), (0, 5)) | {9: State(0, 64, is_sealed=False)}

    assert dead(files, {4}) == [1, 3]


@given(
    files=st.lists(st.tuples(st.integers(0, 1200), st.integers(0, 1200)), max_size=40),
    taken=st.sets(st.integers(1, 40), max_size=5),
)
def test_merging_ends_with_little_garbage_and_few_small_files(
    files: list[tuple[int, int]], taken: set[int]
) -> None:
    state = states(*[(min(pair), max(pair)) for pair in files])
    before = sum(each.valid_bytes for each in state.values())
    merges = 0
    while chosen := choose(state, taken, LIMITS):
        merged = [state.pop(file_no) for file_no in chosen]
        assert chosen == sorted(chosen)
        assert taken.isdisjoint(chosen)
        valid = sum(each.valid_bytes for each in merged)
        assert valid <= LIMIT or len(merged) == 1
        assert valid + HEADER_BYTES < sum(each.size_bytes for each in merged)  # it frees something
        state[max([*state, *chosen, 40]) + 1] = State(valid, valid + HEADER_BYTES)
        merges += 1
    assert merges <= 2 * len(files)

    assert sum(each.valid_bytes for each in state.values()) == before
    rest = [each for no, each in state.items() if no not in taken and each.valid_bytes]
    payload = sum(each.size_bytes - HEADER_BYTES for each in rest)
    assert payload <= 2 * LIMIT or 2 * sum(each.valid_bytes for each in rest) >= payload
    small = [each for each in rest if each.size_bytes - HEADER_BYTES <= LIMITS.small_bytes]
    assert len(small) <= LIMITS.small_files_max


def test_a_pinned_segment_is_taken_until_its_last_pin_is_gone() -> None:
    freed: list[str] = []
    pins = Pins(lambda: freed.append("freed"))
    files = states((100, 1000), (0, 1000), (100, 1000), (100, 1000))

    pins.pin([1, 2])
    pins.pin([1])
    assert (choose(files, pins, LIMITS), dead(files, pins)) == ([], [])

    pins.unpin([1])
    assert freed == []
    pins.unpin([1, 2])
    assert freed == ["freed"]
    assert len(pins) == 0
    assert (choose(files, pins, LIMITS), dead(files, pins)) == ([1, 3, 4], [2])


def test_a_pin_that_is_not_there_cannot_be_taken_back() -> None:
    pins = Pins()
    pins.pin([1])

    with pytest.raises(ValueError, match="00000001 is not pinned so often"):
        pins.unpin([1, 1])

    assert 1 in pins
