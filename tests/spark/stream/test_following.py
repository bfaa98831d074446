"""Streams over a store that writes, crashes and frees segments: offsets, admission, losses.

Tests: spark/scan/archive.py, spark/scan/routed_rows.py, spark/stream/archived_store.py,
    spark/stream/batch.py, spark/stream/losses.py, spark/stream/tasks.py, spark/stream/unread.py,
    spark/stream/walking.py
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from leveret.core.errors import StoreError
from leveret.msg_store.archive.archive import Retention
from leveret.spark.errors import DataLoss, NotAnArchive, OptionError
from leveret.spark.stream.admission import Limit
from leveret.spark.stream.batch import partitions_of, settings_of
from leveret.spark.stream.losses import missing
from leveret.spark.stream.tasks import read_piece
from rigs.spark.archives import AGE_MS, ArchivedData, Stream, bodies, rows_between
from rigs.store.offline.offline_rig import flip


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ArchivedData]:
    made = ArchivedData(tmp_path / "data")
    yield made
    made.close()


def fill(rig: ArchivedData, count: int, queue_nos: tuple[int, ...] = (1,)) -> None:
    for _ in range(count):
        rig.publish(queue_nos)
        rig.now_ms += 1


def test_rows_are_those_of_view_archive(rig: ArchivedData) -> None:
    rig.publish((1, 2), 1, 10)

    (row,) = Stream(rig.data).run()

    assert row["vhost"] == "/"
    assert row["queue"] == "q1"
    assert row["store_id"] == rig.opened.folder.uuid.hex()
    assert row["node"].startswith("5f0c1c1e")
    assert row["routing_key"] == "key"
    assert row["persistent"]
    assert row["seq_id"] is row["state"] is row["redelivered"] is None
    assert row["body"] == b"00000000" + bytes(10)
    assert row["enqueued_at"].timestamp() * 1000 == rig.now_ms


def test_each_message_is_read_once_while_the_store_goes_on(rig: ArchivedData) -> None:
    stream, seen = Stream(rig.data), list[bytes]()
    for _ in range(10):
        fill(rig, 7)
        rig.ack_all()
        rig.collect()
        seen += bodies(stream.run())
        stream.restart()

    assert seen == rig.written[1]
    assert len(rig.segments) > 3


def test_a_stream_from_a_store_of_a_vhost(rig: ArchivedData) -> None:
    fill(rig, 3)

    assert bodies(Stream(rig.path).run()) == rig.written[1]


def test_an_offset_that_has_all_is_returned_as_it_is(rig: ArchivedData) -> None:
    fill(rig, 3)
    stream = Stream(rig.data)
    stream.run()
    assert stream.start is not None

    end = stream.follower.latest(stream.start, Limit())
    assert json.dumps(end) == json.dumps(stream.start)  # Spark compares the texts
    assert rows_between(stream.options, stream.start, stream.start) == []


@pytest.mark.parametrize("rows_max", [1, 3, 100])
def test_no_batch_has_more_rows_than_the_limit(rig: ArchivedData, rows_max: int) -> None:
    for _ in range(10):
        fill(rig, 2)
        fill(rig, 1, (2,))
    stream = Stream(rig.data, maxRowsPerTrigger=str(rows_max))

    assert bodies(stream.run()) == rig.written[1]
    assert max(len(rows) for _, _, rows in stream.batches) == min(rows_max, 20)


def test_no_batch_has_more_bytes_than_the_limit(rig: ArchivedData) -> None:
    fill(rig, 20)
    stream = Stream(rig.data, maxBytesPerTrigger="500")

    assert bodies(stream.run()) == rig.written[1]
    assert all(sum(row["length"] for row in rows) <= 500 for _, _, rows in stream.batches)


def test_a_message_larger_than_the_limit_is_a_batch_of_its_own(rig: ArchivedData) -> None:
    rig.publish((1,), 1, 1_000)
    rig.publish((1,), 1, 1)
    stream = Stream(rig.data, maxBytesPerTrigger="300")

    assert bodies(stream.run()) == rig.written[1]
    assert [len(rows) for _, _, rows in stream.batches if rows] == [1, 1]


def test_both_limits_hold(rig: ArchivedData) -> None:
    fill(rig, 20)
    stream = Stream(rig.data, maxRowsPerTrigger="2", maxBytesPerTrigger="100k")
    stream.run()

    assert max(len(rows) for _, _, rows in stream.batches) == 2


def test_a_limit_is_divided_among_stores_and_none_starves(tmp_path: Path) -> None:
    one, two = ArchivedData(tmp_path / "data", "one"), ArchivedData(tmp_path / "data", "two")
    fill(one, 40)
    fill(two, 1)
    stream = Stream(tmp_path / "data", maxRowsPerTrigger="10")

    first = stream.step()
    found = (first or []) + stream.run()

    assert {row["vhost"] for row in first or []} == {"one", "two"}
    assert bodies(row for row in found if row["vhost"] == "one") == one.written[1]
    assert bodies(row for row in found if row["vhost"] == "two") == two.written[1]
    assert all(len(rows) <= 11 for _, _, rows in stream.batches)
    one.close()
    two.close()


def test_what_comes_after_available_now_is_left_to_the_next_query(rig: ArchivedData) -> None:
    fill(rig, 5)
    stream = Stream(rig.data, maxRowsPerTrigger="2")
    stream.follower.prepare()
    first = stream.step()
    there = list(rig.written[1])
    fill(rig, 5)

    assert bodies((first or []) + stream.run()) == there
    stream.restart()
    assert bodies(stream.run()) == rig.written[1][len(there) :]


def test_a_batch_that_is_planned_again_has_the_same_rows(rig: ArchivedData) -> None:
    fill(rig, 30)
    stream = Stream(rig.data, limit=Limit(9))
    stream.run()
    rig.retained[2] = rig.retained[1]
    rig.tell_policies()
    rig.ack_all()
    rig.collect()
    rig.crash()

    for start, end, rows in stream.batches:
        assert rows_between(stream.options, start, end) == rows


@pytest.mark.parametrize(("least", "most"), [("1", "128m"), ("5", "128m"), ("1", "1k")])
def test_partitions_are_cut_between_records(rig: ArchivedData, least: str, most: str) -> None:
    fill(rig, 30)
    stream = Stream(rig.data, minPartitions=least, maxPartitionBytes=most)
    rows = stream.step()
    start, end, _ = stream.batches[0]
    partitions = partitions_of(stream.options, start, end)

    assert bodies(rows or []) == rig.written[1]
    assert len(partitions) >= int(least)
    assert len(partitions) == 1 or (least, most) != ("1", "128m")
    sizes = [sum(piece.part.size_bytes for piece in each) for each in partitions]
    assert max(sizes) < 2 * sum(sizes) / len(sizes)


# Where a query begins.


def test_latest_begins_behind_what_is_there(rig: ArchivedData) -> None:
    fill(rig, 5)
    stream = Stream(rig.data, startingOffsets="latest")
    assert not stream.run()
    fill(rig, 2)

    assert bodies(stream.run()) == rig.written[1][5:]


def test_earliest_begins_where_the_first_queue_was_archived(tmp_path: Path) -> None:
    rig = ArchivedData(tmp_path / "data", retained=())
    fill(rig, 5)
    rig.retained = {1: Retention(AGE_MS)}
    rig.tell_policies()
    fill(rig, 5)

    assert bodies(Stream(rig.data).run()) == rig.written[1][5:]
    rig.close()


def test_a_query_begins_before_the_flush_has_ended_in_which_its_queue_was_archived(
    tmp_path: Path,
) -> None:
    rig = ArchivedData(tmp_path / "data", retained=())
    rig.write((1,), 3)
    rig.core.start()
    rig.retained = {1: Retention(AGE_MS)}
    rig.tell_policies()
    streams = [Stream(rig.data, startingOffsets=at) for at in ("earliest", "latest")]
    assert [stream.run() for stream in streams] == [[], []]
    rig.crash()
    fill(rig, 2)

    assert [bodies(stream.run()) for stream in streams] == [rig.written[1]] * 2
    rig.close()


def test_a_query_begins_at_a_time(rig: ArchivedData) -> None:
    begun_ms = rig.now_ms
    fill(rig, 30)

    for after_ms in (0, 1, 17, 29, 30, 1_000):
        stream = Stream(rig.data, startingTimestamp=str(begun_ms + after_ms))
        assert bodies(stream.run()) == rig.written[1][after_ms:]


def test_a_query_begins_at_given_offsets(rig: ArchivedData) -> None:
    fill(rig, 20)
    first = Stream(rig.data, limit=Limit(8))
    first.step()
    assert first.start is not None
    ((store_id, offset),) = first.start.items()

    for name in (store_id, "/"):
        text = f'{{"{name}": {{"segment": {offset["segment"]}, "byte": {offset["byte"]}}}}}'
        assert bodies(Stream(rig.data, startingOffsets=text).run()) == rig.written[1][8:]


def test_offsets_of_an_unknown_store_are_refused(rig: ArchivedData) -> None:
    fill(rig, 1)

    with pytest.raises(
        OptionError, match=r"'other' is no store that is read; there are .*vhost '/'"
    ):
        Stream(rig.data, startingOffsets='{"other": {"segment": 1}}').run()
    with pytest.raises(OptionError, match="it must be as"):
        Stream(rig.data, startingOffsets='{"/": {"byte": 1}}').run()


def test_an_offset_inside_a_record_is_an_error(rig: ArchivedData) -> None:
    fill(rig, 2)
    segment = rig.segments[-1]

    with pytest.raises(DataLoss, match="is damaged at byte 65: no record begins there"):
        Stream(rig.data, startingOffsets=f'{{"/": {{"segment": {segment}, "byte": 65}}}}').run()


def test_a_stream_of_nothing_archived_is_refused_with_the_remedy(tmp_path: Path) -> None:
    rig = ArchivedData(tmp_path / "data", retained=())
    with pytest.raises(NotAnArchive, match=r"no queue is archived.*set_policy"):
        Stream(rig.data).run()
    rig.close()


def test_a_queue_that_is_not_archived_is_refused(rig: ArchivedData) -> None:
    with pytest.raises(NotAnArchive, match="archived are 'q1' of vhost '/'"):
        Stream(rig.data, queue="q2").run()


def test_paths_that_are_no_data_directory_are_refused(rig: ArchivedData, tmp_path: Path) -> None:
    with pytest.raises(NotAnArchive, match="does not exist: a stream reads the data directory"):
        Stream(tmp_path / "nowhere").run()
    with pytest.raises(NotAnArchive, match="have the same store"):
        Stream(rig.data, rig.path).run()
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "MANIFEST.json").write_text("{}")
    with pytest.raises(NotAnArchive, match="is a snapshot, which does not grow"):
        Stream(snapshot).run()


# Several stores and queues.


def test_a_vhost_that_comes_later_is_read_from_its_beginning(tmp_path: Path) -> None:
    one = ArchivedData(tmp_path / "data", "one")
    fill(one, 2)
    stream = Stream(tmp_path / "data")
    stream.run()
    two = ArchivedData(tmp_path / "data", "two")
    fill(two, 3)

    assert [row["vhost"] for row in stream.run()] == ["two"] * 3
    one.close()
    two.close()


def test_vhosts_and_queues_are_chosen_by_name(tmp_path: Path) -> None:
    rigs = [ArchivedData(tmp_path / "data", name, retained=(1, 2)) for name in ("one", "two")]
    for rig in rigs:
        fill(rig, 3, (1, 2))

    rows = Stream(tmp_path / "data", vhost="t*", queue="q2").run()

    assert {(row["vhost"], row["queue"]) for row in rows} == {("two", "q2")}
    assert len(rows) == 3
    for rig in rigs:
        rig.close()


def test_a_queue_that_is_archived_later_is_read_from_there(rig: ArchivedData) -> None:
    stream = Stream(rig.data)
    fill(rig, 2, (1, 2))
    stream.run()
    rig.retained[2] = rig.retained[1]
    rig.tell_policies()
    fill(rig, 2, (1, 2))

    assert [row["queue"] for row in stream.run()] == ["q1", "q2"] * 2


def test_a_queue_with_priorities_has_a_number_for_each(rig: ArchivedData) -> None:
    rig.write((1,), 1, highest=5)
    rig.flush()
    rig.publish_watermark()

    (row,) = Stream(rig.data).run()

    assert (row["queue"], row["queue_no"]) == ("q1", 6)


# Losses.


def freed(rig: ArchivedData) -> None:
    """Have everything settled freed."""
    rig.ack_all()
    rig.now_ms += AGE_MS
    rig.collect()


def test_messages_that_were_freed_before_they_were_read_are_named(rig: ArchivedData) -> None:
    fill(rig, 5)
    stream = Stream(rig.data)
    stream.run()
    fill(rig, 50)
    last = rig.segments[-2]
    freed(rig)

    with pytest.raises(DataLoss, match=rf"queue 'q1' behind .* freed .*segment {last:08x} is gone"):
        stream.run()
    text = str(stream.start)
    stream.restart()
    with pytest.raises(DataLoss, match="failOnDataLoss=false"):  # a restart does not forget it
        stream.run()
    assert str(stream.start) == text


def test_a_stream_that_tolerates_losses_goes_on_behind_them(
    rig: ArchivedData, caplog: pytest.LogCaptureFixture
) -> None:
    fill(rig, 5)
    stream = Stream(rig.data, failOnDataLoss="false")
    seen = bodies(stream.run())
    fill(rig, 50)
    freed(rig)
    fill(rig, 5)

    seen += bodies(stream.run())

    assert seen[:5] == rig.written[1][:5]
    assert seen[5:] == rig.written[1][-len(seen[5:]) :]
    assert len(seen) < 60
    assert "archived messages lost" in caplog.text
    caplog.clear()
    fill(rig, 1)
    assert len(stream.run()) == 1
    assert not caplog.text


def test_segments_that_were_read_may_be_freed(rig: ArchivedData) -> None:
    stream = Stream(rig.data)
    fill(rig, 30)
    stream.run()
    fill(rig, 30, (2,))
    freed(rig)
    fill(rig, 3)

    assert len(bodies(stream.run())) == 3


def test_what_was_freed_before_a_query_began_is_no_loss(rig: ArchivedData) -> None:
    fill(rig, 50)
    freed(rig)
    fill(rig, 3)
    stream = Stream(rig.data, limit=Limit(1))

    assert (
        bodies(stream.run())
        == rig.written[1][-len(bodies(row for _, _, rows in stream.batches for row in rows)) :]
    )


def with_a_gap(tmp_path: Path) -> ArchivedData:
    """Have segments of queues 1 and 3, then some of queue 1 that are freed, then some that are not."""
    rig = ArchivedData(tmp_path / "data", retained=(1,))
    rig.retained[3] = Retention(100 * AGE_MS)
    rig.tell_policies()
    fill(rig, 30, (3, 1))
    fill(rig, 60, (1,))
    freed(rig)
    fill(rig, 5)
    return rig


def test_a_queue_is_read_from_where_none_of_its_messages_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = with_a_gap(tmp_path)

    found = bodies(Stream(rig.data, queue="q1").run())

    assert 5 <= len(found) < 60
    assert found == rig.written[1][-len(found) :]
    gone = rig.core.archive.queues[1].freed
    assert gone is not None
    assert gone.segment not in rig.segments
    last = max(number for number in rig.segments if number < gone.segment)
    assert (
        f"queue 'q1' of vhost '/' is complete from {gone.segment:08x}:{gone.byte} on: segments"
        f" {last + 1:08x}-{gone.segment:08x} are gone, and its messages in older ones are passed over"
    ) in caplog.text
    rig.close()


def test_a_stream_that_tolerates_losses_reads_all_that_is_there_and_tells_the_gap(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = with_a_gap(tmp_path)
    stream = Stream(rig.data, queue="q1", failOnDataLoss="false")

    found = bodies(stream.run())

    written = rig.written[1]
    gone = [body for body in written if body not in found]
    first = written.index(gone[0])
    assert first >= 30
    assert written == found[:first] + gone + found[first:]
    assert "are gone, and its messages in older ones are read" in caplog.text
    rig.close()


def test_each_queue_is_read_from_where_it_is_complete(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = with_a_gap(tmp_path)
    alone = bodies(Stream(rig.data, queue="q1").run())

    for limit in (Limit(), Limit(1)):
        rows = Stream(rig.data, limit=limit).run()
        assert bodies(rows, "q3") == rig.written[3]
        assert bodies(rows, "q1") == alone
    caplog.clear()
    assert not Stream(rig.data, startingOffsets="latest").run()
    assert not caplog.text
    rig.close()


@pytest.mark.parametrize(
    ("there", "last", "text"),
    [
        ([1, 2], 6, "00000003-00000006"),
        ([1, 3, 5], 6, "00000002, 00000004, 00000006"),
        (range(1, 16, 2), 16, "00000002, 00000004, 00000006, 00000008, 0000000a, and 3 more gaps"),
    ],
)
def test_segments_that_are_gone_are_named(there: Sequence[int], last: int, text: str) -> None:
    assert missing(there, last) == text


def test_a_gap_behind_given_offsets_is_a_loss(tmp_path: Path) -> None:
    rig = with_a_gap(tmp_path)
    text = f'{{"/": {{"segment": {rig.segments[0]}, "byte": 64}}}}'

    with pytest.raises(DataLoss, match=r"messages of queue 'q1' behind .* were freed"):
        Stream(rig.data, queue="q1", startingOffsets=text).run()
    rig.close()


def test_what_a_queue_had_before_it_was_archived_is_not_read(tmp_path: Path) -> None:
    rig = ArchivedData(tmp_path / "data", retained=(1,))
    fill(rig, 3, (1, 2))
    rig.retained[2] = rig.retained[1]
    rig.tell_policies()
    fill(rig, 3, (1, 2))

    for limit in (Limit(), Limit(1)):
        rows = Stream(rig.data, limit=limit).run()
        assert bodies(rows) == rig.written[1]
        assert bodies(rows, "q2") == rig.written[2][3:]
    rig.close()


def test_a_segment_that_goes_after_planning_is_named_by_plan_and_task(rig: ArchivedData) -> None:
    fill(rig, 50)
    stream = Stream(rig.data)
    start = stream.follower.initial()
    end = stream.follower.latest(start, Limit())
    planned = partitions_of(stream.options, start, end)
    freed(rig)

    with pytest.raises(DataLoss, match=r"segment .* is gone: messages of the queues q1"):
        partitions_of(stream.options, start, end)
    with pytest.raises(DataLoss, match=r"segment .* is gone: messages of the queues q1"):
        list(read_piece(planned[0][0], settings_of(stream.options)))


def test_a_segment_of_other_queues_that_goes_after_planning_is_no_loss(tmp_path: Path) -> None:
    rig = ArchivedData(tmp_path / "data", retained=(1, 2))
    fill(rig, 30, (2,))
    stream = Stream(rig.data, queue="q1")
    fill(rig, 1, (1,))
    start = stream.follower.initial()
    end = stream.follower.latest(start, Limit())
    rig.ack([row for row in rig.rows if row[0] == 2])
    rig.now_ms += AGE_MS
    rig.publish((1,))
    rig.collect()

    assert bodies(rows_between(stream.options, start, end)) == rig.written[1][:1]
    rig.close()


def test_a_policy_that_was_taken_away_for_a_time_is_a_loss(tmp_path: Path) -> None:
    rig = ArchivedData(tmp_path / "data", retained=(1, 2))
    stream = Stream(rig.data)
    fill(rig, 2)
    stream.run()
    kept = rig.retained.pop(1)
    rig.tell_policies()
    with pytest.raises(DataLoss, match="queue 'q1' is not archived any more"):
        stream.run()
    fill(rig, 2)
    rig.retained[1] = kept
    rig.tell_policies()

    with pytest.raises(DataLoss, match="queue 'q1' was not archived from"):
        stream.run()
    rig.close()


def test_an_archive_that_ends_and_begins_anew_is_a_loss(rig: ArchivedData) -> None:
    stream = Stream(rig.data)
    fill(rig, 2)
    stream.run()
    kept = dict(rig.retained)
    rig.retained.clear()
    rig.tell_policies()
    with pytest.raises(DataLoss, match="no queue of it is archived any more"):
        stream.run()
    fill(rig, 40)
    rig.retained.update(kept)
    rig.tell_policies()

    with pytest.raises(DataLoss, match="its archive begins with segment"):
        stream.run()


def test_a_store_that_was_restored_from_an_older_state_is_a_loss(rig: ArchivedData) -> None:
    fill(rig, 1)
    old = (rig.path / "archive.json").read_bytes()
    fill(rig, 40)
    stream = Stream(rig.data)
    stream.run()
    (rig.path / "archive.json").write_bytes(old)

    with pytest.raises(DataLoss, match="it was restored from an older state"):
        stream.run()


# Damage.


def test_a_damaged_record_is_named(rig: ArchivedData) -> None:
    fill(rig, 5)
    rows = Stream(rig.data).run()
    path = rig.opened.folder.rdq_path(rows[2]["segment"])
    flip(path, rows[2]["offset"] + rows[2]["length"] - 1)

    with pytest.raises(
        DataLoss, match=rf"damaged at byte {rows[2]['offset']}: its checksum is wrong"
    ):
        Stream(rig.data).run()
    left = Stream(rig.data, failOnDataLoss="false").run()
    assert bodies(left) == [body for at, body in enumerate(rig.written[1]) if at != 2]
    assert len(Stream(rig.data, verifyCrc="false").run()) == 5


def test_behind_a_damaged_header_reading_goes_on_at_the_next_good_record(rig: ArchivedData) -> None:
    fill(rig, 5)
    rows = Stream(rig.data).run()
    flip(rig.opened.folder.rdq_path(rows[2]["segment"]), rows[2]["offset"] + 4)

    with pytest.raises(DataLoss, match=rf"damaged at byte {rows[2]['offset']}: no record begins"):
        Stream(rig.data).run()
    left = Stream(rig.data, failOnDataLoss="false", maxRowsPerTrigger="1").run()
    assert bodies(left) == [body for at, body in enumerate(rig.written[1]) if at != 2]


def test_a_damaged_segment_header_is_named(rig: ArchivedData) -> None:
    fill(rig, 20)
    first = rig.segments[0]
    flip(rig.opened.folder.rdq_path(first), 20)

    with pytest.raises(
        DataLoss, match=rf"segment {first:08x} .* cannot be read: checksum of the file header"
    ):
        Stream(rig.data).run()
    assert Stream(rig.data, failOnDataLoss="false").run()


def test_a_segment_that_a_crash_left_without_a_header_has_nothing(rig: ArchivedData) -> None:
    fill(rig, 2)
    number = rig.opened.core.rdq.next_file_no
    rig.opened.folder.rdq_path(number).write_bytes(b"")
    rig.crash()
    fill(rig, 2)

    assert rig.core.archive.ends == {number: 64}
    assert bodies(Stream(rig.data).run()) == rig.written[1]


@pytest.mark.parametrize("left", [b"", b"RDQ", bytes(64), bytes(70)])
def test_a_segment_of_a_flush_that_only_the_journal_has_in_full_has_nothing(
    rig: ArchivedData, left: bytes
) -> None:
    rig.write((1,), 1)
    flush = rig.core.start()
    for _ in rig.opened.journal_log.run(flush.journal):
        pass
    number = flush.rdq.end.file_no
    rig.opened.folder.rdq_path(number).write_bytes(left)
    rig.crash()
    fill(rig, 2)

    assert (rig.core.archive.ends, rig.core.archive.torn) == ({number: 64}, {})
    assert bodies(Stream(rig.data).run()) == rig.written[1]


def test_a_segment_shorter_than_the_watermark_asks_for_a_start_of_the_broker(
    rig: ArchivedData,
) -> None:
    fill(rig, 2)
    path = rig.opened.folder.rdq_path(rig.segments[-1])
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 10)

    with pytest.raises(Exception, match="they come back from the journal when the broker starts"):
        Stream(rig.data, failOnDataLoss="false").run()


@pytest.mark.parametrize("is_whole", [True, False])
def test_zeros_that_a_power_cut_has_left_ask_for_a_start_of_the_broker(
    tmp_path: Path, is_whole: bool
) -> None:
    rig = ArchivedData(tmp_path / "data", inline_bytes_max=1 << 14)
    fill(rig, 5)
    last = Stream(rig.data).run()[-1]
    begin = last["offset"] if is_whole else last["offset"] + 60
    with rig.opened.folder.rdq_path(last["segment"]).open("r+b") as file:
        file.seek(begin)
        file.write(bytes(last["offset"] + last["length"] - begin))

    for setting in ("true", "false"):
        with pytest.raises(StoreError, match="they come back from the journal when the broker"):
            Stream(rig.data, failOnDataLoss=setting).run()
    rig.crash()  # a start follows, which has the messages of the journal
    assert bodies(Stream(rig.data).run()) == rig.written[1]
    rig.close()


def test_a_damaged_archive_json_is_an_error(rig: ArchivedData) -> None:
    (rig.path / "archive.json").write_bytes(b"{")

    with pytest.raises(Exception, match=r"archive.json is damaged"):
        Stream(rig.data, failOnDataLoss="false").run()


def test_what_a_crash_cut_off_is_never_shown(rig: ArchivedData) -> None:
    draws = random.Random(5)
    stream, seen = Stream(rig.data), list[bytes]()
    for _ in range(30):
        fill(rig, 2)
        rig.write((1,), 3)
        rig.crash(draws)
        seen += bodies(stream.run())
        stream.restart()

    assert seen == rig.written[1]
    assert 60 < len(seen) < 150
    assert rig.core.archive.ends
    assert rig.core.archive.torn
