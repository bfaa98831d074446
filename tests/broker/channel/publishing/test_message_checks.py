"""What basic.publish checks in a message's properties."""

from __future__ import annotations

import pytest

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.properties import Properties, decode_properties, examine, head_of
from leveret.broker.channel.publishing.message_checks import (
    checked_keys,
    checked_properties,
    parse_expiration,
    without_bcc,
)
from leveret.broker.vhost.auth.access import User
from leveret.metadata.tables import UserRow


def head(**properties: object) -> bytes:
    return head_of(Properties(**properties), 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "ms"),
    [("0", 0), ("1", 1), ("+7", 7), ("007", 7), ("60000", 60_000), ("315360000000", 315_360_000_000)],
)  # fmt: skip
def test_an_expiration_is_a_whole_number_of_milliseconds(text: str, ms: int) -> None:
    assert parse_expiration(text) == ms


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_integer"),
        ("abc", "no_integer"),
        (" 1", "no_integer"),
        ("+", "no_integer"),
        ("1.5", '{leftover_string,".5"}'),
        ("10s", '{leftover_string,"s"}'),
        ("1 ", '{leftover_string," "}'),
        ("-1", "{value_negative,-1}"),
        ("315360000001", "{value_too_large,315360000001}"),
    ],
)
def test_anything_else_is_refused_with_rabbitmqs_words(text: str, reason: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        parse_expiration(text)

    assert str(refused.value).endswith(f"invalid expiration '{text}': {reason}")


@pytest.mark.parametrize(
    ("tags", "user_id", "is_allowed"),
    [
        ([], None, True),
        ([], "hare", True),
        ([], "guest", False),
        (["administrator"], "guest", False),
        (["impersonator"], "guest", True),
    ],
)
def test_a_user_id_must_be_the_users_own(
    tags: list[str], user_id: str | None, is_allowed: bool
) -> None:
    user = User(UserRow("hare", tags=tags))
    seen = examine(head(user_id=user_id))
    if is_allowed:
        assert checked_properties(seen, user) is None
        return
    with pytest.raises(PreconditionFailed, match="user_id property set to 'guest' but authent"):
        checked_properties(seen, user)


@pytest.mark.parametrize(("mode", "is_allowed"), [(None, True), (1, True), (2, True), (0, False), (3, False), (255, False)])  # fmt: skip
def test_a_delivery_mode_is_one_or_two(mode: int | None, is_allowed: bool) -> None:
    seen, user = examine(head(delivery_mode=mode)), User(UserRow("hare"))
    if is_allowed:
        assert checked_properties(seen, user) is None
        return
    with pytest.raises(PreconditionFailed, match=rf"\{{delivery_mode_unknown,{mode}\}}"):
        checked_properties(seen, user)


def test_the_user_is_checked_before_the_expiration_and_that_before_the_mode() -> None:
    user = User(UserRow("hare"))
    for properties, word in (
        ({"user_id": "x", "expiration": "y", "delivery_mode": 7}, "user_id"),
        ({"expiration": "y", "delivery_mode": 7}, "expiration"),
        ({"delivery_mode": 7}, "delivery_mode"),
    ):
        with pytest.raises(PreconditionFailed, match=word):
            checked_properties(examine(head(**properties)), user)


def keys(*names: str) -> tuple[str, list[tuple[str, bytes]]]:
    return ("A", [("S", name.encode()) for name in names])


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (None, ([b"k"], None)),
        ({}, ([b"k"], None)),
        ({"other": ("S", b"x")}, ([b"k"], None)),
        ({"CC": keys("a", "b")}, ([b"k", b"a", b"b"], None)),
        ({"BCC": keys("c")}, ([b"k"], [b"c"])),
        ({"CC": keys("a"), "BCC": keys("c")}, ([b"k", b"a"], [b"c"])),
        ({"CC": keys()}, ([b"k"], None)),
        ({"CC": ("A", [("S", b"a"), ("I", 5)])}, ([b"k", b"a"], None)),
        ({"BCC": keys()}, ([b"k"], [])),
        ({"cc": keys("a")}, ([b"k"], None)),
    ],
)
def test_cc_and_bcc_add_routing_keys(headers: object, expected: object) -> None:
    assert checked_keys(b"k", examine(head(headers=headers))) == expected


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_cc_and_bcc_must_be_arrays(name: str) -> None:
    seen = examine(head(headers={name: ("S", b"a")}))
    with pytest.raises(PreconditionFailed, match=rf'unacceptable_type_in_header,"{name}",longstr'):
        checked_keys(b"k", seen)


def test_bcc_is_taken_out_and_all_else_stays() -> None:
    given = head(
        headers={"z": ("I", 1), "BCC": keys("c"), "a": ("S", b"x"), "CC": keys("d")},
        content_type="text/plain",
        priority=5,
    )
    stored = without_bcc(given)
    properties = decode_properties(stored)

    assert list(properties.headers or ()) == ["CC", "a", "z"]
    assert (properties.content_type, properties.priority) == ("text/plain", 5)
    assert stored[4:12] == given[4:12]  # the size of the body
