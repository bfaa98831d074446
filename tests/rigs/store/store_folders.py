"""Small stores in real folders, in a state that a test wants."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leveret.core.files import Files
from leveret.core.message import Message, origin_of
from leveret.msg_store.checkpoint.checkpoint import Checkpointer
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.recovery.recovery import Opened, StoreFiles, open_store
from leveret.msg_store.wal.group_commit import GroupCommit

WORKER: Final = Path(__file__).with_name("store_worker.py")
UUID: Final = bytes(range(16))
Rows = dict[tuple[int, int], int]


@dataclass
class Filled:
    """A store with some generations in the index and some work above it.

    Attributes:
        path: its folder.
        durable: its rows.
        offsets: where messages lie that the index does not know, by segment.
    """

    path: Path
    opened: Opened
    durable: Rows = field(default_factory=dict)
    offsets: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    is_open: bool = True

    def __post_init__(self) -> None:
        self.checkpointer = Checkpointer(self.opened.core, self.opened.index_location)

    @property
    def core(self) -> GroupCommit:
        return self.opened.core

    def publish(self, queue_nos: tuple[int, ...], count: int, size: int = 200) -> list[int]:
        messages: list[Message] = [
            (origin_of(b"x", b"key"), b"head", b"%d" % number * (size // 2))
            for number in range(count)
        ]
        first = self.core.write(messages, queue_nos)
        for queue_no in queue_nos:
            used = [seq for no, seq in self.durable if no == queue_no]
            seq = max(used, default=-1) + 1
            self.core.publish(queue_no, seq, [(first + n, 0) for n in range(count)])
            self.durable |= {(queue_no, seq + n): first + n for n in range(count)}
        self.flush()
        return list(range(first, first + count))

    def ack(self, *keys: tuple[int, int]) -> None:
        for queue_no, seq in keys:
            self.core.ack(queue_no, [(seq, self.durable.pop((queue_no, seq)))])
        self.flush()

    def flush(self) -> None:
        """Have all that is pending on the disk."""
        while self.core.pending_ops:
            flush = self.core.start()
            for log, job in (
                (self.opened.rdq_log, flush.rdq),
                (self.opened.journal_log, flush.journal),
            ):
                for _ in log.run(job):
                    pass
            self.core.finish(None, None)
            for file_no, offset, *_ in flush.new.values():
                self.offsets[file_no].append(offset)

    def checkpoint(self) -> None:
        """Have all that is durable in the index."""
        self.checkpointer.request()
        self._write_index()
        self.offsets.clear()

    def _write_index(self) -> None:
        index, folder = self.opened.recovered.index, self.opened.folder
        while True:
            self.checkpointer.turn()
            if (read := self.checkpointer.read_job()) is not None:
                read.run(index)
                self.checkpointer.read_done(read)
            elif (write := self.checkpointer.write_job()) is not None:
                for _ in write.run(index, folder, self.opened.reserve):
                    pass
                self.checkpointer.write_done(write)
            else:
                return

    def kill(self) -> None:
        """End as kill -9 does."""
        self.is_open = False
        self.opened.close()

    def stop(self) -> None:
        """End in order."""
        self.checkpointer.stop()
        self._write_index()
        self.kill()

    def close(self) -> None:
        """End, if nobody has."""
        if self.is_open:
            self.kill()


def fill(path: Path) -> Filled:
    """Return a store of three queues, with fan-out, acks, several segments and several journals."""
    path.parent.mkdir(parents=True, exist_ok=True)
    where = StoreFiles(
        Files(),
        path,
        Ballast(Files(), path, 0),
        lambda: 1,
        rdq_file_bytes=4_000,
        journal_file_bytes=500,
        new_uuid=lambda: UUID,
    )
    made = Filled(path, open_store(where, 1))
    made.publish((1,), 20)
    made.publish((1, 2, 3), 20)
    made.ack(*[(1, seq) for seq in range(0, 20, 3)])
    made.checkpoint()
    made.publish((2, 3), 10)
    made.checkpoint()
    made.ack(*[(3, seq) for seq in range(5, 25)], (2, 3))
    made.publish((1, 3), 10)
    made.publish((2,), 15)
    made.ack(*[(2, seq) for seq in range(31, 35)])
    made.publish((3,), 5)
    return made


def worker_environment() -> dict[str, str]:
    """Return the environment in which a worker finds the package and the rigs."""
    tests = str(Path(__file__).parents[2])
    path_before = os.environ.get("PYTHONPATH")  # a tree with a planted fault
    search = os.pathsep.join([path_before, tests] if path_before else [tests])
    return os.environ | {"PYTHONSAFEPATH": "1", "PYTHONPATH": search}


def killed_after(path: Path, epoch: int, seed: int, lines: int, worker: Path = WORKER) -> bytes:
    """Run a worker, kill it when it has said so much, return all it said."""
    command = [sys.executable, str(worker), str(path / "store"), str(epoch), str(seed)]
    with subprocess.Popen(
        command, cwd=path, env=worker_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        output = b"".join(said) + process.stdout.read()
        errors = process.stderr.read()
    assert process.returncode == -9, errors.decode()
    return output
