"""The benchmark runner: its evaluation of figures, and a short run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leveret.server.perf import args
from rigs.nodes import clean_environment

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from harness import results, scenarios  # noqa: E402


def rounds(scenario: str, target: str, *stats: tuple[float, float]) -> list[dict[str, Any]]:
    return [
        {
            "scenario": scenario,
            "target": target,
            "ok": True,
            "msgs_per_s": rate,
            "broker_cpu_us_per_msg": cpu,
        }
        for rate, cpu in stats
    ]


ROUNDS = [
    *rounds("c1k", "rabbitmq", (10, 30), (1000, 31), (12, 29)),
    *rounds("c1k", "leveret-c", (80, 3.0), (84, 3.3), (1, 3.6)),
    *rounds("c1k", "leveret-py", (60, 6.3), (48, 6.3), (1, 6.3)),
]


def test_medians_are_over_the_rounds_of_one_broker() -> None:
    found = results.medians(ROUNDS)

    assert found["c1k"]["rabbitmq"] == {"msgs_per_s": 12, "broker_cpu_us_per_msg": 30}
    assert found["c1k"]["leveret-c"] == {"msgs_per_s": 80, "broker_cpu_us_per_msg": 3.3}


def test_ratios_are_judged_by_the_bar_of_their_kernel() -> None:
    judged = results.judge(results.medians(ROUNDS), rates_count=True)

    assert [
        (name, measure, round(ratio, 3), met) for _, name, measure, ratio, _, met in judged
    ] == [
        ("leveret-c", "broker_cpu_us_per_msg", 0.11, True),
        ("leveret-c", "msgs_per_s", 6.667, True),
        ("leveret-py", "broker_cpu_us_per_msg", 0.21, False),
        ("leveret-py", "msgs_per_s", 4.0, True),
    ]


def test_the_compiled_path_has_bars_of_its_own() -> None:
    given = [
        {"scenario": "k10", "target": name, "ok": True, "broker_cpu_us_per_msg": cpu}
        for name, cpu in (("rabbitmq", 100), ("leveret-path", 29), ("leveret-c", 70))
    ]

    judged = results.judge(results.medians(given), rates_count=True)

    assert [(name, limit, met) for _, name, _, _, limit, met in judged] == [
        ("leveret-path", 0.28, False)
    ]


def test_rates_are_not_judged_when_the_generator_is_the_limit() -> None:
    judged = results.judge(results.medians(ROUNDS), rates_count=False)

    assert {measure for _, _, measure, *_ in judged} == {"broker_cpu_us_per_msg"}


def test_latency_is_judged_where_it_has_a_bar() -> None:
    given = [
        {"scenario": "h2k", "target": name, "latency_us": {"p50": p50, "p99": p99}}
        for name, p50, p99 in (("rabbitmq", 100, 200), ("leveret-c", 90, 201))
    ]

    judged = results.judge(results.medians(given), rates_count=False)

    assert [(measure, met) for _, _, measure, _, _, met in judged] == [
        ("latency_us.p50", True),
        ("latency_us.p99", False),
    ]


def test_memory_at_rest_is_judged_without_another_broker() -> None:
    given = [
        {"scenario": "c1k", "target": name, "rest_mb": rest_mb}
        for name, rest_mb in (("leveret-c", results.REST_MB), ("leveret-py", 301.0))
    ]

    judged = results.judge(results.medians(given), rates_count=False)

    assert [(name, measure, met) for _, name, measure, _, _, met in judged] == [
        ("leveret-c", "rest_mb", True),
        ("leveret-py", "rest_mb", False),
    ]


def test_the_table_marks_what_is_missed() -> None:
    table = results.table(results.medians(ROUNDS), rates_count=True)

    missed = [line for line in table.splitlines() if line.endswith("MISSED")]
    assert len(missed) == 1
    assert missed[0].split()[:3] == ["c1k", "leveret-py", "broker_cpu_us_per_msg"]


@pytest.mark.parametrize("key", scenarios.SCENARIOS)
def test_every_scenario_is_one_that_perf_takes(key: str) -> None:
    scenario = scenarios.SCENARIOS[key]

    args.parse(["-C", str(scenario.count), *scenario.options.split()])


def test_every_bar_has_a_scenario() -> None:
    assert set(scenarios.BARS) <= set(scenarios.SCENARIOS)


def test_a_small_run_leaves_its_figures(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--brokers", "py", "--rounds", "2"]
    command += [
        "--scenario",
        "c1k,f10",
        "--scale",
        "0.003",
        "--rest-s",
        "0.1",
        "--name",
        "try",
        "--out",
        str(tmp_path),
    ]

    done = subprocess.run(
        command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("*-try.json")
    document = json.loads(file.read_text())
    assert [(each["scenario"], each["ok"]) for each in document["rounds"]] == [
        ("c1k", True),
        ("c1k", True),
        ("f10", True),
        ("f10", True),
    ]
    assert document["medians"]["c1k"]["leveret-py"]["broker_cpu_us_per_msg"] > 0
    assert 0 < document["medians"]["f10"]["leveret-py"]["rest_mb"] < results.REST_MB
    assert {"cpu", "cores"} <= document["machine"].keys()
    assert {"leveret", "python"} <= document["versions"].keys()
    assert "c1k    leveret-py" in done.stdout
