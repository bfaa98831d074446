"""The broker as one object: for ``leveret serve`` and for services that embed it.

::

    async with Broker(Config(listen=(Address("127.0.0.1", 0),), data_dir=path)) as broker:
        connect_to(broker.url)

The broker shares the caller's event loop, changes no process-wide state (no signals, no logging, no gc
settings) and leaves no thread, socket or file open. ``child_spec`` makes it a child of a service's own
supervisor. With ``Config(data_dir=None)`` the broker touches no file: no lock, no control socket, and
the definitions end with the broker.
"""

from __future__ import annotations

import asyncio
import functools
import uuid
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

from leveret.actors.runtime.calls import Answer
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import SHUTDOWN, Started, StartResult
from leveret.actors.service import Service, ServiceSpec
from leveret.broker.connection.layers.credentials import Credentials
from leveret.broker.connection.sockets import Listening
from leveret.broker.node import bootstrap
from leveret.broker.node.node import Node
from leveret.broker.tree import BrokerSup
from leveret.core.addresses import AMQPS, UNIX, Address
from leveret.core.clock import Clock
from leveret.core.errors import ConfigError, LeveretError, StoreError
from leveret.core.gil_yielding import NEVER, GilYielding
from leveret.core.log.loggers import FLOODS, logger
from leveret.core.system.files import Files
from leveret.management.definitions.file import read_definitions
from leveret.management.errors import CLUSTER_MISSING, RefusedError
from leveret.metadata.memory import MemoryStore
from leveret.metadata.store import MetadataStore
from leveret.server import plugins
from leveret.server.config.config import Config
from leveret.server.own_metadata import explained, open_metadata
from leveret.server.process import Bound, DataDirectory, OwnProcess, bind
from leveret.supervisors.spec import ChildSpec

if TYPE_CHECKING:
    from pathlib import Path

    from leveret.metadata.interface import Metadata
    from leveret.server.cluster import ClusterMember
    from leveret.server.control import ControlServer

log = logger(__name__)

# Together less than 10 s, the time that `leveret serve` has to end.
STOP_S: Final = 6.0  # for the supervision tree to stop in order
END_S: Final = 0.5  # then for the remaining actors to end; after it they are killed
CLOSE_S: Final = 2.0  # for threads that have files; a thread that hangs on its disk is left
FLUSH_S: Final = 1.0  # for the last bytes of closing sockets


class BrokerFailedError(LeveretError):
    """The broker's supervision tree could not be started, or ended by itself."""


class Broker:
    """One broker node in this process.

    Args:
        config: the settings; the defaults of ``Config`` otherwise.
        clock: for all timers; the loop's time by default.
        files: file access for the message store; the machine's by default.

    Attributes:
        addresses: of the listeners, with the real ports.
        node_id: the node's UUID; created with the data directory.
        credentials: certificates of the TLS listeners; None: there is no TLS listener.
        node: the broker's inside, for tests and extensions.
        runtime: the actor runtime of its actors.
        process: this process, for operators; None: it is a service's, which the broker belongs to.
        cluster: this node's part in its cluster; None: it is a single node.
    """

    addresses: list[Address]
    node_id: uuid.UUID
    credentials: Credentials | None
    node: Node
    runtime: Runtime

    def __init__(
        self, config: Config | None = None, clock: Clock | None = None, files: Files | None = None
    ) -> None:
        self.config = config or Config()
        self.process: OwnProcess | None = None
        self._files = files
        self._clock = clock
        self._directory: DataDirectory | None = None
        self._bound: list[Bound] = []
        self._store: Metadata | None = None
        self._gil_yielding = NEVER
        self._control: ControlServer | None = None
        self._root: Ref | None = None
        self._ended: asyncio.Future[object] | None = None
        self.cluster: ClusterMember | None = None

    @property
    def log_file(self) -> Path | None:
        """Where the log goes; None: to stderr, or to the log of a service."""
        return self.config.log_file

    @property
    def url(self) -> str:
        """An AMQP URL of the first listener that has one, with the default user; amqps where it has TLS."""
        config = self.config
        first = next((each for each in self.addresses if each.scheme != UNIX), self.addresses[0])
        if first.scheme == UNIX:
            return first.url
        return f"{first.scheme}://{config.default_user}:{config.default_pass}@{first.place}"

    @property
    def root(self) -> Ref | None:
        """The root of the supervision tree; None while the broker does not run."""
        return self._root if self._root is not None and self._root.is_alive else None

    @property
    def degraded(self) -> dict[str, str]:
        """The vhosts that are down, with the reasons; empty when every vhost serves.

        Those that the machine took down (disk, descriptors, memory) are started again by themselves.
        """
        return {name: each.reason for name, each in self.node.outages.by_vhost.items()}

    async def wait_serving(self) -> None:
        """Wait until every vhost serves, and in a cluster the queues of the other nodes are known."""
        outages = self.node.outages
        while outages.by_vhost:
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            tell = functools.partial(_resolve, over)
            outages.on_over.append(tell)
            try:
                await over
            finally:
                outages.on_over.remove(tell)
        if self.cluster is not None:
            await self.cluster.linked(self.node)

    def change_limits(self, limits: dict[str, Any]) -> None:
        """Change limits of the running broker, by fields of ``BrokerSettings``; other settings have no effect."""
        self.node.change_settings(replace(self.node.settings, **limits))

    async def start(self) -> None:
        """Start the broker; clients can connect when this returns.

        Vhosts that cannot be started are named by ``degraded``; the others serve.

        Raises:
            StoreError: the data directory or its metadata cannot be used.
            AddressUnavailableError: an address cannot be bound.
            ConfigError: the definitions file or a certificate cannot be read, an entry of the definitions cannot be
                created, or a plug-in cannot be loaded.
            BrokerFailedError: the supervision tree did not start.
            OSError: no descriptor, no memory or no thread is left.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        plugins.load_exchange_types()
        definitions = self._read_definitions()
        if self.config.data_dir is not None:
            self._directory = DataDirectory(self.config.data_dir)
            self._directory.check_cluster(self.config.cluster, self.config.cluster_node)
            from leveret.management.snapshots.directory import clean_up  # noqa: PLC0415 - not without a folder

            clean_up(Files(), self._directory.path)
        credentials = self._read_credentials()
        self._bound = bind(self.config.listen)
        self.addresses = [each.address for each in self._bound]
        self._gil_yielding = GilYielding(loop)
        self.runtime = Runtime(
            self._clock,
            loop,
            self.config.cluster_node or "leveret",
            busy_wait=self.config.batching.busy_wait,
        )
        access = plugins.load_access(self.config, self.runtime.clock)
        self._store = await self._open_store(loop)
        data_dir = self._directory.path if self._directory is not None else None
        self.node = Node(
            self.runtime,
            replace(self.config, cluster_name=self._cluster_name()),
            self._store,
            data_dir,
            self._files,
            gil_yielding=self._gil_yielding,
            access=access,
            links=self.cluster.links if self.cluster is not None else None,
        )
        self.credentials = credentials
        self.node.sockets.listening = [self._listening(each) for each in self._bound]
        self.node.connections.interceptors = plugins.load_interceptors(self.config.interceptors)
        rows = None
        if self.cluster is not None:
            rows = self.cluster.serve(self.node, self.config.cluster_queue_master_locator)
        await self._load(definitions)
        self._note_transaction()  # the start's own is in it: after a kill, metadata of before is older
        if rows is not None and self.cluster is not None:
            rows.begin()
            rows.live(self.cluster.metadata.is_live)
            await self.cluster.enlist(self.node)
            self._answer_other_nodes()
        await self._start_tree(loop)
        if self._directory is not None:
            await self._open_control(self._directory)

    def _answer_other_nodes(self) -> None:
        """Have the operators of other nodes answered, from the start of the tree on."""
        from leveret.management.node_admin import NodeAdmin  # noqa: PLC0415 - as for the control socket
        from leveret.management.operator_server import OPERATORS, OperatorServer  # noqa: PLC0415

        verbs = NodeAdmin(self).node_verbs()
        self.node.services = (ChildSpec(OPERATORS, OperatorServer, (verbs,)),)

    def _read_credentials(self) -> Credentials | None:
        if any(each.scheme == AMQPS for each in self.config.listen):
            return Credentials(self.config)
        if self.config.tls_cert_file is not None:
            log.warning("tls_cert_file has no effect: there is no TLS listener")
        return None

    def _listening(self, bound: Bound) -> Listening:
        address, is_proxied = bound.address, bound.address.proxy_protocol
        if is_proxied is None:
            is_proxied = self.config.proxy_protocol and address.scheme != UNIX
        credentials = self.credentials if address.scheme == AMQPS else None
        return Listening(bound.socket, credentials, is_proxied)

    def reload_certificates(self) -> bool:
        """Read the files of certificates again; return whether they could be used.

        If not, the log says why, and the former ones stay in use.
        """
        links = self.cluster.certificates if self.cluster is not None else None
        found = [each.reload() for each in (self.credentials, links) if each is not None]
        return all(found)

    def _cluster_name(self) -> str:
        config = self.config
        return config.cluster_name or config.cluster or f"leveret@{self.node_id}"

    async def _open_store(self, loop: asyncio.AbstractEventLoop) -> Metadata:
        if self._directory is None:
            self.node_id = uuid.uuid4()
            return MemoryStore(loop.call_soon)
        self.node_id = self._directory.node_id
        if self.config.cluster:
            try:
                from leveret.server.cluster import ClusterMember  # noqa: PLC0415 - an extra
            except ModuleNotFoundError as error:
                raise ConfigError(CLUSTER_MISSING) from error
            self.cluster = await ClusterMember.join(self.config, self.runtime, self._directory)
            self._directory.join_cluster(self.config.cluster, self.config.cluster_node)
            return self.cluster.metadata
        return open_metadata(self._directory, loop.call_soon_threadsafe, self._gil_yielding)

    def _read_definitions(self) -> dict[str, Any] | None:
        file = self.config.load_definitions
        try:
            return read_definitions(str(file)) if file is not None else None
        except RefusedError as error:
            raise ConfigError(str(error)) from error

    async def _load(self, definitions: dict[str, Any] | None) -> None:
        """Load the node from its metadata and the definitions file, before any actor runs.

        With a definitions file there is neither a default user nor a default vhost, as in RabbitMQ.
        """
        with explained(self.node.data_dir):
            await bootstrap.load(self.node, with_defaults=definitions is None)
        if definitions is None:
            return
        from leveret.management.definitions.node_definitions import NodeDefinitions  # noqa: PLC0415 - seldom needed

        try:
            await NodeDefinitions(self.node).import_definitions(
                definitions, self.config.unsupported_queues
            )
        except RefusedError as error:
            file = self.config.load_definitions
            raise ConfigError(f"definitions file {file}: {error}") from error

    async def _start_tree(self, loop: asyncio.AbstractEventLoop) -> None:
        started: asyncio.Future[StartResult] = loop.create_future()
        self._ended = loop.create_future()
        answer = Answer(started)
        root = self.runtime.start_link(None, BrokerSup, (self.node,), answer.give, "leveret")
        self._root = root
        self.runtime.watch(root, self._root_ended)
        result = await started
        if not isinstance(result, Started):
            raise BrokerFailedError(f"the broker did not start: {result}")

    async def _open_control(self, directory: DataDirectory) -> None:
        # Not loaded with this module: an embedding service without a data directory needs no control socket.
        from leveret.management.node_admin import NodeAdmin  # noqa: PLC0415
        from leveret.server.control import ControlServer  # noqa: PLC0415

        self._control = ControlServer(
            directory.path,
            NodeAdmin(self).control_verbs(),
            lambda: self.node.resources.memory_limit_bytes,
        )
        await self._control.start()

    def _root_ended(self, reason: object) -> None:
        assert self._ended is not None
        if not self._ended.done():
            self._ended.set_result(reason)
        if not self.node.connections.is_stopping:
            log.critical("broker ended reason=%s", reason)

    async def wait_ended(self) -> None:
        """Wait until the supervision tree has ended by itself.

        Raises:
            BrokerFailedError: the tree has ended.
        """
        assert self._ended is not None
        reason = await asyncio.shield(self._ended)
        raise BrokerFailedError(f"the broker's supervision tree has ended: {reason}")

    async def stop(self) -> None:
        """Close all connections with 320, stop all actors, close all files and sockets.

        A stop cannot be interrupted: a cancellation takes effect when the stop is complete, which takes
        less than ten seconds. A second call does nothing.
        """
        stopping = asyncio.ensure_future(self._stop())
        cancelled: asyncio.CancelledError | None = None
        while not stopping.done():
            try:
                await asyncio.wait([stopping])
            except asyncio.CancelledError as error:
                cancelled = error
        stopping.result()
        if cancelled is not None:
            raise cancelled

    async def _stop(self) -> None:
        async with AsyncExitStack() as parts:  # closed last to first, also after an error of one
            parts.callback(self._forget_parts)
            parts.callback(FLOODS.close)
            if self._directory is not None:
                parts.callback(self._directory.close)
                if self._root is not None:  # not of metadata that a start has refused
                    parts.callback(self._note_transaction)
            parts.callback(self._gil_yielding.close)
            if self._store is not None:
                parts.callback(self._store.close)
            if self.cluster is not None:
                parts.push_async_callback(self.cluster.leave)
            for each in self._bound:
                parts.callback(each.close)
            if self._control is not None:
                await self._control.close()
            if self._store is not None:
                await self._stop_tree()

    def _note_transaction(self) -> None:
        """Record the metadata's last transaction in the directory; after an error the earlier record stays."""
        if self._directory is not None and isinstance(self._store, MetadataStore):
            with suppress(StoreError):
                self._directory.note_transaction(self._store.last_transaction)

    def _forget_parts(self) -> None:
        self._control = self._root = self._store = self._directory = self.cluster = None
        self._bound = []

    async def _stop_tree(self) -> None:
        node, loop = self.node, asyncio.get_running_loop()
        node.connections.is_stopping = True
        if self._root is not None:
            assert self._ended is not None
            bootstrap.end_start(self.runtime)
            self.runtime.exit(self._root, SHUTDOWN)
            await asyncio.wait([self._ended], timeout=STOP_S)
        await self.runtime.shutdown(END_S)
        node.access.close()
        for vhost in node.vhosts.values():
            vhost.store.let_go(loop)  # of an actor that was killed
        users = [vhost.store.in_use for vhost in node.vhosts.values()]
        users += node.removals.values()
        if ends := [each for each in users if each is not None]:
            await asyncio.wait(ends, timeout=CLOSE_S)
        node.sockets.close_servers()
        node.sockets.close_unfinished()
        deadline_s = loop.time() + FLUSH_S
        while node.sockets.accepted and loop.time() < deadline_s:  # noqa: ASYNC110  # bounded, and rare
            await asyncio.sleep(0.005)
        for transport in list(node.sockets.accepted.values()):
            transport.abort()
        await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def child_spec(config: Config | None = None, **options: Any) -> ChildSpec:
    """Return the child spec of a broker under a service's own supervisor.

    The child's start is acknowledged when clients can connect; its end stops the broker. ``options`` are
    further fields of ``ChildSpec``; ``id`` is ``broker`` by default.
    """
    turn = asyncio.Lock()
    service = ServiceSpec(_serve, (config, turn), waits_for_ready=True, stop_timeout_s=STOP_S + 4)
    given: dict[str, Any] = {"id": "broker", "shutdown": STOP_S + 5, **options}
    return ChildSpec(actor_class=Service, args=(service,), **given)


async def _serve(service: Service, config: Config | None, turn: asyncio.Lock) -> None:
    # A killed broker may still be closing its sockets and files when its successor starts.
    async with turn, Broker(config) as broker:
        service.ready(broker)
        await broker.wait_ended()
