"""Operators' changes when the disk refuses: nothing is changed, in memory or on disk."""

from __future__ import annotations

import asyncio
import errno
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

from leveret.core.addresses import Address
from leveret.core.errors import StoreError
from leveret.management.node_admin import NodeAdmin
from leveret.metadata import environment
from leveret.server.broker import Broker
from leveret.server.config.config import Config
from rigs.nodes import clean_environment, leveret_program

DOCUMENT = {
    "users": [{"name": "new", "password": "pw"}, {"name": "hare", "password": "other"}],
    "vhosts": [{"name": "fresh"}, {"name": "v", "metadata": {"description": "changed"}}],
    "permissions": [
        {"user": "new", "vhost": "fresh", "configure": ".*", "write": ".*", "read": ".*"}
    ],
    "parameters": [
        {"vhost": "v", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 2}}
    ],
    "policies": [{"vhost": "v", "name": "p", "pattern": "", "definition": {"max-length": 1}}],
    "exchanges": [{"vhost": "v", "name": "x", "type": "topic"}],
    "queues": [{"vhost": "v", "name": "q"}, {"vhost": "fresh", "name": "q"}],
    "bindings": [
        {
            "vhost": "v",
            "source": "x",
            "destination": "q",
            "destination_type": "queue",
            "routing_key": "k",
        }
    ],
}


def config(folder: Path) -> Config:
    return Config(listen=(Address("127.0.0.1", 0),), data_dir=folder)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(config(tmp_path)) as running:
        admin = NodeAdmin(running)
        await admin.users.add_user("hare", "pw")
        await admin.vhosts.add_vhost("v")
        await admin.users.set_permissions("v", "hare", "^a", "^b", "^c")
        await admin.definitions.import_definitions({"queues": [{"vhost": "v", "name": "there"}]})
        await admin.policies.set_policy("v", "old", "", '{"message-ttl":70000}', 0, "all")
        yield running


@pytest.fixture
def full_disk(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Fill the disk: the map of the metadata is full and cannot grow."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def full(*_: object) -> None:
        raise lmdb.MapFullError("mdb_put: MDB_MAP_FULL: Environment mapsize limit reached")

    def fill() -> None:
        store: Any = broker.node.metadata.store
        monkeypatch.setattr(store._environment, "_write", full)
        monkeypatch.setattr(environment.os, "truncate", refuse)

    return fill


async def all_there_is(broker: Broker) -> dict[str, Any]:
    admin = NodeAdmin(broker)
    document = await admin.definitions.export_definitions()
    document["running"] = await admin.vhosts.list_vhosts()
    document["limits"] = {each.name: each.limits for each in broker.node.vhosts.values()}
    for name in broker.node.vhosts:
        document[f"queues of {name}"] = await admin.vhosts.list_queues(name)
    return document


CHANGES: dict[str, Callable[[NodeAdmin], Any]] = {
    "add_user": lambda admin: admin.users.add_user("new", "pw"),
    "change_password": lambda admin: admin.users.change_password("hare", "other"),
    "delete_user": lambda admin: admin.users.delete_user("hare"),
    "set_user_tags": lambda admin: admin.users.set_user_tags("hare", ["administrator"]),
    "set_permissions": lambda admin: admin.users.set_permissions("v", "hare", "", "", ""),
    "clear_permissions": lambda admin: admin.users.clear_permissions("v", "hare"),
    "set_policy": lambda admin: admin.policies.set_policy(
        "v", "new", "", '{"expires":70000}', 1, "all"
    ),
    "clear_policy": lambda admin: admin.policies.clear_policy("v", "old"),
    "set_operator_policy": lambda admin: admin.operator_policies.set_policy(
        "v", "new", "", '{"expires":70000}', 1, "all"
    ),
    "add_vhost": lambda admin: admin.vhosts.add_vhost("fresh"),
    "delete_vhost": lambda admin: admin.vhosts.delete_vhost("v"),
    "import_definitions": lambda admin: admin.definitions.import_definitions(DOCUMENT),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_that_the_disk_refuses_is_not_made(
    broker: Broker, tmp_path: Path, full_disk: Callable[[], None], change: str
) -> None:
    before = await all_there_is(broker)
    full_disk()

    with pytest.raises(StoreError, match="metadata cannot grow"):
        await CHANGES[change](NodeAdmin(broker))

    assert await all_there_is(broker) == before
    await NodeAdmin(broker).users.authenticate_user("hare", "pw")


@pytest.mark.parametrize("change", CHANGES)
async def test_a_refused_change_can_be_made_when_there_is_room_again(
    broker: Broker,
    full_disk: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    tmp_path: Path,
) -> None:
    full_disk()
    with pytest.raises(StoreError):
        await CHANGES[change](NodeAdmin(broker))
    monkeypatch.undo()

    await CHANGES[change](NodeAdmin(broker))

    after = await all_there_is(broker)
    await broker.stop()
    async with Broker(config(tmp_path)) as again:
        assert lasting(await all_there_is(again)) == lasting(after)


async def test_a_refused_import_leaves_a_deletion_that_is_owed(
    broker: Broker, full_disk: Callable[[], None]
) -> None:
    await NodeAdmin(broker).definitions.import_definitions(DOCUMENT)
    vhost = broker.node.vhosts["v"]
    full_disk()
    vhost.topology.queues["q"].deleted()
    owed = dict(broker.node.metadata.pending.deletes)
    assert len(owed) == 2  # the queue and its binding

    with pytest.raises(StoreError):
        await NodeAdmin(broker).definitions.import_definitions(DOCUMENT)

    assert broker.node.metadata.pending.deletes == owed


def lasting(found: dict[str, Any]) -> dict[str, Any]:
    """Return it without addresses and in an order of its own."""
    lists = {key: value for key, value in found.items() if isinstance(value, list)}
    rows = {
        key: sorted(str({k: v for k, v in row.items() if k != "pid"}) for row in value)
        for key, value in lists.items()
    }
    return {**found, **rows}


async def test_the_command_line_says_it_in_one_line(
    tmp_path: Path, full_disk: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    full_disk()
    process = await asyncio.create_subprocess_exec(
        leveret_program(), "ctl", "--data", str(tmp_path), "add_user", "new", "pw",
        stdout=PIPE, stderr=PIPE, cwd=tmp_path, env=clean_environment(),
    )  # fmt: skip
    _, said = await process.communicate()

    assert process.returncode == 70
    assert said.decode().splitlines() == [
        "leveret: metadata cannot grow to 33554432 bytes: [Errno 28] No space left on device"
    ]
    assert "Traceback" not in caplog.text
