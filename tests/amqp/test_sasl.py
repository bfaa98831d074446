"""SASL responses."""

from __future__ import annotations

import pytest

from leveret.amqp.errors import SyntaxError_
from leveret.amqp.sasl import amqplain, plain
from leveret.amqp.tables import Table, encode_table


@pytest.mark.parametrize(
    ("response", "user", "password"),
    [
        (b"\x00guest\x00guest", "guest", b"guest"),
        (b"\x00user\x00", "user", b""),
        (b"\x00\x00", "", b""),
        (b"\x00J\xc3\xbcrgen\x00\xff\xfe", "Jürgen", b"\xff\xfe"),
        (b"\x00\xff\x00p", "\udcff", b"p"),
    ],
)
def test_plain_is_nul_user_nul_password(response: bytes, user: str, password: bytes) -> None:
    assert plain(response) == (user, password)


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"guest",
        b"\x00",
        b"\x00guest",
        b"guest\x00guest",
        b"other\x00guest\x00guest",
        b"\x00guest\x00guest\x00",
        b"\x00a\x00b\x00c",
    ],
)
def test_any_other_plain_is_refused(response: bytes) -> None:
    with pytest.raises(SyntaxError_, match="PLAIN response"):
        plain(response)


def test_amqplain_is_a_table_without_length() -> None:
    table: Table = {"PASSWORD": ("S", b"\xffp"), "LOGIN": ("S", b"guest"), "more": ("I", 1)}

    assert amqplain(encode_table(table)[4:]) == ("guest", b"\xffp")


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"LOGIN": ("S", b"guest")},
        {"PASSWORD": ("S", b"guest")},
        {"LOGIN": ("I", 1), "PASSWORD": ("S", b"guest")},
        {"LOGIN": ("S", b"guest"), "PASSWORD": ("V", None)},
    ],
)
def test_amqplain_needs_login_and_password_as_strings(table: Table) -> None:
    with pytest.raises(SyntaxError_, match="AMQPLAIN response has no string"):
        amqplain(encode_table(table)[4:])


def test_amqplain_that_is_no_table_is_refused() -> None:
    with pytest.raises(SyntaxError_, match="malformed table"):
        amqplain(b"\x00guest\x00guest")
