"""A transient store on a faulty disk, with virtual time and threads that a test drives step by step.

Writer and reader are jobs that a test advances by one point each, so every interleaving can be chosen.
"""

from __future__ import annotations

import errno
import random
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leveret.core.message import Message
from leveret.core.system.files import Files
from leveret.msg_store.format.file_header import Identity
from leveret.msg_store.threads.worker import Reached, Steps, T, Then
from leveret.msg_store.transient.paging_core import Limits
from leveret.msg_store.transient.segment import RECORDS_AT, ROW_BITS
from leveret.msg_store.transient.store import TransientStore
from leveret.testing.virtual_clock import VirtualClock, VirtualTimer
from rigs.disk.faulty_files import FaultyCalls
from rigs.disk.memory_disk import MemoryDisk
from rigs.store.store_rig import message

FOLDER = Path("/data/transient")
DATA = Path("/data")
WRITER, READER = "leveret-transient-writer", "leveret-transient-reader"
SMALL = Limits(file_bytes=600, waiting_bytes=5_000, room_bytes=0)
LARGE = Limits()
HOLE_BYTES = RECORDS_AT  # of each segment: the disk in memory counts it as taken

Entry = tuple[Any, ...]
Row = tuple[int, int, int, int, int]


def entry(seq: int, size: int = 20, expiry_ms: int = 0, msg_no: int = 0) -> Entry:
    """Return a queue's entry with its message."""
    content = message(f"m{seq}", size)
    return (seq, content, expiry_ms, False, msg_no, len(content[2]), False, False)


def row(of: Entry) -> Row:
    return (of[0], of[4], of[5], of[2], 0)


class StepLoop:
    """A loop that runs when it is told to."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.ready: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()

    def time(self) -> float:
        return self.clock.monotonic_s()

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        self.ready.append((callback, args))

    call_soon_threadsafe = call_soon

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> VirtualTimer:
        return self.clock.call_later(delay_s, callback, *args)

    def turn(self) -> None:
        for _ in range(len(self.ready)):
            callback, args = self.ready.popleft()
            callback(*args)


class StepWorker:
    """A worker whose jobs advance one step at a time."""

    def __init__(self, loop: StepLoop, at_end: Callable[[], None] | None) -> None:
        self._loop = loop
        self._at_end = at_end
        self._inbox: deque[tuple[Callable[[], Steps[Any]], Then[Any] | None]] = deque()
        self._steps: Steps[Any] | None = None

    def submit(self, job: Callable[[], Steps[T]], then: Then[T] | None = None) -> None:
        self._inbox.append((job, then))

    @property
    def is_idle(self) -> bool:
        return not self._inbox

    def step(self) -> str:
        """Go on to the next point, the end of the job included."""
        job, then = self._inbox[0]
        self._steps = self._steps or job()
        outcome: tuple[Any, Exception | None]
        try:
            return next(self._steps)
        except StopIteration as end:
            outcome = end.value, None
        except Exception as error:  # noqa: BLE001  as the thread does
            outcome = None, error
        if then is not None:
            self._loop.call_soon(then, *outcome)
        self._steps = None
        self._inbox.popleft()
        return "end"

    def close(self) -> None:
        while not self.is_idle:
            self.step()
        if self._at_end is not None:
            self._at_end()

    def end(self) -> None:
        """Nothing more is submitted."""


class TransientRig:
    def __init__(
        self,
        rng: random.Random | None = None,
        limits: Limits = LARGE,
        disk_bytes: int = 1 << 40,
        left_over: Callable[[Files], None] = lambda _: None,
    ) -> None:
        self.rng = rng or random.Random(1)
        self.memory = MemoryDisk(disk_bytes)
        self.disk = FaultyCalls(self.memory, self.rng)
        self.files = Files(self.disk)
        self.files.mkdir(DATA)
        left_over(self.files)
        self.loop = StepLoop()
        self.workers: dict[str, StepWorker] = {}
        self.credited: list[int] = []
        self.lost: list[tuple[int, list[int] | None]] = []
        self.failed: list[Exception] = []
        self.points: list[str] = []
        self.store = TransientStore(
            self.files,
            FOLDER,
            Identity(bytes(range(16)), 3),
            self.loop,
            lambda: 7,
            self.credited.append,
            lambda queue_no, seqs: self.lost.append((queue_no, seqs)),
            self.failed.append,
            limits,
            self._worker,
        )

    def _worker(
        self,
        loop: Any,
        name: str,
        at_end: Callable[[], None] | None = None,
        reached: Reached | None = None,
    ) -> StepWorker:
        self.workers[name] = StepWorker(loop, at_end)
        return self.workers[name]

    # Running.

    def turn(self) -> None:
        self.loop.turn()

    def step(self, name: str) -> str:
        """Advance one worker by a point, if it has something to do."""
        worker = self.workers[name]
        if worker.is_idle:
            return ""
        point = worker.step()
        self.points.append(point)
        return point

    def step_to(self, name: str, point: str) -> None:
        """Advance a worker to a point."""
        for _ in range(100):
            self.turn()
            if self.step(name) == point:
                return
        raise AssertionError(f"{name} does not get to {point!r}")

    def run(self, steps_max: int = 10_000) -> None:
        """Go on, in any order, until nothing happens without time passing."""
        for _ in range(steps_max):
            busy = [name for name, worker in self.workers.items() if not worker.is_idle]
            if self.loop.ready:
                self.turn()
            elif busy:
                self.step(self.rng.choice(busy))
            else:
                return
        raise AssertionError("the store does not come to rest")

    def settle(self) -> None:
        """Run until acks that linger are done as well."""
        for _ in range(4):
            self.run()
            self.loop.clock.jump(1.0)
        self.run()

    def close(self) -> None:
        self.store.close()
        self.loop.turn()

    def __enter__(self) -> TransientRig:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Asking.

    def page(self, queue_no: int, *seqs: int, size: int = 20) -> list[Entry]:
        """Page out contents that must be taken."""
        entries = [entry(seq, size) for seq in seqs]
        assert self.store.page_out(queue_no, entries, must=True) == len(entries)
        return entries

    def ask_rows(self, queue_no: int, low: int = 0, high: int = 1 << 40, limit: int = 10_000):
        """Return a list that will hold the answer."""
        answers: list[list[Row]] = []
        self.store.rows(queue_no, low, high, limit, answers.append)
        return answers

    def ask(self, queue_no: int, *seqs: int):
        answers: list[dict[int, Message]] = []
        self.store.read(queue_no, seqs, answers.append)
        return answers

    def rows(self, queue_no: int, low: int = 0, high: int = 1 << 40, limit: int = 10_000):
        answers = self.ask_rows(queue_no, low, high, limit)
        self.run()
        return answers[0]

    def read(self, queue_no: int, *seqs: int) -> dict[int, Message]:
        answers = self.ask(queue_no, *seqs)
        self.run()
        return answers[0]

    def rdq_names(self) -> list[str]:
        return [name for name in self.files.names(FOLDER) if name.endswith(".rdq")]

    def check_usage(self) -> None:
        """Compare each segment's figures with the queues' positions, and the segments with the files on the disk."""
        core = self.store._core
        blocks = [block for queue in core.queues.values() for block in queue.blocks.values()]
        positions = [position for block in blocks for position in block if position]
        assert len(positions) == len(set(positions))
        live = Counter(position >> ROW_BITS for position in positions)
        segments = core.segments.values()
        assert live == {segment.file_no: segment.live for segment in segments if segment.live}
        assert core.live == len(positions)
        assert core.size_bytes == sum(segment.size_bytes for segment in segments)
        assert core.live_bytes == sum(segment.live_bytes for segment in segments)
        assert all(segment.live_bytes >= 0 for segment in segments)
        in_use = core._current
        assert core.held or all(each.live or each is in_use for each in segments), "one is left"
        names = {f"{segment.file_no:08x}.rdq" for segment in segments}
        assert names >= {*self.rdq_names()} >= {f"{no:08x}.rdq" for no in live}


def full(times: int = 1) -> dict[str, Any]:
    return {"error": OSError(errno.ENOSPC, "full"), "pattern": "*.rdq", "times": times}
