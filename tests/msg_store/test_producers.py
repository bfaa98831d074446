"""Sequences of producers in the store: they are there with their rows, or neither is, whatever happens.

Tests: msg_store/wal/producers.py
"""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp.properties import Properties, head_of
from leveret.core.message import origin_of
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.journal_records import (
    ProducerSeqs,
    decode_records,
    encode_producer,
)
from leveret.msg_store.format.rows import Batch, IndexFull, ProducerRow, QueueTerms
from leveret.msg_store.index.lmdb_index import LmdbIndex
from leveret.msg_store.producers import QueueProducers
from leveret.msg_store.wal.flush import SLICE_OPS
from leveret.msg_store.wal.pending import PendingQueue
from leveret.msg_store.wal.producers import NO_SEQUENCES, SLICE_SEQUENCES, PendingSequences
from rigs.disk.faulty_files import FOR_EVER, Fate, FaultyCalls
from rigs.store.store_rig import StoreRig

UUID = b"0123456789abcdef"


@pytest.fixture
def rig(rng: random.Random) -> StoreRig:
    made = StoreRig(rng)
    made.has_producers = True
    return made


def killed(disk: FaultyCalls) -> None:
    disk.kill()


def known(rig: StoreRig, queue_no: int = 1) -> dict[bytes, ProducerRow]:
    return rig.recovered.producers.get(queue_no, {})


def last(rig: StoreRig, queue_no: int = 1) -> int:
    """The highest sequence that any producer of a queue has; the rig numbers messages by ``msg_no``."""
    return max([row[1] for row in known(rig, queue_no).values()], default=-1)


ids = st.binary(min_size=1, max_size=255)
u64 = st.integers(0, (1 << 64) - 1)


@given(
    queue_no=st.integers(0, (1 << 32) - 1),
    levels=st.integers(1, 255),
    producer=ids,
    epoch=u64,
    used_ms=u64,
    pairs=st.lists(st.tuples(u64, u64), max_size=20),
)
def test_a_record_is_read_as_it_was_written_and_never_cut_off(
    queue_no: int,
    levels: int,
    producer: bytes,
    epoch: int,
    used_ms: int,
    pairs: list[tuple[int, int]],
) -> None:
    rows, seqs = [row for row, _ in pairs], [seq for _, seq in pairs]
    data = encode_producer(ProducerSeqs(queue_no, levels, producer, epoch, used_ms, rows, seqs))

    (record,) = decode_records(data, 1)

    assert isinstance(record, ProducerSeqs)
    assert (record.queue_no, record.levels, record.producer) == (queue_no, levels, producer)
    assert (record.epoch, record.used_ms) == (epoch, used_ms)
    assert (list(record.row_seqs), list(record.seqs)) == (rows, seqs)
    with pytest.raises(Corrupt):
        list(decode_records(data[:-1], 1))


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_sequences_survive_a_kill_when_their_rows_are_on_disk(
    rig: StoreRig, is_checkpointed: bool
) -> None:
    numbers = rig.publish((1, 2), 3)
    rig.run()
    if is_checkpointed:
        rig.checkpoint()
    not_flushed = rig.publish((1,), 2)

    rig.crash(killed)

    assert last(rig) == last(rig, 2) == numbers[-1] < not_flushed[0]


def test_acks_and_checkpoints_leave_the_sequences(rig: StoreRig) -> None:
    numbers = rig.publish((1,), 3)
    rig.run()
    rig.checkpoint()
    rig.ack(*rig.held)
    rig.run()
    for _ in range(3):
        rig.publish((2,), 1)
        rig.run()
        rig.checkpoint()  # the journals that had them are gone

    rig.crash(killed)

    assert last(rig) == numbers[-1]


def test_sequences_survive_a_clean_stop(rig: StoreRig) -> None:
    numbers = rig.publish((1,), 3)
    rig.run()

    rig.stop()

    assert last(rig) == numbers[-1]


def test_a_sequence_goes_with_the_flush_that_takes_its_row(rig: StoreRig) -> None:
    rig.has_producers = False
    rig.publish((1,), SLICE_OPS - 5)
    rig.has_producers = True
    numbers = rig.publish((1,), 10)
    rig.run_flush()
    rig.jobs.clear()

    rig.crash(killed)

    assert last(rig) == numbers[4]


def test_a_flush_takes_few_sequences_and_the_rows_that_go_with_them(rig: StoreRig) -> None:
    rig.publish((1,), 1)
    rig.run()
    numbers = rig.publish((1,), SLICE_SEQUENCES + 5)
    report = rig.run_flush()
    rig.jobs.clear()

    rig.crash(killed)

    assert sum(count for _, _, count in report.safe) == SLICE_SEQUENCES
    assert last(rig) == numbers[SLICE_SEQUENCES - 1]


def test_sequences_without_rows_go_in_several_flushes(rig: StoreRig) -> None:
    numbers = range(2 * SLICE_SEQUENCES + 5)
    rig.core.produced(1, 1, [(0, b"straight", 0, number, 7) for number in numbers])
    left = []
    for _ in range(3):
        rig.run_flush()
        left.append(rig.core.pending_ops)

    rig.crash(killed)

    assert left == [SLICE_SEQUENCES + 5, 5, 0]
    assert last(rig) == numbers[-1]


def test_a_queue_does_not_wait_for_the_sequences_of_others(rig: StoreRig) -> None:
    rig.publish((1, 2, 3), 1)
    rig.run()
    rig.publish((1,), 3 * SLICE_SEQUENCES)
    rig.publish((2,), 2 * SLICE_SEQUENCES)
    (number,) = rig.publish((3,), 1)
    rig.run_flush()
    rig.jobs.clear()

    rig.crash(killed)

    assert last(rig, 3) == number


def test_a_sequence_whose_row_was_acked_early_is_written_all_the_same(rig: StoreRig) -> None:
    (number,) = rig.publish((1,), 1)
    rig.ack(*rig.held)
    rig.run()

    rig.crash(killed)

    assert last(rig) == number
    assert rig.found() == {}


def test_no_sequence_overtakes_an_older_one_whose_row_waits(rig: StoreRig) -> None:
    rig.publish((1,), 1)
    rig.run()
    numbers = rig.publish((1,), SLICE_SEQUENCES + 1)
    rig.core.produced(1, 1, [(0, b"straight", 0, 9, 7)])  # it went to a consumer and has no row
    rig.run_flush()

    rig.crash(killed)

    assert b"straight" not in known(rig)
    assert last(rig) == numbers[SLICE_SEQUENCES - 1]


def test_seqs_that_no_float_holds_are_told_apart() -> None:
    waits = (1 << 53) + 1
    sequences, pending = PendingSequences(), PendingQueue()
    pending.rows[waits] = (1, 0)
    sequences.add(1, 1, [(seq, b"p", 1, seq, 0) for seq in (waits - 1, waits)])

    [(_, taken)] = sequences.take({1: pending}, NO_SEQUENCES)

    assert [each[0] for each in taken.waiting] == [waits - 1]


@pytest.mark.parametrize("first", [0, 7], ids=["first rows", "later rows"])
def test_the_rows_of_a_queue_with_priorities_are_taken_together(rig: StoreRig, first: int) -> None:
    core, many = rig.core, SLICE_SEQUENCES - 1
    numbers = [*rig.write((5,), many), *rig.write((5,), 3)]
    core.publish(6, first, [(no, 0) for no in numbers[:many]], routed_as=5)
    core.publish(5, first + many, [(no, 0) for no in numbers[many:]], routed_as=5)
    rig.rows.update({(6, first + at): no for at, no in enumerate(numbers[:many])})
    rig.rows.update({(5, first + many + at): no for at, no in enumerate(numbers[many:])})
    core.produced(5, 2, [(first + at, b"p", 0, no, 7) for at, no in enumerate(numbers)])

    report = rig.run_flush()

    taken = sum(count for _, _, count in report.safe)
    assert taken == (SLICE_SEQUENCES if first else len(numbers))
    rig.crash(killed)
    assert last(rig, 5) == numbers[taken - 1]


def test_no_row_of_a_queue_with_priorities_overtakes_an_older_sequence(rig: StoreRig) -> None:
    core, first, many = rig.core, 7, SLICE_OPS - 1
    plain = rig.write((5,), many)
    older, newer = rig.write((5,), 2)
    rows = {(6, first + at): no for at, no in enumerate(plain)}
    rows |= {(5, first + many): older, (6, first + many + 1): newer}
    for (level, seq), no in rows.items():
        core.publish(level, seq, [(no, 0)], routed_as=5)
    rig.rows.update(rows)
    core.produced(
        5, 2, [(first + many + at, b"p", 0, no, 7) for at, no in enumerate((older, newer))]
    )
    rig.run_flush()

    rig.crash(killed)

    assert last(rig, 5) == newer


@pytest.mark.parametrize("is_index_full", [False, True])
@pytest.mark.parametrize("is_killed_again", [False, True])
def test_a_lost_message_takes_its_sequence_back_and_later_rows_of_its_producer_with_it(
    rng: random.Random, is_killed_again: bool, is_index_full: bool
) -> None:
    """Also when the start could not write that to the index, and the next one reads the journal again."""
    rig = StoreRig(rng, inline_bytes_max=0)
    rig.has_producers = True
    before = rig.publish((1,), 2)
    rig.run()
    rig.publish((1,), 3)
    rig.start()
    while "journal" in rig.jobs:
        rig.step("journal")
    fates = {".rdq": Fate.LOST, ".jnl": Fate.KEPT}
    if is_index_full:
        rig.location.index.fail(IndexFull("full"))
    rig.crash(lambda disk: disk.power_cut(lambda path: fates.get(path.suffix, Fate.KEPT)))
    assert len(rig.recovered.report.dropped) == 3
    if is_killed_again:
        rig.crash(killed)

    assert last(rig) == before[-1]
    assert set(rig.found().values()) == set(before)


def test_later_rows_of_a_producer_go_with_a_lost_message_though_theirs_are_whole(
    rng: random.Random,
) -> None:
    """In segments of their own. The publisher sends them again: it is told the last sequence before the lost one."""
    rig = StoreRig(rng, inline_bytes_max=0, rdq_file_bytes=1)
    rig.has_producers = True
    before = rig.publish((1,), 2)
    rig.run()
    lost, *_ = rig.publish((1,), 3)
    rig.run_flush()

    def flip(image: bytearray) -> None:
        image[image.index(rig.bodies[lost])] ^= 1

    rig.disk.kill()
    rig.disk.damage(rig.folder.rdq_path(rig.folder.rdq_nos()[2]), flip)
    rig.open()

    assert len(rig.recovered.report.dropped) == 3
    assert last(rig) == before[-1]
    assert set(rig.found().values()) == set(before)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_shortage_keeps_sequences_and_rows_together(rig: StoreRig, is_killed: bool) -> None:
    rig.publish((2,), 1)
    rig.run()
    numbers = rig.publish((1,), 3)
    fault = rig.disk.fail("writev", OSError(errno.ENOSPC, "full"), "*", times=FOR_EVER)
    rig.start()
    rig.finish_flush()
    assert {rig.rows[key] for key in rig.nacked} == set(numbers)
    later = rig.publish((1,), 1)
    fault.end()
    if not is_killed:
        rig.run()

    rig.crash(killed)

    assert last(rig) == (-1 if is_killed else later[-1])


def test_a_forgotten_producer_stays_forgotten(rig: StoreRig) -> None:
    rig.publish((1,), 1)
    rig.core.produced(1, 1, [(0, b"q", 2, 5, 7)])
    rig.run()
    rig.checkpoint()
    rig.core.produced(1, 1, [(0, b"q", 2, -1, 7)])
    rig.run()
    rig.crash(killed)
    assert b"q" not in known(rig)
    rig.checkpoint()

    rig.crash(killed)

    assert b"q" not in known(rig)
    assert known(rig)


def test_the_sequences_of_a_deleted_queue_go_with_it(rig: StoreRig) -> None:
    rig.publish((1, 2), 3)
    rig.run()
    rig.checkpoint()
    rig.publish((1,), 2)
    rig.core.delete_queue(1)
    rig.acked.update(key for key in rig.rows if key[0] == 1)
    rig.sent = {key: sent for key, sent in rig.sent.items() if key[0] != 1}
    rig.run()
    rig.checkpoint()

    rig.crash(killed)

    assert not known(rig)
    assert known(rig, 2)


def test_the_index_gets_no_sequences_of_a_queue_that_is_deleted_meanwhile(rig: StoreRig) -> None:
    rig.publish((1, 2), 3)
    rig.run()
    rig.core.delete_queue(1)
    rig.run()

    assert {queue_no for queue_no, _ in rig.core.rotate().producers} == {2}


def test_a_rebuild_takes_the_sequences_from_the_messages(rig: StoreRig) -> None:
    def head(seq: int, **more: object) -> bytes:
        fields = {"x-producer-id": ("S", b"p"), "x-producer-seq": ("l", seq), **more}
        return head_of(Properties(headers=fields, delivery_mode=2), 4)  # type: ignore[arg-type]

    heads = [head(4), head(9), head(2, **{"x-producer-epoch": ("l", 1)})]
    dead = head(90, **{"x-producer-epoch": ("l", 1), "x-death": ("A", [])})
    messages = [(origin_of(b"", b"q"), each, b"body") for each in [*heads, dead, b"head"]]
    first = rig.core.write(messages, (1,))
    rig.core.publish(1, rig.recovered.next_no, [(first + at, 0) for at in range(5)])
    rig.rows.update({(1, rig.recovered.next_no + at): first + at for at in range(5)})
    rig.written[1] = set(range(first, first + 5))
    rig.bodies.update(dict.fromkeys(range(first, first + 5), b"body"))
    for _ in range(
        3
    ):  # the first journal goes, and without the index nothing but the segments is left
        rig.run()
        rig.checkpoint()
        rig.publish((2,), 1)

    rig.crash_without_index()

    assert rig.recovered.report.rebuilt
    assert {producer: row[:2] for producer, row in known(rig).items()} == {b"p": (1, 2)}


def test_a_message_that_is_reclaimed_brings_its_sequence(rig: StoreRig) -> None:
    """The publisher may not know that it was confirmed, and send it again."""
    fields = {"x-producer-id": ("S", b"p"), "x-producer-seq": ("l", 7)}
    head = head_of(Properties(headers=fields, delivery_mode=2), 4)  # type: ignore[arg-type]
    first = rig.core.write([(origin_of(b"", b"q"), head, b"body")], (1,))
    rig.core.publish(1, rig.recovered.next_no, [(first, 0)])
    rig.run()
    rig.opened.mark.write(rig.core.durable)
    for file_no in rig.folder.journal_nos():
        rig.files.unlink(rig.folder.journal_path(file_no))
    rig.disk.kill()
    rig.open()

    assert list(rig.found().values()) == [first]
    assert known(rig)[b"p"][:2] == (0, 7)
    rig.disk.kill()
    rig.open()
    assert known(rig)[b"p"][:2] == (0, 7)


def test_the_index_keeps_producers_until_they_or_their_queue_go(tmp_path: Path) -> None:
    index = LmdbIndex(tmp_path / "index", UUID)
    index.write(
        Batch(
            producers={(1, b"a"): (0, 5, 7), (1, b"b" * 255): (3, 0, 8), (2, b"a"): (0, 1, 9)},
            queues=[(1, QueueTerms(1, 0, 0, 0, False))],
        )
    )
    index.write(Batch(producers={(1, b"a"): None, (2, b"a"): (1, 2, 10)}))
    assert index.producers() == {1: {b"b" * 255: (3, 0, 8)}, 2: {b"a": (1, 2, 10)}}
    index.close()

    again = LmdbIndex(tmp_path / "index", UUID, is_readonly=True)
    assert again.producers()[2] == {b"a": (1, 2, 10)}
    again.close()
    index = LmdbIndex(tmp_path / "index", UUID)
    index.write(Batch(queues=[(1, None)], producers={(1, b"c"): (0, 1, 7)}))
    assert index.producers().keys() == {2}
    index.close()


def test_a_queue_that_begins_again_finds_what_was_issued(rig: StoreRig) -> None:
    rows = rig.recovered.producers
    producers = QueueProducers(rig.core, rows, 1, 1)
    producers.changed([(0, b"a", 1, 2, 3), (0, b"b", 1, 2, 3), (0, b"a", 1, -1, 3)])

    again = QueueProducers(rig.core, rows, 1, 1)

    assert again.entries() == {b"b": (1, 2, 3)}
    assert len(again) == 1
