"""Contents read back: each comes once, unchanged, in few reads; damaged contents are reported as lost.

Tests: msg_store/reading/read_cache.py, msg_store/reading/segments.py
"""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import pytest

from leveret.core.limits import DESCRIPTORS_OF_SEGMENTS, LARGE_BODY_BYTES
from leveret.core.message import BODY, HEAD, LOST, ORIGIN, Message
from leveret.core.system.shortage import ShortageLog
from leveret.msg_store.format.rows import Location
from leveret.msg_store.memtable.read_view import ReadView
from leveret.msg_store.reading import contents as content_reader
from leveret.msg_store.reading import segments
from leveret.msg_store.reading.contents import TRIES_MAX, ContentReader
from leveret.msg_store.reading.read_cache import ReadCache, transient_keys
from leveret.msg_store.reading.segments import SegmentReader
from rigs.store.step_loop import StepLoop
from rigs.store.store_rig import StoreRig, message


class Reading:
    """A reader over the rig's store; places are the rig's, or what a test says."""

    def __init__(self, rng: random.Random, room_bytes: int = 1 << 30, **rig: int) -> None:
        self.rig = StoreRig(rng, **rig)
        self.loop = StepLoop(rng)
        self.files = SegmentReader(self.rig.folder)
        self.read_cache = ReadCache(room_bytes)
        self.index: dict[int, Location] = {}
        self.in_ram: dict[int, Message] = {}
        self.moved: dict[int, Location] = {}
        self.learnt: dict[int, Location] = {}
        self.reader = ContentReader(
            self,
            self,
            self.files,
            self,
            self.loop.line(),
            self.loop,
            self.read_cache,
            ShortageLog("reading messages", "store"),
        )
        self.told = 0

    @property
    def has_residents(self) -> bool:
        return bool(self.in_ram)

    def resident(self, msg_no: int) -> Message | None:
        return self.in_ram.get(msg_no)

    def places(self, msg_nos: Sequence[int]) -> list[Location | None]:
        return [self.locate(msg_no) for msg_no in msg_nos]

    def locate(self, msg_no: int) -> Location | None:
        return None if msg_no in self.index else self.place(msg_no)

    def read_view(self) -> ReadView:
        return self.rig.core.memtables.read_view()

    def learn(self, read_view: ReadView, found: Mapping[int, Location]) -> None:
        self.learnt.update(found)

    def place(self, msg_no: int) -> Location:
        found = self.rig.core.memtables.location(msg_no)
        assert found is not None
        return found

    def locations(self, msg_nos: Sequence[int]) -> dict[int, Location]:
        return {no: self.index[no] for no in msg_nos if no in self.index}

    def waiter(self) -> None:
        self.told += 1

    def write(self, count: int, size: int = 20) -> list[int]:
        msg_nos = self.rig.publish((1,), count, size)
        self.rig.run()
        return msg_nos

    def prefetch(self, msg_nos: list[int]) -> None:
        self.reader.prefetch([(no, len(self.rig.bodies[no])) for no in msg_nos], self.waiter)

    def take(self, msg_nos: list[int]) -> list[Message | None]:
        found = self.reader.cached(msg_nos)
        self.read_cache.drop(msg_nos)
        return found

    def bodies(self, msg_nos: list[int]) -> list[bytes | None]:
        return [each and each[BODY] for each in self.take(msg_nos)]

    def read(self, msg_nos: list[int]) -> list[bytes | None]:
        self.prefetch(msg_nos)
        self.loop.run()
        return self.bodies(msg_nos)


@pytest.fixture
def reading(rng: random.Random) -> Reading:
    return Reading(rng)


def test_what_was_written_comes_back_as_it_was(rng: random.Random) -> None:
    reading = Reading(rng, rdq_file_bytes=700)
    msg_nos = reading.write(50)
    wanted = rng.sample(msg_nos, 30)

    reading.prefetch(wanted)
    assert reading.take(wanted) == [None] * 30
    reading.loop.run()

    got = reading.take(wanted)
    assert [each[BODY] for each in got if each] == [reading.rig.bodies[no] for no in wanted]
    assert got[0] is not None
    assert got[0][ORIGIN : HEAD + 1] == (b"\x01x\x01m", b"head")
    assert not reading.read_cache.contents
    assert reading.read_cache.size_bytes == 0


def test_all_that_is_asked_for_in_one_turn_is_one_batch_of_few_reads(reading: Reading) -> None:
    msg_nos = reading.write(200)
    before = reading.rig.disk.seen.get("pread", 0)

    for no in msg_nos:
        reading.prefetch([no])
    reading.loop.run()

    assert reading.told == 1
    assert reading.rig.disk.seen["pread"] - before == 2  # the header, and all records


def test_records_that_lie_far_apart_are_read_one_by_one(reading: Reading) -> None:
    msg_nos = reading.write(9, 40_000)
    before = reading.rig.disk.seen.get("pread", 0)

    assert None not in reading.read(msg_nos[::4])
    assert reading.rig.disk.seen["pread"] - before == 1 + 3


def test_the_body_of_a_large_message_is_read_and_not_copied(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    msg_nos = reading.write(3, LARGE_BODY_BYTES)
    parts: list[bytes] = []
    pread = reading.rig.disk.pread

    def kept(descriptor: int, count: int, offset: int) -> bytes:
        parts.append(pread(descriptor, count, offset))
        return parts[-1]

    monkeypatch.setattr(reading.rig.disk, "pread", kept)
    got = reading.read(msg_nos)

    assert got == [reading.rig.bodies[no] for no in msg_nos]
    assert all(any(body is part for part in parts) for body in got)


def test_messages_of_one_publisher_share_origin_and_head(reading: Reading) -> None:
    msg_nos = reading.write(10)
    reading.prefetch(msg_nos)
    reading.loop.run()

    for one, next_one in pairwise(reading.take(msg_nos)):
        assert one is not None
        assert next_one is not None
        assert one[ORIGIN] is next_one[ORIGIN]
        assert one[HEAD] is next_one[HEAD]


def test_short_reads_and_interrupted_calls_are_gone_on_with(reading: Reading) -> None:
    msg_nos = reading.write(60)
    reading.rig.disk.short_writes = reading.rig.disk.interrupts = 0.4

    assert None not in reading.read(msg_nos)


def test_what_only_the_index_knows_is_looked_up_by_the_thread(reading: Reading) -> None:
    msg_nos = reading.write(20)
    reading.index = {no: reading.place(no) for no in msg_nos[::2]}

    assert reading.read(msg_nos) == [reading.rig.bodies[no] for no in msg_nos]


def test_what_is_in_ram_is_not_read(reading: Reading) -> None:
    first = reading.rig.write((1,), 2)
    reading.in_ram = {no: message(f"ram{no}") for no in first}
    before = dict(reading.rig.disk.seen)

    reading.prefetch(first)
    reading.loop.run()

    assert reading.bodies(first) == [reading.in_ram[no][BODY] for no in first]
    assert reading.told == 0
    assert reading.rig.disk.seen == before


def test_many_segments_do_not_need_many_descriptors(rng: random.Random) -> None:
    reading = Reading(rng, rdq_file_bytes=100)
    msg_nos = reading.write(DESCRIPTORS_OF_SEGMENTS * 3)
    others = len(reading.rig.disk.open_files)

    assert None not in reading.read(msg_nos)
    assert len(reading.rig.disk.open_files) - others == DESCRIPTORS_OF_SEGMENTS
    reading.files.close()
    assert len(reading.rig.disk.open_files) == others


def test_a_removed_segment_is_let_go(reading: Reading) -> None:
    msg_nos = reading.write(3)
    reading.read(msg_nos)
    before = len(reading.rig.disk.open_files)

    reading.reader.segments_removed([reading.place(msg_nos[0])[0]])
    reading.loop.run()

    assert len(reading.rig.disk.open_files) == before - 1


def test_two_who_wait_for_the_same_are_both_told(reading: Reading) -> None:
    msg_nos = reading.write(2)
    others: list[str] = []
    other = lambda: others.append("told")  # noqa: E731
    reading.prefetch(msg_nos)
    reading.prefetch(msg_nos)
    reading.reader.prefetch([(msg_nos[0], 1)], other)
    reading.reader.prefetch([(msg_nos[0], 1)], other)

    reading.loop.run()

    assert (reading.told, others) == (1, ["told"])


def test_contents_in_ram_are_bounded_and_the_oldest_go_first(rng: random.Random) -> None:
    reading = Reading(rng, room_bytes=40_000)
    msg_nos = reading.write(20, 4_000)
    for no in msg_nos:
        reading.prefetch([no])
        reading.loop.run()

    assert reading.read_cache.size_bytes <= 40_000
    left = list(reading.read_cache.contents)
    assert left == msg_nos[-len(left) :]
    assert reading.bodies(msg_nos[:1]) == [None]
    assert None not in reading.read(msg_nos[:1])


def test_a_message_that_is_more_than_the_room_is_read_all_the_same(rng: random.Random) -> None:
    reading = Reading(rng, room_bytes=100)
    msg_nos = reading.write(2, 5_000)

    assert reading.read(msg_nos[:1]) == [reading.rig.bodies[msg_nos[0]]]
    assert reading.read(msg_nos) == [reading.rig.bodies[no] for no in msg_nos]


def test_much_at_once_goes_to_the_thread_in_batches(reading: Reading) -> None:
    msg_nos = reading.write(content_reader.BATCH_COUNT * 5, 1)

    assert None not in reading.read(msg_nos)
    assert reading.told == 5
    assert reading.reader.is_idle


# Damage.

PARTS = {"crc": 0, "length": 4, "number": 8, "meta": 40, "body": -1}


@pytest.mark.parametrize("size", [20, LARGE_BODY_BYTES])
@pytest.mark.parametrize("part", PARTS)
def test_a_flipped_byte_costs_only_the_message_it_is_in(
    part: str, size: int, reading: Reading
) -> None:
    msg_nos = reading.write(5, size)
    file_no, offset, length, _, _ = reading.place(msg_nos[2])
    at = offset + PARTS[part] % length

    def flip(image: bytearray) -> None:
        image[at] ^= 0x40

    reading.rig.disk.damage(reading.rig.folder.rdq_path(file_no), flip)
    got = reading.read(msg_nos)

    assert got[2] == LOST[BODY]
    assert reading.take([msg_nos[2]]) == [LOST]
    assert got[:2] + got[3:] == [reading.rig.bodies[no] for no in msg_nos if no != msg_nos[2]]
    assert f"{file_no:08x}" in reading.reader.count_lost(msg_nos[2])
    reading.reader.count_lost(msg_nos[2])
    reading.loop.run()
    kept = reading.rig.files.names(reading.rig.folder.quarantine)
    assert kept == [f"{file_no:08x}.rdq-{offset:x}-{length:x}.bin"]
    assert reading.reader.losses == 1


def test_without_its_segment_a_message_is_lost_and_others_are_not(rng: random.Random) -> None:
    reading = Reading(rng, rdq_file_bytes=100)
    msg_nos = reading.write(9)
    gone = reading.place(msg_nos[4])[0]
    reading.rig.files.unlink(reading.rig.folder.rdq_path(gone))

    got = reading.read(msg_nos)

    for no, body in zip(msg_nos, got, strict=True):
        expected = LOST[BODY] if reading.place(no)[0] == gone else reading.rig.bodies[no]
        assert body == expected
    assert reading.rig.files.names(reading.rig.folder.quarantine) == []
    assert reading.told >= 1


def test_a_lost_message_is_not_asked_for_again(reading: Reading) -> None:
    msg_nos = reading.write(1)
    file_no = reading.place(msg_nos[0])[0]
    reading.rig.files.unlink(reading.rig.folder.rdq_path(file_no))
    reading.read(msg_nos)
    before = dict(reading.rig.disk.seen)

    assert reading.read(msg_nos) == [LOST[BODY]]
    assert reading.rig.disk.seen == before


def test_another_message_at_the_place_is_damage(reading: Reading) -> None:
    one, other = reading.write(2)
    place = reading.place(other)
    reading.locate = lambda msg_no: place  # type: ignore[method-assign]

    assert reading.read([one]) == [LOST[BODY]]
    assert f"message {other:#x} lies where {one:#x} should" in reading.reader.count_lost(one)


@pytest.mark.parametrize("good_at", range(1, TRIES_MAX + 3))
def test_a_place_that_fails_is_looked_up_anew(good_at: int, reading: Reading) -> None:
    """The collector moved it: the answer is good at the n-th look-up; the last follows a search in another segment."""
    (msg_no,) = reading.write(1)
    good = reading.place(msg_no)
    places = [(99, 64, 60, 20, 1)] * (good_at - 1) + [good] * 9
    reading.locate = lambda msg_no: places.pop(0)  # type: ignore[method-assign]

    got = reading.read([msg_no])

    expected = reading.rig.bodies[msg_no] if good_at <= TRIES_MAX + 1 else LOST[BODY]
    assert got == [expected]


CHANGED_PLACES: Mapping[str, Callable[[Location], Location]] = {
    "offset": lambda at: (at[0], at[1] ^ 8, *at[2:]),
    "length": lambda at: (*at[:2], at[2] ^ 64, *at[3:]),
    "segment that is not there": lambda at: (at[0] ^ 1 << 30, *at[1:]),
    "another segment": lambda at: (at[0] ^ 1, *at[1:]),
}


@pytest.mark.parametrize("part", CHANGED_PLACES)
def test_a_message_is_found_although_a_bit_of_its_place_has_changed(
    part: str, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    reading = Reading(rng, rdq_file_bytes=700)
    msg_nos = reading.write(30)
    changed = msg_nos[17]
    good = reading.place(changed)
    reading.index = {no: reading.place(no) for no in msg_nos}
    reading.index[changed] = CHANGED_PLACES[part](good)

    def places(msg_nos: Sequence[int]) -> list[Location | None]:
        return [reading.learnt.get(no) for no in msg_nos]

    reading.places = places  # type: ignore[method-assign]

    assert reading.read(msg_nos) == [reading.rig.bodies[no] for no in msg_nos]
    assert reading.learnt[changed] == good
    assert reading.reader.losses == 0
    assert caplog.messages == [
        f"message is not where the index says message={changed:x} segment={good[0]:08x} offset={good[1]}"
    ]


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_message_at_the_right_place_is_not_searched_for(
    is_gone: bool, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is damaged, or its segment has gone: to search segments for each of thousands would take hours."""
    msg_nos = reading.write(3)
    reading.index = {no: reading.place(no) for no in msg_nos}
    file_no, offset, length, *_ = reading.place(msg_nos[1])
    path = reading.rig.folder.rdq_path(file_no)
    if is_gone:
        reading.rig.files.unlink(path)
    else:
        at = offset + length - 1
        reading.rig.disk.damage(path, lambda image: image.__setitem__(at, image[at] ^ 1))
    monkeypatch.setattr(segments, "search", None)

    assert reading.read(msg_nos)[1] == LOST[BODY]


@pytest.mark.parametrize("error", [FileNotFoundError(), OSError(errno.EIO, "bad sector")])
def test_a_search_that_the_disk_refuses_is_done_again(reading: Reading, error: OSError) -> None:
    msg_no, other = reading.write(2)
    good = reading.place(msg_no)
    reading.index |= {msg_no: (99, *good[1:]), other: reading.place(other)}
    reading.places = lambda msg_nos: [reading.learnt.get(no) for no in msg_nos]  # type: ignore[method-assign]
    reading.rig.disk.fail("open", error, f"{good[0]:08x}.rdq", times=2)

    reading.prefetch([msg_no])
    reading.loop.run(jumps=5)

    assert reading.bodies([msg_no]) == [reading.rig.bodies[msg_no]]
    assert reading.reader.losses == 0


def test_what_is_pending_again_by_the_time_its_read_fails_is_not_lost(reading: Reading) -> None:
    (msg_no,) = reading.write(1)
    reading.locate = lambda msg_no: (99, 64, 60, 20, 1)  # type: ignore[method-assign]
    reading.prefetch([msg_no])
    reading.loop.turn()
    reading.in_ram[msg_no] = message("again")

    reading.loop.run()

    assert reading.bodies([msg_no]) == [message("again")[BODY]]
    assert reading.told == 1
    assert reading.reader.losses == 0


def test_too_few_descriptors_are_no_damage(reading: Reading) -> None:
    msg_nos = reading.write(3)
    reading.rig.disk.fail("open", OSError(errno.EMFILE, "too many"), "*.rdq", times=5)

    reading.prefetch(msg_nos)
    reading.loop.run(jumps=3)
    assert reading.bodies(msg_nos) == [None] * 3
    reading.loop.run(jumps=5)

    assert reading.bodies(msg_nos) == [reading.rig.bodies[no] for no in msg_nos]
    assert reading.reader.losses == 0


@pytest.mark.parametrize("error", [OSError(errno.EIO, "bad sector"), MemoryError()])
def test_a_disk_that_refuses_is_no_damage_and_logged_once(
    reading: Reading, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    caplog.set_level(logging.INFO)
    msg_nos = reading.write(3)
    reading.rig.disk.fail("pread", error, "*.rdq", times=99)

    reading.prefetch(msg_nos)
    reading.loop.run(jumps=10)
    assert reading.bodies(msg_nos) == [None] * 3
    reading.rig.disk.heal()
    reading.loop.run(jumps=2)

    assert reading.bodies(msg_nos) == [reading.rig.bodies[no] for no in msg_nos]
    assert reading.reader.losses == 0
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert 'store short of a resource, tries again part="reading messages"' in caplog.messages[0]


def test_a_damaged_sector_holds_up_no_message_beside_it(reading: Reading) -> None:
    msg_nos = reading.write(3)
    reading.rig.disk.fail("pread", OSError(errno.EIO, "bad sector"), "*.rdq", times=2)

    reading.prefetch(msg_nos)
    reading.loop.run(jumps=0)

    bodies = [reading.rig.bodies[no] for no in msg_nos]
    assert reading.bodies(msg_nos) == [None, *bodies[1:]]
    reading.loop.run(jumps=2)
    assert reading.bodies(msg_nos[:1]) == bodies[:1]


def test_quarantine_on_a_full_disk_is_left_out(reading: Reading, caplog: object) -> None:
    msg_nos = reading.write(1)
    file_no, offset, *_ = reading.place(msg_nos[0])
    path = reading.rig.folder.rdq_path(file_no)
    reading.rig.disk.damage(path, lambda image: image.__setitem__(offset, image[offset] ^ 1))
    reading.rig.disk.fail("writev", OSError(errno.ENOSPC, "full"), "*.tmp", times=99)

    assert reading.read(msg_nos) == [LOST[BODY]]
    reading.loop.run()


def test_transient_keys_are_no_numbers_of_messages() -> None:
    keys = {
        key for queue_no in (0, 1, 7) for key in transient_keys(queue_no, (0, 1, (1 << 64) - 1))
    }

    assert len(keys) == 9
    assert max(keys) < 0
