"""The two writer threads, on a real loop and a real disk."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from leveret.core.files import Files, OsCalls
from leveret.msg_store.append_log import AppendLog, Job, Step
from leveret.msg_store.ballast import Ballast
from leveret.msg_store.flush_threads import FlushThreads
from leveret.msg_store.folder import StoreFolder
from leveret.msg_store.group_commit import GroupCommit
from leveret.msg_store.kernel import Caller
from leveret.msg_store.recovery import Recovery
from leveret.msg_store.reports import Report
from leveret.msg_store.sync_times import SyncTimes
from leveret.testing.faulty_files import FaultyCalls
from store_rig import message


class Running:
    """A store on the test's loop, and what it has reported."""

    def __init__(
        self, path: Path, boot_epoch: int = 1, calls: FaultyCalls | OsCalls | None = None
    ) -> None:
        self.calls = calls or FaultyCalls(OsCalls(), random.Random(1))
        self.folder = StoreFolder(Files(self.calls), path, lambda: bytes(16), lambda: 1)
        ballast = Ballast(self.folder.files, path, 1000)
        recovery = Recovery(self.folder, boot_epoch, ballast, lambda: 1)
        self.recovered, self.core = recovery.run()
        self.rdq_log, self.journal_log = recovery.rdq_log, recovery.journal_log
        self.reports: list[Report] = []
        self.reported = asyncio.Event()
        self.syncs = SyncTimes(time.monotonic)
        self.threads = FlushThreads(
            self.core,
            self.rdq_log,
            self.journal_log,
            asyncio.get_running_loop(),
            self.deliver,
            self.syncs,
        )

    def deliver(self, report: Report) -> None:
        self.reports.append(report)
        self.reported.set()

    async def report(self) -> Report:
        await asyncio.wait_for(self.reported.wait(), 30)
        self.reported.clear()
        return self.reports[-1]

    def publish(self, seq: int, count: int = 1, is_awaited: bool = True) -> int:
        first = self.core.write([message(str(seq))] * count, (1,))
        rows = [(first + index, 0) for index in range(count)]
        self.core.publish(1, seq, rows, is_awaited=is_awaited)
        return first

    async def stop(self) -> None:
        stopped = asyncio.Event()
        self.threads.stop(stopped.set)
        await asyncio.wait_for(stopped.wait(), 30)
        self.close()

    def close(self) -> None:
        self.threads.close()
        self.recovered.index.close()
        self.folder.close()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Running]:
    running = Running(tmp_path / "store")
    yield running
    running.close()
    assert running.calls.open_files == []
    assert [each.name for each in threading.enumerate() if "leveret" in each.name] == []


async def test_work_of_one_turn_is_one_flush_and_one_report(store: Running) -> None:
    store.publish(1, 5)
    store.publish(6, 5)

    assert await store.report() == Report(safe=[(1, 1, 10)])
    assert len(store.reports) == 1


async def test_an_ack_in_the_same_turn_saves_its_message_from_the_disk(store: Running) -> None:
    msg_no = store.publish(1)
    store.core.ack(1, [(1, msg_no)])

    assert await store.report() == Report(safe=[(1, 1, 1)])
    assert store.folder.rdq_nos() == []


async def test_work_that_nobody_waits_for_is_flushed_all_the_same(store: Running) -> None:
    store.publish(1, is_awaited=False)

    assert await store.report() == Report(safe=[(1, 1, 1)])


async def test_stopping_flushes_and_what_was_flushed_is_recovered(
    store: Running, tmp_path: Path
) -> None:
    store.publish(1, 3, is_awaited=False)
    await store.stop()
    assert store.reports == [Report(safe=[(1, 1, 3)])]

    again = Running(tmp_path / "store", 2)
    assert [row[0] for row in again.recovered.index.rows(1, 0, 99, 99)] == [1, 2, 3]
    assert not again.recovered.findings.tails
    await again.stop()


async def test_stopping_an_idle_store_ends_it(store: Running) -> None:
    await store.stop()
    store.threads.close()

    assert store.reports == []


async def test_closing_with_a_flush_on_its_way_leaves_no_thread(store: Running) -> None:
    store.publish(1, 500)
    await asyncio.sleep(0)
    store.threads.close()
    store.publish(501)
    await asyncio.sleep(0)


async def test_an_error_of_the_disk_is_reported_once_and_ends_the_store(store: Running) -> None:
    store.calls.fail("fdatasync", OSError(errno.EIO, "gone"), "*.jnl")
    store.publish(1)

    report = await store.report()

    assert report.error is not None
    assert "gone" in str(report.error)
    await store.stop()


async def test_a_bug_in_a_writer_is_an_error_of_the_store(store: Running) -> None:
    store.calls.fail("writev", ZeroDivisionError("a bug"), "*.rdq")
    store.publish(1)

    assert "a bug" in str((await store.report()).error)


async def test_a_full_disk_is_tried_again(store: Running) -> None:
    store.calls.fail("writev", OSError(errno.ENOSPC, "full"), "*.rdq", times=2)
    store.publish(1)

    assert await store.report() == Report(nacked=[(1, 1, 1)])
    store.core.resume()  # as the timer does after a second
    assert await store.report() == Report(safe=[(1, 1, 1)])


async def test_stopping_on_a_full_disk_gives_up_after_a_try(store: Running) -> None:
    store.calls.fail("writev", OSError(errno.ENOSPC, "full"), "*.rdq", times=100)
    store.publish(1)

    await store.stop()

    assert store.reports[-1].nacked == [(1, 1, 1)]


async def test_stopping_while_the_disk_is_known_to_be_full_ends(store: Running) -> None:
    store.calls.fail("writev", OSError(errno.ENOSPC, "full"), "*.rdq", times=100)
    store.publish(1)
    await store.report()

    await store.stop()


async def test_stopping_on_a_full_disk_with_acks_alone_ends(store: Running) -> None:
    msg_no = store.publish(1)
    await store.report()
    store.calls.fail("pwrite", OSError(errno.ENOSPC, "full"), "*.jnl", times=100)
    store.core.ack(1, [(1, msg_no)])

    await store.stop()

    assert not store.core.is_idle


def test_the_core_is_let_go_when_it_ends(tmp_path: Path) -> None:
    async def run() -> GroupCommit:
        running = Running(tmp_path / "store")
        running.publish(1)
        await running.stop()
        return running.core

    core = asyncio.run(run())

    assert not hasattr(core.wake, "__self__")


async def test_an_error_of_the_receiver_does_not_hold_the_store_up(store: Running) -> None:
    loop = asyncio.get_running_loop()
    raised = asyncio.Event()
    loop.set_exception_handler(lambda *_: raised.set())
    store.threads._deliver = lambda _: 1 / 0
    store.publish(1)
    await asyncio.wait_for(raised.wait(), 30)
    store.threads._deliver = store.deliver
    store.publish(2)

    assert await store.report() == Report(safe=[(1, 2, 1)])


class StepByStep:
    """A store on the system's own calls, so that writers are given steps."""

    def __init__(self, path: Path) -> None:
        self.store = Running(path, calls=OsCalls())
        self.steps: list[list[Step]] = []
        for log in (self.store.rdq_log, self.store.journal_log):
            self._listen(log)

    def _listen(self, log: AppendLog) -> None:
        steps_of = log.steps

        def steps(job: Job) -> list[Step] | None:
            found = steps_of(job)
            self.steps.append(found or [])
            return found

        log.steps = steps  # type: ignore[method-assign]

    async def published(self, seq: int, count: int = 1) -> list[list[Step]]:
        """Publish, and return the steps of that flush."""
        self.steps.clear()
        self.store.publish(seq, count)
        report = await self.store.report()
        assert report == Report(safe=[(1, seq, count)])
        return self.steps

    def descriptor(self, name: str) -> int:
        """Return that of the segment or the journal in use."""
        log = self.store.rdq_log if name == "rdq" else self.store.journal_log
        assert log._file is not None
        return log._file.descriptor


@pytest.fixture
async def by_step(tmp_path: Path) -> AsyncIterator[StepByStep]:
    running = StepByStep(tmp_path / "store")
    await running.published(1)
    yield running
    running.store.close()
    assert [each.name for each in threading.enumerate() if "leveret" in each.name] == []


def kinds(steps: list[Step]) -> list[str]:
    return ["sync" if data is None else "write" for _, data, _ in steps]


async def test_a_few_messages_are_two_writes_and_the_sync_of_the_journal(
    by_step: StepByStep,
) -> None:
    syncs = by_step.store.syncs.count
    segment, frame = await by_step.published(2)

    assert kinds(segment) == ["write"]
    assert kinds(frame) == ["write", "sync"]
    assert by_step.store.syncs.count == syncs + 1


async def test_many_messages_are_a_write_and_a_sync_of_each_file(by_step: StepByStep) -> None:
    segment, frame = await by_step.published(2, 500)

    assert kinds(segment) == kinds(frame) == ["write", "sync"]


async def test_what_was_written_by_steps_is_recovered(by_step: StepByStep, tmp_path: Path) -> None:
    seq = 2
    for count in (1, 300, 1, 1, 40, 1):
        await by_step.published(seq, count)
        seq += count
    by_step.store.close()

    again = Running(tmp_path / "store", 2)
    assert [row[0] for row in again.recovered.index.rows(1, 0, 999, 999)] == list(range(1, seq))
    assert not again.recovered.findings.is_damage
    await again.stop()


@pytest.mark.parametrize("file", ["rdq", "journal"])
@pytest.mark.parametrize("count", [1, 300])
async def test_a_step_that_finds_the_disk_full_is_made_good(
    by_step: StepByStep, file: str, count: int, tmp_path: Path
) -> None:
    full = os.open("/dev/full", os.O_RDWR)
    os.dup2(full, by_step.descriptor(file))
    os.close(full)

    await by_step.published(2, count)  # the log goes back and opens its file anew
    await by_step.published(2 + count)
    by_step.store.close()

    again = Running(tmp_path / "store", 2)
    assert len(again.recovered.index.rows(1, 0, 999, 999)) == count + 2
    assert not again.recovered.findings.is_damage
    await again.stop()


@pytest.mark.parametrize(("file", "count"), [("rdq", 1), ("rdq", 300), ("journal", 1)])
async def test_any_other_error_of_a_step_ends_the_store(
    by_step: StepByStep, file: str, count: int
) -> None:
    zero = os.open("/dev/zero", os.O_RDONLY)
    os.dup2(zero, by_step.descriptor(file))
    os.close(zero)
    by_step.store.publish(2, count)

    report = await by_step.store.report()

    assert report.error is not None
    assert "Bad file descriptor" in str(report.error)


async def test_a_sync_that_fails_in_a_step_ends_the_store(by_step: StepByStep) -> None:
    reading, writing = os.pipe()
    os.dup2(writing, by_step.descriptor("rdq"))  # takes all, and cannot be synced
    os.close(writing)
    by_step.store.publish(2, 300)
    await asyncio.get_running_loop().run_in_executor(None, os.read, reading, 1 << 20)

    report = await by_step.store.report()

    assert report.error is not None
    assert "Invalid argument" in str(report.error)
    os.close(reading)


class FullDisk:
    """A ``Caller`` that finds no room with a sync of which ``files`` knows the descriptor."""

    files: ClassVar[set[int]] = set()

    def __init__(self) -> None:
        self._caller = Caller()
        self.close = self._caller.close

    def give(self, steps: list[Step], item: object) -> None:
        last = steps[-1] if steps else (-1, b"", 0)
        self._is_full = last[1] is None and last[0] in self.files
        self._caller.give(steps[:-1] if self._is_full else steps, item)

    def run(self, done: Callable[[Any, int, int, int], None]) -> None:
        def instead(item: Any, count: int, error_no: int, sync_ns: int) -> None:
            done(item, count, errno.ENOSPC if self._is_full else error_no, sync_ns)

        self._caller.run(instead)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> type[FullDisk]:
    monkeypatch.setattr("leveret.msg_store.flush_threads.Caller", FullDisk)
    monkeypatch.setattr(FullDisk, "files", set())
    return FullDisk


async def test_a_sync_by_step_that_finds_the_disk_full_is_made_good(
    full_disk: type[FullDisk], by_step: StepByStep, tmp_path: Path
) -> None:
    full_disk.files.add(by_step.descriptor("rdq"))

    await by_step.published(2, 300)
    by_step.store.close()

    again = Running(tmp_path / "store", 2)
    assert len(again.recovered.index.rows(1, 0, 999, 999)) == 301
    await again.stop()


async def test_a_sync_by_step_that_owes_another_is_final(
    full_disk: type[FullDisk], by_step: StepByStep
) -> None:
    await by_step.published(2)  # carried
    full_disk.files.add(by_step.descriptor("rdq"))
    by_step.store.publish(3, 300)

    report = await by_step.store.report()

    assert "carried records cannot be synced" in str(report.error)


async def test_a_write_by_step_that_finds_the_disk_full_is_no_matter_of_what_is_owed(
    by_step: StepByStep,
) -> None:
    await by_step.published(2)  # carried
    full = os.open("/dev/full", os.O_RDWR)
    os.dup2(full, by_step.descriptor("rdq"))
    os.close(full)

    await by_step.published(3, 300)
