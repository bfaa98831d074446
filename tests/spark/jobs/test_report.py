"""The report of a job, as JSON and as lines."""

from __future__ import annotations

import json

from leveret.spark.jobs.report import EX_FOUND, JobReport


def report() -> JobReport:
    made = JobReport("replay", is_dry_run=True, started_s=1_764_000_000.25)
    made.count("sent", 1_234)
    made.count("sent")
    made.counts["duration_s"] = 0.5
    made.details["queues"] = [{"queue": "a b", "rows": 3}]
    made.details["by_state"] = {"ready": 2}
    made.warn("a vhost is missing")
    made.warn("a vhost is missing")
    return made


def test_a_report_is_one_line_of_json_with_times_in_utc() -> None:
    made = report()
    fields = json.loads(made.as_json())

    assert "\n" not in made.as_json()
    assert fields["started"] == "2025-11-24T16:00:00.250+00:00"
    assert fields["ended"] is None
    assert fields["dry_run"] is True
    assert fields["counts"] == {"sent": 1_235, "duration_s": 0.5}
    assert fields["warnings"] == ["a vhost is missing"]
    assert json.loads(made.end().as_json())["ended"] > fields["started"]


def test_a_report_for_people_has_warnings_counts_and_a_line_for_each_row() -> None:
    assert report().as_text().splitlines() == [
        "warning: a vhost is missing",
        "replay (local, dry run)",
        "  sent: 1,235",
        "  duration_s: 0.5",
        "queues:",
        '  queue="a b" rows=3',
        "by_state:",
        "  ready: 2",
    ]


def test_a_terminal_gets_tables_and_lines_that_fit_it() -> None:
    made = report()
    made.details["rates"] = {"per_minute": list(range(20))}

    lines = made.as_text(30).splitlines()

    assert lines[4:9] == ["queues:", "  queue  rows", "  a b       3", "by_state:", "  ready: 2"]
    assert max(map(len, lines)) <= 30
    assert " ".join(line.strip() for line in lines[10:]) == f"per_minute: {list(range(20))}"


def test_a_job_that_left_something_out_exits_with_1() -> None:
    assert JobReport("audit").exit_code == 0
    assert JobReport("audit", is_complete=False).exit_code == EX_FOUND
