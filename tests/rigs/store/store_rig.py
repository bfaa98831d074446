"""A message store under a seeded scheduler, on a faulty disk, beside a model of what must be true.

The two jobs of a flush are generators; ``step`` advances one of them by one point, so a test (or
Hypothesis) chooses every interleaving and may cut the power between any two steps. ``crash`` recovers
and compares with the model: nothing confirmed is lost, no body is wrong, no durable ack comes back,
order and references hold. The index is one in memory, which outlives crashes; its two jobs, ``read`` and
``write``, are stepped like the others.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from pathlib import Path

from leveret.core.message import Message, origin_of
from leveret.core.system.files import Files
from leveret.msg_store.checkpoint.checkpoint import (
    Checkpointer,
    CheckpointLimits,
    ReadJob,
    WriteJob,
)
from leveret.msg_store.format.file_header import MOVED, RDQ_MAGIC, Identity
from leveret.msg_store.format.journal_frames import DurablePosition
from leveret.msg_store.format.rows import SEQ_END, IndexFull, IndexRow, Location
from leveret.msg_store.format.seq_range import SeqRange
from leveret.msg_store.memtable.memtables import Relocation
from leveret.msg_store.reading.verify import Segment
from leveret.msg_store.recovery.rebuild import seq_of
from leveret.msg_store.recovery.recovery import open_store
from leveret.msg_store.recovery.replay import pages
from leveret.msg_store.recovery.report import Recovered
from leveret.msg_store.wal.group_commit import SHORTAGE_RETRY_S, GroupCommit, Report
from leveret.msg_store.wal.pending import EVERY_NO
from rigs.disk.faulty_files import FaultyCalls
from rigs.disk.memory_disk import MemoryDisk
from rigs.store.live_store import files_at
from rigs.store.memory_index import MemoryIndexFiles

STORE = Path("/data/store")
UUID = bytes(range(16))
Key = tuple[int, int]  # queue_no, seq


def message(text: str, size: int = 20) -> Message:
    body = text.encode()
    return (origin_of(b"x", text[:1].encode()), b"head", body + b"." * max(0, size - len(body)))


def both(first: Iterator[str], second: Iterator[str]) -> Generator[str, None, None]:
    yield from first
    yield from second


class StoreRig:
    def __init__(
        self,
        rng: random.Random,
        *,
        disk_bytes: int = 1 << 40,
        ballast_bytes: int = 0,
        rdq_file_bytes: int = 1 << 26,
        journal_file_bytes: int = 1 << 26,
        limits: CheckpointLimits | None = None,
        inline_bytes_max: int = 0,
        journal_ahead_bytes: int = 0,
    ) -> None:
        self.rng = rng
        self.slept = 0.0
        self.memory = MemoryDisk(disk_bytes)
        self.disk = FaultyCalls(self.memory, rng, self._sleep)
        self.files = Files(self.disk)
        self.files.mkdir(STORE)
        self.ballast_bytes = ballast_bytes
        self.file_bytes = (rdq_file_bytes, journal_file_bytes)
        self.inline_bytes_max = inline_bytes_max
        self.journal_ahead_bytes = journal_ahead_bytes
        self.location = MemoryIndexFiles()
        self.limits = limits
        self.boot_epoch = 0
        self.texts = 0
        self.bodies: dict[int, bytes] = {}  # msg_no -> body
        self.rows: dict[Key, int] = {}  # what may be in the store, with its msg_no
        self.safe: set[Key] = set()
        self.nacked: set[Key] = set()
        self.acked: set[Key] = set()
        self.gone: set[Key] = set()  # acked, and the ack is durable
        self.next_seq: dict[int, int] = {}
        self.written: dict[int, set[int]] = {}  # queue_no -> all messages written for it
        self.moves: list[bool] = []
        self.reports: list[Report] = []
        self.points: list[str] = []
        self.seen_numbers: set[int] = set()
        self.highest_sent: dict[int, int] = {}  # by queue_no
        self.has_producers = False  # of messages that are published from now on
        self.sent: dict[Key, tuple[bytes, int]] = {}  # producer and sequence of each row
        self.recovered: Recovered
        self.core: GroupCommit
        self.open()

    def _sleep(self, delay_s: float) -> None:
        self.slept += delay_s

    def now_ms(self) -> int:
        """Return the wall time of the store."""
        return 1

    # Running.

    def open(self, trusted: DurablePosition | None = None) -> Recovered:
        self.boot_epoch += 1
        where = files_at(
            STORE,
            self.disk,
            self.ballast_bytes,
            rdq_file_bytes=self.file_bytes[0],
            journal_file_bytes=self.file_bytes[1],
            index_files=self.location,
            new_uuid=lambda: UUID,
            inline_bytes_max=self.inline_bytes_max,
            journal_ahead_bytes=self.journal_ahead_bytes,
            now_ms=self.now_ms,
        )
        self.ballast = where.ballast
        if self.ballast_bytes:
            self.ballast.restore()
        self.opened = opened = open_store(where, self.boot_epoch, trusted)
        self.folder, self.recovered, self.core = opened.folder, opened.recovered, opened.core
        self.checkpointer = Checkpointer(self.core, self.location, self.limits)
        self.read: ReadJob | None = None
        self.read_error: Exception | None = None
        self.write_job: WriteJob | None = None
        self.logs = {"rdq": opened.rdq_log, "journal": opened.journal_log}
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
        for queue_no in queue_nos:
            self.written.setdefault(queue_no, set()).update(msg_nos)
        self.bodies.update(zip(msg_nos, (each[2] for each in messages), strict=True))
        return msg_nos

    def accept(self, queue_no: int, msg_nos: list[int], expiry_ms: int = 0) -> None:
        first_seq = self.next_seq.get(queue_no, self.recovered.next_no)
        self.core.publish(queue_no, first_seq, [(each, expiry_ms) for each in msg_nos])
        for seq, msg_no in enumerate(msg_nos, first_seq):
            assert (queue_no, seq) not in self.rows
            self.rows[queue_no, seq] = msg_no
        self.next_seq[queue_no] = first_seq + len(msg_nos)
        if self.has_producers:
            self.number(queue_no, first_seq, msg_nos)

    def number(self, queue_no: int, first_seq: int, msg_nos: list[int]) -> None:
        """Have one of two producers number the messages of some rows: by ``msg_no``, but rising."""
        producer = b"p%d" % self.rng.randrange(2)
        sequences = []
        for at, msg_no in enumerate(msg_nos):
            highest = max(self.highest_sent.get(queue_no, -1) + 1, msg_no)
            self.highest_sent[queue_no] = highest
            sequences.append((first_seq + at, producer, 3, highest, 7))
        self.core.produced(queue_no, 1, sequences)
        self.sent.update({(queue_no, each[0]): (producer, each[3]) for each in sequences})

    def ack(self, *keys: Key) -> None:
        by_queue: dict[int, list[tuple[int, int]]] = {}
        for key in keys:
            by_queue.setdefault(key[0], []).append((key[1], self.rows[key]))
        for queue_no, acked in by_queue.items():
            self.core.ack(queue_no, acked)
        self.acked.update(keys)

    def ack_range(self, queue_no: int, low: int, high: int, kept: Sequence[int] = ()) -> None:
        self.core.ack_range(queue_no, SeqRange(low, high, kept))
        of_queue = {seq for no, seq in self.held if no == queue_no and low <= seq < high}
        self.acked.update((queue_no, seq) for seq in of_queue.difference(kept))

    def move(self, msg_nos: Iterable[int]) -> int:
        """Copy messages into a new segment, as the collector does, and tell the store; its number."""
        file_no = self.core.rdq.take_file_no()
        header = Identity(UUID, self.boot_epoch).header(RDQ_MAGIC, file_no, 7, flags=MOVED)
        copies, parts, offset = [], [header], len(header)
        for msg_no, place in self.places(msg_nos).items():
            with Segment(self.folder, place[0]) as segment:
                parts.append(segment.bytes_at(place[1], place[2]))
            copies.append(Relocation(msg_no, place[0], file_no, offset, place[2]))
            offset += place[2]
        path = self.folder.rdq_path(file_no)
        with self.files.create(path.with_suffix(".rdt")) as file:
            file.append(parts)
            file.fsync()
        self.files.rename(path.with_suffix(".rdt"), path)
        self.files.fsync_dir(self.folder.rdq)
        memtables, decided = self.core.memtables, list[bool]()
        memtables.files.add_sealed(file_no, offset)

        def note(is_used: bool) -> None:
            self.moves.append(is_used)
            decided.append(is_used)
            if len(decided) == len(copies) and not any(decided):  # all died meanwhile
                memtables.files.free(file_no, 0, memtables.active.number)

        self.core.move(copies, note)
        return file_no

    def collect(self) -> list[int]:
        """Unlink the segments that may go."""
        file_nos = self.core.memtables.removable()
        for file_no in file_nos:
            self.files.unlink(self.folder.rdq_path(file_no))
            self.core.memtables.files.remove(file_no)
        return file_nos

    @property
    def held(self) -> list[Key]:
        return sorted(self.rows.keys() - self.acked)

    def start(self, younger: int = 0) -> bool:
        """Start a flush if anything is to be done, without the rows of so many messages, the last ones."""
        self._note(Report(safe=self.core.take_cancelled()))
        if self.core.delay_s() == SHORTAGE_RETRY_S:
            self.core.resume()
        if self.core.delay_s() is None:
            return False
        below = self.core.next_msg_no - younger if younger else EVERY_NO
        self.flush = self.core.start(below)
        self.errors = {}
        rdq = self.logs["rdq"].run(self.flush.rdq)
        journal = self.logs["journal"].run(self.flush.journal)
        is_one = self.flush.rdq.is_inline
        self.jobs = {"journal": both(rdq, journal)} if is_one else {"rdq": rdq, "journal": journal}
        return True

    def step(self, name: str) -> None:
        """Advance a job to its next point; those of the index begin if there are any."""
        if name in {"read", "write"}:
            self._step_index(name)
            return
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
            for queue_no, acks in self.flush.batch.acks.items():
                self.gone.update((queue_no, seq) for seq, _ in acks)
        self._note(report)

    def _note(self, report: Report) -> None:
        self.reports.append(report)
        for runs, keys in ((report.safe, self.safe), (report.nacked, self.nacked)):
            for queue_no, first, count in runs:
                new = {(queue_no, seq) for seq in range(first, first + count)}
                assert runs is report.nacked or keys.isdisjoint(new), "reported safe twice"
                keys.update(new)

    def _step_index(self, name: str) -> None:
        self.checkpointer.turn()
        if name == "read":
            self._step_read()
        else:
            self._step_write()

    def _step_read(self) -> None:
        if self.read is None:
            self.read = self.checkpointer.read_job()
            if self.read is not None:
                self._run_read(self.read)
        else:
            read, self.read = self.read, None
            report = self.checkpointer.read_done(read, self.read_error)
            if report is not None:
                self._note(report)

    def _run_read(self, read: ReadJob) -> None:
        self.read_error = None
        try:
            read.run(self.location.index)
        except OSError as error:
            self.read_error = error

    def _step_write(self) -> None:
        if self.write_job is None:
            self.write_job = self.checkpointer.write_job()
            if self.write_job is None:
                return
            job = self.write_job
            self.jobs_of_index = job.run(self.location.index, self.folder, self.ballast)
        error: Exception | None = None
        try:
            self.points.append(f"index: {next(self.jobs_of_index)}")
            return
        except StopIteration:
            pass
        except (OSError, IndexFull) as caught:
            error = caught
        done, self.write_job = self.write_job, None
        report = self.checkpointer.write_done(done, error)
        if report is not None:
            self._note(report)

    def checkpoint(self) -> None:
        """Put all that is durable into the index."""
        assert not self.jobs
        self.checkpointer.request()
        self.settle()

    def settle(self) -> None:
        """Work the jobs of the index off."""
        for _ in range(10_000):
            if self.checkpointer.is_short:
                self.checkpointer.resume()
            before = (self.read, self.write_job, len(self.points), self.core.memtables.committed)
            self.step("read")
            self.step("write")
            after = (self.read, self.write_job, len(self.points), self.core.memtables.committed)
            is_idle = self.read is None and self.write_job is None
            if before == after and is_idle and not self.checkpointer.is_short:
                return
        raise AssertionError("the index does not come to rest")

    def stop(self) -> Recovered:
        """Stop cleanly and start again."""
        self.run()
        self.checkpointer.stop()
        self.settle()
        assert self.checkpointer.is_stopped
        self.disk.kill()
        return self.open()

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
            self.settle()
            if not self.start():
                return
            self.finish_flush()
        raise AssertionError("the store does not come to rest")

    # Crashing.

    def crash(
        self,
        cut: Callable[[FaultyCalls], None],
        trusted: DurablePosition | None = None,
        is_damaged: bool = False,
    ) -> Recovered:
        """End the process in one way or another, recover, and compare with the model.

        No crash looks like damage; a test that does damage says so.
        """
        for job in self.jobs.values():
            job.close()
        cut(self.disk)
        recovered = self.open(trusted)
        assert recovered.report.is_damage == is_damaged, recovered.report
        self.compare()
        return recovered

    def crash_without_index(self) -> Recovered:
        """Lose the index as well: everything confirmed comes back, at least once."""
        for job in self.jobs.values():
            job.close()
        self.disk.kill()
        self.location.lose()
        recovered = self.open()
        found = {(queue_no, msg_no) for (queue_no, _), msg_no in self.found().items()}
        needed = {(key[0], self.rows[key]) for key in self.safe - self.acked}
        assert needed <= found
        assert all(msg_no in self.written[queue_no] for queue_no, msg_no in found)
        self.check_tables(self.found())
        for msg_no in {msg_no for _, msg_no in found}:
            assert self.body(msg_no) == self.bodies[msg_no]
        self._begin_anew(self.found())
        return recovered

    def _begin_anew(self, found: dict[Key, int]) -> None:
        self.rows = found
        self.safe = set(found)
        self.nacked, self.acked, self.gone = set(), set(), set()
        self.sent = {key: sent for key, sent in self.sent.items() if key in found}
        self.next_seq = {}

    def compare(self, lost: set[Key] = frozenset()) -> None:
        """Check the recovered state; it is the model's from now on.

        Messages whose records of the journal are missing have seqs that the start has given.
        """
        there = self.found()
        found = self.as_published(there)
        reclaimed = found.keys() - there.keys()
        needed = (self.safe - self.acked) | {k for k in self.safe & self.acked if k in found}
        assert found.keys() <= self.rows.keys(), "rows that nobody published"
        assert found.items() <= self.rows.items(), "another message at a seq"
        assert needed - lost <= found.keys(), f"lost {sorted(needed - found.keys() - lost)}"
        assert found.keys().isdisjoint(self.gone), "a durable ack came back"
        self.check_tables(there)
        for msg_no in set(there.values()):
            assert self.body(msg_no) == self.bodies[msg_no]
        assert all(seq < self.recovered.next_no for _, seq in self.rows)
        assert all(number < self.recovered.next_no for number in self.seen_numbers)
        self.check_producers(found, lost, reclaimed)
        self._begin_anew(there)

    def as_published(self, there: dict[Key, int]) -> dict[Key, int]:
        """Return rows under the seqs that they were published with, without those of queues that never took them."""
        seqs = {(queue_no, msg_no): seq for (queue_no, seq), msg_no in self.rows.items()}
        found: dict[Key, int] = {}
        for (queue_no, seq), msg_no in there.items():
            if seq == seq_of(msg_no) and (queue_no, msg_no) not in seqs:
                assert msg_no in self.written[queue_no]
                continue
            key = queue_no, seqs.get((queue_no, msg_no), seq) if seq == seq_of(msg_no) else seq
            assert key not in found, "a message is twice in a queue"
            found[key] = msg_no
        return found

    def check_producers(
        self, found: dict[Key, int], lost: set[Key], reclaimed: Collection[Key]
    ) -> None:
        """Check that a row and its sequence are both there, or neither; an ack leaves the sequence.

        Reclaimed messages have the sequences in their headers, which those of the rig do not have.
        """
        for key, (producer, seq) in self.sent.items():
            if key in reclaimed:
                continue
            entry = self.recovered.producers.get(key[0], {}).get(producer, (0, -1, 0))
            if entry[1] < seq:
                assert key not in found, f"row {key} without its sequence {seq}, known is {entry}"
            else:
                is_there = key in found or key in self.acked or key in lost
                assert is_there, f"sequence {seq} of {producer!r} without its row {key}"

    def crash_without_segment(self, key: Key) -> set[Key]:
        """Lose the segment in which a row's message lies; return the rows that this costs."""
        missing = self.locations[self.rows[key]][0]
        lost = {key for key, number in self.rows.items() if self.locations[number][0] == missing}
        self.files.unlink(self.folder.rdq_path(missing))
        self.disk.kill()
        self.open()
        self.check_lost(lost)
        return lost

    def check_lost(self, lost: set[Key]) -> None:
        """Check that these rows are gone and reported as lost, and no others."""
        self.compare(lost)
        assert {(entry[0], entry[1]) for entry in self.recovered.report.lost} == lost

    def check_tables(self, found: dict[Key, int]) -> None:
        """Check counts, terms and segments against the rows that are durable."""
        memtables, counts = self.core.memtables, Counter(found.values())
        places = self.places(counts)
        orphans = {
            no: place
            for no, place in self.core.holds.locations.items()
            if no not in counts and place[0] in memtables.files
        }
        known = {msg_no: place[4] for msg_no, place in places.items()}
        assert known == counts, (known.items() ^ counts.items(), self.core.holds.locations)
        sums: Counter[int] = Counter()
        for file_no, _, length, _, _ in [*places.values(), *orphans.values()]:
            sums[file_no] += length
        valid = {
            no: state.valid_bytes for no, state in memtables.files.items() if state.valid_bytes
        }
        assert valid == sums
        on_disk = set(self.folder.rdq_nos())
        assert set(memtables.files) <= on_disk
        sizes = Counter(queue_no for queue_no, _ in found)
        assert {
            no: terms.messages for no, terms in memtables.terms.items() if terms.messages
        } == sizes
        for queue_no, terms in memtables.terms.items():
            rows = self.rows_of(queue_no)
            assert [row[0] for row in rows] == sorted(seq for no, seq in found if no == queue_no)
            assert terms.size_bytes == sum(row[2] for row in rows)
            assert all(row[0] < terms.next_seq for row in rows)

    def rows_of(self, queue_no: int) -> list[IndexRow]:
        """Read a queue's durable rows, as a reader would."""
        read_view = self.core.memtables.read_view()
        base = list(pages(self.location.index, queue_no, 0, SEQ_END))
        return read_view.rows(queue_no, 0, SEQ_END, 1 << 40, base)

    def places(self, msg_nos: Iterable[int]) -> dict[int, Location]:
        """Return where messages with durable rows lie."""
        base = self.location.index.locations(msg_nos)
        return self.core.memtables.read_view().locations(msg_nos, base)

    @property
    def locations(self) -> dict[int, Location]:
        """Where all messages with rows lie."""
        return self.places(set(self.found().values()))

    def found(self) -> dict[Key, int]:
        return {
            (queue_no, row[0]): row[1]
            for queue_no in self.core.memtables.terms
            for row in self.rows_of(queue_no)
        }

    def body(self, msg_no: int) -> bytes:
        file_no, offset, length, size, _ = self.places([msg_no])[msg_no]
        with Segment(self.folder, file_no) as segment:
            record = segment.read(offset, length)
        assert record.msg_no == msg_no
        assert len(record.body) == size
        return record.body
