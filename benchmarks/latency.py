#!/usr/bin/env python3
"""Latency and CPU with both values of the setting ``latency``, in alternating rounds of ``leveret perf``.

    python benchmarks/latency.py                              # all, 7 rounds: half an hour
    python benchmarks/latency.py --only 1000-durable --rounds 1 --brokers c

One publisher sends at a steady rate to one consumer, which acks each message; a delivery's latency is from publish to
delivery, a confirm's from publish to confirm. Then publishers that wait for each confirm, or for none, send as fast as
they can. Prints medians as the tables of docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set
from harness import brokers, results

from leveret.core.batching import POLICIES

ROUND_S: Final = 5
DURABLE: Final = "-f persistent"
QUANTILES: Final = ("p50", "p99", "p999")


class Scenario(NamedTuple):
    """A row of a table: its first cell, and the options of ``leveret perf`` that measure it."""

    about: str
    options: str


PACED: Final = {
    f"{rate}-{kind}": Scenario(f"{rate:,}/s, {kind}", f"-r {rate} -c 1000 -q 200 {flags}")
    for rate in (100, 1_000, 10_000)
    for kind, flags in (("transient", ""), ("durable", DURABLE))
} | {
    "10000-stream": Scenario("10,000/s, transient, no confirms", "-r 10000 -q 200"),
    "1000-kept": Scenario("1,000/s, durable, no consumer", f"-r 1000 -c 1000 -y 0 {DURABLE}"),
}
FULL: Final = {
    f"k{pairs}{suffix}": Scenario(
        f"{pairs} publisher{'s' * (pairs > 1)}, {kind}, each confirmed",
        f"-x {pairs} -y {pairs} -qp k-%d -qpt {pairs} -c 1 {flags}",
    )
    for kind, suffix, flags in (("transient", "", ""), ("durable", "p", DURABLE))
    for pairs in (1, 10, 50)
} | {
    "stream": Scenario("1 publisher, transient, no confirms", "-x 1 -y 1 -q 1000"),
    "stream-durable": Scenario("1 publisher, durable, no confirms", f"-q 1000 {DURABLE}"),
}


def main() -> int:
    """Run and report; 1 when a run failed."""
    options = _parser().parse_args()
    scenarios = PACED | FULL
    found: list[dict[str, Any]] = []
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(brokers.leveret(options.brokers, f'latency = "{name}"\n'))
            for name in POLICIES
        }
        for key in options.only.split(","):
            for number in range(options.rounds):
                order = list(running.items())
                for name, broker in order if number % 2 else reversed(order):
                    each = {"scenario": key, "target": name, "round": number}
                    found.append(each | _run(broker, scenarios[key].options, options.round_s))
                    print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    medians = _medians(found)
    print("\n".join(_paced_table(medians)), "\n".join(_full_table(medians)), sep="\n\n")
    about = {
        "commit": results.commit(),
        "machine": results.machine(),
        "versions": results.versions(False),
        "command": results.command_line("benchmarks/latency.py"),
        "form": options.brokers,
    }
    print(results.write(options.out, "latency", {"medians": medians, "rounds": found}, about))
    return 0 if all(each["ok"] for each in found) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(PACED | FULL), help="scenarios, with commas")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--round-s", type=int, default=ROUND_S, help="duration of a round")
    parser.add_argument("--brokers", default="path", choices=["path", "c", "py"], help="form")
    parser.add_argument("--out", type=Path, default=results.RESULTS, help="folder of the results")
    return parser


def _run(broker: brokers.Broker, options: str, round_s: int) -> dict[str, Any]:
    command = [*brokers.leveret_command(), "perf", "-h", f"amqp://{broker.host}:{broker.port}"]
    command += ["-z", str(round_s), "-s", "256", "--json", "-", "--pid", str(broker.pid)]
    done = subprocess.run(
        [*command, *options.split()],
        capture_output=True,
        text=True,
        env=brokers.environment(),
        check=False,
    )
    result: dict[str, Any] = json.loads(done.stdout) if done.stdout else {"ok": False}
    kept = ("ok", "msgs_per_s", "broker_cpu_us_per_msg", "latency_us", "confirm_us", "violations")
    return {key: result[key] for key in kept if key in result}


def _medians(found: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return scenario -> policy -> measure -> median over the rounds."""
    flat: dict[str, dict[str, dict[str, list[float]]]] = {}
    for each in found:
        own = flat.setdefault(each["scenario"], {}).setdefault(each["target"], {})
        for measure in ("msgs_per_s", "broker_cpu_us_per_msg"):
            own.setdefault(measure, []).append(each.get(measure, 0.0))
        for measure in ("latency_us", "confirm_us"):
            for name in QUANTILES if measure in each else ():
                own.setdefault(f"{measure}.{name}", []).append(each[measure][name])
    return {
        key: {
            name: {measure: statistics.median(values) for measure, values in own.items()}
            for name, own in targets.items()
        }
        for key, targets in flat.items()
    }


def _paced_table(medians: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    lines = [
        "| rate | `latency` | delivery p50, p99, p99.9, µs | confirm p50, p99, p99.9, µs | CPU for a message, µs |",
        "|---|---|--:|--:|--:|",
    ]
    for key, scenario in PACED.items():
        for name, own in medians.get(key, {}).items():
            times = [
                " / ".join(f"{own[f'{measure}.{at}']:,.0f}" for at in QUANTILES)
                if f"{measure}.p50" in own
                else "-"
                for measure in ("latency_us", "confirm_us")
            ]
            cpu = own["broker_cpu_us_per_msg"]
            lines.append(f"| {scenario.about} | `{name}` | {times[0]} | {times[1]} | {cpu:.1f} |")
    return lines


def _full_table(medians: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    lines = [
        "| full rate | `balanced`, msg/s, µs CPU | `low`, msg/s, µs CPU | `low` to `balanced`, rate, CPU |",
        "|---|--:|--:|--:|",
    ]
    for key, scenario in FULL.items():
        if key in medians:
            pairs = [
                (medians[key][name]["msgs_per_s"], medians[key][name]["broker_cpu_us_per_msg"])
                for name in ("balanced", "low")
            ]
            (rate, cpu), (low_rate, low_cpu) = pairs
            lines.append(
                f"| {scenario.about} (`{key}`) | {rate:,.0f}, {cpu:.1f} | {low_rate:,.0f}, {low_cpu:.1f}"
                f" | {low_rate / rate:.2f}x, {low_cpu / cpu:.2f}x |"
            )
    return lines


if __name__ == "__main__":
    sys.exit(main())
