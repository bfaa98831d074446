"""The other nodes of a cluster, and the registry entries of the queues that live there.

The actors of a queue run on one node, its *home* (RabbitMQ's home node). Every node has an entry for each queue, so
routes and bindings hold entries wherever the queue runs. A ``RemoteEntry`` is the entry of a queue on another node:
its ``ref`` is the address of the amqqueue over the link, as announced by the home's queue directory
(``cluster/queue_directory.py``).

When the link with a node breaks, all its queues are *down* in one step: an entry reads its state from
``ClusterNode.is_up``. Only entries that channels wait for or consume from are visited. Operations on a durable queue
that is down are answered 404 with RabbitMQ's text, and messages to it are refused. A transient queue that is down
counts as deleted, as in RabbitMQ, and its name may be declared again. When the link is made again the queues are up
again, unless their rows were deleted meanwhile.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from leveret.actors.runtime.actor_ref import ActorRef
from leveret.actors.runtime.ref import DEAD_CELL, Ref
from leveret.amqp.errors import NotFound
from leveret.broker.registry.registry import QueueEntry, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leveret.broker.registry.queue_settings import Arguments
    from leveret.core.clock import Clock

LAGGING_BYTES: Final = (
    16 * 1024 * 1024
)  # that wait for a node: channels that publish to it are not read
_POLL_S: Final = 0.01


class Links(Protocol):
    """The links of this node (``actors.links.node.Node``)."""

    def unsent_bytes(self, name: str) -> int:
        """Return the bytes that wait for a node, 0 when it is not linked."""


class LinkBackpressure:
    """Back pressure of the link with a node, as ``msg_store.wal.backpressure`` is of a disk."""

    def __init__(self, clock: Clock, name: str, links: Links) -> None:
        self._clock = clock
        self._name = name
        self._links = links
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_on(self) -> bool:
        """Whether so much waits for the node that nothing should be added."""
        return self._links.unsent_bytes(self._name) > LAGGING_BYTES

    def wait(self, callback: Callable[[], None]) -> None:
        """Call back once the link has caught up, or is broken."""
        self._waiting.append(callback)
        if len(self._waiting) == 1:
            self._clock.call_later(_POLL_S, self._poll)

    def forget(self, callback: Callable[[], None]) -> None:
        """Do not call back."""
        if callback in self._waiting:
            self._waiting.remove(callback)

    def _poll(self) -> None:
        if self.is_on:
            self._clock.call_later(_POLL_S, self._poll)
            return
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()


class ClusterNode:
    """Another node of the cluster.

    Attributes:
        name: of the node.
        is_up: it is linked, and its directory has announced all its queues.
        delegates: the delegate of each vhost that runs there.
        refs: the amqqueues that run there, by vhost and queue; also of queues whose rows have not come yet.
        backpressure: of the link.
    """

    def __init__(self, name: str, backpressure: LinkBackpressure) -> None:
        self.name = name
        self.is_up = False
        self.delegates: dict[str, Ref] = {}
        self.refs: dict[tuple[str, str], Ref] = {}
        self.backpressure = backpressure
        self._waited_for: dict[RemoteEntry, None] = {}

    def note_waiting(self, entry: RemoteEntry) -> None:
        """Visit this entry when the node is lost: a channel waits for it or consumes from it."""
        self._waited_for[entry] = None

    def forget_waiting(self, entry: RemoteEntry) -> None:
        """The entry is deleted."""
        self._waited_for.pop(entry, None)

    def down(self) -> list[tuple[Ref, RemoteEntry]]:
        """Note that the node is lost; return the channels that consume from its queues, each with the entry."""
        self.is_up = False
        self.delegates.clear()
        self.refs.clear()
        entries, self._waited_for = self._waited_for, {}
        return [(channel, entry) for entry in entries for channel in entry.node_lost()]


class RemoteEntry(QueueEntry):
    """A queue that lives on another node.

    Attributes:
        home: that node.
    """

    __slots__ = ("_ref", "home")

    is_remote: ClassVar[bool] = True

    _ref: Ref | None

    def __init__(
        self,
        vhost_name: str,
        name: str,
        home: ClusterNode,
        durable: bool,
        auto_delete: bool,
        is_exclusive: bool,
        arguments: Arguments,
        on_deleted: Callable[[QueueEntry], None],
    ) -> None:
        self.home = home
        self._ref = None
        # No connection of this node.
        owner = ActorRef(home.name, 0, DEAD_CELL) if is_exclusive else None
        super().__init__(vhost_name, name, durable, auto_delete, owner, arguments, on_deleted)
        self._ref = home.refs.get((vhost_name, name))

    @property
    def ref(self) -> Ref | None:
        """The amqqueue over the link; None unless its node has announced that it runs."""
        ref = self._ref
        is_connected = ref is not None and ref.is_alive and self.home.is_up
        return ref if is_connected and self.delegate is not None else None

    @ref.setter
    def ref(self, ref: Ref | None) -> None:
        self._ref = ref

    @property
    def delegate(self) -> Ref | None:
        return self.home.delegates.get(self.vhost_name)

    @property
    def state(self) -> State:
        if not self.home.is_up and self.ended != "deleted":
            return "down" if self.durable else "deleted"
        if self.ended is not None:
            return self.ended
        return "starting" if self._ref is None else "running"

    @property
    def is_running(self) -> bool:
        return self.ref is not None and self.ended is None

    @property
    def is_refusing(self) -> bool:
        """As of local queues; also true of a queue that is declared but not yet announced as running."""
        return self.ref is None and self.state != "deleted"

    def missing(self) -> NotFound:
        """Return the error for an operation on a queue that does not run."""
        if self.state == "down":
            return NotFound(
                f"home node '{self.home.name}' of durable {self} is down or inaccessible"
            )
        return super().missing()

    def up(self, ref: Ref) -> list[Ref]:
        """Note a new amqqueue; return the watchers to notify."""
        if self.ended != "deleted":
            self.ended = None
        return super().up(ref)

    def deleted(self) -> None:
        self.home.forget_waiting(self)
        super().deleted()

    def watch(self, channel: Ref) -> None:
        super().watch(channel)
        self.home.note_waiting(self)

    def when_running(self, callback: Callable[[QueueEntry], None]) -> None:
        self.home.note_waiting(self)
        super().when_running(callback)

    def forget_incarnation(self) -> None:
        """Forget the amqqueue: it has ended for good, or its node announces all queues anew."""
        self._ref = None
        if self.ended != "deleted":
            self.ended = None

    def stopped_on_node(self) -> list[Ref]:
        """Note that its vhost has been stopped; return the watchers to notify."""
        self.stopped()
        return self.node_lost()

    def node_lost(self) -> list[Ref]:
        """Call the waiting callbacks, which read the state; return the watchers to notify, which are dropped."""
        self._call_waiters()
        watchers, self._watchers = self._watchers, None
        return list(watchers or ())


def running_by_home(entries: Iterable[QueueEntry]) -> dict[ClusterNode, list[RemoteEntry]]:
    """Return the queues that run on other nodes, by node."""
    found: dict[ClusterNode, list[RemoteEntry]] = {}
    for entry in entries:
        if isinstance(entry, RemoteEntry) and entry.is_running:
            found.setdefault(entry.home, []).append(entry)
    return found


class ClusterNodes:
    """The nodes of a cluster, as one of them knows them.

    Args:
        own: the name of this node.
        clock: for back pressure.
        links: of this node.

    Attributes:
        by_name: the other nodes.
        default_locator: chooses the node of a new queue where neither argument nor policy does.
        on_change: called when a queue or delegate of this node has changed; the directory sets it.
        unacknowledged: callbacks that wait for the other nodes' acknowledgement of the changes so far.
    """

    def __init__(self, own: str, clock: Clock, links: Links) -> None:
        self.own = own
        self._clock = clock
        self._links = links
        self.by_name: dict[str, ClusterNode] = {}
        self.on_change: Callable[[], None] | None = None
        self.unacknowledged: list[Callable[[None], object]] = []
        self.default_locator = "client-local"
        self._queues: Counter[str] = Counter()

    def count(self, entry: QueueEntry, change: int) -> None:
        """Count a new queue (1) or a deleted one (-1) at its node."""
        self.expect(entry.home.name if isinstance(entry, RemoteEntry) else self.own, change)

    def expect(self, name: str, change: int) -> None:
        """Count queues that are about to be declared on a node, or will not be after all."""
        self._queues[name] += change

    def queues_of(self, name: str) -> int:
        """Return the number of queues on a node, including the queues that are being declared there."""
        return self._queues[name]

    def changed(self) -> None:
        """Have a change announced to the other nodes."""
        if self.on_change is not None:
            self.on_change()

    def when_acknowledged(self, resume: Callable[[None], object]) -> None:
        """Call back when all linked nodes have acknowledged the changes of this node so far."""
        self.unacknowledged.append(resume)
        self.changed()

    def home(self, name: str) -> ClusterNode:
        """Return another node; it is down until its directory has announced its queues."""
        home = self.by_name.get(name)
        if home is None:
            backpressure = LinkBackpressure(self._clock, name, self._links)
            home = self.by_name[name] = ClusterNode(name, backpressure)
        return home
