"""Stores are repaired in place; what can be read stays.

Tests: msg_store/offline/changes.py, msg_store/offline/repair_plan.py,
    msg_store/recovery/format_repair.py
"""

from __future__ import annotations

import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest

from leveret.msg_store.format.errors import StoreChanged
from leveret.msg_store.format.file_header import JOURNAL_MAGIC, RDQ_MAGIC, Identity
from leveret.msg_store.format.rows import Batch
from leveret.msg_store.offline import repair as store_repair
from leveret.msg_store.offline.audit import audited
from leveret.msg_store.offline.repair import repair
from leveret.msg_store.offline.repair_plan import RepairPlan, plan_repair
from rigs.store.offline.offline_rig import (
    MAP_BYTES,
    OfflineRig,
    bodies_of,
    files_of,
    quiet,
    rows_of,
)
from rigs.store.offline.store_damage import DAMAGES, WRONGS, change_index, damage_index, used_bytes


def needed(path: Path) -> RepairPlan:
    with audited(path, quiet) as audit:
        return plan_repair(audit)


def repaired(rig: OfflineRig, lost: set[int] = frozenset()) -> None:
    """Repair a store, and hold it to be sound, with all that was not lost, and done with."""
    plan = needed(rig.path)
    assert plan.is_needed
    repair(rig.path, plan, plan.epoch_seen + 1, lambda: 9)

    assert not needed(rig.path).is_needed
    with audited(rig.path, quiet) as audit:
        assert audit.is_sound
        assert rows_of(audit) == {key: no for key, no in rig.rows.items() if no not in lost}
        readable = {no: rig.bodies[no] for no in set(rig.rows.values()) - lost}
        assert bodies_of(audit) == readable
    rig.boot_epoch += 1
    rig.open()  # a broker takes it
    assert not rig.opened.recovered.report.is_damage
    rig.crash()


def test_a_sound_store_needs_nothing(rig: OfflineRig, rng: random.Random) -> None:
    rig.busy(rng)
    rig.crash()

    assert not needed(rig.path).is_needed


@pytest.mark.parametrize("wrong", WRONGS)
def test_what_is_wrong_in_the_index_is_put_right_and_nothing_is_lost(
    rig: OfflineRig, rng: random.Random, wrong: object
) -> None:
    rig.busy(rng)
    rig.stop()
    change_index(rig, wrong(rig))  # type: ignore[operator]

    repaired(rig)


@pytest.mark.parametrize("how", ["stopped", "crashed"])
def test_a_message_that_cannot_be_read_goes_to_the_quarantine_and_is_reported(
    rig: OfflineRig, rng: random.Random, how: str
) -> None:
    rig.busy(rng)
    rig.store.checkpoint()
    rig.publish((1, 2), 3)
    rig.ack(*rng.sample(sorted(rig.rows), 5))
    rig.stop() if how == "stopped" else rig.crash()
    (key, msg_no), *_ = rig.rows.items()
    file_no, offset, length, *_ = rig.locations()[msg_no]
    rig.spoil(msg_no)
    damaged = rig.segment(file_no).read_bytes()[offset : offset + length]

    repaired(rig, {msg_no})

    kept = rig.path / "quarantine" / f"{file_no:08x}.rdq-{offset:x}-{length:x}.bin"
    assert kept.read_bytes() == damaged
    (report,) = (rig.path / "quarantine").glob("repair-*.json")
    lost = json.loads(report.read_text())["lost"]
    assert [tuple(row[:3]) for row in lost if row[:2] == list(key)] == [(*key, msg_no)]


def test_a_plan_that_recovers_first_is_carried_out_twice_and_not_after_a_start(
    rig: OfflineRig, rng: random.Random
) -> None:
    rig.busy(rng)
    rig.store.checkpoint()
    rig.publish((1, 2), 3)
    msg_no = next(iter(rig.rows.values()))
    rig.crash()
    rig.spoil(msg_no)
    plan = needed(rig.path)
    assert plan.needs_recovery
    assert plan.changes

    repair(rig.path, plan, plan.epoch_seen + 1, lambda: 9)
    once = files_of(rig.path / "journal")
    repair(rig.path, plan, plan.epoch_seen + 2, lambda: 9)

    assert files_of(rig.path / "journal") == once, "recovery is not done again"
    with audited(rig.path, quiet) as audit:
        assert audit.is_sound
        assert rows_of(audit) == {key: no for key, no in rig.rows.items() if no != msg_no}
    rig.boot_epoch += 1
    rig.open()
    rig.stop()
    with pytest.raises(StoreChanged, match="audit it again"):
        repair(rig.path, plan, plan.epoch_seen + 9, lambda: 9)


def test_a_plan_is_for_one_store(rig: OfflineRig, rng: random.Random) -> None:
    rig.busy(rng)
    rig.stop()
    change_index(rig, WRONGS[0](rig))
    plan = replace(needed(rig.path), uuid=bytes(16))

    with pytest.raises(StoreChanged, match="another store"):
        repair(rig.path, plan, plan.epoch_seen + 1, lambda: 9)


def test_what_is_wrong_below_a_journal_is_put_right(rig: OfflineRig, rng: random.Random) -> None:
    rig.busy(rng)
    rig.store.checkpoint()
    msg_no, place = next(iter(rig.opened.recovered.index.scan_locations(0, 1)))
    batch = Batch(locations=[(msg_no, (*place[:4], 7))])
    rig.publish((1, 2), 9)
    rig.ack(*[key for key in rig.rows if rig.rows[key] != msg_no][:9])
    rig.crash()
    change_index(rig, batch)

    repaired(rig)


def test_a_torn_journal_is_cut(rig: OfflineRig, rng: random.Random) -> None:
    rig.busy(rng)
    rig.publish((1,), 5)
    before = dict(rig.rows)
    rig.publish((1,), 5)
    rig.crash()
    rig.rows = before
    journal = max((rig.path / "journal").iterdir())
    os.truncate(journal, used_bytes(journal) - 3)

    repaired(rig)


def test_a_missing_segment_is_noted(rig: OfflineRig, rng: random.Random) -> None:
    rig.busy(rng)
    rig.stop()
    lost = {no for no, place in rig.locations().items() if place[0] == 2}
    rig.segment(2).unlink()

    repaired(rig, lost)


@pytest.mark.parametrize("name", ["rdq/000000f0.rdq", "journal/00000000000000f0.jnl"])
def test_files_of_another_store_go_to_the_quarantine(
    rig: OfflineRig, rng: random.Random, tmp_path: Path, name: str
) -> None:
    rig.busy(rng)
    rig.stop()
    path = rig.path / name
    header = Identity(bytes(16), 1).header(
        RDQ_MAGIC if "rdq" in name else JOURNAL_MAGIC, 0xF0, 9, first_lsn=1 << 40
    )
    path.write_bytes(header)

    repaired(rig)

    assert not path.exists()
    assert (rig.path / "quarantine" / f"{path.name}.set-aside").read_bytes() == header


@pytest.mark.parametrize("what", DAMAGES)
def test_a_lost_index_is_rebuilt(rig: OfflineRig, rng: random.Random, what: str) -> None:
    rig.busy(rng, 20)
    rig.stop()
    damage_index(rig, what)
    plan = needed(rig.path)

    repair(rig.path, plan, plan.epoch_seen + 1, lambda: 9)

    with audited(rig.path, quiet) as audit:
        assert audit.is_sound
        assert not plan_repair(audit).is_needed
        kept = {(queue_no, msg_no) for (queue_no, _), msg_no in rows_of(audit).items()}
        assert kept >= {(key[0], msg_no) for key, msg_no in rig.rows.items()}


@pytest.mark.parametrize("what", ["older", "value"])
def test_an_index_that_opens_and_cannot_be_used_is_rebuilt(rig: OfflineRig, what: str) -> None:
    rig.publish((1,), 3)
    rig.store.checkpoint()
    old = rig.data.read_bytes()
    for _ in range(3):
        rig.publish((1,), 3)
        rig.store.checkpoint()
    rig.stop()
    if what == "older":
        rig.data.write_bytes(old)
    else:
        with lmdb.open(os.fspath(rig.data.parent), map_size=MAP_BYTES, max_dbs=9) as index:
            places = index.open_db(b"loc")
            with index.begin(write=True, db=places) as transaction, transaction.cursor() as cursor:
                cursor.first()
                cursor.put(cursor.key(), cursor.value()[:-1])
    plan = needed(rig.path)

    repair(rig.path, plan, plan.epoch_seen + 1, lambda: 9)

    with audited(rig.path, quiet) as audit:
        assert audit.is_sound
        assert set(rows_of(audit).values()) == set(rig.rows.values())


def test_a_lost_format_is_written_anew(rig: OfflineRig, rng: random.Random) -> None:
    rig.busy(rng)
    rig.stop()
    (rig.path / "FORMAT").unlink()

    repaired(rig)


def test_looking_for_what_to_do_changes_nothing(rig: OfflineRig, rng: random.Random) -> None:
    rig.busy(rng)
    rig.stop()
    rig.spoil(next(iter(rig.rows.values())))
    copy = rig.path.with_name("copy")
    shutil.copytree(rig.path, copy)

    assert needed(rig.path).is_needed
    assert needed(rig.path) == replace(needed(copy), path=str(rig.path))


def test_a_crash_before_the_index_is_written_leaves_it_to_be_repaired_again(
    rig: OfflineRig, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.busy(rng)
    rig.stop()
    msg_no = next(iter(rig.rows.values()))
    rig.spoil(msg_no)
    plan = needed(rig.path)

    def dies(self: object, batch: Batch) -> None:
        raise SystemExit

    monkeypatch.setattr(store_repair.LmdbIndex, "write", dies)
    with pytest.raises(SystemExit):
        repair(rig.path, plan, plan.epoch_seen + 1, lambda: 9)
    monkeypatch.undo()

    repaired(rig, {msg_no})
