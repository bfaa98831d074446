"""What a queue does when other policies apply to it than before, on virtual time."""

from __future__ import annotations

import pytest

from leveret.broker import mail, queue_requests
from leveret.core.limits import DELIVERY_BATCH_MESSAGES
from leveret.queue_backing.actor import BackingOwner
from leveret.queue_backing.variable.limits import Limits
from leveret.queue_backing.variable.queue import VariableQueue
from leveret.testing.virtual_clock import VirtualClock
from rigs.queues.fake_index import FakeIndex
from rigs.queues.queue_rig import Rig, longs


def test_a_ttl_is_that_of_messages_published_from_now_on() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.publish(b"before")
    rig.set_policy(message_ttl=1000)
    channel.publish(b"with")
    rig.set_policy()
    channel.publish(b"after")

    rig.clock.jump(10)
    assert rig.stat() == (3, 0)  # it stands behind one that does not expire
    channel.consume(b"c", no_ack=True)
    assert channel.bodies() == [b"before", b"after"]


def test_what_expires_sooner_behind_others_is_not_delivered_in_their_batch() -> None:
    rig = Rig(arguments=longs(x_message_ttl=60_000))
    channel = rig.channel()
    channel.publish(b"0", b"1")
    rig.set_policy(message_ttl=1000)
    channel.publish(b"2")
    rig.clock.jump(2)

    channel.consume(b"c", prefetch=DELIVERY_BATCH_MESSAGES)

    assert channel.bodies() == [b"0", b"1"]
    assert rig.info()["messages"] == 2


def test_the_lesser_of_policy_and_argument_holds() -> None:
    rig = Rig(arguments=longs(x_message_ttl=1000))
    channel = rig.channel()
    rig.set_policy(message_ttl=5000)
    channel.publish(b"0")

    rig.clock.jump(1.001)
    assert rig.stat() == (0, 0)


def test_an_expiry_comes_goes_and_starts_anew() -> None:
    rig = Rig()
    rig.set_policy(expires=1000)
    rig.clock.jump(0.9)
    rig.set_policy(expires=1000, message_ttl=1)
    rig.clock.jump(0.9)
    assert not rig.deleted
    rig.set_policy()
    rig.clock.jump(100)
    assert not rig.deleted
    rig.set_policy(expires=1000)
    rig.clock.jump(1.001)
    assert rig.deleted == [rig.entry]


def test_an_older_timer_that_has_fired_already_does_not_count() -> None:
    rig = Rig(arguments=longs(x_expires=1000))
    rig.runtime.suspend(rig.queue)
    rig.clock.jump(1.5)  # its timer has fired, and waits
    rig.set_policy(queue_mode="lazy")
    rig.runtime.resume(rig.queue)
    rig.settle()

    assert rig.deleted == [rig.entry]  # the mails are handled in order


def variable(clock: VirtualClock | None = None) -> VariableQueue:
    return VariableQueue(FakeIndex(), clock or VirtualClock(), Limits(segment=4, step=10))


def test_the_mode_changes_at_once_and_in_steps() -> None:
    queue = variable()
    rig = Rig(lambda _: queue)
    channel = rig.channel()
    channel.publish(*[b"x"] * 95)

    rig.set_policy(queue_mode="lazy")
    assert (rig.info()["mode"], queue.mode, queue.ram_count) == ("lazy", "lazy", 0)
    channel.publish(b"y")
    assert queue.ram_count == 0
    rig.set_policy(queue_mode="default")
    assert queue.mode == "default"
    channel.publish(b"z")
    channel.consume(b"c", no_ack=True)
    assert channel.bodies() == [b"x"] * 95 + [b"y", b"z"]


def test_a_mode_that_nobody_asks_for_any_more_stays() -> None:
    queue = variable()
    rig = Rig(lambda _: queue)
    rig.set_policy(queue_mode="lazy")

    rig.set_policy()

    assert queue.mode == "lazy"


@pytest.mark.parametrize("how", ["argument", "policy"])
def test_a_queue_that_starts_takes_the_mode_it_has_been_given(how: str) -> None:
    queues: list[VariableQueue] = []

    def make(_: BackingOwner) -> VariableQueue:
        queues.append(variable())
        return queues[-1]

    arguments = {"x-queue-mode": ("S", b"lazy")} if how == "argument" else {}
    rig = Rig(make, arguments=arguments)
    if how == "policy":
        rig.set_policy(queue_mode="lazy")

    rig.runtime.exit(rig.queue, RuntimeError("killed"))
    rig.settle()

    assert [queue.mode for queue in queues][1:] == ["lazy"]


def test_a_deleted_queue_does_not_mind() -> None:
    rig = Rig()
    ref = rig.queue
    rig.runtime.suspend(ref)
    channel = rig.channel()
    channel.start_asking(queue_requests.Delete())
    rig.runtime.send(ref, mail.PolicyChanged())

    rig.runtime.resume(ref)
    rig.settle()

    assert rig.deleted == [rig.entry]
