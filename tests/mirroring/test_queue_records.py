"""Records of mirrored queues: their form, and changes of them in a real etcd."""

from __future__ import annotations

import logging

import msgspec
import pytest

from leveret.etcd.background import Background
from leveret.etcd.client import EtcdClient
from leveret.etcd.settings import EtcdSettings
from leveret.mirroring.queue_records import (
    DELETED,
    QueueRecordError,
    QueueRecords,
    pack,
    unpack,
)
from leveret.mirroring.replicas.record import QueueRecord, Replica, Stored
from rigs.cluster.etcd import Etcd

A, B = Replica("a", 3), Replica("b", 1)
RECORD = QueueRecord(4, A, (A, B))


def test_a_record_comes_back_as_it_was() -> None:
    assert unpack(pack(RECORD)) == RECORD


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        ("text", "array"),
        ([1, 4, ["a", 3], [["a", -3]]], ">= 0"),
        ([2, 4, ["a", 3], [["a", 3]]], "version 2, this node reads 1"),
        ([1, 4, ["a", 3], [["b", 1]]], "in-sync replicas"),
        ([1, 4, ["a", 3], [["a", 3], ["a", 4]]], "in-sync replicas"),
    ],
)
def test_other_records_are_refused(plain: object, words: str) -> None:
    with pytest.raises(QueueRecordError, match=words):
        unpack(msgspec.msgpack.encode(plain))


async def test_a_record_changes_if_it_has_the_revision_that_was_read(
    etcd: Etcd, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with EtcdClient(EtcdSettings((etcd.url,))) as client:
        background = Background(client)
        records = QueueRecords(background, f"/{name}/")

        async def written(record: QueueRecord | None, revision: int) -> Stored | None:
            found: list[Stored | None] = []
            records.write("q", record, revision, found.append)
            await background.settle()
            return found[0]

        async def read() -> Stored | None:
            found: list[Stored | None] = []
            records.read("q", found.append)
            await background.settle()
            return found[0]

        assert await read() == Stored(None, DELETED)
        first = await written(RECORD, 0)
        assert first is not None
        assert first.record == RECORD
        later = await written(RECORD.promoted(B), first.revision)
        assert later is not None
        assert later.record == QueueRecord(5, B, (B,))
        assert await written(RECORD, first.revision) == later == await read()

        await client.swap(records.key("q"), b"\xc1", later.revision)
        with caplog.at_level(logging.ERROR):
            assert await read() is None
            assert await read() is None
        assert len(caplog.records) == 1
        assert f"key=/{name}/q" in caplog.text

        row = await client.read(records.key("q"))
        assert row is not None
        assert await written(None, row.revision) == Stored(None, DELETED)
        assert await read() == Stored(None, DELETED)

    found: list[Stored | None] = []
    records.read("q", found.append)
    await background.settle()
    assert found == [None], "the client is closed"
