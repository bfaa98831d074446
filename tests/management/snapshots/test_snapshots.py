"""``leveret snapshot`` against a broker in this process, and against the data directory of a stopped one.

Tests: broker/node/snapshots.py, management/snapshots/directory.py, management/verbs/snapshots.py,
    server/cli/snapshot_arguments.py, server/cli/snapshot_command.py
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from leveret.core.addresses import Address
from leveret.core.system.files import Files, OsCalls
from leveret.management.snapshots.directory import SnapshotDirectory
from leveret.server.broker import Broker
from leveret.server.cli.main import main
from leveret.server.config.config import Config
from rigs.waiting import eventually

PERSISTENT = aio_pika.DeliveryMode.PERSISTENT
Ran = tuple[int, str, str]
Run = Callable[..., Awaitable[Ran]]


@contextlib.asynccontextmanager
async def broker_on(data: Path) -> AsyncIterator[Broker]:
    async with Broker(Config(listen=(Address("127.0.0.1", 0),), data_dir=data)) as broker:
        yield broker


@contextlib.asynccontextmanager
async def channel_on(broker: Broker, vhost: str = "") -> AsyncIterator[Any]:
    connection = await aio_pika.connect(broker.url + "/" + vhost)
    async with connection:
        yield await connection.channel()


async def publish(channel: Any, queue: str, numbers: range, **properties: Any) -> None:
    for number in numbers:
        message = aio_pika.Message(b"%d" % number, delivery_mode=PERSISTENT, **properties)
        await channel.default_exchange.publish(message, queue)


async def drain(channel: Any, queue: str) -> list[int]:
    found = await channel.get_queue(queue)
    numbers = []
    while (message := await found.get(no_ack=True, fail=False)) is not None:
        numbers.append(int(message.body))
    return numbers


async def fill(broker: Broker) -> None:
    async with channel_on(broker) as channel:
        await channel.declare_queue("plain", durable=True)
        await channel.declare_queue("ranked", durable=True, arguments={"x-max-priority": 3})
        await channel.declare_queue("gone", auto_delete=True)
        exchange = await channel.declare_exchange("news", durable=True)
        await (await channel.get_queue("plain")).bind(exchange, "key")
        await publish(channel, "plain", range(10))
        for priority in (1, 3):
            await publish(channel, "ranked", range(priority, priority + 1), priority=priority)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def run(data: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    async def run_(*arguments: str) -> Ran:
        code = await asyncio.to_thread(main, ["snapshot", *arguments, "--data", str(data)])
        return code, *capsys.readouterr()

    return run_


def left(data: Path) -> set[str]:
    """Return the contents of the folder of snapshots."""
    return set(os.listdir(data / "snapshots")) - {"lock"}


async def test_of_a_running_broker(run: Run, data: Path, tmp_path: Path) -> None:
    async with broker_on(data) as broker:
        await fill(broker)
        code, out, err = await run("create", "one")
        async with channel_on(broker) as channel:
            await publish(channel, "plain", range(10, 20))

        assert (code, err) == (0, "")
        assert out.startswith(f"{data}/snapshots/one: 12 messages in 2 queues, ")
        assert out.endswith(" bytes, clean\n")
        assert await run("verify", "one") == (
            0,
            "one: sound, 12 messages, 12 records of 1290 bytes\n",
            "",
        )
        assert (await run("restore", "one", "--to", str(tmp_path / "new")))[0] == 0

    async with broker_on(tmp_path / "new") as broker, channel_on(broker) as channel:
        assert (
            str(broker.node_id)
            != json.loads((data / "snapshots/one/MANIFEST.json").read_text())["node"]
        )
        assert await drain(channel, "plain") == list(range(10))
        assert await drain(channel, "ranked") == [3, 1]
        message = aio_pika.Message(b"5", delivery_mode=PERSISTENT)
        await (await channel.get_exchange("news")).publish(message, "key")
        assert await drain(channel, "plain") == [5]


async def test_what_it_says_of_itself(run: Run, data: Path) -> None:
    async with broker_on(data) as broker:
        await fill(broker)
        code, out, _ = await run("create", "--json")

    row = json.loads(out)
    assert (code, row["messages"], row["clean"]) == (0, 12, True)
    assert row["path"] == str(data / "snapshots" / row["name"])
    manifest = json.loads((Path(row["path"]) / "MANIFEST.json").read_text())
    (store,) = manifest["stores"]
    assert {queue["name"]: queue["messages"] for queue in store["queues"]} == {
        "plain": 10,
        "ranked": 2,
    }
    assert len(store["queues"][1]["queue_nos"]) == 4
    assert (await run("list", "--json"))[1].startswith('[\n{"name":"' + row["name"])
    code, out, _ = await run("list")
    assert out.splitlines()[0].split("\t")[0] == "name"
    assert out.splitlines()[1].split("\t")[4:] == ["12", "true"]


async def test_of_a_broker_that_was_stopped(run: Run, data: Path, tmp_path: Path) -> None:
    async with broker_on(data) as broker:
        await fill(broker)

    code, out, _ = await run("create", "one")

    assert (code, out.split(", ")[-1]) == (0, "clean\n")
    assert (await run("restore", "one", "--to", str(tmp_path / "new")))[0] == 0
    shutil.rmtree(data)
    async with broker_on(tmp_path / "new") as broker, channel_on(broker) as channel:
        queue = await channel.get_queue("plain")
        assert (await queue.get()).redelivered is False
        assert await drain(channel, "plain") == list(range(1, 10))


async def test_of_some_vhosts(run: Run, data: Path, tmp_path: Path) -> None:
    async with broker_on(data) as broker:
        await fill(broker)
        assert (
            await asyncio.to_thread(main, ["ctl", "-q", "add_vhost", "v", "--data", str(data)]) == 0
        )
        permissions = ["set_permissions", "-p", "v", "guest", ".*", ".*", ".*"]
        await asyncio.to_thread(main, ["ctl", "-q", *permissions, "--data", str(data)])
        async with channel_on(broker, "v") as channel:
            await channel.declare_queue("other", durable=True)
            await publish(channel, "other", range(3))
        assert (await run("create", "one", "--vhost", "v"))[0] == 0
    assert (await run("create", "two", "--vhost", "v"))[0] == 0

    for name in ("one", "two"):
        assert (await run("restore", name, "--to", str(tmp_path / name)))[0] == 0
        async with broker_on(tmp_path / name) as broker:
            assert set(broker.node.vhosts) == {"v"}
            async with channel_on(broker, "v") as channel:
                assert await drain(channel, "other") == [0, 1, 2]


async def test_a_copy_stands_by_itself(run: Run, data: Path, tmp_path: Path) -> None:
    async with broker_on(data) as broker:
        await fill(broker)
        code, out, _ = await run("create", "one", "--copy", str(tmp_path / "copies"))
        assert code == 0
        assert out.startswith(f"{tmp_path}/copies/one: 12 messages")
    assert left(data) == set()
    shutil.rmtree(data)

    copy = tmp_path / "copies" / "one"
    assert (await run("verify", str(copy)))[0] == 0
    assert (await run("list", str(tmp_path / "copies")))[1].splitlines()[1].startswith("one\t")
    assert (await run("restore", str(copy), "--to", str(data)))[0] == 0
    links = {file.stat().st_nlink for file in copy.rglob("*") if file.is_file()}
    assert links == {1, 2}
    async with broker_on(data) as broker, channel_on(broker) as channel:
        assert await drain(channel, "plain") == list(range(10))


async def test_dropped_ones_and_drafts_are_gone(run: Run, data: Path) -> None:
    async with broker_on(data):
        for name in ("one", "two"):
            assert (await run("create", name))[0] == 0
        assert await run("drop", "one") == (0, "", "")
        assert left(data) == {"two"}
        (data / "snapshots" / "three.draft").mkdir()
        assert (await run("create", "four"))[0] == 0
        assert left(data) == {"two", "four"}
        (data / "snapshots" / "five.draft").mkdir()
    async with broker_on(data):
        assert left(data) == {"two", "four"}


REFUSED = [
    (["create", "one"], "snapshot 'one' exists"),
    (["create", "a/b"], "'a/b' cannot be the name of a snapshot: letters, digits, dots, '_' and '-', at most 100"),
    (["create", "x.draft"], "'x.draft' cannot be the name of a snapshot: letters, digits, dots, '_' and '-', at most 100"),
    (["create", "two", "--vhost", "nope"], "Virtual host 'nope' does not exist"),
    (["verify", "nope"], "no snapshot 'nope' in {data}/snapshots"),
    (["restore", "nope", "--to", "/nowhere"], "no snapshot 'nope' in {data}/snapshots"),
    (["restore", "one", "--to", "{data}"], "{data} is not empty"),
    (["drop", "nope"], "no snapshot 'nope' in {data}/snapshots"),
]  # fmt: skip


async def test_refusals_exit_65_with_one_line(run: Run, data: Path) -> None:
    async def refuse_all() -> None:
        for arguments, text in REFUSED:
            words = [word.format(data=data) for word in arguments]
            assert await run(*words) == (65, "", f"leveret: {text.format(data=data)}\n")
        assert left(data) == {"one"}

    async with broker_on(data):
        await run("create", "one")
        await refuse_all()
    await refuse_all()


async def test_one_process_at_a_time(run: Run, data: Path) -> None:
    async with broker_on(data):
        with SnapshotDirectory(Files(), data / "snapshots").locked():
            code, _, err = await run("create", "one")

    assert (code, err) == (65, f"leveret: another process changes {data}/snapshots\n")


async def test_what_is_no_data_directory_exits_78(run: Run, data: Path) -> None:
    assert await run("create") == (78, "", f"leveret: {data} is not a data directory of Leveret\n")
    assert not os.path.exists(data)  # noqa: ASYNC240


async def test_a_full_disk_leaves_nothing_and_the_broker_works(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_on(data) as broker:
        await fill(broker)
        with monkeypatch.context() as patch:
            patch.setattr(OsCalls, "link", _no_room)
            code, out, err = await run("create", "one")
        assert (code, out) == (70, "")
        assert err == "leveret: snapshot 'one' not made: No space left on device\n"
        assert left(data) == set()
        with monkeypatch.context() as patch:
            patch.setattr(OsCalls, "rename", _no_room)
            code, out, err = await run("create", "one")
        assert (code, out, err) == (70, "", "leveret: no space left on device\n")
        assert left(data) == set()
        async with channel_on(broker) as channel:
            await publish(channel, "plain", range(10, 12))
            assert await drain(channel, "plain") == list(range(12))


def _no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_vhost_that_is_down_is_told(run: Run, data: Path) -> None:
    async with broker_on(data) as broker:
        vhost = broker.node.vhosts["/"]
        store, vhost.store.msg_store = vhost.store.msg_store, None
        code, _, err = await run("create", "one")
        vhost.store.msg_store = store

    assert (code, err) == (70, "leveret: snapshot 'one' not made: vhost '/' is down\n")
    assert left(data) == set()


async def test_a_broker_that_stops_amid_one_ends_it(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, goes_on = threading.Event(), threading.Event()
    link = OsCalls.link

    def slow(calls: OsCalls, path: Path, new: Path) -> None:
        began.set()
        assert goes_on.wait(20)
        link(calls, path, new)

    monkeypatch.setattr(OsCalls, "link", slow)
    async with broker_on(data) as broker:
        await fill(broker)
        creating = asyncio.create_task(run("create", "one"))
        await eventually(began.is_set)
        stopping = asyncio.create_task(broker.stop())
        code, _, err = await creating
        goes_on.set()
        await stopping

    assert (code, err) == (70, "leveret: the broker went away without an answer\n")
    async with broker_on(data) as broker, channel_on(broker) as channel:
        assert left(data) == set()
        assert await drain(channel, "plain") == list(range(10))


async def test_damage_is_named_and_exits_1(run: Run, data: Path, tmp_path: Path) -> None:
    async with broker_on(data) as broker:
        await fill(broker)
        await run("create", "one", "--copy", str(tmp_path))
    snapshot = tmp_path / "one"
    (segment,) = snapshot.rglob("*.rdq")
    with segment.open("r+b") as file:
        file.seek(64 + 36)
        file.write(b"????")

    code, out, _ = await run("verify", str(snapshot))
    assert code == 1
    first, last = out.splitlines()
    assert first.startswith("queue 'plain' in vhost '/': 1 messages cannot be read, seqs ")
    assert last.startswith("one: damaged, 12 messages, ")
    code, out, _ = await run("verify", str(snapshot), "--json")
    report = json.loads(out)
    assert (code, report["sound"]) == (1, False)
    assert (report["damaged"][0]["queue"], len(report["damaged"][0]["seqs"])) == ("plain", 1)

    (index,) = snapshot.rglob("store.lmdb/data.mdb")
    with index.open("ab") as file:
        file.write(b"?")
    code, out, _ = await run("verify", str(snapshot))
    assert "the checksum of " in out
    code, _, err = await run("restore", str(snapshot), "--to", str(tmp_path / "new"))
    assert (code, err[:42]) == (78, f"leveret: {snapshot} cannot be restored"[:42])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("text", ["", "{}", '{"format": 2}', '{"format": 1, "name": 3}'])
async def test_a_manifest_that_cannot_be_used_exits_78(run: Run, data: Path, text: str) -> None:
    async with broker_on(data):
        await run("create", "one")
        await run("create", "two")
    (data / "snapshots" / "one" / "MANIFEST.json").write_text(text)

    assert (await run("verify", "one"))[0] == 78
    code, out, err = await run("list")
    assert (code, len(out.splitlines()), len(err.splitlines())) == (78, 2, 1)
    assert (await run("drop", "one"))[0] == 0


async def test_a_snapshot_without_a_manifest_is_listed_as_damaged_and_dropped(
    run: Run, data: Path
) -> None:
    async with broker_on(data):
        await run("create", "one")
        await run("create", "two")
    manifest = data / "snapshots" / "one" / "MANIFEST.json"
    manifest.unlink()
    (data / "snapshots" / "notes.txt").touch()

    missing = f"leveret: {manifest} is missing\n"
    assert await run("verify", "one") == (78, "", missing)
    assert await run("restore", "one", "--to", f"{data}2") == (78, "", missing)
    code, out, err = await run("list")
    assert (code, len(out.splitlines()), err) == (78, 2, missing)
    assert await run("drop", "one") == (0, "", "")
    assert left(data) == {"two", "notes.txt"}
