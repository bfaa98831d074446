"""Scanning segments and copying their live messages, on the faulty disk."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterable, Iterator

import pytest

from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import MOVED
from leveret.msg_store.format.rows import Location
from leveret.msg_store.gc import copy as collector_copy
from leveret.msg_store.gc.copy import Copy, copy, discard, pieces, relocations
from leveret.msg_store.gc.scan import NEEDED, NOT_NEEDED, TURN, Source, ask_index, scan
from leveret.msg_store.reading.verify import Segment
from rigs.store.memory_index import MemoryIndex
from rigs.store.store_rig import StoreRig

TARGET = 100


class FakeIndex(MemoryIndex):
    """All that the rig's store knows, as if it had been checkpointed."""

    def __init__(self, rig: StoreRig, is_needed: Iterable[int]) -> None:
        super().__init__()
        self.asked = 0
        self.known = rig.places(is_needed)

    def locations(self, msg_nos: Iterable[int]) -> dict[int, Location]:
        msg_nos = list(msg_nos)
        self.asked = max(self.asked, len(msg_nos))
        return {no: self.known[no] for no in msg_nos if no in self.known}


@pytest.fixture
def rig(rng: random.Random) -> StoreRig:
    return StoreRig(rng, rdq_file_bytes=2000)


def finish(steps: Iterator[str]) -> list[str]:
    return list(steps)


def scanned(rig: StoreRig, file_no: int, needed: Iterable[int]) -> Source:
    source = Source(file_no)
    finish(scan(rig.folder, source))
    finish(ask_index(FakeIndex(rig, needed), source))
    return source


def copied(rig: StoreRig, *sources: Source) -> Copy:
    made = Copy(TARGET, list(sources), rig.boot_epoch, 5)
    finish(copy(rig.folder, made))
    return made


def bodies(rig: StoreRig, file_no: int) -> dict[int, bytes]:
    with Segment(rig.folder, file_no) as segment:
        return {found.msg_no: found.body for _, found in segment.records()}


def filled(rig: StoreRig, count: int = 40, size: int = 100) -> list[int]:
    """Fill segments; return their messages."""
    msg_nos = []
    for _ in range(count):
        msg_nos += rig.publish((1,), 1, size)
        rig.run()
    return msg_nos


@pytest.mark.parametrize("block_bytes", [36, 50, 200, 1 << 20])
def test_a_scan_finds_every_message_whatever_the_size_of_a_block(
    rig: StoreRig, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.msg_store.gc.scan._BLOCK_BYTES", block_bytes)
    filled(rig)
    rig.publish((1,), 1, 5000)
    rig.run()

    for file_no in rig.folder.rdq_nos():
        source = Source(file_no)
        finish(scan(rig.folder, source))
        columns = zip(source.msg_nos, source.offsets, source.lengths, strict=True)
        found = {no: (file_no, at, length) for no, at, length in columns}
        places = rig.places(rig.bodies)
        assert found == {no: at[:3] for no, at in places.items() if at[0] == file_no}


def test_a_scan_takes_turns(rig: StoreRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leveret.msg_store.gc.scan.TURN_RECORDS", 3)
    monkeypatch.setattr("leveret.msg_store.gc.scan._BLOCK_BYTES", 300)
    monkeypatch.setattr("leveret.msg_store.gc.scan._INDEX_ASKED_MAX", 1)
    filled(rig)
    source, index = Source(1), FakeIndex(rig, ())

    turns = finish(scan(rig.folder, source))
    asking = finish(ask_index(index, source))

    assert turns == [TURN] * len(turns)
    assert len(turns) > 2
    assert len(asking) == len(source.msg_nos) // 3
    assert index.asked == 1


def test_only_what_the_index_has_at_this_place_is_needed(rig: StoreRig) -> None:
    msg_nos = filled(rig)
    index = FakeIndex(rig, msg_nos[:5])
    moved = index.known[msg_nos[0]]
    index.known[msg_nos[0]] = (moved[0] + 1, *moved[1:])
    index.known[msg_nos[1]] = (moved[0], moved[1] + 1, *moved[2:])
    source = Source(1)
    finish(scan(rig.folder, source))

    finish(ask_index(index, source))

    assert list(source.needed[:6]) == [NOT_NEEDED, NOT_NEEDED, NEEDED, NEEDED, NEEDED, NOT_NEEDED]


def test_a_scan_goes_on_behind_damage(rig: StoreRig) -> None:
    msg_nos = filled(rig)
    at = rig.places(rig.bodies)[msg_nos[2]][1]

    def spoil(data: bytearray) -> None:
        data[at : at + 36] = bytes(36)

    rig.disk.damage(rig.folder.rdq_path(1), spoil)

    source = scanned(rig, 1, msg_nos)

    in_file = [no for no in msg_nos if rig.places(rig.bodies)[no][0] == 1]
    assert list(source.msg_nos) == [no for no in in_file if no != msg_nos[2]]


def test_a_segment_with_a_damaged_header_is_refused(rig: StoreRig) -> None:
    filled(rig)
    rig.disk.damage(rig.folder.rdq_path(1), lambda data: data.__setitem__(20, data[20] ^ 1))

    with pytest.raises(Corrupt, match="checksum of the file header"):
        finish(scan(rig.folder, Source(1)))


@pytest.mark.parametrize("short_writes", [0.0, 0.3])
def test_a_copy_holds_what_is_needed_of_all_sources(rig: StoreRig, short_writes: float) -> None:
    msg_nos = filled(rig)
    needed = msg_nos[1:9] + msg_nos[11::2]
    sources = [scanned(rig, file_no, needed) for file_no in (2, 1)]
    expected = [no for no in needed if rig.places(rig.bodies)[no][0] in (1, 2)]
    rig.disk.short_writes = rig.disk.interrupts = short_writes

    made = copied(rig, *sources)

    assert bodies(rig, TARGET) == {no: rig.bodies[no] for no in expected}
    assert [source.file_no for source in made.sources] == [1, 2]
    assert made.size_bytes == len(rig.disk.image(rig.folder.rdq_path(TARGET)))
    moves = list(relocations(made))
    assert [(no, source_no, file_no) for no, source_no, file_no, _, _ in moves] == [
        (no, rig.places(rig.bodies)[no][0], TARGET) for no in expected
    ]
    with Segment(rig.folder, TARGET) as segment:
        assert segment.header is not None
        assert segment.header.flags == MOVED
        read = [segment.read(move.offset, move.total_len).msg_no for move in moves]
    assert read == expected
    assert rig.disk.open_files == [rig.folder.path / "lock", *rig.disk.open_files[1:]]


def test_neighbours_are_copied_at_once(rig: StoreRig, monkeypatch: pytest.MonkeyPatch) -> None:
    msg_nos = filled(rig)
    source = scanned(rig, 1, [*msg_nos[1:4], *msg_nos[6:8]])
    length = source.lengths[0]

    (piece,) = pieces(source)
    assert piece.records == [1, 2, 3, 6, 7]
    assert piece.runs == [(64 + length, 3 * length), (64 + 6 * length, 2 * length)]
    monkeypatch.setattr(collector_copy, "PIECE_BYTES", 4 * length)
    assert [piece.records for piece in pieces(source)] == [[1, 2, 3], [6, 7]]
    monkeypatch.setattr(collector_copy, "PIECE_BYTES", 2 * length)
    assert [piece.records for piece in pieces(source)] == [[1, 2], [3], [6, 7]]


@pytest.mark.parametrize("runs_max", [0, 2, 100])
def test_small_runs_are_read_and_written_at_once(
    rig: StoreRig, monkeypatch: pytest.MonkeyPatch, runs_max: int
) -> None:
    monkeypatch.setattr(collector_copy, "KERNEL_RUNS_MAX", runs_max)
    msg_nos = filled(rig)
    source = scanned(rig, 1, msg_nos[::2])
    rig.disk.seen.clear()

    copied(rig, source)

    expected = [no for no in msg_nos[::2] if rig.places(rig.bodies)[no][0] == 1]
    assert bodies(rig, TARGET) == {no: rig.bodies[no] for no in expected}
    assert rig.disk.seen.get("copy_range", 0) == (len(expected) if runs_max == 100 else 0)


def test_a_message_larger_than_a_turn_is_copied_in_pieces(
    rig: StoreRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_copy, "PIECE_BYTES", 500)
    monkeypatch.setattr(collector_copy, "SYNC_BYTES", 1000)
    (large,) = rig.publish((1,), 1, 5000)
    rig.run()
    source = scanned(rig, 1, [large])
    made = Copy(TARGET, [source], 1, 5)

    points = finish(copy(rig.folder, made))

    assert points.count(TURN) == 5
    assert bodies(rig, TARGET) == {large: rig.bodies[large]}


def test_a_copy_waits_for_room(rng: random.Random) -> None:
    rig = StoreRig(rng, disk_bytes=1 << 20, rdq_file_bytes=2000)
    msg_nos = filled(rig)

    with pytest.raises(OSError, match=r"the collector needs .* bytes free") as raised:
        copied(rig, scanned(rig, 1, msg_nos))

    assert raised.value.errno == errno.ENOSPC
    assert len(rig.folder.files.names(rig.folder.rdq)) == len(rig.folder.rdq_nos())


@pytest.mark.parametrize("point", ["open", "writev", "copy_range", "fsync", "rename", "fsync_dir"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_what_a_failed_copy_leaves_is_discarded(rig: StoreRig, point: str, code: int) -> None:
    msg_nos = filled(rig)
    source, names = scanned(rig, 1, msg_nos), rig.files.names(rig.folder.rdq)
    pattern = "rdq" if point == "fsync_dir" else "*.rdt"
    rig.disk.fail(point, OSError(code, "injected"), pattern)

    with pytest.raises(OSError, match="injected"):
        copied(rig, source)
    finish(discard(rig.folder, TARGET))

    assert rig.files.names(rig.folder.rdq) == names
    assert all("rd" not in path.suffix or path.suffix == ".rdq" for path in rig.disk.open_files)


@pytest.mark.parametrize("large", [False, True])
def test_a_damaged_message_is_set_aside_and_copied_as_it_is(
    rig: StoreRig, monkeypatch: pytest.MonkeyPatch, large: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if large:
        monkeypatch.setattr(collector_copy, "PIECE_BYTES", 40)
    msg_nos = filled(rig)
    file_no, at, length, *_ = rig.places(rig.bodies)[msg_nos[3]]
    rig.disk.damage(rig.folder.rdq_path(1), lambda data: data.__setitem__(at + 90, 255))
    source = scanned(rig, 1, msg_nos[:6])

    made = copied(rig, source)

    assert made.damaged == [msg_nos[3]]
    assert bodies(rig, TARGET) == {no: rig.bodies[no] for no in msg_nos[:6] if no != msg_nos[3]}
    (name,) = rig.files.names(rig.folder.quarantine)
    bad = rig.files.read(rig.folder.quarantine / name)
    assert bad == rig.disk.image(rig.folder.rdq_path(file_no))[at : at + length]
    assert bad in rig.disk.image(rig.folder.rdq_path(TARGET))
    assert "damaged message copied as it is" in caplog.text


def test_a_copy_that_differs_from_its_source_is_given_up(
    rig: StoreRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    msg_nos = filled(rig)
    source = scanned(rig, 1, msg_nos[:5])
    whole = rig.disk.copy_range

    def wrong(source: int, offset: int, target: int, count: int) -> int:
        return whole(source, offset + 1, target, count)

    monkeypatch.setattr(rig.disk, "copy_range", wrong)

    with pytest.raises(OSError, match="changed on the way"):
        copied(rig, source)

    assert rig.files.names(rig.folder.quarantine) == []


@pytest.mark.parametrize("runs_max", [0, 100])
def test_a_source_that_has_become_shorter_ends_the_copy(
    rig: StoreRig, monkeypatch: pytest.MonkeyPatch, runs_max: int
) -> None:
    monkeypatch.setattr(collector_copy, "KERNEL_RUNS_MAX", runs_max)
    msg_nos = filled(rig)
    source = scanned(rig, 1, msg_nos)
    rig.disk.damage(rig.folder.rdq_path(1), lambda data: data.__delitem__(slice(-10, None)))

    with pytest.raises(EOFError):
        copied(rig, source)
