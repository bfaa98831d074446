"""A dict in segments, against a plain one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from leveret.core.segmented_dict import SEGMENT_KEYS, SegmentedDict, grown, those_in

NUMBERS = st.one_of(
    st.integers(0, 5),
    st.integers(-2, 2).map(lambda near: SEGMENT_KEYS + near),
    st.integers(-2, 2).map(lambda near: 5 * SEGMENT_KEYS + near),
)


class SegmentedAndPlain(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.plain: dict[int, Any] = {}
        self.segmented: SegmentedDict[Any] = SegmentedDict({})

    @rule(number=NUMBERS, value=st.integers())
    def put(self, number: int, value: int) -> None:
        self.plain[number] = self.segmented[number] = value

    @rule(items=st.dictionaries(NUMBERS, st.integers(), max_size=8))
    def put_all(self, items: dict[int, int]) -> None:
        self.plain.update(items)
        self.segmented.update(zip(items, items.values(), strict=True))

    @rule(number=NUMBERS)
    def pop(self, number: int) -> None:
        if number in self.plain:
            assert self.segmented.pop(number) == self.plain.pop(number)
        else:
            assert self.segmented.pop(number, None) is None
            with pytest.raises(KeyError):
                self.segmented.pop(number)

    @rule()
    def pop_the_last(self) -> None:
        if self.plain:
            last = max(number // SEGMENT_KEYS for number in list(self.segmented)[-1:])
            number, value = self.segmented.popitem()
            assert number // SEGMENT_KEYS == last
            assert self.plain.pop(number) == value
        else:
            with pytest.raises(KeyError):
                self.segmented.popitem()

    @rule()
    def clear(self) -> None:
        self.plain.clear()
        self.segmented.clear()

    @invariant()
    def they_have_the_same(self) -> None:
        assert len(self.segmented) == len(self.plain)
        assert bool(self.segmented) == bool(self.plain)
        assert dict(self.segmented.items()) == self.plain
        assert sorted(self.segmented.values()) == sorted(self.plain.values())
        asked = [*range(6), SEGMENT_KEYS, 5 * SEGMENT_KEYS + 1]
        assert those_in(self.segmented, asked) == those_in(self.plain, asked)
        assert those_in(self.plain, asked) == {each for each in asked if each in self.plain}
        for number in (0, 3, SEGMENT_KEYS, 5 * SEGMENT_KEYS + 2):
            assert (number in self.segmented) == (number in self.plain)
            assert self.segmented.get(number) == self.plain.get(number)


TestSegmentedAndPlain = SegmentedAndPlain.TestCase
TestSegmentedAndPlain.settings = settings(max_examples=60, stateful_step_count=30)


def test_numbers_that_are_added_ascending_are_ascending() -> None:
    numbers = range(3 * SEGMENT_KEYS)
    items = SegmentedDict(dict.fromkeys(numbers, 0))
    for number in range(0, 2 * SEGMENT_KEYS, 2):
        items.pop(number)
    assert list(items) == sorted(items)
    assert len(items) == 2 * SEGMENT_KEYS


def test_segments_are_given_up_when_they_are_empty() -> None:
    items = SegmentedDict(dict.fromkeys(range(2 * SEGMENT_KEYS), 0))
    for number in range(SEGMENT_KEYS + 1):
        del items[number]
    assert len(items._segments) == 1


def test_items_are_in_segments_while_there_are_many() -> None:
    few = dict.fromkeys(range(SEGMENT_KEYS), 0)
    assert grown(few) is few
    many = grown(dict.fromkeys(range(SEGMENT_KEYS + 1), 0))
    assert isinstance(many, SegmentedDict)
    while len(many) > 1:
        many.popitem()
    assert grown(many) is many
    many.popitem()
    assert type(grown(many)) is dict
