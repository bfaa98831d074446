"""A real store on a real disk, filled and ended step by step, and what must be in it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leveret.core.message import Message, origin_of
from leveret.msg_store.format.rows import Location
from leveret.msg_store.index.files import LmdbFiles
from leveret.msg_store.offline.audit import Audit, audited
from leveret.msg_store.offline.offline_store import OfflineStore
from leveret.msg_store.reading.verify import Segment
from leveret.msg_store.recovery.recovery import open_store
from rigs.store.live_store import files_at

UUID = bytes(range(16))
MAP_BYTES = 1 << 20  # files of the map's length are read as a whole here
Key = tuple[int, int]  # queue_no, seq


def quiet(what: str, done: int, total: int) -> None:
    """Show no progress."""


def message(number: int, size: int) -> Message:
    return (origin_of(b"x", b"key"), b"head", f"{number} ".encode() + b"." * size)


class OfflineRig:
    """A store that is open or not; ``rows`` is what must be in it."""

    def __init__(self, path: Path, rdq_file_bytes: int = 20_000, **more: Any) -> None:
        self.path = path
        self.more = {"rdq_file_bytes": rdq_file_bytes, "new_uuid": lambda: UUID} | more
        self.boot_epoch = 0
        self.rows: dict[Key, int] = {}
        self.bodies: dict[int, bytes] = {}
        self.open()

    def open(self) -> None:
        self.boot_epoch += 1
        uuid = self.more["new_uuid"]()
        index_files = LmdbFiles(self.path / "store.lmdb", uuid, MAP_BYTES)
        where = files_at(self.path, index_files=index_files, **self.more)
        self.opened = open_store(where, self.boot_epoch)
        self.store = OfflineStore(self.opened)
        self.core = self.store.core
        self.next_seq: dict[int, int] = {}

    def publish(self, queue_nos: tuple[int, ...], count: int, size: int = 100) -> list[int]:
        """Publish in all queues, durably; return the messages' numbers."""
        first = len(self.bodies)
        messages = [message(first + n, size) for n in range(count)]
        number = self.core.write(messages, queue_nos)
        msg_nos = list(range(number, number + count))
        self.bodies.update(zip(msg_nos, (each[2] for each in messages), strict=True))
        for queue_no in queue_nos:
            seq = self.next_seq.get(queue_no, self.boot_epoch << 40)
            self.next_seq[queue_no] = seq + count
            self.core.publish(queue_no, seq, [(no, 0) for no in msg_nos])
            self.rows.update({(queue_no, seq + n): no for n, no in enumerate(msg_nos)})
        self.store.flush()
        return msg_nos

    def ack(self, *keys: Key) -> None:
        for key in keys:
            self.core.ack(key[0], [(key[1], self.rows.pop(key))])
        self.store.flush()

    def busy(self, rng: random.Random, rounds: int = 6) -> None:
        """Publishes, fan-outs, acks, checkpoints."""
        for _ in range(rounds):
            self.publish((1,), 20)
            self.publish((1, 2), 10, size=300)
            self.ack(*rng.sample(sorted(self.rows), 12))
            if rng.random() < 0.5:
                self.store.checkpoint()

    def crash(self) -> None:
        self.store.close()

    def stop(self) -> None:
        self.store.stop()

    # Looking.

    def look(self, use: Callable[[Audit], None], index_damage: str = "") -> None:
        with audited(self.path, quiet, index_damage) as audit:
            use(audit)

    def locations(self) -> dict[int, Location]:
        with audited(self.path, quiet) as audit:
            return dict(audit.store.locations())

    @property
    def data(self) -> Path:
        return self.path / "store.lmdb" / "data.mdb"

    def segment(self, file_no: int) -> Path:
        return self.path / "rdq" / f"{file_no:08x}.rdq"

    def spoil(self, msg_no: int, at: int = 40) -> None:
        """Flip a byte of a message on the disk."""
        file_no, offset, *_ = self.locations()[msg_no]
        flip(self.segment(file_no), offset + at)


def rows_of(audit: Audit) -> dict[Key, int]:
    return {
        (queue_no, row[0]): row[1]
        for queue_no in audit.store.queue_nos()
        for row in audit.store.rows(queue_no)
    }


def bodies_of(audit: Audit) -> dict[int, bytes]:
    bodies = {}
    for msg_no, (file_no, offset, length, _, _) in audit.store.locations():
        with Segment(audit.store.folder, file_no) as segment:
            bodies[msg_no] = segment.read(offset, length).body
    return bodies


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 255]))


def files_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return all files below a folder, to see whether anything has changed."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    } | dict.fromkeys(os.listdir(folder), (b"", 0))
