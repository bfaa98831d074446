#!/usr/bin/env python3
"""The CPU time that tasks of Celery cost the broker, beside RabbitMQ.

    python benchmarks/celery_tasks.py --brokers path,c,rabbitmq --rounds 3

A producer sends 20,000 tasks, one message each, while a worker with two processes does them
(``harness/celery_app.py``). Celery is the slowest part, so the rate is that of Celery, and the CPU time per task is the
broker's figure.

The pool is Celery's default, ``prefork``. With ``solo`` kombu 5.7 waits up to two seconds for a timer whenever the
worker has taken all prefetched tasks before the loop has sent their acks: whatever the broker, often where it answers
sooner than a task takes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set
from harness import rounds
from harness.brokers import environment

if TYPE_CHECKING:
    from harness.brokers import Broker

TASKS: Final = 20_000
WORKER_START_S: Final = 60.0
ROWS: Final = {"tasks": f"{TASKS:,} tasks of Celery"}
APPLICATION: Final = Path(__file__).parent / "harness" / "celery_app.py"
CELERY: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from celery.__main__ import main; main()"
)
WORKER: Final = "-A celery_app worker -P prefork -c 2 --without-gossip --without-mingle -l error"


def run(broker: Broker, _: str) -> tuple[float, float]:
    """Have the tasks of a round published and done."""
    queue = f"bench-{uuid.uuid4().hex[:8]}"
    url = f"amqp://guest:guest@{broker.host}:{broker.port}//"
    env = environment(BENCH_BROKER=url, BENCH_QUEUE=queue)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", CELERY, str(APPLICATION.parent), *WORKER.split()]
        worker = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL)
        try:
            _produce(0, Path(folder, "ready"), env, WORKER_START_S)
            before_s, began_s = rounds.cpu_s(broker), time.monotonic()
            _produce(TASKS, Path(folder, "done"), env, WORKER_START_S + TASKS / 100)
            took_s = time.monotonic() - began_s
            return TASKS / took_s, (rounds.cpu_s(broker) - before_s) / TASKS * 1e6
        finally:
            worker.terminate()
            worker.wait(WORKER_START_S)


def _produce(count: int, done: Path, env: dict[str, str], limit_s: float) -> None:
    """Publish tasks, and wait until the worker has done them."""
    command = [sys.executable, str(APPLICATION), str(count), str(done)]
    subprocess.run(command, cwd=done.parent, env=env, check=True)
    until_s = time.monotonic() + limit_s
    while not done.exists():
        if time.monotonic() > until_s:
            raise TimeoutError(f"the worker has not done {count} tasks in {limit_s} s")
        time.sleep(0.01)


def main() -> int:
    """Run and report."""
    options = rounds.parser(__doc__, ROWS).parse_args()
    rounds.compare("celery", options, ROWS, run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
