"""Looking at a store: sound ones are, every damage is found and named, and nothing is changed.

Tests: msg_store/offline/defects.py, msg_store/offline/locations.py,
    msg_store/offline/segment_check.py, msg_store/offline/store_at.py
"""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import lmdb
import pytest

from leveret.msg_store.format.errors import FormatTooNew, StoreLocked
from leveret.msg_store.format.file_header import MOVED, RDQ_MAGIC, Identity
from leveret.msg_store.index.page_check import fault_of
from leveret.msg_store.offline.audit import Audit, audited
from leveret.msg_store.offline.defects import defects_of
from leveret.msg_store.offline.rebuilding import rebuild_in_place
from leveret.msg_store.reading.verify import Segment
from rigs.store.live_store import opened_at
from rigs.store.offline.offline_rig import (
    MAP_BYTES,
    UUID,
    OfflineRig,
    bodies_of,
    files_of,
    flip,
    quiet,
    rows_of,
)
from rigs.store.offline.planted_defects import PLANTED, Planter, named
from rigs.store.offline.store_damage import DAMAGES, WRONGS, change_index, damage_index, used_bytes
from rigs.store.offline.walk_index import walk
from rigs.store.store_folders import killed_after


def ended(rig: OfflineRig, how: str) -> None:
    rig.stop() if how == "stopped" else rig.crash()


@pytest.mark.parametrize("how", ["stopped", "crashed"])
def test_a_sound_store_is_sound_and_stays_as_it_is(
    rig: OfflineRig, rng: random.Random, how: str
) -> None:
    rig.busy(rng)
    ended(rig, how)
    rig.open()
    rig.busy(rng)
    ended(rig, how)
    before = files_of(rig.path)

    with audited(rig.path, quiet) as audit:
        assert audit.is_sound, audit
        assert rows_of(audit) == rig.rows
        assert bodies_of(audit) == {no: rig.bodies[no] for no in set(rig.rows.values())}
        assert sum(terms.messages for terms in audit.queues.values()) == len(rig.rows)
        assert audit.store.recovered.is_clean == (how == "stopped")
        assert audit.store.epoch_seen == 2

    assert files_of(rig.path) == before


def test_an_empty_store_is_sound(rig: OfflineRig) -> None:
    rig.stop()

    with audited(rig.path, quiet) as audit:
        assert audit.is_sound
        assert audit.queues == {}


def test_a_store_in_use_is_refused(rig: OfflineRig) -> None:
    with pytest.raises(StoreLocked), audited(rig.path, quiet):
        pass

    rig.stop()


def test_a_newer_format_is_refused(rig: OfflineRig) -> None:
    rig.stop()
    path = rig.path / "FORMAT"
    path.write_text(path.read_text().replace("leveret-message-store 2", "leveret-message-store 3"))

    expected = pytest.raises(FormatTooNew, match="has format 3, known are up to 2")
    with expected, audited(rig.path, quiet):
        pass


@pytest.mark.parametrize("at", [0, 4, 9, 24, 30, 38, 80], ids=lambda at: f"byte{at}")
def test_a_flipped_byte_costs_one_message_and_its_rows_are_named(
    rig: OfflineRig, rng: random.Random, at: int
) -> None:
    rig.busy(rng)
    fanned_out = next(no for no in rig.rows.values() if list(rig.rows.values()).count(no) == 2)
    rig.stop()
    rig.spoil(fanned_out, at)

    with audited(rig.path, quiet) as audit:
        assert not audit.is_sound
        named = {(row.queue_no, row.seq) for row in audit.lost}
        assert named == {key for key, msg_no in rig.rows.items() if msg_no == fanned_out}
        assert {row.msg_no for row in audit.lost} == {fanned_out}
        assert audit.unreadable.keys() == {fanned_out}


def test_a_missing_segment_costs_its_messages_only(rig: OfflineRig, rng: random.Random) -> None:
    rig.busy(rng)
    rig.stop()
    gone = [no for no, place in rig.locations().items() if place[0] == 2]
    rig.segment(2).unlink()

    with audited(rig.path, quiet) as audit:
        assert not audit.is_sound
        expected = {key for key, msg_no in rig.rows.items() if msg_no in gone}
        assert {(row[0], row[1]) for row in audit.store.report.lost} == expected
        assert all("segment 00000002 is missing" in row[3] for row in audit.store.report.lost)
        assert rows_of(audit).keys() == rig.rows.keys() - expected


@pytest.mark.parametrize("what", DAMAGES)
def test_an_index_that_is_lost_is_made_up_for(
    rig: OfflineRig, rng: random.Random, what: str
) -> None:
    rig.busy(rng, 20)
    rig.stop()
    damage_index(rig, what)
    before = files_of(rig.path)

    with audited(rig.path, quiet) as audit:
        assert not audit.is_sound
        assert audit.store.report.rebuilt
        assert audit.is_index_sound
        kept = {(queue_no, msg_no) for (queue_no, _), msg_no in rows_of(audit).items()}
        assert kept >= {(key[0], msg_no) for key, msg_no in rig.rows.items()}

    assert files_of(rig.path) == before


def test_an_index_whose_pages_lmdb_cannot_read_is_told_from_a_good_one(
    rig: OfflineRig, rng: random.Random
) -> None:
    rig.busy(rng, 20)
    rig.stop()
    assert fault_of(rig.data) == ""

    damage_index(rig, "page")

    assert fault_of(rig.data)
    met = walk([rig.data.parent])
    assert met.returncode or met.stdout


@pytest.mark.parametrize("what", ["lost", "damaged"])
def test_a_lost_format_is_made_up_for(rig: OfflineRig, rng: random.Random, what: str) -> None:
    rig.busy(rng)
    rig.stop()
    path = rig.path / "FORMAT"
    path.unlink() if what == "lost" else path.write_bytes(b"\xff\0")
    before = files_of(rig.path)

    with audited(rig.path, quiet) as audit:
        assert not audit.is_sound
        assert what in audit.store.format_damage or "has no FORMAT" in audit.store.format_damage
        assert rows_of(audit) == rig.rows

    assert files_of(rig.path) == before


def test_a_torn_end_of_the_journal_is_no_damage(rig: OfflineRig, rng: random.Random) -> None:
    rig.busy(rng)
    rig.publish((1,), 5)
    rig.crash()
    journal = max((rig.path / "journal").iterdir())
    os.truncate(journal, used_bytes(journal) - 3)

    with audited(rig.path, quiet) as audit:
        assert audit.is_sound
        assert len(audit.store.report.tails) == 1


def test_a_gap_in_the_journal_is_damage(rig: OfflineRig, rng: random.Random) -> None:
    rig.publish((1,), 5)
    rig.publish((1,), 5)
    rig.publish((1,), 5)
    rig.crash()
    journal = max((rig.path / "journal").iterdir())
    flip(journal, used_bytes(journal) // 2)

    with audited(rig.path, quiet) as audit:
        assert not audit.is_sound
        assert audit.store.report.gaps


# What only an audit sees: the index is well-formed, and wrong.


@pytest.mark.parametrize("wrong", WRONGS)
def test_what_is_wrong_in_a_good_index_is_found(
    rig: OfflineRig, rng: random.Random, wrong: object
) -> None:
    rig.busy(rng)
    rig.stop()
    change_index(rig, wrong(rig))  # type: ignore[operator]

    with audited(rig.path, quiet) as audit:
        assert not audit.store.report.is_damage
        assert not audit.is_index_sound
        assert audit.lost == [], "every message can be read"
        assert set(rows_of(audit)) == set(rig.rows)


@pytest.mark.parametrize("what", PLANTED)
def test_planted_defects_are_named_exactly(rig: OfflineRig, rng: random.Random, what: str) -> None:
    rig.busy(rng, 12)
    rig.stop()
    planter = Planter(rig.path, rng)
    getattr(planter, what)(5)
    planter.finish()

    with audited(rig.path, quiet) as audit:
        assert named(list(defects_of(audit))) == planter.expected
        assert {row.msg_no for row in audit.lost} == planter.lost


def test_records_of_acked_messages_are_garbage_and_no_damage(
    rig: OfflineRig, rng: random.Random
) -> None:
    rig.busy(rng)
    written = len(rig.bodies)
    rig.stop()

    with audited(rig.path, quiet) as audit:
        assert audit.is_sound
        assert len(audit.locations) < audit.records <= written
        assert audit.garbage_records == audit.records - len(audit.locations)
        live_bytes = sum(audit.locations.lengths)
        size_bytes = sum(path.stat().st_size - 64 for path in (rig.path / "rdq").iterdir())
        assert audit.garbage_bytes == size_bytes - live_bytes
        assert audit.damaged_bytes == 0


def test_a_second_record_of_a_message_is_named_and_harmless(
    rig: OfflineRig, rng: random.Random
) -> None:
    rig.busy(rng)
    rig.stop()
    planter = Planter(rig.path, rng)
    planter.double(3)
    planter.finish()

    with audited(rig.path, quiet) as audit:
        assert audit.is_sound
        assert named(list(defects_of(audit))) == planter.expected
        assert audit.doubled.keys() == {msg_no for _, msg_no in planter.expected}
        assert audit.notes == ["3 messages have a second record; a compaction removes it"]


def test_a_rebuilt_index_counts_a_message_with_a_second_record_once(
    rig: OfflineRig, rng: random.Random
) -> None:
    rig.busy(rng)
    rig.stop()
    planter = Planter(rig.path, rng)
    planter.double(40)
    planter.finish()

    rebuild_in_place(rig.path, rig.boot_epoch + 1, lambda: 0)

    with audited(rig.path, quiet) as audit:
        assert named(list(defects_of(audit))) == planter.expected
        assert (audit.terms, audit.files) == ({}, {})


def test_what_the_collector_had_copied_before_a_crash_is_garbage(
    rig: OfflineRig, rng: random.Random
) -> None:
    rig.busy(rng)
    rig.stop()
    source = rig.segment(1).read_bytes()
    header = Identity(UUID, 1).header(RDQ_MAGIC, 0xF0, 9, flags=MOVED)
    rig.segment(0xF0).write_bytes(header + source[len(header) :])

    with audited(rig.path, quiet) as audit:
        assert audit.is_sound
        assert audit.doubled == {}
        assert list(defects_of(audit)) == []
        assert audit.records - audit.garbage_records == len(audit.locations)


def test_values_that_cannot_be_are_damage_of_the_index(rig: OfflineRig, rng: random.Random) -> None:
    rig.busy(rng)
    rig.stop()
    with lmdb.open(str(rig.data.parent), max_dbs=8, map_size=MAP_BYTES) as environment:
        table = environment.open_db(b"loc")
        with environment.begin(write=True) as transaction:
            transaction.put((1).to_bytes(8, "big"), b"short", db=table)

    with audited(rig.path, quiet) as audit:
        assert "is damaged" in audit.store.report.rebuilt


@pytest.mark.parametrize("how", ["stopped", "crashed"])
@pytest.mark.parametrize("bit", [7, 20, 50])
def test_rows_out_of_order_are_damage_of_the_index(rig: OfflineRig, how: str, bit: int) -> None:
    rig.publish((1,), 30)
    rig.store.checkpoint()
    seqs = [seq for _, seq in rig.rows]
    ended(rig, how)
    data = rig.data.read_bytes()
    rows = [struct.pack(">IQ", 1, seq) for seq in (seqs[9], seqs[9] ^ 1 << bit)]
    assert rows[0] in data
    rig.data.write_bytes(data.replace(*rows))

    with audited(rig.path, quiet) as audit:
        assert "out of order" in audit.store.report.rebuilt
        assert sorted(bodies_of(audit)) == sorted(rig.bodies)


def test_segments_with_a_damaged_header_can_be_read_and_are_told(
    rig: OfflineRig, rng: random.Random
) -> None:
    rig.busy(rng)
    rig.stop()
    flip(rig.segment(1), 30)

    def look(audit: Audit) -> None:
        assert audit.is_sound
        assert len(audit.notes) == 1
        with Segment(audit.store.folder, 1) as segment:
            assert segment.damage

    rig.look(look)


def test_what_is_told_is_what_a_start_makes_of_it(tmp_path: Path, rng: random.Random) -> None:
    """After kills of a process that publishes, acks and makes checkpoints all the time."""
    path = tmp_path / "store"
    for epoch in (1, 3, 5):
        killed_after(tmp_path, epoch, rng.getrandbits(32), rng.choice([30, 600, 2500]))

        with audited(path, quiet) as audit:
            assert audit.is_sound, (audit.store.report, audit)
            assert list(defects_of(audit)) == []
            told = (rows_of(audit), dict(audit.store.locations()), audit.store.report.dropped)
            terms = {no: each.frozen() for no, each in audit.queues.items()}
            assert audit.store.epoch_seen == epoch
        opened = opened_at(path, epoch + 1)
        opened.close()

        with audited(path, quiet) as audit:
            assert (rows_of(audit), dict(audit.store.locations())) == told[:2]
            assert opened.recovered.report.dropped == told[2]
            said = {no: opened.core.memtables.terms[no] for no in terms}
            counts = {no: (each.messages, each.size_bytes) for no, each in said.items()}
            assert counts == {no: (each.messages, each.size_bytes) for no, each in terms.items()}


def test_an_index_that_cannot_be_read_now_is_not_called_damaged(rig: OfflineRig) -> None:
    rig.stop()
    rig.data.unlink()
    rig.data.mkdir()

    with pytest.raises(IsADirectoryError), audited(rig.path, quiet):
        pass
