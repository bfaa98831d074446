"""AmqQueue: publishing, delivering, settling, the calls, and how it ends.

Tests: broker/queue/consumers/consumer.py, broker/queue/consumers/dispatch.py,
    broker/queue/deletion_notices.py, broker/queue/mailbox.py,
    broker/queue/stats.py
"""

from __future__ import annotations

import pytest

from leveret.actors.runtime.calls import From, Reply, Request
from leveret.actors.runtime.scheduler import DRAIN_S
from leveret.amqp.errors import AccessRefused, NotFound, PreconditionFailed, ResourceLocked
from leveret.broker import mail, queue_requests
from leveret.broker.queue import deletion_notices
from leveret.broker.queue.consumers.consumer import TAGS_MAX
from leveret.broker.queue.mailbox import Continue
from leveret.core.limits import (
    CREDIT_MESSAGES,
    DELIVERY_BATCH_BYTES,
    DELIVERY_BATCH_MESSAGES,
    TURN_MESSAGES,
)

# Publishing and delivering.
from leveret.testing.virtual_clock import VirtualClock
from rigs.queues.queue_rig import Rig
from rigs.refs import named


def test_messages_wait_without_consumers() -> None:
    rig = Rig()
    channel = rig.channel()

    channel.publish(b"1", b"2", b"3")

    assert rig.stat() == (3, 0)


def test_a_consumer_gets_waiting_messages_in_order() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.publish(b"1", b"2", b"3")

    channel.consume(b"c")

    assert channel.deliveries() == [(b"1", 0, False), (b"2", 1, False), (b"3", 2, False)]
    assert rig.stat() == (0, 1)


def test_the_answer_to_consume_comes_before_the_first_delivery() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.publish(b"1")
    rig.settle()

    consume = queue_requests.Consume(
        channel.ref, rig.owner, b"c", False, False, 0, 0, channel.limiter, channel.gate
    )
    channel.send(Request(From(channel.ref, 1), consume))
    rig.settle()

    assert [type(message) for message in channel.box] == [Reply, mail.Deliver]


def test_messages_straight_to_a_no_ack_consumer_are_not_stored() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"c", no_ack=True)

    channel.publish(b"1", b"2")

    assert channel.deliveries() == [(b"1", None, False), (b"2", None, False)]
    assert rig.info()["next_seq_id"] == 0, "the backing queue never saw them"


def test_messages_straight_to_an_acking_consumer_are_unacked() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"c")

    channel.publish(b"1", b"22")

    assert channel.deliveries() == [(b"1", 0, False), (b"22", 1, False)]
    info = rig.info()
    assert (info["messages_ready"], info["messages_unacknowledged"]) == (0, 2)
    assert info["message_bytes_unacknowledged"] == 3

    channel.ack(b"c", 0, 1)
    assert rig.info()["messages"] == 0
    assert rig.info()["message_bytes"] == 0


def test_consumers_take_turns_by_message_and_get_one_mail_each() -> None:
    rig = Rig()
    channels = [rig.channel() for _ in range(3)]
    for tag, channel in zip((b"a", b"b", b"c"), channels, strict=True):
        channel.consume(tag, no_ack=True)

    channels[0].publish(*[b"%d" % n for n in range(7)])

    rig.settle()
    assert [len([m for m in c.box if type(m) is mail.Deliver]) for c in channels] == [1, 1, 1]
    assert [c.bodies() for c in channels] == [[b"0", b"3", b"6"], [b"1", b"4"], [b"2", b"5"]]


def test_acking_and_no_ack_consumers_share_a_batch() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"acks")
    channel.consume(b"none", no_ack=True)

    channel.publish(b"0", b"1", b"2", b"3")

    assert channel.deliveries(b"acks") == [(b"0", 0, False), (b"2", 2, False)]
    assert channel.deliveries(b"none") == [(b"1", None, False), (b"3", None, False)]
    assert rig.info()["messages_unacknowledged"] == 2

    channel.gate.is_open = False
    channel.publish(b"4", b"5")
    rig.settle()
    channel.gate.is_open = True
    channel.send(mail.Resume(channel.ref))

    assert len(channel.bodies(b"acks")) == len(channel.bodies(b"none")) == 1
    assert rig.info()["messages_unacknowledged"] == 3


def test_prefetch_limits_unacked_deliveries() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"c", prefetch=2)

    channel.publish(b"0", b"1", b"2", b"3")
    assert channel.bodies() == [b"0", b"1"]
    assert rig.stat() == (2, 1)

    channel.ack(b"c", 0)
    assert channel.bodies() == [b"2"]

    channel.ack(b"c", 1, 2)
    assert channel.bodies() == [b"3"]


def test_a_channels_limit_counts_deliveries_of_all_queues() -> None:
    rig, other = Rig(), Rig()
    channel = rig.channel()
    channel.limiter.limit = 3
    channel.limiter.in_flight = 2  # of some other queue
    channel.consume(b"c")
    del other

    channel.publish(b"0", b"1")
    assert channel.bodies() == [b"0"]

    channel.limiter.in_flight -= 2
    assert channel.limiter.take_waiting(1_000) == [rig.queue]
    channel.send(mail.Resume(channel.ref))
    assert channel.bodies() == [b"1"]


def test_a_closed_gate_holds_deliveries_back() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"c", no_ack=True)
    channel.gate.is_open = False

    channel.publish(b"0")
    channel.publish(b"1")
    assert channel.bodies() == []
    assert rig.stat() == (2, 1)

    channel.gate.is_open = True
    assert channel.gate.take_one() is rig.queue
    channel.send(mail.Resume(channel.ref))
    assert channel.bodies() == [b"0", b"1"]


def test_a_turn_delivers_one_batch_and_the_rest_follows() -> None:
    rig = Rig()
    channel = rig.channel()
    total = 2 * DELIVERY_BATCH_MESSAGES + 5
    channel.publish(*[b"%d" % n for n in range(total)])

    channel.consume(b"c", no_ack=True)

    rig.settle()
    sizes = [len(m.messages) for m in channel.box if type(m) is mail.Deliver]
    assert sizes == [DELIVERY_BATCH_MESSAGES, DELIVERY_BATCH_MESSAGES, 5]
    assert channel.bodies() == [b"%d" % n for n in range(total)]


def test_a_turn_delivers_fewer_messages_to_many_consumers() -> None:
    rig = Rig()
    channel = rig.channel()
    for number in range(20):
        channel.consume(b"%d" % number, no_ack=True)
    bodies = [b"%d" % n for n in range(2 * DELIVERY_BATCH_MESSAGES)]
    channel.publish(*bodies)
    rig.runtime.turns.scheduler.clock = HastyClock()
    rig.runtime.drain()

    dealt = [len(each.messages) for each in channel.box if type(each) is mail.Deliver]
    assert sum(dealt) == 2 * DELIVERY_BATCH_MESSAGES // 5  # the turn of the publish and one more
    assert channel.bodies() == bodies


class HastyClock(VirtualClock):
    """Whenever it is looked at, a drain's time is over."""

    now_s = 0.0

    def monotonic_s(self) -> float:
        self.now_s += DRAIN_S
        return self.now_s


def test_a_straight_run_beyond_the_budget_is_cut_and_stays_in_order() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"c", no_ack=True)
    half = DELIVERY_BATCH_BYTES // 2 - len(b"head")
    bodies = [bytes([n]) * half for n in range(5)]

    channel.publish(*bodies)

    rig.settle()
    sizes = [len(m.messages) for m in channel.box if type(m) is mail.Deliver]
    assert sizes == [2, 2, 1]
    assert channel.bodies() == bodies


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("no_ack", [False, True])
@pytest.mark.parametrize("count", [3, 40, 1_500])
def test_a_delivery_is_cut_by_its_headers_as_by_its_bodies(
    count: int, no_ack: bool, waits: bool
) -> None:
    rig = Rig()
    channel = rig.channel()
    wide = bytes(DELIVERY_BATCH_BYTES // 3)
    bodies = [b"%d" % n for n in range(count)]
    if waits:
        channel.publish(*bodies, head=wide)
        rig.settle()
    channel.consume(b"c", no_ack=no_ack)

    if not waits:
        channel.publish(*bodies, head=wide)

    rig.settle()
    sizes = [len(m.messages) for m in channel.box if type(m) is mail.Deliver]
    assert max(sizes) <= 3
    assert channel.bodies() == bodies
    assert rig.stat() == (0, 1)


def test_headers_are_not_part_of_message_bytes() -> None:
    rig = Rig()
    channel = rig.channel()

    channel.publish(b"one", b"two", head=bytes(1_000))
    channel.publish(b"three", head=bytes(1_000))

    assert rig.info()["message_bytes"] == 11


def test_a_run_does_not_overtake_messages_that_the_budget_held_back() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"c")
    count = DELIVERY_BATCH_MESSAGES + 1
    channel.publish(*[b"first"] * count, persistent=True)
    channel.publish(b"second", persistent=False)

    assert channel.bodies() == [b"first"] * count + [b"second"]


def test_one_message_above_the_byte_budget_is_delivered_alone() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"c")

    channel.publish(b"x" * (DELIVERY_BATCH_BYTES + 1), b"y")

    rig.settle()
    assert [len(m.messages) for m in channel.box if type(m) is mail.Deliver] == [1, 1]


def test_a_queue_does_not_change_the_list_a_fan_out_shares() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"c", prefetch=1)
    shared = [(b"", b"", b"%d" % n) for n in range(3)]

    channel.send(mail.Publish(shared, False, [(channel.ref, len(shared), 3, 0)]))

    assert channel.bodies() == [b"0"]
    assert len(shared) == 3


# Settling.


def test_requeued_messages_return_to_their_places_redelivered() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"c", prefetch=3)
    channel.publish(*[b"%d" % n for n in range(5)])
    assert channel.bodies() == [b"0", b"1", b"2"]

    channel.requeue(b"c", 2, 0)

    assert channel.deliveries() == [(b"0", 0, True), (b"2", 2, True)]
    channel.ack(b"c", 1)
    assert channel.deliveries() == [(b"3", 3, False)]


def test_rejected_messages_are_gone() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"c", prefetch=1)
    channel.publish(b"0", b"1")
    assert channel.bodies() == [b"0"]

    channel.limiter.in_flight -= 1
    channel.send(mail.Reject(channel.ref, b"c", [0]))

    assert channel.bodies() == [b"1"]
    assert rig.info()["messages"] == 1


def test_unacked_messages_of_a_dead_channel_are_requeued_in_order() -> None:
    rig = Rig()
    dying, heir = rig.channel(), rig.channel()
    dying.publish(*[b"%d" % n for n in range(6)])
    dying.consume(b"a", prefetch=2)
    dying.consume(b"b", prefetch=2)
    assert dying.ask(queue_requests.Get(dying.ref, no_ack=False))[1][2] == b"4"
    rig.entry.watch(dying.ref)

    dying.die()

    assert rig.stat() == (6, 0)
    heir.consume(b"h")
    expected = [(b"%d" % n, n, n < 5) for n in range(6)]
    assert heir.deliveries() == expected


def test_unacked_messages_of_a_cancelled_consumer_stay_with_its_channel() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"c")
    channel.publish(b"0", b"1", b"2")
    channel.bodies()

    assert channel.ask(queue_requests.Cancel(channel.ref, b"c")) is None
    assert channel.ask(queue_requests.Cancel(channel.ref, b"unknown")) is None
    channel.publish(b"3")
    assert channel.bodies() == []
    channel.ack(b"c", 0)
    channel.requeue(b"c", 1)

    assert rig.stat() == (2, 0)
    channel.die()
    assert rig.stat() == (3, 0)


def test_leave_is_answered_when_consumers_are_gone_and_messages_requeued() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"c")
    channel.publish(b"0")
    channel.bodies()

    assert rig.runtime.call_inline(rig.queue, queue_requests.Leave(channel.ref)) is None

    assert rig.runtime.call_inline(rig.queue, queue_requests.Stat()) == (1, 0)
    channel.die()
    assert rig.stat() == (1, 0), "its DOWN gives nothing back a second time"


def test_a_requeue_after_leave_delivers_no_message_twice() -> None:
    rig = Rig()
    leaving, heir = rig.channel(), rig.channel()
    leaving.consume(b"c")
    leaving.publish(b"0")
    assert leaving.bodies() == [b"0"]
    heir.consume(b"h")
    leaving.ask(queue_requests.Leave(leaving.ref))
    assert heir.deliveries() == [(b"0", 0, True)]

    leaving.requeue(b"c", 0)  # a delivery that was under way when the channel ended

    assert heir.deliveries() == []
    assert rig.stat() == (0, 1)


@pytest.mark.parametrize("settlement", [mail.Requeue, mail.Reject])
def test_settlements_one_by_one_become_one_mail(settlement: type) -> None:
    channel, another = named("channel"), named("another")
    first, second = settlement(channel, b"c", [1]), settlement(channel, b"c", [2])
    assert first.absorb(second)
    assert first.seqs == [1, 2]
    for other in (settlement(channel, b"d", [3]), settlement(another, b"c", [3])):
        assert not first.absorb(other)
    assert not first.absorb(mail.Ack(channel, b"c", [3]))


def test_many_unacked_messages_are_requeued_in_slices_before_any_delivery() -> None:
    rig = Rig()
    dying, heir = rig.channel(), rig.channel()
    total = 3 * TURN_MESSAGES + 7
    dying.consume(b"c")
    for start in range(0, total, TURN_MESSAGES):
        dying.publish(*[b"%d" % n for n in range(start, min(total, start + TURN_MESSAGES))])
    assert len(dying.bodies()) == total
    heir.consume(b"h", prefetch=10)

    rig.runtime.exit(dying.ref, "shutdown")
    heir.publish(b"late")
    rig.settle()

    assert heir.bodies() == [b"%d" % n for n in range(10)]
    assert rig.stat() == (total + 1 - 10, 1)


# Confirms and credit.


def test_confirms_of_a_mail_are_one_per_channel() -> None:
    rig = Rig()
    one, two, silent = rig.channel(), rig.channel(), rig.channel()
    one.publish(b"a", b"b", seqno=1)
    two.publish(b"c", seqno=7)
    silent.publish(b"d")
    one.publish(b"e", seqno=3)

    confirms = one.take(mail.Confirm)
    assert [(c.ok, c.queue, c.ranges) for c in confirms] == [(True, rig.queue, [(1, 3)])]
    assert [c.ranges for c in two.take(mail.Confirm)] == [[(7, 1)]]
    assert silent.take(mail.Confirm) == []


def test_ranges_that_do_not_touch_stay_apart() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.publish(b"a", seqno=1)
    channel.publish(b"b", seqno=5)

    assert [c.ranges for c in channel.take(mail.Confirm)] == [[(1, 1), (5, 1)]]


def test_credit_is_granted_after_so_many_messages() -> None:
    rig = Rig()
    channel, other = rig.channel(), rig.channel()
    more_after = CREDIT_MESSAGES[1]

    channel.publish(*[b"x"] * (more_after - 1))
    other.publish(b"y")
    assert channel.take(mail.CreditGrant) == []

    channel.publish(b"x")
    grants = channel.take(mail.CreditGrant)
    sizes = more_after * len(b"headx")
    assert [(g.messages, g.size_bytes) for g in grants] == [(more_after, sizes)]
    assert other.take(mail.CreditGrant) == []


# Calls.


def test_get_answers_queue_message_seq_redelivered_and_ready_count() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.publish(b"0", b"1")

    first, second = (b"origin", b"head", b"0"), (b"origin", b"head", b"1")
    assert channel.ask(queue_requests.Get(channel.ref, False)) == (rig.queue, first, 0, False, 1)
    channel.requeue(None, 0)
    assert channel.ask(queue_requests.Get(channel.ref, False)) == (rig.queue, first, 0, True, 1)
    assert channel.ask(queue_requests.Get(channel.ref, True)) == (rig.queue, second, None, False, 0)
    assert channel.ask(queue_requests.Get(channel.ref, True)) is None
    channel.ack(None, 0)
    assert rig.info()["messages"] == 0


def test_get_works_beside_an_exclusive_consumer_and_ignores_prefetch() -> None:
    rig = Rig()
    channel, other = rig.channel(), rig.channel()
    channel.consume(b"c", exclusive=True, prefetch=1)
    channel.publish(b"0", b"1")
    channel.bodies()

    assert other.ask(queue_requests.Get(other.ref, False))[1][2] == b"1"
    assert channel.limiter.in_flight == 1


def test_exclusive_consumers_are_alone() -> None:
    rig = Rig()
    channel = rig.channel()
    text = "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"

    assert channel.consume(b"a") is None
    refused = channel.consume(b"b", exclusive=True)
    assert isinstance(refused, AccessRefused)
    assert str(refused) == text

    channel.ask(queue_requests.Cancel(channel.ref, b"a"))
    assert channel.consume(b"b", exclusive=True) is None
    assert str(channel.consume(b"c")) == text


def test_an_exclusive_queue_is_for_its_owner() -> None:
    rig = Rig(is_exclusive=True)
    channel = rig.channel()

    refused = channel.consume(b"a", owner=channel.ref)

    assert isinstance(refused, ResourceLocked)
    assert str(refused).startswith(
        "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/'. It"
    )
    assert channel.consume(b"a", owner=rig.owner) is None


def test_purge_drops_ready_messages_and_leaves_unacked_ones() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.publish(b"0", b"1", b"2")
    channel.ask(queue_requests.Get(channel.ref, False))

    assert channel.ask(queue_requests.Purge()) == 2

    assert rig.stat() == (0, 0)
    channel.requeue(None, 0)
    assert rig.stat() == (1, 0)


def test_stat_counts_the_publishes_before_it() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.publish(b"0", b"1")
    channel.send(Request(From(channel.ref, 1), queue_requests.Stat()))

    assert [reply.value for reply in channel.take(Reply)] == [(2, 0)]


def test_info_answers_the_items_asked_for() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"c", exclusive=True)

    asked = channel.ask(queue_requests.Info(("consumers", "messages", "state", "no such item")))

    assert asked == {"consumers": 1, "messages": 0, "state": "running"}
    assert rig.info()["exclusive_consumer"] is True


@pytest.mark.parametrize(
    ("conditions", "text"),
    [
        ({"if_empty": True}, "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty"),
        ({"if_unused": True}, "PRECONDITION_FAILED - queue 'q' in vhost '/' in use"),
        (
            {"if_empty": True, "if_unused": True},
            "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty",
        ),
    ],
)
def test_a_condition_can_refuse_the_deletion(conditions: dict[str, bool], text: str) -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"c", prefetch=1)
    channel.publish(b"0", b"1")

    refused = channel.ask(queue_requests.Delete(**conditions))

    assert isinstance(refused, PreconditionFailed)
    assert str(refused) == text
    assert rig.deleted == []


# The end.


def test_deleting_ends_pair_and_supervisor_and_tells_consumers_and_vhost() -> None:
    rig = Rig()
    channel, publisher = rig.channel(), rig.channel()
    channel.consume(b"c", prefetch=1)
    publisher.publish(b"0", b"1", b"2")
    rig.settle()
    queue, backing = rig.queue, rig.entry.backing
    assert backing is not None

    assert publisher.ask(queue_requests.Delete()) == 2

    assert rig.deleted == [rig.entry]
    assert rig.entry.state == "deleted"
    assert not queue.is_alive
    assert not backing.is_alive
    assert not rig.sup.is_alive
    assert [(gone.queue, gone.consumers) for gone in channel.take(mail.ConsumersGone)] == [
        (queue, [b"c"])
    ]
    assert publisher.take(mail.ConsumersGone) == []
    assert channel.ref.cell.watchers is None, "no monitor is left on the channel"


def test_deleting_tells_a_channel_of_its_many_consumers_in_few_mails() -> None:
    """One mail for each of 100,000 consumers took 60 ms, in the turn of the deletion."""
    rig = Rig()
    channel = rig.channel()
    tags = [b"c%d" % number for number in range(3 * TAGS_MAX + 1)]
    for tag in tags:
        channel.consume(tag)
    rig.settle()
    channel.ask(queue_requests.Delete())

    several = [gone.consumers for gone in channel.take(mail.ConsumersGone)]
    assert [len(each) for each in several] == [TAGS_MAX, TAGS_MAX, TAGS_MAX, 1]
    assert [tag for each in several for tag in each] == tags


def test_deleting_tells_many_channels_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_notices, "NOTICES_AT_ONCE", 4)
    rig = Rig()
    deleter, *channels = [rig.channel() for _ in range(11)]
    for channel in channels:
        channel.consume(b"c")
    rig.settle()
    turns: list[int] = []
    post_some = deletion_notices.DeletionNotices.post_some

    def counted(notices: deletion_notices.DeletionNotices) -> bool:
        before = [each.ref.cell.watchers for each in channels].count(None)
        more = post_some(notices)
        turns.append([each.ref.cell.watchers for each in channels].count(None) - before)
        return more

    monkeypatch.setattr(deletion_notices.DeletionNotices, "post_some", counted)
    queue = rig.queue

    deleter.ask(queue_requests.Delete())

    assert turns == [4, 4, 2]
    assert [len(each.take(mail.ConsumersGone)) for each in channels] == [1] * 10
    assert not queue.is_alive


def test_mails_behind_a_deletion_are_answered() -> None:
    rig = Rig()
    channel = rig.channel()
    deleter, late = rig.channel(), rig.channel()

    def request(payload: object, number: int) -> None:
        rig.runtime.send(rig.queue, Request(From(late.ref, number), payload), late.ref)

    rig.runtime.send(rig.queue, Request(From(deleter.ref, 1), queue_requests.Delete()), deleter.ref)
    channel.publish(b"0", seqno=1)
    channel.send(mail.Ack(channel.ref, b"c", [0]))
    channel.send(mail.Requeue(channel.ref, b"c", [0]))
    channel.send(mail.Resume(channel.ref))
    request(queue_requests.Stat(), 2)
    request(queue_requests.Cancel(late.ref, b"c"), 3)
    request(queue_requests.Delete(), 4)
    rig.settle()

    assert [c.ranges for c in channel.take(mail.Confirm)] == [[(1, 1)]]
    replies = {reply.tag: reply.value for reply in late.take(Reply)}
    assert isinstance(replies[2], NotFound)
    assert (replies[3], replies[4]) == (None, 0)


def test_an_auto_delete_queue_goes_with_its_last_consumer() -> None:
    rig = Rig(auto_delete=True)
    channel, other = rig.channel(), rig.channel()
    channel.ask(queue_requests.Get(channel.ref, True))
    channel.consume(b"a")
    other.consume(b"b")

    channel.ask(queue_requests.Cancel(channel.ref, b"a"))
    assert rig.deleted == []
    other.die()
    assert rig.deleted == [rig.entry]


def test_an_auto_delete_queue_goes_when_the_channel_leaves() -> None:
    rig = Rig(auto_delete=True)
    channel = rig.channel()
    channel.consume(b"a")

    rig.runtime.call_inline(rig.queue, queue_requests.Leave(channel.ref))

    assert rig.deleted == [rig.entry], "at once, before the answer"


def test_an_auto_delete_queue_that_never_had_a_consumer_stays() -> None:
    rig = Rig(auto_delete=True)
    channel = rig.channel()
    channel.publish(b"0")
    channel.ask(queue_requests.Get(channel.ref, False))

    channel.die()

    assert rig.deleted == []
    assert rig.stat() == (1, 0)


def test_an_exclusive_queue_goes_with_its_owner() -> None:
    rig = Rig(is_exclusive=True)
    channel = rig.channel()
    channel.publish(b"0", seqno=1)

    rig.runtime.exit(rig.owner, "shutdown")
    rig.settle()

    assert rig.deleted == [rig.entry]
    assert not rig.sup.is_alive


def test_a_dead_owner_is_noticed_at_the_start() -> None:
    rig = Rig(is_exclusive=True)
    rig.runtime.exit(rig.owner, "shutdown")
    rig.runtime.exit(rig.queue, "kill")

    rig.settle()

    assert rig.deleted == [rig.entry]


def test_no_turn_is_scheduled_when_no_consumer_has_room() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"c", prefetch=1)
    channel.publish(b"0", b"1")
    rig.settle()
    mails = rig.runtime.mails

    rig.settle()

    assert rig.runtime.mails == mails
    assert not any(isinstance(waiting, Continue) for waiting in rig.queue.cell.inbox or ())
