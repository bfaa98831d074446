"""A ring whose record is in etcd, while etcd stands still, crashes, is compacted, or has been tampered with."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from leveret.actors.runtime.runtime import Runtime
from leveret.gm import Group, GroupEndedError
from leveret.gm.records.codec import pack
from leveret.gm.records.etcd_store import EtcdGroupStore
from rigs.cluster.etcd import Etcd, three_servers
from rigs.cluster.etcd_stores import opened
from rigs.faulty_proxy import Fault, FaultyProxy
from rigs.gm.live_ring import WITHIN_S, LiveRing, hears
from rigs.view_history import versions, violations
from rigs.waiting import eventually

TIMEOUT_S = 0.5  # of requests to an etcd that stands still


@pytest.fixture
async def failing(tmp_path: Path) -> AsyncIterator[Etcd]:
    """An etcd of the test's own, which it may stop."""
    with Etcd(tmp_path) as running:
        yield running


@pytest.fixture
async def ring(live: Runtime, failing: Etcd) -> AsyncIterator[LiveRing]:
    async with opened(failing.url, "/t", TIMEOUT_S) as store:
        yield LiveRing(live, store)
        await live.shutdown()  # before the client is closed


async def test_an_intact_ring_needs_no_etcd(ring: LiveRing, failing: Etcd) -> None:
    members = await ring.joined(3)
    await ring.rests()  # all have seen the last version
    failing.pause()
    for each in members * 3:
        await ring.publish(each, is_confirmed=True)
    failing.kill()
    for each in members * 3:
        await ring.publish(each, is_confirmed=True)

    assert all(len(ring.messages(each)) == 3 + 18 for each in members)


@pytest.mark.parametrize("how", ["stands still", "is killed"])
async def test_a_death_waits_for_etcd_and_is_made_once_when_it_is_back(
    ring: LiveRing, failing: Etcd, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    dying, one, two = await ring.joined(3)
    await ring.rests()
    failing.pause() if how == "stands still" else failing.kill()
    ring.kill(dying)
    waiting = [asyncio.create_task(ring.publish(each, is_confirmed=True)) for each in (one, two)]
    with caplog.at_level(logging.WARNING):
        await eventually(lambda: "the ring cannot change" in caplog.text, within_s=WITHIN_S)
    assert not any(task.done() for task in waiting), "nothing goes round past the dead"
    assert ring.recorders[one.me].deaths == ring.recorders[two.me].deaths == []
    troubles = [(await each.status()).store_trouble for each in (one, two)]
    assert any(failing.url in trouble for trouble in troubles)

    failing.resume() if how == "stands still" else await asyncio.to_thread(failing.start)
    await asyncio.gather(*waiting)
    await hears(ring, one, dying.me)
    await ring.rests()
    assert [(await each.status()).store_trouble for each in (one, two)] == ["", ""]
    assert violations(versions(failing, "/t/gm/g")) == []


async def test_etcd_crashes_and_comes_back_again_and_again_under_load(
    ring: LiveRing, failing: Etcd, seed: int
) -> None:
    random = Random(seed)
    await ring.joined(3)
    stop = asyncio.Event()

    async def publish() -> None:
        while not stop.is_set():
            await ring.publish(random.choice(ring.groups))
            await asyncio.sleep(0.001)

    async def come_and_go() -> None:
        while not stop.is_set():
            await ring.join()
            ring.kill(random.choice(ring.groups))
            await asyncio.sleep(random.random() * 0.05)

    load = [asyncio.create_task(work) for work in (publish(), come_and_go(), come_and_go())]
    for _ in range(3):
        await asyncio.sleep(random.random() * 0.3)
        failing.kill()
        await asyncio.sleep(random.random() * 0.3)
        await asyncio.to_thread(failing.start)
        failing.pause()
        await asyncio.sleep(random.random())
        failing.resume()
    stop.set()
    await asyncio.gather(*load)
    await ring.rests()

    assert violations(versions(failing, "/t/gm/g")) == []


async def test_the_leader_of_three_servers_is_killed_under_load_and_views_change_on(
    live: Runtime, tmp_path: Path
) -> None:
    with three_servers(tmp_path) as servers:
        urls = [server.url for server in servers]
        async with opened(urls[0], "/t", TIMEOUT_S, *urls[1:]) as store:
            ring = LiveRing(live, store)
            await ring.joined(3)
            stop = asyncio.Event()
            load = asyncio.create_task(ring.flood(ring.groups[0], stop))
            servers[0].kill()
            ring.kill(ring.groups[1])
            await ring.join()
            stop.set()
            await load
            await ring.rests()
            servers[1].kill()  # one of three is no majority: what needs no change goes on
            await ring.publish(ring.groups[0], is_confirmed=True)
            with pytest.raises(GroupEndedError, match="timeout"):
                await ring.join(timeout_s=1.0)
            await live.shutdown()


async def test_etcd_is_compacted_under_load(ring: LiveRing, failing: Etcd) -> None:
    await ring.joined(2)
    for _ in range(5):
        await ring.join()
        newest = json.loads(failing.post("/v3/kv/range", '{"key":"eA=="}'))["header"]["revision"]
        failing.post("/v3/kv/compaction", json.dumps({"revision": newest, "physical": True}))
        ring.kill(ring.groups[0])
    await ring.rests()


def put(etcd: Etcd, value: bytes) -> None:
    fields = {"key": b"/t/gm/g", "value": value}
    encoded = {each: base64.b64encode(text).decode() for each, text in fields.items()}
    etcd.post("/v3/kv/put", json.dumps(encoded))


async def test_members_survive_a_damaged_record_and_go_on_when_it_is_repaired(
    ring: LiveRing, failing: Etcd, caplog: pytest.LogCaptureFixture
) -> None:
    dying, one, two = await ring.joined(3)
    await ring.rests()
    record = await ring.record()
    assert record is not None
    with caplog.at_level(logging.ERROR):
        put(failing, b"\xc1 damage")
        await ring.publish(one, is_confirmed=True)  # the ring is intact
        ring.kill(dying)
        joining = asyncio.create_task(ring.join())
        await eventually(lambda: "key=/t/gm/g" in caplog.text, within_s=WITHIN_S)
        await eventually(
            lambda: any("/t/gm/g" in ring.trouble(each) for each in (one, two)), within_s=WITHIN_S
        )
    assert ring.groups == [one, two]

    put(failing, pack(record))
    await joining
    await hears(ring, one, dying.me)
    await ring.rests()


async def test_members_end_when_their_record_was_restored_from_a_backup(
    ring: LiveRing, failing: Etcd
) -> None:
    await ring.joined(2)
    backup = await ring.record()
    assert backup is not None
    await ring.join()
    await ring.rests()
    put(failing, pack(backup))
    ring.kill(ring.groups[2])
    await eventually(lambda: not ring.groups, within_s=WITHIN_S)

    await ring.joined(2)
    await ring.rests()


async def test_members_of_a_group_that_somebody_deleted_end_with_the_next_change(
    ring: LiveRing, failing: Etcd
) -> None:
    one, two, three = await ring.joined(3)
    await ring.rests()
    failing.post("/v3/kv/deleterange", json.dumps({"key": base64.b64encode(b"/t/gm/g").decode()}))
    await ring.publish(one, is_confirmed=True)
    ring.kill(three)
    await eventually(lambda: not ring.groups)
    with pytest.raises(GroupEndedError, match="join again"):
        await one.broadcast(b"1")
    with pytest.raises(GroupEndedError, match="join again"):
        await two.forget()

    await ring.joined(2)
    await ring.rests()


async def test_members_come_and_go_although_a_fifth_of_all_answers_is_lost(
    live: Runtime, etcd: Etcd, name: str, seed: int
) -> None:
    random = Random(seed)
    async with FaultyProxy(etcd.port) as proxy, opened(proxy.url, f"/{name}") as store:
        ring = LiveRing(live, store)
        await ring.join()
        proxy.fail_often(Fault.LOSE_ANSWER, random, 0.2)
        for _ in range(8):
            await ring.join()
            await ring.publish(random.choice(ring.groups))
            if len(ring.groups) > 2:
                ring.kill(random.choice(ring.groups))
        await ring.rests()
        assert proxy.faults > 2
        await live.shutdown()
    assert violations(versions(etcd, f"/{name}/gm/g")) == []


# Groups that are forgotten.


async def test_a_group_that_is_forgotten_ends_everywhere_and_its_name_is_free(
    live: Runtime, etcd_store: EtcdGroupStore
) -> None:
    ring = LiveRing(live, etcd_store)
    forgetting, *others = await ring.joined(4)
    first = await ring.record()
    reasons: list[object] = []
    for each in others:
        live.watch(each.actor, reasons.append)
    await ring.publish(forgetting, is_confirmed=True)
    await forgetting.forget()
    assert await ring.record() is None
    await eventually(lambda: not ring.groups, within_s=WITHIN_S)
    assert reasons == ["shutdown"] * 3
    with pytest.raises(GroupEndedError):
        await forgetting.forget()

    await ring.joined(3)
    second = await ring.record()
    assert first is not None
    assert second is not None
    assert second.epoch > first.epoch
    await ring.rests()


async def test_members_that_forget_their_group_at_once_do_not_delete_its_successor(
    live: Runtime, etcd_store: EtcdGroupStore
) -> None:
    ring = LiveRing(live, etcd_store)
    for _ in range(5):
        members = await ring.joined(3)
        outcomes = await asyncio.gather(
            *(each.forget() for each in members), ring.join(), return_exceptions=True
        )
        assert isinstance(outcomes[3], Group), "who joins has a group, be it the old or the next"
        assert any(outcome is None for outcome in outcomes[:3])
        if (await ring.record()) is None:
            await eventually(lambda: not ring.groups, within_s=WITHIN_S)
    if not ring.groups:
        await ring.join()
    await ring.rests()
