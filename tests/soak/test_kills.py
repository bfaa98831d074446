"""Half an hour at 20,000 persistent messages/s, and every 30 s a kill -9: nothing is lost, nothing grows.

``LEVERET_SOAK_S``, ``LEVERET_SOAK_RATE`` and ``LEVERET_SOAK_KILL_S`` change length, rate and the time
between two kills, for machines and evenings that are not made for it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from rigs.nodes import anonymous_bytes, kill_leveret, start_leveret, stop_leveret
from rigs.waiting import wait_until
from soak.flood import Flood

LENGTH_S = float(os.environ.get("LEVERET_SOAK_S", "1800"))
RATE = float(os.environ.get("LEVERET_SOAK_RATE", "20000"))
KILL_S = float(os.environ.get("LEVERET_SOAK_KILL_S", "30"))
GROWTH = 1.3
SLACK_BYTES = 64 << 20
MEMORY_BYTES_MAX = 200 << 20
DISK_BYTES_MAX = 320 << 20  # as for a shallow queue through which ten million messages have passed
DRAIN_S = 300


def disk_bytes(folder: Path) -> int:
    """Return what the stores take up on the disk."""
    found = 0
    for path in (folder / "data" / "vhosts").rglob("*"):
        try:
            found += path.stat().st_blocks * 512
        except FileNotFoundError:  # segments come and go
            continue
    return found


def assert_flat(samples: list[int], most_bytes: int) -> None:
    """The second half is no larger than the first, and neither is larger than ``most_bytes``."""
    half = len(samples) // 2
    if half:
        limit = max(samples[:half]) * GROWTH + SLACK_BYTES
        assert max(samples[half:]) <= limit, [each >> 20 for each in samples]
    assert max(samples) <= most_bytes, [each >> 20 for each in samples]


@pytest.mark.slow
def test_kills_under_load_lose_nothing_and_nothing_grows(tmp_path: Path) -> None:
    flood = Flood(tmp_path, RATE, int(RATE * (LENGTH_S + 60)))
    memory: list[int] = []
    disk: list[int] = []
    until_s = time.monotonic() + LENGTH_S
    node = None
    try:
        while time.monotonic() < until_s:
            node = start_leveret(tmp_path)
            flood.serve(node.host, node.port)
            kill_s = min(until_s, time.monotonic() + KILL_S)
            wait_until(
                lambda at=kill_s: time.monotonic() >= at or flood.error, within_s=KILL_S + 60
            )
            assert not flood.error, flood.error
            memory.append(anonymous_bytes(node))
            disk.append(disk_bytes(tmp_path))
            kill_leveret(node)
            sys.stdout.write(
                f"confirmed={flood.confirmed} delivered={flood.delivered}"
                f" memory_mib={memory[-1] >> 20} disk_mib={disk[-1] >> 20}"
                f" clients_us={flood.cpu_us:.1f}\n"
            )
            sys.stdout.flush()
        node = start_leveret(tmp_path)
        flood.finish()
        flood.serve(node.host, node.port)
        wait_until(
            lambda: flood.is_done or flood.error,
            lambda: f"{flood.lost()} confirmed messages were never delivered",
            DRAIN_S,
        )
        assert not flood.error, flood.error
        flood.end()
        assert not flood.error, flood.error
        stop_leveret(node)
    finally:
        flood.end()
        if node is not None and node.process is not None and node.process.poll() is None:
            kill_leveret(node)

    assert flood.lost() == 0
    flood.check()
    assert flood.confirmed > LENGTH_S
    assert_flat(memory, MEMORY_BYTES_MAX)
    assert_flat(disk, DISK_BYTES_MAX)
