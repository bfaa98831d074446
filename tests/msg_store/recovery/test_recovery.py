"""Recovery from journal and segments: crashes at every point, cuts at every byte, flipped bits.

Tests: msg_store/recovery/journal_scan.py, msg_store/recovery/replay.py,
    msg_store/recovery/report.py, msg_store/recovery/row_check.py
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from leveret.core.errors import StoreError
from leveret.msg_store.format import file_header
from leveret.msg_store.format.errors import StoreLocked
from leveret.msg_store.format.file_header import HEADER_BYTES
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.format.journal_frames import HEADER_BYTES as FRAME_HEADER_BYTES
from leveret.msg_store.format.rows import Location
from leveret.msg_store.recovery.report import RecoveryReport
from rigs.disk.faulty_files import Crash, Fate, FaultyCalls
from rigs.store.memory_index import MemoryIndex
from rigs.store.store_rig import STORE, StoreRig

LOST = lambda disk: disk.power_cut(Fate.LOST)  # noqa: E731


@pytest.fixture
def rig(rng: random.Random) -> StoreRig:
    return StoreRig(rng)


def last(rig: StoreRig, folder: str) -> Path:
    return [path for path in rig.disk.paths() if path.parent.name == folder][-1]


def reports(rig: StoreRig) -> list[dict]:
    paths = [path for path in rig.disk.paths() if path.suffix == ".json"]
    return [json.loads(rig.disk.image(path)) for path in paths]


def busy(rig: StoreRig, flushes: int = 4) -> None:
    """Some flushes of publishes, fan-outs and acks."""
    for _ in range(flushes):
        rig.publish((1,), 3)
        rig.publish((1, 2), 2)
        rig.ack(*rig.rng.sample(rig.held, 2))
        rig.run_flush()


def test_an_empty_store_is_made_and_found_again(rig: StoreRig) -> None:
    assert rig.found() == {}
    rig.crash(LOST)
    assert rig.found() == {}
    assert reports(rig) == []


def test_what_was_confirmed_is_there_after_many_restarts(rig: StoreRig) -> None:
    for _ in range(4):
        busy(rig)
        rig.crash(LOST)
    assert len(rig.held) == 4 * 4 * 5
    assert reports(rig) == []


def test_recovering_twice_is_recovering_once(rig: StoreRig) -> None:
    busy(rig)
    rig.crash(LOST)
    rows, locations = rig.found(), rig.locations
    rig.crash(LOST)

    assert (rig.found(), rig.locations) == (rows, locations)


def test_a_replay_asks_the_index_about_messages_that_may_be_in_it_and_no_others(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question for each publish took a third of a start."""
    rig = StoreRig(rng)
    rig.publish((1,), 5)
    rig.run()
    rig.checkpoint()
    for _ in range(50):
        rig.publish((1, 2), 2)
        rig.run_flush()
    asked: list[int] = []
    locations = MemoryIndex.locations

    def counted(index: MemoryIndex, msg_nos: Iterable[int]) -> dict[int, Location]:
        asked.extend(msg_nos := list(msg_nos))
        return locations(index, msg_nos)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryIndex, "locations", counted)
        LOST(rig.disk)
        rig.open()

    assert asked == []
    rig.compare()
    assert len(rig.held) == 5 + 50 * 4


def test_numbers_are_above_all_that_were_ever_used(rig: StoreRig) -> None:
    rig.publish((1,), 5)
    rig.ack(*rig.held)  # never written
    rig.crash(LOST)

    assert rig.recovered.next_no == 2 << 40
    rig.boot_epoch -= 1
    rig.disk.kill()
    with pytest.raises(StoreError, match="boot epoch 2 must be above 2"):
        rig.open()


POINTS = ["before write", "written", "synced", "created", "header synced", "name synced"]


@pytest.mark.parametrize("name", ["rdq", "journal"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("fate", Fate)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_crash_at_each_point_of_a_flush(
    rng: random.Random, name: str, point: str, fate: Fate, is_first: bool
) -> None:
    """With the other job not begun, and with it done."""
    rig = StoreRig(rng, rdq_file_bytes=700, journal_file_bytes=400)
    for _ in range(8):
        busy(rig, 1)
    rig.points.clear()
    rig.publish((1, 2), 6, size=90)
    rig.ack(*rng.sample(rig.held, 4))
    rig.start()
    other = "journal" if name == "rdq" else "rdq"
    while not is_first and other in rig.jobs:
        rig.step(other)
    while name in rig.jobs and f"{name}: {point}" not in rig.points:
        rig.step(name)

    rig.crash(lambda disk: disk.power_cut(fate))
    busy(rig)
    rig.crash(lambda disk: disk.kill())


@pytest.mark.parametrize(
    "point", ["open", "writev", "truncate", "fdatasync", "fsync", "fsync_dir", "unlink", "rename"]
)
@pytest.mark.parametrize("after", range(5))
def test_a_crash_at_each_step_of_recovery_itself(
    rng: random.Random, point: str, after: int
) -> None:
    rig = StoreRig(rng, rdq_file_bytes=300)
    busy(rig, 6)
    rig.ack(*rig.held[:15])
    rig.run()
    rig.publish((1,), 5)
    rig.start()
    for name in ("rdq", "journal", "journal"):
        rig.step(name)
    rig.disk.power_cut(Fate.CUT)

    for _ in range(20):
        rig.disk.fail(point, Crash("again"), after=after)
        try:
            rig.open()
        except Crash:
            rig.disk.power_cut(rng.choice(list(Fate)))
        else:
            break
    else:
        rig.disk.heal()
        rig.open()
    rig.compare()


def test_un_synced_ends_meet_every_fate_in_both_files(rng: random.Random) -> None:
    for rdq in Fate:
        for journal in Fate:
            rig = StoreRig(rng)
            busy(rig)
            rig.publish((1, 2), 20, size=300)
            rig.ack(*rng.sample(rig.held, 5))
            rig.start()
            for name in ("rdq", "journal") * 2:
                rig.step(name)
            rig.crash(
                lambda disk, rdq=rdq, journal=journal: disk.power_cut(
                    lambda path: rdq if path.suffix == ".rdq" else journal
                )
            )
            assert not rig.recovered.report.is_damage
            rig.crash(LOST)
            rig.recovered.report.removed.clear()
            assert rig.recovered.report == RecoveryReport(), "judged twice"


def test_rows_without_bodies_were_not_confirmed_and_are_counted(rig: StoreRig) -> None:
    busy(rig)
    rig.publish((1,), 7, size=100)
    rig.start()
    for name in ("rdq", "journal") * 2:
        rig.step(name)

    rig.crash(
        lambda disk: disk.power_cut(lambda path: Fate.LOST if path.suffix == ".rdq" else Fate.KEPT)
    )

    assert len(rig.recovered.report.dropped) == 7
    assert rig.recovered.report.lost == []
    assert len(reports(rig)[0]["dropped"]) == 7


def test_bodies_without_rows_are_garbage_and_their_segment_goes(rig: StoreRig) -> None:
    rig.publish((1,), 7, size=100)
    rig.start()
    for name in ("rdq",) * 6 + ("journal",) * 2:
        rig.step(name)

    rig.crash(
        lambda disk: disk.power_cut(lambda path: Fate.KEPT if path.suffix == ".rdq" else Fate.LOST)
    )

    assert rig.recovered.report.removed == [1]
    assert [path for path in rig.disk.paths() if path.suffix == ".rdq"] == []


@pytest.mark.parametrize("names", [0.0, 0.5, 1.0])
def test_names_that_were_not_synced_hold_nothing_confirmed(
    rng: random.Random, names: float
) -> None:
    for _ in range(20):
        rig = StoreRig(rng, rdq_file_bytes=400, journal_file_bytes=300)
        for _ in range(rng.randrange(5)):
            busy(rig, 1)
        rig.publish((1,), 9, size=90)
        rig.start()
        for _ in range(rng.randrange(20)):
            rig.step(rng.choice(["rdq", "journal"]))
        rig.crash(lambda disk: disk.power_cut(Fate.SCATTERED, names))
        busy(rig, 1)
        rig.crash(LOST)


def cut_to(size: int):
    return lambda image: image.__delitem__(slice(size, None))


def messages_of(rows: dict) -> set[tuple[int, int]]:
    """Return the messages of rows, ``(queue_no, msg_no)``: a start may give them other seqs."""
    return {(queue_no, msg_no) for (queue_no, _), msg_no in rows.items()}


def test_a_journal_cut_at_every_byte_of_its_last_frames_keeps_the_frames_before(seed: int) -> None:
    def made() -> tuple[StoreRig, list[tuple[int, dict]]]:
        rig = StoreRig(random.Random(seed))
        states = []
        for _ in range(4):
            busy(rig, 1)
            held = {key: rig.rows[key] for key in rig.held}
            states.append((len(rig.disk.image(last(rig, "journal"))), held))
        return rig, states

    _, states = made()
    for size in range(states[0][0], states[-1][0] + 1):
        rig, _ = made()
        rig.disk.damage(last(rig, "journal"), cut_to(size))
        rig.disk.kill()
        rig.open()
        assert rig.found() == [held for end, held in states if end <= size][-1]
        is_torn = size not in [end for end, _ in states]
        assert bool(rig.recovered.report.tails) == is_torn
        assert not rig.recovered.report.gaps


@pytest.mark.parametrize(("folder", "cut"), [("journal", 1.0), ("journal", 0.1), ("rdq", 0.1)])
def test_a_last_write_that_is_not_whole_is_in_the_log(
    folder: str, cut: float, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    rig = StoreRig(rng)
    rig.publish((1,))
    rig.run()
    rig.checkpoint()
    held = rig.found()
    rig.publish((1,))
    rig.run()
    path = last(rig, folder)
    size = len(rig.disk.image(path))
    rig.disk.damage(path, cut_to(size - int(cut * size)))
    rig.disk.kill()
    rig.open()

    (line,) = [each for each in caplog.messages if each.startswith("last write is not whole")]
    assert path.stem in line
    assert not rig.recovered.report.is_damage
    assert rig.found() == held


def test_a_segment_cut_at_every_byte_of_its_last_records_loses_only_those(seed: int) -> None:
    rig = StoreRig(random.Random(seed))
    rig.publish((1,), 5, size=30)
    rig.run()
    path = last(rig, "rdq")
    ends = [sum(at[1:3]) for at in rig.locations.values()]
    for size in range(ends[1], ends[-1] + 1):
        rig = StoreRig(random.Random(seed))
        rig.publish((1,), 5, size=30)
        rig.run()
        rig.disk.damage(path, cut_to(size))
        rig.disk.kill()
        rig.open()
        whole = sum(end <= size for end in ends)
        assert [row[1] & 0xFF for row in rig.rows_of(1)] == list(range(whole))
        assert len(rig.recovered.report.dropped) == 5 - whole


def flip(bit: int):
    def change(image: bytearray) -> None:
        image[bit // 8] ^= 1 << bit % 8

    return change


def frames_of(rig: StoreRig, count: int) -> list[int]:
    """Where each of some flushes ends in the journal."""
    ends = []
    for _ in range(count):
        rig.publish((1,), 3)
        rig.run_flush()
        ends.append(len(rig.disk.image(last(rig, "journal"))))
    return ends


@pytest.mark.parametrize("where", ["header", "payload"])
def test_a_flipped_bit_in_a_frame_is_reported_and_costs_no_message(seed: int, where: str) -> None:
    ends = frames_of(StoreRig(random.Random(seed)), 4)
    start = ends[1]
    bits = range(start * 8, (start + FRAME_HEADER_BYTES) * 8)
    if where == "payload":
        bits = range((start + FRAME_HEADER_BYTES) * 8, ends[2] * 8, 7)
    for bit in bits:
        rig = StoreRig(random.Random(seed))
        frames_of(rig, 4)
        rig.disk.damage(last(rig, "journal"), flip(bit))
        segment = last(rig, "rdq")
        rig.disk.kill()
        rig.open()
        rig.compare()

        assert len(rig.held) == 12
        assert rig.recovered.report.reclaimed == {1: 3}
        assert len(rig.recovered.report.gaps) == 1
        assert segment in rig.disk.paths()
        assert [path.name for path in rig.disk.paths() if path.suffix == ".bin"]


def test_a_damaged_journal_header_costs_no_frame(rig: StoreRig) -> None:
    busy(rig)
    rig.disk.damage(last(rig, "journal"), flip(77))

    rig.crash(LOST, is_damaged=True)

    assert rig.recovered.report.gaps


def test_a_missing_journal_in_the_middle_is_a_gap_and_its_messages_come_from_the_segments(
    rng: random.Random,
) -> None:
    rig = StoreRig(rng, journal_file_bytes=1)
    rig.publish((1,), 2)
    rig.run()
    kept = rig.held
    rig.publish((2,), 2)
    rig.run()
    missing = last(rig, "journal")
    rig.ack(*kept)
    rig.run()
    rig.files.unlink(missing)
    segments = [path for path in rig.disk.paths() if path.suffix == ".rdq"]
    rig.disk.kill()
    rig.open()

    assert messages_of(rig.found()) == {(2, 1 << 40 | 2), (2, 1 << 40 | 3)}
    assert len(rig.recovered.report.gaps) == 1
    assert set(segments) <= set(rig.disk.paths())


@pytest.mark.parametrize("part", ["crc", "length", "meta", "body"])
def test_a_flipped_byte_in_a_record_costs_that_message(rig: StoreRig, part: str) -> None:
    rig.publish((1, 2), 5, size=50)
    rig.run()
    rig.publish((1,), 1)
    rig.run()  # its frame says that the others are durable
    msg_no = rig.rows[rig.held[2]]
    _, offset, length, *_ = rig.locations[msg_no]
    at = {"crc": 0, "length": 4, "meta": 40, "body": length - 1}[part]
    rig.disk.damage(last(rig, "rdq"), flip((offset + at) * 8))
    lost = {key for key, number in rig.rows.items() if number == msg_no}
    rig.disk.kill()
    rig.open()

    rig.check_lost(lost)
    assert len([path for path in rig.disk.paths() if path.suffix == ".bin"]) == 1
    rig.crash(LOST)
    assert rig.recovered.report.lost == [], "reported twice"


def test_a_damaged_segment_header_costs_nothing(rig: StoreRig) -> None:
    busy(rig)
    rig.disk.damage(last(rig, "rdq"), flip(100))

    rig.crash(LOST)

    assert len(rig.held) == 20


def test_a_missing_segment_costs_its_messages_and_names_them(rng: random.Random) -> None:
    rig = StoreRig(rng, rdq_file_bytes=300)
    rig.publish((1,), 12, size=100)
    rig.run()
    rig.publish((1,), 1)
    rig.run()

    lost = rig.crash_without_segment(rig.held[5])

    assert len(rig.held) == 13 - len(lost)


def test_a_message_that_lies_elsewhere_is_found(rig: StoreRig) -> None:
    rig.publish((1,), 3, size=60)
    rig.run()
    rig.publish((1,), 1)
    rig.run()
    wanted = rig.rows[rig.held[1]]
    _, offset, length, *_ = rig.locations[wanted]
    path = last(rig, "rdq")
    record = rig.disk.image(path)[offset : offset + length]

    def move(image: bytearray) -> None:
        image[offset : offset + length] = bytes(length)
        image += record

    rig.disk.damage(path, move)
    rig.crash(LOST, is_damaged=True)

    assert rig.recovered.report.found == [wanted]
    assert len(rig.held) == 4


def test_files_of_another_store_are_set_aside(rig: StoreRig) -> None:
    busy(rig)
    for folder, name in (("rdq", "000000ff.rdq"), ("journal", "00000000000000ff.jnl")):
        image = bytearray(rig.disk.image(last(rig, folder)))
        magic = file_header.RDQ_MAGIC if folder == "rdq" else file_header.JOURNAL_MAGIC
        image[:HEADER_BYTES] = file_header.Identity(b"z" * 16, 9, 1).header(magic, 255, 1)
        rig.files.write_new(STORE / folder / name, bytes(image))

    rig.crash(LOST, is_damaged=True)

    assert len(rig.recovered.report.foreign) == 2
    rig.publish((1,), 1)
    rig.run()
    assert last(rig, "rdq").name == "00000100.rdq"


def test_what_was_written_before_a_failed_sync_is_not_believed(rig: StoreRig) -> None:
    busy(rig)
    safe = set(rig.held)
    durable = rig.core.durable
    rig.publish((1,), 5)
    rig.start()
    for name in ("rdq", "journal") * 2:
        rig.step(name)

    rig.crash(lambda disk: disk.kill(), durable)

    assert set(rig.held) == safe


def test_only_one_process_opens_a_store(rig: StoreRig) -> None:
    with pytest.raises(StoreLocked, match="in use"):
        StoreFolder(rig.files, STORE, lambda: b"", lambda: 0)


def test_a_newer_or_damaged_format_is_refused_untouched(rig: StoreRig) -> None:
    busy(rig)
    rig.disk.kill()
    path = STORE / "FORMAT"
    text = rig.disk.image(path)
    newer = text.replace(b"store 2", b"store 3")
    for content, reason in ((newer, "format 3"), (b"\xff", "damaged"), (b"", "damaged")):
        rig.files.write_new(path, content)
        before = rig.disk.paths()
        with pytest.raises(StoreError, match=reason):
            rig.open()
        assert rig.disk.paths() == before
        rig.disk.kill()
    rig.files.unlink(path)
    with pytest.raises(StoreError, match="no FORMAT"):
        rig.open()


def test_a_store_of_format_1_is_upgraded_when_it_is_opened(rig: StoreRig) -> None:
    busy(rig)
    path = STORE / "FORMAT"
    text = rig.disk.image(path)
    rig.files.unlink(path)
    rig.files.write_new(path, text.replace(b"store 2", b"store 1"))

    rig.crash(lambda disk: disk.kill())

    assert rig.disk.image(path) == text


def test_drafts_of_the_collector_are_removed(rig: StoreRig) -> None:
    rig.files.write_new(STORE / "rdq" / "00000009.rdt", b"half")

    rig.crash(LOST)

    assert not [path for path in rig.disk.paths() if path.suffix == ".rdt"]


def test_a_failing_disk_in_recovery_leaves_nothing_open(rig: StoreRig) -> None:
    busy(rig)
    rig.disk.kill()
    rig.disk.fail("fdatasync", OSError(5, "gone"))

    with pytest.raises(OSError, match="gone"):
        rig.open()

    rig.folder.close()
    assert rig.disk.open_files == []


def test_the_disk_under_test_is_the_faulty_one(rig: StoreRig) -> None:
    assert isinstance(rig.disk, FaultyCalls)
    assert rig.disk.seen["fsync_dir"] > 0
