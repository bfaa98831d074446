"""A message store under a seeded scheduler, on a faulty disk, beside a model of what must be true.

The two jobs of a flush are generators; ``step`` advances one of them by one point, so a test (or
Hypothesis) chooses every interleaving and may cut the power between any two steps. ``crash`` recovers
and compares with the model: nothing confirmed is lost, no body is wrong, no durable ack comes back,
order and references hold.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from leveret.core.files import Files
from leveret.core.message import Message, origin_of
from leveret.msg_store.ballast import Ballast
from leveret.msg_store.findings import Recovered
from leveret.msg_store.folder import StoreFolder
from leveret.msg_store.group_commit import Due, GroupCommit, Report
from leveret.msg_store.journal_frames import Mark
from leveret.msg_store.recovery import Recovery
from leveret.msg_store.verify import Segment
from leveret.testing.faulty_files import FaultyCalls
from leveret.testing.memory_disk import MemoryDisk

STORE = Path("/data/store")
UUID = bytes(range(16))
Key = tuple[int, int]  # queue_no, seq


def message(text: str, size: int = 20) -> Message:
    body = text.encode()
    return (origin_of(b"x", text[:1].encode()), b"head", body + b"." * max(0, size - len(body)))


class StoreRig:
    def __init__(
        self,
        rng: random.Random,
        *,
        disk_bytes: int = 1 << 40,
        ballast_bytes: int = 0,
        rdq_file_bytes: int = 1 << 26,
        journal_file_bytes: int = 1 << 26,
    ) -> None:
        self.rng = rng
        self.slept = 0.0
        self.memory = MemoryDisk(disk_bytes)
        self.disk = FaultyCalls(self.memory, rng, self._sleep)
        self.files = Files(self.disk)
        self.files.mkdir(STORE)
        self.ballast_bytes = ballast_bytes
        self.file_bytes = (rdq_file_bytes, journal_file_bytes)
        self.boot_epoch = 0
        self.texts = 0
        self.bodies: dict[int, bytes] = {}  # msg_no -> body
        self.rows: dict[Key, int] = {}  # what may be in the store, with its msg_no
        self.safe: set[Key] = set()
        self.nacked: set[Key] = set()
        self.acked: set[Key] = set()
        self.gone: set[Key] = set()  # acked, and the ack is durable
        self.next_seq: dict[int, int] = {}
        self.reports: list[Report] = []
        self.points: list[str] = []
        self.seen_numbers: set[int] = set()
        self.recovered: Recovered
        self.core: GroupCommit
        self.open()

    def _sleep(self, delay_s: float) -> None:
        self.slept += delay_s

    # Running.

    def open(self, trusted: Mark | None = None) -> Recovered:
        self.boot_epoch += 1
        self.folder = StoreFolder(self.files, STORE, lambda: UUID, lambda: 5)
        self.ballast = Ballast(self.files, STORE, self.ballast_bytes)
        if self.ballast_bytes:
            self.ballast.restore()
        recovery = Recovery(
            self.folder, self.boot_epoch, self.ballast, lambda: 7, trusted, *self.file_bytes
        )
        self.recovered, self.core = recovery.run()
        self.logs = {"rdq": recovery.rdq_log, "journal": recovery.journal_log}
        self.jobs: dict[str, Iterator[str]] = {}
        self.errors: dict[str, Exception | None] = {}
        return self.recovered

    def publish(
        self, queue_nos: tuple[int, ...], count: int = 1, size: int = 20, expiry_ms: int = 0
    ) -> list[int]:
        """Write messages and publish them in all queues; return their numbers."""
        msg_nos = self.write(queue_nos, count, size)
        for queue_no in queue_nos:
            self.accept(queue_no, msg_nos, expiry_ms)
        return msg_nos

    def write(self, queue_nos: tuple[int, ...], count: int = 1, size: int = 20) -> list[int]:
        messages = [message(f"m{self.texts + index}", size) for index in range(count)]
        self.texts += count
        first = self.core.write(messages, queue_nos)
        msg_nos = list(range(first, first + count))
        assert self.seen_numbers.isdisjoint(msg_nos)
        self.seen_numbers.update(msg_nos)
        self.bodies.update(zip(msg_nos, (each[2] for each in messages), strict=True))
        return msg_nos

    def accept(self, queue_no: int, msg_nos: list[int], expiry_ms: int = 0) -> None:
        first_seq = self.next_seq.get(queue_no, self.recovered.next_no)
        self.core.publish(queue_no, first_seq, [(each, expiry_ms) for each in msg_nos])
        for seq, msg_no in enumerate(msg_nos, first_seq):
            assert (queue_no, seq) not in self.rows
            self.rows[queue_no, seq] = msg_no
        self.next_seq[queue_no] = first_seq + len(msg_nos)

    def ack(self, *keys: Key) -> None:
        by_queue: dict[int, list[tuple[int, int]]] = {}
        for key in keys:
            by_queue.setdefault(key[0], []).append((key[1], self.rows[key]))
        for queue_no, acked in by_queue.items():
            self.core.ack(queue_no, acked)
        self.acked.update(keys)

    @property
    def held(self) -> list[Key]:
        return sorted(self.rows.keys() - self.acked)

    def start(self) -> bool:
        """Start a flush if anything is to be done."""
        self._note(Report(safe=self.core.settled()))
        if self.core.due() is Due.WHEN_RESUMED:
            self.core.resume()
        if self.core.due() is Due.NEVER:
            return False
        self.flush = self.core.start()
        self.errors = {}
        for name, job in (("rdq", self.flush.rdq), ("journal", self.flush.journal)):
            self.jobs[name] = self.logs[name].run(job)
        return True

    def step(self, name: str) -> None:
        """Advance one of the two jobs to its next point."""
        if name not in self.jobs:
            return
        try:
            self.points.append(f"{name}: {next(self.jobs[name])}")
            return
        except StopIteration:
            self.errors[name] = None
        except OSError as error:
            self.errors[name] = error
        del self.jobs[name]
        if not self.jobs:
            self._finish()

    def _finish(self) -> None:
        report = self.core.finish(*self.errors.values())
        if not any(self.errors.values()):
            for queue_no, seqs in self.flush.taken.acks:
                self.gone.update((queue_no, seq) for seq in seqs)
        self._note(report)

    def _note(self, report: Report) -> None:
        self.reports.append(report)
        for runs, keys in ((report.safe, self.safe), (report.nacked, self.nacked)):
            for queue_no, first, count in runs:
                new = {(queue_no, seq) for seq in range(first, first + count)}
                assert runs is report.nacked or keys.isdisjoint(new), "reported safe twice"
                keys.update(new)

    def run_flush(self) -> Report:
        """Run one flush to its end."""
        assert self.start()
        return self.finish_flush()

    def finish_flush(self) -> Report:
        while self.jobs:
            self.step(self.rng.choice(sorted(self.jobs)))
        return self.reports[-1] if self.reports else Report()

    def run(self, flushes_max: int = 1000) -> None:
        """Run until nothing is to be done."""
        for _ in range(flushes_max):
            if not self.start():
                return
            self.finish_flush()
        raise AssertionError("the store does not come to rest")

    # Crashing.

    def crash(
        self,
        cut: Callable[[FaultyCalls], None],
        trusted: Mark | None = None,
        is_damaged: bool = False,
    ) -> Recovered:
        """End the process in one way or another, recover, and compare with the model.

        No crash looks like damage; a test that does damage says so.
        """
        for job in self.jobs.values():
            job.close()
        cut(self.disk)
        recovered = self.open(trusted)
        assert recovered.findings.is_damage == is_damaged, recovered.findings
        self.compare()
        return recovered

    def compare(self, lost: set[Key] = frozenset()) -> None:
        """Check the recovered state; it is the model's from now on."""
        found = self.found()
        needed = (self.safe - self.acked) | {k for k in self.safe & self.acked if k in found}
        assert found.keys() <= self.rows.keys(), "rows that nobody published"
        assert found.items() <= self.rows.items(), "another message at a seq"
        assert needed - lost <= found.keys(), f"lost {sorted(needed - found.keys() - lost)}"
        assert found.keys().isdisjoint(self.gone), "a durable ack came back"
        counts = Counter(found.values())
        assert self.recovered.references == counts
        assert self.recovered.locations.keys() == counts.keys()
        for msg_no in counts:
            assert self.body(msg_no) == self.bodies[msg_no]
        for queue_no, rows in self.recovered.rows.items():
            assert list(rows) == sorted(rows), queue_no
        assert all(seq < self.recovered.next_no for _, seq in self.rows)
        assert all(number < self.recovered.next_no for number in self.seen_numbers)
        self.rows = found
        self.safe = set(found)
        self.nacked, self.acked, self.gone = set(), set(), set()
        self.next_seq = {}

    def found(self) -> dict[Key, int]:
        return {
            (queue_no, seq): row[0]
            for queue_no, rows in self.recovered.rows.items()
            for seq, row in rows.items()
        }

    def body(self, msg_no: int) -> bytes:
        file_no, offset, length, size = self.core.references.locations[msg_no]
        with Segment(self.folder, file_no) as segment:
            record = segment.read(offset, length)
        assert record.msg_no == msg_no
        assert len(record.body) == size
        return record.body
