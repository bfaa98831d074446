"""The columns of a segment's records are those that a reader finds one by one.

Tests: msg_store/format/record.py, msg_store/reading/verify.py
"""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from leveret.core.system.files import Files, OsCalls
from leveret.msg_store.format.file_header import RDQ_MAGIC, Identity
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.format.record import MAGIC
from leveret.msg_store.format.record_encoding import encode_run
from leveret.msg_store.reading import record_table
from leveret.msg_store.reading.record_table import read_table
from leveret.msg_store.reading.verify import Segment

UUID = bytes(range(16))
WINDOWS = [100, 700, 1 << 22]


def segment_bytes(rng: random.Random, count: int) -> bytearray:
    """Return a segment whose bodies are full of magics, and of lengths from nothing to several windows."""
    identity = Identity(UUID, 1)
    parts: list[bytes] = [identity.header(RDQ_MAGIC, 1, 9)]
    magic = MAGIC.to_bytes(2, "little")
    items = [
        (no, ((b"origin", b"head", magic * rng.choice([0, 1, 9, 60, 900])), (1,)))
        for no in range(1, count)
    ]
    encode_run(items, 1, identity.extend, identity.seed, parts)
    return bytearray(b"".join(parts))


class BadSector(OsCalls):
    """A disk that refuses to read one range of bytes."""

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high

    def pread(self, descriptor: int, count: int, offset: int) -> bytes:
        if offset < self._high and self._low < offset + count and count:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().pread(descriptor, count, offset)


def read_both(path: Path, data: bytes) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the good records of a segment as columns have them, and as they are found one by one."""
    (path / "rdq").mkdir(exist_ok=True)
    (path / "rdq" / "00000001.rdq").write_bytes(data)
    with Segment(StorePaths(Files(), path, UUID), 1) as segment:
        table = read_table(segment)
        rows = zip(
            table.offsets, table.lengths, table.msg_nos, table.body_sizes, table.good, strict=True
        )
        single = [
            (offset, each.total_len, each.msg_no, len(each.body))
            for offset, each in segment.records()
        ]
        assert list(table.offsets) == sorted(set(table.offsets))
        assert table.good_bytes == sum(row[1] for row in single)
    return [row[:4] for row in rows if row[4]], single


@pytest.mark.parametrize("window_bytes", WINDOWS)
def test_all_records_of_a_sound_segment_are_in_the_table(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, window_bytes: int
) -> None:
    monkeypatch.setattr(record_table, "WINDOW_BYTES", window_bytes)

    found, single = read_both(tmp_path, segment_bytes(rng, 40))

    assert found == single
    assert [row[2] for row in found] == list(range(1, 40))


@pytest.mark.parametrize("window_bytes", WINDOWS)
def test_a_damaged_segment_gives_the_records_that_are_found_one_by_one(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, window_bytes: int
) -> None:
    monkeypatch.setattr(record_table, "WINDOW_BYTES", window_bytes)
    for _ in range(40):
        data = segment_bytes(rng, 20)
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.3:
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(200)] = bytes(rng.randrange(200))
        del data[rng.randrange(len(data) // 2, 2 * len(data)) :]

        found, single = read_both(tmp_path, data)

        assert found == single


def test_a_record_right_behind_bytes_that_cannot_be_read_is_in_the_table(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rdq").mkdir()
    (tmp_path / "rdq" / "00000001.rdq").write_bytes(segment_bytes(rng, 100))
    with Segment(StorePaths(Files(), tmp_path, UUID), 1) as segment:
        starts = [offset for offset, _ in segment.records()]
    behind = next(offset for offset in starts[20:] if offset % 2 == 0)
    monkeypatch.setattr(record_table, "BLOCK_BYTES", behind // 2)
    bad = BadSector(behind // 2, behind)
    with Segment(StorePaths(Files(bad), tmp_path, UUID), 1) as segment:
        table = read_table(segment)

    assert behind in table.offsets


@pytest.mark.parametrize("window_bytes", [5_000, 1 << 22])
def test_records_around_bytes_that_cannot_be_read_are_in_the_table(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, window_bytes: int
) -> None:
    monkeypatch.setattr(record_table, "WINDOW_BYTES", window_bytes)
    (tmp_path / "rdq").mkdir()
    data = segment_bytes(rng, 100)
    (tmp_path / "rdq" / "00000001.rdq").write_bytes(data)
    with Segment(StorePaths(Files(), tmp_path, UUID), 1) as segment:
        whole = [(offset, offset + each.total_len) for offset, each in segment.records()]
    for _ in range(20):
        low = rng.randrange(1, len(data) // 4_096) * 4_096
        high = low + 4_096 * rng.choice([1, 2])
        with Segment(StorePaths(Files(BadSector(low, high)), tmp_path, UUID), 1) as segment:
            table = read_table(segment)

        found = [offset for offset, good in zip(table.offsets, table.good, strict=True) if good]
        assert found == [start for start, end in whole if end <= low or high <= start]
