"""Messages in the order of their queues, from segments that have them in another order.

Tests: spark/scan/plan.py
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from leveret.spark.errors import DataLoss
from leveret.spark.scan.options import ReadOptions
from leveret.spark.scan.ordered import OrderedRows
from leveret.spark.scan.reader import open_scan
from rigs.spark.messages import messages
from rigs.spark.snapshots import DataRig, rows_of, snapshot_of
from rigs.store.offline.offline_rig import flip


def snapshot(folder: Path, seed: int = 5) -> Path:
    """Three queues with two priorities each, in many segments and written in turns."""
    rng = random.Random(seed)
    rig = DataRig(folder, {"b": 1, "a": 11, "ranked": 21}, rdq_file_bytes=20_000, levels=2)
    for _ in range(8):
        rig.publish(messages(rng, 9), (22,))
        rig.publish(messages(rng, 20), (1,))
        rig.publish(messages(rng, 8), (11, 21))
        rig.ack(rng.sample(sorted(rig.written), 10))
    rig.stop()
    return snapshot_of(rig.data)


def ordered(path: Path, **options: str) -> OrderedRows:
    return OrderedRows(open_scan(ReadOptions.of({"path": str(path), **options})))


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["vhost"], row["queue"], row["queue_no"], row["seq_id"]


def read(rows: OrderedRows, readers: int, by_queue: bool) -> list[list[dict[str, Any]]]:
    return [
        [row for batch in part.batches() for row in batch.to_pylist()]
        for part in rows.parts(readers, by_queue=by_queue)
    ]


@pytest.mark.parametrize("options", [{}, {"batchRows": "7"}, {"batchBytes": "3000"}])
def test_rows_come_in_the_order_of_their_keys_as_they_are_in_the_snapshot(
    tmp_path: Path, options: dict[str, str]
) -> None:
    path = snapshot(tmp_path / "data")
    every = sorted(rows_of(path), key=key_of)

    (found,) = read(ordered(path, **options), 1, True)

    assert len({row["queue_no"] for row in every}) == 4
    assert found == every


def test_each_queue_goes_to_one_reader_and_the_readers_have_similar_shares(tmp_path: Path) -> None:
    path = snapshot(tmp_path / "data")
    rows = ordered(path)

    found = read(rows, 2, True)

    names = [{row["queue"] for row in part} for part in found]
    assert names[0] | names[1] == {"a", "b", "ranked"}
    assert not names[0] & names[1]
    assert [part.count for part in rows.parts(2, by_queue=True)] == [len(part) for part in found]
    assert min(map(len, found)) > len(rows) / 4
    assert found == read(ordered(path), 2, True)


def test_windows_go_to_readers_in_turn_and_keys_rise_in_each(tmp_path: Path) -> None:
    path = snapshot(tmp_path / "data")

    found = read(ordered(path, batchRows="10"), 3, False)

    assert max(map(len, found)) - min(map(len, found)) <= 10
    assert all([*map(key_of, part)] == sorted(map(key_of, part)) for part in found)
    every = sorted((row for part in found for row in part), key=key_of)
    assert every == sorted(rows_of(path), key=key_of)


def test_nothing_is_read_where_no_row_is_wanted(tmp_path: Path) -> None:
    rows = ordered(snapshot(tmp_path / "data"), queue="nobody")

    assert len(rows) == 0
    assert read(rows, 2, True) == read(rows, 2, False) == [[], []]


def test_a_message_that_cannot_be_read_is_an_error_or_left_out(tmp_path: Path) -> None:
    path = snapshot(tmp_path / "data")
    every = sorted(rows_of(path), key=key_of)
    lost = next(row for row in every if row["queue"] == "b")
    file = next(path.glob(f"vhosts/*/rdq/{lost['segment']:08x}.rdq"))
    flip(file, lost["offset"] + lost["length"] - 1)
    every.remove(lost)

    with pytest.raises(DataLoss, match="queue 'b'"):
        read(ordered(path), 1, True)
    assert read(ordered(path, failOnDataLoss="false"), 1, True) == [every]
