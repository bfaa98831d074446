"""Which segments are kept, as tables; the files beside segments and the store.

Tests: msg_store/archive/archive_file.py, msg_store/archive/segment_shares.py
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from leveret.core.system.files import Files
from leveret.msg_store.archive import archive_file
from leveret.msg_store.archive.archive import Archive, Archived, Freed, Position, Retention
from leveret.msg_store.archive.archive_file import ArchiveContents, decode
from leveret.msg_store.archive.segment_shares import (
    SegmentShares,
    Share,
    drop_orphans,
    load_shares,
    save_shares,
    shares_path,
)
from leveret.msg_store.format.folder import StorePaths

UUID = bytes(range(16))
NOW_MS = 10_000
AT = Position(1, 64)
SEGMENTS = {  # number: bytes of queue 1, newest ms
    1: (100, 1_000),
    2: (100, 5_000),
    3: (100, 9_000),
}


def archive_of(retention: Retention, segments: dict[int, tuple[int, int]] | None = None) -> Archive:
    archive = Archive()
    archive.set((1,), "q", retention, AT)
    for file_no, (size_bytes, newest_ms) in (segments or SEGMENTS).items():
        archive.shares[file_no] = SegmentShares(
            queues={1: Share(1, size_bytes, newest_ms, 64 + size_bytes)}
        )
    return archive


@pytest.mark.parametrize(
    ("retention", "kept", "end_ms"),
    [
        (Retention(100_000), {1, 2, 3}, 101_000),
        (Retention(6_000), {2, 3}, 11_000),
        (Retention(5_000), {3}, 14_000),
        (Retention(1_000), set(), None),
        (Retention(None, 1), {3}, None),
        (Retention(None, 100), {3}, None),
        (Retention(None, 101), {2, 3}, None),
        (Retention(None, 1_000), {1, 2, 3}, None),
        (Retention(6_000, 101), {2, 3}, 11_000),
        (Retention(6_000, 1), {3}, 15_000),
        (Retention(5_000, 1_000), {3}, 14_000),
    ],
)
def test_a_segment_is_kept_as_long_as_both_bounds_allow(
    retention: Retention, kept: set[int], end_ms: int | None
) -> None:
    archive = archive_of(retention)

    assert set(archive.kept(SEGMENTS, NOW_MS)) == kept
    assert archive.next_end_ms == end_ms
    assert archive.archived(1, NOW_MS) == Archived(len(kept), 100 * len(kept))


def test_the_oldest_messages_are_freed_first_whatever_the_number_of_their_segment() -> None:
    copy_of_old_messages = {1: (100, 5_000), 2: (100, 9_000), 3: (100, 1_000)}

    kept = archive_of(Retention(None, 150), copy_of_old_messages).kept(SEGMENTS, NOW_MS)

    assert set(kept) == {1, 2}


def test_segments_whose_shares_are_unknown_are_kept() -> None:
    assert 9 in archive_of(Retention(1)).kept([*SEGMENTS, 9], NOW_MS)


def test_segments_without_an_archived_queue_are_not_kept() -> None:
    archive = archive_of(Retention(100_000))
    archive.shares[4] = SegmentShares(queues={2: Share(1, 100, NOW_MS)})

    assert 4 not in archive.kept([*SEGMENTS, 4], NOW_MS)


def test_nothing_is_kept_without_policies() -> None:
    archive = archive_of(Retention(100_000))
    archive.set((1,), "q", None, AT)

    assert not archive
    assert not archive.kept([*SEGMENTS, 9], NOW_MS)


def test_segments_given_up_are_not_kept() -> None:
    archive = archive_of(Retention(100_000))
    archive.give_up([1], 100)

    assert set(archive.kept(SEGMENTS, NOW_MS)) == {2, 3}
    assert archive.given_up_bytes == 100


def test_segments_are_unlinked_when_archive_json_says_so() -> None:
    archive = archive_of(Retention(100_000))
    archive.published = archive.version

    assert not archive.free([1])
    assert archive.queues[1].complete_from == 2
    assert archive.queues[1].freed == Freed(1, 164, 1)
    assert not archive.free([1])
    archive.published = archive.version
    assert archive.free([1])
    assert archive.frees == 1


def test_segments_are_unlinked_although_archive_json_cannot_be_written() -> None:
    archive = archive_of(Retention(100_000))
    archive.is_unwritable = True

    assert archive.free([1, 2])
    assert archive.queues[1].freed == Freed(2, 164, 2)


def test_an_older_segment_does_not_take_back_what_was_freed() -> None:
    archive = archive_of(Retention(100_000))
    archive.free([2])
    archive.free([1])

    assert archive.queues[1].freed == Freed(2, 164, 1)
    assert archive.queues[1].complete_from == 3


def test_segments_wait_until_a_policy_that_was_taken_away_is_told() -> None:
    archive = archive_of(Retention(100_000))
    archive.published = archive.version
    archive.set((1,), "q", None, AT)

    assert not archive.free([1])


def test_a_copy_frees_no_position() -> None:
    archive = archive_of(Retention(100_000))
    archive.published = archive.version
    archive.shares[1].is_copy = True

    assert archive.free([1])
    assert archive.queues[1].complete_from == 1
    assert archive.queues[1].freed is None


def test_an_archive_begins_with_its_first_queue() -> None:
    archive = archive_of(Retention(100_000))
    archive.set((2,), "r", Retention(5), Position(9, 70))

    assert archive.begun == 1
    assert archive.queues[2].since == (9, 70)
    archive.policies_known([])
    assert archive.begun is None


def test_a_queue_is_forgotten_by_the_number_of_any_of_its_priorities() -> None:
    archive = Archive()
    archive.set((4, 5, 6), "q", Retention(1), AT)

    assert archive.row_nos == {4, 5, 6}
    assert archive.forget(5)
    assert not archive.row_nos


def test_everything_is_kept_until_the_policies_are_known() -> None:
    archive = Archive(is_doubtful=True)
    assert set(archive.kept([1, 2], NOW_MS)) == {1, 2}

    assert archive.policies_known([])
    assert not archive.kept([1, 2], NOW_MS)


def test_queues_that_are_gone_are_not_archived_any_more() -> None:
    archive = archive_of(Retention(100_000))
    archive.set((2,), "r", Retention(5), AT)

    archive.policies_known([2, 3])

    assert list(archive.queues) == [2]


@pytest.fixture
def folder(tmp_path: Path) -> StorePaths:
    paths = StorePaths(Files(), tmp_path, UUID)
    paths.files.mkdir(paths.rdq)
    return paths


def contents(*archives: Archive) -> ArchiveContents:
    queues = [queue for archive in archives for queue in archive.queues.values()]
    return ArchiveContents(
        UUID, "/", 3, Position(12, 4096), 4, 2, 7, {10: 8192}, {10: [(64, 90)]}, queues
    )


def test_archive_json_is_read_as_it_was_written() -> None:
    freed = archive_of(Retention(5, None))
    freed.free([1])

    for written in (contents(archive_of(Retention(5, None))), contents(freed)):
        assert decode(written.encoded()) == written


def test_what_a_crash_has_left_is_added_to_archive_json(folder: StorePaths) -> None:
    archive_file.note_crash(folder, {11: 100}, {})
    assert archive_file.read(folder) is None
    folder.files.write_new(folder.path / archive_file.NAME, contents().encoded())

    archive_file.note_crash(folder, {10: 1, 11: 100}, {11: [(70, 80)]})

    found = archive_file.read(folder)
    assert found is not None
    assert found.ends == {10: 8192, 11: 100}
    assert found.torn == {10: [(64, 90)], 11: [(70, 80)]}
    folder.files.write_new(folder.path / archive_file.NAME, b"")
    archive_file.note_crash(folder, {12: 1}, {})
    assert archive_file.load(folder).is_doubtful


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"{}", b'{"format": 3}', contents().encoded().replace(b"4096", b'"x"')],
)
def test_a_damaged_archive_json_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(data)


def test_a_damaged_archive_json_keeps_everything(
    folder: StorePaths, caplog: pytest.LogCaptureFixture
) -> None:
    folder.files.write_new(folder.path / archive_file.NAME, b"")

    assert archive_file.load(folder).kept([7], 0) == {7}
    assert "archive.json is damaged" in caplog.text


def test_the_archive_json_of_another_store_keeps_everything(
    folder: StorePaths, caplog: pytest.LogCaptureFixture
) -> None:
    other = replace(contents(), uuid=bytes(16))
    folder.files.write_new(folder.path / archive_file.NAME, other.encoded())

    assert archive_file.load(folder).kept([7], 0) == {7}
    assert "archive.json belongs to another store" in caplog.text


def test_a_missing_archive_json_keeps_everything_if_it_was_there(
    folder: StorePaths, caplog: pytest.LogCaptureFixture
) -> None:
    assert archive_file.load(folder).kept([7], 0) == set()
    assert archive_file.load(folder, is_expected=True).kept([7], 0) == {7}
    assert "archive.json is missing" in caplog.text


def test_numbers_of_segments_go_on_above_the_last_watermark(folder: StorePaths) -> None:
    folder.files.write_new(folder.path / archive_file.NAME, contents().encoded())

    assert archive_file.load(folder).segment_seen == 12


def test_shares_are_read_as_they_were_saved(folder: StorePaths) -> None:
    shares = SegmentShares(is_copy=True, is_settled=True, queues={7: Share(3, 200, 99, 264)})
    save_shares(folder, 10, shares)
    shares.is_saved = True

    assert load_shares(folder, 10) == shares


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"format": 2, "segment": 11}'])
def test_damaged_shares_are_counted_again(
    folder: StorePaths, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    save_shares(folder, 10, SegmentShares())
    shares_path(folder, 10).write_bytes(data)

    assert load_shares(folder, 10) is None
    assert "shares of a segment are damaged" in caplog.text


def test_shares_of_segments_that_are_gone_are_dropped(folder: StorePaths) -> None:
    folder.files.write_new(folder.rdq_path(10), b"")
    for file_no in (10, 11):
        save_shares(folder, file_no, SegmentShares())

    drop_orphans(folder)

    assert folder.files.names(folder.path / "archive") == ["0000000a.json"]
