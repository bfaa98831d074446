"""Headers exchanges: which bindings match, and which are refused."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.properties import Properties
from leveret.amqp.tables import Field, Table
from leveret.routing import headers as headers_module
from leveret.routing.bindings import QUEUE, Binding, identity_of
from leveret.routing.headers import HeadersMatcher, comparable
from leveret.routing.work import NEEDS_WALK, WALK_STEP_WORK

ALL: Table = {"x-match": ("S", b"all")}
ANY: Table = {"x-match": ("S", b"any")}
ALL_X: Table = {"x-match": ("S", b"all-with-x")}
ANY_X: Table = {"x-match": ("S", b"any-with-x")}


class OnlyHeaders:
    """Properties of a message of which nothing but the headers is asked for."""

    def __init__(self, headers: Table | None) -> None:
        self.headers = headers

    @property
    def properties(self) -> Properties:
        raise AssertionError


def matches(arguments: Table, headers: Table | None) -> bool:
    matcher = HeadersMatcher()
    matcher.check(b"", arguments)
    matcher.add(Binding("x", identity_of(QUEUE, "q", b"", arguments), "q"))
    return bool(matched(matcher, headers))


def matched(matcher: HeadersMatcher, headers: Table | None) -> set[object]:
    found: dict[object, object] = {}
    walked: dict[object, object] = {}
    looked = matcher.match([b"any key"], OnlyHeaders(headers), found)
    for _ in matcher.walk([b"any key"], OnlyHeaders(headers), walked):
        pass
    assert looked == NEEDS_WALK or set(found) == set(walked)
    return set(walked)


def bound(matcher: HeadersMatcher, target: object, arguments: Table) -> Binding:
    binding = Binding("x", identity_of(QUEUE, "q", b"", arguments), target)
    matcher.add(binding)
    return binding


@pytest.mark.parametrize(
    ("arguments", "headers", "expected"),
    [
        ({}, {}, True),
        ({}, None, True),
        ({"a": ("S", b"1")}, {"a": ("S", b"1"), "b": ("S", b"2")}, True),
        ({"a": ("S", b"1")}, {"b": ("S", b"2")}, False),
        ({"a": ("S", b"1")}, None, False),
        (ALL | {"a": ("I", 1), "b": ("I", 2)}, {"a": ("I", 1)}, False),
        (ALL | {"a": ("I", 1), "b": ("I", 2)}, {"b": ("I", 2), "a": ("I", 1)}, True),
        (ANY | {"a": ("I", 1), "b": ("I", 2)}, {"b": ("I", 2)}, True),
        (ANY | {"a": ("I", 1), "b": ("I", 2)}, {"b": ("I", 3)}, False),
        (ANY, {"a": ("I", 1)}, False),
        (ALL, {"a": ("I", 1)}, True),
        (ANY_X, {"a": ("I", 1)}, False),
        (ALL_X, {"a": ("I", 1)}, True),
        # Names with x- count only for the -with-x kinds.
        (ALL | {"x-a": ("I", 1)}, {}, True),
        (ALL_X | {"x-a": ("I", 1)}, {}, False),
        (ALL_X | {"x-a": ("I", 1)}, {"x-a": ("I", 1)}, True),
        (ANY | {"x-a": ("I", 1)}, {"x-a": ("I", 1)}, False),
        (ANY_X | {"x-a": ("I", 1)}, {"x-a": ("I", 1)}, True),
        # Values by Erlang's ==.
        ({"a": ("I", 1)}, {"a": ("l", 1)}, True),
        ({"a": ("I", 1)}, {"a": ("d", 1.0)}, True),
        ({"a": ("I", 1)}, {"a": ("T", 1)}, True),
        ({"a": ("I", 1)}, {"a": ("S", b"1")}, False),
        ({"a": ("I", 1)}, {"a": ("t", True)}, False),
        ({"a": ("t", True)}, {"a": ("b", 1)}, False),
        ({"a": ("t", True)}, {"a": ("t", True)}, True),
        ({"a": ("S", b"v")}, {"a": ("x", b"v")}, True),
        ({"a": ("D", (2, 150))}, {"a": ("D", (2, 150))}, True),
        ({"a": ("D", (2, 150))}, {"a": ("D", (1, 15))}, False),
        ({"a": ("D", (2, 150))}, {"a": ("d", 1.5)}, False),
        ({"a": ("A", [("I", 1)])}, {"a": ("A", [("I", 1)])}, True),
        ({"a": ("A", [("I", 1)])}, {"a": ("A", [("l", 1)])}, False),
        ({"a": ("F", {"k": ("I", 1)})}, {"a": ("F", {"k": ("I", 1)})}, True),
        ({"a": ("F", {"k": ("I", 1)})}, {"a": ("F", {"k": ("I", 2)})}, False),
        # A void argument asks for presence.
        ({"a": ("V", None)}, {"a": ("S", b"anything")}, True),
        ({"a": ("V", None)}, {"a": ("V", None)}, True),
        ({"a": ("V", None)}, {}, False),
        ({"a": ("S", b"v")}, {"a": ("V", None)}, False),
        (ANY | {"a": ("V", None), "b": ("I", 1)}, {"a": ("I", 9)}, True),
    ],
)
def test_a_binding_matches(arguments: Table, headers: Table | None, expected: bool) -> None:
    assert matches(arguments, headers) is expected


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (
            ("S", b"some"),
            'Invalid x-match field value <<"some">>; '
            "expected all, any, all-with-x, or any-with-x",
        ),
        (
            ("S", b"\x00\x01"),
            "Invalid x-match field value <<0,1>>; expected all, any, all-with-x, or any-with-x",
        ),
        (("S", b""), "Invalid x-match field value <<>>; "
                     "expected all, any, all-with-x, or any-with-x"),
        (("b", 1), "Invalid x-match field type byte (value 1); expected longstr"),
        (("t", True), "Invalid x-match field type bool (value true); expected longstr"),
        (
            ("A", [("S", b"a")]),
            'Invalid x-match field type array (value [{longstr,<<"a">>}]); expected longstr',
        ),
        (
            ("F", {"k": ("I", 1)}),
            'Invalid x-match field type table (value [{<<"k">>,signedint,1}]); expected longstr',
        ),
    ],
)  # fmt: skip
def test_a_bad_x_match_is_refused(field: tuple[str, object], text: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        HeadersMatcher({}).check(b"", {"x-match": field})

    assert str(refused.value) == f"PRECONDITION_FAILED - {text}"


def test_a_removed_binding_matches_no_more() -> None:
    matcher = HeadersMatcher()
    one = Binding("x", identity_of(QUEUE, "q", b"", {}), "q")
    two = Binding("x", identity_of(QUEUE, "q", b"k", {}), "q")
    for each in (one, two):
        matcher.add(each)

    matcher.remove(one)
    assert matched(matcher, {}) == {"q"}

    matcher.remove(two)
    assert matched(matcher, {}) == set()


def naive(arguments: Table, headers: Table) -> bool:
    """Match as the specification says it, without an index."""
    kind = arguments.get("x-match", ("S", b"all"))[1].decode()
    met = [
        name in headers and (field[0] == "V" or comparable(headers[name]) == comparable(field))
        for name, field in arguments.items()
        if name != "x-match" and (kind.endswith("-with-x") or not name.startswith("x-"))
    ]
    return all(met) if kind.startswith("all") else any(met)


fields = st.sampled_from(
    [
        ("I", 1), ("l", 1), ("d", 1.0), ("t", True), ("S", b"1"), ("x", b"1"), ("V", None),
        ("I", 2), ("D", (0, 1)), ("A", []), ("F", {}), ("A", [("I", 1)]), ("A", [("d", 1.0)]),
        ("F", {"k": ("I", 1)}), ("F", {"k": ("A", [("t", False)])}), ("d", float("nan")),
    ]
)  # fmt: skip
tables = st.dictionaries(st.sampled_from(["a", "b", "c", "x-a"]), fields, max_size=4)
rules = st.tuples(
    tables, st.sampled_from([None, b"all", b"any", b"all-with-x", b"any-with-x"])
).map(lambda drawn: drawn[0] | ({} if drawn[1] is None else {"x-match": ("S", drawn[1])}))


@given(
    st.lists(st.tuples(rules, st.integers(0, 5)), max_size=12),
    st.lists(st.integers(0, 11), max_size=8),
    tables,
    st.integers(1, 8),
)
def test_the_index_says_what_trying_every_rule_says(
    made: list[tuple[Table, int]], gone: list[int], headers: Table, slice_: int
) -> None:
    """Rules removed between the slices of a walk may be found or not, all others are found."""
    matcher = HeadersMatcher()
    bindings = [bound(matcher, target, arguments) for arguments, target in made]
    left = dict(enumerate(bindings))
    expected = {each.target for each in bindings if naive(each.arguments, headers)}
    found: dict[object, object] = {}
    with (
        mock.patch.object(headers_module, "_SLICE_HEADERS", slice_),
        mock.patch.object(headers_module, "_SLICE_RULES", slice_),
    ):
        assert matched(matcher, headers) == expected
        removals = iter(gone)
        for _ in matcher.walk([b""], OnlyHeaders(headers), found):
            binding = left.pop(next(removals, -1), None)
            if binding is not None:
                matcher.remove(binding)
    still = {each.target for each in left.values() if naive(each.arguments, headers)}
    assert still <= set(found) <= expected
    assert matched(matcher, headers) == still
    for binding in left.values():
        matcher.remove(binding)
    assert matcher._places == {}
    assert matched(matcher, headers) == set()


def looked_at(matcher: HeadersMatcher, headers: Table) -> list[int]:
    return list(matcher.walk([b""], OnlyHeaders(headers), {}))


@pytest.mark.parametrize("kind", [b"all", b"any"])
def test_rules_with_values_of_their_own_cost_a_lookup_each(kind: bytes) -> None:
    matcher = HeadersMatcher()
    for number in range(10_000):
        own: Table = {"type": ("S", b"order"), f"k{number}": ("S", b"v")}
        ids: Table = {"type": ("S", b"order"), "id": ("I", number)}
        arguments = own if number % 2 else ids
        if kind == b"any":
            del arguments["type"]
        bound(matcher, number, arguments | {"x-match": ("S", kind)})

    message: Table = {"type": ("S", b"order"), "k77": ("S", b"v"), "id": ("l", 9_000)}
    assert matched(matcher, message) == {77, 9_000}
    assert sum(looked_at(matcher, message)) < 60


def test_rules_that_must_be_tried_are_tried_in_slices() -> None:
    matcher = HeadersMatcher()
    universe: list[tuple[str, Field]] = [(name, ("I", 1)) for name in "abcdefgh"]
    for number in range(5_000):
        arguments = dict(universe[number % 7 : number % 7 + 2]) | {"z": ("I", 1)}
        bound(matcher, number, arguments)

    slices = looked_at(matcher, dict(universe) | {"z": ("I", 2)})
    assert sum(slices) >= 5_000
    assert max(slices) < WALK_STEP_WORK + 100
    assert matched(matcher, dict(universe) | {"z": ("I", 1)}) == set(range(5_000))


def test_large_values_are_counted_by_their_size() -> None:
    matcher = HeadersMatcher()
    large: Field = ("A", [("I", 1)] * 10_000)
    for number in range(10):
        bound(matcher, number, {"a": large, "b": large})

    slices = looked_at(matcher, {"a": large, "b": ("I", 1)})
    assert max(slices) < 40_000
    assert sum(slices) > 60_000
