#!/usr/bin/env python3
"""RabbitMQ's own load generator, PerfTest, against Leveret and RabbitMQ, in alternating rounds.

    python benchmarks/perf_test.py --jars DIR                          # all, 3 rounds of 10 s
    python benchmarks/perf_test.py --jars DIR --only 1x1,1x1-confirms --rounds 1

DIR has the jars of com.rabbitmq:perf-test with all that it depends on; `java` is in the PATH. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set
from harness import brokers, results, rounds

SCENARIOS: Final = {
    f"{pairs}x{pairs}{name}": f"-x {pairs} -y {pairs} -qp perf-%d -qpf 1 -qpt {pairs} {options}"
    for pairs in (1, 10, 100)
    for name, options in (
        ("", ""),
        ("-confirms", "-c 100"),
        ("-persistent", "-f persistent -c 100"),
    )
}
GRACE_S: Final = 120  # for the start and the end of a run
_TIME = re.compile(r"time (\d+\.\d+) s,")
_RATE = re.compile(r"receiving rate avg: (\d+) msg/s")
_LATENCY = re.compile(r"consumer latency min/median/75th/95th/99th [\d/]*?(\d+)/\d+/\d+/(\d+) µs")


def main() -> int:
    """Run and report; 1 when a run failed."""
    options = _parser().parse_args()
    names = options.brokers.split(",")
    about = {
        "commit": results.commit(),
        "machine": results.machine(),
        "versions": results.versions("rabbitmq" in names) | {"perf-test": version(options.jars)},
        "command": results.command_line("benchmarks/perf_test.py"),
        "generator": "PerfTest",
    }
    found: list[dict[str, Any]] = []
    with ExitStack() as stack:
        running = [
            stack.enter_context(brokers.rabbitmq() if name == "rabbitmq" else brokers.leveret(name))
            for name in names
        ]
        for key in options.only.split(","):
            for number in range(options.rounds):
                for broker in running if number % 2 else reversed(running):
                    each = {"scenario": key, "target": broker.name, "round": number}
                    found.append(each | _run(broker, key, options))
                    _say(found[-1])
    medians = results.medians(found)
    target = results.write(options.out, options.name, {"medians": medians, "rounds": found}, about)
    print(f"{table(medians)}\n{target}")
    return 0 if all(each["ok"] for each in found) else 1


def parse(output: str) -> dict[str, Any]:
    """Return the figures of PerfTest's summary: messages received, their rate, and their latency in microseconds.

    PerfTest does not print how many messages it has received: they are its mean rate times its duration.

    Raises:
        ValueError: there is no summary.
    """
    times, rate = _TIME.findall(output), _RATE.search(output)
    latency = _LATENCY.search(output)
    if not times or rate is None or latency is None:
        raise ValueError("PerfTest has printed no summary")
    return {
        "messages": float(times[-1]) * int(rate[1]),
        "msgs_per_s": int(rate[1]),
        "latency_us": {"p50": int(latency[1]), "p99": int(latency[2])},
    }


def version(jars: Path) -> str:
    """Return the version of the PerfTest in a folder of jars."""
    return "".join(sorted(each.stem for each in jars.glob("perf-test-*.jar"))[:1])


def table(medians: dict[str, dict[str, dict[str, float]]]) -> str:
    """Return the medians as a table of Markdown, Leveret's before RabbitMQ's."""
    lines = [
        "| pairs | broker | msg/s | p50, ms | p99, ms | broker CPU, µs for a message |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for scenario, own in medians.items():
        for name in sorted(own):
            figures = own[name]
            lines.append(
                f"| {scenario} | {name} | {figures['msgs_per_s']:,.0f}"
                f" | {figures['latency_us.p50'] / 1000:,.1f} | {figures['latency_us.p99'] / 1000:,.1f}"
                f" | {figures['broker_cpu_us_per_msg']:.1f} |"
            )
    return "\n".join(lines) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jars", type=Path, required=True, help="folder with PerfTest's jars")
    parser.add_argument("--only", default=",".join(SCENARIOS), help="scenarios, with commas")
    parser.add_argument("--brokers", default="rabbitmq,c", help="of c, py and rabbitmq")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--round-s", type=int, default=10, help="duration of a round")
    parser.add_argument("--name", default="perf-test", help="last part of the results file's name")
    parser.add_argument("--out", type=Path, default=results.RESULTS, help="folder of the results")
    return parser


def _run(broker: brokers.Broker, key: str, options: argparse.Namespace) -> dict[str, Any]:
    command = ["java", "-cp", f"{options.jars}/*", "com.rabbitmq.perf.PerfTest"]
    command += ["-h", f"amqp://{broker.host}:{broker.port}", "-z", str(options.round_s)]
    cpu_s = rounds.cpu_s(broker)
    done = subprocess.run(
        [*command, *SCENARIOS[key].split()],
        capture_output=True,
        text=True,
        timeout=options.round_s + GRACE_S,
        check=False,
    )
    cpu_s = rounds.cpu_s(broker) - cpu_s
    about = {"loadavg": os.getloadavg()[0]}
    try:
        figures = parse(done.stdout)
    except ValueError as error:
        return {"ok": False, "error": f"{error}: {done.stderr.strip()[-400:]}", **about}
    is_ok = done.returncode == 0
    return (
        {"ok": is_ok, "broker_cpu_us_per_msg": cpu_s / figures["messages"] * 1e6} | figures | about
    )


def _say(result: dict[str, Any]) -> None:
    text = f"{result['scenario']:18} {result['target']:12} "
    if result["ok"]:
        text += f"{result['msgs_per_s']:10,}/s {result['broker_cpu_us_per_msg']:8.1f} µs"
        text += f" {result['latency_us']} load {result['loadavg']:.1f}"
    else:
        text += f"WRONG {result.get('error', '')}"
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
