"""Costs of the fixture ``amqp_broker``: ready for the first time, and reset for the next test.

    python benchmarks/micro/fixture.py [ROUNDS]

Each round is a fresh interpreter that has pytest and its plugins loaded already. Milliseconds, medians and the
least: ``wall`` is the waiting time of a caller, ``CPU`` the time on an idle machine.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile

ROUNDS = 11
RESETS = 50

_ROUND = f"""
import json, time
import pytest

def now():
    return time.perf_counter(), time.process_time()

began = now()
from leveret.testing.broker import BrokerThread
from leveret.testing.vhost import FreshVhost
loaded = now()
broker = BrokerThread()
broker.start()
started = now()
vhost = FreshVhost(broker)
ready = now()
for _ in range({RESETS}):
    vhost.delete()
    vhost = FreshVhost(broker)
reset = now()
vhost.delete()
broker.stop()

def between(one, other, count=1):
    return [1000 * (b - a) / count for a, b in zip(one, other)]

print(json.dumps({{
    "first ready": between(began, ready),
    "  of this, loading": between(began, loaded),
    "  of this, start of the broker": between(loaded, started),
    "  of this, first vhost": between(started, ready),
    "reset: a vhost deleted, another made": between(ready, reset, {RESETS}),
}}))
"""


def one_round() -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, "-P", "-c", _ROUND],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        )
    figures: dict[str, list[float]] = json.loads(ran.stdout)
    return figures


def main() -> None:
    rounds = [one_round() for _ in range(int(sys.argv[1]) if sys.argv[1:] else ROUNDS)]
    print(f"{'':38}{'wall':>8}{'least':>8}{'CPU':>8}{'least':>8}")
    for name in rounds[0]:
        figures = ""
        for kind in (0, 1):
            times = [each[name][kind] for each in rounds]
            figures += f"{statistics.median(times):8.1f}{min(times):8.1f}"
        print(f"{name:38}{figures}")


if __name__ == "__main__":
    main()
