"""Figures: medians, ratios to RabbitMQ, bars met or missed, and the file they are kept in."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.scenarios import BARS, PATH_BARS

import leveret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.scenarios import Bar

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
MEASURES = ("msgs_per_s", "broker_cpu_us_per_msg", "latency_us.p50", "latency_us.p99", "rest_mb")
REST_MB = 300.0  # that a broker at rest may use beside what its queues hold
REFERENCE = "rabbitmq"


def long_run_options(about: str | None, name: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all long runs with an external generator take."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--loadgen", type=Path, required=True, help="folder with a loadgen.py")
    parser.add_argument("--kernel", default="c", choices=["c", "py"])
    parser.add_argument("--name", default=name, help="last part of the results file's name")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    return parser


def machine() -> dict[str, Any]:
    """Describe the machine of the figures."""
    cpu = [line for line in _read("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    memory = _read("/proc/meminfo").split()[1:2]
    return {
        "cpu": cpu[0].partition(":")[2].strip() if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "memory_kb": int(memory[0]) if memory else None,
        "kernel": platform.release(),
        "system": platform.platform(),
    }


def anonymous_bytes(pid: int) -> int:
    """Return the resident memory of a process that is not of files."""
    found = re.search(r"^RssAnon:\s+(\d+) kB$", _read(f"/proc/{pid}/status"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def versions(with_rabbitmq: bool) -> dict[str, str]:
    """Return the versions of the programs measured."""
    found = {"leveret": leveret.__version__, "python": sys.version.split()[0]}
    if with_rabbitmq:
        found["rabbitmq"] = _output("rabbitmqctl", "version").splitlines()[-1:][0]
    return found


def commit() -> str:
    """Return the commit, with ``+`` when tracked files differ from it."""
    name = _output("git", "-C", str(HERE), "rev-parse", "--short", "HEAD").strip() or "unknown"
    changed = _output("git", "-C", str(HERE), "status", "--porcelain", "--untracked-files=no")
    return name + ("+" if changed.strip() else "")


def write(folder: Path, name: str, found: dict[str, Any], about: dict[str, Any]) -> Path:
    """Write the results; return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    target = folder / f"{now:%Y-%m-%d}-{about['commit'].rstrip('+')}-{name}.json"
    document = {"date": f"{now:%Y-%m-%dT%H:%MZ}", **about, **found}
    target.write_text(json.dumps(document, indent=1) + "\n")
    return target


def medians(rounds: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return scenario -> broker -> measure -> median over the rounds."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    pairs = {(each["scenario"], each["target"]): None for each in rounds}
    for scenario, target in pairs:
        own = [each for each in rounds if (each["scenario"], each["target"]) == (scenario, target)]
        values = {measure: _values(own, measure) for measure in MEASURES}
        found.setdefault(scenario, {})[target] = {
            measure: statistics.median(given) for measure, given in values.items() if given
        }
    return found


def judge(
    found: dict[str, dict[str, dict[str, float]]],
    rates_count: bool,
    bars: Mapping[str, Bar] = BARS,
) -> list[tuple[str, str, str, float, float, bool]]:
    """Return (scenario, broker, measure, ratio, bar, met) for every measure that has a bar.

    For ``rest_mb`` it is the figure itself instead of its ratio to RabbitMQ's.

    Args:
        found: of ``medians``.
        rates_count: whether the generator is fast enough for messages per second to mean anything.
        bars: of the scenarios; on the compiled path some have higher ones.
    """
    judged = []
    for scenario, brokers in found.items():
        reference = brokers.get(REFERENCE)
        for name, own in brokers.items():
            bar = PATH_BARS.get(scenario) if name.endswith("-path") else None
            bar = bar or bars.get(scenario)
            if "rest_mb" in own:
                met = own["rest_mb"] <= REST_MB
                judged.append((scenario, name, "rest_mb", own["rest_mb"], REST_MB, met))
            if reference is None or bar is None or name == REFERENCE:
                continue
            pure = name.endswith("-py")
            limits = [
                ("broker_cpu_us_per_msg", bar.cpu and bar.cpu[pure], True),
                ("msgs_per_s", bar.rate and bar.rate[pure] if rates_count else None, False),
                ("latency_us.p50", bar.p50, True),
                ("latency_us.p99", bar.p99, True),
            ]
            for measure, limit, is_most in limits:
                if limit is not None and measure in own and reference.get(measure):
                    ratio = own[measure] / reference[measure]
                    met = ratio <= limit if is_most else ratio >= limit
                    judged.append((scenario, name, measure, ratio, limit, met))
    return judged


def table(
    found: dict[str, dict[str, dict[str, float]]],
    rates_count: bool,
    bars: Mapping[str, Bar] = BARS,
) -> str:
    """Return the medians and, where RabbitMQ ran too, the ratios against the bars."""
    latency = f"{'p50 µs':>9} {'p99 µs':>9}"
    lines = [f"{'':6} {'broker':12} {'msg/s':>12} {'CPU µs/msg':>11} {latency} {'rest MB':>8}"]
    for scenario, brokers in found.items():
        for name, own in brokers.items():
            cells = [own.get(measure) for measure in MEASURES]
            shown = [
                f"{cells[0]:12,.0f}" if cells[0] is not None else " " * 12,
                f"{cells[1]:11.3f}" if cells[1] is not None else " " * 11,
                *(f"{cell:9,.0f}" if cell is not None else " " * 9 for cell in cells[2:4]),
                f"{cells[4]:8,.0f}" if cells[4] is not None else "",
            ]
            lines.append(f"{scenario:6} {name:12} {' '.join(shown)}".rstrip())
    if judged := judge(found, rates_count, bars):
        lines += ["", f"{'':6} {'broker':12} {'measure':22} {'ratio':>8} {'bar':>8}"]
    for scenario, name, measure, ratio, limit, met in judged:
        verdict = "" if met else "  MISSED"
        lines.append(f"{scenario:6} {name:12} {measure:22} {ratio:8.3f} {limit:8.3f}{verdict}")
    return "\n".join(lines)


def _values(rounds: list[dict[str, Any]], measure: str) -> list[float]:
    """Return a measure of each round; where nobody consumes, a confirm's latency is the latency."""
    values = []
    for each in rounds:
        value: Any = each
        if value.get("latency_us") is None:
            value = {**value, "latency_us": value.get("confirm_us")}
        for part in measure.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, int | float):
            values.append(float(value))
    return values


def command_line(program: str) -> list[str]:
    """Return how this benchmark was called; ``DIR`` stands for folders of the machine, which say nothing to others."""
    return [program, *("DIR" if Path(each).is_absolute() else each for each in sys.argv[1:])]


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout
