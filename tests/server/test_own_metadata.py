"""A data directory whose files are missing, empty, cut off, older, another node's or damaged: no start is silent.

Tests: server/cli/metadata_accept.py
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from leveret.broker.node import bootstrap
from leveret.broker.node.node import Node
from leveret.core.addresses import Address
from leveret.core.errors import StoreError
from leveret.metadata.environment import MetadataLostError
from leveret.metadata.tables import UserRow, VhostRow
from leveret.server.broker import Broker
from leveret.server.cli.main import main
from leveret.server.config.config import Config
from leveret.server.own_metadata import explained, open_metadata
from leveret.server.process import DataDirectory, DataDirectoryError

Damage = Callable[[Path, Path], None]  # of a file, which may be replaced by the other


def used(folder: Path, rows: int = 1) -> Path:
    """Make a data directory in which a broker has run, and stored messages."""
    with DataDirectory(folder) as directory:
        store = open_metadata(directory, lambda call: call())
        for number in range(rows):
            store.write(
                [VhostRow(f"{folder.name}{number}"), UserRow("ann", b"secret")], [], refused
            )
        store.close()
        directory.note_transaction(store.last_transaction)
    (folder / "vhosts" / "23cdf8e3ef9c808bf93842d6").mkdir(parents=True, exist_ok=True)
    return folder


def refused(error: StoreError | None) -> None:
    assert error is None


def start(folder: Path) -> tuple[str, list[str]]:
    """Open the metadata as a broker's start does; return the node's UUID and the vhosts."""
    with DataDirectory(folder) as directory:
        store = open_metadata(directory, lambda call: call())
        try:
            with explained(folder):
                vhosts = [row.name for row in store.load().vhosts]
        finally:
            store.close()
        return str(directory.node_id), vhosts


def outcome(folder: Path) -> tuple[str, object]:
    """Return the text by which a start is refused, or what it finds."""
    try:
        return "", start(folder)
    except StoreError as error:
        return str(error), None


def missing(path: Path, _: Path) -> None:
    path.unlink(missing_ok=True)


def empty(path: Path, _: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path, _: Path) -> None:
    data = path.read_bytes().rstrip(b"\0")
    path.write_bytes(data[: len(data) // 2])


def replaced(path: Path, other: Path) -> None:
    shutil.copy(other, path)


LOST = "leveret metadata accept --data {data}.*leveret ctl import_definitions"
NO_UUID = "does not hold a node's UUID: remove the file, and the UUID is taken from {data}/metadata"


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("metadata/data.mdb", missing, r"{data}/metadata/data.mdb is missing; .*" + LOST),
        ("metadata/data.mdb", empty, r"{data}/metadata/data.mdb is empty; .*" + LOST),
        ("metadata/data.mdb", cut, r"{data}/metadata/data.mdb: the file ends before page.*" + LOST),
        ("metadata/data.mdb", replaced, r"{data}/metadata is that of node {other}, .*" + LOST),
        ("node", empty, NO_UUID),
        ("node", cut, NO_UUID),
        ("node", replaced, "{data}/metadata is that of node {own}, and its .* {other} .file node."),
    ],
)
def test_files_that_name_nothing_the_node_knows_end_its_start(
    tmp_path: Path, name: str, damage: Damage, said: str
) -> None:
    data, other = used(tmp_path / "data"), used(tmp_path / "other")
    own, others = start(data)[0], start(other)[0]
    damage(data / name, other / name)

    expected = said.format(data=re.escape(str(data)), own=own, other=others)
    for _ in range(2):  # a refused start makes nothing that the next would take
        with pytest.raises(DataDirectoryError, match=expected):
            start(data)


@pytest.mark.parametrize("name", ["lock", "metadata/lock.mdb", "reserve", "ballast", "node"])
@pytest.mark.parametrize("damage", [missing, empty, cut, replaced])
def test_files_that_hold_nothing_are_made_anew(tmp_path: Path, name: str, damage: Damage) -> None:
    data, other = used(tmp_path / "data"), used(tmp_path / "other")
    before = start(data)
    for each in (data / name, other / name):
        each.touch()
    if name == "node" and damage is not missing:
        return  # it ends the start
    damage(data / name, other / name)

    assert start(data) == before == (before[0], ["data0"])


def test_a_lost_file_of_the_node_is_told_and_made_of_the_metadata(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = start(used(tmp_path / "data"))[0]
    (tmp_path / "data" / "node").unlink()

    assert start(tmp_path / "data")[0] == node
    assert "file was missing, its UUID is taken from the metadata" in caplog.text


def test_older_metadata_is_refused_however_old_it_is(tmp_path: Path) -> None:
    data = used(tmp_path / "data")
    for age in range(3):
        shutil.copytree(data / "metadata", tmp_path / f"copy{age}")
        used(data)
    newest = tmp_path / "newest"
    (data / "metadata").rename(newest)
    for age in range(3):
        shutil.copytree(tmp_path / f"copy{age}", data / "metadata")
        with pytest.raises(DataDirectoryError, match=r"is older than its node: .*" + "accept"):
            start(data)
        shutil.rmtree(data / "metadata")
    newest.rename(data / "metadata")

    assert start(data)[1] == ["data0"]


async def test_metadata_from_before_the_last_start_is_refused_after_a_kill(tmp_path: Path) -> None:
    data, killed = tmp_path / "data", tmp_path / "killed"
    async with Broker(Config(listen=(Address("127.0.0.1", 0),), data_dir=data)):
        shutil.copytree(data / "metadata", tmp_path / "before")
    shutil.copytree(tmp_path / "before", data / "metadata", dirs_exist_ok=True)
    (data / "node").write_text((data / "node").read_text().partition("\n")[0] + "\n")
    async with Broker(Config(listen=(Address("127.0.0.1", 0),), data_dir=data)):
        shutil.copytree(data, killed, ignore=shutil.ignore_patterns("*.sock"))
    shutil.copytree(tmp_path / "before", killed / "metadata", dirs_exist_ok=True)

    with pytest.raises(DataDirectoryError, match="is older than its node"):
        await Broker(Config(listen=(Address("127.0.0.1", 0),), data_dir=killed)).start()


async def test_metadata_that_a_refused_start_has_asked_for_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=tmp_path)
    async with Broker(config):
        pass
    shutil.copytree(tmp_path / "metadata", tmp_path / "copy")
    load = bootstrap.load

    async def find_damage(node: Node, **options: bool) -> None:
        await load(node, **options)
        raise MetadataLostError("a record is damaged")

    with monkeypatch.context() as patch:
        patch.setattr(bootstrap, "load", find_damage)
        with pytest.raises(DataDirectoryError, match="put back"):
            await Broker(config).start()
    shutil.rmtree(tmp_path / "metadata")
    (tmp_path / "copy").rename(tmp_path / "metadata")

    async with Broker(config) as broker:
        assert broker.node.vhosts


def test_no_bit_of_the_metadata_changes_anything_in_silence(tmp_path: Path) -> None:
    data = used(tmp_path / "data", rows=40)
    path = data / "metadata" / "data.mdb"
    before, whole = start(data), path.read_bytes()
    node = (data / "node").read_bytes()
    random_ = random.Random(46)
    size = len(whole.rstrip(b"\0"))
    seen = {"refused": 0, "same": 0}
    for _ in range(100):
        bit = random_.randrange(size * 8)
        with path.open("r+b") as file:
            file.seek(bit // 8)
            file.write(bytes([whole[bit // 8] ^ 1 << bit % 8]))
        said, found = outcome(data)
        assert found == before or str(data / "metadata") in said, (bit // 32768, bit // 8 % 4096)
        seen["refused" if said else "same"] += 1
        path.write_bytes(whole)
        (data / "node").write_bytes(node)

    assert min(seen.values()) > 5, seen


@pytest.mark.parametrize("content", ["", "c", "c a b", "\xff a"])
def test_a_cluster_file_that_names_no_node_is_told(tmp_path: Path, content: str) -> None:
    data = used(tmp_path / "data")
    (data / "cluster").write_bytes(content.encode("latin-1"))
    with (
        DataDirectory(data) as directory,
        pytest.raises(DataDirectoryError, match="does not hold the names of a cluster and its"),
    ):
        directory.check_cluster("c", "a")


def test_a_node_of_a_cluster_without_its_file_is_refused(tmp_path: Path) -> None:
    data = used(tmp_path / "data")
    shutil.rmtree(data / "metadata")
    (data / "cluster").write_text("c a\n")
    (data / "node").unlink()

    with pytest.raises(DataDirectoryError, match=r"node is missing: put the file of a backup"):
        DataDirectory(data)


async def test_accepted_metadata_gives_no_queue_the_number_of_one_with_messages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=tmp_path / "data")
    async with Broker(config) as broker:
        epoch = broker.node.epochs.current
    shutil.rmtree(tmp_path / "data" / "metadata")
    with pytest.raises(DataDirectoryError, match="is missing"):
        await Broker(config).start()
    assert not (tmp_path / "data" / "metadata").exists()

    assert main(["metadata", "accept", "--data", str(tmp_path / "data")]) == 0
    assert "is the metadata of node" in capsys.readouterr().out
    async with Broker(config) as broker:
        assert broker.node.epochs.current > epoch
        await broker.wait_serving()


async def test_a_directory_whose_metadata_and_node_are_both_older_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, said = tmp_path / "data", "metadata is older than the messages of a vhost"
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=data)

    async def run() -> None:
        async with Broker(config) as broker:
            await broker.wait_serving()

    await run()
    shutil.copytree(data, tmp_path / "old")
    await run()
    assert said not in caplog.text
    shutil.rmtree(data / "metadata")
    for name in ("metadata", "node"):
        (tmp_path / "old" / name).replace(data / name)
    await run()
    assert caplog.text.count(said) == 1


def test_nothing_but_a_data_directory_can_be_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["metadata", "accept", "--data", str(tmp_path / "none")]) == 78
    assert "is not a directory" in capsys.readouterr().err
    data = used(tmp_path / "data")
    (data / "cluster").write_text("c a\n")
    assert main(["metadata", "accept", "--data", str(data)]) == 78
    assert "is that of a node of a cluster" in capsys.readouterr().err
