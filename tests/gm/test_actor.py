"""Members as actors on the real runtime: groups for tasks, kills, supervisors, bounds.

Tests: gm/callbacks.py
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random

import pytest

from leveret.actors.links.codec import Unreadable
from leveret.actors.runtime.runtime import Runtime
from leveret.gm import Become, Callbacks, GmError, Group, GroupEndedError, MemberId, RingNode, Stop
from leveret.gm.actor import GmActor
from leveret.gm.records.group import NEW_EPOCH, Entry
from leveret.gm.records.group import Group as Record
from leveret.gm.records.memory_store import MemoryGroupStore
from leveret.gm.records.store import Then
from leveret.gm.requests import Broadcast, ForgetGroup, MemberStatus, Status, WhenJoined
from leveret.gm.ring.limits import Limits
from leveret.gm.ring.member import FORGOTTEN
from leveret.supervisors.requests import WhichChildren
from leveret.supervisors.spec import ChildSpec, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor
from leveret.testing.virtual_clock import VirtualClock
from rigs.gm.store import FaultyGroupStore
from rigs.waiting import eventually


class Log(Callbacks):
    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.deaths: list[MemberId] = []
        self.flows: list[bool] = []
        self.end: object = None

    def members_changed(self, births: frozenset[MemberId], deaths: frozenset[MemberId]) -> None:
        self.deaths += deaths

    def handle_msg(self, publisher: MemberId, message: bytes) -> Stop | Become | None:
        self.messages.append(message)
        if message == b"crash":
            raise ValueError(message)
        if message == b"stop":
            return Stop("enough")
        return None

    def flow(self, is_blocked: bool) -> None:
        self.flows.append(is_blocked)

    def handle_terminate(self, reason: object) -> None:
        self.end = reason


async def joined(node: RingNode, count: int) -> tuple[list[Group], list[Log]]:
    logs = [Log() for _ in range(count)]
    return [await Group.join("g", log, node, timeout_s=10.0) for log in logs], logs


async def test_every_member_has_every_message_and_leaving_tells_the_others(live: Runtime) -> None:
    groups, logs = await joined(RingNode(live), 3)
    await groups[0].broadcast(b"1", b"2")
    await groups[1].confirmed_broadcast(b"3", timeout_s=10.0)
    await groups[0].confirmed_broadcast(b"4", timeout_s=10.0)

    for log in logs:
        assert sorted(log.messages) == [b"1", b"2", b"3", b"4"]
    await groups[0].leave()
    assert logs[0].end == "normal"
    await eventually(lambda: logs[1].deaths == logs[2].deaths == [groups[0].me])
    with pytest.raises(GroupEndedError, match="join again"):
        await groups[0].broadcast(b"5")
    await groups[0].leave()


async def test_a_killed_member_is_reported_and_the_ring_works_on(live: Runtime) -> None:
    groups, logs = await joined(RingNode(live), 4)
    waiting = [
        asyncio.create_task(group.confirmed_broadcast(b"%d" % at, timeout_s=10.0))
        for at, group in enumerate(groups[1:])
    ]
    await asyncio.sleep(0)
    live.exit(groups[0].actor, "kill")
    await asyncio.gather(*waiting)

    await eventually(lambda: all(log.deaths == [groups[0].me] for log in logs[1:]))
    for log in logs[1:]:
        assert sorted(log.messages) == [b"0", b"1", b"2"]
    assert logs[0].end is None, "a kill leaves no time"


async def test_a_confirmed_broadcast_of_a_member_that_is_killed_fails(live: Runtime) -> None:
    groups, _ = await joined(RingNode(live), 2)
    waiting = asyncio.create_task(groups[0].confirmed_broadcast(b"1"))
    await asyncio.sleep(0)
    live.exit(groups[0].actor, "kill")

    with pytest.raises(GroupEndedError, match="killed"):
        await waiting


async def test_a_callback_that_fails_ends_its_member_only(live: Runtime) -> None:
    groups, logs = await joined(RingNode(live), 3)
    crashing = groups[1]
    await groups[2].broadcast(b"before")
    with pytest.raises(GroupEndedError, match="ValueError"):
        await crashing.broadcast(b"crash")
    await groups[2].confirmed_broadcast(b"after", timeout_s=10.0)

    assert b"after" in logs[0].messages
    assert crashing.me in logs[0].deaths or await _dies(logs[0], crashing.me)


async def _dies(log: Log, member: MemberId) -> bool:
    await eventually(lambda: member in log.deaths)
    return True


async def test_a_callback_that_answers_stop_ends_all_that_had_the_message(live: Runtime) -> None:
    groups, logs = await joined(RingNode(live), 2)
    await groups[0].broadcast(b"stop")
    for group in groups:
        await live.join(group.actor)

    assert [log.end for log in logs] == ["enough", "enough"]


async def test_a_publisher_waits_while_too_much_has_not_been_round(live: Runtime) -> None:
    node = RingNode(live, limits=Limits(pending_bytes=10_000))
    groups, logs = await joined(node, 3)
    await asyncio.gather(*(groups[0].broadcast(b"x" * 4_000) for _ in range(50)))
    assert (await groups[0].status()).pending.get(str(groups[0].me), 0) <= 1, "half of 10,000 bytes"
    await groups[0].confirmed_broadcast(b"last", timeout_s=10.0)

    assert all(len(log.messages) == 51 for log in logs)
    assert True in logs[0].flows
    assert logs[0].flows[-1] is False


async def test_a_join_that_takes_too_long_leaves_nothing(live: Runtime) -> None:
    store = FaultyGroupStore(live.clock, Random(1))
    store.is_up = False
    with pytest.raises(GroupEndedError, match="timeout"):
        await Group.join("g", Log(), RingNode(live, store), timeout_s=0.05)
    await eventually(lambda: live.actor_count == 0)


class KillingStore(MemoryGroupStore):
    """Ends the only member between a newcomer's read and its question, and lets others begin the group anew."""

    def __init__(self, meanwhile: Callable[[int], None]) -> None:
        super().__init__()
        self.reads = 0
        self._meanwhile = meanwhile

    def read(self, name: str, then: Then) -> None:
        answer = self.current(name)
        self.reads += 1
        self._meanwhile(self.reads)
        then(self.current(name) if self.reads > 1 else answer)


async def test_a_newcomer_that_may_have_been_buried_is_replaced_by_another(live: Runtime) -> None:
    """It has asked a member that ends without an answer; before it looks again, the group has begun anew."""
    node = RingNode(live)
    (first,), _ = await joined(node, 1)

    def meanwhile(reads: int) -> None:
        if reads == 1:  # it has the record with the first member, and will ask that
            live.exit(first.actor, "kill")
        elif reads == 2:  # it knows that the first has ended
            other = MemberId("elsewhere", 1)
            node.store.write("g", Record(NEW_EPOCH, 1, (Entry(other, True),)), 1, lambda _: None)

    store = KillingStore(meanwhile)
    store._records = node.store._records  # type: ignore[attr-defined]
    log = Log()
    newcomer = await Group.join("g", log, RingNode(live, store, node.links), timeout_s=10.0)

    assert store.reads > 2
    assert (await newcomer.status()).members == (str(newcomer.me),)
    await newcomer.broadcast(b"1")
    assert (log.messages, log.end) == ([b"1"], None)
    assert live.actor_count == 1


async def test_a_join_during_the_shutdown_is_not_tried_again(live: Runtime) -> None:
    store = FaultyGroupStore(live.clock, Random(1))
    store.is_up = False
    joining = asyncio.create_task(Group.join("g", Log(), RingNode(live, store)))
    await eventually(lambda: live.actor_count)
    await live.shutdown()

    with pytest.raises(GroupEndedError, match="shutdown"):
        await joining


async def test_a_name_that_the_store_refuses_is_an_error_of_the_join(live: Runtime) -> None:
    class Refusing(MemoryGroupStore):
        def read(self, name: str, then: Then) -> None:
            raise GmError(f"name {name!r} is of no use")

    with pytest.raises(GroupEndedError, match="'g' is of no use"):
        await Group.join("g", Log(), RingNode(live, Refusing()))
    assert live.actor_count == 0


async def test_a_group_is_forgotten_by_a_request(live: Runtime) -> None:
    node = RingNode(live)
    groups, logs = await joined(node, 3)
    assert await live.call(groups[1].actor, ForgetGroup()) is True
    for group in groups:
        await live.join(group.actor)

    assert [log.end for log in logs] == ["shutdown", FORGOTTEN, "shutdown"]
    assert node.store.current("g").group is None  # type: ignore[attr-defined]


async def test_a_member_that_has_not_joined_cannot_forget_its_group(live: Runtime) -> None:
    store = FaultyGroupStore(live.clock, Random(1))
    store.is_up = False
    actor = live.spawn(GmActor, RingNode(live, store), "g", Log())
    answer = await live.call(actor, ForgetGroup())

    assert isinstance(answer, GmError)
    assert "joining" in str(answer)


async def test_a_forgotten_group_whose_members_are_started_again_begins_anew(live: Runtime) -> None:
    node, logs = RingNode(live), [Log(), Log()]
    pair = live.spawn(Pair, node, logs)
    first, second = [ref for _, ref, _ in await live.call(pair, WhichChildren())]
    for member in (first, second):
        await live.call(member, WhenJoined())
    epoch = (await live.call(first, Status())).epoch
    await live.call(first, ForgetGroup())
    for member in (first, second):
        await live.join(member)
    again = [ref for _, ref, _ in await live.call(pair, WhichChildren())]
    for member in again:
        await live.call(member, WhenJoined())

    assert (await live.call(again[0], Status())).epoch > epoch


class Pair(Supervisor):
    """Two members of one group, each started again when it ends."""

    def init(self, node: RingNode, logs: list[Log]) -> SupervisorSpec:
        children = tuple(
            ChildSpec(f"gm {number}", GmActor, args=(node, "g", log))
            for number, log in enumerate(logs)
        )
        return SupervisorSpec("one_for_one", intensity=10, children=children)


@pytest.mark.parametrize("reason", ["kill", "shutdown", ("boom", 1)])
async def test_a_supervised_member_is_started_again_as_another(
    live: Runtime, reason: object
) -> None:
    node, logs = RingNode(live), [Log(), Log()]
    pair = live.spawn(Pair, node, logs)
    children = {name: ref for name, ref, _ in await live.call(pair, WhichChildren())}
    first, second = children["gm 0"], children["gm 1"]
    for member in (first, second):
        await live.call(member, WhenJoined())
    live.exit(first, reason)
    await live.join(first)
    children = {name: ref for name, ref, _ in await live.call(pair, WhichChildren())}
    again = children["gm 0"]
    me = await live.call(again, WhenJoined())
    assert await live.call(second, Broadcast([b"1"])) is True

    await eventually(lambda: b"1" in logs[0].messages)
    status: MemberStatus = await live.call(again, Status())
    assert again is not first
    assert str(me) in status.members
    await eventually(lambda: len(logs[1].deaths) == 1)


async def test_a_member_that_is_told_to_stop_sends_what_waits(live: Runtime) -> None:
    groups, logs = await joined(RingNode(live), 2)
    live.send(groups[0].actor, Broadcast([b"1"]))
    live.send(groups[0].actor, Broadcast([b"2"]))
    await asyncio.sleep(0)
    live.exit(groups[0].actor, "shutdown")

    await eventually(lambda: logs[1].messages == [b"1", b"2"])
    assert logs[0].end == "shutdown"


# On virtual time, without a loop.


def members(clock: VirtualClock, runtime: Runtime, count: int) -> tuple[list[Log], list[object]]:
    node = RingNode(runtime)
    logs = [Log() for _ in range(count)]
    refs: list[object] = []
    for log in logs:
        refs.append(runtime.spawn(GmActor, node, "g", log, Random(1)))
        clock.jump(0.1)
    return logs, refs


def test_what_waits_is_sent_when_the_actors_have_come_to_rest(
    clock: VirtualClock, runtime: Runtime
) -> None:
    logs, (one, _) = members(clock, runtime, 2)
    runtime.send(one, Broadcast([b"1"]))  # type: ignore[arg-type]
    runtime.run_until_idle()

    assert logs[1].messages == [b"1"], "no time has passed"


def test_a_broadcast_that_is_refused_as_mail_is_logged(
    clock: VirtualClock, runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    store = FaultyGroupStore(clock, Random(1))
    one = runtime.spawn(GmActor, RingNode(runtime, store), "g", Log())
    with caplog.at_level(logging.WARNING):
        runtime.send(one, Broadcast([b"1"]))
        runtime.run_until_idle()

    assert "broadcast refused: group=g reason=" in caplog.text
    answer = runtime.call_inline(one, Broadcast([b"1"]))
    assert isinstance(answer, GmError)


async def test_a_stray_message_does_not_end_a_member(
    live: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """As in RabbitMQ's unit_gm_SUITE, ``unexpected_msg``."""
    groups, logs = await joined(RingNode(live), 2)
    with caplog.at_level(logging.WARNING):
        for stray in ("stray", 7, [b"1"], None):
            live.send(groups[0].actor, stray)
        await groups[1].confirmed_broadcast(b"1", timeout_s=10.0)

    assert groups[0].actor.is_alive
    assert logs[0].messages == [b"1"]
    assert "group=g" in caplog.text


async def test_a_frame_that_cannot_be_read_ends_the_member(live: Runtime) -> None:
    """If it were dropped, what is in it would be missing."""
    groups, logs = await joined(RingNode(live), 2)
    live.send(groups[0].actor, Unreadable("a class that is not known here"))
    async with asyncio.timeout(10.0):
        reason = await live.join(groups[0].actor)

    assert "Unreadable" in str(reason)
    await eventually(lambda: logs[1].deaths == [groups[0].me])


def test_a_killed_member_leaves_no_timer(clock: VirtualClock, runtime: Runtime) -> None:
    store = FaultyGroupStore(clock, Random(1))
    store.is_up = False
    one = runtime.spawn(GmActor, RingNode(runtime, store), "g", Log())
    clock.jump(3.0)
    runtime.exit(one, "kill")
    clock.jump(5.0)

    assert clock.pending_count == 0
