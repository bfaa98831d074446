"""What the check of a snapshot finds in its stores: each damage is named, and nothing else.

Tests: management/snapshots/manifest.py
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest

from leveret.core.system.files import Files
from leveret.management.snapshots import manifest
from leveret.management.snapshots.checking import Report, verify
from leveret.management.snapshots.manifest import Manifest, QueueEntry, StoreEntry
from leveret.msg_store.offline.inspection import Inspection
from rigs.store.offline.offline_rig import quiet
from rigs.store.store_folders import Filled, fill


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    made = fill(tmp_path / "store")
    made.stop()
    return made


def manifest_of(filled: Filled) -> Manifest:
    """Return the manifest of a snapshot that is a store."""
    counts = {no: sum(key[0] == no for key in filled.durable) for no in (1, 2, 3)}
    queues = [QueueEntry(f"queue {no}", [no], count, 0) for no, count in counts.items()]
    store = StoreEntry("/", filled.path.name, "", 1, 1, True, 0, 0, 0, [], [], queues)
    return Manifest(manifest.FORMAT, "one", 1, "", "", [store], [])


def checked(filled: Filled) -> Report:
    return verify(Files(), filled.path.parent, manifest_of(filled), quiet)


def seqs_of(report: Report, queue_no: int) -> list[int]:
    return [seq for row in report.damaged if row["queue_no"] == queue_no for seq in row["seqs"]]


def place_of(filled: Filled, key: tuple[int, int]) -> tuple[Path, int, int]:
    """Return segment, offset and length of a row's message."""
    with Inspection(filled.path) as store:
        file_no, offset, length, _, _ = dict(store.locations())[filled.durable[key]]
        return store.folder.rdq_path(file_no), offset, length


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
    report = checked(filled)

    assert report.is_sound, report
    assert report.rows == len(filled.durable)
    assert report.records == len(set(filled.durable.values()))


def test_a_message_that_was_changed_is_named_in_each_queue(filled: Filled) -> None:
    key = (2, 10)
    msg_no = filled.durable[key]
    path, offset, length = place_of(filled, key)
    with path.open("r+b") as file:
        file.seek(offset + length - 1)
        file.write(b"?")

    report = checked(filled)

    expected = sorted(key for key, no in filled.durable.items() if no == msg_no)
    assert [(row["queue_no"], seq) for row in report.damaged for seq in row["seqs"]] == expected
    assert {row["queue"] for row in report.damaged} == {f"queue {no}" for no, _ in expected}
    assert all("checksum" in row["why"] for row in report.damaged)
    assert not report.problems


def test_a_segment_that_is_missing(filled: Filled) -> None:
    path, _, _ = place_of(filled, (2, 25))
    path.unlink()

    report = checked(filled)

    assert 25 in seqs_of(report, 2)
    assert all("is missing" in row["why"] for row in report.damaged)
    assert 0 < sum(len(row["seqs"]) for row in report.damaged) < len(filled.durable)


def test_a_row_without_a_location(filled: Filled) -> None:
    msg_no = filled.durable[2, 25]
    change(filled, b"loc", msg_no.to_bytes(8, "big"), None)

    report = checked(filled)

    (row,) = [row for row in report.damaged if row["queue_no"] == 2]
    assert (row["seqs"], row["why"]) == ([25], "the index has no location for it")


def test_a_message_that_lies_elsewhere_is_named(filled: Filled) -> None:
    (key, msg_no), (_, other) = ((key, filled.durable[key]) for key in ((2, 25), (2, 26)))
    own, others = location(filled, msg_no), location(filled, other)
    change(filled, b"loc", msg_no.to_bytes(8, "big"), others[:8] + own[8:])

    report = checked(filled)

    assert seqs_of(report, 2) == [key[1]]


def test_a_row_of_another_size(filled: Filled) -> None:
    msg_no = filled.durable[2, 25]
    row = msg_no.to_bytes(8, "little") + bytes(12) + b"\x01"
    change(filled, b"qidx", bytes([0, 0, 0, 2]) + (25).to_bytes(8, "big"), row)

    assert seqs_of(checked(filled), 2) == [25]


def test_a_row_that_is_gone_is_missed(filled: Filled) -> None:
    change(filled, b"qidx", bytes([0, 0, 0, 2]) + (25).to_bytes(8, "big"), None)

    problems = checked(filled).problems

    assert any("queue 'queue 2' is said to have" in problem for problem in problems)
    assert any("another number of rows" in problem for problem in problems)


def test_a_message_without_rows(filled: Filled) -> None:
    known = location(filled, filled.durable[2, 25])
    change(filled, b"loc", (1 << 41).to_bytes(8, "big"), known)

    (problem,) = checked(filled).problems

    assert problem == "vhost '/': 1 messages have another number of rows than the index says"


def test_a_wrong_count_of_rows(filled: Filled) -> None:
    msg_no = filled.durable[2, 10]
    known = location(filled, msg_no)
    change(filled, b"loc", msg_no.to_bytes(8, "big"), known[:16] + bytes([9, 0, 0, 0]))

    (problem,) = checked(filled).problems

    assert problem == "vhost '/': 1 messages have another number of rows than the index says"


def test_a_queue_that_holds_not_what_the_manifest_says(filled: Filled) -> None:
    filled.durable[2, 1_000] = 1

    (problem,) = checked(filled).problems

    assert problem.startswith("vhost '/': queue 'queue 2' has ")


def test_an_index_that_cannot_be_used(filled: Filled) -> None:
    (filled.path / "store.lmdb" / "data.mdb").write_bytes(bytes(1 << 16))

    (problem,) = checked(filled).problems

    assert "must be recovered first" in problem
