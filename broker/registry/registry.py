"""QueueEntry: a queue as routes, bindings and channels know it; the entry outlives every restart.

Routes, bindings and channels hold the entry and never the address of an actor, which a restart changes. After a
restart of the pair the new amqqueue calls ``up``, and notifies the channels with consumers (``watch``), which
subscribe again.

States: ``starting`` until the first ``up``; ``running``; ``crashed`` when its supervisor gave up;
``stopped`` when its vhost was stopped; ``down`` when its node is not linked (``cluster_nodes.py``);
``deleted``. A dead supervisor alone means ``crashed``, so that
a kill is never unnoticed. Between a crash and the restart, which the supervisor does at once, the state
is ``running`` and ``ref`` is dead: mail to it counts as lost with the crash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, TypeAlias

from msgspec import Struct

from leveret.amqp.errors import NotFound
from leveret.amqp.tables import pack, unpack
from leveret.broker.registry.queue_settings import NO_POLICIES, settings_of
from leveret.msg_store.format.record import route_no
from leveret.routing.delayed import exchange_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.actors.runtime.ref import Ref
    from leveret.broker.registry.queue_settings import AppliedPolicies, Arguments
    from leveret.broker.remote.mail_between_nodes import NodeReplies, RepliesStalled
    from leveret.core.message import Message
    from leveret.msg_store.format.rows import ProducerRow
    from leveret.msg_store.store import MsgStore
    from leveret.msg_store.wal.producers import RowSequence
    from leveret.routing.topology import Topology

State: TypeAlias = Literal["starting", "running", "crashed", "stopped", "down", "deleted"]
GONE: Final = ("crashed", "stopped", "down", "deleted")
_NOT_EXISTING: Final = ("starting", "deleted")


class QueueUp(Struct, eq=False):
    """Mail: the queue runs again after a crash; sent to the channels that watch its entry."""

    entry: QueueEntry


class QueueFailed(Struct, eq=False):
    """Mail: the queue will not be started again; sent to the channels that watch its entry."""

    entry: QueueEntry


class StoreHolder(Protocol):
    """The state of a vhost's store."""

    msg_store: MsgStore | None


class Tracing(Protocol):
    """The firehose of a vhost, as queues use it."""

    def died(
        self, queue: str, reason: bytes, messages: list[Message], is_dropped: bool = False
    ) -> None:
        """Messages of a queue were dead-lettered, or dropped."""


class ReplyAddresses(Protocol):
    """The reply consumers of the node (direct reply-to), as queues use them."""

    def is_address(self, key: bytes) -> bool:
        """Return whether a message with this key to the default exchange is a reply."""

    def has(self, key: bytes) -> bool:
        """Return whether there is a consumer with this key on this node."""

    def deliver(self, key: bytes, messages: list[Message]) -> None:
        """Send messages to the consumer with this key; drop them if it is gone, or reads too slowly."""

    def take(self, replies: NodeReplies) -> None:
        """Deliver replies that were published on another node."""

    def told_stalled(self, mail: RepliesStalled) -> None:
        """A publisher on another node has waited long enough for a consumer of this one."""


class RaisedAlarms(Protocol):
    """The alarms of the node and its cluster (``broker/connection/alarms.py``)."""

    raised: tuple[str, ...]


class StoredProducers(Protocol):
    """The producers of a queue that the store keeps (``msg_store/producers.py``)."""

    def __len__(self) -> int: ...

    def entries(self) -> dict[bytes, ProducerRow]:
        """Return a copy of them, by id."""

    def changed(self, changes: Sequence[RowSequence]) -> None:
        """Write changes with the rows that they name."""


class RememberingQueue(Protocol):
    """A queue that remembers producers (``queue/publishers/deduplication.py``)."""

    @property
    def vhost_name(self) -> str: ...

    def count(self) -> int:
        """Return how many producers the queue knows."""

    def forget_oldest(self, count: int) -> None:
        """Have the queue forget its least recently used producers."""


class ProducersOfNode(Protocol):
    """The limit on the producers that all queues of the node remember (``queue/publishers/node_producers.py``)."""

    def register(self, queue: RememberingQueue, count: int) -> None:
        """Begin to count a queue's producers; it has ``count`` of them now."""

    def ended(self, queue: RememberingQueue) -> None:
        """Forget a queue whose actor has ended."""

    def added(self, count: int) -> None:
        """Note new producers of registered queues; above the limit, queues forget the oldest producers."""


class Surroundings(Protocol):
    """A queue's vhost, as the queue itself knows it: the target of its dead letters, and their tracing."""

    topology: Topology[QueueEntry]
    producer_limits: tuple[int, int]
    alarms: RaisedAlarms | None
    node_producers: ProducersOfNode | None

    @property
    def store(self) -> StoreHolder: ...

    @property
    def firehose(self) -> Tracing | None: ...
    @property
    def reply_addresses(self) -> ReplyAddresses | None: ...


class QueueEntry:
    """One queue of one vhost.

    Attributes:
        durable: whether it survives a restart of the node.
        auto_delete: whether it is deleted after its last consumer.
        exclusive: the reader of the connection that owns it, None = shared.
        account: its work is charged to it: of the connection that declared it on this node; 0: of its vhost.
        applied: the policies that apply to it.
        settings: the arguments and policies in effect.
        queue_no: its number in the message store; 0 when it is not durable.
        route_no: the route number of its messages there (``msg_store.format.record.route_no``).
        transient_no: its number there when it is not durable and pages out; 0 when it does not.
        ref: the amqqueue, the latest incarnation; None before the first start.
        backing: the actor of its backing queue, likewise.
        is_backlogged: the last run that was published to it did not go to consumers at once; False on other nodes.
        is_archived: settled messages of it stay in the store, by a policy.
        persists_all: all its messages are persistent, whatever their delivery mode.
        ended: how it ended, if it has; part of ``state``.
        was_consumed: whether it has ever had a consumer since the node was started.
        route: of the default exchange to it, as channels keep it.
        mandatory_route: the same for mandatory messages.
        vhost: its vhost; None until it is registered there.
        on_deleted: called once, when the queue is deleted, to remove it from its vhost.
        on_change: called when it is up, has crashed, was stopped or deleted; None: no other node needs to know.
    """

    is_remote: ClassVar[bool] = False  # True of a ``RemoteEntry``

    __slots__ = ("_packed_arguments", "_waiters", "_watchers", "account", "applied", "auto_delete", "backing", "durable", "ended",
        "exclusive", "is_archived", "is_backlogged", "mandatory_route", "name", "on_change", "on_deleted",
        "persists_all", "queue_no", "ref", "route", "route_no", "settings", "supervisor", "transient_no",
        "vhost", "vhost_name", "was_consumed")  # fmt: skip

    def __init__(
        self,
        vhost_name: str,
        name: str,
        durable: bool = False,
        auto_delete: bool = False,
        exclusive: Ref | None = None,
        arguments: Arguments | None = None,
        on_deleted: Callable[[QueueEntry], None] | None = None,
        queue_no: int = 0,
    ) -> None:
        self.vhost_name = vhost_name
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.exclusive = exclusive
        self.account = 0
        self._packed_arguments = pack(arguments or {})
        self.applied: AppliedPolicies = NO_POLICIES
        self.settings = settings_of(arguments or {})
        self.persists_all = self.settings.is_quorum or self.delayed_exchange is not None
        self.is_archived = self.is_backlogged = False
        self.on_deleted = on_deleted
        self.on_change: Callable[[QueueEntry], None] | None = None
        self.route: Any = None
        self.mandatory_route: Any = None
        self.vhost: Surroundings | None = None
        self.number(queue_no)
        self.transient_no = 0
        self.ref: Ref | None = None
        self.backing: Ref | None = None
        self.supervisor: Ref | None = None
        self.was_consumed = False
        self.ended: Literal["crashed", "stopped", "deleted"] | None = None
        self._waiters: list[Callable[[QueueEntry], None]] | None = None
        self._watchers: dict[Ref, None] | None = None

    def __repr__(self) -> str:
        return f"<QueueEntry {self} {self.state}>"

    def __str__(self) -> str:
        """Name the queue as RabbitMQ's texts do."""
        return f"queue '{self.name}' in vhost '{self.vhost_name}'"

    @property
    def arguments(self) -> Arguments:
        """The arguments as declared, decoded now."""
        return unpack(self._packed_arguments)

    @property
    def delegate(self) -> Ref | None:
        """The actor that calls of the queue go by; None: they go to the queue itself."""
        return None

    @property
    def delayed_exchange(self) -> str | None:
        """The exchange whose delay queue this is, None for others."""
        return exchange_of(self.name)

    @property
    def arguments_bytes(self) -> int:
        return len(self._packed_arguments)

    def number(self, queue_no: int) -> None:
        self.queue_no = queue_no
        self.route_no = route_no(queue_no, self.settings.highest_priority) if queue_no else 0

    def stored_producers(self) -> StoredProducers | None:
        """Return its producers in the store; None: it has none there, and they do not survive a restart."""
        store = self.vhost.store.msg_store if self.vhost is not None else None
        if store is None or not self.queue_no:
            return None
        return store.producers(self.queue_no, self.settings.highest_priority + 1)

    @property
    def state(self) -> State:
        """See the module."""
        if self.ended is not None:
            return self.ended
        if self.supervisor is not None and not self.supervisor.is_alive:
            return "crashed"
        return "starting" if self.ref is None else "running"

    @property
    def is_running(self) -> bool:
        return self.ref is not None and self.ref.is_alive and self.ended is None

    @property
    def is_refusing(self) -> bool:
        """Whether messages to it are refused: it could not be started. A queue being declared does not exist yet."""
        return self.ref is None and self.state not in _NOT_EXISTING

    def missing(self) -> NotFound:
        """Return the error for an operation on a queue that does not run."""
        state = self.state
        if state == "crashed":
            return NotFound(f"{self} has crashed and failed to restart")
        if state == "stopped":
            return NotFound(f"{self} process is stopped by supervisor")
        return NotFound(f"no {self}")

    # Called by the queue's own actors.

    def supervised(self, supervisor: Ref) -> None:
        """Note a new supervisor; a crash or stop of the one before is over."""
        self.supervisor = supervisor
        if self.ended != "deleted":
            self.ended = None

    def up(self, ref: Ref) -> list[Ref]:
        """Note a new amqqueue; return the watchers to notify."""
        self.ref = ref
        self._call_waiters()
        self._changed()
        return list(self._watchers or ())

    def deleted(self) -> None:
        """Note that the queue has been deleted; removes it from its vhost."""
        if self.ended == "deleted":
            return
        self.ended = "deleted"
        self._watchers = self.route = self.mandatory_route = None  # a route refers to the entry
        on_deleted, self.on_deleted = self.on_deleted, None
        if on_deleted is not None:
            on_deleted(self)
        self._call_waiters()
        self._changed()

    def forget_vhost(self) -> None:
        """Forget the vhost, which is deleted, and the routes, which refer to the entry: cycles would stay for good."""
        self.vhost = self.on_deleted = self.on_change = None
        self._watchers = self.route = self.mandatory_route = None

    def lost(self) -> list[Ref]:
        """Note that the name is another node's now; return the watchers to notify."""
        watchers, self._watchers = self._watchers, None
        self.deleted()
        return list(watchers or ())

    def stopped(self) -> None:
        """Note that its vhost has been stopped; the vhost may start it again."""
        if self.ended is None:
            self.ended = "stopped"
        self._call_waiters()
        self._changed()

    def crashed(self) -> list[Ref]:
        """Note that it will not be started again; return the watchers to notify."""
        if self.ended is not None:
            return []
        self.ended = "crashed"
        self._call_waiters()
        self._changed()
        watchers, self._watchers = self._watchers, None
        return list(watchers or ())

    # Called by others.

    def watch(self, channel: Ref) -> None:
        """Send a channel with consumers ``QueueUp`` or ``QueueFailed`` when the queue has crashed."""
        if self._watchers is None:
            self._watchers = {}
        self._watchers[channel] = None
        self.was_consumed = True

    def unwatch(self, channel: Ref) -> None:
        """Undo ``watch``; a channel that does not watch is ignored."""
        if self._watchers is not None:
            self._watchers.pop(channel, None)
            self._watchers = self._watchers or None

    def when_running(self, callback: Callable[[QueueEntry], None]) -> None:
        """Call back once the queue runs, at once if it does, or when it ends without having run.

        The callback reads ``state``.
        """
        if self.is_running or self.state in GONE:
            callback(self)
            return
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(callback)

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change(self)

    def _call_waiters(self) -> None:
        waiters, self._waiters = self._waiters, None
        for callback in waiters or ():
            callback(self)


def some_refuse(queues: Sequence[QueueEntry]) -> bool:
    """Return whether one of the queues cannot take messages that it has been promised (``is_refusing``)."""
    return any(entry.is_refusing for entry in queues)


def are_down(queues: Sequence[QueueEntry]) -> bool:
    """Return whether all of the queues live on nodes that are down."""
    return all(entry.state == "down" for entry in queues)
