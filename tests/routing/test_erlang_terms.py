"""Values as Erlang/OTP 25 printed them with ``io_lib:format("~p", [X])``."""

from __future__ import annotations

import pytest

from leveret.amqp.tables import Field
from leveret.routing.erlang_terms import term


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (1.5, "1.5"),
        (100.0, "100.0"),
        (1000.0, "1.0e3"),
        (12345.678, "12345.678"),
        (0.1, "0.1"),
        (0.0001, "0.0001"),
        (0.00001, "1.0e-5"),
        (0.00012, "1.2e-4"),
        (1.0e22, "1.0e22"),
        (1.23e-7, "1.23e-7"),
        (123456789.0, "123456789.0"),
        (9007199254740991.0, "9007199254740991.0"),
        (9007199254740992.0, "9.007199254740992e15"),
        (-2.5, "-2.5"),
        (1.0e15, "1.0e15"),
        (12300.0, "1.23e4"),
        (-1000.0, "-1.0e3"),
        (3.0e10, "3.0e10"),
    ],
)
def test_floats(value: float, text: str) -> None:
    assert term(("d", value)) == text


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (("t", False), "false"),
        (("V", None), "undefined"),
        (("l", -5), "-5"),
        (("S", b"a\n"), '<<"a\\n">>'),
        (("x", b"\x00"), "<<0>>"),
        (("D", (2, 150)), "{2,150}"),
        (("A", [("S", b"a"), ("A", [])]), '[{longstr,<<"a">>},{array,[]}]'),
        (("F", {"k": ("F", {"n": ("t", True)})}), '[{<<"k">>,table,[{<<"n">>,bool,true}]}]'),
        (("d", float("inf")), "inf"),
    ],
)
def test_other_values(field: Field, text: str) -> None:
    assert term(field) == text
