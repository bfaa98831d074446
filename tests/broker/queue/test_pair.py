"""The pair under its supervisor: crashes, restarts, leftovers, and a late backing queue.

Tests: broker/queue/supervisor.py, broker/registry/registry.py
"""

from __future__ import annotations

import gc
import sys
from collections import Counter

import pytest

from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import KILL
from leveret.amqp.errors import NotFound
from leveret.broker import mail, queue_requests
from leveret.broker.queue.amqqueue import AmqQueue
from leveret.broker.queue.publishers.publishers import IDLE_S
from leveret.broker.queue.supervisor import RESTARTS_MAX, QueueSup
from leveret.broker.registry.registry import QueueEntry, QueueFailed, QueueUp
from leveret.core.message import Message
from leveret.queue_backing.actor import (
    BackingActor,
    BackingOwner,
    SetRamDurationTarget,
    StoreResumes,
)
from leveret.queue_backing.api import Dropped, Fetched, FetchReady
from leveret.queue_backing.proxy import BackingProxy
from leveret.queue_backing.variable.release import FREED_PER_TURN
from rigs.queues.open_queue import OpenQueue
from rigs.queues.queue_rig import Rig

# Crash and restart.


@pytest.mark.parametrize("half", ["amqqueue", "backing"])
@pytest.mark.parametrize("reason", ["oops", KILL])
def test_when_one_half_dies_both_are_restarted_and_the_entry_stays(half: str, reason: str) -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"c")
    rig.entry.watch(channel.ref)
    channel.publish(b"lost")
    old_queue, old_backing = rig.queue, rig.entry.backing
    assert old_backing is not None

    rig.runtime.exit(old_queue if half == "amqqueue" else old_backing, reason)
    rig.settle()

    assert not old_queue.is_alive
    assert not old_backing.is_alive
    assert rig.entry.is_running
    assert [up.entry for up in channel.take(QueueUp)] == [rig.entry]
    assert rig.stat() == (0, 0)
    channel.bodies()
    assert channel.consume(b"c") is None
    channel.publish(b"new")
    assert channel.bodies() == [b"new"]


def test_a_failing_backing_ends_both_once() -> None:
    class Failing(OpenQueue):
        def publish(self, messages: list[Message], *rest: object) -> tuple[int, bool]:
            if messages[0][2] == b"bad":
                raise OSError("disk on fire")
            return super().publish(messages, *rest)  # type: ignore[arg-type]

    rig = Rig(make_backing=lambda _: Failing())
    channel = rig.channel()
    for _ in range(RESTARTS_MAX):
        channel.publish(b"bad")
        rig.settle()
        assert rig.entry.is_running, "a crash of the pair counts once"

    channel.publish(b"bad")
    rig.settle()
    assert rig.entry.state == "crashed"


def test_after_too_many_restarts_the_queue_is_crashed_and_calls_say_so() -> None:
    rig = Rig()
    heard: list[str] = []
    for _ in range(RESTARTS_MAX + 1):
        rig.runtime.exit(rig.queue, KILL)
        rig.settle()
    rig.entry.when_running(lambda entry: heard.append(entry.state))

    assert not rig.sup.is_alive
    assert heard == ["crashed"]
    assert rig.deleted == []
    error = rig.entry.missing()
    assert isinstance(error, NotFound)
    assert str(error) == ("NOT_FOUND - queue 'q' in vhost '/' has crashed and failed to restart")


def test_a_queue_whose_supervisor_is_killed_is_crashed() -> None:
    rig = Rig()
    channel = rig.channel()
    rig.entry.watch(channel.ref)

    rig.runtime.exit(rig.sup, KILL)

    assert [told.entry for told in channel.take(QueueFailed)] == [rig.entry]
    assert rig.entry.state == "crashed"
    assert not rig.queue.is_alive


def test_watchers_are_told_once_that_the_queue_has_crashed_for_good() -> None:
    rig = Rig()
    channel = rig.channel()
    rig.entry.watch(channel.ref)
    for _ in range(RESTARTS_MAX):
        rig.runtime.exit(rig.queue, KILL)
        assert channel.take(QueueFailed) == []

    rig.runtime.exit(rig.queue, KILL)

    assert [told.entry for told in channel.take(QueueFailed)] == [rig.entry]


def test_a_vhost_that_comes_back_starts_its_queue_again() -> None:
    rig = Rig()
    rig.runtime.exit(rig.sup, "shutdown")
    rig.settle()

    rig.runtime.spawn(QueueSup, rig.entry)

    assert rig.entry.state == "running"


def test_a_queue_that_runs_gets_no_second_supervisor() -> None:
    rig = Rig()
    queue = rig.queue
    second = rig.runtime.spawn(QueueSup, rig.entry)
    rig.settle()

    assert not second.is_alive
    assert rig.entry.supervisor is rig.sup
    assert rig.queue is queue
    assert rig.entry.state == "running"


def test_a_consumer_that_is_announced_twice_is_one_consumer() -> None:
    rig = Rig()
    channel = rig.channel()

    assert [channel.consume(b"c", exclusive=True) for _ in range(2)] == [None, None]

    assert rig.stat() == (0, 1)


def test_crashes_far_apart_do_not_add_up() -> None:
    rig = Rig()
    for _ in range(3 * RESTARTS_MAX):
        rig.runtime.exit(rig.queue, KILL)
        rig.settle()
        rig.clock.jump(10.1)

    assert rig.entry.is_running


# The registry entry.


def test_an_entry_goes_through_its_states() -> None:
    told: list[QueueEntry] = []
    entry = QueueEntry("/", "q", on_deleted=told.append)
    heard: list[str] = []
    entry.when_running(lambda e: heard.append(e.state))
    assert (entry.state, entry.is_running, heard) == ("starting", False, [])

    rig = Rig()
    entry.up(rig.queue)
    assert (entry.state, entry.is_running, heard) == ("running", True, ["running"])

    entry.deleted()
    entry.deleted()
    assert (entry.state, entry.is_running, told) == ("deleted", False, [entry])
    assert str(entry.missing()) == "NOT_FOUND - no queue 'q' in vhost '/'"


def test_a_stopped_vhost_is_named_as_the_reason() -> None:
    rig = Rig()
    channel = rig.channel()
    rig.entry.watch(channel.ref)
    rig.runtime.exit(rig.sup, "shutdown")

    assert channel.take(QueueFailed) == []
    assert rig.entry.state == "stopped"
    assert str(rig.entry.missing()) == (
        "NOT_FOUND - queue 'q' in vhost '/' process is stopped by supervisor"
    )


def test_a_channel_that_stopped_watching_is_not_told() -> None:
    rig = Rig()
    channel = rig.channel()
    rig.entry.watch(channel.ref)
    rig.entry.unwatch(channel.ref)
    rig.entry.unwatch(channel.ref)

    rig.runtime.exit(rig.queue, KILL)

    assert channel.take(QueueUp) == []


def test_arguments_are_read_without_their_types() -> None:
    arguments = {"x-expires": ("b", 9), "x-overflow": ("S", b"drop-head"), "other": ("S", b"x")}
    settings = QueueEntry("/", "q", arguments=arguments).settings

    assert (settings.expires_ms, settings.overflow, settings.message_ttl_ms) == (
        9,
        "drop-head",
        None,
    )


# Leftovers.


def test_deleting_frees_the_messages_without_the_collector() -> None:
    rig = Rig()
    channel = rig.channel()
    message: Message = (b"o", b"h", bytes(100))
    references = sys.getrefcount(message)
    channel.consume(b"c", prefetch=1)
    channel.send(mail.Publish([message] * 3, False, [(channel.ref, 3, 300, 0)]))
    rig.settle()
    channel.box.clear()
    assert sys.getrefcount(message) > references

    gc.disable()
    try:
        channel.ask(queue_requests.Delete())
        channel.box.clear()
        assert sys.getrefcount(message) == references
    finally:
        gc.enable()


def living() -> Counter[str]:
    """Count the objects of a queue's classes, which allow no weak references."""
    kinds = (AmqQueue, BackingActor, BackingProxy)
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, kinds))


def test_a_deleted_queue_leaves_no_object_behind() -> None:
    rig = Rig()
    channel = rig.channel()
    channel.consume(b"c")
    channel.publish(b"0", seqno=1)
    rig.settle()
    gc.collect()  # what other tests have left
    before = living()
    count = rig.runtime.actor_count

    gc.disable()
    try:
        channel.ask(queue_requests.Delete())
        assert living() == before - Counter({"AmqQueue": 1, "BackingActor": 1, "BackingProxy": 1})
    finally:
        gc.enable()
    assert rig.runtime.actor_count == count - 3


@pytest.mark.parametrize("how", ["purge", "delete"])
def test_many_messages_are_freed_in_slices(how: str) -> None:
    freed: list[int] = []

    class Counting(OpenQueue):
        def timeout(self) -> None:
            freed.append(1)
            super().timeout()

    rig = Rig(make_backing=lambda _: Counting())
    channel = rig.channel()
    for _ in range(3):
        channel.publish(*[b"x"] * FREED_PER_TURN)
    rig.settle()

    assert (
        channel.ask(queue_requests.Purge() if how == "purge" else queue_requests.Delete())
        == 3 * FREED_PER_TURN
    )

    rig.clock.jump(0.0)
    assert len(freed) == 3
    rig.clock.jump(2 * IDLE_S)  # the account of the publisher is closed
    assert rig.clock.pending_count == 0


def test_publishers_that_are_gone_are_forgotten() -> None:
    gc.collect()  # what other tests have left
    rig = Rig()
    for _ in range(300):
        channel = rig.channel()
        channel.publish(b"x")
        rig.settle()
        rig.runtime.exit(channel.ref, KILL)
    rig.settle()

    alive = [ref for ref in gc.get_objects() if isinstance(ref, Ref) and ref.cell.state & 32]
    assert len(alive) < 150


# A backing queue as the one on disk will be: confirms come later, a fetch may have to wait.


class LateQueue(OpenQueue):
    """Persistent messages are safe, and messages are resident, when the test says so."""

    def __init__(self, owner: BackingOwner) -> None:
        super().__init__()
        self.owner = owner
        self.is_resident = True

    def publish(self, messages: list[Message], persistent: bool, *rest: object) -> tuple[int, bool]:
        first, _ = super().publish(messages, persistent, *rest)  # type: ignore[arg-type]
        return first, not persistent

    def publish_delivered(
        self, messages: list[Message], persistent: bool, *rest: object
    ) -> tuple[int, bool]:
        first, _ = super().publish_delivered(messages, persistent, *rest)  # type: ignore[arg-type]
        return first, not persistent

    def ack(self, seqs: list[int]) -> int:
        self.owner.confirmed([(seq, 1) for seq in seqs])
        return super().ack(seqs)

    def dropwhile(self, predicate: object, limit: int) -> Dropped:
        first = self.info()["next_deliver_seq_id"]
        dropped = super().dropwhile(predicate, limit)  # type: ignore[arg-type]
        if dropped.count:
            self.owner.confirmed([(first, dropped.count)])
        return dropped

    def fetch(self, limit: int, bytes_max: int, ack_required: bool) -> Fetched:
        if not self.is_resident:
            return Fetched([], [], pending=True)
        return super().fetch(limit, bytes_max, ack_required)


def late_rig() -> tuple[Rig, LateQueue]:
    made: list[LateQueue] = []

    def make(owner: BackingOwner) -> LateQueue:
        made.append(LateQueue(owner))
        return made[-1]

    rig = Rig(make_backing=make, durable=True)
    return rig, made[-1]


def sync(rig: Rig, queue: LateQueue, *runs: tuple[int, int]) -> None:
    queue.owner.confirmed(list(runs))
    rig.settle()


def test_messages_are_confirmed_as_they_become_safe_in_any_order() -> None:
    rig, queue = late_rig()
    one, two = rig.channel(), rig.channel()
    one.publish(b"0", b"1", b"2", persistent=True, seqno=1)
    two.publish(b"3", persistent=True, seqno=9)
    two.publish(b"4", persistent=False, seqno=10)

    assert one.take(mail.Confirm) == []
    assert [c.ranges for c in two.take(mail.Confirm)] == [[(10, 1)]]

    sync(rig, queue, (1, 1))
    assert [c.ranges for c in one.take(mail.Confirm)] == [[(2, 1)]]

    sync(rig, queue, (2, 2), (0, 1))
    assert [c.ranges for c in one.take(mail.Confirm)] == [[(3, 1), (1, 1)]]
    assert [c.ranges for c in two.take(mail.Confirm)] == [[(9, 1)]]

    sync(rig, queue, (0, 5))
    assert one.take(mail.Confirm) == two.take(mail.Confirm) == []


def test_flushes_that_wait_in_the_mailbox_are_one_confirm() -> None:
    rig, queue = late_rig()
    channel = rig.channel()
    channel.publish(b"0", b"1", b"2", persistent=True, seqno=1)
    rig.settle()

    queue.owner.confirmed([(2, 1)])
    channel.publish(b"3", persistent=True, seqno=4)
    queue.owner.confirmed([(0, 2)])

    assert [c.ranges for c in channel.take(mail.Confirm)] == [[(3, 1), (1, 2)]]


def test_messages_that_became_safe_without_a_publisher_waiting_confirm_nothing() -> None:
    rig, queue = late_rig()
    channel = rig.channel()
    channel.publish(b"0", persistent=True)
    sync(rig, queue, (0, 1))
    assert channel.take(mail.Confirm) == []


def test_an_account_stays_open_until_its_confirms_are_sent() -> None:
    """The channel keeps its half and its monitor until then, and a last grant comes once only."""
    rig, queue = late_rig()
    channel = rig.channel()
    channel.publish(b"0", persistent=True, seqno=1)

    rig.clock.jump(3 * IDLE_S)
    assert channel.take(mail.CreditGrant) == []

    sync(rig, queue, (0, 1))
    rig.clock.jump(2 * IDLE_S)
    assert [(each.messages, each.is_last) for each in channel.take(mail.CreditGrant)] == [(1, True)]
    assert rig.clock.pending_count == 0


def test_unsafe_messages_of_a_run_are_confirmed_one_by_one_and_those_of_no_ack_consumers_at_once() -> (
    None
):
    rig, queue = late_rig()
    channel = rig.channel()
    channel.consume(b"c", prefetch=2)

    channel.publish(b"0", b"1", b"2", b"3", persistent=True, seqno=1)

    assert channel.take(mail.Confirm) == []
    channel.ack(b"c", 0)
    assert [c.ranges for c in channel.take(mail.Confirm)] == [[(1, 1)]]
    sync(rig, queue, (1, 3))
    assert [c.ranges for c in channel.take(mail.Confirm)] == [[(2, 3)]]

    channel.ask(queue_requests.Cancel(channel.ref, b"c"))
    channel.ask(queue_requests.Purge())
    channel.consume(b"n", no_ack=True)
    channel.publish(b"4", persistent=True, seqno=5)
    assert [c.ranges for c in channel.take(mail.Confirm)] == [[(5, 1)]]


def test_a_straight_batch_cut_by_the_budget_confirms_each_message_once() -> None:
    rig, queue = late_rig()
    channel = rig.channel()
    channel.consume(b"n", no_ack=True)
    bodies = [b"x" * 200_000] * 3
    channel.publish(*bodies, persistent=True, seqno=1)

    assert [c.ranges for c in channel.take(mail.Confirm)] == [[(1, 1)]]
    sync(rig, queue, (0, 2))
    assert [c.ranges for c in channel.take(mail.Confirm)] == [[(2, 2)]]


def test_an_expired_message_is_confirmed() -> None:
    rig, _ = late_rig()
    channel = rig.channel()
    channel.publish(b"0", persistent=True, seqno=1, expiration_ms=100)
    assert channel.take(mail.Confirm) == []

    rig.clock.jump(0.2)

    assert [c.ranges for c in channel.take(mail.Confirm)] == [[(1, 1)]]


def test_a_deleted_queue_tells_channels_with_unconfirmed_messages() -> None:
    rig, _ = late_rig()
    owed, settled = rig.channel(), rig.channel()
    owed.publish(b"0", b"1", persistent=True, seqno=1)
    settled.publish(b"2", seqno=1)
    rig.settle()
    queue = rig.queue

    settled.ask(queue_requests.Delete())

    assert [notice.queue for notice in owed.take(mail.QueueDeleted)] == [queue]
    assert settled.take(mail.QueueDeleted) == []


def test_a_crashed_queue_does_not_tell_them_that_it_is_deleted() -> None:
    rig, _ = late_rig()
    channel = rig.channel()
    channel.publish(b"0", persistent=True, seqno=1)
    rig.settle()

    rig.runtime.exit(rig.queue, KILL)

    assert channel.take(mail.QueueDeleted) == []
    assert channel.take(mail.Confirm) == []


def test_a_transient_queue_confirms_persistent_messages_at_once() -> None:
    rig = Rig(make_backing=LateQueue, durable=False)
    channel = rig.channel()

    channel.publish(b"0", persistent=True, seqno=1)

    assert [c.ranges for c in channel.take(mail.Confirm)] == [[(1, 1)]]


def test_get_and_delivery_of_messages_on_disk_go_on_after_fetch_ready() -> None:
    rig, queue = late_rig()
    channel, getter = rig.channel(), rig.channel()
    channel.publish(b"0", b"1", b"2")
    queue.is_resident = False

    getter.start_asking(queue_requests.Get(getter.ref, no_ack=True))
    channel.consume(b"c")
    assert channel.take(mail.Deliver) == getter.box == []

    queue.is_resident = True
    rig.runtime.send(rig.queue, FetchReady())
    assert channel.bodies() == [b"1", b"2"]
    assert [message[2] for _, message, *_ in getter.box] == [b"0"]


def test_the_backing_actor_takes_housekeeping_as_mail() -> None:
    seen: list[object] = []

    class Housed(OpenQueue):
        def init(self, recover: bool) -> None:
            self.has_work = False

        def set_ram_duration_target(self, duration_s: float) -> None:
            seen.append(duration_s)
            self.has_work = True

        def resume(self) -> None:
            seen.append("resume")

        def needs_timeout(self) -> bool:
            return self.has_work

        def timeout(self) -> None:
            seen.append("timeout")
            self.has_work = False

    rig = Rig(make_backing=lambda _: Housed())
    assert rig.entry.backing is not None
    rig.runtime.send(rig.entry.backing, SetRamDurationTarget(2.5))
    rig.runtime.send(rig.entry.backing, StoreResumes())
    rig.settle()
    assert seen == [2.5, "resume", "timeout"]
