"""An hour of attacks, one after the other, on a broker with two honest clients.

The messages of one take at most 50 ms (the 99.9th percentile), and the requests of the other (declare, publish and
confirm, login) and the heartbeats to it at most 50 ms more than on the idle broker. Neither is ever disconnected, the
broker's memory stays below its limit and a tenth, and afterwards memory, descriptors and actors are back where they
were. The times in which the machine stood still are printed beside the latencies (``pauses``); they count.

``LEVERET_ATTACK_S`` changes the length of the whole, ``LEVERET_ATTACKS`` (names, by commas) chooses attacks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from attacks.attacks import ATTACKS
from attacks.pauses import Times, in_all
from attacks.peer import PASSWORD, USER, VHOST
from leveret.server.control_client import ask
from rigs.nodes import (
    BrokerUnderTest,
    anonymous_bytes,
    clean_environment,
    kill_leveret,
    start_leveret,
    stop_leveret,
)
from rigs.waiting import wait_until

LENGTH_S = float(os.environ.get("LEVERET_ATTACK_S", "3600"))
NAMES = os.environ.get("LEVERET_ATTACKS", ",".join(ATTACKS)).split(",")
LATENCY_MS_MAX = 50.0
MEMORY_LIMIT_BYTES = 1_000_000_000
SLOW_PATTERN = r"^([a-z0-9]+-?)*\.jobs$|^(?!slow-)"
TESTS = Path(__file__).parents[1]
BACK_S = 5.0
LOOK_S = 0.5
SAMPLE_S = 0.2  # between two measurements of memory
WARM_UP_S = 2.0  # 200 messages: the broker's first ones take longer, and need new memory
IDLE_S = 10.0  # how long the idle broker's latencies are measured
SLACK_BYTES = 60 << 20
LOG_BYTES_MAX = 20 << 20


class Program:
    """A process beside the attacks. It measures, and answers each line with what it has found since the line before."""

    def __init__(self, name: str, *arguments: str) -> None:
        self._process = started(name, *arguments, stdin=subprocess.PIPE)

    def report(self) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("report\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "ended: an honest client was disconnected"
        return json.loads(line)

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


def started(program: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__).with_name(program)), *arguments],
        env=clean_environment(PYTHONPATH=str(TESTS)),
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


class Usage:
    """What a broker uses."""

    def __init__(self, node: BrokerUnderTest) -> None:
        assert node.data is not None
        self.memory_bytes = anonymous_bytes(node)
        self.descriptors = len(os.listdir(f"/proc/{node.pid}/fd"))
        self.actors = int(ask(node.data, "status", {})["actors"])

    def __str__(self) -> str:
        return (
            f"memory_mib={self.memory_bytes >> 20} descriptors={self.descriptors}"
            f" actors={self.actors}"
        )

    def is_back_at(self, before: Usage) -> bool:
        return (
            self.memory_bytes <= before.memory_bytes + SLACK_BYTES
            and self.descriptors <= before.descriptors + 2
            and self.actors <= before.actors
        )


def back_at(node: BrokerUnderTest, before: Usage) -> Usage:
    """Wait until the broker uses as much as before."""
    now = Usage(node)

    def is_back() -> bool:
        nonlocal now
        now = Usage(node)
        return now.is_back_at(before)

    wait_until(
        is_back, lambda: f"before: {before}; {BACK_S:.0f} s later: {now}", BACK_S, pause_s=LOOK_S
    )
    return now


def prepare(node: BrokerUnderTest) -> None:
    """Make the attacked vhost, and the attacker."""
    node.control("add_vhost", VHOST)
    node.control("set_permissions", "-p", VHOST, USER, SLOW_PATTERN, ".*", ".*")


class Day:
    """The attacks on one broker, and their effects on its other client.

    Attributes:
        failures: which attack broke which promise.
        slow_ms: all latencies above 20 ms.
        count: of the probe's messages.
    """

    def __init__(self, node: BrokerUnderTest) -> None:
        self._node = node
        place = node.host, str(node.port)
        self._probe = Program("probe.py", *place)
        self._caller = Program("caller.py", *place)
        processors = sorted(os.sched_getaffinity(0))
        self._clocks = [Program("pauses.py", str(each)) for each in processors]
        self.failures: list[str] = []
        self.slow_ms: list[float] = []
        self.count = 0

    def begin(self) -> None:
        """Measure the broker at rest."""
        time.sleep(WARM_UP_S)
        self._report()
        time.sleep(IDLE_S)
        _, idle, _ = self._report()
        self._bars_ms = {name: took["p999"] + LATENCY_MS_MAX for name, took in idle.items()}
        sys.stdout.write(f"idle: {idle}\n")
        self._before = Usage(self._node)
        self._report()

    def _report(self) -> tuple[dict[str, Any], dict[str, Any], Times]:
        """Return what the probe and the caller measured since the last report, and when the machine stood still."""
        pauses = in_all([each.report() for each in self._clocks])
        return self._probe.report(), self._caller.report(), pauses

    def attack(self, name: str, length_s: float) -> None:
        """Let one attack run, and note what it did."""
        node = self._node
        prepare(node)
        place = node.host, str(node.port), str(length_s), str(node.data)
        process = started("attacks.py", name, *place)
        most_bytes = 0
        while process.poll() is None:
            most_bytes = max(most_bytes, anonymous_bytes(node))
            time.sleep(SAMPLE_S)
        node.control("delete_vhost", VHOST)
        found, calls, pauses = self._report()
        self.count += found["count"]
        self.slow_ms += found["slow"]
        assert process.stdout is not None
        told = process.stdout.read().strip().splitlines()
        process.stdout.close()
        after = self._after(name)
        if found["p999"] > LATENCY_MS_MAX:
            self.failures.append(f"{name}: p99.9 {found['p999']} ms")
        self.failures += [
            f"{name}: {request} p99.9 {took['p999']} ms, above {self._bars_ms[request]:.0f}"
            for request, took in calls.items()
            if took["p999"] > self._bars_ms[request]
        ]
        if most_bytes > MEMORY_LIMIT_BYTES * 1.1:
            self.failures.append(f"{name}: {most_bytes >> 20} MiB")
        sys.stdout.write(
            f"{name:18} count={found['count']} p50={found['p50']} p999={found['p999']}"
            f" most={found['most']:.1f} memory_mib={most_bytes >> 20} after: {after}"
            f" | {calls} | {told[-1:]} {told[:1]}"
            f" pauses_ms={[round((end_s - begin_s) * 1000) for begin_s, end_s in pauses]}\n"
        )
        sys.stdout.flush()

    def _after(self, name: str) -> str:
        try:
            return str(back_at(self._node, self._before))
        except AssertionError as error:
            self.failures.append(f"{name}: {error}")
            self._before = Usage(self._node)  # the next attack answers for its own
            return str(error)

    def end(self) -> None:
        for each in [self._probe, self._caller, *self._clocks]:
            each.end()


@pytest.mark.slow
def test_attacks_do_not_reach_others(tmp_path: Path) -> None:
    node = start_leveret(tmp_path)
    try:
        node.control("set_vm_memory_high_watermark", "absolute", str(MEMORY_LIMIT_BYTES))
        node.control("add_user", USER, PASSWORD)
        day = Day(node)
        day.begin()
        for name in NAMES:
            day.attack(name, LENGTH_S / len(NAMES))
        day.end()
        stop_leveret(node)
    finally:
        if node.process is not None and node.process.poll() is None:
            kill_leveret(node)
    assert not day.failures, "\n".join(day.failures)
    assert sum(each > LATENCY_MS_MAX for each in day.slow_ms) <= day.count / 1000
    assert node.log is not None
    assert node.log.stat().st_size < LOG_BYTES_MAX
