"""Delay queues: messages wait until they are due, over crashes, and are given up when all targets have them.

Tests: broker/queue/delays/delay_rules.py
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.actors.runtime.signals import KILL
from leveret.amqp.errors import NotFound
from leveret.amqp.properties import Properties, head_of
from leveret.amqp.tables import Field
from leveret.broker import mail, queue_requests
from leveret.broker.queue.delays import delay_queue
from leveret.broker.queue.delays.delay_queue import TIMER_S_MAX
from leveret.broker.queue.delays.requests import Describe, ListWaiting, Withdraw
from leveret.broker.queue.delays.schedule import seq_of
from leveret.core.limits import DEAD_LETTERS_IN_FLIGHT, TURN_MESSAGES
from leveret.core.message import origin_of
from leveret.queue_backing.actor import StoreResumes
from leveret.queue_backing.api import Confirmed, Refused
from leveret.queue_backing.variable.limits import Limits
from leveret.queue_backing.variable.queue import VariableQueue
from leveret.routing.exchange import Exchange
from leveret.testing.virtual_clock import VirtualClock
from rigs.dead_letter_rig import DelayRig, message, publish
from rigs.queues.fake_index import FakeIndex
from rigs.queues.queue_rig import Channel

Message = tuple[bytes, bytes, bytes]


@pytest.fixture
def rig() -> DelayRig:
    return DelayRig()


def delayed(delay_ms: int, body: bytes = b"x", **properties: Any) -> Message:
    headers: dict[str, Field] = {"x-delay": ("I" if delay_ms < 2**31 else "l", delay_ms)}
    return message(body, headers=headers | properties.pop("headers", {}), **properties)


def put(rig: DelayRig, *messages: Message) -> Channel:
    channel = rig.channel()
    publish(rig, channel, *messages)
    return channel


def waiting(rig: DelayRig) -> int:
    return rig.stat()[0]


def test_messages_go_to_the_exchange_when_they_are_due(rig: DelayRig) -> None:
    target = rig.target()
    put(rig, delayed(300, b"late"), delayed(100, b"early"), delayed(200, b"between"))

    rig.clock.jump(0.1)
    assert target.bodies() == []  # at that time, and not before: a clock shows whole ms
    rig.clock.jump(0.001)
    assert target.bodies() == [b"early"]
    rig.clock.jump(1.0)
    assert target.bodies() == [b"between", b"late"]


def test_messages_of_equal_times_stay_in_order(rig: DelayRig) -> None:
    target = rig.target()
    bodies = [b"%d" % number for number in range(1_000)]
    put(rig, *[delayed(100, body) for body in bodies])

    rig.clock.jump(0.2)

    assert target.bodies() == bodies


def test_a_due_message_is_what_it_was(rig: DelayRig) -> None:
    target = rig.target()
    first = delayed(5, headers={"z": ("S", b"1"), "a": ("I", 2)}, expiration="7", delivery_mode=2)
    second = delayed(2**40, priority=3)
    put(rig, first, second)

    rig.clock.jump(1.0)
    rig.clock.set_wall_s(rig.clock.wall_s() + 2**40 / 1000)
    rig.clock.jump(TIMER_S_MAX)

    assert [each for dead_letter in target.dead_letters() for each in dead_letter.messages] == [
        first,
        second,
    ]


def test_a_message_is_given_up_when_all_targets_have_answered(rig: DelayRig) -> None:
    one, other = rig.target("one"), rig.target("other")
    put(rig, delayed(1))
    rig.clock.jump(0.1)

    one.answer(one.dead_letters())
    assert rig.info()["messages"] == 1
    other.answer(other.dead_letters())
    assert rig.info()["messages"] == 0


def test_without_targets_or_exchange_due_messages_are_dropped(rig: DelayRig) -> None:
    put(rig, delayed(1))
    rig.clock.jump(0.1)
    assert rig.info()["messages"] == 0

    put(rig, delayed(1))
    remove_exchange(rig)
    assert waiting(rig) == 1
    rig.clock.jump(0.1)
    assert rig.deleted == [rig.entry]


def remove_exchange(rig: DelayRig) -> None:
    rig.home.topology.step(rig.home.topology.remove_exchange("x"))
    rig.runtime.send(rig.queue, mail.ExchangeDeleted())
    rig.settle()


def test_an_empty_queue_ends_with_its_exchange(rig: DelayRig) -> None:
    remove_exchange(rig)

    assert rig.deleted == [rig.entry]
    assert rig.entry.state == "deleted"


def test_a_queue_stays_for_another_exchange_of_its_type_only(rig: DelayRig) -> None:
    put(rig, delayed(1_000))
    rig.home.topology.step(rig.home.topology.remove_exchange("x"))
    rig.home.topology.add_exchange(Exchange("x", "fanout"))
    rig.runtime.send(rig.queue, mail.ExchangeDeleted())
    rig.settle()
    assert waiting(rig) == 1

    rig.clock.jump(2.0)

    assert rig.deleted == [rig.entry]


def test_letters_that_have_died_in_a_target_come_round_to_it(rig: DelayRig) -> None:
    target = rig.target()
    death: Field = ("A", [("F", {"queue": ("S", b"t"), "reason": ("S", b"expired")})])
    put(rig, delayed(1, b"again", headers={"x-death": death}))

    rig.clock.jump(0.1)

    assert target.bodies() == [b"again"]


def test_many_due_messages_go_in_turns_and_in_bounds(rig: DelayRig) -> None:
    target, count = rig.target(), DEAD_LETTERS_IN_FLIGHT + 3 * TURN_MESSAGES
    put(rig, *[delayed(1, b"%d" % number) for number in range(count)])
    rig.clock.jump(0.1)

    sent: list[bytes] = []
    while dead_letters := target.dead_letters():
        bodies = [each[2] for dead_letter in dead_letters for each in dead_letter.messages]
        assert len(bodies) <= DEAD_LETTERS_IN_FLIGHT + TURN_MESSAGES
        sent += bodies
        target.answer(dead_letters)

    assert sent == [b"%d" % number for number in range(count)]
    assert rig.info()["messages"] == 0


def test_a_message_without_a_delay_goes_at_once(rig: DelayRig) -> None:
    target = rig.target()
    put(rig, message(b"now"), (origin_of(b"", b"k"), head_of(Properties(), 3)[:-1], b"bad"))

    rig.clock.jump(0.01)

    assert target.bodies() == [b"now", b"bad"]


def test_a_clock_that_is_set_is_looked_at_each_minute(rig: DelayRig) -> None:
    target = rig.target()
    put(rig, delayed(3_600_000))

    rig.clock.set_wall_s(rig.clock.wall_s() + 3_600)
    assert target.bodies() == []
    rig.clock.jump(TIMER_S_MAX)

    assert target.bodies() == [b"x"]


def test_an_earlier_message_is_not_late_for_a_later_one(rig: DelayRig) -> None:
    target = rig.target()
    put(rig, delayed(50_000, b"late"))
    put(rig, delayed(10, b"early"))

    rig.clock.jump(0.02)

    assert target.bodies() == [b"early"]


def test_confirms_come_when_messages_are_safe(rig: DelayRig) -> None:
    channel = rig.channel()
    head = delayed(1)[1]
    channel.publish(b"0", b"1", seqno=7, head=head)

    assert [each.ranges for each in channel.take(mail.Confirm)] == [[(7, 2)]]


def test_publishers_get_credit_and_idle_accounts_are_closed(rig: DelayRig) -> None:
    channel = rig.channel()
    for _ in range(1_000):
        channel.publish(b"x", head=delayed(10**8)[1])

    assert sum(each.messages for each in channel.take(mail.CreditGrant)) > 0
    rig.clock.jump(30.0)
    assert channel.take(mail.CreditGrant)[-1].is_last


def listed(rig: DelayRig) -> list[tuple[int, int, bytes]]:
    """Seq, time and key of all that waits, by time."""
    keys = rig.runtime.call_inline(rig.queue, ListWaiting())
    seqs = [seq_of(key) for key in sorted(keys)]
    count, found = rig.runtime.call_inline(rig.queue, Describe(seqs))
    assert count == len(seqs)
    return [(each.seq, each.due_ms, each.routing_key) for each in found]


def test_messages_are_listed_and_withdrawn(rig: DelayRig) -> None:
    target = rig.target()
    put(rig, delayed(300, b"c"), delayed(100, b"a"), delayed(200, b"b"))

    (first, first_ms, key), (second, _, _), (third, third_ms, _) = listed(rig)
    assert (first, second, third, key) == (1, 2, 0, b"k")
    assert third_ms - first_ms == 200
    assert rig.runtime.call_inline(rig.queue, Withdraw([second, second, 99])) == 1
    assert rig.runtime.call_inline(rig.queue, Withdraw([second])) == 0
    assert [seq for seq, _, _ in listed(rig)] == [first, third]
    assert waiting(rig) == 2
    rig.clock.jump(1.0)

    assert target.bodies() == [b"a", b"c"]
    assert rig.runtime.call_inline(rig.queue, Withdraw([first])) == 0  # on its way


def test_a_message_on_its_way_is_not_withdrawn_when_the_clock_is_set_back(rig: DelayRig) -> None:
    target = rig.target()
    put(rig, delayed(100))
    ((seq, _, _),) = listed(rig)
    rig.clock.jump(0.2)
    dead_letters = target.dead_letters()

    rig.clock.set_wall_s(rig.clock.wall_s() - 3_600)

    assert rig.runtime.call_inline(rig.queue, Withdraw([seq])) == 0
    target.answer(dead_letters)
    assert waiting(rig) == rig.info()["messages"] == 0


def test_a_purge_forgets_all_that_waits(rig: DelayRig) -> None:
    target = rig.target()
    count = 3 * TURN_MESSAGES
    put(rig, *[delayed(100) for _ in range(count)], delayed(1, b"due"))
    rig.clock.jump(0.01)

    waits = [seq for seq, _, _ in listed(rig)]
    channel = rig.channel()
    for request in (queue_requests.Purge(), Withdraw(waits)):  # before the next turn
        channel.start_asking(request)
    rig.settle()
    assert channel.box == [count, 0]
    assert waiting(rig) == 0
    target.answer(target.dead_letters())
    rig.clock.jump(1.0)

    assert target.bodies() == []
    assert rig.info()["messages"] == 0


def test_a_deleted_queue_answers_what_is_under_way(rig: DelayRig) -> None:
    channel = put(rig, delayed(100))

    channel.start_asking(queue_requests.Delete(False, False))
    channel.start_asking(queue_requests.Stat())
    rig.runtime.send(rig.queue, mail.Publish([delayed(1)], False, [(channel.ref, 1, 9, 1)]))
    rig.settle()

    confirms = channel.take(mail.Confirm)
    assert channel.box[0] == 1
    assert isinstance(channel.box[1], NotFound)
    assert [each.ranges for each in confirms] == [[(1, 1)]]
    assert rig.deleted == [rig.entry]


# Over a store.


class StoredRig(DelayRig):
    """A delay queue whose messages and times are on a disk."""

    def __init__(self, is_late: bool) -> None:
        self.index = FakeIndex(is_late=is_late)
        limits = Limits(segment=4, io_batch=1, step=3, slack=0)
        super().__init__(
            make_backing=lambda _: VariableQueue(self.index, VirtualClock(), limits), queue_no=1
        )

    def put(self, *messages: Message) -> None:
        first, self.next_msg_no = self.next_msg_no, self.next_msg_no + len(messages)
        self.index.route(first, list(messages))
        size_bytes = sum(len(head) + len(body) for _, head, body in messages)
        publisher = (self.channel().ref, len(messages), size_bytes, 0)
        self.runtime.send(
            self.queue, mail.Publish(list(messages), False, [publisher], first_msg_no=first)
        )
        self.settle()
        self.index.sync()

    def crash(self) -> None:
        self.index = self.index.restart(crash=True)
        self.runtime.exit(self.queue, KILL)
        self.settle()
        self.arrive()

    def arrive(self) -> None:
        """Let the disk read what it was asked for."""
        while self.index.arrive():
            assert self.entry.backing is not None
            self.runtime.send(self.entry.backing, StoreResumes())
            self.settle()


def test_what_is_not_on_the_disk_yet_is_confirmed_later() -> None:
    rig = StoredRig(is_late=False)
    channel = rig.channel()
    rig.index.route(1, [delayed(1_000)] * 2)
    rig.runtime.send(
        rig.queue, mail.Publish([delayed(1_000)] * 2, True, [(channel.ref, 2, 99, 7)], None, 1)
    )
    rig.settle()
    assert channel.take(mail.Confirm) == []

    rig.runtime.send(rig.queue, Confirmed([(0, 1)]))
    rig.runtime.send(rig.queue, Refused([(1, 1)]))

    found = [(each.ok, each.ranges) for each in channel.take(mail.Confirm)]
    assert found == [(True, [(7, 1)]), (False, [(8, 1)])]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_crash_keeps_messages_and_times(monkeypatch: pytest.MonkeyPatch, is_late: bool) -> None:
    monkeypatch.setattr(delay_queue, "TURN_MESSAGES", 3)
    rig = StoredRig(is_late)
    target = rig.target()
    rig.put(*[delayed(1_000 - number, b"%d" % number) for number in range(10)])
    rig.clock.jump(0.5)

    rig.crash()
    assert waiting(rig) == 10
    rig.put(delayed(100, b"new"))
    rig.clock.jump(0.3)
    rig.arrive()
    assert target.bodies() == [b"new"]
    rig.clock.jump(0.3)
    rig.arrive()

    assert target.bodies() == [b"%d" % number for number in reversed(range(10))]


def test_messages_due_in_a_crash_are_sent_again_until_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = StoredRig(is_late=False)
    target = rig.target()
    rig.put(delayed(1, b"0"), delayed(1, b"1"), delayed(10_000, b"2"))
    rig.clock.jump(0.1)
    (dead_letter,) = target.dead_letters()
    target.confirm((dead_letter.publishers[0][3], 1))

    rig.crash()

    assert target.bodies() == [b"0", b"1"]  # a batch is given up as a whole
    assert waiting(rig) == 1


def test_publishes_during_recovery_wait_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay_queue, "TURN_MESSAGES", 2)
    rig = StoredRig(is_late=True)
    target = rig.target()
    rig.put(*[delayed(10, b"%d" % number) for number in range(8)])
    rig.index = rig.index.restart(crash=True)
    rig.runtime.exit(rig.queue, KILL)
    rig.settle()

    rig.put(delayed(20, b"new"), delayed(5, b"first"))
    rig.arrive()
    rig.clock.jump(0.1)
    rig.arrive()

    assert sorted(target.bodies()) == sorted([b"%d" % n for n in range(8)] + [b"first", b"new"])


def test_listed_messages_are_read_from_the_disk() -> None:
    rig = StoredRig(is_late=True)
    rig.put(*[delayed(1_000 + number, b"%d" % number) for number in range(10)])
    rig.crash()
    rig.index.resident.clear()
    channel = rig.channel()
    keys = rig.runtime.call_inline(rig.queue, ListWaiting())
    seqs = [seq_of(key) for key in sorted(keys)]

    found: list[int] = []
    while seqs:
        channel.start_asking(Describe(seqs))
        rig.settle()
        rig.arrive()
        count, some = channel.box.pop()
        found += [each.body_bytes for each in some]
        del seqs[:count]

    assert found == [1] * 10
