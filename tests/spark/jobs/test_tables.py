"""Tables of reports fit the terminal, and lose no number."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from leveret.spark.jobs.tables import tables

LONG = "orders." + "x" * 60


def test_columns_that_do_not_fit_stand_in_a_further_table_with_the_names() -> None:
    row = {"vhost": "/", "queue": LONG, "messages": 1_234_567, "size_p50": 0.5, "persistent": 1}

    assert tables([row, row | {"queue": "short"}], 40) == [
        "  vhost  queue                 messages",
        "  /      orders.xxxxxxxxxxx…  1,234,567",
        "  /      short                1,234,567",
        "",
        "  vhost  queue                size_p50",
        "  /      orders.xxxxxxxxxxx…       0.5",
        "  /      short                     0.5",
        "",
        "  vhost  queue                persistent",
        "  /      orders.xxxxxxxxxxx…           1",
        "  /      short                         1",
    ]


def test_what_no_cell_can_hold_follows_whole_by_the_number_of_its_row() -> None:
    command = f"leveret replay {LONG} --queue {LONG}"
    rows: list[dict[str, Any]] = [
        {"queue": "a", "messages": 2, "hours": {"2026-01-01T00": 2}, "command": command},
        {"queue": "\x1b[2J", "messages": 3, "hours": {}, "samples": ["one", "two"]},
    ]

    assert tables(rows, 60) == [
        "  #  queue    messages",
        "  1  a               2",
        "  2  \\x1b[2J         3",
        "  1. hours: 2026-01-01T00=2",
        f"  1. command: {command}",
        "  2. hours: none",
        "  2. samples: one, two",
    ]


def test_a_row_may_lack_a_column() -> None:
    assert tables([{"queue": "a", "rows": 1}, {"queue": None, "lost": True}], 80) == [
        "  queue  rows  lost",
        "  a         1",
        "               True",
    ]


NAMES = st.fixed_dictionaries(
    {name: st.text("abc. ", max_size=70) for name in ("vhost", "queue", "reason", "exchange")}
)
COUNTS = st.fixed_dictionaries({f"persistent_share_{n}": st.integers(0, 10**10) for n in range(9)})


@given(
    st.lists(st.builds(lambda *parts: parts[0] | parts[1], NAMES, COUNTS), min_size=1, max_size=4),
    st.integers(64, 200),
)
def test_no_line_is_wider_than_the_terminal_and_no_number_is_lost(
    rows: list[dict[str, Any]], width: int
) -> None:
    lines = tables(rows, width)

    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for row in rows:
        assert all(f"{value:,}" in text for value in row.values() if isinstance(value, int))
