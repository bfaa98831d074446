"""The data directory and the listening sockets."""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.core.addresses import Address
from leveret.server import process
from leveret.server.config.config import DEFAULT_LISTEN
from leveret.server.process import AddressUnavailableError, DataDirectory, DataDirectoryError


def test_a_new_data_directory_is_private(tmp_path: Path) -> None:
    with DataDirectory(tmp_path / "a" / "data") as directory:
        assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700


def test_a_node_keeps_its_id(tmp_path: Path) -> None:
    with DataDirectory(tmp_path) as directory:
        first = directory.node_id
    with DataDirectory(tmp_path) as directory:
        assert directory.node_id == first

    assert isinstance(first, uuid.UUID)


def test_a_second_broker_is_refused_with_the_firsts_process_id(tmp_path: Path) -> None:
    with DataDirectory(tmp_path):
        with pytest.raises(DataDirectoryError) as caught:
            DataDirectory(tmp_path)
        said = f"data directory {tmp_path} is in use by the broker with process id {os.getpid()}"

        assert str(caught.value) == said


def test_another_process_is_refused_too(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path\nfrom leveret.server.process import *\n"
        f"try: DataDirectory(Path({str(tmp_path)!r}))\nexcept DataDirectoryError as e: print(e)"
    )
    environment = os.environ | {"PYTHONSAFEPATH": "1"}
    with DataDirectory(tmp_path):
        said = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )

    assert said.stdout.endswith(f"process id {os.getpid()}\n")


def test_the_lock_is_free_again_after_the_block(tmp_path: Path) -> None:
    for _ in range(3):
        with DataDirectory(tmp_path):
            assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    assert (tmp_path / "lock").read_text() == ""


def test_a_disk_that_fails_does_not_keep_the_directory_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "of the test")

    for name in ("fsync", "ftruncate"):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, fail)
            with pytest.raises(DataDirectoryError, match="of the test"):
                DataDirectory(tmp_path)
    with DataDirectory(tmp_path):
        monkeypatch.setattr(os, "ftruncate", fail)
    monkeypatch.undo()
    DataDirectory(tmp_path).close()


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("file", "data directory {} is not a directory"),
        ("file/below", "data directory {} is not writable: not a directory"),
    ],
)
def test_a_place_that_cannot_be_used_is_told(tmp_path: Path, place: str, said: str) -> None:
    (tmp_path / "file").write_text("x")

    with pytest.raises(DataDirectoryError) as caught:
        DataDirectory(tmp_path / place)

    assert str(caught.value) == said.format(tmp_path / place)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    with pytest.raises(DataDirectoryError, match=r"is not writable: permission denied$"):
        DataDirectory(tmp_path)


def test_a_node_file_that_is_none_is_told_and_the_lock_given_back(tmp_path: Path) -> None:
    (tmp_path / "node").write_text("garbage")

    for _ in range(2):
        with pytest.raises(DataDirectoryError, match="does not hold a node's UUID: remove"):
            DataDirectory(tmp_path)


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_a_port_in_use_is_told(taken: int) -> None:
    with pytest.raises(AddressUnavailableError) as caught:
        process.bind([Address("127.0.0.1", 0), Address("127.0.0.1", taken)])

    assert str(caught.value) == f"cannot listen on 127.0.0.1:{taken}: port in use"


@pytest.mark.parametrize("host", ["203.0.113.9", "no.such.host.invalid"])
def test_an_address_of_somebody_else_is_told(host: str) -> None:
    with pytest.raises(AddressUnavailableError, match=f"^cannot listen on {re.escape(host)}:0: "):
        process.bind([Address(host, 0)])


def test_port_0_takes_one_free_port_for_all_addresses() -> None:
    listeners = process.bind([Address("127.0.0.1", 0), Address("127.0.0.2", 0)])
    try:
        first, second = (each.address for each in listeners)
        assert first.port == second.port != 0
        assert (first.host, second.host) == ("127.0.0.1", "127.0.0.2")
    finally:
        for listener in listeners:
            listener.close()


V4, V6 = Address("127.0.0.1", 0), Address("::", 0)


@pytest.mark.parametrize(
    ("addresses", "takes_ipv4"),
    [
        ([V6], V6),
        ([V6, V4], V4),
        ([V4, V6], V4),
        ([V6, Address("0.0.0.0", 0)], Address("0.0.0.0", 0)),
        ([Address("::ffff:127.0.0.1", 0)], Address("::ffff:127.0.0.1", 0)),
    ],
)
def test_all_addresses_of_ipv6_are_those_of_ipv4_too_unless_others_have_the_port_there(
    addresses: list[Address], takes_ipv4: Address
) -> None:
    listeners = process.bind(addresses)
    try:
        assert len(listeners) == len(addresses)
        assert len({each.address.port for each in listeners}) == 1
        port = listeners[0].address.port
        taking = listeners[addresses.index(takes_ipv4)].socket
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"A")  # before, Linux's kernel keeps the connection back for a second
            accepted, peer = taking.accept()
            accepted.close()
            assert peer[1] == client.getsockname()[1]
    finally:
        for listener in listeners:
            listener.close()


def test_all_addresses_of_ipv6_are_in_use_where_somebody_has_the_port_of_ipv4(taken: int) -> None:
    with pytest.raises(AddressUnavailableError, match=": port in use"):
        process.bind([Address("::", taken)])


def test_a_default_address_that_the_machine_lacks_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class V4Only(socket.socket):
        def __init__(self, family: int, kind: int, protocol: int) -> None:
            if family == socket.AF_INET6:
                raise OSError(97, "Address family not supported by protocol")
            super().__init__(family, kind, protocol)

        def bind(self, _place: object) -> None:
            super().bind(("127.0.0.1", 0))  # the default port may be taken on this machine

    monkeypatch.setattr(process.socket, "socket", V4Only)

    listeners = process.bind(DEFAULT_LISTEN)
    for listener in listeners:
        listener.close()

    assert len(listeners) == 1
    with pytest.raises(
        AddressUnavailableError, match=r"\[::1\]:5672: address family not supported"
    ):
        process.bind(DEFAULT_LISTEN[1:])


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:40 / {tmp_path}/share rw - nfs4 server:/export rw\n")
    monkeypatch.setattr("leveret.core.system.mounts._MOUNTS", mounts)

    with pytest.raises(DataDirectoryError, match=r"lies on a network file system \(nfs4\)"):
        DataDirectory(tmp_path / "share" / "data")

    assert not (tmp_path / "share").exists()
    DataDirectory(tmp_path / "data").close()


def test_a_directory_keeps_the_names_of_its_cluster_and_node(tmp_path: Path) -> None:
    with DataDirectory(tmp_path) as directory:
        directory.check_cluster("c", "b")
        directory.join_cluster("c", "a")
        directory.check_cluster("c", "a")
        for names in [("c", "b"), ("d", "a"), ()]:
            with pytest.raises(DataDirectoryError, match="is that of node a of cluster c"):
                directory.check_cluster(*names)
        directory.leave_cluster()
        directory.check_cluster()


def test_the_directory_of_a_single_node_is_not_taken_into_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    with DataDirectory(tmp_path) as directory:
        directory.check_cluster()
        with pytest.raises(
            DataDirectoryError, match="leveret metadata to-etcd --prefix /leveret/c"
        ):
            directory.check_cluster("c", "a")
