"""What the check of a store at rest finds: each damage is named, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest

from leveret.core.files import Files
from leveret.msg_store.offline.image_check import Checked, ImageCheck
from leveret.msg_store.offline.store_image import StoreImage
from rigs.store.store_folders import Filled, fill


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    made = fill(tmp_path / "store")
    made.stop()
    return made


def checked(filled: Filled) -> Checked:
    with StoreImage(Files(), filled.path) as image:
        return ImageCheck(image).run()


def place_of(filled: Filled, key: tuple[int, int]) -> tuple[Path, int, int]:
    """Return segment, offset and length of a row's message."""
    with StoreImage(Files(), filled.path) as image:
        ((file_no, offset, length, _, _),) = image.places([filled.durable[key]]).values()
        return image.paths.rdq_path(file_no), offset, length


@contextmanager
def opened(filled: Filled, table: bytes) -> Iterator[Any]:
    """Return a transaction on a table of the index, behind the store's back."""
    with (
        lmdb.open(str(filled.path / "store.lmdb"), max_dbs=8) as environment,
        environment.begin(write=True, db=environment.open_db(table)) as transaction,
    ):
        yield transaction


def change(filled: Filled, table: bytes, key: bytes, value: bytes | None) -> None:
    with opened(filled, table) as transaction:
        if value is None:
            assert transaction.delete(key)
        else:
            transaction.put(key, value)


def location(filled: Filled, msg_no: int) -> bytes:
    with opened(filled, b"loc") as transaction:
        value: bytes = transaction.get(msg_no.to_bytes(8, "big"))
    return value


def test_a_sound_store(filled: Filled) -> None:
    found = checked(filled)

    assert found.is_sound
    assert found.rows == len(filled.durable)
    assert found.messages == len(set(filled.durable.values()))


def test_how_far_it_is_is_told(filled: Filled) -> None:
    told: list[int] = []
    with StoreImage(Files(), filled.path) as image:
        ImageCheck(image, told.append).run()

    assert sum(told) == len(filled.durable)


def test_a_message_that_was_changed_is_named_in_each_queue(filled: Filled) -> None:
    key = (2, 10)
    msg_no = filled.durable[key]
    path, offset, length = place_of(filled, key)
    with path.open("r+b") as file:
        file.seek(offset + length - 1)
        file.write(b"?")

    found = checked(filled)

    expected = sorted(key for key, no in filled.durable.items() if no == msg_no)
    assert [(no, seq) for no, wrong in found.wrong.items() for seq, _ in wrong] == expected
    assert "checksum" in found.wrong[2][0][1]
    assert not found.problems


def test_a_segment_that_is_missing(filled: Filled) -> None:
    path, _, _ = place_of(filled, (2, 25))
    path.unlink()

    found = checked(filled)

    assert 25 in {seq for seq, _ in found.wrong[2]}
    assert all("is missing" in why for wrong in found.wrong.values() for _, why in wrong)
    assert 0 < sum(map(len, found.wrong.values())) < found.rows


def test_a_row_without_a_place(filled: Filled) -> None:
    msg_no = filled.durable[2, 25]
    change(filled, b"loc", msg_no.to_bytes(8, "big"), None)

    found = checked(filled)

    assert (25, "the index does not know where it lies") in found.wrong[2]


def test_a_row_of_another_size(filled: Filled) -> None:
    msg_no = filled.durable[2, 25]
    row = msg_no.to_bytes(8, "little") + bytes(12) + b"\x01"
    change(filled, b"qidx", bytes([0, 0, 0, 2]) + (25).to_bytes(8, "big"), row)

    assert [seq for seq, _ in checked(filled).wrong[2]] == [25]


def test_a_row_that_is_gone_is_missed(filled: Filled) -> None:
    change(filled, b"qidx", bytes([0, 0, 0, 2]) + (25).to_bytes(8, "big"), None)

    problems = checked(filled).problems

    assert any(problem.startswith("queue 2 has") for problem in problems)
    assert len(problems) == 2


def test_a_message_without_rows(filled: Filled) -> None:
    known = location(filled, filled.durable[2, 25])
    change(filled, b"loc", (1 << 41).to_bytes(8, "big"), known)

    (problem,) = checked(filled).problems

    assert problem.endswith("have rows")


def test_a_wrong_count_of_rows(filled: Filled) -> None:
    msg_no = filled.durable[2, 10]
    known = location(filled, msg_no)
    change(filled, b"loc", msg_no.to_bytes(8, "big"), known[:16] + bytes([9, 0, 0, 0]))

    assert "1 messages have not as many rows as they are counted" in checked(filled).problems
