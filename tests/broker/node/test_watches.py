"""Memory and disk watches on virtual time: when they look, and the alarms they raise.

Tests: broker/node/disk_watch.py, broker/node/memory_watch.py, broker/node/resources.py
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.broker.node.disk_watch import DiskWatch
from leveret.broker.node.disk_watch import interval_s as disk_interval_s
from leveret.broker.node.memory_watch import (
    COLLECT_AFTER_S,
    COLLECT_S,
    INTERVAL_S,
    QUEUES_PER_CHECK,
    QUEUES_PER_TURN,
    READ_BYTES_MIN,
    MemoryWatch,
    report_interval_s,
)
from leveret.broker.node.memory_watch import interval_s as memory_interval_s
from leveret.broker.node.node import Node
from leveret.broker.vhost.store_state import StoreState
from leveret.core.settings import BrokerSettings
from leveret.core.sizes import SizeLimit
from leveret.core.system.machine import Machine
from leveret.metadata.memory import MemoryStore
from leveret.queue_backing.actor import ReportRamDuration, SetRamDurationTarget
from leveret.testing.virtual_clock import VirtualClock

MB = 1_000_000
GB = 1_000 * MB
STEP_BYTES = 100 * MB


@pytest.mark.parametrize(
    ("used", "limit", "queues", "delay_s"),
    [
        (0, 10 * GB, 0, 1.0),
        (5 * GB - 250 * MB, 10 * GB, 0, 1.0),
        (5 * GB - 125 * MB, 10 * GB, 0, 0.5),
        (5 * GB - 1, 10 * GB, 0, 0.1),
        (9 * GB, 10 * GB, 0, 0.1),
        (9 * GB, 10 * GB, 50_000, 1.0),
        (9 * GB, 10 * GB, 5_000_000, 1.0),
        (10 * GB + 1, 10 * GB, 0, 1.0),
        (1, 0, 0, 1.0),
    ],
)
def test_memory_is_looked_at_the_sooner_the_scarcer_it_is(
    used: int, limit: int, queues: int, delay_s: float
) -> None:
    assert memory_interval_s(used, limit, 0.5, queues) == pytest.approx(delay_s)


@pytest.mark.parametrize(
    ("queues", "is_pressed", "period_s"),
    [
        (0, False, 5.0),
        (10_000, False, 5.0),
        (50_000, False, 25.0),
        (1, True, 0.25),
        (20_000, True, 2.0),
    ],
)
def test_queues_report_more_often_where_memory_is_short(
    queues: int, is_pressed: bool, period_s: float
) -> None:
    assert report_interval_s(queues, is_pressed) == period_s


# rabbit_disk_monitor:interval/1, 3.10.8, but for the raised alarm: there it is 10 s.
@pytest.mark.parametrize(
    ("free", "is_raised", "delay_s"),
    [(50 * MB, False, 0.1), (300 * MB, False, 2.0), (20 * GB, False, 10.0), (10 * MB, True, 1.0)],
)
def test_the_disk_is_looked_at_the_sooner_the_fuller_it_is(
    free: int, is_raised: bool, delay_s: float
) -> None:
    assert disk_interval_s(free, 50 * MB, is_raised) == pytest.approx(delay_s)


class FakeMachine(Machine):
    """A machine of 10 GB; ``free`` is what the allocator would give back."""

    def __init__(self) -> None:
        super().__init__()
        self.used: int | None = 1 * GB
        self.total = 10 * GB
        self.free = 0
        self.garbage = 0
        self.collections = 0
        self.looks = 0

    def used_bytes(self) -> int | None:
        self.looks += 1
        return self.used

    def total_bytes(self) -> int | None:
        return self.total

    def collect_garbage(self) -> None:
        self.collections += 1
        self.free, self.garbage = self.free + self.garbage, 0

    def give_back_in_steps(self) -> Iterator[None]:
        steps = -(-self.free // STEP_BYTES)
        for left in range(steps, 0, -1):
            part = self.free // left
            assert self.used is not None
            self.used, self.free = self.used - part, self.free - part
            yield


class FakeFiles:
    """A disk with so much free, or an error."""

    def __init__(self) -> None:
        self.free = 20 * GB
        self.error: OSError | None = None

    def free_bytes(self, folder: Path) -> int:
        if self.error is not None:
            raise self.error
        return self.free


class FakeReserve:
    """The reserve on a disk that is so full that it cannot be taken."""

    is_given_up = False

    def restore(self) -> bool:
        return not self.is_given_up


class FakeStore:
    """As much of a message store as the disk watch sees."""

    is_short = False
    shortage = "ENOSPC"

    def __init__(self, archive_bytes: int = 0) -> None:
        self.archive_bytes = archive_bytes
        self.asked_bytes: list[int] = []
        self.has_room = False

    def give_up_archive(self, wanted_bytes: int) -> int:
        self.asked_bytes.append(wanted_bytes)
        return self.archive_bytes

    def disk_has_room(self) -> None:
        self.has_room = True


class FakeVhost:
    def __init__(self, archive_bytes: int = 0) -> None:
        self.store = StoreState()
        self.store.msg_store = FakeStore(archive_bytes)  # type: ignore[assignment]


class Watched:
    """A node with a watch, and nothing else."""

    def __init__(self, watch: Any, data_dir: Path | None = None) -> None:
        self.clock = VirtualClock()
        self.runtime = Runtime(clock=self.clock)
        self.machine = FakeMachine()
        self.files = FakeFiles()
        settings = BrokerSettings(memory_high_watermark=SizeLimit(share=0.4))
        store = MemoryStore(lambda run: self.clock.call_later(0, run))
        self.node = Node(self.runtime, settings, store, data_dir, self.files, self.machine)  # type: ignore[arg-type]
        self.node.reserve = FakeReserve()  # type: ignore[assignment]
        node = self.node
        parts = (node.resources, node.connections) if watch is MemoryWatch else (node,)
        self.runtime.spawn(watch, *parts)
        self.clock.jump(0)

    @property
    def raised(self) -> tuple[str, ...]:
        return self.node.resources.alarms.raised


class Queue(GenServer):
    """A backing actor, as the memory watch sees it."""

    def init(self, heard: list[Any]) -> None:
        self.heard = heard

    def handle_cast(self, message: Any) -> None:
        self.heard.append(message)


def test_the_memory_alarm_is_raised_above_the_watermark_and_cleared_below() -> None:
    watched = Watched(MemoryWatch)
    assert watched.raised == ()

    watched.machine.used = 4 * GB + 1
    watched.clock.jump(2.5)
    assert watched.raised == ("memory",)
    assert watched.node.resources.alarms.reason == "low on memory"

    watched.machine.used = 4 * GB
    watched.clock.jump(1.0)
    assert watched.raised == ()


def test_a_limit_of_the_machine_that_falls_is_followed_within_a_second() -> None:
    watched = Watched(MemoryWatch)
    watched.machine.used = 2 * GB
    watched.clock.jump(1.0)
    assert watched.raised == ()

    watched.machine.total = 4 * GB
    watched.clock.jump(1.0)

    assert watched.raised == ("memory",)
    assert watched.node.resources.stats()["memory"]["limit_bytes"] == int(1.6 * GB)


def test_large_reads_bring_the_next_look_forward() -> None:
    watched = Watched(MemoryWatch)
    alarms, machine = watched.node.resources.alarms, watched.machine
    machine.used = int(1.9 * GB)
    watched.clock.jump(1.0)
    read = looks = 0
    while not watched.raised:
        alarms.read(MB)
        read += 1
        machine.used += MB
        looks = machine.looks
    over = machine.used - 4 * GB

    assert 0 < over <= READ_BYTES_MIN + MB
    assert looks < 40, "it looks the more often the less is left, not for each read"


def test_contents_are_given_up_before_the_alarm_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(MemoryWatch)
    alarms, machine = watched.node.resources.alarms, watched.machine
    asked: list[int] = []

    def give_up(kept_bytes: int) -> int:
        asked.append(kept_bytes)
        machine.used = 2 * GB
        return 1

    monkeypatch.setattr(watched.node.connections, "give_up_contents", give_up)
    machine.used = 2 * GB
    watched.clock.jump(1.0)
    for _ in range(3 * GB // MB):
        alarms.read(MB)
        machine.used += MB
        watched.clock.jump(0.001)
        assert watched.raised == ()

    assert asked == [1 * GB, 1 * GB]


def test_the_alarm_ends_when_free_memory_has_been_given_back() -> None:
    watched = Watched(MemoryWatch)

    watched.machine.used, watched.machine.free = 5 * GB, 2 * GB
    watched.clock.jump(2.5)

    assert watched.raised == ()
    assert watched.machine.used == 3 * GB


def test_queues_page_only_when_free_memory_has_been_given_back() -> None:
    watched = Watched(MemoryWatch)
    memory, machine = watched.node.resources.memory, watched.machine
    memory.report(watched.runtime.spawn(Queue, []), 8.0)
    machine.used, machine.free = 3 * GB, 2 * GB
    for _ in range(100):
        watched.clock.jump(0.1)
        assert memory.desired_s == float("inf")
    assert (machine.used, machine.free) == (1 * GB, 0)

    machine.used = 3 * GB
    watched.clock.jump(1.0)
    assert memory.desired_s < float("inf")


def test_free_memory_that_comes_as_fast_as_it_goes_back_puts_paging_off_once() -> None:
    watched = Watched(MemoryWatch)
    memory, machine = watched.node.resources.memory, watched.machine
    memory.report(watched.runtime.spawn(Queue, []), 8.0)
    machine.used = 3 * GB
    for _ in range(30):
        machine.used, machine.free = 3 * GB, STEP_BYTES
        watched.clock.jump(0.1)

    assert memory.desired_s < float("inf")


def test_what_queues_free_above_the_limit_is_given_back_as_it_comes() -> None:
    watched = Watched(MemoryWatch)
    machine = watched.machine
    machine.used = 8 * GB
    watched.clock.jump(1.0)
    assert watched.raised == ("memory",)

    for _ in range(9):
        machine.free += 100 * MB
        watched.clock.jump(0.1)
        assert machine.free == 0

    assert machine.used == 8 * GB - 900 * MB


@pytest.mark.parametrize("free", [0, 2 * STEP_BYTES])
def test_another_watermark_holds_at_once(free: int) -> None:
    watched = Watched(MemoryWatch)
    watched.machine.free = free

    watched.node.resources.set_limits(memory=SizeLimit(700 * MB))
    watched.clock.jump(0)
    assert watched.raised == ("memory",)

    watched.node.resources.set_limits(memory=SizeLimit(share=0.4))
    watched.clock.jump(0)
    assert watched.raised == ()


def test_memory_that_nobody_tells_of_is_not_watched() -> None:
    clock_looks = Watched(MemoryWatch).machine.looks
    watched = Watched.__new__(Watched)

    class Silent(FakeMachine):
        def used_bytes(self) -> int | None:
            self.looks += 1
            return None

    watched.clock = VirtualClock()
    watched.runtime = Runtime(clock=watched.clock)
    machine = Silent()
    store = MemoryStore(lambda run: watched.clock.call_later(0, run))
    watched.node = Node(watched.runtime, BrokerSettings(), store, machine=machine)
    watched.runtime.spawn(MemoryWatch, watched.node.resources, watched.node.connections)
    watched.clock.jump(60.0)

    watched.node.resources.set_limits(memory=SizeLimit(0))
    watched.clock.jump(60.0)

    assert clock_looks > 1
    assert machine.looks == 1
    assert watched.raised == ()


def test_queues_in_use_report_and_are_told_what_they_may_keep() -> None:
    watched = Watched(MemoryWatch)
    memory, heard = watched.node.resources.memory, []
    queue: Ref = watched.runtime.spawn(Queue, heard)
    memory.active[queue] = None
    watched.clock.jump(5.0)
    assert [type(each) for each in heard] == [ReportRamDuration]

    assert memory.report(queue, 8.0) == float("inf")
    memory.report(watched.runtime.spawn(Queue, []), 1.0)
    watched.machine.used = 3 * GB
    watched.clock.jump(2.5)

    (told,) = [each for each in heard if type(each) is SetRamDurationTarget]
    assert told.duration_s == pytest.approx((8.0 + 1.0 + 1.0) / 2 / 0.75)


def test_garbage_is_collected_under_an_alarm_that_lasts_and_rarely() -> None:
    watched = Watched(MemoryWatch)
    watched.clock.jump(COLLECT_S)
    assert watched.machine.collections == 0

    watched.machine.used, watched.machine.garbage = 5 * GB, 2 * GB
    watched.clock.jump(COLLECT_AFTER_S - 5.0)
    assert watched.machine.collections == 0
    assert watched.raised == ("memory",)
    watched.clock.jump(10.0)
    assert watched.machine.used == 3 * GB
    assert watched.raised == ()

    watched.machine.used = 5 * GB
    watched.clock.jump(COLLECT_S - 15.0)
    assert watched.machine.collections == 1
    assert watched.raised == ("memory",)
    watched.clock.jump(20.0)
    assert watched.machine.collections == 2


def test_a_short_alarm_costs_no_collection() -> None:
    watched = Watched(MemoryWatch)
    for _ in range(20):
        watched.machine.used = 5 * GB
        watched.clock.jump(COLLECT_AFTER_S / 2)
        watched.machine.used = 1 * GB
        watched.clock.jump(COLLECT_AFTER_S)

    assert watched.machine.collections == 0


def test_many_queues_are_sent_mail_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(MemoryWatch)
    memory, heard, turns = watched.node.resources.memory, [], []
    queues = [watched.runtime.spawn(Queue, heard) for _ in range(2 * QUEUES_PER_TURN + 1)]
    send, tell = watched.runtime.send_bulk, MemoryWatch._send_some

    def counted_send(*mail: Any) -> None:
        turns[-1] += type(mail[1]) in {ReportRamDuration, SetRamDurationTarget}
        send(*mail)

    def counted_turn(watch: MemoryWatch) -> None:
        turns.append(0)
        tell(watch)

    monkeypatch.setattr(watched.runtime, "send_bulk", counted_send)
    monkeypatch.setattr(MemoryWatch, "_send_some", counted_turn)
    for queue in queues:
        memory.active[queue] = None
    watched.clock.jump(5.0)
    assert [count for count in turns if count] == [QUEUES_PER_TURN, QUEUES_PER_TURN, 1]
    assert len(heard) == len(queues)

    for queue in queues:
        memory.report(queue, 8.0)
    watched.machine.used = 6 * GB
    watched.clock.jump(2.5)
    assert max(turns) == QUEUES_PER_TURN
    told = [each for each in heard if type(each) is SetRamDurationTarget]
    assert len(told) >= len(queues)


def test_a_queue_that_was_killed_does_not_count_any_more() -> None:
    watched = Watched(MemoryWatch)
    memory, heard = watched.node.resources.memory, []
    one, other = (watched.runtime.spawn(Queue, heard) for _ in range(2))
    memory.report(one, 1_000.0)
    memory.report(other, 8.0)

    watched.runtime.exit(one, "kill")
    watched.machine.used = 3 * GB
    watched.clock.jump(5.0)

    assert memory.desired_s == pytest.approx((8.0 + 1.0) / 0.75)


def test_killed_queues_are_looked_for_a_slice_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(MemoryWatch)
    memory = watched.node.resources.memory
    queues = [watched.runtime.spawn(Queue, []) for _ in range(3 * QUEUES_PER_CHECK)]
    for queue in queues:
        memory.report(queue, 8.0)
    for queue in queues[::2]:
        watched.runtime.exit(queue, "kill")
    counts = [memory.count]
    for _ in range(4):
        watched.clock.jump(INTERVAL_S)
        counts.append(memory.count)

    assert counts[0] == len(queues)
    assert max(before - now for before, now in pairwise(counts)) <= QUEUES_PER_CHECK
    assert counts[-1] == len(queues) // 2


def test_the_disk_alarm_is_raised_below_the_limit_and_cleared_above(tmp_path: Path) -> None:
    watched = Watched(DiskWatch, tmp_path)
    assert (watched.raised, watched.node.resources.disk_free_bytes) == ((), 20 * GB)

    watched.files.free = 50 * MB - 1
    watched.clock.jump(10.0)
    assert watched.raised == ("disk",)

    watched.files.free = 50 * MB
    watched.clock.jump(10.0)
    assert watched.raised == ()


def test_another_disk_limit_holds_at_once(tmp_path: Path) -> None:
    watched = Watched(DiskWatch, tmp_path)

    watched.node.resources.set_limits(disk=SizeLimit(share=2.1))
    watched.clock.jump(0)

    assert watched.raised == ("disk",)


def test_the_disk_alarm_holds_while_the_reserve_is_given_up(tmp_path: Path) -> None:
    watched = Watched(DiskWatch, tmp_path)
    watched.node.resources.set_limits(disk=SizeLimit(1))
    watched.files.free = 1 * GB
    watched.node.reserve.is_given_up = True
    watched.clock.jump(10.0)
    assert watched.raised == ("disk",)

    watched.node.reserve.is_given_up = False
    watched.clock.jump(1.0)
    assert watched.raised == ()


def test_a_store_that_finds_the_disk_full_raises_the_alarm_at_once(tmp_path: Path) -> None:
    watched = Watched(DiskWatch, tmp_path)
    vhost = FakeVhost()
    watched.node.vhosts["/"] = vhost  # type: ignore[assignment]

    vhost.store.msg_store.is_short = True
    watched.node.resources.shortage_changed()
    watched.clock.jump(0)
    assert watched.raised == ("disk",)

    vhost.store.msg_store.is_short = False
    watched.node.resources.shortage_changed()
    watched.clock.jump(0)
    assert watched.raised == ()


def test_archives_give_up_what_is_missing_on_a_short_disk(tmp_path: Path) -> None:
    watched = Watched(DiskWatch, tmp_path)
    limit_bytes = watched.node.resources.disk_limit_bytes
    stores = []
    for name in ("/", "other"):
        vhost = FakeVhost(archive_bytes=limit_bytes // 4)
        watched.node.vhosts[name] = vhost  # type: ignore[assignment]
        stores.append(vhost.store.msg_store)

    watched.files.free = limit_bytes // 2
    watched.clock.jump(10.0)
    missing = limit_bytes - limit_bytes // 2
    assert [store.asked_bytes[0] for store in stores] == [missing, missing - limit_bytes // 4]

    watched.files.free = 10 * GB
    watched.clock.jump(1.0)
    assert [store.has_room for store in stores] == [True, True]


def test_a_disk_that_cannot_be_looked_at_leaves_things_as_they_are(tmp_path: Path) -> None:
    watched = Watched(DiskWatch, tmp_path)
    watched.files.free = 0
    watched.clock.jump(10.0)

    watched.files.error = OSError(errno.EIO, "no")
    watched.clock.jump(10.0)
    assert watched.raised == ("disk",)

    watched.files.error, watched.files.free = None, 1 * GB
    watched.clock.jump(10.0)
    assert watched.raised == ()


def test_without_a_data_directory_no_disk_is_watched() -> None:
    watched = Watched(DiskWatch)
    watched.node.resources.set_limits(disk=SizeLimit(share=100.0))
    watched.clock.jump(60.0)

    assert watched.raised == ()
    assert watched.node.resources.disk_free_bytes is None
