"""kill -9 of a real process at a random moment, again and again on one store."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from leveret.core.message import exchange_and_key, origin_of
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.format.record import unpack_meta
from leveret.msg_store.format.rows import SEQ_END
from leveret.msg_store.reading.verify import Segment
from leveret.msg_store.recovery.replay import pages
from leveret.msg_store.recovery.report import Recovered
from rigs.store.live_store import opened_at
from rigs.store.store_folders import killed_after
from rigs.store.store_worker import body_of

Key = tuple[int, int]

LINES = (
    1,
    20,
    300,
    3000,
)  # of output, at least, before a process is killed; the longest has a confirm, too


class Oracle:
    """What the killed processes said."""

    def __init__(self) -> None:
        self.published: dict[Key, tuple[int, int]] = {}  # msg_no, size
        self.confirmed: set[Key] = set()
        self.acked: set[Key] = set()
        self.gone: set[Key] = set()
        self.confirms = 0

    def read(self, output: bytes) -> None:
        lines = output.decode().split("\n")
        for line in lines[:-1]:  # the last was cut off, or is empty
            kind, *numbers = line.split()
            if kind == "ready":
                continue
            queue_no, seq, *rest = map(int, numbers)
            match kind:
                case "p":
                    assert (queue_no, seq) not in self.published, "a seq was used twice"
                    self.published[queue_no, seq] = (rest[0], rest[1])
                case "c":
                    self.confirmed.update((queue_no, seq + n) for n in range(rest[0]))
                    self.confirms += rest[0]
                case "a":
                    self.acked.add((queue_no, seq))
                case "d":
                    self.gone.add((queue_no, seq))

    def compare(self, recovered: Recovered, folder: StoreFolder) -> None:
        found = {
            (queue_no, row[0]): row
            for queue_no in recovered.memtables.terms
            for row in pages(recovered.index, queue_no, 0, SEQ_END)
        }
        lost = self.confirmed - self.acked - found.keys()
        assert not lost, f"{len(lost)} confirmed messages lost, {sorted(lost)[:5]}"
        assert found.keys() <= self.published.keys()
        assert found.keys().isdisjoint(self.gone)
        assert not recovered.report.is_damage, recovered.report
        for key, row in found.items():
            assert (row[1], row[2]) == self.published[key]
        self.check_bodies(recovered, folder, Counter(row[1] for row in found.values()))
        # messages that are there now are durable; the others were not confirmed, or were acked
        self.confirmed = set(found)
        self.acked.clear()

    def check_bodies(self, recovered: Recovered, folder: StoreFolder, counts: Counter[int]) -> None:
        places = recovered.index.locations(counts)
        assert {msg_no: place[4] for msg_no, place in places.items()} == counts
        valid: Counter[int] = Counter()
        for msg_no, (file_no, offset, length, size, _) in places.items():
            valid[file_no] += length
            with Segment(folder, file_no) as segment:
                record = segment.read(offset, length)
            meta = unpack_meta(record.meta)
            key = exchange_and_key(origin_of(meta.exchange, *meta.routing_keys))[1]
            assert record.msg_no == msg_no
            assert record.body == body_of(key.decode(), size)
        assert {no: state.valid_bytes for no, state in recovered.memtables.files.items()} == valid


def kill_and_recover(path: Path, rng: random.Random, rounds: int) -> Oracle:
    oracle = Oracle()
    for number, epoch in enumerate(range(1, 2 * rounds, 2)):
        lines = LINES[number % len(LINES)] + rng.randrange(500)
        until = b"c" if lines >= LINES[-1] else b""
        oracle.read(killed_after(path, epoch, rng.getrandbits(32), lines, until=until))
        opened = opened_at(path / "store", epoch + 1)
        oracle.compare(opened.recovered, opened.folder)
        opened.close()
    return oracle


def test_killed_processes_lose_nothing_that_was_confirmed(
    tmp_path: Path, rng: random.Random
) -> None:
    oracle = kill_and_recover(tmp_path, rng, 6)

    assert oracle.confirms > 0


@pytest.mark.slow
def test_killed_processes_lose_nothing_for_long(tmp_path: Path, rng: random.Random) -> None:
    oracle = kill_and_recover(tmp_path, rng, 150)

    assert oracle.confirms > 10_000
