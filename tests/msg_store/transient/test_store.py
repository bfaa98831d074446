"""Paged-out transients can be read until they are acked, and leave nothing on the disk."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.core.system.files import Files
from leveret.msg_store.format.seq_range import SeqRange, rows_outside
from leveret.msg_store.transient.index import Row
from leveret.msg_store.transient.paged_queue import CREDIT, MORE_CREDIT
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
        for name in ("00000001.rdq", "0000abcd.rdq"):
            files.create(FOLDER / name).close()

    with TransientRig(left_over=left_over) as rig:
        rig.run()

        assert rig.rdq_names() == []
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


def test_acks_linger_but_a_dropped_queue_does_not(rig: TransientRig) -> None:
    entries = rig.page(1, 1, 2)
    rig.page(2, 1)
    rig.run()
    rig.store.ack(1, entries)
    rig.run()
    assert rig.store.figures().live == 3

    rig.loop.clock.jump(0.2)
    rig.run()
    assert rig.store.figures().live == 1

    rig.store.drop_queue(2)
    rig.run()
    assert rig.store.figures().live == 0


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
    monkeypatch.setattr("leveret.msg_store.transient.writer.DELETE_KEYS", 3)
    rig.page(1, *range(50))
    rig.run()
    rig.store.ack_range(1, SeqRange(0, 40))
    rig.store.ack_range(1, SeqRange(45, 47))
    live = set()
    for _ in range(200):
        rig.turn()
        rig.step(WRITER)
        live.add(rig.store.figures().live)
        answers = rig.ask_rows(1, limit=4)
        rig.step_to(READER, "end")
        rig.turn()
        assert [each[0] for each in answers[0]] == [40, 41, 42, 43]

    assert len(live) > 10
    assert min(live) == 8


def test_a_range_keeps_some_and_each_job_goes_on_where_the_last_one_stopped(
    rig: TransientRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.msg_store.transient.writer.DELETE_KEYS", 5)
    rig.page(1, *range(1_000))
    rig.run()
    every_second, stretch = range(0, 40, 2), range(50, 990)
    kept = [*every_second, *stretch]
    jobs = []
    delete = rig.index.delete
    monkeypatch.setattr(rig.index, "delete", lambda *job: jobs.append(job) or delete(*job))

    rig.store.ack_range(1, SeqRange(0, 995, kept))
    while rig.store.figures().live > len(kept) + 5:
        assert [each[0] for each in rig.rows(1, limit=30)] == kept[:30]
        rig.turn()
        rig.step(WRITER)
    rig.settle()

    assert len(jobs) == 12  # 40 looks, one behind the kept ones, those between and behind, the end
    assert [each[0] for each in rig.rows(1)] == [*kept, *range(995, 1_000)]
    rig.store.ack(1, [entry(seq) for seq in every_second])
    rig.store.ack_range(1, SeqRange(40, 994, stretch[::2]))
    rig.settle()
    assert [each[0] for each in rig.rows(1)] == [*stretch[::2], *range(995, 1_000)]


def test_a_read_does_not_copy_the_acks_that_wait(rig: TransientRig) -> None:
    entries = rig.page(1, *range(1_000))
    rig.settle()
    rig.store.ack(1, entries[:990])

    answers = rig.ask_rows(1)

    queue = rig.store._core.queues[1]
    assert not queue.reads[0].acked
    rig.step_to(READER, "rows read")
    rig.loop.clock.jump(1.0)
    while queue.acks or queue.acks_in_flight:  # they are forgotten before the read is told
        rig.turn()
        rig.step(WRITER)
    rig.run()
    assert [each[0] for each in answers[0]] == [*range(990, 1_000)]


def test_a_row_that_was_acked_before_its_write_failed_is_not_told(rig: TransientRig) -> None:
    rig.page(1, 100)
    rig.settle()
    entries = rig.page(1, *range(5))
    rig.step_to(WRITER, "contents written")
    rig.store.ack(1, entries[:2])
    answers = rig.ask_rows(1)
    rig.index.fail(OSError(errno.EIO, "no room"))
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


def test_a_read_looks_once_at_each_row_that_goes(
    rig: TransientRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    monkeypatch.setattr(
        "leveret.msg_store.transient.paged_queue.rows_outside",
        lambda rows, ranges: looks.append(len(rows)) or rows_outside(rows, ranges),
    )
    entries = rig.page(1, *range(1_000))
    rig.settle()
    rig.store.ack(1, entries[10:400])
    rig.store.ack_range(1, SeqRange(400, 995, range(400, 900)))
    rig.store.ack_range(1, SeqRange(400, 900))
    answers = rig.ask_rows(1, limit=15)
    while not answers:
        rig.turn()
        rig.step(READER)

    assert [each[0] for each in answers[0]] == [*range(10), *range(995, 1_000)]
    assert sum(looks) < 3 * len(entries)


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
    monkeypatch.setattr("leveret.msg_store.transient.writer.DELETE_KEYS", 3)
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
    assert rig.store.figures().live == 2


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

    assert rig.store.figures().live == 0


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
        kept = []
        for number in range(10):
            kept += rig.page(1, number, size=30)
            filler = rig.page(2, number, size=500)
            rig.run()
            rig.store.ack(2, filler)
        answers = rig.ask(1, *range(10))
        rig.step_to(READER, "looked up")
        before = rig.rdq_names()
        rig.loop.clock.jump(1.0)
        for _ in range(200):
            rig.turn()
            rig.step(WRITER)
        assert set(before) - set(rig.rdq_names())

        rig.run()
        assert answers == [{seq: message(f"m{seq}", 30) for seq in range(10)}]
        assert "moved" in rig.points
        assert rig.lost == []
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
            figures = rig.store.figures()
            worst = max(2 * figures.live_bytes, 2 * SMALL.file_bytes) + 2 * SMALL.file_bytes
            assert figures.disk_bytes <= worst

        assert len(rig.rows(1)) == 200
        assert rig.read(1, *range(200)) == {n: message(f"m{n}", 20) for n in range(200)}
        rig.check_usage()


def test_origin_and_head_are_shared_by_what_is_read_together(rig: TransientRig) -> None:
    rig.page(1, *range(4))
    rig.run()

    found = rig.read(1, *range(4))

    assert found[0][0] is found[3][0]
    assert found[0][1] is found[3][1]


def test_an_index_that_was_large_and_is_empty_is_made_anew(
    rig: TransientRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.msg_store.transient.writer.SHRINK_BYTES", 200_000)
    entries = rig.page(1, *range(5_000), size=0)
    rig.settle()
    names = sorted(path.name for path in rig.index._folder.iterdir())
    assert rig.index.used_bytes > 300_000
    rig.store.ack(1, entries[1:])
    rig.settle()
    assert rig.index.used_bytes > 300_000
    asked = rig.ask(1, *range(10))
    rig.step_to(READER, "looked up")
    rig.store.ack(1, entries[:1])
    rig.settle()

    assert rig.index.used_bytes < 50_000
    assert len(names) == 2
    assert set(names).isdisjoint(path.name for path in rig.index._folder.iterdir())
    assert len(list(rig.index._folder.iterdir())) == 2
    assert asked[0].keys() <= {0}
    assert rig.lost == []
    rig.page(1, 6_000)
    assert rig.rows(1) == [row(entry(6_000))]


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
        assert rig.store.figures().waiting_bytes == 13 * 400

        rig.run()

        assert rig.credited == [3, 4]
        assert rig.store.figures().waiting_bytes == 0


def test_real_threads_and_a_real_folder(tmp_path: Path) -> None:
    import asyncio
    import threading

    from leveret.msg_store.format.ballast import Ballast
    from leveret.msg_store.format.file_header import Identity
    from leveret.msg_store.transient.index import Limits
    from leveret.msg_store.transient.store import TransientStore

    async def run() -> None:
        loop = asyncio.get_running_loop()
        written = asyncio.Event()  # half of it is, then
        store = TransientStore(
            Files(), tmp_path / "transient", Identity(bytes(16), 1), Ballast(Files(), tmp_path),
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
