"""Globs of routing keys, which Arrow and Spark apply as one regular expression."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.spark.errors import OptionError
from leveret.spark.jobs.selection import Selection, glob_pattern

ALPHABET = "ab-.*?[]!^\\&|(){}+$\nü_"
GLOBS = [
    ("orders.*", "orders.eu.1", True),
    ("orders.*", "xorders.eu", False),
    ("orders.?", "orders.12", False),
    ("key.[0-3]", "key.2", True),
    ("key.[!0-3]", "key.2", False),
    ("key.[!0-3]", "key.x", True),
    ("a+b(c)", "a+b(c)", True),
    ("a.b", "aXb", False),
    ("[", "[", True),
    ("[]]", "]", True),
    ("*", "", True),
    ("*", "two\nlines", True),
    ("x", "x\n", False),
]


@pytest.mark.parametrize(("glob", "key", "fits"), GLOBS)
def test_a_glob_fits_a_whole_key(glob: str, key: str, fits: bool) -> None:
    found = pc.match_substring_regex(pa.array([key]), glob_pattern([glob]))

    assert found.to_pylist() == [fits]
    assert fnmatchcase(key, glob) is fits


@given(
    st.lists(st.text(ALPHABET, max_size=6), min_size=1, max_size=3), st.text(ALPHABET, max_size=5)
)
def test_globs_without_sets_mean_what_fnmatch_means(globs: list[str], key: str) -> None:
    globs = [glob.replace("[", "(") for glob in globs]  # a set of fnmatch is wider than a user's

    found = pc.match_substring_regex(pa.array([key]), glob_pattern(globs)).to_pylist()[0]

    assert found is any(fnmatchcase(key, glob) for glob in globs)


def test_names_with_commas_reach_the_reader_as_they_are() -> None:
    chosen = Selection(("a,b", "c"), queues=("x,y",), vhosts=("/",), fail_on_data_loss=False)

    assert chosen.options(["queue", "body"]) == {
        "paths": '["a,b", "c"]',
        "view": "messages",
        "columns": "queue,body",
        "vhost": '["/"]',
        "queue": '["x,y"]',
        "failOnDataLoss": "false",
    }
    assert chosen.as_dict() == {
        "snapshots": ("a,b", "c"),
        "view": "messages",
        "vhosts": ("/",),
        "queues": ("x,y",),
        "fail_on_data_loss": False,
    }


def test_sql_is_refused_where_no_spark_reads_it() -> None:
    with pytest.raises(OptionError, match="use the engine spark"):
        Selection(("a",), where="true").refuse_where()
