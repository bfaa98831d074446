"""Queues over a real store with damage on its disk: which messages are lost, and where that is reported."""

from __future__ import annotations

import json
import random

import pytest

from leveret.core.message import BODY
from leveret.msg_store.format.rows import IndexDamaged
from rigs.queues.stored_rig import (
    STORE,
    StoreBench,
    StoredQueue,
    bodies,
    fetch_all,
    publish,
    take,
)
from rigs.queues.variable_rig import ON_DISK, SMALL, UNBOUNDED, message


def flip(bench: StoreBench, at: int) -> None:
    (path,) = [path for path in bench.disk.paths() if path.suffix == ".rdq"]

    def change(image: bytearray) -> None:
        image[at] ^= 0x10

    bench.disk.damage(path, change)


def reports(bench: StoreBench) -> list[dict]:
    folder = STORE / "quarantine"
    names = [name for name in bench.files.names(folder) if name.startswith("lost-")]
    return [json.loads(bench.files.read(folder / name)) for name in names]


@pytest.mark.parametrize("mode", ["default", "lazy"])
def test_a_damaged_message_is_passed_over_and_reported(
    mode: str, bench: StoreBench, caplog: pytest.LogCaptureFixture
) -> None:
    queue = StoredQueue(bench, limits=SMALL, target=ON_DISK, mode=mode)
    publish(queue, 10)
    bench.idle_disk()
    (_, offset, length, *_) = (
        bench.store.memtables.location(bench.rows(1)[4][1])
        or (bench.location.index.by_msg_no[bench.rows(1)[4][1]])
    )
    flip(bench, offset + length - 1)
    bench.crash()

    queue.begin()
    queue.set_target(ON_DISK)
    got = fetch_all(queue)
    bench.run()

    assert [seq for seq, _ in got] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    (report,) = reports(bench)
    assert report["queue_no"] == 1
    assert [row[0] for row in report["lost"]] == [4]
    assert "checksum" in report["lost"][0][2]
    assert "messages lost" in caplog.text
    queue.queue.ack([seq for seq, _ in got])
    bench.idle_disk()
    assert not bench.rows(1)
    assert bench.store.stats().contents_lost == 1


def test_what_was_purged_while_it_was_read_is_not_lost(
    rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    """Its segment goes once nothing in it is needed, and a read on its way finds nothing."""
    bench = StoreBench(rng, rdq_file_bytes=300, checkpoint_rows=4)
    queue = StoredQueue(bench, limits=SMALL, target=ON_DISK, mode="lazy")
    publish(queue, 9)
    queue.settle()
    bench.idle_disk()

    while bench.store.contents.is_idle:  # asked for its rows, then for their contents
        queue.queue.fetch(1, UNBOUNDED, ack_required=True)
        bench.loop.step()
        bench.loop.turn()
    queue.queue.purge()
    for file_no in bench.opened.folder.rdq_nos()[:-1]:
        bench.files.unlink(bench.opened.folder.rdq_path(file_no))
        bench.store.contents.segments_removed([file_no])
    bench.idle_disk()

    assert bench.store.contents.is_idle
    assert bench.store.stats().contents_lost == 0
    assert not reports(bench)
    assert "lost" not in caplog.text
    bench.close()


def test_a_missing_segment_costs_its_messages_in_every_queue_and_no_others(
    rng: random.Random,
) -> None:
    bench = StoreBench(rng, rdq_file_bytes=400, checkpoint_rows=4)
    queues = [StoredQueue(bench, number, SMALL, ON_DISK) for number in (1, 2)]
    for batch in range(10):
        messages = [message(9, batch)]
        first = bench.store.write(messages, (1, 2))
        for queue in queues:
            queue.queue.publish(messages, True, first_msg_no=first)
        bench.run()
    for queue in queues:
        queue.settle()
    gone = bench.opened.folder.rdq_nos()[1]
    lost = {
        row[0]
        for row in bench.rows(1)
        if (bench.store.memtables.location(row[1]) or bench.location.index.by_msg_no[row[1]])[0]
        == gone
    }
    assert lost
    bench.files.unlink(bench.opened.folder.rdq_path(gone))
    bench.store.contents.segments_removed([gone])  # as if nobody had it open

    for queue in queues:
        seqs = [seq for seq, _ in fetch_all(queue)]
        assert seqs == [seq for seq in range(10) if seq not in lost]
        queue.queue.ack(seqs)
    bench.idle_disk()

    assert {report["queue_no"] for report in reports(bench)} == {1, 2}
    found = [row[0] for report in reports(bench) for row in report["lost"]]
    assert sorted(found) == sorted([*lost, *lost])
    assert not bench.rows(1)
    assert not bench.rows(2)
    bench.close()


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_segment_that_is_missing_at_the_start_leaves_counts_that_hold(
    is_clean: bool, rng: random.Random
) -> None:
    bench = StoreBench(rng, rdq_file_bytes=300, checkpoint_rows=3)
    queue = StoredQueue(bench, limits=SMALL)
    for number in range(12):
        publish(queue, 1, first=number)
        bench.run()
    queue.queue.terminate()
    gone = bench.opened.folder.rdq_path(bench.opened.folder.rdq_nos()[1])
    if is_clean:
        bench.stop()
        bench.files.unlink(gone)
        bench.open()
    else:
        bench.crash(lambda disk: (disk.kill(), bench.files.unlink(gone)))  # type: ignore[arg-type,return-value]

    queue.begin()
    lost = {row[1] for row in bench.opened.recovered.report.lost}
    assert lost
    assert queue.queue.len() == 12 - len(lost)
    got = [seq for seq, _ in fetch_all(queue)]

    assert got == [seq for seq in range(12) if seq not in lost]
    queue.queue.ack(got)
    bench.idle_disk()
    assert not bench.rows(1)
    bench.close()


@pytest.mark.parametrize("is_clean", [True, False])
def test_without_its_index_a_store_has_all_messages_and_counts_that_hold(
    is_clean: bool, bench: StoreBench
) -> None:
    queues = [StoredQueue(bench, number, SMALL) for number in (1, 2)]
    for first in range(0, 12, 3):
        messages = [message(9, first + n) for n in range(3)]
        number = bench.store.write(messages, (1, 2))
        for queue in queues:
            queue.queue.publish(messages, True, first_msg_no=number)
        bench.run()
    queues[1].queue.ack(take(queues[1], 4).seqs)
    bench.idle_disk()
    for queue in queues:
        queue.queue.terminate()
    if is_clean:
        bench.stop()
    else:
        bench.loop.kill()
        bench.disk.kill()
    bench.location.lose()
    bench.open()

    assert bench.opened.recovered.report.rebuilt
    for queue, at_least in zip(queues, (range(12), range(4, 12)), strict=True):
        queue.begin()
        count = queue.queue.len()
        got = fetch_all(queue)
        assert len(got) == count
        assert {body for _, body in got} >= set(bodies(at_least))
        assert len(set(got)) == len(got)
        queue.queue.ack([seq for seq, _ in got])
    bench.idle_disk()
    assert not sum(state.valid_bytes for state in bench.store.memtables.files.values())


def test_a_paged_out_transient_that_is_damaged_is_passed_over(bench: StoreBench) -> None:
    queue = StoredQueue(bench, limits=SMALL, target=ON_DISK, mode="lazy")
    publish(queue, 6, persistent=False)
    publish(queue, 3, first=6)
    queue.settle()
    (path,) = [path for path in bench.disk.paths() if path.parent.name == "transient"]

    def change(image: bytearray) -> None:
        image[image.index(message(9, 2)[BODY])] ^= 1

    bench.disk.damage(path, change)
    got = fetch_all(queue)

    assert [body for _, body in got] == bodies([0, 1, 3, 4, 5, 6, 7, 8])
    queue.queue.ack([seq for seq, _ in got])
    bench.idle_disk()
    assert bench.store.stats().transients.live == 0
    assert not reports(bench), "nobody was promised a transient"


def test_a_queue_whose_paged_out_rows_are_gone_begins_again_with_what_is_left(
    bench: StoreBench,
) -> None:
    queue = StoredQueue(bench, limits=SMALL, target=ON_DISK, mode="lazy")
    publish(queue, 5, persistent=False)
    publish(queue, 2, first=5)
    bench.run()

    bench.store._on_transients_lost(1, None)
    assert [type(each).__name__ for each in queue.failures] == ["RowsLost"]
    queue.begin()

    assert [body for _, body in fetch_all(queue)] == bodies([5, 6])
    assert bench.store.stats().transients.live == 0


def test_an_index_that_is_found_damaged_is_a_failure_and_rebuilt(bench: StoreBench) -> None:
    queue = StoredQueue(bench, limits=SMALL, target=ON_DISK, mode="lazy")
    publish(queue, 9)
    bench.idle_disk()
    index = bench.location.index

    def damaged(*_: object) -> list:
        raise IndexDamaged("a page was changed")

    index.rows = damaged  # type: ignore[method-assign]
    queue.queue.fetch(1, UNBOUNDED, ack_required=True)
    bench.run()
    assert len(bench.errors) == 1
    assert bench.location.is_damaged
    bench.store.kill()
    bench.run()
    bench.open()

    queue.begin()
    assert [body for _, body in fetch_all(queue)] == bodies(range(9))
