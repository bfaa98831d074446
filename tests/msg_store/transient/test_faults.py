"""The transient store on a disk that is full, refuses, or returns other bytes."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator

import pytest

from leveret.core.system.files import Files
from leveret.msg_store.format.seq_range import SeqRange
from leveret.msg_store.transient.reader import _end_of_run
from leveret.msg_store.transient.segment import ROW_BYTES, ROWS, ROWS_AT
from rigs.store.transient_rig import (
    FOLDER,
    HOLE_BYTES,
    LARGE,
    READER,
    SMALL,
    WRITER,
    TransientRig,
    entry,
    full,
    message,
    row,
)

EIO = OSError(errno.EIO, "input/output error")


@pytest.fixture
def rig() -> Iterator[TransientRig]:
    with TransientRig() as rig:
        yield rig
        rig.disk.heal()
        rig.settle()
        rig.check_usage()
        assert rig.failed == []


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_queue_dropped_while_it_is_written_a_second_time_leaves_no_bytes_waiting(
    rig: TransientRig,
) -> None:
    entries = rig.page(1, 0, 1)
    rig.step_to(WRITER, "contents written")
    rig.disk.fail("pwrite", EIO, "*.rdq", times=2)
    rig.store.ack(1, entries[:1])
    rig.run()
    rig.loop.clock.jump(10.0)
    rig.disk.heal()
    rig.step_to(WRITER, "contents written")

    rig.store.drop_queue(1)
    rig.settle()

    assert rig.store.stats().waiting_bytes == 0
    assert rig.store.stats().live == 0


def test_a_full_disk_loses_nothing_and_stops_credit(
    rig: TransientRig, caplog: pytest.LogCaptureFixture
) -> None:
    written = rig.page(1, 0)
    rig.run()
    rig.disk.fail("pwrite", **full(times=3))
    rig.page(1, 1, 2)
    rig.run()

    assert rig.store.page_out(1, [entry(3)]) == 0
    assert rig.read(1, 0, 1, 2) == {n: message(f"m{n}") for n in range(3)}
    for _ in range(2):
        rig.loop.clock.jump(1.0)
        rig.run()
        assert rig.credited == []
        assert rig.store.page_out(1, [entry(3)]) == 0

    rig.loop.clock.jump(1.0)
    rig.run()
    assert rig.credited == [1]
    assert rig.store.contents(1, [1, 2]) == [None, None]
    assert rig.rows(1) == [row(each) for each in (*written, entry(1), entry(2))]
    assert warnings_of(caplog) == [
        "transients cannot be written and stay in memory: [Errno 28] full"
    ]


def test_a_segment_that_cannot_be_unlinked_goes_with_the_next_job(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with TransientRig(limits=SMALL) as rig:
        entries = []
        for n in range(15):
            entries += rig.page(1, n, size=100)
            rig.run()
        before = rig.store.stats()
        assert before.segments > 1
        rig.disk.fail("unlink", EIO, "*.rdq", times=100)
        rig.store.ack(1, entries)
        rig.settle()
        assert rig.store.stats().disk_bytes == before.disk_bytes

        rig.disk.heal()
        rig.page(1, 20)
        rig.settle()

        assert rig.store.stats().segments < before.segments
        assert len(rig.files.names(FOLDER)) == rig.store.stats().segments
        rig.check_usage()
    assert len(warnings_of(caplog)) == 1


def test_a_disk_that_is_full_takes_acks_and_they_make_room() -> None:
    with TransientRig(limits=SMALL, disk_bytes=2 * HOLE_BYTES + 5_000) as rig:
        first = [each for n in range(20) for each in rig.page(1, n, size=100)]
        rig.run()
        rig.page(2, *range(15), size=100)
        rig.run()
        assert rig.store.stats().waiting_bytes == 1_500

        rig.store.ack(1, first)
        rig.settle()

        assert rig.store.stats().waiting_bytes == 0
        assert rig.read(2, *range(15)) == {n: message(f"m{n}", 100) for n in range(15)}
        rig.check_usage()


def test_the_last_of_a_disk_is_left_for_others() -> None:
    limits = LARGE._replace(room_bytes=2_000)
    with TransientRig(limits=limits, disk_bytes=HOLE_BYTES + 6_000) as rig:
        for seq in range(60):
            rig.page(1, seq, size=100)
            rig.run()
        assert rig.store.stats().waiting_bytes > 0
        assert 1_500 < rig.memory.free_bytes(FOLDER) < 2_000


def test_contents_that_are_acked_as_they_are_tried_again_end_it(rig: TransientRig) -> None:
    rig.disk.fail("pwrite", **full())
    entries = rig.page(1, 1)
    rig.run()
    rig.loop.clock.jump(1.0)
    rig.store.ack(1, entries)
    assert rig.store.page_out(2, [entry(1)]) == 0
    rig.run()

    assert rig.credited == [2]


def test_contents_that_are_acked_while_the_disk_is_full_end_it(rig: TransientRig) -> None:
    rig.disk.fail("pwrite", **full(times=100))
    entries = rig.page(1, 1, 2)
    rig.run()
    assert rig.store.page_out(1, [entry(3)]) == 0
    rig.store.ack(1, entries)
    rig.disk.heal()
    rig.settle()

    assert rig.credited == [1]
    assert rig.store.page_out(1, [entry(3)]) == 1


@pytest.mark.parametrize("point", ["open", "pwrite"])
@pytest.mark.parametrize("error", [EIO, OSError(errno.ENOSPC, "full")])
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_write_that_fails_is_done_again(
    rig: TransientRig, point: str, error: OSError, after: int
) -> None:
    rig.page(1, 0)
    rig.run()
    rig.disk.short_writes = 0.5
    rig.disk.fail(point, error, "*.rdq", after=after)
    rig.disk.fail("pwrite", OSError(errno.EIO, "gone"), "*.rdq", after=6)
    for seq in range(1, 6):
        rig.page(1, seq, size=300)
        rig.run()
    rig.disk.heal()
    rig.settle()

    assert rig.read(1, *range(6)).keys() == set(range(6))
    assert rig.store.stats().waiting_bytes == 0


def test_what_failed_attempts_have_left_is_written_over(rig: TransientRig) -> None:
    rig.page(1, 0, 1)
    rig.settle()
    rig.disk.fail("pwrite", **full(times=3), after=1)
    rig.page(1, 3)
    disk_bytes = rig.store.stats().disk_bytes
    rig.settle()
    rig.settle()

    assert rig.store.stats().disk_bytes <= disk_bytes + 200
    assert [each[0] for each in rig.rows(1)] == [0, 1, 3]
    (name,) = rig.rdq_names()
    size_bytes = len(rig.disk.image(FOLDER / name)) - HOLE_BYTES
    assert size_bytes < rig.store.stats().disk_bytes


def test_after_an_error_of_the_disk_another_file_is_begun(rig: TransientRig) -> None:
    rig.page(1, 0, 1)
    rig.settle()
    rig.disk.fail("pwrite", EIO, "00000001.rdq", times=100)
    rig.page(1, 3)
    rig.settle()

    assert rig.rdq_names() == ["00000001.rdq", "00000002.rdq"]
    assert rig.read(1, 0, 1, 3).keys() == {0, 1, 3}


@pytest.mark.parametrize("said", ["ack", "range", "drop"])
def test_what_goes_while_its_write_fails_is_never_written(rig: TransientRig, said: str) -> None:
    rig.run()
    entries = rig.page(1, 1, 2, 3)
    rig.step_to(WRITER, "contents written")
    rig.disk.fail("pwrite", EIO, "*.rdq")
    if said == "ack":
        rig.store.ack(1, entries[:2])
    elif said == "range":
        rig.store.ack_range(1, SeqRange(0, 3))
    else:
        rig.store.drop_queue(1)
    rig.settle()

    left = [3] if said != "drop" else []
    assert [each[0] for each in rig.rows(1)] == left
    assert rig.store.stats().live == len(left)
    assert rig.store.stats().waiting_bytes == 0


# Reading.


def damage(rig: TransientRig, text: bytes) -> None:
    """Change the body that begins with the text, wherever it lies."""
    for name in rig.rdq_names():

        def change(image: bytearray) -> None:
            at = image.find(text + b"..")
            if at >= 0:
                image[at] ^= 1

        rig.disk.damage(FOLDER / name, change)


def test_a_damaged_content_is_lost_alone_and_said_once(
    rig: TransientRig, caplog: pytest.LogCaptureFixture
) -> None:
    entries = rig.page(1, *range(5))
    rig.settle()
    damage(rig, b"m2")
    damage(rig, b"m3")

    assert rig.read(1, *range(5)).keys() == {0, 1, 4}
    assert rig.lost == [(1, [2, 3])]
    assert rig.read(1, 2) == {}
    assert warnings_of(caplog) == ["transients of a queue are lost queue_no=1 count=2"]
    assert len(rig.rows(1)) == 5  # they are the owner's to ack
    rig.store.ack(1, entries)
    rig.settle()
    assert rig.rows(1) == []


def test_a_segment_that_is_gone_is_lost(rig: TransientRig) -> None:
    rig.page(1, 1)
    rig.run()
    rig.disk.unlink(FOLDER / rig.rdq_names()[0])

    assert rig.read(1, 1) == {}
    assert rig.lost == [(1, [1])]
    rig.store.drop_queue(1)


def test_a_content_of_another_message_is_not_taken_for_the_own(rig: TransientRig) -> None:
    rig.page(1, 5)
    rig.page(2, 5)
    rig.settle()

    def swap(image: bytearray) -> None:
        first, second = ROWS_AT + ROW_BYTES - 8, ROWS_AT + 2 * ROW_BYTES - 8
        image[first : first + 8], image[second : second + 8] = (
            image[second : second + 8],
            image[first : first + 8],
        )

    rig.disk.damage(FOLDER / rig.rdq_names()[0], swap)

    assert rig.read(1, 5) == {}
    assert rig.lost == [(1, [5])]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.EIO])
@pytest.mark.parametrize(
    ("point", "after"), [("open", 0), ("pread", 0), ("pread", 1), ("pread", 2)]
)
def test_an_error_that_passes_loses_nothing(
    rig: TransientRig, number: int, point: str, after: int
) -> None:
    """The first bytes read are the header, then come the row and the content."""
    rig.page(1, 1)
    rig.run()
    rig.disk.fail(point, OSError(number, "injected"), "*.rdq", times=3, after=after)
    answers = rig.ask(1, 1)
    rig.settle()

    assert answers == [{1: message("m1")}]
    assert rig.lost == []


def test_rows_of_two_files_are_not_read_together() -> None:
    last = 2 * ROWS - 1
    assert _end_of_run([last, last + 1], 0) == 1
    assert _end_of_run([last - 9, last, last + 1], 0) == 1
    assert _end_of_run([last - 1, last], 0) == 2


def test_what_is_acked_while_it_cannot_be_read_is_not_lost(rig: TransientRig) -> None:
    entries = rig.page(1, 1, 2)
    rig.run()
    rig.disk.fail("pread", OSError(errno.ENODATA, "no medium"), "*.rdq", times=100)
    answers = rig.ask(1, 1, 2)
    rig.step_to(READER, "contents read")
    rig.store.ack(1, entries[:1])
    rig.run()

    assert rig.lost == [(1, [2])]
    assert answers == [{}]


def test_descriptors_are_bounded_and_given_back() -> None:
    with TransientRig(limits=SMALL) as rig:
        for seq in range(60):
            rig.page(1, seq, size=600)
            rig.run()
        rig.read(1, *range(60))
        assert len(rig.disk.open_files) <= 33
        rig.store.drop_queue(1)
        rig.settle()
        assert len(rig.disk.open_files) <= 2  # the one in use
    assert rig.disk.open_files == []


def test_a_damaged_record_keeps_its_segment_from_being_collected_and_no_more() -> None:
    with TransientRig(limits=SMALL) as rig:
        kept = rig.page(1, *range(4), size=30)
        rig.run()
        damage(rig, b"m1")
        for seq in range(30):
            filler = rig.page(2, seq, size=500)
            rig.run()
            rig.store.ack(2, filler)
        rig.settle()

        assert "00000001.rdq" in rig.rdq_names()
        assert rig.read(1, *range(4)).keys() == {0, 2, 3}
        rig.store.ack(1, kept)
        rig.settle()
        assert "00000001.rdq" not in rig.rdq_names()
        rig.check_usage()


# Rows.


def damage_rows(rig: TransientRig) -> None:
    """Change all rows that have been written."""
    rig.store._writer.close()  # it goes on in the file as it is then
    for name in rig.rdq_names():

        def change(image: bytearray) -> None:
            image[ROWS_AT:HOLE_BYTES] = b"\xff" * (HOLE_BYTES - ROWS_AT)

        rig.disk.damage(FOLDER / name, change)


def test_rows_that_are_damaged_take_what_the_queue_has_on_disk_and_nothing_else(
    rig: TransientRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.page(1, 0, 1)
    rig.page(2, 0)
    rig.settle()
    damage_rows(rig)
    rig.page(1, 2, 3)
    answers = rig.ask_rows(1)
    rig.settle()

    assert rig.lost == [(1, None)]
    assert answers == [[row(entry(2)), row(entry(3))]]
    assert rig.rows(1) == answers[0]
    assert rig.read(1, 0, 1, 2, 3) == {2: message("m2"), 3: message("m3")}
    assert warnings_of(caplog) == ['transients of a queue are lost queue_no=1 count="all on disk"']


def test_a_queue_that_loses_its_rows_while_contents_are_written_keeps_them(
    rig: TransientRig,
) -> None:
    rig.page(1, 0)
    rig.settle()
    damage_rows(rig)
    rig.page(1, 1)
    answers = rig.ask_rows(1)
    rig.step_to(WRITER, "contents written")
    rig.step_to(READER, "end")
    rig.turn()
    assert rig.lost == [(1, None)]
    rig.settle()

    assert answers == [[row(entry(1))]]
    assert rig.read(1, 0, 1) == {1: message("m1")}


def test_rows_acked_while_they_cannot_be_read_are_not_lost(rig: TransientRig) -> None:
    entries = rig.page(1, 1, 2)
    rig.run()
    damage_rows(rig)
    answers = rig.ask_rows(1)
    rig.step_to(READER, "rows read")
    rig.store.ack(1, entries)
    rig.run()

    assert rig.lost == []
    assert answers == [[]]


def test_a_folder_that_cannot_be_wiped_is_wiped_later(caplog: pytest.LogCaptureFixture) -> None:
    def left_over(files: Files) -> None:
        files.mkdir(FOLDER)
        files.create(FOLDER / "00000001.rdq").close()

    with TransientRig(left_over=left_over) as rig:
        rig.disk.fail("unlink", OSError(errno.EACCES, "not yours"), times=100)
        rig.page(1, 1)
        rig.settle()
        assert rig.store.page_out(1, [entry(2)]) == 0
        assert rig.read(1, 1) == {1: message("m1")}

        rig.disk.heal()
        rig.settle()

        assert rig.store.contents(1, [1]) == [None]
        assert rig.read(1, 1) == {1: message("m1")}
        assert rig.credited == [1]
    assert len(warnings_of(caplog)) == 1


# Bugs.


def test_a_bug_in_the_writer_is_the_owners_to_see() -> None:
    with TransientRig() as rig:
        rig.disk.fail("pwrite", ZeroDivisionError("a bug"), "*.rdq", times=100)
        rig.page(1, 1)
        rig.run()

        assert [str(each) for each in rig.failed] == ["a bug"]
        assert rig.store.page_out(1, [entry(2)]) == 0
        assert rig.store.contents(1, [1]) == [message("m1")]


def test_a_bug_in_the_reader_is_the_owners_to_see() -> None:
    with TransientRig() as rig:
        rig.page(1, 1)
        rig.run()
        rig.disk.fail("pread", ZeroDivisionError("a bug"), "*.rdq", times=100)
        rig.ask(1, 1)
        rig.run()

        assert [str(each) for each in rig.failed] == ["a bug"]


def test_closing_with_work_on_its_way_calls_nobody() -> None:
    with TransientRig() as rig:
        rig.page(1, 1)
        rig.run()
        asked = [*rig.ask_rows(1), *rig.ask(1, 1)]
        rig.page(1, 2)
        rig.turn()
        rig.store.close()
        rig.turn()
        rig.loop.clock.jump(10.0)
        rig.turn()

        assert asked == []
        assert rig.failed == []
