"""A broker process made to be killed: everything that is rare in a broker is frequent in it.

    PYTHONPATH=tests python -P broker_worker.py DATA SEED DISK

Segments and journals are small, so that files roll, memtables end and garbage is collected all the time; the RAM
targets of queues go up and down, so that messages are paged out; a channel sends to three queues in a turn, and a
queue has few dead letters under way. ``DISK``
is ``real``, or ``faulty``: then writes come short and calls are interrupted, and unsynced data can be lost. It prints
``ready PORT``, and takes one line: ``stop`` ends it in order, ``cut`` cuts the power.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from leveret.broker.channel.publishing import publish
from leveret.broker.node import maintenance, node, orphans
from leveret.broker.queue.dead_letters import dead_letters
from leveret.broker.queue.storage import factory as backings
from leveret.broker.queue.storage.factory import queue_nos_of
from leveret.core.addresses import Address
from leveret.core.system.files import Files, OsCalls
from leveret.msg_store import drivers
from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.drivers import StoreLimits
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.gc.choose import ChoiceLimits
from leveret.msg_store.gc.driver import Pace
from leveret.msg_store.recovery import recovery
from leveret.msg_store.recovery.recovery import StoreFiles
from leveret.queue_backing.actor import SetRamDurationTarget
from leveret.queue_backing.variable.limits import Limits
from leveret.queue_backing.variable.queue import VariableQueue
from leveret.server.broker import Broker
from leveret.server.config.config import Config
from rigs.disk.faulty_files import Fate, FaultyCalls
from rigs.waiting import eventually

FILE_BYTES = 200_000
FAN_OUT_QUEUES = 3
DEAD_LETTERS_IN_FLIGHT = 50
QUEUE_LIMITS = Limits(segment=32, io_batch=1, step=200, read_max=32, slack=0, read_ahead=32)
STORE_LIMITS = StoreLimits(
    checkpoint=CheckpointLimits(rows=400, journal_bytes=40_000),
    choice=ChoiceLimits(file_bytes=FILE_BYTES, small_files_max=3),
    pace=Pace(delay_s=0.01, pause_s=0.0, grace_s=0.01, retry_s=0.1),
)
RAM_TARGETS_S = (0.0, 0.001, 0.01, float("inf"))
RAM_TARGET_S = 0.03  # how long one holds
GONE_WITHIN_S = 25.0  # less than the test waits for the process


class OneAtATime:
    """System calls of several threads, one after the other; ``FaultyCalls`` is for one thread."""

    def __init__(self, calls: FaultyCalls) -> None:
        self.calls = calls
        self.turn = threading.Lock()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self.calls, name)

        def locked(*arguments: Any) -> Any:
            with self.turn:
                return call(*arguments)

        return locked


class FaultyDisk:
    """The disk of a machine whose power is cut."""

    def __init__(self, data: Path, rng: random.Random) -> None:
        self.calls = FaultyCalls(OsCalls(), rng)
        self.calls.short_writes = rng.choice([0.0, 0.1])
        self.calls.interrupts = rng.choice([0.0, 0.05])
        self.one_at_a_time = OneAtATime(self.calls)
        self.files = Files(self.one_at_a_time)  # type: ignore[arg-type]
        for path in sorted((data / "vhosts").glob("*/*")):
            for each in [path] if path.is_file() else path.iterdir():
                if each.is_file() and each.suffix != ".mdb":
                    self.calls.adopt(each)

    def cut_power(self) -> None:
        """Leave on the disk what a power cut might leave, and end the process."""
        with self.one_at_a_time.turn:
            rng = self.calls.rng
            fates = list(Fate)
            self.calls.power_cut(lambda _: rng.choice(fates))
            os._exit(9)


def make_all_rare_things_frequent() -> None:
    """Change the constants of this process."""
    files = partial(StoreFiles, rdq_file_bytes=FILE_BYTES, journal_file_bytes=FILE_BYTES)
    recovery.StoreFiles = files  # type: ignore[assignment,misc]
    drivers.StoreLimits = partial(replace, STORE_LIMITS)  # type: ignore[assignment,misc]
    publish.FAN_OUT_QUEUES = publish.WIDE_QUEUES = FAN_OUT_QUEUES  # type: ignore[misc]
    dead_letters.DEAD_LETTERS_IN_FLIGHT = DEAD_LETTERS_IN_FLIGHT  # type: ignore[misc]
    maintenance.PERIOD_S = 0.05  # type: ignore[misc]
    maintenance.ORPHANS_PERIODS = 1  # type: ignore[misc]
    orphans.due = partial(orphans.due, kept_ms=0)
    node.Ballast = partial(Ballast, size_bytes=100_000)  # type: ignore[assignment,misc]
    backings.VariableQueue = partial(VariableQueue, limits=QUEUE_LIMITS)  # type: ignore[assignment,misc]


async def change_ram_targets(broker: Broker, rng: random.Random) -> None:
    while True:
        await asyncio.sleep(RAM_TARGET_S)
        for entry in list(broker.node.vhosts["/"].topology.queues.values()):
            if entry.durable and entry.backing is not None:
                target = SetRamDurationTarget(rng.choice(RAM_TARGETS_S))
                broker.runtime.send(entry.backing, target)


async def main(data: Path, rng: random.Random, disk: FaultyDisk | None) -> None:
    make_all_rare_things_frequent()
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=data)
    async with Broker(config, files=disk.files if disk is not None else None) as broker:
        os.write(1, b"ready %d\n" % broker.addresses[0].port)
        changing = asyncio.create_task(change_ram_targets(broker, rng))
        stop = asyncio.Event()
        command = partial(wait_for_command, asyncio.get_running_loop(), stop, disk)
        threading.Thread(target=command, daemon=True).start()
        await stop.wait()
        changing.cancel()
        await eventually(  # maintenance deletes them
            lambda: not undefined_queues(broker), lambda: undefined_queues(broker), GONE_WITHIN_S
        )


def undefined_queues(broker: Broker) -> set[int]:
    """Return the queues that only the store knows."""
    vhost = broker.node.vhosts["/"]
    store = vhost.store.msg_store
    assert store is not None
    defined = {no for each in vhost.topology.queues.values() for no in queue_nos_of(each)}
    counts, leaving = store.message_counts(), store.leaving()
    return {no for no, count in counts.items() if count or no not in leaving} - defined


def wait_for_command(
    loop: asyncio.AbstractEventLoop, stop: asyncio.Event, disk: FaultyDisk | None
) -> None:
    """Do what the test says; end if it is gone."""
    command = sys.stdin.readline().strip()
    if command == "stop":
        loop.call_soon_threadsafe(stop.set)
    elif command == "cut" and disk is not None:
        disk.cut_power()
    else:
        os._exit(3)


if __name__ == "__main__":
    folder, seed, kind = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    chance = random.Random(seed)
    asyncio.run(main(folder, chance, FaultyDisk(folder, chance) if kind == "faulty" else None))
