"""What can be read of a store is copied into a new one, and the old one stays as it is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from leveret.msg_store.offline.audit import audited
from leveret.msg_store.offline.offline_store import OfflineStore
from leveret.msg_store.offline.repair_plan import plan_repair
from leveret.msg_store.offline.salvage import Salvaged, salvage
from rigs.store.live_store import opened_at
from rigs.store.offline.offline_rig import UUID, OfflineRig, bodies_of, flip, quiet, rows_of
from rigs.store.offline.store_damage import DAMAGES, WRONGS, change_index, damage_index


def salvaged(
    rig: OfflineRig, target: Path, lost: set[int] = frozenset(), damage: str = ""
) -> Salvaged:
    target.mkdir()
    with audited(rig.path, quiet, damage) as audit:
        result = salvage(audit, target, bytes(range(1, 17)), 9, quiet)
    with audited(target, quiet) as audit:
        assert audit.is_sound, audit
        assert not plan_repair(audit).is_needed
        wanted = {no for no in rig.rows.values() if no not in lost}
        if not damage:
            assert rows_of(audit) == {key: no for key, no in rig.rows.items() if no in wanted}
        bodies = bodies_of(audit)
        assert {no: bodies[no] for no in wanted} == {no: rig.bodies[no] for no in wanted}
        assert result.messages == len(bodies)
    return result


def reopened(target: Path, epoch: int) -> OfflineStore:
    return OfflineStore(opened_at(target, epoch))


@pytest.mark.parametrize("how", ["stopped", "crashed"])
def test_a_sound_store_is_copied_as_a_whole(
    rig: OfflineRig, rng: random.Random, tmp_path: Path, how: str
) -> None:
    rig.busy(rng)
    rig.core.produced(1, 1, [(0, b"p", 3, 9, 7)])
    rig.store.flush()
    rig.stop() if how == "stopped" else rig.crash()

    result = salvaged(rig, tmp_path / "new")

    assert result.lost == []
    with audited(tmp_path / "new", quiet) as audit:
        assert audit.store.recovered.producers == {1: {b"p": (3, 9, 7)}}
    assert result.rows == len(rig.rows)
    assert result.size_bytes < sum(each.stat().st_size for each in (rig.path / "rdq").iterdir())
    store = reopened(tmp_path / "new", 2)
    first = store.core.write([(b"x", b"head", b"body")], (1,))
    store.core.publish(1, 2 << 40, [(first, 0)])
    store.stop()
    with audited(tmp_path / "new", quiet) as audit:
        assert audit.is_sound
        assert len(rows_of(audit)) == len(rig.rows) + 1


def test_what_cannot_be_read_is_left_behind_and_told(
    rig: OfflineRig, rng: random.Random, tmp_path: Path
) -> None:
    rig.busy(rng)
    rig.stop()
    lost = set(rng.sample(sorted(set(rig.rows.values())), 3))
    for msg_no in lost:
        rig.spoil(msg_no)

    result = salvaged(rig, tmp_path / "new", lost)

    assert {row.msg_no for row in result.lost} == lost


@pytest.mark.parametrize("what", DAMAGES)
def test_a_store_without_its_index_is_salvaged(
    rig: OfflineRig, rng: random.Random, tmp_path: Path, what: str
) -> None:
    rig.busy(rng, 20)
    rig.stop()
    damage_index(rig, what)

    salvaged(rig, tmp_path / "new", damage="it is known to be bad")


@pytest.mark.parametrize("wrong", WRONGS)
def test_a_store_with_a_wrong_index_is_salvaged_without_loss(
    rig: OfflineRig, rng: random.Random, tmp_path: Path, wrong: object
) -> None:
    rig.busy(rng)
    rig.stop()
    change_index(rig, wrong(rig))  # type: ignore[operator]

    assert salvaged(rig, tmp_path / "new").lost == []


def test_a_salvaged_store_that_loses_its_index_again_loses_nothing_else(
    rig: OfflineRig, rng: random.Random, tmp_path: Path
) -> None:
    rig.busy(rng)
    rig.stop()
    salvaged(rig, tmp_path / "new")
    reopened(tmp_path / "new", 2).close()
    (tmp_path / "new" / "store.lmdb" / "data.mdb").unlink()

    with audited(tmp_path / "new", quiet) as audit:
        kept = {(queue_no, msg_no) for (queue_no, _), msg_no in rows_of(audit).items()}
        assert kept >= {(key[0], msg_no) for key, msg_no in rig.rows.items()}


def test_what_can_no_more_be_read_when_it_is_copied_is_told(
    rig: OfflineRig, rng: random.Random, tmp_path: Path
) -> None:
    rig.busy(rng)
    rig.stop()
    msg_no = next(iter(rig.rows.values()))
    file_no, offset, *_ = rig.locations()[msg_no]
    (tmp_path / "new").mkdir()

    with audited(rig.path, quiet) as audit:
        flip(rig.segment(file_no), offset + 50)
        result = salvage(audit, tmp_path / "new", UUID, 9, quiet)

    keys = {key for key, no in rig.rows.items() if no == msg_no}
    assert {(row.queue_no, row.seq) for row in result.lost} == keys
    with audited(tmp_path / "new", quiet) as audit:
        assert audit.is_sound
        assert rows_of(audit).keys() == rig.rows.keys() - keys
