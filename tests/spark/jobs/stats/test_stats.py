"""Statistics of stored messages, and their page.

Tests: spark/jobs/stats/arrivals.py, spark/jobs/stats/message_counts.py, spark/jobs/stats/page.py
"""

from __future__ import annotations

import random
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from itertools import chain, pairwise
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.server.cli.main import main
from leveret.spark import Selection, Stats, stats
from leveret.spark.jobs.stats import message_counts
from leveret.spark.jobs.stats.arrivals import Arrivals
from leveret.spark.jobs.stats.message_counts import MessageCounts, buckets_of, highest_of
from leveret.spark.jobs.stats.page import page
from leveret.spark.jobs.stats.stats import BARS_MAX, _rates
from leveret.spark.scan.schema import MESSAGES, arrow_schema
from rigs.spark.jobs import dead_letters, message, stored_snapshot
from rigs.spark.snapshots import DataRig, snapshot_of

SCHEMA = arrow_schema(tuple(column for column in MESSAGES if column.name in message_counts.COLUMNS))
START = datetime(2026, 1, 1, tzinfo=UTC)


def batch(*rows: dict[str, Any]) -> Any:
    plain: dict[str, Any] = {
        "vhost": "/",
        "queue": "q",
        "routing_key": "k",
        "body_size": 1,
        "enqueued_at": START,
        "expires_at": None,
        "persistent": True,
        "x_death": None,
    }
    return pa.RecordBatch.from_pylist([plain | row for row in rows], schema=SCHEMA)


def rows(count: int) -> list[dict[str, Any]]:
    rng = random.Random(7)
    return [
        {
            "queue": rng.choice("ab"),
            "routing_key": rng.choice(["x", "y", None]),
            "body_size": rng.choice([0, 5, 100, 5_000, 1 << 20]),
            "enqueued_at": START + timedelta(minutes=rng.randrange(500)),
            "expires_at": rng.choice([None, START]),
            "persistent": rng.random() < 0.5,
            "x_death": rng.choice([None, [], [{"reason": "expired"}, {"reason": "rejected"}]]),
        }
        for _ in range(count)
    ]


@given(st.integers(0, 1 << 40))
def test_a_size_is_in_its_bucket_and_the_bucket_is_narrow(size: int) -> None:
    bucket = int(buckets_of(np.array([size], np.int64))[0])

    highest = highest_of(bucket)
    lowest = highest_of(bucket - 1) + 1 if bucket else 0
    assert lowest <= size <= highest
    assert highest - lowest <= size / 16


def test_parts_that_are_merged_count_as_one() -> None:
    every = rows(300)
    whole, merged = MessageCounts(), MessageCounts()
    whole.add(batch(*every))
    for start in (0, 150):
        part = MessageCounts()
        part.add(batch(*every[start : start + 150]))
        merged.merge(part.pack())

    assert {name: vars(found) for name, found in merged.queues.items()} == {
        name: vars(found) for name, found in whole.queues.items()
    }
    assert (merged.keys, merged.minutes, merged.reasons) == (
        whole.keys,
        whole.minutes,
        whole.reasons,
    )


def test_counts_are_those_of_the_rows() -> None:
    every = rows(300)
    counts = MessageCounts()
    counts.add(batch(*every))

    for name in "ab":
        mine, found = [row for row in every if row["queue"] == name], counts.queues["/", name]
        sizes = sorted(row["body_size"] for row in mine)
        assert found.messages == len(mine)
        assert found.body_bytes == sum(sizes)
        assert found.with_ttl == sum(row["expires_at"] is not None for row in mine)
        assert found.persistent == sum(row["persistent"] for row in mine)
        for share in (0.5, 0.9, 0.99):
            exact = sizes[max(0, -(-int(share * 1000) * len(sizes) // 1000) - 1)]
            assert exact <= found.size_at(share) <= exact * 17 / 16 + 1
    assert counts.reasons == {"expired": sum(bool(row["x_death"]) for row in every)}
    assert counts.keys["/", "a", ""][0] == sum(
        row["queue"] == "a" and row["routing_key"] is None for row in every
    )


def gap_at(times_ms: list[int], share: float) -> int | None:
    """Return a quantile of the times between messages, by its definition."""
    gaps = sorted(later - earlier for earlier, later in pairwise(sorted(times_ms)))
    return gaps[max(0, ceil(share * len(gaps)) - 1)] if gaps else None


@given(
    st.lists(st.lists(st.integers(0, 40) | st.integers(0, 1 << 41), max_size=12), max_size=4),
    st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]),
)
def test_times_between_messages_are_those_of_all_parts_together(
    parts: list[list[int]], share: float
) -> None:
    arrivals, packed = Arrivals(), Arrivals()
    for part in parts:
        arrivals.add(np.array(part, np.int64))
        mine = Arrivals()
        mine.add(np.array(part, np.int64))
        packed.merge(Arrivals.unpack(mine.pack()))

    assert (
        arrivals.gap_at(share)
        == packed.gap_at(share)
        == gap_at([*chain.from_iterable(parts)], share)
    )
    assert arrivals == packed


def test_times_between_messages_are_told_by_queue(tmp_path: Path) -> None:
    rig = DataRig(tmp_path / "data", {"steady": 1, "bursts": 2, "alone": 3})
    rig.publish([message(0)], (3,))
    for number in range(100):
        rig.publish([message(number)], (1, 2) if number % 50 < 25 else (1,))
        rig.now_ms += 10
    rig.stop()
    path = snapshot_of(rig.data)

    report = stats(Stats(Selection((str(path),))))

    steady, bursts, alone = report.details["queues"]
    names = ("gap_ms_p50", "gap_ms_p90", "gap_ms_p99", "gap_ms_max")
    assert [steady[name] for name in names] == [10, 10, 10, 10]
    assert [bursts[name] for name in names] == [10, 10, 260, 260]
    assert [alone[name] for name in names] == [None] * 4
    assert "<th>gap ms p50</th>" in page(report)


def test_keys_beyond_the_ceiling_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_counts, "_KEYS_MAX", 2)
    counts = MessageCounts()
    counts.add(batch(*({"routing_key": key, "body_size": 3} for key in "abcab")))

    assert sorted(counts.keys.values()) == [[1, 3], [2, 6], [2, 6]]
    assert ("(others)",) * 3 in counts.keys


def test_the_report_has_queues_keys_rates_sizes_and_ages(tmp_path: Path) -> None:
    report = stats(Stats(Selection((str(stored_snapshot(tmp_path / "data", levels=2)),))))

    counts, details = report.counts, report.details
    assert (counts["messages"], counts["body_bytes"], counts["queues"]) == (60, 110, 2)
    assert (counts["persistent"], counts["with_ttl"], counts["dead_letters"]) == (60, 0, 0)
    east, west = details["queues"]
    assert (east["queue"], east["messages"], west["queue"]) == ("east", 30, "west")
    assert (east["size_p50"], east["size_max"], east["persistent_share"]) == (2, 2, 1)
    assert details["keys"][0] == {
        "vhost": "/", "queue": "east", "routing_key": "key.0", "messages": 6, "body_bytes": 11,
    }  # fmt: skip
    assert details["rates"] == {
        "span_min": 1,
        "start": "2023-11-14T22:13:00Z",
        "per_minute": [60.0],
    }
    assert details["sizes"] == {"2": 10, "4": 50}
    assert details["ages"]["7 days and more"] == 60
    assert counts["oldest_age_s"] > 7 * 86_400


def test_nothing_has_statistics_too(tmp_path: Path) -> None:
    path = str(stored_snapshot(tmp_path / "data", 0))

    report = stats(Stats(Selection((path,), queues=("east",))))

    assert report.counts["messages"] == 0
    assert "none" in page(report)


def test_long_times_are_shown_in_spans_of_several_minutes() -> None:
    found = _rates(Counter({100: 4, 100 + 1_000: 10}))

    assert found["span_min"] == 5
    assert len(found["per_minute"]) <= BARS_MAX
    assert (found["per_minute"][0], found["per_minute"][-1]) == (0.8, 2.0)


class Checked(HTMLParser):
    """Parses a page; keeps tags that stay open, and whatever could load or run something."""

    VOID = frozenset({"meta"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.suspicious: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.suspicious += [
            f"{tag} {name}" for name, _ in attrs if re.match(r"on|src|href|xlink", name)
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_names_cannot_break_it(tmp_path: Path) -> None:
    evil = '<script>alert("1")</script>\x1b[2J'
    path = str(stored_snapshot(tmp_path / "data", 2))
    report = stats(Stats(Selection((path,))))
    report.details["queues"][0]["queue"] = evil
    report.details["keys"][0]["routing_key"] = f"&{evil}"
    report.details["reasons"] = {evil: 3}

    text = page(report)

    checked = Checked()
    checked.feed(text)
    checked.close()
    assert checked.open == []
    assert checked.suspicious == []
    assert {"svg", "rect", "table"} <= checked.tags
    assert not {"script", "link", "img", "iframe"} & checked.tags
    assert not re.search(r"https?:|url\(|@import|\x1b", text)
    assert "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;\\x1b[2J" in text


def test_a_table_of_the_page_has_no_more_columns_than_fit_beside_each_other(tmp_path: Path) -> None:
    report = stats(Stats(Selection((str(stored_snapshot(tmp_path / "data", 4)),))))

    text = page(report)

    heads = [re.findall("<th>(.*?)</th>", row) for row in re.findall("<tr>(<th>.*?)</tr>", text)]
    assert [head[:2] for head in heads] == [["vhost", "queue"]] * 3
    assert max(map(len, heads)) <= 9
    shown = {name for head in heads[:2] for name in head}
    assert shown == {name.replace("_", " ") for name in report.details["queues"][0]}


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, html = dead_letters(tmp_path / "data"), tmp_path / "page.html"

    code = main(["stats", str(path), "--queue", "dead", "--html", str(html), "--json"])

    assert code == 0
    assert '"dead_letters": 3' in capsys.readouterr().out
    text = html.read_text()
    assert "rejected" in text
    assert "<td>dead</td>" in text
