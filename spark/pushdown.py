"""Filters that Spark pushes down, as pruning.

Pruning only rules rows out that no filter would let through. Spark applies every filter again, so a filter that is not
understood here costs time and nothing else. Spark pushes comparisons of a column with a literal, joined by AND, and
never an OR. Times are exact to the microsecond in filters, and messages' times to the millisecond.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from leveret.spark.scan.locators import STATES
from leveret.spark.scan.pruning import Names, Pruning, Range, both

_TIMES: Final = frozenset({"enqueued_at", "stored_at"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS_US: Final = 1_000


def pruned(pruning: Pruning, filters: Iterable[Filter]) -> Pruning:
    """Return the pruning of options and filters together."""
    for each in filters:
        match each:
            case EqualTo((name,), value) | EqualNullSafe((name,), value):
                pruning = _equal(pruning, name, (value,))
            case In((name,), values):
                pruning = _equal(pruning, name, tuple(values))
            case StringStartsWith((name,), prefix):
                pruning = _with_names(
                    pruning, name, Names(frozenset(), (f"{glob.escape(prefix)}*",))
                )
            case GreaterThanOrEqual((name,), value):
                pruning = _compared(pruning, name, value, 0, is_low=True)
            case GreaterThan((name,), value):
                pruning = _compared(pruning, name, value, 1, is_low=True)
            case LessThan((name,), value):
                pruning = _compared(pruning, name, value, 0, is_low=False)
            case LessThanOrEqual((name,), value):
                pruning = _compared(pruning, name, value, 1, is_low=False)
            case _:
                pass  # Spark applies it
    return pruning


def _equal(pruning: Pruning, name: str, values: tuple[Any, ...]) -> Pruning:
    if name in {"vhost", "queue"} and all(isinstance(value, str) for value in values):
        return _with_names(pruning, name, Names(frozenset(values)))
    if name == "state":
        states = frozenset(STATES[value] for value in values if value in STATES)
        mine = states if pruning.states is None else pruning.states & states
        return replace(pruning, states=mine)
    if (name == "seq_id" or name in _TIMES) and values and None not in values:
        low = _compared(pruning, name, min(values), 0, is_low=True)
        return _compared(low, name, max(values), 1, is_low=False)
    return pruning


def _with_names(pruning: Pruning, name: str, names: Names) -> Pruning:
    if name == "vhost":
        return pruning.and_names(vhosts=names)
    return pruning.and_names(queues=names) if name == "queue" else pruning


def _compared(pruning: Pruning, name: str, value: Any, more: int, *, is_low: bool) -> Pruning:
    """Bound a column from ``value + more`` on, or up to but not including it; more is in the column's finest unit."""
    if name in _TIMES and isinstance(value, datetime) and value.tzinfo is not None:
        delta = value - _EPOCH
        micros = delta.days * 86_400_000_000 + delta.seconds * 1_000_000 + delta.microseconds
        bound = -(-(micros + more) // _MS_US)  # the first ms that is not earlier
        return replace(pruning, times_ms=both(pruning.times_ms, _range(bound, is_low)))
    if name == "seq_id" and type(value) is int:
        return replace(pruning, seqs=both(pruning.seqs, _range(value + more, is_low)))
    return pruning


def _range(bound: int, is_low: bool) -> Range:
    return (bound, None) if is_low else (None, bound)
