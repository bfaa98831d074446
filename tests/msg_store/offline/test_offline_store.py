"""A store that nobody uses is made smaller."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from leveret.msg_store.index.files import LmdbFiles
from leveret.msg_store.index.lmdb_index import LmdbIndex
from leveret.msg_store.offline import offline_store as offline
from leveret.msg_store.offline.audit import audited
from rigs.store.offline.offline_rig import (
    MAP_BYTES,
    UUID,
    Key,
    OfflineRig,
    bodies_of,
    flip,
    quiet,
    rows_of,
)


def wasteful(rig: OfflineRig, rng: random.Random) -> None:
    rig.busy(rng, 20)
    rig.ack(*rng.sample(sorted(rig.rows), len(rig.rows) // 2))


def sizes(rig: OfflineRig) -> int:
    return sum(each.stat().st_size for each in (rig.path / "rdq").iterdir())


def check(rig: OfflineRig, is_clean: bool) -> None:
    with audited(rig.path, quiet) as audit:
        assert audit.is_sound, audit
        assert rows_of(audit) == rig.rows
        assert bodies_of(audit) == {no: rig.bodies[no] for no in set(rig.rows.values())}
        assert audit.store.recovered.is_clean == is_clean


def test_segments_become_as_few_and_full_as_can_be(rig: OfflineRig, rng: random.Random) -> None:
    wasteful(rig, rng)
    rig.crash()
    before = sizes(rig)
    rig.rdq_file_bytes = 1 << 26
    rig.open()

    collected = rig.store.collect()
    rig.store.stop()

    assert collected.given_up == 0
    assert sizes(rig) < 0.6 * before
    live = sum(place[2] for place in rig.locations().values())
    assert sizes(rig) == live + 64
    check(rig, is_clean=True)


def test_a_second_time_there_is_nothing_to_do(rig: OfflineRig, rng: random.Random) -> None:
    wasteful(rig, rng)
    rig.stop()
    rig.open()
    rig.store.collect()
    rig.stop()
    names = sorted((rig.path / "rdq").iterdir())
    rig.open()

    assert rig.store.collect().merges == 0

    rig.stop()
    assert sorted((rig.path / "rdq").iterdir()) == names


def test_queues_that_were_clean_stay_so(rig: OfflineRig, rng: random.Random) -> None:
    wasteful(rig, rng)
    rig.core.close_queue(1, 77 << 40, 76 << 40)
    rig.stop()
    rig.open()
    rig.store.collect()
    rig.stop()

    index = LmdbIndex(rig.path / "store.lmdb", UUID, is_readonly=True)
    terms = index.queues()
    index.close()
    assert (terms[1].next_seq, terms[1].next_deliver, terms[1].is_clean) == (
        77 << 40,
        76 << 40,
        True,
    )
    assert not terms[2].is_clean


@pytest.mark.parametrize("calls", [1, 3, 8, 20, 40])
def test_a_crash_in_the_middle_loses_nothing(
    rig: OfflineRig, rng: random.Random, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wasteful(rig, rng)
    left = calls

    def step(steps: object) -> Exception | None:
        nonlocal left
        for _ in steps:  # type: ignore[attr-defined]
            left -= 1
            if not left:
                raise SystemExit
        return None

    with monkeypatch.context() as patched:
        patched.setattr(offline, "_error_in", step)
        with suppress(SystemExit):
            rig.store.collect()
    rig.crash()

    check(rig, is_clean=False)
    rig.open()
    rig.store.collect()
    rig.stop()
    check(rig, is_clean=True)


def test_a_damaged_message_is_merged_as_it_is(rig: OfflineRig, rng: random.Random) -> None:
    wasteful(rig, rng)
    rig.crash()
    (key, msg_no), *_ = rig.rows.items()
    file_no, offset, *_ = rig.locations()[msg_no]
    rig.open()
    flip(rig.segment(file_no), offset + 50)
    rig.store.collect()
    rig.stop()

    with audited(rig.path, quiet) as audit:
        lost: set[Key] = {(row.queue_no, row.seq) for row in audit.lost}
        assert key in lost
        assert {rig.rows[each] for each in lost} == {msg_no}


def test_the_index_becomes_as_small_as_can_be(rig: OfflineRig, rng: random.Random) -> None:
    wasteful(rig, rng)
    rig.stop()

    before, after = LmdbFiles(rig.path / "store.lmdb", UUID, MAP_BYTES).compact()

    assert after <= before
    check(rig, is_clean=True)
