"""What a store of records promises, in memory and in etcd alike; and what only one in etcd can meet.

Tests: gm/records/etcd_store.py
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from leveret.gm.records.codec import pack
from leveret.gm.records.etcd_store import NAME_BYTES_MAX, EtcdGroupStore
from leveret.gm.records.group import NEW_EPOCH, Entry, GmError, Group, MemberId
from leveret.gm.records.memory_store import MemoryGroupStore
from leveret.gm.records.store import Conflict, GroupStore, Stored, Unavailable
from leveret.gm.records.transactions import (
    Add,
    Create,
    Erase,
    Forget,
    MarkDead,
    Read,
    Transaction,
)
from rigs.cluster.etcd import Etcd
from rigs.cluster.etcd_stores import opened
from rigs.faulty_proxy import Fault, FaultyProxy
from rigs.gm.record_worker import Worker, work
from rigs.programs import Background as Program
from rigs.view_history import versions, violations

Answer = Stored | Conflict | Unavailable
NOTHING = Stored(None, 0)


def group(*numbers: int, version: int = 0, epoch: int = NEW_EPOCH) -> Group:
    return Group(epoch, version, tuple(Entry(MemberId("n", each), True) for each in numbers))


async def read(store: GroupStore, name: str) -> Answer:
    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    store.read(name, answer.set_result)  # a second answer would raise
    return await answer


async def write(store: GroupStore, name: str, record: Group | None, revision: int) -> Answer:
    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    store.write(name, record, revision, answer.set_result)
    return await answer


async def written(store: GroupStore, name: str, record: Group | None, revision: int) -> Stored:
    answer = await write(store, name, record, revision)
    assert isinstance(answer, Stored)
    return answer


@pytest.fixture(params=["memory", "etcd"])
async def store(request: pytest.FixtureRequest, name: str) -> AsyncIterator[GroupStore]:
    if request.param == "memory":
        yield MemoryGroupStore()
        return
    etcd: Etcd = request.getfixturevalue("etcd")
    async with opened(etcd.url, f"/{name}") as made:
        yield made


# The contract.


async def test_a_record_is_read_as_it_was_written_with_its_epoch(store: GroupStore) -> None:
    assert await read(store, "g") == NOTHING
    first = await written(store, "g", group(1, 2), 0)
    assert first.group is not None
    assert first.group.epoch == first.revision > 0
    assert await read(store, "g") == first

    second = await written(store, "g", group(1, version=1, epoch=first.revision), first.revision)
    assert second.revision > first.revision
    assert second.group == group(1, version=1, epoch=first.revision)
    assert await read(store, "g") == second


async def test_a_write_with_another_revision_answers_what_is_there(store: GroupStore) -> None:
    assert await write(store, "g", group(1), 5) == Conflict(NOTHING)
    assert await write(store, "g", None, 5) == Conflict(NOTHING)
    first = await written(store, "g", group(1), 0)
    for record in (group(2), None):
        for revision in (0, first.revision - 1, first.revision + 1):
            assert await write(store, "g", record, revision) == Conflict(first)
    assert await read(store, "g") == first


async def test_a_deleted_record_is_gone_and_its_successor_has_a_higher_epoch(
    store: GroupStore,
) -> None:
    epochs = []
    for _ in range(3):
        made = await written(store, "g", group(1), 0)
        assert made.group is not None
        epochs.append(made.group.epoch)
        assert await written(store, "g", None, made.revision) == NOTHING
        assert await read(store, "g") == NOTHING
    assert epochs == sorted(set(epochs))


async def test_records_have_nothing_to_do_with_each_other(store: GroupStore) -> None:
    names = [
        "g",
        "g/h",
        "G",
        "gruppe \N{LATIN SMALL LETTER U WITH DIAERESIS} \N{RABBIT}",
        "g\0",
        "%67",
        " ",
    ]
    made = {each: await written(store, each, group(at), 0) for at, each in enumerate(names)}
    for each in names:
        assert await read(store, each) == made[each]


async def test_of_many_writes_at_once_one_succeeds(store: GroupStore) -> None:
    answers = await asyncio.gather(*(write(store, "g", group(at), 0) for at in range(20)))

    (winner,) = [answer for answer in answers if isinstance(answer, Stored)]
    assert [answer for answer in answers if isinstance(answer, Conflict)] == [Conflict(winner)] * 19


async def test_etcd_and_memory_answer_the_same_whatever_is_asked(
    etcd_store: EtcdGroupStore, seed: int
) -> None:
    random = Random(seed)
    memory = MemoryGroupStore()
    stores: tuple[GroupStore, GroupStore] = (memory, etcd_store)
    known: dict[str, list[tuple[int, int]]] = {each: [(0, 0)] for each in "ab"}
    for _ in range(150):
        each = random.choice("ab")
        here, there = random.choice(known[each][-3:])
        record = random.choice((None, group(random.randrange(9), epoch=random.choice((0, 7)))))
        if random.random() < 0.3:
            answers = [await read(one, each) for one in stores]
        else:
            answers = [
                await write(one, each, record, revision)
                for one, revision in zip(stores, (here, there), strict=True)
            ]
        assert [type(answer) for answer in answers] == [type(answers[0])] * 2
        one, other = (
            answer.stored if isinstance(answer, Conflict) else answer for answer in answers
        )
        assert isinstance(one, Stored)
        assert isinstance(other, Stored)
        if one.group is None or other.group is None:
            assert one == other == NOTHING
        else:
            assert one.group.entries == other.group.entries
            new = (one.group.epoch == one.revision, other.group.epoch == other.revision)
            assert new[0] is new[1] or 7 in (one.group.epoch, other.group.epoch)
        if (one.revision, other.revision) not in known[each]:
            known[each].append((one.revision, other.revision))


# Many at once.


async def test_twenty_transactors_make_one_history(
    etcd: Etcd, etcd_store: EtcdGroupStore, seed: int
) -> None:
    await work(etcd_store, "g", "n", workers=20, rounds=3, seed=seed)
    history = versions(etcd, etcd_store.key("g"))

    assert violations(history) == []
    born = {entry.member for each in history for entry in each.entries}
    assert len(born) == 60
    assert not history[-1].alive()


async def test_three_processes_make_one_history(
    etcd: Etcd, etcd_store: EtcdGroupStore, name: str, tmp_path: Path, seed: int
) -> None:
    script = Path(__file__).parents[1] / "rigs" / "gm" / "record_worker.py"
    programs = [
        Program(
            [sys.executable, str(script), etcd.url, f"/{name}", "g", f"p{at}", "3", "4", str(seed)],
            tmp_path,
            log=f"log{at}",
        )
        for at in range(3)
    ]
    for program in programs:
        with program:
            await asyncio.to_thread(program.wait_for, "done")
    history = versions(etcd, etcd_store.key("g"))

    assert violations(history) == []
    assert len({entry.member for each in history for entry in each.entries}) == 3 * 3 * 4


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER])
async def test_changes_are_made_once_although_requests_and_answers_are_lost(
    etcd: Etcd, name: str, seed: int, fault: Fault
) -> None:
    async with FaultyProxy(etcd.port) as proxy, opened(proxy.url, f"/{name}") as store:
        proxy.fail_often(fault, Random(seed), share=0.2)
        await asyncio.wait_for(work(store, "g", "n", workers=5, rounds=3, seed=seed), 120.0)
        assert proxy.faults > 5
        history = versions(etcd, store.key("g"))

    assert violations(history) == []
    born = {entry.member for each in history for entry in each.entries}
    assert len(born) == 15, "each was born, although its birth was asked for again and again"


# Silence.


ONE, TWO, THREE = (MemberId("n", number) for number in (1, 2, 3))
LATE: dict[str, tuple[list[Transaction], Transaction]] = {
    "a creation": ([], Create(ONE)),
    "an addition": ([Create(ONE)], Add(TWO, ONE)),
    "a death": ([Create(ONE), Add(TWO, ONE)], MarkDead(ONE, TWO)),
    "an erasure": (
        [Create(ONE), Add(TWO, ONE), MarkDead(ONE, TWO)],
        Erase(frozenset({ONE}), TWO),
    ),
}


@pytest.mark.parametrize("what", [*LATE, "a deletion"])
async def test_a_write_that_was_tried_again_changes_nothing_when_it_arrives_late(
    etcd: Etcd, etcd_store: EtcdGroupStore, name: str, what: str
) -> None:
    direct = Worker(etcd_store, "g", "n", Random(1))
    before, transaction = LATE.get(what, ([Create(ONE)], Read()))
    for each in before:
        begun = await direct.run(each)
    if what == "a deletion":
        assert begun is not None
        transaction = Forget(begun.epoch)
    async with FaultyProxy(etcd.port) as proxy, opened(proxy.url, f"/{name}") as store:
        proxy.fail(Fault.LATE, after=1)  # it reads, and its write is held back
        await Worker(store, "g", "n", Random(1)).run(transaction)
        assert proxy.faults == 1
        await direct.run(Create(THREE))  # has an effect after the deletion only
        settled = await read(etcd_store, "g")
        proxy.release()
        await asyncio.wait_for(proxy.delivered.wait(), 20.0)

        assert await read(etcd_store, "g") == settled
        assert isinstance(settled, Stored)
        assert transaction.apply(settled.group) is settled.group
        assert violations(versions(etcd, etcd_store.key("g"))) == []


async def test_a_name_that_is_no_key_is_refused(etcd_store: EtcdGroupStore) -> None:
    for wrong in ("", "x" * (NAME_BYTES_MAX + 1), "\udcff"):
        with pytest.raises(GmError, match="name of a group"):
            etcd_store.key(wrong)
    assert etcd_store.key("x" * NAME_BYTES_MAX)


@pytest.mark.parametrize("prefix", ["", "leveret", "/", "/a/", "/" + "x" * NAME_BYTES_MAX])
def test_a_prefix_that_is_no_beginning_of_keys_is_refused(prefix: str) -> None:
    class Unasked:
        """It need not be asked."""

    with pytest.raises(GmError, match="prefix"):
        EtcdGroupStore(Unasked(), prefix)  # type: ignore[arg-type]


# Records that somebody else has written.


def put(etcd: Etcd, key: str, value: bytes) -> None:
    encoded = (base64.b64encode(each).decode() for each in (key.encode(), value))
    etcd.post("/v3/kv/put", json.dumps(dict(zip(("key", "value"), encoded, strict=True))))


@pytest.mark.parametrize("damage", [b"", b"\xc1", b"no record", pack(group(1))[:-1]])
async def test_a_damaged_record_is_unavailable_and_logged_once_with_its_key(
    etcd: Etcd, etcd_store: EtcdGroupStore, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    key = etcd_store.key("g")
    put(etcd, key, damage)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            answer = await read(etcd_store, "g")
            assert isinstance(answer, Unavailable)
            assert key in answer.reason
        answer = await write(etcd_store, "g", group(1), 0)
        assert isinstance(answer, Unavailable)
    assert caplog.text.count(f"key={key}") == 1

    put(etcd, key, pack(group(1)))
    answer = await read(etcd_store, "g")
    assert isinstance(answer, Stored)


async def test_a_record_above_the_limit_is_not_sent(
    etcd_store: EtcdGroupStore, caplog: pytest.LogCaptureFixture
) -> None:
    large = Group(NEW_EPOCH, 0, (Entry(MemberId("n" * 600_000, 1), True),))
    with caplog.at_level(logging.ERROR):
        answer = await write(etcd_store, "g", large, 0)

    assert isinstance(answer, Unavailable)
    assert "names of nodes shorter" in answer.reason
    assert caplog.text.count(etcd_store.key("g")) == 1
    assert await read(etcd_store, "g") == NOTHING
