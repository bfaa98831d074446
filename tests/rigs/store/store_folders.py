"""Small stores in real folders, in a state that a test wants."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from leveret.core.message import Message, origin_of
from leveret.msg_store.offline.offline_store import OfflineStore
from leveret.msg_store.recovery.recovery import open_store
from rigs.store.live_store import files_at

WORKER: Final = Path(__file__).with_name("store_worker.py")
UUID: Final = bytes(range(16))
Rows = dict[tuple[int, int], int]


class Filled:
    """A store with some memtables in the index and some work above it; ``durable`` are its rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.durable: Rows = {}
        where = files_at(
            path,
            ballast_bytes=0,
            rdq_file_bytes=4_000,
            journal_file_bytes=500,
            new_uuid=lambda: UUID,
        )
        self.store = OfflineStore(open_store(where, 1))
        self.core = self.store.core
        self.is_open = True

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
        self.store.flush()
        return list(range(first, first + count))

    def ack(self, *keys: tuple[int, int]) -> None:
        for queue_no, seq in keys:
            self.core.ack(queue_no, [(seq, self.durable.pop((queue_no, seq)))])
        self.store.flush()

    def kill(self) -> None:
        """End as kill -9 does."""
        self.is_open = False
        self.store.close()

    def stop(self) -> None:
        """End in order."""
        self.is_open = False
        self.store.stop()

    def close(self) -> None:
        """End, unless it has ended."""
        if self.is_open:
            self.kill()


def fill(path: Path) -> Filled:
    """Return a store of three queues, with fan-out, acks, several segments and several journals."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = Filled(path)
    made.publish((1,), 20)
    made.publish((1, 2, 3), 20)
    made.ack(*[(1, seq) for seq in range(0, 20, 3)])
    made.store.checkpoint()
    made.publish((2, 3), 10)
    made.store.checkpoint()
    made.ack(*[(3, seq) for seq in range(5, 25)], (2, 3))
    made.publish((1, 3), 10)
    made.publish((2,), 15)
    made.ack(*[(2, seq) for seq in range(31, 35)])
    made.publish((3,), 5)
    return made


def killed_after(
    path: Path, epoch: int, seed: int, lines: int, worker: Path = WORKER, until: bytes = b""
) -> bytes:
    """Run a worker, kill it after so many lines and one that begins with ``until``, return all its output."""
    tests = str(Path(__file__).parents[2])
    path_before = os.environ.get("PYTHONPATH")  # a tree with a planted fault
    search = os.pathsep.join([path_before, tests] if path_before else [tests])
    environment = os.environ | {"PYTHONSAFEPATH": "1", "PYTHONPATH": search}
    command = [sys.executable, str(worker), str(path / "store"), str(epoch), str(seed)]
    with subprocess.Popen(
        command, cwd=path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = [process.stdout.readline() for _ in range(lines)]
        while not any(line.startswith(until) for line in said):
            said.append(process.stdout.readline())
            assert said[-1], process.stderr.read().decode()
        process.kill()
        output = b"".join(said) + process.stdout.read()
        errors = process.stderr.read()
    assert process.returncode == -9, errors.decode()
    return output
