"""Headers exchanges: which bindings match, and which are refused."""

from __future__ import annotations

import pytest

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.tables import Table
from leveret.routing.bindings import QUEUE, Binding, identity_of
from leveret.routing.headers import HeadersMatcher

ALL: Table = {"x-match": ("S", b"all")}
ANY: Table = {"x-match": ("S", b"any")}
ALL_X: Table = {"x-match": ("S", b"all-with-x")}
ANY_X: Table = {"x-match": ("S", b"any-with-x")}


def matches(arguments: Table, headers: Table | None) -> bool:
    matcher = HeadersMatcher()
    matcher.check(b"", arguments)
    matcher.add(Binding("x", identity_of(QUEUE, "q", b"", arguments), "q"))
    found: dict[object, object] = {}
    matcher.match([b"any key"], headers, found)
    return bool(found)


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
        HeadersMatcher.check(b"", {"x-match": field})

    assert str(refused.value) == f"PRECONDITION_FAILED - {text}"


def test_a_removed_binding_matches_no_more() -> None:
    matcher = HeadersMatcher()
    one = Binding("x", identity_of(QUEUE, "q", b"", {}), "q")
    two = Binding("x", identity_of(QUEUE, "q", b"k", {}), "q")
    for each in (one, two):
        matcher.add(each)

    matcher.remove(one)
    found: dict[object, object] = {}
    matcher.match([b""], {}, found)
    assert list(found) == ["q"]

    matcher.remove(two)
    found = {}
    matcher.match([b""], {}, found)
    assert found == {}
