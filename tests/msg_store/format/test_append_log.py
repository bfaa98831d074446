"""Jobs as steps: the same calls as ``AppendLog.run`` makes, and only where they are all there is to do."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.core.system.files import Buffer, Files, OsCalls
from leveret.msg_store.format.append_log import AT_THE_END, AppendLog, Job, LogEnd, Part, Step
from leveret.msg_store.format.ballast import Ballast
from rigs.disk.faulty_files import FaultyCalls

HEADER = b"header"
NAME = "%d.log"


class CountingBallast(Ballast):
    def __init__(self) -> None:
        self.releases = 0

    def release(self, makes_room: bool = False) -> bool:
        self.releases += 1
        return True


class Recording(OsCalls):
    """The system's calls, with a list of writes and syncs; descriptors are left out."""

    def __init__(self) -> None:
        self.made: list[tuple[bytes | None, int]] = []

    def writev(self, descriptor: int, buffers: Sequence[Buffer]) -> int:
        self.made += [(bytes(buffer), AT_THE_END) for buffer in buffers]
        return super().writev(descriptor, buffers)

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> int:
        self.made.append((bytes(data), offset))
        return super().pwrite(descriptor, data, offset)

    def fdatasync(self, descriptor: int) -> None:
        self.made.append((None, 0))
        super().fdatasync(descriptor)


class Log:
    """A log with one short file, and jobs that go on with it."""

    def __init__(self, folder: Path, ahead_bytes_max: int, calls: OsCalls | FaultyCalls) -> None:
        folder.mkdir()
        self.ballast = CountingBallast()
        self.path = folder / (NAME % 1)
        self.log = AppendLog(Files(calls), folder, NAME, self.ballast, ahead_bytes_max)
        self.place = LogEnd(1, len(HEADER) + 1)
        self.run(Job(LogEnd(0, 0), self.place, [Part(1, HEADER, [b"0"])]))

    def job(self, *buffers: bytes, is_inline: bool = False) -> Job:
        start = self.place
        end = LogEnd(1, start.offset + sum(map(len, buffers)))
        return Job(start, end, [Part(1, None, buffers)], is_inline)

    def run(self, job: Job, *failed: Any) -> list[str]:
        points = list(self.log.run(job, *failed))
        self.place = job.end
        return points

    def step(self, job: Job) -> list[Step]:
        """Carry a job out by its steps."""
        steps = self.log.steps(job)
        assert steps is not None
        for descriptor, data, offset in steps:
            if data is None:
                os.fdatasync(descriptor)
            elif offset < 0:
                os.write(descriptor, data)
            else:
                os.pwrite(descriptor, data, offset)
        self.log.stepped(job)
        self.place = job.end
        return steps

    def contents(self) -> bytes:
        return self.path.read_bytes()[: self.place.offset]


@pytest.fixture(params=[0, 4096], ids=["appended", "ahead"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path / "log", request.param, OsCalls())
    yield log
    log.log.close()


jobs = st.lists(
    st.tuples(
        st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=3),
        st.booleans(),
        st.booleans(),
    ),
    max_size=12,
)


@given(jobs=jobs, ahead=st.sampled_from([0, 64, 4096]))
def test_steps_are_the_calls_of_a_run(
    jobs: list[Any], ahead: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    calls = Recording()
    ran, stepped = Log(folder / "ran", ahead, calls), Log(folder / "stepped", ahead, OsCalls())
    for buffers, is_inline, is_stepped in jobs:
        calls.made.clear()
        ran.run(ran.job(*buffers, is_inline=is_inline))
        job = stepped.job(*buffers, is_inline=is_inline)
        if is_stepped and stepped.log.steps(job) is not None:
            steps = stepped.step(job)
            assert [step[1:] for step in steps] == calls.made
            assert {os.fstat(step[0]).st_ino for step in steps} == {stepped.path.stat().st_ino}
        else:
            stepped.run(job)
    assert ran.contents() == stepped.contents()
    assert (ran.log._owed_from is None) == (stepped.log._owed_from is None)
    ran.log.close()
    stepped.log.close()


def test_a_job_without_parts_has_no_steps(log: Log) -> None:
    job = Job(log.place, log.place)

    assert log.log.steps(job) == []
    log.log.stepped(job)
    assert log.contents() == HEADER + b"0"


def test_a_file_that_begins_is_more_than_steps(log: Log) -> None:
    place = LogEnd(2, len(HEADER))

    assert log.log.steps(Job(log.place, place, [Part(2, HEADER, [])])) is None


def test_two_files_are_more_than_steps(log: Log) -> None:
    parts = [Part(1, None, [b"1"]), Part(2, HEADER, [b"2"])]

    assert log.log.steps(Job(log.place, LogEnd(2, len(HEADER) + 1), parts)) is None


def test_a_log_that_must_go_back_has_no_steps(log: Log) -> None:
    log.run(log.job(b"given back"))
    log.place = LogEnd(1, len(HEADER) + 1)

    job = log.job(b"instead")
    assert log.log.steps(job) is None
    log.run(job)

    assert log.contents() == HEADER + b"0instead"


def test_a_job_that_failed_is_no_matter_of_steps_any_more(log: Log) -> None:
    job = log.job(b"lost")
    with pytest.raises(OSError, match="gone"):
        log.run(job, OSError(errno.EIO, "gone"))

    assert log.log.steps(job) is None


def test_a_log_that_was_closed_has_no_steps(log: Log) -> None:
    log.log.close()

    assert log.log.steps(log.job(b"more")) is None


def test_room_is_taken_by_a_run(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", 256, OsCalls())
    room = log.path.stat().st_size - log.place.offset

    assert log.log.steps(log.job(bytes(room))) is not None
    assert log.log.steps(log.job(bytes(room + 1))) is None
    log.log.close()


def test_other_calls_than_the_systems_are_asked_for_each(
    tmp_path: Path, rng: random.Random
) -> None:
    log = Log(tmp_path / "log", 0, FaultyCalls(OsCalls(), rng))

    assert log.log.steps(log.job(b"more")) is None
    log.log.close()


def test_a_step_that_found_the_disk_full_is_tried_again_with_the_ballast(log: Log) -> None:
    job = log.job(b"more")
    assert log.log.steps(job)

    points = log.run(job, OSError(errno.ENOSPC, "full"))

    assert "shortage" in points
    assert points[-1] == "synced"
    assert log.ballast.releases == 1
    assert log.contents() == HEADER + b"0more"


def test_a_sync_that_found_the_disk_full_is_final_when_inline_records_wait_for_it(log: Log) -> None:
    log.step(log.job(b"inline", is_inline=True))

    with pytest.raises(OSError, match="inline records cannot be synced") as caught:
        log.run(log.job(b"more"), OSError(errno.ENOSPC, "full"), True)

    assert caught.value.errno == errno.EIO
    assert log.ballast.releases == 0


def test_a_sync_makes_up_for_what_was_inline(log: Log) -> None:
    log.step(log.job(b"inline", is_inline=True))
    log.step(log.job(b"synced"))

    log.run(log.job(b"more"), OSError(errno.ENOSPC, "full"), True)

    assert log.contents() == HEADER + b"0inlinesyncedmore"
