"""Numbered publishes at a queue whose disk is slow: when duplicates are confirmed, and what becomes of zombies.

Tests: broker/queue/publishers/node_producers.py
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from leveret.actors.runtime.signals import KILL
from leveret.broker import mail, queue_requests
from leveret.broker.mail import NO_PREDECESSOR, ProducerSeq
from leveret.broker.queue.publishers import node_producers
from leveret.broker.queue.publishers.node_producers import FORGOTTEN_AT_ONCE, NodeProducers
from leveret.broker.queue.publishers.producers import Change, Entry
from leveret.core.message import Message
from leveret.queue_backing.api import Confirmed, Refused
from leveret.testing.virtual_clock import VirtualClock
from rigs.queues.open_queue import OpenQueue
from rigs.queues.queue_rig import Channel, Rig


class Kept:
    """The store's part, which a restart of the queue finds again."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Entry] = {}
        self.written: list[tuple[int, int]] = []  # row and sequence

    def __len__(self) -> int:
        return len(self.rows)

    def entries(self) -> dict[bytes, Entry]:
        return dict(self.rows)

    def changed(self, changes: list[Change]) -> None:
        for row, producer, epoch, seq, used_ms in changes:
            if seq < 0:
                del self.rows[producer]
            else:
                self.rows[producer] = epoch, seq, used_ms
                self.written.append((row, seq))


class SlowDisk(OpenQueue):
    """Says of nothing persistent that it is safe; the test does, later."""

    def __init__(self) -> None:
        super().__init__()
        self.discarded: list[tuple[bytes, int]] = []

    def publish(self, messages: list[Message], persistent: bool, *rest: Any) -> tuple[int, bool]:
        return super().publish(messages, persistent, *rest)[0], not persistent

    def publish_delivered(
        self, messages: list[Message], persistent: bool, *rest: Any
    ) -> tuple[int, bool]:
        return super().publish_delivered(messages, persistent, *rest)[0], not persistent

    def discard(self, messages: list[Message], persistent: bool, first_msg_no: int = 0) -> None:
        self.discarded += [(message[2], first_msg_no + at) for at, message in enumerate(messages)]


class Bench:
    def __init__(self, node: NodeProducers | None = None, vhost_name: str = "/") -> None:
        self.kept, self.disk = Kept(), SlowDisk()
        store = SimpleNamespace(
            producers=lambda queue_no, levels: self.kept,
            retain=lambda queue_nos, name, retention: None,
            archived=lambda queue_no: (0, 0),
        )
        vhost = SimpleNamespace(
            store=SimpleNamespace(msg_store=store),
            producer_limits=(10_000, 1_000),
            node_producers=node,
            firehose=None,
        )
        self.rig = Rig(lambda _: self.disk, vhost=None, durable=True)
        self.rig.entry.vhost = vhost  # type: ignore[assignment]
        self.rig.entry.number(5)
        self.rig.entry.vhost_name = vhost_name
        self.channel = self.rig.channel()
        self.next_seqno = 1

    def publish(self, *producer_seqs: ProducerSeq | None, to: Channel | None = None) -> None:
        channel = to or self.channel
        messages = [(b"o", b"h", b"%d" % (each[2] if each else 0)) for each in producer_seqs]
        count, size_bytes = len(messages), sum(len(each[2]) for each in messages)
        owner = (channel.ref, count, size_bytes, self.next_seqno)
        publish = mail.Publish(messages, True, [owner], None, self.next_seqno)
        publish.producer_seqs = list(producer_seqs)
        self.next_seqno += count
        channel.send(publish)
        self.rig.settle()

    def confirmed(self, ok: bool = True) -> list[int]:
        every = self.channel.take(mail.Confirm)
        assert all(each.ok is ok for each in every)
        return [first + at for each in every for first, count in each.ranges for at in range(count)]

    def safe(self, *runs: tuple[int, int]) -> None:
        self.rig.runtime.send(self.rig.queue, Confirmed(list(runs)))
        self.rig.settle()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def sent(seq: int, epoch: int = 0, after: int = NO_PREDECESSOR) -> ProducerSeq:
    return b"p", epoch, seq, after


def test_a_duplicate_is_confirmed_with_its_original_and_not_before(bench: Bench) -> None:
    bench.publish(sent(1), sent(2), sent(1))
    assert bench.confirmed() == []
    bench.safe((0, 1))
    assert bench.confirmed() == [1]
    bench.safe((1, 1))

    assert sorted(bench.confirmed()) == [2, 3]
    assert bench.rig.stat()[0] == 2
    bench.publish(sent(2))
    assert bench.confirmed() == [4]


def test_new_producers_are_charged_to_the_turn(bench: Bench) -> None:
    """A turn takes in a quarter of the messages that it would take in of one producer."""
    for first in range(0, 3_000, 1_000):
        publish = mail.Publish(
            [(b"o", b"h", b"")] * 1_000, True, [(bench.channel.ref, 1_000, 0, 0)]
        )
        publish.producer_seqs = [
            (b"%d" % (first + at), 0, 1, NO_PREDECESSOR) for at in range(1_000)
        ]
        bench.channel.send(publish)
    bench.rig.runtime.drain(with_bulk=False)

    queue = bench.rig.queue.cell.actor
    assert queue.deduplication.count() == 1_000
    bench.rig.settle()
    assert queue.deduplication.count() == 3_000


def test_a_duplicate_gives_its_content_back_to_the_store(bench: Bench) -> None:
    bench.publish(sent(1), sent(2), sent(2), sent(1), sent(3))

    assert bench.disk.discarded == [(b"2", 3), (b"1", 4)]


def test_each_sequence_is_written_with_its_row(bench: Bench) -> None:
    bench.publish(sent(1), sent(4), sent(4), sent(9))

    assert bench.kept.written == [(0, 1), (1, 4), (2, 9)]


def test_what_cannot_be_written_refuses_the_duplicate_and_the_next_one_waits(bench: Bench) -> None:
    bench.publish(sent(1))
    bench.publish(sent(1))
    bench.rig.runtime.send(bench.rig.queue, Refused([(0, 1)]))
    assert sorted(bench.confirmed(ok=False)) == [1, 2]
    bench.publish(sent(1))
    assert bench.confirmed() == []
    bench.safe((0, 1))

    assert bench.confirmed() == [3]
    assert bench.rig.stat()[0] == 1


@pytest.mark.parametrize("no_ack", [True, False])
def test_what_goes_straight_to_a_consumer_counts(bench: Bench, no_ack: bool) -> None:
    bench.channel.consume(b"c", no_ack=no_ack)
    bench.publish(sent(1), sent(2))
    bench.publish(sent(1), sent(2), sent(3))
    if not no_ack:
        assert bench.confirmed() == []
        bench.safe((0, 3))

    assert sorted(bench.confirmed()) == [1, 2, 3, 4, 5]
    assert bench.channel.bodies() == [b"1", b"2", b"3"]
    assert [seq for _, seq in bench.kept.written] == [1, 2, 3]


def test_a_zombie_is_told_and_refused(bench: Bench) -> None:
    bench.publish(sent(1, 2))
    bench.safe((0, 1))
    bench.confirmed()
    zombie = bench.rig.channel()
    bench.publish(sent(9, 1), sent(10, 1), to=zombie)

    (fenced,) = zombie.take(mail.ProducerFenced)
    assert "x-producer-epoch 1 is lower than 2" in fenced.text
    assert [each.ok for each in zombie.take(mail.Confirm)] == [False]
    assert bench.rig.stat()[0] == 1


def test_what_waited_for_a_queue_that_crashed_can_be_sent_again(bench: Bench) -> None:
    bench.publish(sent(1))
    bench.safe((0, 1))
    assert bench.confirmed() == [1]
    bench.rig.runtime.suspend(bench.rig.queue)
    bench.publish(sent(2, 0, 1))  # it is lost in the mailbox
    bench.disk = SlowDisk()
    bench.rig.runtime.exit(bench.rig.queue, KILL)
    bench.rig.settle()

    bench.publish(sent(3, 0, 2))
    assert bench.confirmed(ok=False) == [3]
    bench.publish(sent(2))
    bench.publish(sent(3, 0, 2))
    bench.safe((0, 2))

    assert bench.confirmed() == [4, 5]


def test_the_figures_count_the_producers_also_before_the_first_publish(bench: Bench) -> None:
    bench.kept.rows[b"old"] = 0, 1, int(bench.rig.clock.wall_s() * 1000)
    assert bench.rig.info()["producers"] == 1
    before = bench.rig.info()["memory"]
    bench.publish(sent(1))

    assert bench.rig.info()["producers"] == 2
    assert bench.rig.info()["memory"] > before


def test_beyond_the_bound_of_a_node_the_largest_queue_of_the_largest_vhost_forgets_its_oldest_producers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_producers, "NODE_PRODUCERS_MIN", 1_000)
    node = NodeProducers(lambda: 0, VirtualClock())
    attacked, quiet, other = (Bench(node, name) for name in ("attacked", "attacked", "other"))
    for bench in (quiet, other):
        bench.publish(*numbered(range(100)))
    for start in range(0, 3_000, 100):
        attacked.publish(*numbered(range(start, start + 100)))
        assert len(attacked.kept) + len(quiet.kept) + len(other.kept) <= 1_000
    held = len(attacked.kept)

    assert held >= 800 - 300 - FORGOTTEN_AT_ONCE
    assert list(attacked.kept.rows) == [b"%d" % number for number in range(3_000 - held, 3_000)]
    assert (len(quiet.kept), len(other.kept)) == (100, 100)
    assert caplog.text.count("producers forgotten") == 1
    assert "queue 'q' in vhost 'attacked'" in caplog.text


def test_producers_that_the_store_has_kept_count_from_the_start_of_their_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_producers, "NODE_PRODUCERS_MIN", 50)
    node = NodeProducers(lambda: 0, VirtualClock())
    kept, other = Bench(node), Bench(node)
    kept.kept.rows = {b"%d" % number: (0, 1, number) for number in range(100)}
    kept.rig.runtime.exit(kept.rig.queue, KILL)
    kept.rig.settle()
    other.publish(sent(1))

    assert len(other.kept) == 1
    assert next(iter(kept.kept.rows)) == b"%d" % (FORGOTTEN_AT_ONCE + 2)


def test_the_producers_of_a_queue_that_has_ended_do_not_wait_for_the_garbage_collector() -> None:
    node = NodeProducers(lambda: 0, VirtualClock())
    bench = Bench(node)
    gc.disable()
    try:
        for _ in range(3):
            bench.publish(*numbered(range(10)))
            bench.rig.runtime.exit(bench.rig.queue, KILL)
            bench.rig.settle()
        assert len(node._queues) == 1
    finally:
        gc.enable()


def numbered(producers: Iterable[int]) -> list[ProducerSeq]:
    return [(b"%d" % producer, 0, 1, NO_PREDECESSOR) for producer in producers]


def test_producers_are_listed_and_forgotten(bench: Bench) -> None:
    bench.publish(sent(3, 1))
    ((producer, entry),) = bench.channel.ask(queue_requests.ListProducers())
    assert (producer, entry[:2]) == (b"p", (1, 3))
    assert bench.channel.ask(queue_requests.ForgetProducer(b"p")) is True
    assert bench.channel.ask(queue_requests.ForgetProducer(b"p")) is False

    bench.publish(sent(1, 0))

    assert bench.rig.stat()[0] == 2
