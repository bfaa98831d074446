"""The node: the objects that exist once per broker process.

A plain object. Its actors are in the tree (``broker/tree.py``) and are found by registered name, so a
restarted one is found again. Each part owns its state; the node makes the parts and adds up their counts.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leveret.broker.connection.admission import Admission
from leveret.broker.connection.connections import Connections, vhost_of
from leveret.broker.connection.sockets import Sockets
from leveret.broker.node.openings import Openings
from leveret.broker.node.outages import Outages
from leveret.broker.node.own_messages import OwnMessages
from leveret.broker.node.resources import Resources
from leveret.broker.queue.publishers.node_producers import NodeProducers
from leveret.broker.registry.cluster_nodes import ClusterNodes
from leveret.broker.vhost.auth.access import Access
from leveret.broker.vhost.metadata.metadata_writer import MetadataWriter
from leveret.broker.vhost.settings_rows import SettingsRows
from leveret.broker.vhost.vhost import VHost
from leveret.core.gil_yielding import NEVER, GilYielding
from leveret.core.system import descriptors
from leveret.core.system.files import Files
from leveret.core.system.machine import Machine
from leveret.metadata.tables import VhostRow
from leveret.msg_store.format.ballast import Ballast, reserve

if TYPE_CHECKING:
    from leveret.actors.links.node import Node as LinkedNode
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.connection.reader import Reader
    from leveret.core.settings import BrokerSettings
    from leveret.metadata.interface import Metadata
    from leveret.metadata.tables import QueueRow
    from leveret.supervisors.spec import ChildSpec

VHOSTS: Final = "vhosts"


class BootEpochs:
    """Gives each opening of a message store an epoch that the store was never opened with.

    Attributes:
        current: how often a broker was started on this metadata store, or a vhost's messages recovered.
    """

    def __init__(self, metadata: MetadataWriter) -> None:
        self._metadata = metadata
        self._last: dict[str, int] = {}  # by vhost
        self.current = 0

    def begin(self) -> None:
        """Count a start; StoreError: the metadata store cannot be written."""
        self.current = self._metadata.store.next_boot_epoch()

    def of_store(self, vhost_name: str) -> int:
        """Return a boot epoch that the vhost's message store has not been opened with.

        Raises:
            StoreError: a new one is needed, and the metadata store cannot be written.
        """
        if self._last.get(vhost_name) == self.current:
            self.begin()
        return self.current

    def opened(self, vhost_name: str, epoch: int) -> None:
        """Note that the store has used an epoch; failed openings do not use up epochs."""
        self._last[vhost_name] = epoch

    def forget(self, vhost_name: str) -> None:
        """Forget a vhost that is deleted: another one of its name has a new store."""
        self._last.pop(vhost_name, None)


class Node:
    """One broker node.

    Args:
        store: the metadata store; its maker closes it.
        data_dir: where messages are stored; None = nowhere.
        gil_yielding: tracks the jobs of threads.
        access: with users of auth back ends; None: of the broker's own only.
        links: with the other nodes of the cluster; None: there is no cluster.

    Attributes:
        cluster_nodes: the other nodes of the cluster; None: there is no cluster.
        ballast: reserved disk space, released when the disk is full.
        reserve: the same, for starts and for acks.
        epochs: numbers of starts, for message stores.
        outages: the vhosts that are down.
        own_messages: of the firehose and the log, which the node publishes.
        openings: limits how many message stores are opened at once.
        removals: futures of the removal of deleted vhosts' messages, by the vhost's name, until they are done.
        admin_turn: a lock, held while an operator's change is checked, written and made.
        services: more children of the supervisor ``infra``, set before the tree is started.
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
        access: Access | None = None,
        links: LinkedNode | None = None,
    ) -> None:
        self.runtime = runtime
        self.settings = settings
        self.links = links
        self.cluster_nodes = (
            None if links is None else ClusterNodes(links.name, runtime.clock, links)
        )
        self.data_dir = data_dir
        self.files = files or Files()
        self.reserve = reserve(self.files, data_dir or Path())
        self.ballast = Ballast(self.files, data_dir or Path(), reserve=self.reserve)
        self.gil_yielding = gil_yielding
        self.resources = Resources(runtime, settings, machine or Machine())
        self.metadata = MetadataWriter(runtime, store)
        self.epochs = BootEpochs(self.metadata)
        self.access = access or Access(settings.loopback_users)
        self.vhosts: dict[str, VHost] = {}
        self.outages = Outages(runtime.clock)
        self.own_messages = OwnMessages(runtime)
        self.openings = Openings(runtime.clock)
        self.removals: dict[str, asyncio.Future[None]] = {}
        self.settings_rows = SettingsRows()
        self.connections: Connections[Reader] = Connections(
            runtime,
            settings,
            self.access,
            self.vhosts,
            self.resources.alarms,
            lambda: self.resources.memory_limit_bytes,
            lambda: self.cluster_name,
        )
        self.connections.reply_consumers.cluster_nodes = self.cluster_nodes
        admission = Admission(self.vhosts)
        self.sockets = Sockets(runtime, self.connections, admission)
        self.admin_turn = asyncio.Lock()
        self.services: tuple[ChildSpec, ...] = ()
        self._producers = NodeProducers(lambda: self.resources.memory_limit_bytes, runtime.clock)
        self._started_at_s = runtime.clock.wall_s()

    @property
    def cluster_name(self) -> str:
        """The name of the cluster that clients see: the global parameter, else that of the settings."""
        return self.settings_rows.cluster_name or str(self.settings.cluster_name)

    def new_vhost(self, name: str, default_queue_type: str = "") -> VHost:
        """Return a vhost that is not among the node's yet.

        Its store is not opened before the messages of a deleted vhost of the same name are removed.
        """
        vhost = VHost(
            name,
            self.runtime,
            self.access,
            self.metadata,
            self.resources.memory,
            self.cluster_nodes,
        )
        vhost.state.on_change = partial(self.outages.changed, vhost)
        vhost.default_queue_type = default_queue_type
        settings = self.settings
        vhost.producer_limits = settings.producers_max, int(settings.producer_expiry_s * 1000)
        vhost.node_producers = self._producers
        vhost.reply_addresses = self.connections.reply_consumers
        vhost.alarms = self.resources.alarms
        vhost.store.in_use = self.removals.get(name)
        return vhost

    def stop_firehose(self, vhost: VHost) -> None:
        """Turn the firehose of a vhost off, if it is on."""
        path = vhost.features
        if path.firehose is not None:
            self.own_messages.remove(path.firehose)
            path.firehose = None

    def forget_vhost(self, vhost: VHost) -> None:
        """Take a vhost, whose rows are deleted, out of memory, and close its connections; its actors still run."""
        name = vhost.name
        del self.vhosts[name]
        self.stop_firehose(vhost)
        vhost.state.on_change = _unheard  # the old hook refers to the vhost: a cycle
        self.outages.forget(name)
        self.epochs.forget(name)
        self.access.remove(self.access.rows_of_vhost(name))
        self.settings_rows.remove([VhostRow(name), *self.settings_rows.rows_of_vhost(name)])
        self.connections.close_where(
            lambda each: vhost_of(each) is vhost, f"vhost '{name}' is deleted"
        )
        if vhost.store.give_up is not None:
            vhost.store.give_up()

    def is_own(self, row: QueueRow) -> bool:
        """Whether the queue of a row lives on this node."""
        return self.cluster_nodes is None or row.node in ("", self.cluster_nodes.own)

    def change_settings(self, settings: BrokerSettings) -> None:
        """Replace the settings; limits, and settings of new connections, take effect."""
        former, self.settings = self.settings, settings
        self.connections.settings = settings
        memory, disk = settings.memory_high_watermark, settings.disk_free_limit
        self.resources.set_limits(
            memory if memory != former.memory_high_watermark else None,
            disk if disk != former.disk_free_limit else None,
        )

    def file_descriptors(self) -> dict[str, Any]:
        """Return RabbitMQ's statistics of descriptors; counting them takes a microsecond for each."""
        return {
            "total_limit": descriptors.limit(),
            "total_used": descriptors.used(),
            "sockets_limit": self.sockets.admission.sockets_limit,
            "sockets_used": len(self.sockets.accepted),
        }

    def stat(self) -> dict[str, Any]:
        return {
            "connections": len(self.connections),
            "channels": self.connections.channel_count,
            "queues": sum(len(vhost.topology.queues) for vhost in self.vhosts.values()),
            "vhosts": len(self.vhosts),
            "actors": self.runtime.actor_count,
            "uptime_s": self.runtime.clock.wall_s() - self._started_at_s,
        }


def _unheard() -> None:
    """Ignore a change of state: the vhost is deleted."""
