#!/usr/bin/env python3
"""Ten million messages in one queue: memory, throughput, and the delay of other clients.

    python benchmarks/backlog.py --loadgen DIR                       # all of it: about 40 minutes
    python benchmarks/backlog.py --loadgen DIR --messages 300000 --paced-s 10

Persistent messages of 1 KiB with confirms, consumed with prefetch 1000 and acks of 100. Four runs, each with a
broker of its own: the same drain without a limit, from RAM; fill and drain with a memory limit; a paced
publisher beside a consumer on another queue, with the limit; RabbitMQ's lazy queue.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set
from harness import brokers, results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.brokers import Broker

STORED = ["--size", "1024", "--persistent", "--durable"]
UNLIMITED = '[memory]\nhigh_watermark = "1000GB"\n'
DRAIN = ["--mode", "drain", "--confirm", "1000", "--prefetch", "1000", "--ackevery", "100"]
RUN_S_MAX = 3600
LIGHT_RATE = 200
SAMPLE_S = 0.25


class Engine:
    """The generator's engine."""

    def __init__(self, folder: Path) -> None:
        sys.path.insert(0, str(folder))
        import loadgen

        loadgen.build()
        self._command = str(loadgen.ENGINE)
        self._descendants = loadgen.descendants

    def start(self, broker: Broker, name: str, *options: str) -> subprocess.Popen[str]:
        """Begin a run."""
        pids = ",".join(map(str, self._descendants(broker.pid)))
        command = [self._command, "--host", broker.host, "--port", str(broker.port), "--pids", pids]
        command += ["--prefix", f"bench.{name}", "--timeout", str(RUN_S_MAX), *options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a run, and return its result."""
    out, err = process.communicate()
    try:
        found: dict[str, Any] = json.loads(out)
    except ValueError:
        return {"ok": False, "error": err[-400:]}
    return found | {"ok": found["ok"] and not process.returncode}


def anonymous_kib(pid: int) -> int:
    """Return the anonymous memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["RssAnon"].split()[0])


class Peak:
    """The maximum of a figure that is read four times a second."""

    def __init__(self, look: Callable[[], int]) -> None:
        self._look = look
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.most = 0

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self.most = max(self.most, self._look())

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@contextmanager
def limited(options: argparse.Namespace) -> Iterator[Broker]:
    """Run Leveret with the memory limit."""
    settings = f'[memory]\nhigh_watermark = "{options.memory}"\n'
    with brokers.leveret(options.kernel, settings) as broker:
        yield broker


def drained(engine: Engine, broker: Broker, name: str, count: int) -> dict[str, Any]:
    """Fill a queue and drain it."""
    return finished(engine.start(broker, name, *STORED, *DRAIN, "--count", str(count)))


def paced(engine: Engine, broker: Broker, rate: int, length_s: int) -> dict[str, Any]:
    """Publish at a rate, beside a light load on another queue."""
    heavy = ["--mode", "publish", "--confirm", "20000", "--rate", str(rate)]
    light = ["--prefetch", "200", "--rate", str(LIGHT_RATE), "--confirm", "1000"]
    runs = {
        "publisher": engine.start(
            broker, "deep", *STORED, *heavy, "--count", str(rate * length_s), "--keep"
        ),
        "beside": engine.start(
            broker, "light", *STORED, *light, "--count", str(LIGHT_RATE * length_s)
        ),
    }
    return {name: finished(run) for name, run in runs.items()}


def main() -> int:
    """Run and report; 1 when a run was wrong."""
    options = _parser().parse_args()
    engine = Engine(options.loadgen)
    found: dict[str, Any] = {}
    with (
        brokers.leveret(options.kernel, UNLIMITED) as broker,
        Peak(partial(anonymous_kib, broker.pid)) as peak,
    ):
        found["ram"] = drained(engine, broker, "ram", options.ram or options.messages)
    found["ram"]["rss_anon_peak_kib"] = peak.most
    with limited(options) as broker, Peak(partial(anonymous_kib, broker.pid)) as peak:
        found["disk"] = drained(engine, broker, "disk", options.messages)
    found["disk"]["rss_anon_peak_kib"] = peak.most
    with limited(options) as broker, Peak(partial(anonymous_kib, broker.pid)) as peak:
        found |= paced(engine, broker, options.rate, options.paced_s)
    found["publisher"]["rss_anon_peak_kib"] = peak.most
    if brokers.rabbitmq_is_installed():
        with brokers.rabbitmq() as broker:
            brokers.set_policy(broker, "^bench", '{"queue-mode":"lazy"}')
            found["rabbitmq_lazy"] = drained(engine, broker, "lazy", options.rabbitmq)
    about = {"commit": results.commit(), "machine": results.machine(), "options": sys.argv[1:]}
    target = results.write(options.out, options.name, found, about)
    print(_text(found))
    print(target)
    return 0 if all(run["ok"] for run in found.values()) else 1


def _text(found: dict[str, Any]) -> str:
    lines = []
    for name, run in found.items():
        if "error" in run:
            lines.append(f"{name}: {run['error']}")
            continue
        figures = [f"{run['msgs_per_s']:,.0f} msg/s", f"{run['broker_cpu_us_per_msg']:.1f} CPU us"]
        if "fill_msgs_per_s" in run:
            figures.append(f"filled at {run['fill_msgs_per_s']:,.0f} msg/s")
        figures += [
            f"{kind[:-3]} p99 {run[kind]['p99'] / 1000:.1f} ms"
            for kind in ("confirm_us", "latency_us")
            if kind in run
        ]
        if "rss_anon_peak_kib" in run:
            figures.append(f"RssAnon up to {run['rss_anon_peak_kib'] / 1024:.0f} MiB")
        lines.append(f"{name}: {'; '.join(figures)}{'' if run['ok'] else ' WRONG'}")
    rate = {name: run.get("msgs_per_s", 0.0) for name, run in found.items()}
    if rate["ram"]:
        lines.append(f"drain from disk / from RAM: {rate['disk'] / rate['ram']:.2f}")
    if rate.get("rabbitmq_lazy"):
        lines.append(f"drain / RabbitMQ's lazy queue: {rate['disk'] / rate['rabbitmq_lazy']:.2f}")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = results.long_run_options(__doc__, "backlog")
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--ram", type=int, help="messages that stay in RAM (as many; 1.3 KiB each)")
    parser.add_argument("--rabbitmq", type=int, default=1_000_000, help="messages for RabbitMQ")
    parser.add_argument("--memory", default="300MB", help="the limit")
    parser.add_argument("--rate", type=int, default=20_000, help="of the paced publisher")
    parser.add_argument("--paced-s", type=int, default=300)
    return parser


if __name__ == "__main__":
    sys.exit(main())
