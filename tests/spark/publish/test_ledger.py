"""The ledger: what it keeps of attempts and their rows.

Tests: spark/publish/identity.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from leveret.spark.publish.errors import LedgerError
from leveret.spark.publish.identity import Key
from leveret.spark.publish.ledger import KeyOrder, Ledger, check_plan, part_path

KEYS = [Key("/", "q", 0, seq) for seq in range(0, 50, 5)]


def settled(path: Path, keys: Sequence[Key], step: int = 3) -> Iterator[Key]:
    """Settle rows and write each entry that is due; yield the keys that were not skipped."""
    ledger = Ledger(path, step)
    for key in keys:
        if not ledger.skips(key):
            yield key
        if entry := ledger.ready(ledger.rows):
            ledger.write(entry)
    ledger.end()
    if entry := ledger.ready(ledger.rows):
        ledger.write(entry)


def test_a_second_run_skips_all_rows(tmp_path: Path) -> None:
    path = part_path(tmp_path, "", 0)

    assert list(settled(path, KEYS)) == KEYS
    assert list(settled(path, KEYS)) == []


def test_an_attempt_goes_on_behind_the_last_entry(tmp_path: Path) -> None:
    path = part_path(tmp_path, "batch-7", 12)
    attempt = settled(path, KEYS)
    for _ in range(8):
        next(attempt)  # rows 1 to 6 have entries

    assert list(settled(path, KEYS)) == KEYS[6:]


@pytest.mark.parametrize(
    "keys",
    [
        [*KEYS[1:], Key("/", "q", 0, 99)],
        [Key("/", "p", 0, 1), *KEYS],
        [*KEYS[:2], Key("/", "q", 0, 7), *KEYS[2:]],
        KEYS[:4],
    ],
)
def test_other_rows_than_those_counted_are_refused(tmp_path: Path, keys: list[Key]) -> None:
    path = part_path(tmp_path, "", 0)
    list(settled(path, KEYS[:6]))

    with pytest.raises(LedgerError, match=r"6 settled rows.*sort the partition"):
        list(settled(path, keys))


def test_rows_behind_the_entry_may_be_new(tmp_path: Path) -> None:
    path = part_path(tmp_path, "", 0)
    list(settled(path, KEYS[:6]))

    assert list(settled(path, KEYS)) == KEYS[6:]


@pytest.mark.parametrize(
    "later",
    [KEYS[1], Key("/", "q", 0, 4), Key("/", "p", 0, 100), Key("", "q", 0, 100)],
)
def test_keys_must_rise(later: Key) -> None:
    order = KeyOrder()
    order.check(KEYS[1])

    with pytest.raises(LedgerError, match=r"comes after .*seq_id 5\)"):
        order.check(later)


def test_the_seqs_of_each_priority_of_a_queue_begin_anew(tmp_path: Path) -> None:
    path = part_path(tmp_path, "", 0)
    keys = [Key("/", "q", queue_no, seq) for queue_no in (3, 4) for seq in range(5)]
    order = KeyOrder()
    for key in keys:
        order.check(key)

    assert list(settled(path, keys)) == keys
    assert list(settled(path, keys)) == []
    with pytest.raises(LedgerError, match="are others"):
        list(settled(path, [key._replace(queue_no=9) for key in keys[:5]] + keys[5:]))


def test_a_ledger_of_an_older_format_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"format": 1, "fingerprint": "a"}')

    with pytest.raises(LedgerError, match="has format 1, this version reads 2: end the job with"):
        check_plan(tmp_path, "a")


def test_an_entry_with_fewer_rows_does_not_replace_one_with_more(tmp_path: Path) -> None:
    path = part_path(tmp_path, "", 0)
    slow = settled(path, KEYS)
    next(slow)
    list(settled(path, KEYS))

    list(slow)

    assert json.loads(path.read_text())["rows"] == len(KEYS)


def test_two_attempts_with_other_rows_find_each_other(tmp_path: Path) -> None:
    path = part_path(tmp_path, "", 0)
    slow = settled(path, KEYS)
    next(slow)
    list(settled(path, [*KEYS[:2], *KEYS[3:]], 3))

    with pytest.raises(LedgerError, match="are others"):
        list(slow)


def test_the_plan_of_a_ledger_is_compared(tmp_path: Path) -> None:
    check_plan(tmp_path / "new", "a")
    check_plan(tmp_path / "new", "a")

    with pytest.raises(LedgerError, match="belongs to another job"):
        check_plan(tmp_path / "new", "b")


def test_entries_without_a_plan_are_refused(tmp_path: Path) -> None:
    list(settled(part_path(tmp_path, "", 0), KEYS))

    with pytest.raises(LedgerError, match=r"no plan\.json"):
        check_plan(tmp_path, "a")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"rows": 1, "key": ["v", 2], "digest": ""}', '{"rows": "x"']
)
def test_a_damaged_entry_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "part-00000.json"
    path.write_text(text)

    with pytest.raises(LedgerError, match=r"use a new ledger|cannot be read"):
        Ledger(path, 3)


def test_a_ledger_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(LedgerError, match="file/new"):
        check_plan(tmp_path / "file" / "new", "a")
