"""Topic exchanges: the matrix recorded from RabbitMQ 3.10.8, and the trie against a plain matcher."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.routing import topic
from leveret.routing.bindings import QUEUE, Binding, identity_of
from leveret.routing.topic import TopicMatcher

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
    found: dict[object, object] = {}
    matcher.match(routing_keys, None, found)
    return set(found)


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
    assert matcher._root.is_bare is (not left)


steps = st.lists(
    st.one_of(st.tuples(st.just("toggle"), patterns), st.tuples(st.just("match"), keys))
)


@pytest.mark.parametrize("room", [1, 8, topic.STATES_ROOM])
@given(steps)
def test_what_is_remembered_of_earlier_keys_never_shows(
    room: int, each: list[tuple[str, bytes]]
) -> None:
    with mock.patch.object(topic, "STATES_ROOM", room):
        matcher, bound = TopicMatcher(), set()
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


def test_states_are_forgotten_when_they_have_become_too_many() -> None:
    matcher = TopicMatcher()
    for number in range(300):
        matcher.add(binding(b"a.%d.#" % number, number))

    with mock.patch.object(topic, "STATES_ROOM", 500):
        matcher.add(binding(b"#", "all"))
        sizes = []
        for number in range(300):
            assert matched(matcher, b"a.%d.b" % number) == {number, "all"}
            sizes.append(len(matcher._states))

    assert max(sizes) < 250
    assert sizes != sorted(sizes)


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
