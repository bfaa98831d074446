#!/usr/bin/env python3
"""What a delivery costs while queues, connections, a fan-out, or the bindings of an exchange grow; RabbitMQ beside it.

    python benchmarks/growth.py                                  # all curves, 5 rounds
    python benchmarks/growth.py --curve queues,topic --rounds 3
    python benchmarks/growth.py --quick                          # a tenth of the sizes, short rounds
    python benchmarks/growth.py --plots docs/plots --check       # draw them; exit 1 when one grows too much

The loads are in ``curves/loads.py``; see benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set
from curves import plots
from curves.loads import LOADS, Load
from harness import brokers, results, rounds

GROWTH_MAX: Final = 1.5
WARM_UP_S: Final = 0.5
QUICK_S: Final = 0.3


def main() -> int:
    """Run and report; 1 when a curve of Leveret grows too much, with --check."""
    options = _parser().parse_args()
    _raise_file_limit()
    names = options.brokers.split(",")
    about = {
        "commit": results.commit(),
        "machine": results.machine(),
        "versions": results.versions("rabbitmq" in names),
        "command": results.command_line("benchmarks/growth.py"),
    }
    found: list[dict[str, Any]] = []
    for curve in options.curve.split(","):
        found += _measure(curve, names, options)
        medians = results.medians(found)
        target = results.write(
            options.out, options.name, {"medians": medians, "rounds": found}, about
        )
        curves = plots.curves(medians)
        print(f"{plots.table(curve, curves[curve])}\n", flush=True)
    print(target)
    if options.plots:
        plots.write(curves, options.plots)
    steep = [each for each in judge(curves) if each[2] > GROWTH_MAX]
    for curve, name, growth in steep:
        print(f"{curve} {name}: {growth:.2f}x, more than {GROWTH_MAX:g}x", file=sys.stderr)
    return 1 if options.check and steep else 0


def judge(curves: plots.Curves) -> list[tuple[str, str, float]]:
    """Return (curve, broker, growth) for Leveret; see ``plots.growth``."""
    return [
        (curve, name, plots.growth(line))
        for curve, lines in curves.items()
        for name, line in lines.items()
        if name != results.REFERENCE
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--curve", default=",".join(LOADS), help="curves, with commas")
    parser.add_argument("--brokers", default="rabbitmq,c", help="of path, c, py and rabbitmq")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-s", type=float, default=2.0, help="duration of a round")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes, short rounds")
    parser.add_argument("--name", default="growth", help="last part of the results file's name")
    parser.add_argument("--out", type=Path, default=results.RESULTS, help="folder of the results")
    parser.add_argument("--plots", type=Path, help="folder for a plot of each curve")
    parser.add_argument("--check", action="store_true", help="exit 1 when a curve grows too much")
    return parser


def _measure(curve: str, names: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return all rounds of a curve, with fresh brokers."""
    kind, sizes = LOADS[curve]
    round_s = QUICK_S if options.quick else options.round_s
    found = []
    with ExitStack() as stack:
        loads: list[tuple[brokers.Broker, Load]] = []
        for name in names:
            broker = stack.enter_context(
                brokers.rabbitmq() if name == "rabbitmq" else brokers.leveret(name)
            )
            load = kind(broker)
            stack.callback(load.close)
            loads.append((broker, load))
        for size in sizes:
            at = max(1, size // 10) if options.quick else size
            for _, load in loads:
                load.grow(at)
                load.run(min(WARM_UP_S, round_s))
            for number in range(options.rounds):
                for broker, load in loads if number % 2 else reversed(loads):
                    about = {"scenario": f"{curve} {at}", "target": broker.name, "round": number}
                    found.append(about | _round(broker, load, round_s))
                    _say(found[-1])
    return found


def _round(broker: brokers.Broker, load: Load, duration_s: float) -> dict[str, Any]:
    cpu_s, began_s = rounds.cpu_s(broker), time.monotonic()
    count = load.run(duration_s)
    took_s, cpu_s = time.monotonic() - began_s, rounds.cpu_s(broker) - cpu_s
    return {
        "deliveries": count,
        "msgs_per_s": count / took_s,
        "broker_cpu_us_per_msg": cpu_s / count * 1e6,
        "loadavg": os.getloadavg()[0],
    }


def _raise_file_limit() -> None:
    """Allow this process, and the brokers that it starts, a descriptor for each connection."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _say(result: dict[str, Any]) -> None:
    text = f"{result['scenario']:18} {result['target']:12} {result['msgs_per_s']:12,.0f}/s"
    text += f" {result['broker_cpu_us_per_msg']:10.2f} µs  load {result['loadavg']:.1f}"
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
