"""Growth curves and PerfTest: what is made of their figures."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import growth
import perf_test
from curves import plots
from curves.plots import Point

LINES = {
    "rabbitmq": [Point(10, 20.0, 500.0), Point(100, 90.0, 400.0)],
    "leveret-c": [Point(10, 4.0, 9_000.0), Point(100, 2.0, 8_000.0), Point(1_000, 3.5, 7_000.0)],
}
SUMMARY = """\
id: t, time 1.004 s, sent: 13139 msg/s, received: 12545 msg/s, min/median/75th/95th/99th consumer latency: 1/2/3/4/5 µs
id: t, time 4.000 s, sent: 23265 msg/s, received: 23700 msg/s, min/median/75th/95th/99th consumer latency: 1/2/3/4/5 µs
test stopped (Reached time limit)
id: t, sending rate avg: 15659 msg/s
id: t, receiving rate avg: 15685 msg/s
id: t, consumer latency min/median/75th/95th/99th 2610/31280/43710/67006/103147 µs
id: t, confirm latency min/median/75th/95th/99th 2613/50099/69850/90584/116195 µs
"""


def test_curves_are_the_medians_of_their_sizes() -> None:
    stats = {"msgs_per_s": 8.0, "broker_cpu_us_per_msg": 2.0}

    found = plots.curves({"fan-out 10": {"rabbitmq": stats}})

    assert found == {"fan-out": {"rabbitmq": [Point(10, 2.0, 8.0)]}}


def test_growth_counts_from_the_cheapest_size_that_is_not_larger() -> None:
    assert plots.growth(LINES["leveret-c"]) == 1.75
    assert plots.growth([Point(10, 4.0, 1.0), Point(100, 2.0, 1.0)]) == 1.0


def test_only_curves_of_leveret_are_judged() -> None:
    assert growth.judge({"queues": LINES}) == [("queues", "leveret-c", 1.75)]


def test_a_plot_is_svg_with_a_line_for_each_broker() -> None:
    drawn = ElementTree.fromstring(plots.plot("queues", LINES))

    svg = "{http://www.w3.org/2000/svg}"
    assert len(drawn.findall(f"{svg}polyline")) == len(LINES)
    assert len(drawn.findall(f"{svg}circle")) == 5
    for dot in drawn.findall(f"{svg}circle"):
        assert 0 < float(dot.attrib["cx"]) < plots.WIDTH
        assert 0 < float(dot.attrib["cy"]) < plots.HEIGHT


def test_the_summary_of_perf_test_is_read() -> None:
    assert perf_test.parse(SUMMARY) == {
        "messages": 62_740.0,
        "msgs_per_s": 15_685,
        "latency_us": {"p50": 31_280, "p99": 103_147},
    }


def test_a_run_of_perf_test_without_summary_is_an_error() -> None:
    with pytest.raises(ValueError, match="no summary"):
        perf_test.parse("id: t, time 1.004 s, sent: 13139 msg/s\n")
