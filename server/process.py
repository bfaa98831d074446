"""The resources of a broker process: the data directory with its lock, and the listening sockets.

::

    data/              0700
        lock           held with flock while a broker runs; its content is the owner's process id
        node           the node's UUID, created once, and the last transaction of its metadata
        cluster        the names of its cluster and node; missing: it is a single node's
        control.sock   0600, see control.py
        metadata/      see leveret.metadata

The lock is a flock, not a POSIX lock: two brokers in one process refuse each other as well.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, Self

from leveret.core import limits
from leveret.core.addresses import UNIX, Address, listening_socket
from leveret.core.errors import LeveretError, StoreError
from leveret.core.log.loggers import logger
from leveret.core.system.files import FILE_MODE, FOLDER_MODE, Files, refuse_link
from leveret.core.system.mounts import network_file_system
from leveret.management.snapshots.manifest import NAME as MANIFEST
from leveret.server.config.config import DEFAULT_LISTEN

LOCK: Final = "lock"
NODE: Final = "node"
CLUSTER: Final = "cluster"
METADATA: Final = "metadata"
VHOSTS: Final = "vhosts"

# Linux's kernel keeps a connection back for so long unless its client sends something: AMQP, TLS or the PROXY protocol.
# So the clients that send do not wait behind a flood of clients that only connect.
SILENT_S: Final = 1
_DEFER_ACCEPT: Final = getattr(socket, "TCP_DEFER_ACCEPT", None)

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

log = logger(__name__)


class DataDirectoryError(StoreError):
    """The data directory cannot be used; the text says why in one line."""


class AddressUnavailableError(LeveretError):
    """A listener's address cannot be bound; the text says why in one line."""


class PortInUseError(AddressUnavailableError):
    """Somebody else listens on a port or Unix socket of ``listen``."""


class OwnProcess(NamedTuple):
    """What an operator can ask of a process that is a broker's own.

    Attributes:
        stop: has it end in order.
        set_log_level: sets the level of its log, until its settings are read again.
    """

    stop: Callable[[], None]
    set_log_level: Callable[[str], None]


class NodeFile(NamedTuple):
    """The file ``node``.

    Attributes:
        node_id: the node's UUID.
        transaction: the last transaction of its metadata that the node knows of; 0: none.
    """

    node_id: uuid.UUID
    transaction: int = 0

    def text(self) -> str:
        second = f"metadata {self.transaction}\n" if self.transaction else ""
        return f"{self.node_id}\n{second}"


class DataDirectory:
    """A data directory whose lock this object holds until ``close``.

    Args:
        path: created with mode 0700 when it does not exist.

    Attributes:
        has_messages: it has message stores.
        is_old_cluster_node: it has messages, and was a node of a cluster when it was opened.

    Raises:
        DataDirectoryError: another broker holds the lock, the directory lies on a network file
            system, it is a snapshot, or it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        refuse_network(self.path)
        self._refuse_snapshot()
        self._make()
        self._folder, self._lock = self._locked()
        try:
            self.has_messages = has_messages(self.path)
            self.is_old_cluster_node = self.has_messages and (self.path / CLUSTER).exists()
            self._node = self._read_node()
            self._warn_of_mode()
        except BaseException:
            self.close()
            raise

    @property
    def node_id(self) -> uuid.UUID:
        return self._node.node_id

    @property
    def place(self) -> str:
        """The identity of the directory on this machine, which one process at a time locks; a copy has another one."""
        found = os.fstat(self._folder)
        return f"{_machine()} {found.st_dev} {found.st_ino}"

    @property
    def transaction(self) -> int:
        """The last transaction of the metadata that the node knows of; 0: none."""
        return self._node.transaction

    def note_transaction(self, transaction: int) -> None:
        """Record the metadata's last transaction; DataDirectoryError: the file cannot be written."""
        wanted = NodeFile(self.node_id, transaction)
        if wanted == self._node:
            return
        try:
            self._write(self.path / NODE, wanted.text())
        except OSError as error:
            raise self._unusable(error) from error
        self._node = wanted

    def close(self) -> None:
        """Release the lock; its file stays, empty."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):  # the number is for people
                os.ftruncate(lock, 0)
            os.close(lock)
            os.close(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def check_cluster(self, cluster: str = "", node: str = "") -> None:
        """Compare the names of cluster and node with those of the directory; both empty: a single node.

        Raises:
            DataDirectoryError: it is another node's, or one of a cluster or a single node, and was not to be.
        """
        path = self.path / CLUSTER
        wanted = f"{cluster} {node}".strip()
        try:
            found = path.read_text("ascii").strip() if path.exists() else ""
            if path.exists() and len(found.split(" ")) != 2:
                raise DataDirectoryError(
                    f"{path} does not hold the names of a cluster and its node: write them there, separated by a space"
                )
            if found == wanted and (found or not cluster):
                return
            if found:
                raise DataDirectoryError(
                    f"{self.path} is that of node {found.rpartition(' ')[2]} of cluster {found.partition(' ')[0]}: "
                    "start it as such, or make it a single node's with leveret metadata from-etcd"
                )
            if (self.path / METADATA).exists():
                raise DataDirectoryError(
                    f"{self.path} is a single node's: move its metadata with leveret metadata to-etcd --prefix "
                    f"/leveret/{cluster} --node {node}, then move {self.path / METADATA} away"
                )
        except OSError as error:
            raise self._unusable(error) from error
        except UnicodeDecodeError as error:
            raise DataDirectoryError(
                f"{path} does not hold the names of a cluster and its node: write them there, separated by a space"
            ) from error

    def join_cluster(self, cluster: str, node: str) -> None:
        """Note in a new directory what ``check_cluster`` compares; DataDirectoryError: it cannot be written."""
        path = self.path / CLUSTER
        try:
            if not path.exists():
                self._write(path, f"{cluster} {node}\n")
        except OSError as error:
            raise self._unusable(error) from error

    def leave_cluster(self) -> None:
        """Note that the directory is a single node's; DataDirectoryError: it cannot be written."""
        try:
            (self.path / CLUSTER).unlink(missing_ok=True)
        except OSError as error:
            raise self._unusable(error) from error

    def _refuse_snapshot(self) -> None:
        if (self.path / MANIFEST).exists():
            raise DataDirectoryError(
                f"{self.path} is a snapshot, and a snapshot is never changed: restore it (leveret snapshot "
                "restore), and use the directory it was restored to"
            )

    def _make(self) -> None:
        try:
            self.path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        except FileExistsError as error:
            raise DataDirectoryError(f"data directory {self.path} is not a directory") from error
        except OSError as error:
            raise self._unusable(error) from error

    def _locked(self) -> tuple[int, int | None]:
        """Lock the directory as well as the lock file, which somebody may remove; return both descriptors."""
        path, folder, lock = self.path / LOCK, -1, -1
        try:
            folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            refuse_link(path)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            lock = os.open(path, flags, FILE_MODE)
            for each in (lock, folder):
                if not _takes_lock(each):
                    raise _in_use(lock, self.path)
            os.ftruncate(lock, 0)
            with suppress(OSError):  # a disk that is full; the number is for people
                os.pwrite(lock, b"%d\n" % os.getpid(), 0)
        except BaseException as error:
            for each in (lock, folder):
                if each >= 0:
                    os.close(each)
            if isinstance(error, OSError):
                raise self._unusable(error) from error
            raise
        return folder, lock

    def _warn_of_mode(self) -> None:
        mode = stat.S_IMODE(self.path.stat().st_mode)
        if mode & ~FOLDER_MODE & 0o777:
            log.warning(
                "data directory is open to other users, it holds messages and password hashes folder=%s mode=%04o"
                " remedy=chmod 700 %s",
                self.path,
                mode,
                self.path,
            )

    def _read_node(self) -> NodeFile:
        path = self.path / NODE
        try:
            if not path.exists():
                found = NodeFile(self._lost_node_id() or uuid.uuid4())
                self._write(path, found.text())
                return found
            return stored_node(self.path)
        except OSError as error:
            raise self._unusable(error) from error
        except ValueError as error:
            raise DataDirectoryError(
                f"{path} does not hold a node's UUID: remove the file, and the UUID is taken from {self.path / METADATA}; "
                "a node of a cluster needs the file of a backup"
            ) from error

    def _lost_node_id(self) -> uuid.UUID | None:
        """Return the UUID of a node that has lost its file ``node``; None: the node is new.

        Raises:
            DataDirectoryError: a node of a cluster has lost it.
        """
        if self.is_old_cluster_node:
            raise DataDirectoryError(
                f"{self.path / NODE} is missing: put the file of a backup there, which has the UUID by which the cluster "
                "knows this node; or start it with a new --data directory, as a new node"
            )
        if not self.has_messages:
            return None
        from leveret.metadata.reader import read_node  # noqa: PLC0415 - the command line does without LMDB

        try:
            node_id = uuid.UUID(read_node(self.path / METADATA)[0])
        except (StoreError, ValueError):  # from a snapshot; or damaged, which ends the start later
            return None
        log.warning(
            "file was missing, its UUID is taken from the metadata file=%s", self.path / NODE
        )
        return node_id

    def _write(self, path: Path, text: str) -> None:
        Files().write_new(path, text.encode("ascii"))  # synced: a start fails on an empty file

    def _unusable(self, error: OSError) -> DataDirectoryError:
        reason = (error.strerror or str(error)).lower()
        return DataDirectoryError(f"data directory {self.path} is not writable: {reason}")


def _machine() -> str:
    """Return the boot id of this machine: no lock survives a restart of the machine."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:  # not Linux
        return socket.gethostname()


def take_lock(lock: int, data_dir: Path) -> None:
    """Lock an open lock file; close the descriptor where another process holds the lock.

    Raises:
        DataDirectoryError: another process holds it.
    """
    if not _takes_lock(lock):
        error = _in_use(lock, data_dir)
        os.close(lock)
        raise error


def _takes_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _in_use(lock: int, data_dir: Path) -> DataDirectoryError:
    owner = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
    return DataDirectoryError(
        f"data directory {data_dir} is in use by the broker with process id {owner}"
    )


def has_messages(data_dir: Path) -> bool:
    """Return whether a data directory has message stores, apart from stores that are being removed."""
    try:
        names = os.listdir(data_dir / VHOSTS)
    except OSError:
        return False
    return any(not name.endswith(".deleted") for name in names)


def refuse_network(path: Path) -> None:
    """Check that a folder lies on a disk of this machine.

    Raises:
        DataDirectoryError: the folder lies on a network file system.
    """
    kind = network_file_system(path)
    if kind is not None:
        raise DataDirectoryError(
            f"data directory {path} lies on a network file system ({kind}), where neither locks nor"
            " syncs can be relied on; it must lie on a disk of this machine"
        )


def stored_node(data_dir: Path) -> NodeFile:
    """Return the contents of the file ``node`` of a data directory.

    Raises:
        OSError: it is missing.
        ValueError: it is damaged.
    """
    text = (data_dir / NODE).read_text("ascii")
    first, *rest = text.split("\n")
    node_id = uuid.UUID(first.strip())
    transaction = int(rest[0].removeprefix("metadata ")) if rest and rest[0] else 0
    found = NodeFile(node_id, transaction)
    if text.strip() != found.text().strip():
        raise ValueError(text)
    return found


def cluster_node(data_dir: Path) -> str:
    """Return the name of the node of a cluster that has a data directory; "": it is a single node's, or none."""
    try:
        return (data_dir / CLUSTER).read_text("ascii", "replace").strip().rpartition(" ")[2]
    except OSError:
        return ""


class Bound(NamedTuple):
    """A socket that listens.

    Attributes:
        address: as it was asked for, with the real port.
        file: device and number of a Unix socket's file.
    """

    socket: socket.socket
    address: Address
    file: tuple[int, int] | None = None

    def close(self) -> None:
        """Close the socket; the file of a Unix socket goes with it, unless it is somebody else's by now."""
        if self.file is not None:
            with suppress(OSError):  # somebody has removed it
                if _identity(self.address.path) == self.file:
                    os.unlink(self.address.path)
        self.socket.close()


def _identity(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def bind(addresses: Sequence[Address]) -> list[Bound]:
    """Bind and listen on every address; all or none.

    An address of ``DEFAULT_LISTEN`` that the machine does not have is left out if at least one other
    address remains. Several addresses of one scheme with port 0 get the same free port if possible. ``::`` stands
    for all IPv6 addresses, and for all IPv4 addresses unless ``addresses`` uses the port for IPv4.

    Raises:
        PortInUseError: somebody else listens there.
        AddressUnavailableError: an address cannot be bound.
    """
    bound: list[Bound] = []
    try:
        for address in addresses:
            bound += _bind(address, addresses, bound)
    except BaseException:
        for each in bound:
            each.close()
        raise
    if not bound:
        raise AddressUnavailableError(f"cannot listen on {addresses[0]}: address not available")
    return bound


def _bind(address: Address, addresses: Sequence[Address], bound: list[Bound]) -> list[Bound]:
    """Listen on every address that a host name resolves to, or on a Unix socket."""
    found: list[Bound] = []
    try:
        if address.scheme == UNIX:
            return [_unix(address)]
        port = _port(address, bound)
        places = socket.getaddrinfo(address.host, port, type=socket.SOCK_STREAM)
        for family, _, _, _, place in places:
            full_place = (place[0], _port(address, found) or port, *place[2:])
            ipv6_only = _has_ipv4(address, addresses)
            listener = listening_socket(family, full_place, limits.BACKLOG, ipv6_only=ipv6_only)
            if _DEFER_ACCEPT is not None:
                with suppress(OSError):  # not every kernel with Linux's interface has it
                    listener.setsockopt(socket.IPPROTO_TCP, _DEFER_ACCEPT, SILENT_S)
            host, real_port = listener.getsockname()[:2]
            found.append(Bound(listener, replace(address, host=host, port=real_port)))
    except OSError as error:
        is_absent = error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
        if is_absent and (found or (address in DEFAULT_LISTEN and len(addresses) > 1)):
            return found
        for each in found:
            each.close()
        if error.errno == errno.EADDRINUSE:
            problem = "somebody listens there" if address.scheme == UNIX else "port in use"
            raise PortInUseError(f"cannot listen on {address}: {problem}") from error
        reason = (error.strerror or str(error)).lower()
        raise AddressUnavailableError(f"cannot listen on {address}: {reason}") from error
    return found


def _port(address: Address, bound: list[Bound]) -> int:
    """Return the port to bind: for port 0 the port of the first socket of the scheme bound before."""
    same = [each.address.port for each in bound if each.address.scheme == address.scheme]
    return same[0] if address.port == 0 and same else address.port


def _has_ipv4(listed: Address, addresses: Sequence[Address]) -> bool:
    """Whether one of the addresses uses the port of ``listed`` for IPv4."""
    same = [each for each in addresses if each.port == listed.port and not each.path]
    if not listed.port:  # one free port for each scheme
        same = [each for each in same if each.scheme == listed.scheme]
    return any(":" not in each.host for each in same)


def _unix(address: Address) -> Bound:
    """Listen on a Unix socket; nobody can connect before its file has the permissions that were asked for."""
    _remove_stale(address)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound = Bound(listener, address)
    try:
        listener.bind(address.path)
        bound = bound._replace(file=_identity(address.path))
        os.chmod(address.path, address.mode)
        listener.listen(limits.BACKLOG)
        listener.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound


def _remove_stale(address: Address) -> None:
    """Remove the file of a socket on which nobody listens any more.

    Raises:
        AddressUnavailableError: the file is no socket.
        OSError: somebody listens there (EADDRINUSE), or the socket cannot be reached.
    """
    try:
        mode = os.lstat(address.path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise AddressUnavailableError(f"cannot listen on {address}: the file is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(address.path)
        except ConnectionRefusedError:
            os.unlink(address.path)
            return
        except BlockingIOError:  # somebody does, and has many clients
            pass
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
