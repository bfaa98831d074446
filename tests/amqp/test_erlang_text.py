"""Terms as Erlang prints them; the expected texts were printed by Erlang/OTP 25's io_lib."""

from __future__ import annotations

import pytest

from leveret.amqp.erlang_text import binary, column_after, octets, string, tagged


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "<<>>"),
        (b"abc", '<<"abc">>'),
        (b"\x00\x14", "<<0,20>>"),
        (b"abc\x7f", "<<97,98,99,127>>"),
        (b"abc\x08\x09\x0a\x0b\x0c\x0d\x1b", '<<"abc\\b\\t\\n\\v\\f\\r\\e">>'),
        (b"abc\"\n\\\x1b'", '<<"abc\\"\\n\\\\\\e\'">>'),
        (b"abc\"\n\\\x1b'\x00", "<<97,98,99,34,10,92,27,39,0>>"),
        (b"abc\xc8\xe9", '<<"abc\udcc8\udce9">>'),
        ("é".encode(), '<<"é">>'),
        (b"\x80", "<<128>>"),
    ],
)
def test_binaries_are_quoted_where_all_octets_are_printable(data: bytes, text: str) -> None:
    assert binary(data) == text


def test_octets_are_numbers_always() -> None:
    assert octets(b"ab\x00") == "<<97,98,0>>"


def test_octets_that_do_not_fit_are_broken_at_80_columns() -> None:
    data = bytes((200, 201, 202, 203, 204, 205, 206, 207, 208, 209, 210, 128, 129, 130, 131, 132))

    assert binary(data, len("type 255, first 16 octets = ")) == (
        "<<200,201,202,203,204,205,206,207,208,209,210,128,\n" + " " * 30 + "129,130,131,132>>"
    )


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (0, "{invalid_frame_end_marker,205}"),
        (48, "{invalid_frame_end_marker,205}"),
        (49, "{invalid_frame_end_marker,\n" + " " * 50 + "205}"),
        (65, "{invalid_frame_end_marker,\n" + " " * 66 + "205}"),
    ],
)
def test_tuples_that_do_not_fit_are_broken_behind_their_tag(column: int, text: str) -> None:
    assert tagged("invalid_frame_end_marker", 205, column) == text


def test_a_tagged_text_is_broken_likewise() -> None:
    assert tagged("leftover_string", '"x"', 57) == '{leftover_string,"x"}'
    assert tagged("leftover_string", '"x"', 58) == "{leftover_string,\n" + " " * 59 + '"x"}'


@pytest.mark.parametrize(
    ("data", "text"), [(b"", "[]"), (b'a"\\\n', '"a\\"\\\\\\n"'), (b"a\x7f", "[97,127]")]
)
def test_lists_of_octets_are_quoted_where_all_are_printable(data: bytes, text: str) -> None:
    assert string(data) == text


def test_columns_count_octets_of_the_last_line() -> None:
    assert column_after("first\nsec") == 3
    assert column_after('<<"é\udcff') == 6
