"""Filters of Spark as pruning; no session is needed."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from leveret.spark.pushdown import pruned
from leveret.spark.scan.locators import READY
from leveret.spark.scan.options import ReadOptions
from leveret.spark.scan.pruning import Names, Pruning
from leveret.spark.source import LeveretReader

TIME = datetime(2025, 11, 25, 6, 52, 43, tzinfo=UTC)
MS = 1_764_053_563_000
US = timedelta(microseconds=1)
AT = ("enqueued_at",)

FILTERS: list[tuple[list[Any], dict[str, Any]]] = [
    ([EqualTo(("queue",), "a")], {"queues": (Names(frozenset({"a"})),)}),
    ([EqualNullSafe(("vhost",), "/")], {"vhosts": (Names(frozenset({"/"})),)}),
    ([In(("queue",), ("a*", "b"))], {"queues": (Names(frozenset({"a*", "b"})),)}),
    ([StringStartsWith(("queue",), "a[*")], {"queues": (Names(frozenset(), ("a[[][*]*",)),)}),
    ([EqualTo(("queue",), "a"), EqualTo(("queue",), "b")],
     {"queues": (Names(frozenset({"a"})), Names(frozenset({"b"})))}),
    ([GreaterThanOrEqual(AT, TIME)], {"times_ms": (MS, None)}),
    ([GreaterThanOrEqual(AT, TIME + US)], {"times_ms": (MS + 1, None)}),
    ([GreaterThan(AT, TIME)], {"times_ms": (MS + 1, None)}),
    ([GreaterThan(AT, TIME - US)], {"times_ms": (MS, None)}),
    ([LessThan(AT, TIME)], {"times_ms": (None, MS)}),
    ([LessThan(AT, TIME + US)], {"times_ms": (None, MS + 1)}),
    ([LessThanOrEqual(AT, TIME)], {"times_ms": (None, MS + 1)}),
    ([LessThanOrEqual(AT, TIME - US)], {"times_ms": (None, MS)}),
    ([EqualTo(("stored_at",), TIME)], {"times_ms": (MS, MS + 1)}),
    ([GreaterThan(AT, TIME.astimezone(timezone(timedelta(hours=5))))], {"times_ms": (MS + 1, None)}),
    ([GreaterThan(AT, TIME), LessThan(AT, TIME + timedelta(seconds=1)), GreaterThan(AT, TIME - US)],
     {"times_ms": (MS + 1, MS + 1000)}),
    ([EqualTo(("seq_id",), 5)], {"seqs": (5, 6)}),
    ([GreaterThan(("seq_id",), 5), LessThanOrEqual(("seq_id",), 9)], {"seqs": (6, 10)}),
    ([In(("seq_id",), (9, 3))], {"seqs": (3, 10)}),
    ([EqualTo(("state",), "ready")], {"states": frozenset({READY})}),
    ([EqualTo(("state",), "nonsense")], {"states": frozenset()}),
    ([EqualTo(("body",), b"x"), Not(EqualTo(("queue",), "a")), IsNotNull(("queue",)),
      StringContains(("queue",), "a"), EqualTo(("properties", "type"), "a"), EqualTo(("queue",), None),
      GreaterThan(AT, TIME.replace(tzinfo=None)), In(("seq_id",), (1, None)),
      StringStartsWith(("routing_key",), "a")], {}),
]  # fmt: skip


@pytest.mark.parametrize(("filters", "wanted"), FILTERS)
def test_a_filter_is_pruning_or_nothing(filters: list[Any], wanted: dict[str, Any]) -> None:
    expected = Pruning(**wanted)

    assert pruned(Pruning(), filters) == expected


def test_the_names_of_a_prefix_are_exactly_those_that_begin_with_it() -> None:
    (names,) = pruned(Pruning(), [StringStartsWith(("queue",), "a[*")]).queues

    assert "a[*b" in names
    assert "a[b" not in names
    assert "xa[*" not in names


def reader() -> LeveretReader:
    return LeveretReader(ReadOptions.of({"path": "/s", "queue": "a*"}))


def test_all_filters_are_returned_to_spark_and_the_reader_prunes_by_them() -> None:
    made, filters = reader(), [EqualTo(("queue",), "ab"), IsNotNull(("queue",))]

    assert made.pushFilters(filters) == filters
    assert [made.pruning.wants_queue(name) for name in ("ab", "ac", "b")] == [True, False, False]


def test_spark_takes_a_reader_for_one_that_does_not_override_pushdown() -> None:
    """Else every query would fail while pushdown is off, its default."""
    found = getattr(reader().pushFilters, "__func__", None)

    assert found is DataSourceReader.pushFilters


def test_a_reader_can_be_pickled_with_its_pruning() -> None:
    made = reader()
    made.pushFilters([EqualTo(("queue",), "ab")])

    copy = pickle.loads(pickle.dumps(made))

    assert copy.pruning == made.pruning
    copy.pushFilters([EqualTo(("queue",), "x")])
    assert copy.pruning != made.pruning
