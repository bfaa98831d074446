"""Half an hour at 5,000 persistent messages/s on a machine whose resources run out at random.

Descriptors, disk and memory run out, and the disk's errors come and go. Nothing confirmed is lost, and everything
serves again within 5 s of a fault's end, without a restart of the node.

``LEVERET_SOAK_S`` and ``LEVERET_FAULT_RATE`` change length and rate.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.raw import Connection
from rigs.faulty_serve import Faults, FaultyCall
from rigs.nodes import (
    BrokerUnderTest,
    anonymous_bytes,
    kill_leveret,
    start_leveret,
    stop_leveret,
)
from rigs.waiting import wait_until
from soak.flood import Flood

LENGTH_S = float(os.environ.get("LEVERET_SOAK_S", "1800"))
RATE = float(os.environ.get("LEVERET_FAULT_RATE", "5000"))
SERVES_S = 5.0
FAULT_S = (0.5, 12.0)
PAUSE_S = (0.0, 5.0)
LOOK_S = 0.05  # between two new clients
TWO_AT_ONCE = 0.3
DISK_BYTES = 700 << 20
DRAIN_S = 120
LOG_BYTES_MAX = 4 << 20
PROGRAM = Path(__file__).parents[1] / "rigs" / "faulty_serve.py"


class Fault(ABC):
    """A lack or an error that begins and ends."""

    def __init__(self, node: BrokerUnderTest, rng: random.Random) -> None:
        self.node = node
        self.rng = rng

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def end(self) -> None: ...


class NoDescriptors(Fault):
    """The process has as many descriptors as it may have, or a few less."""

    def begin(self) -> None:
        assert self.node.pid is not None
        used = len(os.listdir(f"/proc/{self.node.pid}/fd"))
        self._limits = resource.prlimit(self.node.pid, resource.RLIMIT_NOFILE)
        soft = used + self.rng.choice([0, 1, 3])
        resource.prlimit(self.node.pid, resource.RLIMIT_NOFILE, (soft, self._limits[1]))

    def end(self) -> None:
        assert self.node.pid is not None
        resource.prlimit(self.node.pid, resource.RLIMIT_NOFILE, self._limits)


class FullDisk(Fault):
    """A file takes all room, or all but a little."""

    def begin(self) -> None:
        assert self.node.data is not None
        self._file = self.node.data.parent / "filler"
        left = self.rng.choice([0, 0, 100_000, 30_000_000])
        with self._file.open("wb") as file:
            try:
                while True:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), 1 << 20)
            except OSError:
                size_bytes = file.seek(0, os.SEEK_END)
                os.ftruncate(file.fileno(), max(0, size_bytes - left))

    def end(self) -> None:
        self._file.unlink()


class LowMemory(Fault):
    """The high watermark lies below the memory that is in use."""

    def begin(self) -> None:
        self._set("1MB")

    def end(self) -> None:
        self._set("0.4")

    def _set(self, limit: str) -> None:
        self.node.control("set_vm_memory_high_watermark", *limit_words(limit))


def limit_words(limit: str) -> list[str]:
    return ["absolute", limit] if limit[-1] == "B" else [limit]


class Errors(Fault):
    """Some calls of the message stores fail."""

    def __init__(
        self, node: BrokerUnderTest, rng: random.Random, faults: Faults, call: FaultyCall
    ) -> None:
        super().__init__(node, rng)
        self._faults, self._call = faults, call

    def begin(self) -> None:
        self._faults.set(self._call, self.rng.choice([0.02, 0.2, 1.0]))

    def end(self) -> None:
        self._faults.set(self._call, 0.0)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, which only the superuser can make."""
    folder = tmp_path / "disk"
    folder.mkdir()
    size = f"size={DISK_BYTES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "leveret", str(folder)], check=True)
    yield folder
    shutil.copy(folder / "log", tmp_path)
    subprocess.run(["umount", "-l", str(folder)], check=True)


class Probe:
    """A new client that is served: a durable queue, a confirm, the message.

    Attributes:
        took_s: by step, how long those steps took that ended.
    """

    def __init__(self, node: BrokerUnderTest) -> None:
        self._node = node
        self._step = ""
        self._began_s = time.monotonic()
        self.took_s: dict[str, float] = {}

    def run(self) -> None:
        self._begins("connect")
        connection = Connection((self._node.host, self._node.port))
        try:
            self._work(connection)
        except (AssertionError, OSError) as error:
            self._begins("")
            raise AssertionError(f"{self}: {error!r}") from error
        finally:
            connection.drop()

    def _work(self, connection: Connection) -> None:
        self._begins("open")
        assert connection.open().name == "connection.open-ok"
        channel = connection.channel()
        self._begins("declare")
        channel.ok("queue.declare", queue="probe", durable=True)
        self._begins("confirm")
        channel.ok("confirm.select")
        channel.publish("probe", b"x", delivery_mode=2)
        while (answer := channel.read()).name in {"connection.blocked", "connection.unblocked"}:
            continue
        assert answer.name == "basic.ack", answer
        self._begins("get")
        assert channel.get("probe").name == "basic.get-ok"
        self._begins("")

    def _begins(self, step: str) -> None:
        now_s = time.monotonic()
        if self._step:
            self.took_s[self._step] = now_s - self._began_s
        self._step, self._began_s = step, now_s

    def __str__(self) -> str:
        return ",".join(f"{step}:{took_s:.2f}" for step, took_s in self.took_s.items())


def serves_again(node: BrokerUnderTest, flood: Flood) -> str:
    """Wait until a new client is served and both halves of the flood go on; tell how long that took."""
    began_s = time.monotonic()
    confirmed, delivered = flood.confirmed, flood.delivered
    probes: list[Probe] = []
    problem = ""

    def is_served() -> bool:
        nonlocal problem
        assert not flood.error, flood.error
        probes.append(Probe(node))
        try:
            probes[-1].run()
        except (AssertionError, OSError) as error:
            problem = str(error)
            return False
        return True

    def not_served() -> str:
        return f"not served within {SERVES_S} s: {problem}"

    wait_until(is_served, not_served, SERVES_S, pause_s=LOOK_S)
    served_s = time.monotonic() - began_s
    problem = (
        f"a new client was served after {served_s:.2f} s ({probes[-1]}), the flood stands still"
    )
    wait_until(
        lambda: flood.error or (flood.confirmed > confirmed and flood.delivered > delivered),
        not_served,
        SERVES_S - served_s,
        pause_s=LOOK_S,
    )
    assert not flood.error, flood.error
    took_s = time.monotonic() - began_s
    assert took_s < SERVES_S, not_served()
    return f"served_s={took_s:.2f} tries={len(probes)} probe={probes[-1]}"


@pytest.mark.slow
def test_a_lack_of_anything_ends_nothing(disk: Path, tmp_path: Path, rng: random.Random) -> None:
    faults = Faults(tmp_path / "faults")
    node = start_leveret(
        disk,
        program=[sys.executable, "-P", str(PROGRAM)],
        LEVERET_FAULTS=str(tmp_path / "faults"),
    )
    kinds: list[Fault] = [
        NoDescriptors(node, rng),
        FullDisk(node, rng),
        LowMemory(node, rng),
        *(Errors(node, rng, faults, call) for call in FaultyCall),
    ]
    flood = Flood(tmp_path, RATE, int(RATE * (LENGTH_S + 60)))
    until_s = time.monotonic() + LENGTH_S
    memory: list[int] = []
    try:
        flood.serve(node.host, node.port, stays=True)
        wait_until(lambda: flood.delivered or flood.error, within_s=30)
        while time.monotonic() < until_s:
            chosen = rng.sample(kinds, 2 if rng.random() < TWO_AT_ONCE else 1)
            chosen.sort(key=lambda each: isinstance(each, NoDescriptors))  # an operator needs one
            names = "+".join(
                f"{type(each).__name__}{getattr(each, '_call', '')}" for each in chosen
            )
            for each in chosen:
                each.begin()
            time.sleep(rng.uniform(*FAULT_S))  # how long the fault lasts
            for each in reversed(chosen):
                each.end()
            try:
                took = serves_again(node, flood)
            except AssertionError as error:
                raise AssertionError(f"after {names}: {error}") from error
            memory.append(anonymous_bytes(node))
            sys.stdout.write(
                f"{names} {took} confirmed={flood.confirmed}"
                f" delivered={flood.delivered} memory_mib={memory[-1] >> 20}\n"
            )
            sys.stdout.flush()
            time.sleep(rng.uniform(*PAUSE_S))  # how long all is well
        flood.finish()
        wait_until(
            lambda: flood.is_done or flood.error,
            lambda: f"{flood.lost()} confirmed messages were never delivered",
            DRAIN_S,
        )
        flood.end()
        assert not flood.error, flood.error
        stop_leveret(node)
    finally:
        flood.end()
        if node.process is not None and node.process.poll() is None:
            kill_leveret(node)
    assert flood.lost() == 0
    flood.check()
    assert flood.confirmed > LENGTH_S
    assert node.log is not None
    assert node.log.stat().st_size < LOG_BYTES_MAX
