"""Orphans: listed, due after a while; and folders that are removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.broker.node import orphans
from leveret.core.system.files import Files

FILES = Files()
KEPT = 1000


def due(folder: Path, found: list[int], now_ms: int, leaving: tuple[int, ...] = ()) -> list[int]:
    return orphans.due(FILES, folder, found, leaving, now_ms, KEPT)


def test_what_is_seen_for_long_enough_is_due(tmp_path: Path) -> None:
    assert due(tmp_path, [5], 10_000) == []
    assert due(tmp_path, [5, 7], 10_500) == []
    assert due(tmp_path, [5, 7], 11_000) == [5]
    assert due(tmp_path, [5, 7], 11_500) == [5, 7]


def test_what_was_not_there_meanwhile_is_seen_anew(tmp_path: Path) -> None:
    due(tmp_path, [5], 10_000)
    due(tmp_path, [], 10_500)

    assert not (tmp_path / orphans.LIST).exists()
    assert due(tmp_path, [5], 11_500) == []


def test_nothing_is_written_where_nothing_is_found(tmp_path: Path) -> None:
    assert due(tmp_path, [], 10_000) == []

    assert list(tmp_path.iterdir()) == []


def test_a_deletion_that_the_end_of_the_broker_cut_off_is_due_at_once(tmp_path: Path) -> None:
    assert due(tmp_path, [5], 10_000, leaving=(7,)) == []
    assert due(tmp_path, [5, 7], 10_100) == [7]
    assert due(tmp_path, [5], 10_200, leaving=(7,)) == []
    assert due(tmp_path, [], 10_300) == []
    assert not (tmp_path / orphans.LIST).exists()


def test_a_clock_that_went_back_does_not_keep_them_for_longer(tmp_path: Path) -> None:
    due(tmp_path, [5], 86_400_000)
    due(tmp_path, [5], 0)

    assert due(tmp_path, [5], 1000) == [5]


@pytest.mark.parametrize("text", ["", "[]", '{"5": null}', "{"])
def test_a_list_that_cannot_be_read_is_begun_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / orphans.LIST).write_text(text)

    assert due(tmp_path, [5], 10_000) == []
    assert due(tmp_path, [5], 11_000) == [5]


def test_folders_of_no_vhost_are_due_later_and_half_removed_ones_at_once(tmp_path: Path) -> None:
    for name in ("claimed", "orphan", "other-1.deleted"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()

    def due_folders(now_ms: int) -> list[str]:
        found = orphans.due_folders(FILES, tmp_path, {"claimed"}, now_ms, KEPT)
        return [folder.name for folder in found]

    assert due_folders(10_000) == ["other-1.deleted"]
    assert due_folders(11_000) == ["orphan", "other-1.deleted"]
    assert list((tmp_path / "claimed").iterdir()) == []
    assert orphans.due_folders(FILES, tmp_path / "none", {}, 0) == []


def test_a_removal_that_is_cut_off_leaves_a_folder_that_no_vhost_opens(tmp_path: Path) -> None:
    folder = tmp_path / "v"
    (folder / "rdq").mkdir(parents=True)
    (folder / "rdq" / "1.rdq").touch()
    (folder / "FORMAT").touch()

    path = orphans.set_aside(FILES, folder, 0x10)
    orphans.remove(path, is_ending=lambda: True)
    assert [each.name for each in tmp_path.iterdir()] == ["v-10.deleted"]
    assert orphans.set_aside(FILES, path, 0x20) == path
    orphans.remove(path)
    orphans.remove(path)

    assert list(tmp_path.iterdir()) == []
