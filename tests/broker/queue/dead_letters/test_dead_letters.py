"""Dead letters of one queue: given up when all targets have answered, in bounds, in turns.

Tests: broker/queue/dead_letters/in_flight.py, broker/queue/dead_letters/rules.py
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from leveret.amqp.properties import decode_properties
from leveret.amqp.tables import Field
from leveret.broker import mail, queue_requests
from leveret.broker.queue.dead_letters import dead_letters
from leveret.broker.queue.dead_letters.dead_letters import RETRY_S
from leveret.broker.queue.dead_letters.death_headers import EXPIRED, REJECTED
from leveret.core.limits import (
    DEAD_LETTER_COPIES_MAX,
    DEAD_LETTERS_IN_FLIGHT,
    DEATHS_MAX,
    TURN_MESSAGES,
)
from leveret.queue_backing.actor import StoreResumes
from leveret.queue_backing.api import Confirmed, Refused
from leveret.queue_backing.variable.limits import Limits
from leveret.queue_backing.variable.queue import VariableQueue
from leveret.routing.bindings import EXCHANGE, QUEUE
from leveret.routing.exchange import Exchange
from leveret.testing.virtual_clock import VirtualClock
from rigs.dead_letter_rig import DLX, LetterRig, message, publish
from rigs.queues.fake_index import FakeIndex
from rigs.queues.queue_rig import Channel, longs


@pytest.fixture
def rig() -> LetterRig:
    return LetterRig()


def rejected(rig: LetterRig, *bodies: bytes) -> Channel:
    """Publish messages and reject them all at once."""
    channel = rig.channel()
    publish(rig, channel, *[message(body) for body in bodies])
    rig.reject(channel, *rig.get_all(channel))
    return channel


def test_a_message_is_given_up_when_all_targets_have_answered(rig: LetterRig) -> None:
    one, other = rig.target("one"), rig.target("other")

    rejected(rig, b"0", b"1")

    assert rig.unacked() == 2
    one.answer(one.dead_letters())
    assert rig.unacked() == 2
    received = other.dead_letters()
    assert [each[2] for each in received[0].messages] == [b"0", b"1"]
    other.answer(received)
    assert rig.unacked() == 0
    assert rig.info()["messages"] == 0


def test_answers_come_in_pieces_and_across_batches(rig: LetterRig) -> None:
    target = rig.target()
    for _ in range(3):
        rejected(rig, b"0", b"1")

    assert [each.publishers[0][3] for each in target.dead_letters()] == [1, 3, 5]
    target.confirm((2, 3))
    assert rig.unacked() == 4  # the second batch is done
    target.confirm((6, 1), (1, 1))
    assert rig.unacked() == 2
    target.confirm((5, 1))
    assert rig.unacked() == 0


def test_a_full_target_and_a_deleted_one_have_answered(rig: LetterRig) -> None:
    full, deleted = rig.target("full"), rig.target("deleted")
    rejected(rig, b"0")

    full.answer(full.dead_letters(), ok=False)
    assert rig.unacked() == 1
    deleted.delete()

    assert rig.unacked() == 0


def test_without_targets_messages_are_given_up_at_once(rig: LetterRig) -> None:
    rejected(rig, b"0")

    assert rig.unacked() == 0


def test_a_target_that_crashes_gets_its_letters_again(rig: LetterRig) -> None:
    fine, crashing = rig.target("fine"), rig.target("crashing")
    rejected(rig, b"0", b"1")
    fine.answer(fine.dead_letters())
    assert crashing.bodies() == [b"0", b"1"]

    crashing.die()
    rig.clock.jump(RETRY_S)
    assert rig.unacked() == 2
    crashing.start()
    rig.clock.jump(RETRY_S)

    crashing.answer(crashing.dead_letters())
    assert fine.dead_letters() == []
    assert rig.unacked() == 0


def test_a_target_that_does_not_run_gets_them_when_it_does(rig: LetterRig) -> None:
    target = rig.target()
    target.die()
    rejected(rig, b"0")

    rig.clock.jump(10 * RETRY_S)
    assert rig.unacked() == 1
    target.start()
    rig.clock.jump(RETRY_S)

    assert target.bodies() == [b"0"]


def test_a_target_that_is_deleted_while_it_is_down_is_forgotten(rig: LetterRig) -> None:
    target = rig.target()
    rejected(rig, b"0")
    target.die()

    target.entry.deleted()
    rig.clock.jump(RETRY_S)

    assert rig.unacked() == 0


def test_the_deletion_of_the_source_ends_it(rig: LetterRig) -> None:
    target = rig.target()
    channel = rejected(rig, b"0")
    target.die()

    assert channel.ask(queue_requests.Delete()) == 0

    rig.clock.jump(10 * RETRY_S)
    assert rig.entry.state == "deleted"


def test_a_purge_leaves_what_is_under_way(rig: LetterRig) -> None:
    target = rig.target()
    channel = rejected(rig, b"0")
    publish(rig, channel, message(b"1"))

    assert channel.ask(queue_requests.Purge()) == 1

    target.answer(target.dead_letters())
    assert rig.unacked() == 0


def test_after_a_crash_of_the_source_answers_of_before_are_ignored(rig: LetterRig) -> None:
    target = rig.target()
    rejected(rig, b"0")
    old = rig.queue
    rig.runtime.exit(old, "oops")
    rig.settle()
    channel = rig.channel()
    publish(rig, channel, message(b"1"))

    target.confirm((1, 1))

    assert rig.stat() == (1, 0)


# Bounds.


def expiring(rig: LetterRig, count: int) -> Channel:
    channel = rig.channel()
    step = TURN_MESSAGES
    for start in range(0, count, step):
        same = message(b"x")
        publish(rig, channel, *[same] * min(step, count - start))
    return channel


def test_expired_messages_beyond_the_bound_wait_and_nobody_gets_them() -> None:
    rig = LetterRig(arguments=longs(x_message_ttl=1000))
    target = rig.target()
    channel = expiring(rig, DEAD_LETTERS_IN_FLIGHT + 100)

    rig.clock.jump(1.0)

    assert rig.unacked() == DEAD_LETTERS_IN_FLIGHT
    assert rig.stat() == (100, 0)
    channel.consume(b"c")
    channel.take(mail.CreditGrant)
    channel.start_asking(queue_requests.Get(channel.ref, True))
    rig.settle()
    assert channel.box == []  # the get waits, and nothing is delivered
    target.answer(target.dead_letters())
    target.answer(target.dead_letters())
    rig.settle()
    assert channel.box == [None]
    assert rig.info()["messages"] == 0


def test_live_messages_behind_expired_ones_are_delivered_when_these_have_gone() -> None:
    rig = LetterRig(arguments=longs(x_message_ttl=1000))
    target = rig.target()
    channel = expiring(rig, DEAD_LETTERS_IN_FLIGHT + 1)
    rig.clock.jump(0.5)
    publish(rig, channel, message(b"live"))
    rig.clock.jump(0.5)
    channel.consume(b"c")
    assert channel.bodies() == []

    target.answer(target.dead_letters())

    assert channel.bodies() == [b"live"]


def test_a_queue_above_its_limit_withholds_credit_until_letters_have_arrived() -> None:
    rig = LetterRig(arguments=longs(x_max_length=10))
    target = rig.target()
    channel = rig.channel()

    for _ in range(4):
        publish(rig, channel, *[message(b"x")] * 2_000)
    granted = sum(each.messages for each in channel.take(mail.CreditGrant))

    assert rig.stat() == (8_000 - DEAD_LETTERS_IN_FLIGHT, 0)
    assert granted < 8_000
    while received := target.dead_letters():
        target.answer(received)
    assert rig.stat() == (10, 0)
    assert granted + sum(each.messages for each in channel.take(mail.CreditGrant)) == 8_000


def test_refused_messages_that_wait_withhold_credit_as_well() -> None:
    arguments = longs(x_max_length=0) | {"x-overflow": ("S", b"reject-publish-dlx")}
    rig = LetterRig(arguments=arguments)
    target = rig.target()
    channel = rig.channel()

    for _ in range(4):
        publish(rig, channel, *[message(b"x")] * 2_000)

    assert sum(each.messages for each in channel.take(mail.CreditGrant)) < 8_000
    assert rig.info()["messages"] == 0
    total = 0
    while received := target.dead_letters():
        total += sum(len(each.messages) for each in received)
        target.answer(received)
    assert total == 8_000
    publish(rig, channel, *[message(b"x")] * 200)
    assert channel.take(mail.CreditGrant)


def test_many_rejected_messages_go_in_order_and_in_bounds(rig: LetterRig) -> None:
    target = rig.target()
    channel = rig.channel()
    count = 3 * TURN_MESSAGES
    for start in range(0, count, TURN_MESSAGES):
        publish(rig, channel, *[message(b"%d" % n) for n in range(start, start + TURN_MESSAGES)])
    channel.consume(b"c")
    seqs = [seq for each in channel.take(mail.Deliver) for seq in each.seqs or ()]
    assert len(seqs) == count

    rig.reject(channel, *seqs, tag=b"c")

    bodies: list[bytes] = []
    while received := target.dead_letters():
        own = [each[2] for run in received for each in run.messages]
        assert len(own) <= DEAD_LETTERS_IN_FLIGHT
        bodies += own
        target.answer(received)
    assert bodies == [b"%d" % n for n in range(count)]
    assert rig.unacked() == 0


# Turns.


def test_letters_for_very_many_queues_are_sent_in_slices(
    rig: LetterRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "FAN_OUT_QUEUES", 3)
    targets = [rig.target(f"t{number}") for number in range(10)]

    rejected(rig, b"0", b"1")
    rejected(rig, b"2")

    for target in targets:
        received = target.dead_letters()
        assert [each[2] for run in received for each in run.messages] == [
            b"0",
            b"1",
            b"2",
        ]
        assert rig.unacked() == 3
        target.answer(received)
    assert rig.unacked() == 0


def test_a_batch_is_not_done_while_some_targets_have_not_been_sent_it(
    rig: LetterRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "FAN_OUT_QUEUES", 2)
    targets = [rig.target(f"t{number}") for number in range(5)]
    for target in targets[:2]:
        target.entry.deleted()

    rejected(rig, b"0")

    for target in targets[2:]:
        assert rig.unacked() == 1
        target.answer(target.dead_letters())
    assert rig.unacked() == 0


def test_work_beyond_a_turn_goes_on_in_the_next(
    rig: LetterRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "PUBLISH_TURN_WORK", 1)
    target = rig.target()

    channel = rig.channel()
    publish(rig, channel, *[message(b"%d" % n, type=str(n)) for n in range(20)])
    rig.reject(channel, *rig.get_all(channel))

    assert target.bodies() == [b"%d" % n for n in range(20)]


def test_a_long_route_is_found_in_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = LetterRig("topic")
    monkeypatch.setattr(dead_letters, "PUBLISH_TURN_WORK", 3_000)
    target = rig.target()
    key = b".".join([b"a"] * 20)
    for number in range(20):
        words = [b"#", b"*"] * 8
        words[number % 16] = b"a"
        rig.home.topology.bind(DLX, QUEUE, "t", b".".join(words), {})
    channel = rig.channel()
    publish(rig, channel, message(b"0", key), message(b"1", b"none"), message(b"2", key))

    rig.reject(channel, *rig.get_all(channel))

    assert target.bodies() == [b"0", b"2"]


# Contents on the disk.


def paged(is_late: bool = True) -> tuple[LetterRig, FakeIndex]:
    index = FakeIndex(is_late=is_late)
    limits = Limits(segment=4, io_batch=1, step=3, slack=0)
    rig = LetterRig(
        make_backing=lambda _: VariableQueue(index, VirtualClock(), limits),
        arguments={"x-queue-mode": ("S", b"lazy")},
    )
    return rig, index


def arrive(rig: LetterRig, index: FakeIndex) -> None:
    while index.arrive():
        assert rig.entry.backing is not None
        rig.runtime.send(rig.entry.backing, StoreResumes())
        rig.settle()


def get_paged(rig: LetterRig, index: FakeIndex, channel: Channel, count: int) -> list[int]:
    seqs = []
    for _ in range(count):
        channel.start_asking(queue_requests.Get(channel.ref, False))
        rig.settle()
        arrive(rig, index)
        seqs.append(channel.box.pop()[2])
    return seqs


def test_rejected_messages_are_read_from_the_disk() -> None:
    rig, index = paged()
    target = rig.target()
    channel = rig.channel()
    publish(rig, channel, *[message(b"%d" % n) for n in range(10)])
    seqs = get_paged(rig, index, channel, 10)
    index.resident.clear()

    rig.reject(channel, *seqs)
    assert target.bodies() == []
    arrive(rig, index)

    assert target.bodies() == [b"%d" % n for n in range(10)]


def test_damaged_messages_are_passed_over() -> None:
    rig, index = paged(is_late=False)
    target = rig.target()
    channel = rig.channel()
    publish(rig, channel, *[message(b"%d" % n) for n in range(4)])
    seqs = rig.get_all(channel)
    index.damaged.update(list(index.contents)[1:3])

    rig.reject(channel, *seqs)

    received = target.dead_letters()
    assert [each[2] for run in received for each in run.messages] == [
        b"0",
        b"3",
    ]
    target.answer(received)
    assert rig.unacked() == 0
    assert index.contents == {}


# Settings.


def test_a_message_dies_by_the_settings_of_its_time(rig: LetterRig) -> None:
    target = rig.target()
    rig.set_policy(dead_letter_routing_key="other")
    rejected(rig, b"0")

    (dead_letter,) = target.dead_letters()
    assert dead_letter.messages[0][0] == b"\x03dlx\x05other"


def test_a_missing_exchange_drops(rig: LetterRig) -> None:
    target = rig.target()
    rig.home.topology.remove_exchange(DLX)

    rejected(rig, b"0")

    assert target.dead_letters() == []
    assert rig.info()["messages"] == 0


def test_persistence_is_the_messages_not_the_sources(rig: LetterRig) -> None:
    target = rig.target()
    channel = rig.channel()
    publish(rig, channel, message(b"0", delivery_mode=2), message(b"1"), message(b"2"))

    rig.reject(channel, *rig.get_all(channel))

    assert [(each.persistent, len(each.messages)) for each in target.dead_letters()] == [
        (True, 1),
        (False, 2),
    ]


def test_a_header_that_cannot_be_read_is_replaced(rig: LetterRig) -> None:
    target = rig.target()
    channel = rig.channel()
    origin, head, body = message(b"body")
    publish(rig, channel, (origin, head[:12] + b"\xff\xfe", body))

    rig.reject(channel, *rig.get_all(channel))

    (dead_letter,) = target.dead_letters()
    properties = decode_properties(dead_letter.messages[0][1])
    assert properties.content_type is None
    assert properties.headers is not None
    assert dead_letter.messages[0][1][4:12] == (4).to_bytes(8, "big")


def test_a_cycle_is_logged_once(rig: LetterRig, caplog: pytest.LogCaptureFixture) -> None:
    rig.home.topology.bind(DLX, QUEUE, "q", b"", {})
    channel = rig.channel()
    for _ in range(3):
        channel.publish(b"x", expiration_ms=0, head=message(expiration="0")[1])
        rig.settle()

    lines = [each.getMessage() for each in caplog.records]
    assert lines == ["dead-letter cycle, messages dropped queue=q vhost=/ queues=q,q"]
    assert rig.info()["messages"] == 0


def death(queue: str, reason: bytes = EXPIRED) -> Field:
    return ("F", {"queue": ("S", queue.encode()), "reason": ("S", reason)})


def expire_one(rig: LetterRig, deaths: list[Field]) -> None:
    """Let a message expire in the queue that has died elsewhere before."""
    head = message(expiration="0", headers={"x-death": ("A", deaths)})[1]
    rig.channel().publish(b"x", expiration_ms=0, head=head)
    rig.settle()


def test_a_letter_that_has_died_in_too_many_queues_is_dropped(
    rig: LetterRig, caplog: pytest.LogCaptureFixture
) -> None:
    target = rig.target()
    before = [death(f"q{number}") for number in range(DEATHS_MAX - 1)]

    expire_one(rig, before[:-1])
    assert target.bodies() == [b"x"]
    assert caplog.records == []
    for _ in range(2):
        expire_one(rig, before)
    assert target.bodies() == []
    assert rig.info()["messages"] == 1  # the first, which is not answered
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith(
        'dead letters dropped reason="in too many queues" queue=q vhost=/ queues=q,q0,q1'
    )

    expire_one(rig, [death("q0", REJECTED), *before])
    assert target.bodies() == [b"x"]


def test_a_letter_that_multiplies_is_dropped_before_it_is_too_many(
    rig: LetterRig, caplog: pytest.LogCaptureFixture
) -> None:
    targets = [rig.target(f"t{number}") for number in range(10)]
    most = int(math.log10(DEAD_LETTER_COPIES_MAX))

    expire_one(rig, [death(f"q{number}") for number in range(most - 1)])
    assert [target.bodies() for target in targets] == [[b"x"]] * 10
    assert caplog.records == []
    expire_one(rig, [death(f"q{number}") for number in range(most)])
    assert [target.bodies() for target in targets] == [[]] * 10
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith(
        'dead letters dropped reason="they multiply" queue=q vhost=/ queues=q,q0,'
    )


def test_letters_to_several_queues_wait_until_the_alarm_is_over(rig: LetterRig) -> None:
    target = rig.target("one")
    rig.home.alarms.raised = ("memory",)
    rejected(rig, b"0")
    assert target.bodies() == [b"0"]  # takes the room of the message

    other = rig.target("other")
    rejected(rig, b"1", b"2")
    rig.clock.jump(10 * RETRY_S)
    assert target.bodies() == other.bodies() == []
    assert rig.unacked() == 3

    rig.home.alarms.raised = ()
    rig.clock.jump(RETRY_S)
    assert target.bodies() == other.bodies() == [b"1", b"2"]


class Backpressure:
    """A store that the disk does not follow."""

    def __init__(self) -> None:
        self.is_on = True
        self.waiting: list[Callable[[], None]] = []

    def wait(self, go_on: Callable[[], None]) -> None:
        self.waiting.append(go_on)

    def forget(self, go_on: Callable[[], None]) -> None:
        self.waiting.remove(go_on)


class SlowStore:
    def __init__(self) -> None:
        self.backpressure = Backpressure()


def test_letters_wait_while_the_disk_does_not_follow(rig: LetterRig) -> None:
    target = rig.target()
    store: Any = SlowStore()
    rig.home.store.msg_store = store
    rejected(rig, b"0")
    rejected(rig, b"1")
    assert target.dead_letters() == []
    assert len(store.backpressure.waiting) == 1

    store.backpressure.is_on = False
    store.backpressure.waiting.pop()()

    assert target.bodies() == [b"0", b"1"]


def test_a_deleted_source_waits_no_more_for_the_disk(rig: LetterRig) -> None:
    rig.target()
    store: Any = SlowStore()
    rig.home.store.msg_store = store
    channel = rejected(rig, b"0")

    channel.ask(queue_requests.Delete())

    assert store.backpressure.waiting == []


# As a target.


def test_a_full_disk_is_no_answer_to_a_queue_and_a_refusal_to_a_channel() -> None:
    index = FakeIndex()
    rig = LetterRig(
        make_backing=lambda _: VariableQueue(index, VirtualClock()), durable=True, queue_no=1
    )
    source, channel = rig.channel(), rig.channel()
    for number, (publisher, by_queue) in enumerate([(source, True), (channel, False)]):
        dead_letter = message(b"%d" % number, delivery_mode=2)
        index.route(number + 1, [dead_letter])
        rig.runtime.send(
            rig.queue,
            mail.Publish(
                [dead_letter],
                True,
                [(publisher.ref, 1, 100, 7)],
                None,
                number + 1,
                99,
                by_queue=by_queue,
            ),
        )
        rig.settle()

    rig.runtime.send(rig.queue, Refused([(0, 2)]))

    assert source.take(mail.Confirm) == []
    assert [each.ok for each in channel.take(mail.Confirm)] == [False]
    rig.runtime.send(rig.queue, Confirmed([(0, 2)]))
    assert [(each.ok, each.ranges) for each in source.take(mail.Confirm)] == [(True, [(7, 1)])]
    assert channel.take(mail.Confirm) == []


def test_letters_have_no_credit() -> None:
    rig = LetterRig()
    source = rig.channel()
    for _ in range(10):
        received = [message(b"x")] * 100
        rig.runtime.send(
            rig.queue,
            mail.Publish(received, False, [(source.ref, 100, 2000, 1)], by_queue=True),
        )
        rig.settle()

    assert source.take(mail.CreditGrant) == []
    assert len(source.take(mail.Confirm)) == 10


def test_letters_and_publishes_do_not_merge() -> None:
    dead_letter = mail.Publish([message()], False, [], by_queue=True)
    other = mail.Publish([message()], False, [])

    assert not dead_letter.absorb(other)
    assert not other.absorb(dead_letter)
    assert dead_letter.absorb(mail.Publish([message()], False, [], by_queue=True))
    assert other.absorb(mail.Publish([message()], False, []))


# What is kept, and for how long.


def test_large_rejected_messages_go_a_few_at_a_time(
    rig: LetterRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "DEAD_LETTER_BYTES_IN_FLIGHT", 10_000)
    target = rig.target()

    rejected(rig, *[b"x" * 4_000] * 6)

    counts = []
    while received := target.dead_letters():
        counts.append(sum(len(each.messages) for each in received))
        target.answer(received)
    assert counts == [3, 3]


def test_large_headers_count_as_well(rig: LetterRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "DEAD_LETTER_BYTES_IN_FLIGHT", 10_000)
    target = rig.target()
    channel = rig.channel()
    large = {"h": ("S", b"x" * 20_000)}
    publish(rig, channel, *[message(b"%d" % n, headers=large | {"n": ("l", n)}) for n in range(9)])

    rig.reject(channel, *rig.get_all(channel))

    bodies: list[bytes] = []
    while received := target.dead_letters():
        own = [each[2] for run in received for each in run.messages]
        assert len(own) <= 3  # those of one turn
        bodies += own
        target.answer(received)
    assert bodies == [b"%d" % n for n in range(9)]


def test_many_targets_are_forgotten_when_nothing_is_under_way(
    rig: LetterRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "MONITORS_KEPT", 2)
    targets = [rig.target(f"t{number}") for number in range(5)]
    rejected(rig, b"0")
    for target in targets[1:]:
        target.answer(target.dead_letters())
    targets[0].die()
    assert rig.unacked() == 1

    targets[0].start()
    rig.clock.jump(RETRY_S)
    targets[0].answer(targets[0].dead_letters())
    assert rig.unacked() == 0

    rejected(rig, b"1")
    for target in targets:
        assert target.bodies() == [b"1"]


def test_a_key_too_long_for_a_delivery_is_cut(rig: LetterRig) -> None:
    target = rig.target()
    rig.set_policy(dead_letter_routing_key="k" * 300)

    rejected(rig, b"0")

    (dead_letter,) = target.dead_letters()
    assert dead_letter.messages[0][0] == b"\x03dlx\xff" + b"k" * 255


def test_a_route_of_each_message_is_not_shared() -> None:
    rig = LetterRig("x-random")
    targets = [rig.target(f"t{number}") for number in range(2)]

    rejected(rig, *[b"x"] * 100)

    counts = [len(target.bodies()) for target in targets]
    assert sum(counts) == 100
    assert min(counts) > 10


def test_a_route_by_properties_is_not_shared() -> None:
    rig = LetterRig()
    topology = rig.home.topology
    by_id: Any = {"hash-property": ("S", b"message_id")}
    topology.add_exchange(Exchange("hash", "x-consistent-hash", arguments=by_id))
    targets = [rig.target(f"t{number}") for number in range(2)]
    for target in targets:
        topology.bind("hash", QUEUE, target.entry.name, b"10", {})
    topology.remove_exchange(DLX)
    topology.add_exchange(Exchange("to-hash", "fanout"))
    topology.bind("to-hash", EXCHANGE, "hash", b"", {})
    rig.entry.settings.dead_letter_exchange = "to-hash"
    channel = rig.channel()
    publish(rig, channel, *[message(b"x", message_id=str(n)) for n in range(100)])

    rig.reject(channel, *rig.get_all(channel))

    counts = [len(target.bodies()) for target in targets]
    assert sum(counts) == 100
    assert min(counts) > 10
