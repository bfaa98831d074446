"""When the machine stood still: a host that has others to serve stops a virtual machine, for 10 to 300 ms at a time.

    python -P pauses.py PROCESSOR

The program sleeps for 2 ms again and again, with a real-time priority, on one processor. What else the machine runs
does not delay it, so where the programs of all processors are late at the same time, none ran anything. It answers each
line on stdin with the times since the last in which it was late, as JSON: pairs of seconds of ``time.monotonic``.

Without the right to a real-time priority it finds no times.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from functools import reduce

Times = list[tuple[float, float]]  # beginnings and ends, in order

SLEEP_S = 0.002
LATE_S = 0.005
PRIORITY = 50


def main(processor: str) -> None:
    os.sched_setaffinity(0, {int(processor)})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    except PermissionError:
        late_s = float("inf")
    else:
        late_s = LATE_S
    times: Times = []
    while True:
        due_s = time.monotonic() + SLEEP_S
        asked = select.select([sys.stdin], [], [], SLEEP_S)[0]
        now_s = time.monotonic()
        if now_s - due_s > late_s:
            times.append((due_s, now_s))
        if asked:
            if not sys.stdin.readline():
                return
            sys.stdout.write(json.dumps(times) + "\n")
            sys.stdout.flush()
            times = []


def in_all(times: list[Times]) -> Times:
    """Return when all processors stood still."""
    return reduce(_in_both, times)


def _in_both(some: Times, others: Times) -> Times:
    both = [
        (max(begin_s, other_begin_s), min(end_s, other_end_s))
        for begin_s, end_s in some
        for other_begin_s, other_end_s in others
    ]
    return sorted((begin_s, end_s) for begin_s, end_s in both if begin_s < end_s)


if __name__ == "__main__":
    main(*sys.argv[1:])
