"""The writer threads get jobs of nothing but writes and syncs as steps: on a real loop and disk."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from leveret.core.system.files import OsCalls
from leveret.msg_store.format.append_log import AppendLog, Job, Step
from leveret.msg_store.format.kernel import Caller, Notifier
from leveret.msg_store.wal.group_commit import Report
from rigs.store.flush_rig import Running

pytestmark = pytest.mark.sources


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
    assert [each.name for each in threading.enumerate() if each.name.startswith("leveret-")] == []


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
    assert not again.recovered.report.is_damage
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
    assert not again.recovered.report.is_damage
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

    def __init__(self, notifier: Notifier) -> None:
        self._caller = Caller(notifier)
        self._is_full = False
        self.close, self.run = self._caller.close, self._caller.run
        self.submit_call = self._caller.submit_call

    def submit(self, steps: list[Step]) -> None:
        last = steps[-1] if steps else (-1, b"", 0)
        self._is_full = last[1] is None and last[0] in self.files
        self._caller.submit(steps[:-1] if self._is_full else steps)

    def take_outcome(self) -> Any:
        outcome = self._caller.take_outcome()
        if outcome is None or not self._is_full:
            return outcome
        self._is_full = False
        return outcome[0], errno.ENOSPC, *outcome[2:]


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> type[FullDisk]:
    monkeypatch.setattr("leveret.msg_store.threads.writers.Caller", FullDisk)
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
    await by_step.published(2)  # inline
    full_disk.files.add(by_step.descriptor("rdq"))
    by_step.store.publish(3, 300)

    report = await by_step.store.report()

    assert "inline records cannot be synced" in str(report.error)


async def test_a_write_by_step_that_finds_the_disk_full_is_no_matter_of_what_is_owed(
    by_step: StepByStep,
) -> None:
    await by_step.published(2)  # inline
    full = os.open("/dev/full", os.O_RDWR)
    os.dup2(full, by_step.descriptor("rdq"))
    os.close(full)

    await by_step.published(3, 300)
