"""Topic exchanges: the matrix recorded from RabbitMQ 3.10.8, and the trie against a plain matcher.

Tests: routing/topic_trie.py, routing/topic_positions.py
"""

from __future__ import annotations

import gc
from random import Random
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.core.limits import TOPIC_STATES_MAX
from leveret.routing import topic_positions, topic_trie
from leveret.routing.bindings import QUEUE, Binding, identity_of
from leveret.routing.topic import TopicMatcher
from leveret.routing.topic_trie import REFUSALS, StatesRoom, folded
from leveret.routing.work import NEEDS_WALK, WALK_STEP_WORK

PATTERNS = [
    "", "#", "*", "*.*", "a.#", "#.b", "a.*.b", "a..b", "*..*", ".#", "#.#", "a.#.b", "*.#", "#.*",
    "a*", "a", ".", "*.",
]  # fmt: skip

MATRIX = {
    "": ["", "#", "#.#"],
    "a": ["#", "*", "a.#", "#.#", "*.#", "#.*", "a"],
    "a.b": ["#", "*.*", "a.#", "#.b", "#.#", "a.#.b", "*.#", "#.*"],
    "a..b": ["#", "a.#", "#.b", "a.*.b", "a..b", "*..*", "#.#", "a.#.b", "*.#", "#.*"],
    ".": ["#", "*.*", ".#", "#.#", "*.#", "#.*", ".", "*."],
    "a.": ["#", "*.*", "a.#", "#.#", "*.#", "#.*", "*."],
    ".b": ["#", "*.*", "#.b", ".#", "#.#", "*.#", "#.*"],
    "a.x.b": ["#", "a.#", "#.b", "a.*.b", "#.#", "a.#.b", "*.#", "#.*"],
    "a*": ["#", "*", "#.#", "*.#", "#.*", "a*"],
    "..": ["#", "*..*", ".#", "#.#", "*.#", "#.*"],
    "a.x.y.b": ["#", "a.#", "#.b", "#.#", "a.#.b", "*.#", "#.*"],
}

words = st.sampled_from([b"", b"a", b"b", b"*", b"#", b"a*"])
keys = st.lists(words, max_size=6).map(b".".join)
patterns = st.lists(st.sampled_from([b"", b"a", b"b", b"*", b"#", b"#"]), max_size=6).map(b".".join)


def binding(pattern: bytes, target: object, name: str = "q") -> Binding:
    return Binding("x", identity_of(QUEUE, name, pattern, {}), target)


def matched(matcher: TopicMatcher, *routing_keys: bytes) -> set[object]:
    """Return the targets; a match that is not too long finds what a walk finds."""
    found: dict[object, object] = {}
    walked: dict[object, object] = {}
    looked = matcher.match(routing_keys, None, found)
    for _ in matcher.walk(routing_keys, None, walked):
        pass
    assert looked == NEEDS_WALK or set(found) == set(walked)
    return set(walked)


def matches(pattern: list[bytes], key: list[bytes]) -> bool:
    """Say the same as the trie in the plainest way."""
    if not pattern:
        return not key
    if pattern[0] == b"#":
        return any(matches(pattern[1:], key[skip:]) for skip in range(len(key) + 1))
    return bool(key) and pattern[0] in (b"*", key[0]) and matches(pattern[1:], key[1:])


def split(key: bytes) -> list[bytes]:
    return key.split(b".") if key else []


@pytest.mark.parametrize("key", MATRIX)
def test_a_key_matches_the_patterns_that_rabbitmq_matches(key: str) -> None:
    matcher = TopicMatcher()
    for pattern in PATTERNS:
        matcher.add(binding(pattern.encode(), pattern))

    assert matched(matcher, key.encode()) == set(MATRIX[key])


@given(st.lists(patterns, max_size=12, unique=True), keys)
def test_the_trie_says_what_a_plain_matcher_says(bound: list[bytes], key: bytes) -> None:
    matcher = TopicMatcher()
    for pattern in bound:
        matcher.add(binding(pattern, pattern))

    assert matched(matcher, key) == {p for p in bound if matches(split(p), split(key))}


@given(st.lists(patterns, min_size=1, max_size=12, unique=True), st.data())
def test_a_trie_with_branches_cut_off_is_as_if_they_had_never_grown(
    bound: list[bytes], data: st.DataObject
) -> None:
    gone = data.draw(st.lists(st.sampled_from(bound), unique=True))
    key = data.draw(keys)
    matcher = TopicMatcher()
    bindings = {pattern: binding(pattern, pattern) for pattern in bound}
    for each in bindings.values():
        matcher.add(each)

    for pattern in gone:
        matcher.remove(bindings[pattern])

    left = set(bound) - set(gone)
    assert matched(matcher, key) == {p for p in left if matches(split(p), split(key))}
    assert matcher.trie.root.is_bare is (not left)


steps = st.lists(
    st.one_of(st.tuples(st.just("toggle"), patterns), st.tuples(st.just("match"), keys))
)


@given(patterns, keys)
def test_a_folded_pattern_means_the_same(pattern: bytes, key: bytes) -> None:
    words_ = folded(split(pattern))

    assert matches(words_, split(key)) == matches(split(pattern), split(key))
    assert folded(words_) == words_


def test_patterns_of_equal_meaning_share_their_nodes() -> None:
    matcher = TopicMatcher()
    spellings = [b"a.#.*.#.b", b"a.*.#.b", b"a.#.*.b", b"a.#.#.*.b", b"a.*.#.#.b"]
    for pattern in spellings:
        matcher.add(binding(pattern, pattern))
    (a,) = matcher.trie.root.children.values()
    assert a.one_word is not None
    assert a.any_words is None
    assert a.one_word.any_words is not None
    assert matched(matcher, b"a.x.y.b") == set(spellings)

    for pattern in spellings[1:]:
        matcher.remove(binding(pattern, pattern))
    assert matched(matcher, b"a.x.y.b") == {spellings[0]}
    matcher.remove(binding(spellings[0], spellings[0]))
    assert matcher.trie.root.is_bare


@pytest.mark.parametrize("room", [1, 8, TOPIC_STATES_MAX])
@given(steps)
def test_what_is_remembered_of_earlier_keys_never_shows(
    room: int, each: list[tuple[str, bytes]]
) -> None:
    matcher, bound = TopicMatcher(), set()
    matcher.share(StatesRoom(room))
    for step, words_ in each:
        if step == "match":
            expected = {p for p in bound if matches(split(p), split(words_))}
            assert matched(matcher, words_) == expected
        elif words_ in bound:
            matcher.remove(binding(words_, words_))
            bound.remove(words_)
        else:
            matcher.add(binding(words_, words_))
            bound.add(words_)
    matcher.trie.forget_states()
    assert matcher.trie.room.left == room


def test_states_are_kept_while_there_is_room_and_forgotten_when_there_was_none_for_long() -> None:
    matcher = TopicMatcher()
    for number in range(300):
        matcher.add(binding(b"a.%d.#" % number, number))

    matcher.share(StatesRoom(500))
    matcher.add(binding(b"#", "all"))
    sizes = []
    for number in [*range(300)] * 8:
        assert matched(matcher, b"a.%d.b" % number) == {number, "all"}
        sizes.append(matcher.trie.states)
        assert matcher.trie.room.left >= 0

    most = max(sizes)
    assert 50 < most < 250
    full = sizes.index(most)
    assert sizes[full : full + 50] == [most] * 50
    assert sizes != sorted(sizes)


def test_forgotten_states_and_their_nodes_are_freed_without_a_collection() -> None:
    """States lead to each other, and a full collection does not come by itself."""

    def kept() -> int:
        kinds = topic_trie.Node, topic_trie._State
        return sum(type(each) in kinds for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = kept()
        matcher = TopicMatcher()
        bound = [binding(b"a.#.%d" % number, number) for number in range(50)]
        for each in bound:
            matcher.add(each)
        for number in range(50):
            matched(matcher, b"a.b.c.%d" % number, b"b.%d.c.d" % number)
        assert matcher.trie.states > 50
        for each in bound:
            matcher.remove(each)
        del matcher, bound, each
        left = kept() - before
    finally:
        gc.enable()

    assert not left


def test_the_exchanges_of_a_vhost_share_the_room_for_states() -> None:
    room = StatesRoom(500)
    matchers = [TopicMatcher() for _ in range(300)]
    for matcher in matchers:
        matcher.share(room)
        matcher.add(binding(b"a.#", "q"))
    for matcher in matchers:
        assert matched(matcher, b"a.b.c") == {"q"}
        assert room.left >= 0

    assert sum(matcher.trie.states for matcher in matchers) < 250
    for _ in range(REFUSALS * 500):
        assert matched(matchers[-1], b"a.b.c") == {"q"}
    assert matchers[-1].trie.states, "the others have forgotten theirs for it"


@given(
    st.lists(patterns, max_size=12, unique=True),
    st.lists(keys, min_size=1, max_size=3),
    st.lists(st.one_of(st.none(), patterns), max_size=12),
    st.integers(1, 4),
    st.integers(1, 8),
)
def test_a_walk_in_slices_finds_what_is_bound_from_its_beginning_to_its_end(
    bound: list[bytes],
    routing_keys: list[bytes],
    changes: list[bytes | None],
    slice_: int,
    nodes_kept: int,
) -> None:
    """Between slices patterns come and go; ``None`` is a slice without a change before it."""
    matcher, now = TopicMatcher(), set(bound)
    for pattern in bound:
        matcher.add(binding(pattern, pattern))
    always, ever = set(bound), set(bound)
    found: dict[object, object] = {}
    with (
        mock.patch.object(topic_trie, "WALK_STEP_WORK", slice_),
        mock.patch.object(topic_positions, "WALK_STEP_WORK", slice_),
        mock.patch.object(topic_positions, "_SLICE", slice_),
        mock.patch.object(topic_trie, "STATE_NODES", nodes_kept),
    ):
        walk = matcher.walk(routing_keys, None, found)
        left = iter(changes)
        for _ in walk:
            pattern = next(left, None)
            if pattern is not None and pattern in now:
                matcher.remove(binding(pattern, pattern))
                now.remove(pattern)
                always.discard(pattern)
            elif pattern is not None:
                matcher.add(binding(pattern, pattern))
                now.add(pattern)
                ever.add(pattern)
        assert set(found) >= {
            p for p in always for key in routing_keys if matches(split(p), split(key))
        }
        assert set(found) <= {
            p for p in ever for key in routing_keys if matches(split(p), split(key))
        }
        everything = {p for p in now for key in routing_keys if matches(split(p), split(key))}
        assert matched(matcher, *routing_keys) == everything


def test_a_message_of_many_keys_for_patterns_of_many_hashes_costs_little_more_than_their_words() -> (
    None
):
    matcher, random = TopicMatcher(), Random(1)
    for number in range(300):
        words_ = [random.choice([b"#.a", b"#.b"]) for _ in range(60)]
        matcher.add(binding(b".".join([*words_, b"#.z"]), number))
    routing_keys = [b".".join(random.choices([b"a", b"b"], k=120)) for _ in range(30)]

    first = list(matcher.walk(routing_keys, None, {}))
    again = list(matcher.walk([*routing_keys, b"a.b." * 60 + b"z"], None, found := {}))

    assert max(first) <= WALK_STEP_WORK + 2 * topic_trie.STATE_NODES
    assert sum(first) < 1_500_000, (
        "with each of 36,000 nodes at each of 120 words it were 130 million for each key"
    )
    assert sum(again) < 500_000
    assert found.keys() == set(range(300))


def test_patterns_made_to_keep_many_nodes_live_are_walked_in_slices_and_counted() -> None:
    matcher = TopicMatcher()
    for number in range(2_048):
        ways = [b"a.#" if bit == "0" else b"*.a.#" for bit in f"{number:011b}"]
        matcher.add(binding(b"#." + b".".join(ways) + b".b", number))
    key = b".".join([b"a"] * 127)

    assert matcher.match([key], None, {}) == NEEDS_WALK
    slices = list(matcher.walk([key, b"a." * 11 + b"b"], None, found := {}))
    assert max(slices) <= WALK_STEP_WORK + 2 * topic_trie.STATE_NODES
    assert sum(slices) > 80 * 2_048
    assert set(found) == {0}
    again = list(matcher.walk([key], None, {}))  # all patterns are side by side by now
    assert sum(again) > 127 * 50, "each word of the key costs the length of all patterns"


def test_a_target_bound_twice_to_one_pattern_stays_until_both_are_gone() -> None:
    matcher = TopicMatcher()
    first, second = binding(b"a.#", "q"), binding(b"a.#", "q")
    matcher.add(first)
    matcher.add(second)

    matcher.remove(first)
    assert matched(matcher, b"a.b") == {"q"}

    matcher.remove(second)
    assert matched(matcher, b"a.b") == set()


def test_all_keys_of_a_message_are_matched() -> None:
    matcher = TopicMatcher()
    matcher.add(binding(b"a", "q1"))
    matcher.add(binding(b"b.*", "q2"))

    assert matched(matcher, b"a", b"b.c") == {"q1", "q2"}


def test_many_hashes_against_a_long_key_stay_cheap() -> None:
    matcher = TopicMatcher()
    matcher.add(binding(b".".join([b"#", b"a"] * 60), "q"))  # hopeless for a backtracking matcher

    assert matched(matcher, b".".join([b"a"] * 127)) == {"q"}
    assert matched(matcher, b".".join([b"a"] * 126 + [b"b"])) == set()
