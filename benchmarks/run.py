#!/usr/bin/env python3
"""Leveret, in several forms, beside RabbitMQ: the same work, alternating, on the same machine.

    python benchmarks/run.py                                   # all, 7 rounds, with `leveret perf`
    python benchmarks/run.py --scenario c1k,h2k --rounds 3
    python benchmarks/run.py --loadgen DIR                     # the neutral load generator in DIR
    python benchmarks/run.py --scenario b1k,c1k --tls          # over TLS

See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set
from harness import brokers, results
from harness.scenarios import BARS, DEFAULT, SCALES, SCENARIOS

from leveret.server.control_client import ask

PERF_TIMEOUT_S = 600
MESSAGE_BYTES = 200  # of a message in RAM, beside its body


def main() -> int:
    """Run and report; 1 when a run was wrong or, with --check, a bar was missed."""
    options = _parser().parse_args()
    names = _names(options)
    keys = DEFAULT if options.scenario == "all" else options.scenario.split(",")
    with ExitStack() as stack:
        running = [stack.enter_context(_start(name, options.tls)) for name in names]
        about = {
            "commit": results.commit(),
            "machine": results.machine(),
            "versions": results.versions("rabbitmq" in names),
            "command": results.command_line("benchmarks/run.py"),
            "generator": "loadgen" if options.loadgen else "leveret perf",
            "tls": options.tls,
            "event_loop": running[-1].event_loop,
        }
        rounds: list[dict[str, Any]] = []
        for key in keys:
            scale = options.scale * SCALES.get(key, 1.0)
            measure = _with_loadgen if options.loadgen else _with_perf
            rounds += measure(key, scale, running, options)
            if options.rest_s:
                _measure_rest(running, rounds[-len(running) :], options.rest_s)
    found = results.medians(rounds)
    figures = {"medians": found, "rounds": rounds}
    target = results.write(options.out, options.name, figures, about)
    print(results.table(found, bool(options.loadgen)))
    print(f"\n{target}")
    wrong = [each for each in rounds if not each.get("ok")]
    for each in wrong:
        print(
            f"WRONG {each['scenario']} {each['target']}: {each.get('error') or each}",
            file=sys.stderr,
        )
    missed = [row for row in results.judge(found, bool(options.loadgen)) if not row[-1]]
    return 1 if wrong or (options.check and missed) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--brokers", default="", help="of path,c,py,rabbitmq (all but c that are there)"
    )
    parser.add_argument(
        "--scenario", default="all", help="keys with commas: " + " ".join(SCENARIOS)
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies every count")
    parser.add_argument("--loadgen", type=Path, help="folder with a loadgen.py")
    parser.add_argument("--tls", action="store_true", help="over TLS; so must be the loadgen.py")
    parser.add_argument(
        "--rest-s", type=float, default=10.0, help="before the memory is measured; 0: it is not"
    )
    parser.add_argument("--name", default="ratios", help="last part of the results file's name")
    parser.add_argument("--out", type=Path, default=results.RESULTS, help="folder of the results")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    return parser


def _names(options: argparse.Namespace) -> list[str]:
    if options.brokers:
        return list(options.brokers.split(","))
    return ["rabbitmq", "path", "py"] if brokers.rabbitmq_is_installed() else ["path", "py"]


def _start(name: str, has_tls: bool) -> Any:
    if name == "rabbitmq":
        return brokers.rabbitmq(has_tls=has_tls)
    return brokers.leveret(name, has_tls=has_tls)


def _with_perf(
    key: str, scale: float, running: list[brokers.Broker], options: argparse.Namespace
) -> list[dict[str, Any]]:
    rounds = []
    for turn in range(options.rounds):
        for broker in running if turn % 2 == 0 else reversed(running):
            result = _perf(key, scale, broker)
            rounds.append(result | {"round": turn})
            _say(result)
    return rounds


def _perf(key: str, scale: float, broker: brokers.Broker) -> dict[str, Any]:
    scenario = SCENARIOS[key]
    count = max(100, int(scenario.count * scale))
    scheme = "amqps" if broker.has_tls else "amqp"
    command = [*brokers.leveret_command(), "perf", "-h", f"{scheme}://{broker.host}:{broker.port}"]
    command += ["-C", str(count), "--pid", str(broker.pid), "--json", "-"]
    command += scenario.options.split()
    done = subprocess.run(
        command,
        env=brokers.environment(),
        capture_output=True,
        text=True,
        timeout=PERF_TIMEOUT_S,
        check=False,
    )
    about = {"scenario": key, "target": broker.name, "loadavg": os.getloadavg()[0]}
    if not done.stdout:
        return {"ok": False, "error": done.stderr.strip()[-400:], **about}
    return json.loads(done.stdout) | about


def _with_loadgen(
    key: str, scale: float, running: list[brokers.Broker], options: argparse.Namespace
) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="leveret-bench") as folder:
        out = Path(folder, "out.jsonl")
        command = [sys.executable, str(options.loadgen / "loadgen.py"), "--paired"]
        for each in running:
            command += ["--target", f"{each.name}={each.host}:{each.port},pid={each.pid}"]
        command += ["--rounds", str(options.rounds), "--scenario", key]
        command += ["--scale", str(scale), "--out", str(out)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        rounds = [json.loads(line) for line in out.read_text().splitlines()]
    for result in rounds:
        _say(result)
    return rounds


def _measure_rest(running: list[brokers.Broker], last: list[dict[str, Any]], rest_s: float) -> None:
    """Add to the results of the last round what each Leveret uses at rest, in MB, beside what its queues hold."""
    time.sleep(rest_s)
    for broker in running:
        if broker.data is not None:
            used_bytes = results.anonymous_bytes(broker.pid) - _held_bytes(broker.data)
            (own,) = (each for each in last if each["target"] == broker.name)
            own["rest_mb"] = round(used_bytes / 1e6, 1)


def _held_bytes(data: Path) -> int:
    """Return the RAM that messages in queues take."""
    rows = ask(data, "list_queues", {"vhost": "/"})
    return sum(row["message_bytes_ram"] + MESSAGE_BYTES * row["messages_ram"] for row in rows)


def _say(result: dict[str, Any]) -> None:
    rate, cpu = result.get("msgs_per_s", 0), result.get("broker_cpu_us_per_msg")
    text = f"{result['scenario']:6} {result['target']:12} {rate:12,.0f} msg/s"
    text += f" {cpu:9.3f} µs" if cpu is not None else ""
    print(text + ("" if result.get("ok") else "  WRONG"), file=sys.stderr, flush=True)


if __name__ == "__main__":
    assert set(BARS) <= set(SCENARIOS)
    sys.exit(main())
