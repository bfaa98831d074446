"""Random exchanges: even shares, also with fixed seeds and while queues are deleted."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from leveret.routing.bindings import QUEUE, Binding, identity_of
from leveret.routing.random_choice import RandomMatcher
from leveret.routing.work import NEEDS_WALK

MESSAGES = 20_000


@pytest.fixture
def matcher(monkeypatch: pytest.MonkeyPatch) -> RandomMatcher:
    monkeypatch.setattr(RandomMatcher, "random", Random(20_221))
    return RandomMatcher({})


def bound(matcher: RandomMatcher, queue: str, key: bytes = b"") -> Binding:
    binding = Binding("x", identity_of(QUEUE, queue, key, {}), queue)
    matcher.add(binding)
    return binding


def shares(matcher: RandomMatcher, messages: int = MESSAGES) -> Counter[object]:
    counts: Counter[object] = Counter()
    for _ in range(messages):
        found: dict[object, None] = {}
        if matcher.match([b"same key"], None, found) == NEEDS_WALK:
            for _ in matcher.walk([b"same key"], None, found):
                pass
        counts.update(found.keys())
    return counts


def test_equal_messages_go_to_all_queues_evenly(matcher: RandomMatcher) -> None:
    for number in range(4):
        bound(matcher, f"q{number}")

    counts = shares(matcher)

    assert counts.total() == MESSAGES
    assert all(abs(counts[f"q{number}"] - 5_000) < 250 for number in range(4))
    assert matcher.per_message
    assert matcher.uses_headers


def test_each_binding_counts(matcher: RandomMatcher) -> None:
    bound(matcher, "a")
    bound(matcher, "a", b"again")
    bound(matcher, "b")

    assert abs(shares(matcher)["b"] - MESSAGES / 3) < 350


def test_removed_bindings_get_nothing(matcher: RandomMatcher) -> None:
    bindings = [bound(matcher, f"q{number}") for number in range(10)]
    for number in (0, 9, 4, 5):
        matcher.remove(bindings[number])

    assert set(shares(matcher)) == {"q1", "q2", "q3", "q6", "q7", "q8"}

    for number in (1, 2, 3, 6, 7, 8):
        matcher.remove(bindings[number])
    assert not shares(matcher, 10)


def test_a_leaving_queue_is_not_chosen(matcher: RandomMatcher) -> None:
    for number in range(200):
        bound(matcher, "leaving", b"%d" % number)
    bound(matcher, "a")
    bound(matcher, "b")
    matcher.leaving = {"leaving"}

    counts = shares(matcher, 1_000)

    assert set(counts) == {"a", "b"}
    assert counts.total() == 1_000

    matcher.leaving = {"leaving", "a", "b"}
    assert not shares(matcher, 10)


def test_a_walk_through_many_leaving_bindings_is_cut(matcher: RandomMatcher) -> None:
    for number in range(10_000):
        bound(matcher, "leaving", b"%d" % number)
    matcher.leaving = {"leaving"}

    assert matcher.match([b""], None, {}) == NEEDS_WALK
    assert max(matcher.walk([b""], None, {})) <= 2_000
