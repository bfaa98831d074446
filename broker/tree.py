"""The supervision tree of a running broker, in one place.

::

    leveret                  one_for_all 0/1          its end is the broker's end
    ├ metadata               one_for_one 10/10
    │ └ metadata_store       permanent                front of the store, which it does not own
    ├ infra                  one_for_one 10/10
    │ ├ maintenance          transient                memory of idle actors, ballast, orphans
    │ ├ memory_watch         transient                memory alarm; how much queues keep in RAM
    │ ├ disk_watch           transient                disk alarm
    │ ├ vhost_restarter      transient                starts vhosts again that the disk took down
    │ ├ own_publisher        transient                publishes copies for the firehose, and the log
    │ ├ settings_keeper      permanent                applies other nodes' policies and vhosts, in a cluster
    │ ├ queue_directory      permanent                tells other nodes of queues, in a cluster
    │ └ operators            permanent                answers operators of other nodes, in a cluster
    ├ vhosts                 simple_one_for_one 0/5   one child per vhost, transient
    │ └ vhost:NAME           one_for_all 2/300        third crash in five minutes: vhost goes down
    │   ├ queues_and_stores  one_for_all 0/1          permanent
    │   │ ├ msg_store          permanent                the vhost's messages on disk
    │   │ ├ queues           simple_one_for_one 10/10 transient
    │   │ │ └ queue:NAME     one_for_all 5/10         temporary; see broker/queue/supervisor.py
    │   │ └ delegate         permanent                publishes of other nodes, in a cluster
    │   └ recovery           permanent                starts the queues when the store is open
    ├ vhost_starter          temporary                starts the vhosts, then ends
    └ listeners              one_for_all 10/10
      ├ readers              simple_one_for_one 0/1
      │ └ reader             temporary                one per socket; linked with its connection
      ├ connections          simple_one_for_one 0/1
      │ └ connection:NAME    simple_one_for_one 0/1   temporary
      │   └ channel:N        temporary
      └ listener             transient

RabbitMQ's tree (3.10) with what differs: the reader stands beside the supervisor of its channels and
is linked with it, because it is there before connection.open; writer, limiter and
heartbeats are objects of the connection, not processes; the backing queue is an actor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.actors.actor import IGNORE
from leveret.actors.runtime.signals import SHUTDOWN
from leveret.broker.channel.channel import Channel
from leveret.broker.cluster.other_settings import SettingsUpdater
from leveret.broker.cluster.queue_directory import QueueDirectory
from leveret.broker.connection.connections import CONNECTIONS, vhost_of
from leveret.broker.connection.listener import Listener
from leveret.broker.connection.reader import Reader
from leveret.broker.connection.sockets import LISTENER, READERS
from leveret.broker.node.bootstrap import QueueStarter, VhostStarter
from leveret.broker.node.disk_watch import DiskWatch
from leveret.broker.node.maintenance import Maintenance
from leveret.broker.node.memory_watch import MemoryWatch
from leveret.broker.node.node import VHOSTS
from leveret.broker.node.own_publisher import OwnPublisher
from leveret.broker.node.store_server import STOP_S, StoreServer
from leveret.broker.node.vhost_restarter import VhostRestarter
from leveret.broker.queue.supervisor import QueueSup
from leveret.broker.vhost.delegate import Delegate
from leveret.broker.vhost.metadata.metadata_server import MetadataServer
from leveret.broker.vhost.states import ENDED, Event, State
from leveret.supervisors.spec import ChildSpec, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.signals import Exit
    from leveret.broker.node.node import Node
    from leveret.broker.vhost.vhost import VHost
    from leveret.supervisors.spec import Report

CHANNEL_SHUTDOWN_S: Final = 70.0

_MEASURES_ANEW: Final = ("transient", 1.0)


class BrokerSup(Supervisor):
    """The root: its end is the end of the broker."""

    def init(self, node: Node) -> SupervisorSpec:
        """Start metadata, the vhosts, then the way in; they stop in the opposite order."""
        children = (
            ChildSpec("metadata", MetadataSup, (node,), type="supervisor"),
            ChildSpec("infra", InfraSup, (node,), type="supervisor"),
            ChildSpec("vhosts", VhostsSup, (node,), type="supervisor"),
            ChildSpec("vhost_starter", VhostStarter, (node,), restart="temporary"),
            ChildSpec("listeners", ListenersSup, (node,), type="supervisor"),
        )
        return SupervisorSpec("one_for_all", 0, 1.0, children)


class MetadataSup(Supervisor):
    """Keeps the metadata store's front."""

    def init(self, node: Node) -> SupervisorSpec:
        child = ChildSpec("metadata_store", MetadataServer, (node.metadata,))
        return SupervisorSpec("one_for_one", 10, 10.0, (child,))


class InfraSup(Supervisor):
    """Keeps maintenance, the watches of the node, the restarter of its vhosts, and the publisher of its own messages.

    In a cluster it also keeps the queue directory, the updater of settings, and the ``services`` of the node.
    """

    def init(self, node: Node) -> SupervisorSpec:
        children: tuple[ChildSpec, ...] = (
            ChildSpec("maintenance", Maintenance, (node,), restart=_MEASURES_ANEW),
            ChildSpec(
                "memory_watch",
                MemoryWatch,
                (node.resources, node.connections),
                restart=_MEASURES_ANEW,
            ),
            ChildSpec("disk_watch", DiskWatch, (node,), restart=_MEASURES_ANEW),
            ChildSpec("vhost_restarter", VhostRestarter, (node,), restart=_MEASURES_ANEW),
            ChildSpec("own_publisher", OwnPublisher, (node,), restart=_MEASURES_ANEW),
        )
        if node.links is not None:
            children = (
                *children,
                ChildSpec("settings_keeper", SettingsUpdater, (node,)),
                ChildSpec("queue_directory", QueueDirectory, (node,)),
            )
        return SupervisorSpec("one_for_one", 10, 10.0, (*children, *node.services))


class VhostsSup(Supervisor):
    """Keeps the vhosts; a vhost that crashes for good stays down alone."""

    def init(self, node: Node) -> SupervisorSpec:
        """Start without children; the ``VhostStarter`` adds them."""
        self.runtime.register(VHOSTS, self.ref)
        child = ChildSpec(
            "vhost",
            VhostSup,
            (node,),
            restart="transient",
            type="supervisor",
            label=lambda node, vhost: f"vhost:{vhost.name}",
        )
        return SupervisorSpec("simple_one_for_one", 0, 5.0, (child,))


class _OfVhost(Supervisor):
    """A supervisor above a vhost's store.

    That a store has failed or cannot be opened is logged by the store's actor and the restarter, not here.
    """

    _vhost: VHost

    def log_report(self, report: Report) -> None:
        if self._vhost.store.error is None:
            super().log_report(report)


class VhostSup(_OfVhost):
    """One vhost: its queues, and the actor that starts them."""

    def init(self, node: Node, vhost: VHost) -> object:
        """Begin to start the store and the queues, which nobody above waits for.

        IGNORE where somebody else has started them meanwhile, or the vhost has been deleted.
        """
        if vhost.state.now not in ENDED or node.vhosts.get(vhost.name) is not vhost:
            return IGNORE
        self._node, self._vhost = node, vhost
        self.charge_to(self.ref.num)
        vhost.supervisor = self.ref
        vhost.state.enter(Event.STARTS)
        self.runtime.watch(self.ref, lambda _: vhost.state.enter(_end_of(node, vhost)))
        children = (
            ChildSpec("queues_and_stores", QueuesAndStoresSup, (node, vhost), type="supervisor"),
            ChildSpec("recovery", QueueStarter, (node, vhost)),
        )
        return SupervisorSpec("one_for_all", 2, 300.0, children)

    def _handle_exit(self, message: Exit) -> None:
        """End with a store that could not be opened at all: the restarter tries again after a pause.

        One that was open is opened again at once, so that clients stay connected.
        """
        if self._vhost.store.error is not None and self._vhost.state.now is State.OPENING:
            self._stop_children_and_end(SHUTDOWN)
        else:
            super()._handle_exit(message)

    def terminate(self, reason: object) -> None:
        """Close the vhost's connections, as RabbitMQ does; it is down, so none is opened meanwhile."""
        super().terminate(reason)
        connections, vhost = self._node.connections, self._vhost
        if not connections.is_stopping:
            connections.close_where(
                lambda each: vhost_of(each) is vhost, f"vhost '{vhost.name}' is down"
            )


def _end_of(node: Node, vhost: VHost) -> Event:
    """Return why the supervisor of a vhost has ended."""
    if node.connections.is_stopping or node.vhosts.get(vhost.name) is not vhost:
        return Event.STOPPED
    return Event.RESTARTS_USED_UP if vhost.store.error is None else Event.MACHINE_FAILED


class QueuesAndStoresSup(_OfVhost):
    """The queues and the stores they write to, which are started and stopped together."""

    def init(self, node: Node, vhost: VHost) -> SupervisorSpec:
        """Start the store, then the queues' supervisor; they stop in the opposite order."""
        self._vhost = vhost
        children: tuple[ChildSpec, ...] = (
            ChildSpec("msg_store", StoreServer, (node, vhost), shutdown=STOP_S),
            ChildSpec("queues", QueuesSup, (vhost,), restart="transient", type="supervisor"),
        )
        if vhost.local_queues is not None:
            children = (
                *children,
                ChildSpec("delegate", Delegate, (vhost,)),
            )
        return SupervisorSpec("one_for_all", 0, 1.0, children)


class QueuesSup(Supervisor):
    """Keeps the queues of one vhost."""

    def init(self, vhost: VHost) -> SupervisorSpec:
        ref = vhost.queues_sup = self.ref

        def ended(_: object) -> None:
            if vhost.queues_sup is ref:  # else its successor runs already
                vhost.state.enter(Event.PART_ENDED)

        self.runtime.watch(ref, ended)
        return SupervisorSpec("simple_one_for_one", 10, 10.0, (_QUEUE,))


class ListenersSup(Supervisor):
    """Keeps the listener, and the readers and connections of the clients that came through it."""

    def init(self, node: Node) -> SupervisorSpec:
        """Start readers and connections before clients can connect."""
        children = (
            ChildSpec("readers", ReadersSup, type="supervisor"),
            ChildSpec("connections", ConnectionsSup, type="supervisor"),
            ChildSpec("listener", Listener, (node.sockets, LISTENER), restart="transient"),
        )
        return SupervisorSpec("one_for_all", 10, 10.0, children)


class ReadersSup(Supervisor):
    """Keeps the readers; none is restarted, the client connects again."""

    def init(self) -> SupervisorSpec:
        self.runtime.register(READERS, self.ref)
        return SupervisorSpec("simple_one_for_one", 0, 1.0, (_READER,))


class ConnectionsSup(Supervisor):
    """Keeps the supervisors of the connections' channels."""

    def init(self) -> SupervisorSpec:
        self.runtime.register(CONNECTIONS, self.ref)
        return SupervisorSpec("simple_one_for_one", 0, 1.0, (_CONNECTION,))


class ConnectionSup(Supervisor):
    """Keeps the channels of one connection; ends with its reader."""

    def init(self, name: str, reader: Ref) -> SupervisorSpec:
        self.partner = reader
        self.link(reader)
        self.charge_to(reader.cell.account)
        return _CHANNELS


_QUEUE: Final = ChildSpec(
    "queue",
    QueueSup,
    restart="temporary",
    type="supervisor",
    label=lambda entry, make_backing: f"queue:{entry.name}",
)
_READER: Final = ChildSpec("reader", Reader, restart="temporary")
_CONNECTION: Final = ChildSpec(
    "connection",
    ConnectionSup,
    restart="temporary",
    type="supervisor",
    label=lambda name, reader: f"connection:{name}",
)
_CHANNELS: Final = SupervisorSpec(
    "simple_one_for_one",
    0,
    1.0,
    (
        ChildSpec(
            "channel",
            Channel,
            restart="temporary",
            shutdown=CHANNEL_SHUTDOWN_S,
            label=lambda session, number, gate: f"channel:{number}",
        ),
    ),
)
