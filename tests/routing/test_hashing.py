"""Hashing exchanges: where keys lead, how even the shares are, and what moves when bindings change."""

from __future__ import annotations

from collections import Counter

import pytest

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.properties import Examined, Properties, examine, head_of
from leveret.amqp.tables import Table
from leveret.routing import hashing
from leveret.routing.bindings import QUEUE, Binding, identity_of
from leveret.routing.hashing import ConsistentHashMatcher, ModulusHashMatcher
from leveret.routing.work import NEEDS_WALK

KEYS = [b"order.%d" % number for number in range(20_000)]


def binding(queue: str, key: bytes = b"1", arguments: Table | None = None) -> Binding:
    return Binding("x", identity_of(QUEUE, queue, key, arguments or {}), queue)


def consistent(*bound: tuple[str, bytes], arguments: Table | None = None) -> ConsistentHashMatcher:
    matcher = ConsistentHashMatcher(arguments or {})
    for queue, weight in bound:
        matcher.add(binding(queue, weight))
    return matcher


def modulus(*queues: str) -> ModulusHashMatcher:
    matcher = ModulusHashMatcher({})
    for queue in queues:
        matcher.add(binding(queue))
    return matcher


Hashing = ConsistentHashMatcher | ModulusHashMatcher


def target(matcher: Hashing, *keys: bytes, head: Examined | None = None) -> object:
    """Return where a message leads, after ``walk`` has led to the same."""
    found: dict[object, None] = {}
    walked: dict[object, None] = {}
    looked = matcher.match(keys, head, found)
    for _ in matcher.walk(keys, head, walked):
        pass
    assert looked == NEEDS_WALK or found == walked
    assert len(walked) <= 1
    return next(iter(walked), None)


def targets(matcher: Hashing) -> list[object]:
    return [target(matcher, key) for key in KEYS]


def head(**properties: object) -> Examined:
    return examine(head_of(Properties(**properties), 0))  # type: ignore[arg-type]


def chi_square(counts: Counter[object], shares: dict[str, float]) -> float:
    total = counts.total()
    return sum(
        (counts[name] - total * share) ** 2 / (total * share) for name, share in shares.items()
    )


@pytest.mark.parametrize(
    "weights",
    [
        {"a": 1},
        {"a": 1, "b": 1},
        {f"q{number}": 1 for number in range(10)},
        {"a": 1, "b": 2, "c": 5},
        {"a": 10, "b": 20, "c": 50, "d": 1},
    ],
)
def test_the_shares_are_those_of_the_weights(weights: dict[str, int]) -> None:
    matcher = consistent(*((name, b"%d" % weight) for name, weight in weights.items()))

    counts = Counter(targets(matcher))

    shares = {name: weight / sum(weights.values()) for name, weight in weights.items()}
    assert chi_square(counts, shares) < 30  # p < 0.001 for 9 degrees of freedom and fewer


def test_huge_weights_cost_nothing() -> None:
    matcher = consistent(("a", b"9" * 255), ("b", b"1"))

    assert Counter(targets(matcher)) == {"a": len(KEYS)}


def test_the_order_of_the_bindings_does_not_matter() -> None:
    bound = [(f"q{number}", b"%d" % (number % 3 + 1)) for number in range(7)]

    assert targets(consistent(*bound)) == targets(consistent(*reversed(bound)))


def test_a_new_destination_takes_keys_and_moves_no_other() -> None:
    bound = [(f"q{number}", b"2") for number in range(4)]
    before = targets(consistent(*bound))

    after = targets(consistent(*bound, ("new", b"2")))

    moved = [there for was, there in zip(before, after, strict=True) if was != there]
    assert set(moved) == {"new"}
    assert abs(len(moved) / len(KEYS) - 1 / 5) < 0.02


def test_the_keys_of_a_removed_destination_are_shared_out() -> None:
    matcher = consistent(*((f"q{number}", b"1") for number in range(5)))
    before = targets(matcher)
    matcher.remove(next(iter(matcher._bindings["q2"])))

    after = targets(matcher)

    pairs = list(zip(before, after, strict=True))
    assert all(was == there for was, there in pairs if was != "q2")
    heirs = Counter(there for was, there in pairs if was == "q2")
    assert chi_square(heirs, dict.fromkeys(["q0", "q1", "q3", "q4"], 0.25)) < 20


def test_a_destination_bound_twice_counts_once_with_its_oldest_weight() -> None:
    matcher = consistent(("a", b"1"), ("b", b"1"))
    again = binding("a", b"1000")
    once = targets(matcher)

    matcher.add(again)
    assert targets(matcher) == once

    matcher.remove(next(iter(matcher._bindings["a"])))
    assert Counter(targets(matcher))["a"] > 0.99 * len(KEYS)

    matcher.remove(again)
    assert set(targets(matcher)) == {"b"}


def test_an_exchange_without_bindings_leads_nowhere() -> None:
    assert target(consistent(), b"key") is None
    assert target(modulus(), b"key") is None


def test_the_first_of_several_keys_is_hashed() -> None:
    matcher = consistent(*((f"q{number}", b"1") for number in range(10)))

    for key in KEYS[:50]:
        assert target(matcher, key, b"cc") == target(matcher, key)


def test_a_header_is_hashed_with_its_type() -> None:
    matcher = consistent(
        *((f"q{number}", b"1") for number in range(50)),
        arguments={"hash-header": ("S", b"customer")},
    )
    assert matcher.uses_headers
    by_text = [
        target(matcher, b"k", head=head(headers={"customer": ("S", b"%d" % n)})) for n in range(99)
    ]
    again = [
        target(matcher, b"other", head=head(headers={"customer": ("S", b"%d" % n)}))
        for n in range(99)
    ]
    by_number = [
        target(matcher, b"k", head=head(headers={"customer": ("I", n)})) for n in range(99)
    ]

    assert by_text == again
    assert by_text != by_number
    assert len(set(by_text)) > 25


def test_messages_without_the_header_go_to_one_destination() -> None:
    matcher = consistent(
        *((f"q{number}", b"1") for number in range(50)), arguments={"hash-header": ("S", b"h")}
    )
    without = [None, head(), head(headers={}), head(headers={"other": ("I", 1)})]

    assert len({target(matcher, key, head=each) for each in without for key in KEYS[:9]}) == 1


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("correlation_id", [f"c{number}" for number in range(99)]),
        ("message_id", [f"m{number}" for number in range(99)]),
        ("timestamp", list(range(99))),
    ],
)
def test_a_property_is_hashed(name: str, values: list[object]) -> None:
    matcher = consistent(
        *((f"q{number}", b"1") for number in range(50)),
        arguments={"hash-property": ("S", name.encode())},
    )
    assert matcher.uses_headers

    found = [target(matcher, b"k", head=head(**{name: value})) for value in values]

    assert found == [target(matcher, b"x", head=head(**{name: value})) for value in values]
    assert len(set(found)) > 25
    assert target(matcher, b"k", head=head()) == target(matcher, b"k") is not None


def test_malformed_properties_count_as_absent() -> None:
    matcher = consistent(
        *((f"q{number}", b"1") for number in range(50)),
        arguments={"hash-property": ("S", b"timestamp")},
    )
    malformed = examine(head_of(Properties(message_id="m"), 0)[:-1] + b"mm")

    assert target(matcher, b"k", head=malformed) == target(matcher, b"k")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"hash-property": ("S", b"app_id")}, "Unsupported property: app_id"),
        (
            {"hash-property": ("S", b"message_id"), "hash-header": ("S", b"h")},
            "hash-header and hash-property are mutually exclusive",
        ),
        ({"hash-header": ("b", 1)}, "invalid type 'byte' for arg 'hash-header'"),
        ({"hash-property": ("I", 1)}, "invalid type 'signedint' for arg 'hash-property'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Table, text: str) -> None:
    with pytest.raises(PreconditionFailed, match=text):
        ConsistentHashMatcher(arguments)


@pytest.mark.parametrize("key", [b"1", b"10", b"+3", b"007"])
def test_whole_numbers_are_weights(key: bytes) -> None:
    ConsistentHashMatcher({}).check(key, {})


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"0", "The binding key must be greater than 0"),
        (b"-4", "The binding key must be greater than 0"),
        (b"", "The binding key must be an integer: <<>>"),
        (b"a", 'The binding key must be an integer: <<"a">>'),
        (b"1.5", 'The binding key must be an integer: <<"1.5">>'),
        (b" 1", 'The binding key must be an integer: <<" 1">>'),
        (b"1_0", 'The binding key must be an integer: <<"1_0">>'),
    ],
)
def test_other_weights_are_refused(key: bytes, text: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        ConsistentHashMatcher({}).check(key, {})
    assert text in str(refused.value)


def test_a_leaving_destination_is_not_chosen() -> None:
    for matcher in (consistent(("a", b"1"), ("b", b"1")), modulus("a", "b")):
        matcher.leaving = {"a"}
        assert set(targets(matcher)) == {"b"}
        matcher.leaving = {"a", "b"}
        assert set(targets(matcher)) == {None}


def test_the_modulus_hash_shares_evenly_among_bindings() -> None:
    matcher = modulus("a", "b", "c")
    matcher.add(binding("a", b"again"))

    counts = Counter(targets(matcher))

    assert chi_square(counts, {"a": 0.5, "b": 0.25, "c": 0.25}) < 20


def test_the_modulus_hash_takes_all_keys_of_a_message() -> None:
    matcher = modulus(*(f"q{number}" for number in range(50)))

    assert len({target(matcher, b"key", b"cc%d" % number) for number in range(99)}) > 25
    assert target(matcher, b"key", b"cc") == target(matcher, b"key", b"cc")


def test_many_destinations_are_looked_at_in_slices() -> None:
    matcher = modulus(*(f"q{number}" for number in range(2_000)))

    assert matcher.match([b"k"], None, {}) == NEEDS_WALK
    slices = list(matcher.walk([b"k"], None, {}))
    assert len(slices) >= 4
    assert max(slices) <= 2_000


def test_slices_lead_where_one_look_does(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = consistent(*((f"q{number}", b"%d" % (number + 1)) for number in range(30)))
    at_once = [target(matcher, key) for key in KEYS[:200]]

    monkeypatch.setattr(hashing, "_SLICE", 7)

    assert [target(matcher, key) for key in KEYS[:200]] == at_once


def test_bindings_may_go_during_a_walk() -> None:
    matcher = modulus(*(f"q{number}" for number in range(1_000)))
    winner = target(matcher, b"k")
    found: dict[object, None] = {}
    walk = matcher.walk([b"k"], None, found)
    next(walk)
    for number in range(1_000):
        if f"q{number}" != winner:
            matcher.remove(next(each for each in matcher._entries if each.target == f"q{number}"))

    for _ in walk:
        pass

    assert list(found) == [winner]
