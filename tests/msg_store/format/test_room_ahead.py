"""The journal takes room ahead: syncs get cheaper, and nobody who reads it minds the zeros."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from leveret.msg_store.format.file_header import HEADER_BYTES
from leveret.msg_store.recovery.journal_reader import JournalFile
from rigs.disk.faulty_files import Fate
from rigs.store.store_rig import StoreRig

AHEAD = 64 * 64


@pytest.fixture
def rig(rng: random.Random) -> StoreRig:
    return StoreRig(rng, inline_bytes_max=1000, journal_ahead_bytes=AHEAD)


def last_journal(rig: StoreRig) -> Path:
    return rig.folder.journal_path(rig.folder.journal_nos()[-1])


def lengths(rig: StoreRig) -> tuple[int, int]:
    """Return how long the journal is, and how much of it is in use."""
    file = JournalFile(rig.disk.image(last_journal(rig)), rig.folder.uuid)
    for _ in file.frames():
        pass
    return len(file.data), file.end


def fill(rig: StoreRig, flushes: int) -> None:
    for _ in range(flushes):
        rig.publish((1, 2), 2)
        rig.run_flush()


def test_the_file_grows_now_and_then(rig: StoreRig) -> None:
    allocated = rig.disk.seen["allocate"]
    sizes = set()
    for _ in range(60):
        fill(rig, 1)
        size, used = lengths(rig)
        assert used <= size <= used + AHEAD
        sizes.add(size)

    assert rig.disk.seen["allocate"] - allocated == len(sizes) < 15


def test_a_file_that_is_left_is_as_long_as_what_is_in_it(rig: StoreRig) -> None:
    fill(rig, 5)
    left = last_journal(rig)
    rig.checkpointer.request()
    rig.step("read")
    fill(rig, 1)
    assert last_journal(rig) != left

    image = rig.disk.image(left)
    file = JournalFile(image, rig.folder.uuid)
    assert len(list(file.frames())) > 5
    assert file.end == len(image)


@pytest.mark.parametrize("fate", Fate)
def test_after_a_power_cut_zeros_are_no_damage(rig: StoreRig, fate: Fate) -> None:
    fill(rig, 7)
    rig.publish((1,), 2)
    rig.start()
    for _ in range(4):
        rig.step("journal")

    rig.crash(lambda disk: disk.power_cut(fate))

    assert len(rig.held) >= 28


@pytest.mark.parametrize("fate", Fate)
@pytest.mark.parametrize("steps", range(5))
def test_a_crash_while_a_journal_begins_is_no_damage(rig: StoreRig, fate: Fate, steps: int) -> None:
    fill(rig, 3)
    rig.checkpointer.request()
    rig.step("read")
    rig.publish((1,), 1)
    rig.start()
    for _ in range(2 + steps):
        rig.step("journal")

    rig.crash(lambda disk: disk.power_cut(fate))


def test_a_header_that_is_torn_in_a_file_with_room_is_no_damage(rig: StoreRig) -> None:
    fill(rig, 3)
    rig.disk.kill()
    torn = rig.folder.journal_path(rig.folder.journal_nos()[-1] + 1)
    with rig.files.create(torn) as file:
        file.append([b"LV" + bytes(HEADER_BYTES + 500)])

    recovered = rig.open()

    assert not recovered.report.is_damage
    assert len(rig.found()) == 12


def test_no_room_to_take_ahead_is_no_reason_to_stop(rig: StoreRig) -> None:
    rig.disk.fail("allocate", OSError(errno.ENOSPC, "full"), times=1 << 30)

    fill(rig, 10)

    assert rig.safe == set(rig.held)
    size, used = lengths(rig)
    assert size == used


def test_room_is_made_of_zeros_that_were_written(rig: StoreRig) -> None:
    fill(rig, 1)
    seen = dict(rig.disk.seen)
    fill(rig, 20)
    rooms, writes = (rig.disk.seen[call] - seen[call] for call in ("allocate", "pwrite"))
    _, used = lengths(rig)

    assert rooms > 1
    assert writes == 20 + rooms
    assert not any(rig.disk.image(last_journal(rig))[used:])


def test_room_that_cannot_be_filled_is_room_all_the_same(rig: StoreRig) -> None:
    fill(rig, 1)
    while (room := lengths(rig))[0] - room[1] > 100:
        fill(rig, 1)
    rig.disk.fail("pwrite", OSError(errno.ENOSPC, "full"), "*.jnl", times=1)
    seen = rig.disk.seen["allocate"]

    fill(rig, 2)

    assert rig.disk.seen["allocate"] > seen
    assert rig.safe == set(rig.held)
    assert not rig.nacked


@pytest.mark.parametrize("call", ["allocate", "pwrite"])
def test_any_other_error_is_final(rig: StoreRig, call: str) -> None:
    fill(rig, 1)
    rig.disk.fail(call, OSError(errno.EIO, "gone"), "*.jnl", times=1)
    while rig.core.error is None:
        fill(rig, 1)

    rig.crash(lambda disk: disk.power_cut(), trusted=rig.core.durable)


def test_a_full_disk_within_the_room_is_met_as_ever(rig: StoreRig) -> None:
    fill(rig, 3)
    rig.publish((1,), 2)
    rig.disk.fail("pwrite", OSError(errno.ENOSPC, "full"), "*.jnl", times=4)  # zeros, too
    rig.run_flush()
    assert len(rig.nacked) == 2

    rig.run()

    assert rig.safe == set(rig.held)
    rig.crash(lambda disk: disk.power_cut())
