"""Paged-out transients can be read until they are acked, and leave nothing on the disk.

Tests: msg_store/transient/paged_queue.py,
    msg_store/transient/paging_core.py, msg_store/transient/reader.py,
    msg_store/transient/segment.py, msg_store/transient/writer.py
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.core.system.files import Files
from leveret.msg_store.format.seq_range import SeqRange
from leveret.msg_store.transient.paged_queue import BLOCK, CREDIT, MORE_CREDIT
from leveret.msg_store.transient.segment import Row
from rigs.store.transient_rig import (
    FOLDER,
    READER,
    SMALL,
    WRITER,
    TransientRig,
    entry,
    message,
    row,
)


@pytest.fixture
def rig() -> Iterator[TransientRig]:
    with TransientRig() as rig:
        yield rig
        rig.settle()
        rig.check_usage()
        assert not any(queue.deleting for queue in rig.store._core.queues.values())
        assert rig.failed == []


def test_what_an_earlier_run_has_left_is_wiped() -> None:
    def left_over(files: Files) -> None:
        files.mkdir(FOLDER)
        for name in ("00000001.rdq", "0000abcd.rdq", "index-0001.lmdb", "index-0001.lmdb-lock"):
            files.create(FOLDER / name).close()

    with TransientRig(left_over=left_over) as rig:
        rig.run()

        assert rig.files.names(FOLDER) == []
        rig.page(1, 0)
        rig.run()
        assert rig.read(1, 0) == {0: message("m0")}


def test_a_content_can_be_read_at_each_point_of_its_way(rig: TransientRig) -> None:
    rig.run()
    rig.page(1, 5)
    while True:
        contents, rows = rig.ask(1, 5), rig.ask_rows(1)
        for _ in range(6):
            rig.turn()
            rig.step(READER)
        assert contents == [{5: message("m5")}]
        assert rows == [[row(entry(5))]]
        if rig.store.contents(1, [5]) == [None]:
            break
        rig.turn()
        rig.step(WRITER)


def test_rows_are_those_of_the_contents_in_order_and_up_to_the_limit(rig: TransientRig) -> None:
    entries = [entry(seq, 10, expiry_ms=seq * 7, msg_no=1 << 50 | seq) for seq in range(40)]
    rig.store.page_out(1, entries[10:20][::-1])
    rig.run()
    rig.store.page_out(1, entries[30:])

    expected = [row(each) for each in entries[10:20] + entries[30:]]
    assert rig.rows(1) == expected
    assert rig.rows(1, 12, 35) == [each for each in expected if 12 <= each[0] < 35]
    assert rig.rows(1, limit=13) == expected[:13]
    assert rig.rows(1, 20, 30) == []
    assert rig.rows(2) == []


def test_an_acked_content_goes_and_an_empty_segment_with_it() -> None:
    with TransientRig(limits=SMALL) as rig:
        entries = []
        for seq in range(20):
            entries += rig.page(1, seq, size=100)
            rig.run()
        assert len(rig.rdq_names()) > 3

        rig.store.ack(1, entries[:-1])
        rig.settle()

        assert len(rig.rdq_names()) == 1
        assert rig.rows(1) == [row(entries[-1])]
        assert rig.read(1, 0, 19) == {19: message("m19", 100)}
        rig.check_usage()


def test_what_is_acked_before_it_is_written_never_is(rig: TransientRig) -> None:
    rig.run()
    entries = rig.page(1, 1, 2, 3)
    rig.store.ack(1, entries)
    rig.settle()

    assert rig.rows(1) == []
    assert rig.rdq_names() == []


def test_an_ack_while_it_is_being_written_holds(rig: TransientRig) -> None:
    entries = rig.page(1, 1, 2)
    rig.step_to(WRITER, "contents written")
    rig.store.ack(1, entries[:1])
    rig.settle()

    assert rig.rows(1) == [row(entries[1])]


def test_an_ack_is_done_when_its_call_returns(rig: TransientRig) -> None:
    entries = rig.page(1, *range(1_000))
    rig.run()
    rig.store.ack(1, entries[200:900])
    assert rig.store.stats().live == 300
    rig.store.ack(1, entries[100:250])  # some of them once more
    assert rig.store.stats().live == 200
    rig.store.ack(1, entries[::-1])
    assert rig.store.stats().live == rig.store.stats().live_bytes == 0


def assert_left(rig: TransientRig, seqs: list[int], written: range) -> None:
    """Queue 1 has these rows, of those that were written, before and after all jobs."""
    assert [each[0] for each in rig.rows(1)] == seqs
    rig.settle()
    assert [each[0] for each in rig.rows(1)] == seqs
    assert sorted(rig.read(1, *written)) == seqs


def test_a_range_takes_what_is_on_disk_and_what_waits(rig: TransientRig) -> None:
    rig.page(1, *[seq for seq in range(30) if seq % 3])
    rig.run()
    rig.page(1, *range(30, 40))
    rig.store.ack_range(1, SeqRange(5, 35))

    assert_left(rig, [1, 2, 4, 35, 36, 37, 38, 39], range(40))


@pytest.mark.parametrize("point", ["waiting", "contents written", "end"])
def test_a_range_keeps_some_wherever_they_are(rig: TransientRig, point: str) -> None:
    rig.run()
    rig.page(1, *range(10))
    if point != "waiting":
        rig.step_to(WRITER, point)
    rig.store.ack_range(1, SeqRange(0, 9, [1, 2, 7]))

    assert_left(rig, [1, 2, 7, 9], range(10))


def test_a_long_range_goes_in_slices_and_is_not_seen_meanwhile(
    rig: TransientRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.msg_store.transient.paging_core.DELETE_WORK", 3)
    rig.page(1, *range(5_000))
    rig.run()
    rig.store.ack_range(1, SeqRange(0, 4_000))
    rig.store.ack_range(1, SeqRange(4_003, 4_200))
    answers = rig.ask_rows(1, limit=4)
    live = set()
    while not answers:
        live.add(rig.store.stats().live)
        rig.turn()
        rig.step(READER)

    assert [each[0] for each in answers[0]] == [4_000, 4_001, 4_002, 4_200]
    assert len(live) > 10
    assert min(live) == 803


def test_a_range_keeps_some_and_each_turn_goes_on_where_the_last_one_stopped(
    rig: TransientRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.msg_store.transient.paging_core.DELETE_WORK", 5)
    rig.page(1, *range(1_000))
    rig.run()
    every_second, stretch = range(0, 40, 2), range(50, 990)
    kept = [*every_second, *stretch]

    rig.store.ack_range(1, SeqRange(0, 995, kept))
    turns = 0
    while rig.store._core.queues[1].deleting:
        rig.turn()
        turns += 1

    assert turns <= 6  # one for each block
    rig.settle()
    assert [each[0] for each in rig.rows(1)] == [*kept, *range(995, 1_000)]
    rig.store.ack(1, [entry(seq) for seq in every_second])
    rig.store.ack_range(1, SeqRange(40, 994, stretch[::2]))
    rig.settle()
    assert [each[0] for each in rig.rows(1)] == [*stretch[::2], *range(995, 1_000)]


def test_a_row_that_was_acked_before_its_write_failed_is_not_told(rig: TransientRig) -> None:
    rig.page(1, 100)
    rig.settle()
    entries = rig.page(1, *range(5))
    rig.step_to(WRITER, "contents written")
    rig.store.ack(1, entries[:2])
    answers = rig.ask_rows(1)
    rig.disk.fail("pwrite", OSError(errno.EIO, "no room"), "*.rdq")
    rig.step_to(WRITER, "end")
    rig.run()

    assert [each[0] for each in answers[0]] == [2, 3, 4, 100]


def test_a_row_that_waits_and_is_acked_while_rows_are_read_is_not_told(rig: TransientRig) -> None:
    rig.run()
    entries = rig.page(1, *range(5))
    answers = rig.ask_rows(1)
    rig.store.ack(1, entries[:2])
    rig.run()

    assert [each[0] for each in answers[0]] == [2, 3, 4]


def test_rows_are_those_that_are_left_whatever_went(rig: TransientRig) -> None:
    entries = rig.page(1, *range(1_000))
    rig.settle()
    rig.store.ack(1, entries[10:400])
    rig.store.ack_range(1, SeqRange(400, 995, range(400, 900)))
    rig.store.ack_range(1, SeqRange(400, 900))
    answers = rig.ask_rows(1, limit=15)
    rig.run()

    assert [each[0] for each in answers[0]] == [*range(10), *range(995, 1_000)]


def test_rows_that_are_acked_but_still_there_do_not_count_for_the_limit(rig: TransientRig) -> None:
    entries = rig.page(1, *range(20))
    rig.settle()
    rig.store.ack(1, [*entries[:7], *entries[8:12]])
    rig.page(1, 20, 21, 22)
    answers = rig.ask_rows(1, limit=3)
    for _ in range(20):
        rig.turn()
        rig.step(READER)

    assert [[each[0] for each in answer] for answer in answers] == [[7, 12, 13]]


def test_a_queue_that_begins_anew_never_meets_what_it_had(
    rig: TransientRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.msg_store.transient.paging_core.DELETE_WORK", 1)
    rig.page(1, *range(20))
    rig.page(2, 1)
    rig.run()
    asked, read = rig.ask_rows(1), rig.ask(1, 3)
    rig.store.drop_queue(1)
    assert not rig.store.holds(1)
    assert rig.rows(1) == []
    assert rig.read(1, 3) == {}
    assert asked == read == []  # the queue has gone

    again = rig.page(1, 3, size=50)
    assert rig.rows(1) == [row(again[0])]
    rig.settle()

    assert rig.rows(1) == [row(again[0])]
    assert rig.read(1, 2, 3) == {3: message("m3", 50)}
    assert rig.rows(2) == [row(entry(1))]
    assert rig.store.stats().live == 2


def test_rows_asked_of_an_empty_queue_are_not_those_of_its_next_life(rig: TransientRig) -> None:
    answers = rig.ask_rows(1)

    rig.store.drop_queue(1)
    rig.page(1, 0, 1)
    rig.run()

    assert answers == []


def test_dropping_a_queue_whose_contents_are_being_written_leaves_nothing(
    rig: TransientRig,
) -> None:
    rig.page(1, 1, 2)
    rig.step_to(WRITER, "contents written")
    rig.store.drop_queue(1)
    rig.settle()

    assert rig.store.stats().live == 0


@pytest.mark.parametrize("said", ["before", "between", "after"])
def test_what_is_said_while_rows_are_read_counts(rig: TransientRig, said: str) -> None:
    entries = rig.page(1, *range(10))
    rig.settle()

    def say() -> None:
        rig.store.ack(1, entries[:3])
        rig.store.ack_range(1, SeqRange(5, 7))
        rig.page(1, 10, 11)

    if said == "before":
        say()
    answers = rig.ask_rows(1)
    if said == "between":
        say()
        rig.loop.clock.jump(1.0)
        for _ in range(20):  # all of it reaches the disk before the reader does
            rig.turn()
            rig.step(WRITER)
    rig.step_to(READER, "rows read")
    if said == "after":
        say()
        rig.loop.clock.jump(1.0)
        for _ in range(20):
            rig.turn()
            rig.step(WRITER)
    rig.run()

    assert [each[0] for each in answers[0]] == [3, 4, 7, 8, 9, 10, 11]


def test_a_content_that_moves_while_it_is_read_is_read() -> None:
    with TransientRig(limits=SMALL) as rig:
        fillers = []
        for number in range(10):
            rig.page(1, number, size=30)
            fillers += rig.page(2, number, size=500)
            rig.run()
        rig.store.ack(2, fillers)
        before = rig.rdq_names()
        rig.step_to(READER, "contents read")  # on their way into another segment
        answers = rig.ask(1, *range(10))
        rig.turn()
        rig.step_to(READER, "end")
        for _ in range(200):
            rig.turn()
            rig.step(WRITER)
        assert {*before} - {*rig.rdq_names()}

        rig.run()
        assert answers == [{seq: message(f"m{seq}", 30) for seq in range(10)}]
        assert rig.lost == []
        rig.check_usage()


def test_a_message_that_is_acked_while_it_moves_is_gone() -> None:
    with TransientRig(limits=SMALL) as rig:
        kept, fillers = [], []
        for number in range(10):
            kept += rig.page(1, number, size=30)
            fillers += rig.page(2, number, size=500)
            rig.run()
        rig.store.ack(2, fillers)
        rig.step_to(READER, "contents read")
        rig.store.ack(1, kept)
        rig.settle()

        assert rig.rows(1) == []
        assert rig.store.stats().live == 0
        rig.check_usage()


def test_garbage_stays_bounded_whatever_a_slow_queue_keeps() -> None:
    with TransientRig(limits=SMALL) as rig:
        for number in range(200):
            rig.page(1, number, size=20)
            filler = rig.page(2, number, size=300)
            rig.run()
            rig.store.ack(2, filler)
            rig.loop.clock.jump(0.2)
            rig.run()
            stats = rig.store.stats()
            worst = max(2 * stats.live_bytes, 2 * SMALL.file_bytes) + 2 * SMALL.file_bytes
            assert stats.disk_bytes <= worst

        assert len(rig.rows(1)) == 200
        assert rig.read(1, *range(200)) == {n: message(f"m{n}", 20) for n in range(200)}
        rig.check_usage()


def test_messages_in_rows_that_follow_each_other_cost_a_byte_of_ram(rig: TransientRig) -> None:
    """And four where they do not; the garbage collector is told of neither."""
    rig.page(1, *range(10 * BLOCK))
    rig.run()
    blocks = rig.store._core.queues[1].blocks
    assert [type(each) for each in blocks.values()].count(range) >= 6  # all but where a job began

    rig.store.ack(1, [entry(3)])
    assert type(blocks[0]).__name__ == "array"
    assert [each[0] for each in rig.rows(1, limit=4)] == [0, 1, 2, 4]
    rig.store.ack(1, [entry(seq) for seq in range(BLOCK)])
    assert 0 not in blocks


def test_acks_in_any_order_leave_the_others(rig: TransientRig) -> None:
    entries = rig.page(1, *range(0, 3_000, 3)) + rig.page(1, *range(1, 3_000, 3))
    rig.run()
    shuffled = rig.rng.sample(entries, len(entries))
    for at in range(0, 1_500, 50):
        rig.store.ack(1, shuffled[at : at + 50])

    left = sorted(each[0] for each in shuffled[1_500:])
    assert [each[0] for each in rig.rows(1)] == left
    assert sorted(rig.read(1, *range(3_000))) == left


def test_seqs_that_only_begin_and_end_like_a_run_are_none(rig: TransientRig) -> None:
    entries = {each[0]: each for each in rig.page(1, 0, 2, 1, 3, 4, 9, 6, 7, 5)}
    rig.run()
    assert rig.read(1, *range(10)) == {seq: each[1] for seq, each in entries.items()}

    rig.store.ack(1, [entries[seq] for seq in (0, 9, 2, 3)])

    assert [each[0] for each in rig.rows(1)] == [1, 4, 5, 6, 7]


def test_many_queues_with_few_messages_share_a_file(rig: TransientRig) -> None:
    for no in range(500):
        rig.page(no, 7)
    rig.run()

    assert len(rig.rdq_names()) == 1
    for no in range(0, 500, 50):
        assert rig.read(no, 7) == {7: message("m7")}
    assert len(rig.disk.open_files) == 2


def test_origin_and_head_are_shared_by_what_is_read_together(rig: TransientRig) -> None:
    rig.page(1, *range(4))
    rig.run()

    found = rig.read(1, *range(4))

    assert found[0][0] is found[3][0]
    assert found[0][1] is found[3][1]


# Credit.


def test_a_queue_gets_4000_and_800_more_when_800_are_written(rig: TransientRig) -> None:
    rig.run()
    entries = [entry(seq, 5) for seq in range(CREDIT + 500)]
    assert rig.store.page_out(1, entries) == CREDIT
    assert rig.store.page_out(1, entries[CREDIT:]) == 0
    assert rig.store.page_out(2, entries[:10]) == 10
    rig.step_to(WRITER, "end")
    rig.turn()
    assert rig.credited == [1]

    assert rig.store.page_out(1, entries[CREDIT:]) == 500
    assert rig.store.page_out(1, [entry(9_000 + seq) for seq in range(1_000)]) == MORE_CREDIT - 500


def test_what_must_be_taken_is_owed(rig: TransientRig) -> None:
    rig.run()
    rig.page(1, *range(CREDIT + MORE_CREDIT))
    assert rig.store.page_out(1, [entry(9_000)]) == 0
    rig.step_to(WRITER, "end")
    rig.turn()
    assert rig.credited == []
    rig.run()
    assert rig.credited == [1]
    assert rig.store.page_out(1, [entry(9_000)]) == 1


def test_acks_give_credit_back_as_well(rig: TransientRig) -> None:
    rig.run()
    entries = rig.page(1, *range(CREDIT))
    assert rig.store.page_out(1, [entry(9_000)]) == 0
    rig.store.ack(1, entries)
    rig.run()

    assert rig.credited == [1]


def test_all_queues_together_have_so_many_bytes_waiting() -> None:
    with TransientRig(limits=SMALL) as rig:
        rig.run()
        taken = [rig.store.page_out(no, [entry(seq, 400) for seq in range(4)]) for no in range(5)]
        assert taken == [4, 4, 4, 1, 0]  # the last one taken may pass the limit
        assert rig.store.stats().waiting_bytes == 13 * 400

        rig.run()

        assert rig.credited == [3, 4]
        assert rig.store.stats().waiting_bytes == 0


def test_real_threads_and_a_real_folder(tmp_path: Path) -> None:
    import asyncio
    import threading

    from leveret.msg_store.format.file_header import Identity
    from leveret.msg_store.transient.paging_core import Limits
    from leveret.msg_store.transient.store import TransientStore

    async def run() -> None:
        loop = asyncio.get_running_loop()
        written = asyncio.Event()  # half of it is, then
        store = TransientStore(
            Files(), tmp_path / "transient", Identity(bytes(16), 1),
            loop, lambda: 1, lambda _: written.set(), lambda *_: None, lambda _: None,
            Limits(waiting_bytes=299_999),
        )  # fmt: skip
        entries = [entry(seq, 100) for seq in range(3_000)]
        assert store.page_out(1, entries) == 3_000
        assert store.page_out(1, [entry(3_000)]) == 0
        rows: asyncio.Future[list[Row]] = loop.create_future()
        store.rows(1, 0, 5_000, 5_000, rows.set_result)
        contents: asyncio.Future[dict[int, object]] = loop.create_future()
        await asyncio.wait_for(written.wait(), 30)
        store.read(1, range(3_000), contents.set_result)
        assert await asyncio.wait_for(rows, 30) == [row(each) for each in entries]
        assert await asyncio.wait_for(contents, 30) == {each[0]: each[1] for each in entries}
        store.drop_queue(1)
        store.close()

    asyncio.run(run())

    assert not [each for each in threading.enumerate() if "transient" in each.name]
