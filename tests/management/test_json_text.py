"""JSON that others have written: names that are not UTF-8 are read, all else is JSON or refused."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.management import json_text

TEXTS = st.one_of(st.text(), st.binary().map(os.fsdecode))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_what_was_written_is_read_again(value: Any) -> None:
    assert json_text.decode(json_text.encode(value)) == value
    assert json_text.decode(json_text.encode(value).decode()) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("NaN", "NaN is not JSON"),
        ('{"a": [Infinity]}', "Infinity is not JSON"),
        ("-Infinity", "-Infinity is not JSON"),
        ('{"a": 1e400}', "1e400 is too large"),
        ('["\\udcff", -1e400]', "-1e400 is too large"),
        ('"\\ud800"', r"'\ud800' is half a character"),
        ('{"\\udcff\\ud83d": 1}', r"'\ud83d' is half a character"),
        ('{"a": 1,}', ""),
        ("01", ""),
        ('"\t"', ""),
        ("[] []", ""),
        ("", ""),
    ],
)
def test_what_is_no_json_is_refused(text: str, why: str) -> None:
    for given_text in (text, text.encode()):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is looked at
            json_text.decode(given_text)
        assert why in str(caught.value)


def test_utf_8_is_the_only_encoding() -> None:
    for encoding in ("utf-16", "utf-16-le", "utf-32", "latin-1"):
        with pytest.raises(ValueError):  # noqa: PT011
            json_text.decode('{"a": "ü"}'.encode(encoding))


def test_octets_of_a_name_are_the_name_that_clients_use() -> None:
    assert json_text.decode(r'"gr\udcc3\udcbcn \udcff"') == "grün \udcff"


def test_the_last_of_two_equal_keys_counts_as_in_rabbitmq() -> None:
    assert json_text.decode('{"a": 1, "a": 2}') == {"a": 2}
    assert json_text.decode('{"a": "\\udcff", "a": "\\udcfe"}') == {"a": "\udcfe"}


def test_numbers_of_any_length_are_read() -> None:
    assert json_text.decode(str(2**80)) == 2**80
    assert json_text.decode(json.dumps([1e308, 1e-320])) == [1e308, 1e-320]
