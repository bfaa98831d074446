"""Files and folders that only their owner may read, and links that are not followed.

Tests: core/system/files.py, core/log/output.py
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.raw import Connection
from leveret.core.addresses import Address
from leveret.core.log import output
from leveret.core.system.files import Files, keep_room
from leveret.server.broker import Broker
from leveret.server.cli.main import main
from leveret.server.config.config import Config
from leveret.server.own_metadata import open_metadata
from leveret.server.process import DataDirectory, DataDirectoryError


@pytest.fixture
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(top: Path) -> list[str]:
    """Return the files and folders that others may read or write."""
    found = [top, *top.rglob("*")]
    return [
        f"{each.relative_to(top)} {stat.filemode(each.lstat().st_mode)}"
        for each in found
        if each.lstat().st_mode & 0o077
    ]


def fill(address: tuple[str, int]) -> None:
    connection = Connection(address)
    assert connection.open().name == "connection.open-ok"
    channel = connection.channel()
    channel.ok("confirm.select")
    channel.ok("queue.declare", queue="q", durable=True, arguments={"x-max-priority": 2})
    channel.publish("q", bytes(100_000), delivery_mode=2)
    channel.read_confirms({1})
    connection.close()


@pytest.mark.usefixtures("_open_umask")
async def test_all_that_a_broker_and_its_tools_make_is_private(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, copies, exported = tmp_path / "data", tmp_path / "a" / "copies", tmp_path / "export"
    exported.write_text("of before, and longer than nothing" * 1_000)
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=data)

    def ask(*words: str) -> None:
        assert main(words) == 0, capsys.readouterr()

    async with Broker(config) as broker:
        address = broker.addresses[0]
        await asyncio.to_thread(fill, (address.host, address.port))
        given = ["--data", str(data)]
        await asyncio.to_thread(ask, "ctl", *given, "export_definitions", str(exported))
        await asyncio.to_thread(ask, "snapshot", "create", "one", *given)
        await asyncio.to_thread(ask, "snapshot", "create", "two", *given, "--copy", str(copies))
        broker.node.ballast.restore()
        assert open_to_others(data) == []
    for words in (
        ["snapshot", "restore", str(copies / "two"), "--to", str(tmp_path / "restored")],
        ["store", "salvage", str(data), "--to", str(tmp_path / "salvaged")],
        ["store", "compact", str(data)],
    ):
        ask(*words)
    handlers = output.configure("info", tmp_path / "log")
    output.release(handlers)

    made = {each: open_to_others(tmp_path / each) for each in os.listdir(tmp_path)}
    assert set(made) == {"a", "data", "export", "log", "restored", "salvaged"}
    assert not any(made.values()), made
    assert exported.read_text().startswith("{")


@pytest.mark.parametrize("name", ["lock", "metadata/data.mdb", "metadata/lock.mdb", "node.tmp"])
def test_a_link_in_place_of_a_file_of_the_directory_leads_nowhere(
    tmp_path: Path, name: str
) -> None:
    victim, data = tmp_path / "victim", tmp_path / "data"
    victim.write_text("precious")
    (data / "metadata").mkdir(parents=True)
    (data / name).symlink_to(victim)

    def start() -> None:
        with DataDirectory(data) as directory:
            open_metadata(directory, lambda call: call()).close()

    if name == "node.tmp":  # a draft, made anew
        start()
    else:
        with pytest.raises((DataDirectoryError, OSError, Exception), match="symbolic link"):
            start()
    assert victim.read_text() == "precious"


def test_links_to_files_that_are_written_are_not_followed(tmp_path: Path) -> None:
    victim, link, files = tmp_path / "victim", tmp_path / "link", Files()
    victim.write_text("precious")
    link.symlink_to(victim)
    for write in (files.open_append, files.open_write, files.open_lock, files.create):
        with pytest.raises(OSError, match=r"not followed|exists") as caught:
            write(link)
        assert caught.value.errno in {errno.ELOOP, errno.EEXIST}
    with pytest.raises(OSError, match="symbolic links"):
        keep_room(link, 10)
    assert files.read(link) == b"precious"


def test_an_export_does_not_follow_a_link_but_that_of_the_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from leveret.server.cli.actions import _opened

    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("precious")
    link.symlink_to(victim)
    with pytest.raises(OSError, match="a symbolic link, which is not followed; remove it"):
        _opened(link)
    os.close(_opened(Path("/dev/null")))
    assert victim.read_text() == "precious"


@pytest.mark.parametrize(("mode", "is_told"), [(0o700, False), (0o770, True), (0o777, True)])
def test_a_directory_that_others_may_use_is_told_with_the_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, is_told: bool
) -> None:
    tmp_path.chmod(mode)
    DataDirectory(tmp_path).close()
    tmp_path.chmod(0o700)

    said = f"folder={tmp_path} mode={mode:04o} remedy=chmod 700 {tmp_path}"
    assert (said in caplog.text) is is_told


def test_a_lock_file_that_is_removed_lets_nobody_in(tmp_path: Path) -> None:
    with DataDirectory(tmp_path):
        (tmp_path / "lock").unlink()
        with pytest.raises(DataDirectoryError, match="is in use by the broker with process id"):
            DataDirectory(tmp_path)
