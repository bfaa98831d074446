"""The node: what all connections and vhosts share, and the services they ask for.

A plain object. Its actors are in the tree (``broker/node/tree.py``) and are found by registered name, so a
restarted one is found again.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import CallFailed
from leveret.amqp.errors import (
    InternalError,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    SoftError,
)
from leveret.broker.connection.alarms import Alarms
from leveret.broker.connection.read_control import ReadingTurns
from leveret.broker.queue.registry import QueueEntry
from leveret.broker.script import Ask, Steps, Until
from leveret.broker.settings import BrokerSettings
from leveret.broker.vhost import metadata_server
from leveret.broker.vhost import policy_validation as policy_rules
from leveret.broker.vhost.access import Access, User
from leveret.broker.vhost.metadata_server import Write
from leveret.broker.vhost.pending_writes import PendingWrites
from leveret.broker.vhost.policies import apply_to_exchange
from leveret.broker.vhost.settings_rows import SettingsRows
from leveret.broker.vhost.vhost import VHost
from leveret.core.files import Files
from leveret.core.gil_yielding import NEVER, GilYielding
from leveret.core.machine import Machine
from leveret.core.sizes import SizeLimit
from leveret.msg_store.format.ballast import Ballast
from leveret.queue_backing.memory_monitor import MemoryMonitor
from leveret.routing.exchange import Exchange

if TYPE_CHECKING:
    from leveret.broker.connection.protocol import ConnectionProtocol
    from leveret.broker.connection.reader import Reader
    from leveret.metadata.interface import Metadata
    from leveret.metadata.tables import BindingRow, Contents, PolicyRow, Row

log = logging.getLogger(__name__)

CONNECTIONS: Final = "connections"
READERS: Final = "readers"
LISTENER: Final = "listener"
VHOSTS: Final = "vhosts"
MEMORY_WATCH: Final = "memory_watch"
DISK_WATCH: Final = "disk_watch"

# As RabbitMQ assumes on a system that it does not know.
MEMORY_OF_UNKNOWN_BYTES: Final = 8 * 1024**3

_STORE_RETRY_S: Final = 0.02


class CloseConnection:
    """Ask a reader to close its connection with 320 and this text (operators, vhosts that end)."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class LookAgain:
    """To a watch: what it goes by has changed."""

    __slots__ = ()


class Accepted:
    """A socket was accepted; the listener has a reader started for it."""

    __slots__ = ("protocol", "transport")

    def __init__(self, transport: asyncio.Transport, protocol: ConnectionProtocol) -> None:
        self.transport = transport
        self.protocol = protocol


class Node:
    """One broker node.

    Attributes:
        runtime: where its actors run.
        settings: what it was told.
        store: the metadata store; who made it closes it.
        data_dir: where messages are kept; None = nowhere.
        files: the way to them.
        ballast: room on the disk that is given up when it is full.
        machine: how much memory there is.
        gil_yielding: told of every job that is submitted to a thread.
        alarms: whether memory or disk are short.
        memory: how many seconds of traffic queues keep in RAM.
        memory_total_bytes: the RAM there is for the broker, or what it was told.
        memory_limit: high watermark of memory in use.
        disk_limit: of what is free in the data directory.
        disk_free_bytes: as of the disk watch's last look.
        boot_epoch: how often a broker was started on this store, or a vhost's messages recovered.
        access: users and permissions.
        vhosts: by name.
        kept: rows of settings.
        unwritten: changes of metadata that are not on disk yet.
        admin_turn: held while an operator's change is checked, written and made.
        readers: open connections, by their reader.
        reading_turns: when those that were held up are read again.
        stopping: new sockets are refused, ends are expected.
        sockets: bound and listening; the listener works on duplicates of them.
        servers: accept on those duplicates.
        protocols: what asyncio holds of open sockets; empty when all are closed.
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: BrokerSettings,
        store: Metadata,
        data_dir: Path | None = None,
        files: Files | None = None,
        machine: Machine | None = None,
        gil_yielding: GilYielding = NEVER,
    ) -> None:
        self.runtime = runtime
        self.settings = settings
        self.store = store
        self.data_dir = data_dir
        self.files = files or Files()
        self.ballast = Ballast(self.files, data_dir or Path())
        self.machine = machine or Machine()
        self.gil_yielding = gil_yielding
        self.memory_total_bytes = self._memory_total_bytes()
        self.alarms = Alarms(runtime)
        self.memory = MemoryMonitor(settings.memory_paging_ratio)
        self.memory_limit: SizeLimit = settings.memory_high_watermark
        self.disk_limit: SizeLimit = settings.disk_free_limit
        self.disk_free_bytes: int | None = None
        self.boot_epoch = 0
        self._store_epochs: dict[str, int] = {}  # by vhost
        self.access = Access(settings.loopback_users)
        self.vhosts: dict[str, VHost] = {}
        self.kept = SettingsRows()
        self.unwritten = PendingWrites()
        self.admin_turn = asyncio.Lock()
        self.readers: dict[Ref, Reader] = {}
        self.reading_turns = ReadingTurns(runtime)
        self.stopping = False
        self.sockets: list[socket.socket] = []
        self.servers: list[asyncio.Server] = []
        self.protocols: dict[ConnectionProtocol, asyncio.Transport] = {}
        self.started_at_s = runtime.clock.wall_s()

    # -- actors found by name ------------------------------------------------------------------

    def _named(self, name: str) -> Ref:
        ref = self.runtime.whereis(name)
        if ref is None:
            raise InternalError()
        return ref

    @property
    def connections(self) -> Ref:
        """The supervisor of the connections' channels."""
        return self._named(CONNECTIONS)

    @property
    def reader_sup(self) -> Ref:
        """The supervisor of the readers."""
        return self._named(READERS)

    # -- memory and disk -----------------------------------------------------------------------

    def _memory_total_bytes(self) -> int:
        told = self.settings.memory_total_bytes
        return told or self.machine.total_bytes() or MEMORY_OF_UNKNOWN_BYTES

    @property
    def memory_limit_bytes(self) -> int:
        """The high watermark: with more in use publishers are blocked."""
        return self.memory_limit.of(self.memory_total_bytes)

    @property
    def disk_limit_bytes(self) -> int:
        """With less free in the data directory publishers are blocked."""
        return self.disk_limit.of(self.memory_total_bytes)

    def set_limits(self, memory: SizeLimit | None = None, disk: SizeLimit | None = None) -> None:
        """Set other limits until the node ends; what follows from them follows at once."""
        self.memory_total_bytes = self._memory_total_bytes()
        self.memory_limit = memory or self.memory_limit
        self.disk_limit = disk or self.disk_limit
        self.look_again(MEMORY_WATCH, DISK_WATCH)

    def resources(self) -> dict[str, Any]:
        """Return memory, disk and alarms as status prints them."""
        return {
            "alarms": list(self.alarms.raised),
            "memory": {
                "used_bytes": self.machine.used_bytes(),
                "limit_bytes": self.memory_limit_bytes,
                "total_bytes": self.memory_total_bytes,
            },
            "disk": {
                "free_bytes": self.disk_free_bytes,
                "limit_bytes": self.disk_limit_bytes,
            },
        }

    def disk_changed(self) -> None:
        """A store has found the disk full, or not any more."""
        self.look_again(DISK_WATCH)

    def look_again(self, *watches: str) -> None:
        """Have watches look at once."""
        for name in watches:
            watch = self.runtime.whereis(name)
            if watch is not None:  # else its successor begins with it
                self.runtime.send(watch, LookAgain())

    # -- connections ---------------------------------------------------------------------------

    def accept(self, transport: asyncio.Transport, protocol: ConnectionProtocol) -> bool:
        """Take a new socket, unless the node is stopping or full."""
        listener = self.runtime.whereis(LISTENER)
        limit = self.settings.connections_max
        if listener is None or self.stopping or (limit and len(self.readers) >= limit):
            return False
        self.runtime.send(listener, Accepted(transport, protocol))
        return True

    def socket_closed(self, protocol: ConnectionProtocol) -> None:
        """Forget a socket."""
        del self.protocols[protocol]

    def close_servers(self) -> None:
        """Stop accepting."""
        for server in self.servers:
            server.close()
        self.servers.clear()

    def connection_opened(self, reader: Reader) -> None:
        """Count a connection in, until its reader ends, whatever ends it."""
        ref = reader.ref
        self.readers[ref] = reader
        self.runtime.watch(ref, lambda _: self._reader_ended(ref))

    def _reader_ended(self, ref: Ref) -> None:
        self.connection_closed(ref)
        for vhost in self.vhosts.values():
            vhost.owner_ended(ref)

    def connection_closed(self, reader: Ref) -> None:
        """Count a connection out; harmless when it never was open."""
        self.readers.pop(reader, None)

    def open_vhost(self, user: User, name: str) -> VHost:
        """Return the vhost a connection asks for.

        Raises:
            NotAllowed: it is missing, the user has no permission there, or a limit is reached.
            InternalError: it is down.
        """
        vhost = self.vhosts.get(name)
        if vhost is None:
            raise NotAllowed(f"vhost {name} not found")
        self._check_connection_limits(user, vhost)
        self.access.check_vhost(user, name)
        if not vhost.is_up:
            raise InternalError(
                f"access to vhost '{name}' refused for user '{user.name}': vhost '{name}' is down"
            )
        return vhost

    def vhost_down(self, vhost: VHost) -> None:
        """Have the connections of a vhost closed that will not be restarted."""
        if self.stopping:
            return
        for ref, reader in self.readers.items():
            if reader.session is not None and reader.session.vhost is vhost:
                self.runtime.send(ref, CloseConnection(f"vhost '{vhost.name}' is down"))

    def _check_connection_limits(self, user: User, vhost: VHost) -> None:
        limit = vhost.limits.get("max-connections", -1)
        if 0 <= limit <= self._open_connections(vhost=vhost):
            raise NotAllowed(
                f"access to vhost '{vhost.name}' refused for user '{user.name}':"
                f" connection limit ({limit}) is reached"
            )
        limit = user.limits.get("max-connections", -1)
        if 0 <= limit <= self._open_connections(user=user.name):
            raise NotAllowed(
                f"connection refused for user '{user.name}':"
                f" user connection limit ({limit}) is reached"
            )

    def _open_connections(self, vhost: VHost | None = None, user: str | None = None) -> int:
        sessions = [reader.session for reader in self.readers.values()]
        return sum(
            session is not None
            and (vhost is None or session.vhost is vhost)
            and (user is None or session.user.name == user)
            for session in sessions
        )

    def check_channel_limit(self, user: User) -> None:
        """Raise NotAllowed when a user has as many channels as it may have."""
        limit = user.limits.get("max-channels", -1)
        if limit < 0:
            return
        opened = sum(
            len(reader.slots)
            for reader in self.readers.values()
            if reader.session is not None and reader.session.user.name == user.name
        )
        if opened >= limit:
            raise NotAllowed(
                f"number of channels opened for user '{user.name}' has reached the maximum"
                f" allowed user limit of ({limit})",
                0,
            )

    def check_queue_limit(self, vhost: VHost, name: str) -> None:
        """Raise PreconditionFailed when a vhost has as many queues as it may have."""
        limit = vhost.limits.get("max-queues", -1)
        if 0 <= limit <= len(vhost.topology.queues):
            raise PreconditionFailed(
                f"cannot declare queue '{name}': queue limit in vhost '{vhost.name}'"
                f" ({limit}) is reached"
            )

    def epoch_for(self, vhost_name: str) -> int:
        """Return a boot epoch that the vhost's message store has not been opened with."""
        if self._store_epochs.get(vhost_name) == self.boot_epoch:
            self.boot_epoch = self.store.next_boot_epoch()
        self._store_epochs[vhost_name] = self.boot_epoch
        return self.boot_epoch

    # -- metadata ------------------------------------------------------------------------------

    def commit(self, puts: Sequence[Row], deletes: Sequence[Row]) -> Steps:
        """Wait until rows are on disk; ask again when the store's actor was restarted.

        Raises:
            InternalError: the disk refused them. The deletes are owed all the same.
        """
        unwritten = self.unwritten
        unwritten.delete(deletes)
        unwritten.put(puts)
        is_refused = False
        try:
            yield from self._write(puts, deletes)
            unwritten.deleted(deletes)
        except (InternalError, GeneratorExit) as end:
            is_refused = isinstance(end, InternalError)
            self._delete_owed(deletes)
            raise
        finally:
            self.put_ended(puts, is_refused)

    def _write(self, puts: Sequence[Row], deletes: Sequence[Row]) -> Steps:
        clock = self.runtime.clock
        while True:
            server = self.runtime.whereis(metadata_server.NAME)
            if server is not None:
                write = Write(self.unwritten.latest(puts), self.unwritten.owed(deletes))
                answer = yield Ask(server, write)
                if answer is None:
                    return
                if not isinstance(answer, CallFailed):
                    log.error("metadata not written error=%s", answer)
                    raise InternalError()
            yield Until(lambda resume: clock.call_later(_STORE_RETRY_S, resume))

    def delete_later(self, rows: Sequence[Row]) -> None:
        """Have rows deleted, sooner or later; every later commit comes behind the first attempt."""
        self.unwritten.delete(rows)
        self._delete_owed(rows)

    def put_ended(self, rows: Sequence[Row], is_refused: bool) -> None:
        """Nobody waits any more for rows to be put; see ``PendingWrites.waited_for``."""
        again = self.unwritten.waited_for(rows, is_refused)
        if again:
            self._delete_owed(again)

    def _delete_owed(self, rows: Sequence[Row]) -> None:
        server = self.runtime.whereis(metadata_server.NAME)
        if server is not None:  # else its successor begins with them
            self.runtime.send(server, metadata_server.Delete(rows))

    def load(self, contents: Contents) -> None:
        """Make vhosts, exchanges, queues' entries and bindings from the stored rows."""
        self.access.load(contents)
        self.kept.load(contents)
        for row in contents.vhosts:
            self.vhosts[row.name] = VHost(self, row.name)
        self._load_policies(contents.policies)
        for parameter in contents.parameters:
            if parameter.component == "vhost-limits" and parameter.vhost in self.vhosts:
                self.vhosts[parameter.vhost].limits = dict(parameter.value)
        for exchange in contents.exchanges:
            vhost = self.vhosts.get(exchange.vhost)
            if vhost is not None and exchange.name not in vhost.topology.exchanges:
                vhost.add_exchange(
                    Exchange(
                        exchange.name,
                        exchange.type,
                        durable=True,
                        auto_delete=exchange.auto_delete,
                        internal=exchange.internal,
                        arguments=exchange.arguments,
                    )
                )
        for queue in contents.queues:
            vhost = self.vhosts.get(queue.vhost)
            if vhost is not None:
                vhost.register(
                    QueueEntry(
                        queue.vhost,
                        queue.name,
                        durable=True,
                        auto_delete=queue.auto_delete,
                        arguments=queue.arguments,
                        on_deleted=vhost.queue_deleted,
                        queue_no=queue.queue_no,
                    )
                )
        for each in contents.bindings:
            self._load_binding(each)

    def _load_policies(self, rows: list[PolicyRow]) -> None:
        """Take policies in; one that this version would refuse is kept and has no effect."""
        for row in rows:
            try:
                policy_rules.check(row)
            except policy_rules.PolicyError as error:
                log.warning("policy skipped vhost=%s name=%s reason=%s", row.vhost, row.name, error)
            else:
                if row.vhost in self.vhosts:
                    self.vhosts[row.vhost].policies.put(row)
        for vhost in self.vhosts.values():
            for default in vhost.topology.exchanges.values():
                apply_to_exchange(vhost.policies, default)

    def _load_binding(self, row: BindingRow) -> None:
        """Bind what a row says; a write cut off by a crash may have left one without its ends."""
        vhost = self.vhosts.get(row.vhost)
        try:
            if vhost is None:
                raise NotFound(f"no vhost '{row.vhost}'")
            vhost.topology.bind(
                row.source, row.kind, row.destination, row.routing_key, row.arguments
            )
        except SoftError as error:
            log.warning(
                "binding skipped vhost=%s source=%s %s=%s reason=%s",
                row.vhost, row.source, row.kind, row.destination, error,
            )  # fmt: skip

    def stat(self) -> dict[str, Any]:
        """Return the counts that status prints first."""
        return {
            "connections": len(self.readers),
            "channels": sum(len(reader.slots) for reader in self.readers.values()),
            "queues": sum(len(vhost.topology.queues) for vhost in self.vhosts.values()),
            "vhosts": len(self.vhosts),
            "actors": self.runtime.actor_count,
            "uptime_s": self.runtime.clock.wall_s() - self.started_at_s,
        }
