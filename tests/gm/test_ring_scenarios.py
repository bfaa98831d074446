"""Scenarios of failing members, on the real runtime and with the record in a real etcd.

Each ends with a ring at rest: every member in the record's last version, no dead in it, nothing kept, and the
guarantees G1 to G5 hold in the whole history.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf
from random import Random

import pytest

from leveret.actors.runtime.runtime import Runtime
from leveret.gm import GroupEndedError, MemberId
from leveret.gm.actor import GmActor
from leveret.gm.node import RingNode
from leveret.gm.records.etcd_store import EtcdGroupStore
from leveret.gm.ring.frames import Activity, CatchUp, Frame
from leveret.gm.ring.view import View
from leveret.supervisors.spec import ChildSpec, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor
from rigs.cluster.etcd import Etcd
from rigs.gm.live_ring import WITHIN_S, BreakingLinks, LiveRing, Recorder, hears
from rigs.view_history import versions, violations
from rigs.waiting import eventually


@pytest.fixture
def ring(live: Runtime, etcd_store: EtcdGroupStore) -> LiveRing:
    return LiveRing(live, etcd_store)


class Restarting(Supervisor):
    """Starts one member again whenever it ends."""

    def init(self, node: RingNode, recorders: list[Recorder], ring: LiveRing) -> SupervisorSpec:
        child = ChildSpec("gm", Restarted, args=(node, recorders, ring))
        return SupervisorSpec("one_for_one", intensity=100, children=(child,))


class Restarted(GmActor):
    """A member whose callbacks are new with each start: it begins empty."""

    def init(self, node: RingNode, recorders: list[Recorder], ring: LiveRing) -> None:  # type: ignore[override]
        recorders.append(Recorder(ring.history))
        super().init(node, "g", recorders[-1])


async def test_k14_a_mirrors_member_is_killed_and_the_ring_heals_and_takes_it_back_empty(
    ring: LiveRing, live: Runtime, etcd_store: EtcdGroupStore
) -> None:
    master, mirror = await ring.joined(2)
    recorders: list[Recorder] = []
    node = RingNode(live, etcd_store, ring.links)
    tree = live.spawn(Restarting, node, recorders, ring)
    await eventually(lambda: recorders and recorders[0]._me.number)
    stop = asyncio.Event()
    load = asyncio.create_task(ring.flood(master, stop))
    await eventually(lambda: recorders[0].messages)
    killed = recorders[0]._me
    ring.kill(killed)
    await eventually(lambda: len(recorders) == 2 and recorders[1].messages, within_s=WITHIN_S)
    stop.set()
    await load
    again = recorders[1]

    assert again._me != killed
    assert killed not in {publisher for publisher, _ in again.messages}
    await hears(ring, mirror, killed)
    first = again.messages[0][1]
    assert first not in [message for _, message in recorders[0].messages], "it began empty"
    live.exit(tree, "shutdown")
    await live.join(tree)
    await ring.rests()


async def test_k15_the_masters_member_is_killed_under_load_and_the_mirrors_agree(
    ring: LiveRing,
) -> None:
    master, one, two = await ring.joined(3)
    stop = asyncio.Event()
    load = asyncio.create_task(ring.flood(master, stop))
    await eventually(lambda: len(ring.messages(two)) > 20)
    ring.kill(master)
    await load
    await hears(ring, one, master.me)
    await hears(ring, two, master.me)

    assert ring.messages(one) == ring.messages(two), "one publisher: one order"
    await ring.rests()


async def test_k16_the_left_neighbour_of_a_joiner_is_killed_before_the_catch_up(
    ring: LiveRing,
) -> None:
    members = await ring.joined(3)
    known = {each.me for each in members}
    killed: list[MemberId] = []

    def kill_left(sender: MemberId, to: MemberId, frame: Frame) -> bool:
        if to in known or type(frame) is not CatchUp or killed:
            return False
        killed.append(sender)
        ring.kill(sender)
        return True

    ring.links.on_send = kill_left
    joiner = await ring.join()

    assert len(killed) == 1
    await hears(ring, joiner, *killed)
    await ring.rests()


async def test_k17_a_joiner_is_killed_before_the_catch_up_and_leaves_no_trace(
    ring: LiveRing,
) -> None:
    members = await ring.joined(3)
    known = {each.me for each in members}
    killed: list[MemberId] = []

    def kill_joiner(_: MemberId, to: MemberId, frame: Frame) -> None:
        if to not in known and type(frame) is CatchUp:
            killed.append(to)
            ring.kill(to)

    ring.links.on_send = kill_joiner
    with pytest.raises(GroupEndedError, match="killed"):
        await ring.join()

    assert len(killed) == 1
    for each in members:
        await hears(ring, each, *killed)
    await ring.rests()


async def test_k18_three_joiners_and_a_death_at_the_same_time_fifty_times(
    ring: LiveRing, etcd: Etcd, etcd_store: EtcdGroupStore, seed: int
) -> None:
    random = Random(seed)
    await ring.joined(2)
    for _ in range(50):
        await ring.publish(random.choice(ring.groups))
        victim = random.choice(ring.groups)
        deeds = [asyncio.create_task(ring.join()) for _ in range(3)]
        for _ in range(random.choice((0, 0, 1, 3, 10))):
            await asyncio.sleep(random.random() * 0.002)
        ring.kill(victim)
        await asyncio.gather(*deeds)
        await ring.publish(random.choice(ring.groups), is_confirmed=True)
        while len(ring.groups) > 3:  # others end in order
            await random.choice(ring.groups).leave()
    await ring.rests()
    history = versions(etcd, etcd_store.key("g"))

    assert violations(history) == []
    for record in history:
        heirs = [dead for me in record.alive() for dead in View(record, me).aliases]
        dead = [entry.member for entry in record.entries if not entry.is_alive]
        if record.alive():
            assert sorted(heirs) == sorted(dead), "each of the dead has one heir"


async def test_k19_what_a_member_had_not_sent_when_it_was_killed_reaches_nobody(
    ring: LiveRing,
) -> None:
    dying, one, two = await ring.joined(3)
    sent = await ring.publish(dying, is_confirmed=True)
    lost = b"lost"
    ring.history.published(dying.me, lost)
    ring.member(dying).broadcast([lost])  # it waits to be sent
    dying.actor.cell.actor._act()
    assert ring.messages(dying)[-1] == lost, "its own callback has run"
    ring.kill(dying)
    await hears(ring, one, dying.me)
    await hears(ring, two, dying.me)

    assert ring.messages(one) == ring.messages(two) == [sent]
    await ring.rests()


@pytest.mark.parametrize("frames", [1, 2, 3])
async def test_k20_what_a_killed_member_has_told_one_neighbour_only_reaches_all(
    ring: LiveRing, frames: int
) -> None:
    dying, *others = await ring.joined(4)
    sent: list[Frame] = []

    def kill_later(sender: MemberId, _: MemberId, frame: Frame) -> bool:
        if sender != dying.me or type(frame) is not Activity:
            return False
        sent.append(frame)
        if len(sent) == frames:
            ring.kill(dying)
        return len(sent) > frames

    ring.links.on_send = kill_later
    wanted = []
    for _ in range(frames):
        if dying.actor.is_alive:
            known = len(sent)
            wanted.append(await ring.publish(dying))
            await eventually(lambda known=known: len(sent) > known)
    for each in others:
        await hears(ring, each, dying.me)

    heard = [ring.messages(each) for each in others]
    assert heard[0]
    assert heard[0] == heard[1] == heard[2] == wanted[: len(heard[0])]
    await ring.rests()


async def test_k21_the_heir_of_a_dead_member_dies_before_the_acknowledgements_are_through(
    ring: LiveRing,
) -> None:
    dying, heir, *others = await ring.joined(5)
    view = ring.member(dying).view
    assert view is not None
    heir = next(each for each in ring.groups if each.me == view.right)
    others = [each for each in ring.groups if each not in (dying, heir)]
    killed: list[MemberId] = []

    def kill_both(sender: MemberId, _: MemberId, frame: Frame) -> bool:
        if type(frame) is not Activity or len(killed) > 1:
            return False
        if sender == heir.me and not killed:  # it has the message, and passes it on
            ring.kill(dying)
            killed.append(dying.me)
        elif sender == heir.me and any(entry.publisher == dying.me for entry in frame.entries):
            ring.kill(heir)
            killed.append(heir.me)
            return True
        return False

    ring.links.on_send = kill_both
    message = await ring.publish(dying)
    for each in others:
        await hears(ring, each, dying.me)

    assert killed == [dying.me, heir.me]
    for each in others:
        assert ring.messages(each).count(message) == 1
        assert len(ring.recorders[each.me].deaths) == len(killed)
    await ring.rests()


async def test_k22_frames_are_late_and_links_break_but_nothing_is_lost_silently(
    live: Runtime, etcd_store: EtcdGroupStore, seed: int
) -> None:
    random = Random(seed)
    links = BreakingLinks(live, random, delay_s=0.01, loss=0.003)
    ring = LiveRing(live, etcd_store, links)

    async def keep_joining() -> None:
        while links.loss:
            if len(ring.groups) < 4:
                with suppress(GroupEndedError):  # it reached nobody, or was cut off
                    await ring.join()
            await eventually(lambda: len(ring.groups) < 4 or not links.loss, within_s=inf)

    joining = asyncio.create_task(keep_joining())
    await eventually(lambda: ring.groups)
    for count in range(10_000):
        if ring.groups:
            await ring.publish(random.choice(ring.groups))
        await asyncio.sleep(0.003)
        if count >= 300 and links.breaks > 2:
            break
    assert links.breaks > 2
    links.loss = 0.0
    await joining
    if not ring.groups:
        await ring.join()
    await ring.rests()


async def test_a_record_whose_members_have_all_ended_is_taken_over(
    ring: LiveRing, live: Runtime
) -> None:
    """As after a crash of the whole process, or after a creation that arrived late."""
    for each in await ring.joined(3):
        ring.kill(each)
    await eventually(lambda: not ring.groups)
    await ring.joined(2)
    await ring.rests()
