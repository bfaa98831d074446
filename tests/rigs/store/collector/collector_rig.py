"""The store rig with a collector: ``CollectorRig`` is crashed, and compared with the model, like it."""

from __future__ import annotations

import random
from collections.abc import Iterable

from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.format.journal_frames import DurablePosition
from leveret.msg_store.format.pins import Pins
from leveret.msg_store.gc.choose import ChoiceLimits
from leveret.msg_store.gc.collector import Collector
from leveret.msg_store.reading.verify import Segment
from leveret.msg_store.recovery.report import Recovered
from rigs.store.collector.collector_steps import CollectorSteps
from rigs.store.store_rig import Key, StoreRig

FILE_BYTES = 1000
LIMITS = ChoiceLimits(file_bytes=FILE_BYTES, sources_max=4, small_files_max=3, small_sources_max=6)
LINES = ("rdq", "journal", "read", "write", "collector")


class CollectorRig(StoreRig):
    """A store with tiny segments, and a collector that goes on when it is told."""

    def __init__(
        self,
        rng: random.Random,
        *,
        rdq_file_bytes: int = FILE_BYTES,
        journal_file_bytes: int = 1 << 26,
        disk_bytes: int = 1 << 40,
        limits: CheckpointLimits | None = None,
        choice: ChoiceLimits = LIMITS,
        inline_bytes_max: int = 0,
    ) -> None:
        self.choice = choice
        self.removed: list[int] = []
        super().__init__(
            rng,
            rdq_file_bytes=rdq_file_bytes,
            journal_file_bytes=journal_file_bytes,
            disk_bytes=disk_bytes,
            limits=limits,
            inline_bytes_max=inline_bytes_max,
        )

    def open(self, trusted: DurablePosition | None = None) -> Recovered:
        if hasattr(self, "steps"):
            self.steps.close()  # of the process that is gone
        recovered = super().open(trusted)
        self.pins = Pins()
        self.collector = Collector(
            self.folder,
            self.core,
            self.core.memtables,
            recovered.index,
            self.pins,
            self.now_ms,
            self.removed.extend,
            self.checkpointer.request,
            self.choice,
        )
        self.steps = CollectorSteps(self.collector, self.rng)
        return recovered

    def collect(self) -> list[int]:
        """Leave it to the collector."""
        return []

    # Running.

    def stepped(self) -> bool:
        """Let any one part of the store do one step; return whether there was anything to do."""
        for line in self.rng.sample(LINES, len(LINES)):
            before = self._progress()
            if line == "collector":
                self.steps.look()
                self.steps.step()
            elif line in {"rdq", "journal"}:
                if not self.jobs:
                    self.start()
                self.step(line)
            else:
                self.step(line)
            if self._progress() != before:
                return True
        return False

    def _progress(self) -> tuple[object, ...]:
        memtables = self.core.memtables
        waits = [id(wait) for wait in self.steps.waits.values()]
        jobs = (len(self.points), len(self.steps.points), len(self.jobs), tuple(waits))
        index = (self.read, self.write_job, memtables.committed, len(memtables.frozen))
        return (*jobs, *index, len(self.reports[-1].safe) if self.reports else 0, self.core.is_idle)

    def work(self, steps_max: int = 100_000) -> int:
        """Let all parts go on until nothing is left to do; return how many steps that took."""
        for count in range(steps_max):
            # A look may have asked for a checkpoint, which begins with the next round.
            if not self.stepped() and not self.stepped():
                return count
        raise AssertionError("the store does not come to rest")

    def collect_all(self) -> None:
        """Collect all that can be, with checkpoints whenever nothing else is to be done."""
        for _ in range(100):
            before = repr(self.collector.collected)
            self.work()
            self.checkpoint()
            self.work()
            if repr(self.collector.collected) == before:
                return
        raise AssertionError("the collector does not come to rest")

    def fill(self, count: int, size: int = 100, queue_nos: tuple[int, ...] = (1,)) -> list[int]:
        """Publish so many messages, one per flush; return their numbers."""
        msg_nos = []
        for _ in range(count):
            msg_nos += self.publish(queue_nos, 1, size)
            self.run()
        return msg_nos

    def drop(self, msg_nos: list[int]) -> None:
        """Ack messages everywhere, durably."""
        wanted = set(msg_nos)
        self.ack(*[key for key in self.held if self.rows[key] in wanted])
        self.run()

    # Looking.

    def check_tables(self, found: dict[Key, int]) -> None:
        self.steps.finish_removals()
        super().check_tables(found)

    def check(self) -> None:
        """Check that every message is readable, and the accounts of the segments."""
        rows = {key: self.rows[key] for key in self.held}
        self.check_tables(rows)
        for msg_no in set(rows.values()):
            assert self.body(msg_no) == self.bodies[msg_no]

    def check_no_orphans(self) -> None:
        """Check that every file in the folder belongs to somebody."""
        files = self.core.memtables.files
        valid = {no for no, state in files.items() if state.valid_bytes}
        valid.update(self.core.archive.kept(files, self.now_ms()))
        names = self.files.names(self.folder.rdq)
        assert names == [self.folder.rdq_path(no).name for no in sorted(valid)]

    def file_of(self, msg_no: int) -> int:
        return self.places([msg_no])[msg_no][0]


def in_files(rig: CollectorRig, msg_nos: Iterable[int], *file_nos: int) -> list[int]:
    return [no for no in msg_nos if rig.file_of(no) in file_nos]


def wasteful(rig: CollectorRig, count: int = 40) -> list[int]:
    """Fill segments and drop two messages of three; return the others."""
    msg_nos = rig.fill(count)
    rig.drop([no for index, no in enumerate(msg_nos) if index % 3])
    return msg_nos[::3]


def until(rig: CollectorRig, point: str) -> None:
    """Go on until the collector has reached a point; all else stands still."""
    seen = rig.steps.points.count(point)
    for _ in range(1000):
        rig.steps.look()
        if rig.steps.points.count(point) > seen:
            return
        assert rig.steps.step(), f"{point} is not reached"
    raise AssertionError(point)


def copied_by(rig: CollectorRig) -> list[int]:
    """Return the messages of the youngest segment."""
    with Segment(rig.folder, max(rig.folder.rdq_nos())) as segment:
        return [record.msg_no for _, record in segment.records()]


def spoil(rig: CollectorRig, msg_no: int, at: int) -> None:
    """Change a byte of a message where it lies."""
    file_no, offset, *_ = rig.places([msg_no])[msg_no]
    path = rig.folder.rdq_path(file_no)
    rig.disk.damage(path, lambda data: data.__setitem__(offset + at, data[offset + at] ^ 255))
