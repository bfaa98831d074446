"""Reading a journal file: which bytes are frames, which a torn end, which damage.

Tests: msg_store/format/journal_frames.py, msg_store/wal/journal.py
"""

from __future__ import annotations

import pytest

from leveret.msg_store.format.append_log import Job
from leveret.msg_store.format.file_header import Identity
from leveret.msg_store.format.journal_frames import DurablePosition
from leveret.msg_store.format.journal_records import encode_acks
from leveret.msg_store.recovery.journal_reader import JournalFile
from leveret.msg_store.wal.journal import Journal

UUID = bytes(range(16))
MARK = DurablePosition(1, 1, 64)


def written(job: Job) -> list[bytes]:
    (part,) = job.parts
    return [*([part.header] if part.header else []), b"".join(part.buffers)]


def pieces(count: int, first_lsn: int = 1) -> list[bytes]:
    """A header and so many frames of two records."""
    journal = Journal(Identity(UUID, 1), 1, first_lsn)
    made = []
    for number in range(count):
        records = encode_acks(1, [number, number + 10]) + encode_acks(2, [number])
        made += written(journal.job(records, MARK, 5))
    return made


def read(data: bytes) -> tuple[JournalFile, list[int]]:
    file = JournalFile(data, UUID)
    return file, [frame.first_lsn for frame, _ in file.frames()]


def test_frames_are_read_in_order_up_to_the_end() -> None:
    file, lsns = read(b"".join(pieces(3)))

    assert lsns == [1, 3, 5]
    assert (file.gaps, file.tail, file.next_lsn) == ([], None, 7)


@pytest.mark.parametrize("tail", [b"", bytes(700)])
def test_zeros_behind_the_frames_are_their_end(tail: bytes) -> None:
    file, lsns = read(b"".join(pieces(2)) + tail)

    assert lsns == [1, 3]
    assert (file.gaps, file.tail) == ([], None)


def test_bad_bytes_at_the_end_are_a_tail() -> None:
    data = b"".join(pieces(2))
    file, lsns = read(data + b"LVJ1 and so on")

    assert lsns == [1, 3]
    assert file.gaps == []
    assert (file.tail.offset, file.tail.end) == (len(data), len(data) + 14)


def test_bad_bytes_between_frames_are_a_gap() -> None:
    header, first, second, third = pieces(3)
    file, lsns = read(header + first + b"?" * len(second) + third)

    assert lsns == [1, 5]
    assert [(gap.offset, gap.end) for gap in file.gaps] == [
        (len(header + first), len(header + first + second))
    ]
    assert file.tail is None


def test_a_frame_that_does_not_follow_the_one_before_is_not_taken() -> None:
    header, first, _, third = pieces(3)
    file, lsns = read(header + first + pieces(1, first_lsn=3)[1])

    assert lsns == [1]
    assert "does not follow" in file.tail.reason
    assert read(header + first + third)[1] == [1]


def test_an_old_frame_behind_bad_bytes_is_not_taken() -> None:
    header, first, second = pieces(2)
    file, lsns = read(header + first + second + b"torn" + first)

    assert lsns == [1, 3]
    assert file.gaps == []
    assert file.tail is not None


def test_frames_behind_a_damaged_header_are_read() -> None:
    header, *frames = pieces(2)
    file, lsns = read(b"?" * len(header) + b"".join(frames))

    assert lsns == [1, 3]
    assert [(gap.offset, gap.end) for gap in file.gaps] == [(0, len(header))]
    assert not file.is_foreign


def test_a_file_of_another_store_is_named() -> None:
    file = JournalFile(b"".join(pieces(2)), b"z" * 16)

    assert file.is_foreign


def test_a_record_of_a_newer_version_makes_its_frame_damage_not_an_error() -> None:
    journal = Journal(Identity(UUID, 1), 1, 1)
    data = b"".join(written(journal.job([b"\x0b" + bytes(20)], MARK, 5)))
    after = b"".join(written(journal.job(encode_acks(1, [1]), MARK, 5)))
    file, lsns = read(data + after)

    assert lsns == [2]
    assert "reserved" in file.gaps[0].reason
