"""Work on many messages is done in slices; calls that must see all of it wait, other mail does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leveret.actors.actor import OtpActor
from leveret.actors.runtime import scheduler
from leveret.actors.runtime.ref import MailHandler, Ref
from leveret.amqp.errors import NotFound, PreconditionFailed
from leveret.broker import mail, queue_requests
from leveret.core.limits import CREDIT_MESSAGES, TURN_MESSAGES
from rigs.queues.open_queue import OpenQueue
from rigs.queues.queue_rig import Channel, Rig, longs

TOTAL = 3 * TURN_MESSAGES


def unacked(rig: Rig, channel: Channel) -> None:
    """Let a channel consume ``TOTAL`` messages and settle none."""
    channel.consume(b"c")
    for start in range(0, TOTAL, TURN_MESSAGES):
        channel.publish(*[b"%d" % n for n in range(start, start + TURN_MESSAGES)])
        rig.settle()


def marks(channel: Channel) -> list[Any]:
    """Confirms and answers in the order in which they came."""
    return [each for each in channel.box if type(each) not in {mail.Deliver, mail.CreditGrant}]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (queue_requests.Stat(), (TOTAL + 1, 0)),
        (queue_requests.Purge(), TOTAL + 1),
        (queue_requests.Delete(), TOTAL + 1),
        (queue_requests.Delete(if_empty=True), PreconditionFailed),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_call_waits_for_all_requeued_messages_and_blocks_no_other_actor(
    request_: Any, expected: Any
) -> None:
    rig = Rig()
    dying, other = rig.channel(), rig.channel()
    unacked(rig, dying)

    dying.start_asking(queue_requests.Leave(dying.ref))
    other.start_asking(request_)
    other.publish(b"later", seqno=1)
    rig.settle()

    confirm, answer = marks(other)
    assert type(confirm) is mail.Confirm
    assert answer == expected or (isinstance(expected, type) and type(answer) is expected)


class Watcher(MailHandler):
    """Tells of each mail in the place of an actor."""

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell = tell

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        self._tell(message)


class Flood(OtpActor):
    """Publishes as much as it is granted credit."""

    def init(self, queue: Ref) -> None:
        self.queue = queue
        self.publish(CREDIT_MESSAGES[0])

    def handle_mail(self, message: mail.CreditGrant, sender: Ref | None) -> None:
        self.publish(message.messages)

    def publish(self, count: int) -> None:
        messages = [(b"origin", b"head", b"x")] * count
        self.post(self.queue, mail.Publish(messages, False, [(self.ref, count, count, 0)]))


FLOODS = 3 * TURN_MESSAGES // CREDIT_MESSAGES[0]


def test_a_requeue_ends_while_publishers_fill_the_mailbox_as_fast_as_it_is_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "DRAIN_S", -1.0)  # as if each turn were long
    rig = Rig()
    channel, other = rig.channel(), rig.channel()
    unacked(rig, channel)
    seqs = [seq for _, seq, _ in channel.deliveries()]
    for _ in range(FLOODS):
        rig.runtime.spawn(Flood, rig.queue)

    channel.send(mail.Requeue(channel.ref, b"c", seqs))
    other.start_asking(queue_requests.Stat())
    drains = 0
    while not other.box:
        rig.runtime.drain()
        drains += 1
        assert drains < 20 * FLOODS  # each has as many turns as the queue


def test_gets_during_a_requeue_are_answered_in_order() -> None:
    rig = Rig()
    dying, other = rig.channel(), rig.channel()
    unacked(rig, dying)

    dying.start_asking(queue_requests.Leave(dying.ref))
    for _ in range(3):
        other.start_asking(queue_requests.Get(other.ref, no_ack=True))
    rig.settle()

    answers = [(got[1][2], *got[2:]) for got in marks(other)]
    assert answers == [(b"%d" % n, None, True, TOTAL - 1 - n) for n in range(3)]


def test_a_get_behind_many_expired_messages_blocks_no_other_actor() -> None:
    rig = Rig(arguments=longs(x_message_ttl=1_000))
    channel = rig.channel()
    for _ in range(3):
        channel.publish(*[b"old"] * TURN_MESSAGES)
        rig.settle()
    channel.box.clear()
    rig.clock.set_wall_s(rig.clock.wall_s() + 2.0)

    for _ in range(2):
        channel.start_asking(queue_requests.Get(channel.ref, no_ack=True))
    channel.publish(b"new", seqno=1)
    rig.settle()

    confirm, got, empty = marks(channel)
    assert type(confirm) is mail.Confirm
    assert (got[1][2], got[4]) == (b"new", 0)
    assert empty is None


def test_a_get_that_waits_when_the_queue_is_deleted_finds_none() -> None:
    rig = Rig(auto_delete=True)
    dying, other = rig.channel(), rig.channel()
    unacked(rig, dying)
    other.consume(b"last")

    dying.start_asking(queue_requests.Leave(dying.ref))
    other.start_asking(queue_requests.Get(other.ref, no_ack=False))
    other.start_asking(queue_requests.Cancel(other.ref, b"last"))
    rig.settle()

    assert {type(each) for each in marks(other)} == {NotFound, type(None)}
    assert rig.deleted == [rig.entry]


@pytest.mark.parametrize("settlement", [mail.Ack, mail.Reject])
def test_a_large_settlement_is_done_in_slices_before_the_channel_leaves(
    settlement: type,
) -> None:
    sizes: list[int] = []

    class Noting(OpenQueue):
        def ack(self, seqs: list[int]) -> int:
            sizes.append(len(seqs))
            return super().ack(seqs)

    rig = Rig(lambda _: Noting())
    channel = rig.channel()
    unacked(rig, channel)
    seqs = [seq for _, seq, _ in channel.deliveries()]

    channel.send(settlement(channel.ref, b"c", seqs[1:]))
    channel.die()

    assert rig.stat() == (1, 0)
    assert rig.info()["messages_unacknowledged"] == 0
    assert max(sizes) <= TURN_MESSAGES
    assert sum(sizes) == TOTAL - 1


def test_messages_that_are_refused_by_a_channel_that_ends_are_back_once() -> None:
    rig = Rig()
    dying, heir = rig.channel(), rig.channel()
    unacked(rig, dying)
    seqs = [seq for _, seq, _ in dying.deliveries()]

    dying.send(mail.Requeue(dying.ref, b"c", seqs[1:]))
    dying.start_asking(queue_requests.Leave(dying.ref))
    rig.settle()

    assert rig.stat() == (TOTAL, 0)
    assert rig.info()["messages_unacknowledged"] == 0
    heir.consume(b"h")
    assert [body for body, _, _ in heir.deliveries()] == [b"%d" % n for n in range(TOTAL)]


def test_requeues_of_two_channels_at_once_restore_the_order() -> None:
    rig = Rig()
    one, two, heir = rig.channel(), rig.channel(), rig.channel()
    for channel in (one, two):
        channel.consume(b"c")
    for start in range(0, 4 * TURN_MESSAGES, TURN_MESSAGES):
        one.publish(*[b"%d" % n for n in range(start, start + TURN_MESSAGES)])
        rig.settle()
    seqs = {channel: [seq for _, seq, _ in channel.deliveries()] for channel in (one, two)}

    for channel, own in seqs.items():
        assert len(own) == 2 * TURN_MESSAGES
        channel.ask(queue_requests.Cancel(channel.ref, b"c"))
    for channel, own in seqs.items():
        channel.send(mail.Requeue(channel.ref, b"c", own[1:]))
        channel.send(mail.Requeue(channel.ref, b"c", own[:1]))
    heir.consume(b"h")

    assert heir.bodies() == [b"%d" % n for n in range(4 * TURN_MESSAGES)]


@pytest.mark.parametrize("kind", ["publish", "straight", "ack", "requeue"])
def test_batches_that_wait_are_handled_a_turns_worth_at_a_time(kind: str) -> None:
    handled: list[int] = []

    class Noting(OpenQueue):
        def publish_delivered(self, messages: list[Any], *more: Any) -> tuple[int, bool]:
            handled.append(len(messages))
            return super().publish_delivered(messages, *more)

        def ack(self, seqs: list[int]) -> int:
            handled.append(len(seqs))
            return super().ack(seqs)

        def requeue(self, seqs: list[int]) -> int:
            handled.append(len(seqs))
            return super().requeue(seqs)

    arguments = longs(x_message_ttl=10_000) if kind == "publish" else {}
    rig = Rig(lambda _: Noting(), arguments=arguments)
    channel, other = rig.channel(), rig.channel()
    batch, count = TURN_MESSAGES // 10, 50
    channel.consume(b"c")
    for _ in range(count):
        channel.publish(*[b"x"] * batch)
        rig.settle()
    deliveries = [seqs for each in channel.take(mail.Deliver) if (seqs := each.seqs)]

    handled.clear()
    for number, seqs in enumerate(deliveries):
        if kind == "publish":
            channel.publish(*[b"x"] * len(seqs), expiration_ms=number + 10_000)
        elif kind == "straight":  # those that agree in persistence would be merged
            channel.publish(*[b"x"] * len(seqs), persistent=bool(number % 2))
        else:
            make = mail.Ack if kind == "ack" else mail.Requeue
            tag = (b"c", None)[number % 2]  # neighbours of one consumer would be merged
            channel.send(make(channel.ref, tag, seqs))
    rig.runtime.send(other.ref, "mail")
    seen: list[int] = []
    other.ref.cell.handler = Watcher(lambda _: seen.append(sum(handled)))
    rig.settle()

    assert sum(handled) >= batch * count
    assert seen[0] <= TURN_MESSAGES + batch
