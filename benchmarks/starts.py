#!/usr/bin/env python3
"""Duration of a start, and the disk space of a store.

    python benchmarks/starts.py --loadgen DIR                          # all of it: some ten minutes
    python benchmarks/starts.py --loadgen DIR --messages 50000 --through 100000 --backlog 100000

Three runs, each in a folder of its own: a node with a million persistent messages of 1 KiB in 100 queues is killed
with -9, started, stopped in order and started again; ten million go through a queue that stays shallow, while
the data directory is measured; a backlog of ten million is published, drained, and the node started again, after
which the index of messages is measured. Sizes are of blocks on the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set
from backlog import STORED, Engine, Peak, drained, finished
from harness import brokers, results

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.brokers import Broker

QUEUES = 100
BLOCK_BYTES = 512  # of ``st_blocks``


def disk_bytes(folder: Path, pattern: str = "*") -> int:
    """Return the disk space of the matching files of a folder."""
    size_bytes = 0
    for path in folder.rglob(pattern):
        try:
            size_bytes += path.lstat().st_blocks * BLOCK_BYTES
        except FileNotFoundError:
            continue
    return size_bytes


@contextmanager
def started(folder: Path, kernel: str) -> Iterator[tuple[Broker, float]]:
    """Start a node; yield it and the seconds until it accepted connections."""
    began_s = time.monotonic()
    with brokers.leveret_in(folder, kernel) as broker:
        yield broker, time.monotonic() - began_s


def ready_messages(folder: Path) -> int:
    """Ask a node for the messages in its queues."""
    command = [*brokers.leveret_command(), "status", "--json", "--data", str(folder / "data")]
    out = subprocess.run(
        command, env=brokers.environment(), check=True, stdout=subprocess.PIPE
    ).stdout
    return int(json.loads(out)["queues"]["messages_ready"])


def starts(engine: Engine, folder: Path, kernel: str, messages: int) -> dict[str, Any]:
    """Start after kill -9, and after a stop in order, with messages in many queues."""
    many = ["--mode", "publish", "--pubs", str(QUEUES), "--queues", str(QUEUES), "--keep"]
    count = str(messages // QUEUES)
    with started(folder, kernel) as (broker, _):
        load = engine.start(broker, "s", *STORED, *many, "--confirm", "1000", "--count", count)
        run = finished(load)
        os.kill(broker.pid, signal.SIGKILL)
    found: dict[str, Any] = {"ok": run["ok"], "messages": messages}
    for name in ("after_kill", "after_stop"):
        with started(folder, kernel) as (_, took_s):
            found[f"{name}_s"] = took_s
            found["ok"] &= ready_messages(folder) == messages
    return found


def through(engine: Engine, folder: Path, kernel: str, messages: int) -> dict[str, Any]:
    """Have messages pass through a shallow queue."""
    shallow = ["--confirm", "1000", "--prefetch", "1000", "--ackevery", "100"]
    with started(folder, kernel) as (broker, _), Peak(partial(disk_bytes, folder / "data")) as peak:
        run = finished(engine.start(broker, "t", *STORED, *shallow, "--count", str(messages)))
    return {"ok": run["ok"], "messages": messages, "most_bytes": peak.most}


def emptied(engine: Engine, folder: Path, kernel: str, messages: int) -> dict[str, Any]:
    """Empty a backlog and start again."""
    with started(folder, kernel) as (broker, _):
        run = drained(engine, broker, "e", messages)
    found = {"ok": run["ok"], "messages": messages, "index_bytes": disk_bytes(folder, "data.mdb")}
    with started(folder, kernel) as (_, took_s):
        found["start_s"] = took_s
        found["index_bytes_then"] = disk_bytes(folder, "data.mdb")
    return found


def main() -> int:
    """Run and report; 1 when a run was wrong."""
    options = _parser().parse_args()
    engine = Engine(options.loadgen)
    found: dict[str, Any] = {}
    for name, run, messages in (
        ("starts", starts, options.messages),
        ("through", through, options.through),
        ("emptied", emptied, options.backlog),
    ):
        with tempfile.TemporaryDirectory(prefix="leveret-bench") as folder:
            found[name] = run(engine, Path(folder), options.kernel, messages)
        print(name, json.dumps(found[name]), flush=True)
    about = {"commit": results.commit(), "machine": results.machine(), "options": sys.argv[1:]}
    print(results.write(options.out, options.name, found, about))
    return 0 if all(run["ok"] for run in found.values()) else 1


def _parser() -> argparse.ArgumentParser:
    parser = results.long_run_options(__doc__, "starts")
    parser.add_argument("--messages", type=int, default=1_000_000, help="in 100 queues")
    parser.add_argument("--through", type=int, default=10_000_000, help="through a shallow queue")
    parser.add_argument("--backlog", type=int, default=10_000_000, help="emptied")
    return parser


if __name__ == "__main__":
    sys.exit(main())
