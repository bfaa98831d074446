"""The queue directory announces the queues of this node to the other nodes, and applies their announcements.

A queue's row in the metadata names its node; the directory knows the address of its amqqueue. Each node has one
directory. When two nodes are linked, each directory announces the delegates and queues of all its vhosts to the other,
in slices, then sends ``AllAnnounced``; afterwards it announces changes, once per drain of the run queue. The link keeps
their order, since a directory is the only sender. Nothing is stored: a new incarnation of a node announces all anew.

A client may declare a queue and publish to it on another node a moment later. So declare-ok waits until the other
directories know the queue (``ClusterNodes.when_acknowledged``); one call serves all declarations that wait.

When a link breaks, ``NodeDown`` arrives behind all announcements of the node: its queues are down at once, channels
cancel their consumers of these queues, and its alarms are cleared here. Channels nack the publishes that the node has
not confirmed when their monitors report the broken link.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.gen_server import From, GenServer
from leveret.actors.links.node import NodeDown, NodeUp
from leveret.actors.links.sendable import message
from leveret.actors.links.server import WhereIs
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import Down
from leveret.broker.cluster.other_changes import agree
from leveret.broker.registry.cluster_nodes import RemoteEntry
from leveret.broker.registry.registry import QueueFailed, QueueUp
from leveret.core.log.loggers import logger
from leveret.metadata.tables import QueueRow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leveret.actors.links.node import Node as LinkedNode
    from leveret.broker.node.node import Node
    from leveret.broker.registry.cluster_nodes import ClusterNode
    from leveret.broker.registry.registry import QueueEntry
    from leveret.broker.vhost.vhost import VHost

log = logger(__name__)

QUEUE_DIRECTORY: Final = "queue_directory"
QUEUES_AT_ONCE: Final = 1_000
_SENT_AS: Final = "leveret.broker.node.queue_directory"
_SEARCH_S: Final = 0.2  # between questions for the directory of a node that has just started


@message(sent_as=f"{_SENT_AS}:Announcement")
@dataclass(slots=True)
class Announcement:
    """Queues of a vhost on a node.

    Attributes:
        node: the sender's.
        delegate: of the vhost; None: the vhost does not run on the node.
        queues: name, amqqueue and state of each; the amqqueue is None unless it runs, or has run and is deleted.
        is_first: earlier announcements of this vhost are void.
    """

    node: str
    vhost: str
    delegate: Ref | None
    queues: list[list[Any]]
    is_first: bool = False


@message(sent_as=f"{_SENT_AS}:AllTold")
@dataclass(slots=True)
class AllAnnounced:
    """The node has announced all its queues; ``alarms`` are raised on it."""

    node: str
    alarms: list[str]


@message(sent_as=f"{_SENT_AS}:AlarmsTold")
@dataclass(slots=True)
class AlarmsChanged:
    """The alarms that are raised on the node now."""

    node: str
    alarms: list[str]


@message(sent_as=f"{_SENT_AS}:CountsTold")
@dataclass(slots=True)
class CountsChanged:
    """How many connections and channels are open on the node, of users and vhosts with limits."""

    node: str
    counts: dict[str, int]


@message(sent_as=f"{_SENT_AS}:HaveHeard")
@dataclass(slots=True)
class Acknowledge:
    """A call: answered True, behind all that the node has announced before."""

    node: str


class _Announce:
    """A mail of the directory to itself: announce this node's changes to the other nodes."""


class _Search(str):
    """Timer: ask a node for its directory again."""

    __slots__ = ()


_ANNOUNCE: Final = _Announce()


class QueueDirectory(GenServer):
    """The directory of one node of a cluster."""

    def init(self, node: Node) -> None:
        """Begin, and announce all queues to the nodes that are linked already."""
        assert node.links is not None, "a directory needs links"
        assert node.cluster_nodes is not None
        self._node = node
        self._links: LinkedNode = node.links
        self._cluster_nodes = node.cluster_nodes
        self._others: dict[str, Ref] = {}  # directories
        self._is_due = False
        self._delegates: dict[str, Ref | None] = {}  # as announced last
        self._alarms = node.resources.alarms.own
        self.runtime.register(QUEUE_DIRECTORY, self.ref)
        self._links.watch_nodes(self.ref)
        self._cluster_nodes.on_change = self._announce_soon
        node.resources.alarms.on_change = self._announce_soon
        node.connections.remote_counts.on_change = self._announce_soon
        node.connections.remote_counts.when_acknowledged = self._cluster_nodes.when_acknowledged
        self._counts = node.connections.limited_counts()
        for name in self._links.nodes:
            self._search(name)
        self._is_asking = False
        if self._cluster_nodes.unacknowledged:  # left by a crashed predecessor
            self._announce_soon()

    def handle_call(self, request: Any, frm: From | None) -> object:
        if type(request) is Acknowledge:
            return True
        return super().handle_call(request, frm)

    def handle_cast(self, message: Any) -> None:
        kind = type(message)
        if kind is _Announce:
            self._announce_changes()
        elif kind is Announcement:
            self._announced(message)
        elif kind is AllAnnounced or kind is AlarmsChanged:
            self._node.resources.alarms.set_remote(message.node, tuple(message.alarms))
            if kind is AllAnnounced:
                self._cluster_nodes.home(message.node).is_up = True
                log.info("queues of a node are known node=%s", message.node)
        elif kind is CountsChanged:
            self._node.connections.remote_counts.put(message.node, message.counts)
        elif kind is NodeUp:
            self._search(message.name)
        elif kind is NodeDown:
            self._node_down(message.name)
        else:
            super().handle_cast(message)

    def handle_info(self, message: Any) -> None:
        if type(message) is _Search:
            self._search(str(message))
        elif type(message) is Down:  # its successor, or a new link, gets all anew
            for name in [name for name, ref in self._others.items() if ref is message.ref]:
                del self._others[name]
                self._search(name)

    # This node's queues.

    def _announce_soon(self) -> None:
        """Announce changes at the end of the turn: the caller may have changed only a part so far."""
        if self.ref.is_alive and not self._is_due:
            self._is_due = True
            self.runtime.send(self.ref, _ANNOUNCE)

    def _announce_changes(self) -> None:
        self._is_due = False
        for vhost in self._node.vhosts.values():
            queues = vhost.local_queues
            assert queues is not None
            changed = queues.take_changed()
            delegate = queues.delegate
            if not changed and self._delegates.get(vhost.name) is delegate:
                continue
            self._delegates[vhost.name] = delegate
            for announcement in self._announcements(vhost, changed):
                for other in self._others.values():
                    self.runtime.send(other, announcement, self.ref)
        alarms = self._node.resources.alarms.own
        if alarms != self._alarms:
            self._alarms = alarms
            for other in self._others.values():
                changed_alarms = AlarmsChanged(self._cluster_nodes.own, list(alarms))
                self.runtime.send(other, changed_alarms, self.ref)
        counts = self._node.connections.limited_counts()
        if counts != self._counts:
            self._counts = counts
            for other in self._others.values():
                self.runtime.send(other, CountsChanged(self._cluster_nodes.own, counts), self.ref)
        self._ask_acknowledgements()

    def _ask_acknowledgements(self) -> None:
        """Ask the other directories to acknowledge; then call the callers of ``when_acknowledged`` up to now."""
        waiting = list(self._cluster_nodes.unacknowledged)
        if not waiting or self._is_asking:
            return
        left = len(self._others)
        self._is_asking = left > 0

        def acknowledged(_: object = None) -> None:  # or its node is down
            nonlocal left
            left -= 1
            if left <= 0:
                self._is_asking = False
                del self._cluster_nodes.unacknowledged[: len(waiting)]
                for resume in waiting:
                    resume(None)
                if self._cluster_nodes.unacknowledged:
                    self._announce_soon()  # their changes may not be announced yet

        for other in list(self._others.values()):
            self.call(other, Acknowledge(self._cluster_nodes.own), acknowledged, None)
        if not left:
            acknowledged()

    def _search(self, name: str) -> None:
        """Find the directory of a node, to announce all queues to it."""
        if name in self._links.nodes:
            found = partial(self._found, name)
            self.call(self._links.server_of(name), WhereIs(QUEUE_DIRECTORY), found)

    def _found(self, name: str, directory: Any) -> None:
        if not isinstance(directory, Ref):
            self.start_timer(_SEARCH_S, _Search(name))
            return
        self._others[name] = directory
        self.monitor(directory)
        for vhost in self._node.vhosts.values():
            own = [each for each in vhost.topology.queues.values() if not each.is_remote]
            for announcement in self._announcements(vhost, own, is_first=True):
                self.runtime.send(directory, announcement, self.ref)
        done = AllAnnounced(self._cluster_nodes.own, list(self._node.resources.alarms.own))
        self.runtime.send(directory, done, self.ref)
        self.runtime.send(directory, CountsChanged(self._cluster_nodes.own, self._counts), self.ref)

    def _announcements(
        self, vhost: VHost, entries: Iterable[QueueEntry], is_first: bool = False
    ) -> list[Announcement]:
        assert vhost.local_queues is not None
        delegate = vhost.local_queues.delegate
        rows = [
            [each.name, each.ref if each.state in ("running", "deleted") else None, each.state]
            for each in entries
        ]
        starts = range(0, len(rows) or 1, QUEUES_AT_ONCE)
        slices = [rows[start : start + QUEUES_AT_ONCE] for start in starts]
        own = self._cluster_nodes.own
        return [
            Announcement(own, vhost.name, delegate, some, is_first and not number)
            for number, some in enumerate(slices)
        ]

    # Other nodes' queues.

    def _announced(self, announced: Announcement) -> None:
        home = self._cluster_nodes.home(announced.node)
        if announced.is_first:
            self._forget(home, announced.vhost)
        if announced.delegate is not None:
            home.delegates[announced.vhost] = announced.delegate
        vhost, unknown = self._node.vhosts.get(announced.vhost), list[QueueRow]()
        for name, ref, state in announced.queues:
            key = announced.vhost, name
            if state == "running":
                home.refs[key] = ref
            elif state == "deleted" and not _is_same(home.refs.get(key), ref):
                continue  # it has never run, or there is another queue of this name already
            else:
                home.refs.pop(key, None)
            entry = vhost.topology.queues.get(name) if vhost is not None else None
            if isinstance(entry, RemoteEntry) and entry.home is home:
                self._changed(entry, ref, state)
            elif entry is None and ref is not None:
                unknown.append(QueueRow(announced.vhost, name))
        if unknown and self._node.metadata.shared is not None:
            # A queue that was declared again may have its row here before the end of the earlier one was announced.
            agree(self._node, self._node.metadata.shared, unknown)

    def _forget(self, home: ClusterNode, vhost_name: str) -> None:
        home.refs = {key: ref for key, ref in home.refs.items() if key[0] != vhost_name}
        vhost = self._node.vhosts.get(vhost_name)
        for entry in vhost.topology.queues.values() if vhost is not None else ():
            if isinstance(entry, RemoteEntry) and entry.home is home:
                entry.forget_incarnation()

    def _changed(self, entry: RemoteEntry, ref: Ref | None, state: str) -> None:
        """Note the new state of a queue on another node; tell the channels with consumers."""
        if state == "running":
            assert ref is not None
            for channel in entry.up(ref):
                self.runtime.send(channel, QueueUp(entry))
        elif state == "deleted":
            entry.forget_incarnation()  # its row will be gone soon; until then its name is not free
        elif state in ("crashed", "stopped"):
            watchers = entry.crashed() if state == "crashed" else entry.stopped_on_node()
            for channel in watchers:
                self.runtime.send(channel, QueueFailed(entry))

    def _node_down(self, name: str) -> None:
        self._others.pop(name, None)
        home = self._cluster_nodes.home(name)
        for channel, entry in home.down():
            self.runtime.send(channel, QueueFailed(entry))
        self._node.resources.alarms.set_remote(name, ())
        self._node.connections.remote_counts.lost(name)


def _is_same(one: Ref | None, other: Ref | None) -> bool:
    """Return whether two addresses are that of one actor of a node; a link may have made them one after the other."""
    return one is not None and other is not None and one.num == other.num
