"""Headers of dead letters: what clients may have put there. The rest is in the conformance tests."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.amqp.properties import Properties, decode_properties, head_of
from leveret.amqp.tables import S64_MAX, Field, Table
from leveret.broker.queue.dead_letters.death_headers import (
    EXPIRED,
    MAXLEN,
    REJECTED,
    DeadLetter,
    Deaths,
    died_since_rejection,
    queues_of,
)
from leveret.core.limits import DEATHS_MAX
from leveret.core.message import origin_of


def dead_letter(headers: Table | None, reason: bytes = EXPIRED, **properties: Any) -> DeadLetter:
    head = head_of(Properties(headers=headers, **properties), 5)
    return Deaths(b"q", reason, 99, None).dead_letter(origin_of(b"ex", b"key"), head)


def table(queue: str, reason: bytes = EXPIRED, **more: Field) -> Field:
    return ("F", {"queue": ("S", queue.encode()), "reason": ("S", reason), **more})


def deaths(headers: Table) -> list[Any]:
    kind, tables = headers["x-death"]
    assert kind == "A"
    return [
        (each["queue"][1], each["reason"][1], each["count"][1]) if letter == "F" else each
        for letter, each in tables
    ]


def test_the_new_header_decodes_to_the_headers_that_are_routed_by() -> None:
    dead = dead_letter(
        {"b": ("L", 1), "a": ("S", b"x")}, expiration="77", delivery_mode=2, type="t"
    )

    properties = decode_properties(dead.head)
    assert properties.headers == dead.headers | {"b": ("l", 1)}
    assert properties.expiration is None
    assert (properties.type, dead.persistent, dead.keys) == ("t", True, [b"key"])
    assert dead.head[:12] == head_of(Properties(), 5)[:12]
    assert dead.headers["x-death"][1][0][1]["original-expiration"] == ("S", b"77")


def test_the_oldest_deaths_are_forgotten() -> None:
    before = [table(f"q{number}", REJECTED, count=("l", 1)) for number in range(2 * DEATHS_MAX)]

    dead = dead_letter({"x-death": ("A", before)})

    assert [each[0] for each in deaths(dead.headers)] == [
        b"q",
        *(f"q{number}".encode() for number in range(DEATHS_MAX - 1)),
    ]


@pytest.mark.parametrize(
    "strange",
    [
        ("S", b"text"),
        ("F", {"queue": ("A", [("F", {})]), "reason": ("F", {"x": ("V", None)})}),
        ("F", {}),
        ("A", []),
        ("V", None),
    ],
)
def test_strange_entries_stay(strange: Field) -> None:
    dead = dead_letter({"x-death": ("A", [strange, table("q"), strange])})

    kind, found = dead.headers["x-death"]
    assert kind == "A"
    assert found[0][1]["count"] == ("l", 2)  # one among several has been there once
    assert strange[0] in [each[0] for each in found[1:]]
    assert decode_properties(dead.head).headers == dead.headers


@pytest.mark.parametrize(
    ("count", "after"),
    [
        (("l", 4), 5),
        (("B", 4), 5),
        (("S", b"4"), 1),
        (("d", 4.0), 1),
        (("t", True), 1),
        (("l", S64_MAX), S64_MAX),
    ],
)
def test_a_count_that_is_none_begins_again(count: Field, after: int) -> None:
    dead = dead_letter({"x-death": ("A", [table("q", count=count)])})

    assert dead.headers["x-death"][1][0][1]["count"] == ("l", after)


def test_the_others_keep_their_order_and_stand_there_once() -> None:
    others = [table(name, count=("l", 3)) for name in "abca"]

    dead = dead_letter({"x-death": ("A", [*others, table("q", count=("l", 1)), table("q")])})

    assert deaths(dead.headers) == [
        (b"q", EXPIRED, 2),
        (b"a", EXPIRED, 3),
        (b"b", EXPIRED, 3),
        (b"c", EXPIRED, 3),
    ]


def test_another_reason_is_another_death() -> None:
    dead = dead_letter({"x-death": ("A", [table("q", MAXLEN, count=("l", 1))])})

    assert deaths(dead.headers) == [(b"q", EXPIRED, 1), (b"q", MAXLEN, 1)]


def test_copies_of_another_type_are_none() -> None:
    assert dead_letter({"CC": ("S", b"x")}).keys == [b"key"]
    assert dead_letter({"CC": ("A", [("S", b"x"), ("l", 5)])}).keys == [b"key", b"x"]


def test_messages_that_differ_in_their_blind_keys_only_go_to_different_keys() -> None:
    head = head_of(Properties(), 5)
    deaths_now = Deaths(b"q", EXPIRED, 99, None)

    for blind in ((), (b"a",), (b"b",), ()):
        dead = deaths_now.dead_letter(origin_of(b"ex", b"key", *blind), head)
        assert dead.keys == [b"key", *blind]
        assert dead.headers["x-death"][1][0][1]["routing-keys"] == ("A", [("S", b"key")])


def test_an_own_key_replaces_the_blind_keys() -> None:
    head = head_of(Properties(), 5)
    origin = origin_of(b"ex", b"key", b"blind")

    assert Deaths(b"q", EXPIRED, 99, b"own").dead_letter(origin, head).keys == [b"own"]


def test_where_it_has_been_ends_at_a_rejection() -> None:
    entries = [table("a"), table("b", MAXLEN), table("c", REJECTED), table("d")]

    assert died_since_rejection({"x-death": ("A", entries)}) == {"a", "b"}
    assert died_since_rejection({"x-death": ("A", [("S", b"?"), *entries])}) == set()
    assert died_since_rejection({"x-death": ("S", b"?")}) == set()
    assert died_since_rejection({}) == set()
    assert queues_of({"x-death": ("A", [*entries, ("S", b"?"), ("F", {})])}) == ["a", "b", "c", "d"]
