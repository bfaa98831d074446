"""A vhost: its topology, the registry entries of its queues, and the operations declare, bind and delete.

Changes are made in memory at once and written to the metadata store in the same order; the reply to the
client waits for the commit. Transient objects are not written and need no wait.

The operations are scripts (``broker/script.py``) run by the channel that was asked. Checks come in
RabbitMQ's order, so the first error is the one RabbitMQ gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import SHUTDOWN, CallFailed
from leveret.amqp.errors import InternalError, NotFound, NotImplemented_, PreconditionFailed
from leveret.broker.queue import arguments as queue_arguments
from leveret.broker.queue.calls import ask_queue, await_remote_deletion
from leveret.broker.queue.storage.factory import (
    backing_of,
    forget_messages,
    new_queue_no,
    number_transient,
    queue_nos_of,
)
from leveret.broker.queue_requests import Delete
from leveret.broker.registry.registry import GONE, QueueEntry
from leveret.broker.script import Ask, Steps, Until
from leveret.broker.vhost import exchange_rules
from leveret.broker.vhost.deletions import Deletions
from leveret.broker.vhost.features import VhostFeatures
from leveret.broker.vhost.local_queues import LocalQueues
from leveret.broker.vhost.metadata.metadata_writer import OvertakenError, retried
from leveret.broker.vhost.policies.policies import (
    Kind,
    Policies,
    apply_to_exchange,
    apply_to_queue,
)
from leveret.broker.vhost.rows import binding_row, entry_of, queue_row
from leveret.broker.vhost.states import UP, VhostState
from leveret.broker.vhost.store_state import StoreState
from leveret.core.errors import StoreError
from leveret.core.limits import PRODUCER_EXPIRY_S, PRODUCERS_MAX
from leveret.core.log.loggers import logger
from leveret.metadata.tables import BindingRow, ExchangeRow, QueueRow, Row
from leveret.msg_store.wal.group_commit import SLICE_ROWS
from leveret.routing.bindings import QUEUE
from leveret.routing.delayed import DelayedMatcher, queue_of
from leveret.routing.exchange import Exchange
from leveret.routing.topology import Removal, Topology
from leveret.supervisors.requests import StartChild

if TYPE_CHECKING:
    from leveret.actors.runtime.runtime import Runtime
    from leveret.amqp.methods import ExchangeDelete
    from leveret.amqp.tables import Table
    from leveret.broker.registry.cluster_nodes import ClusterNodes
    from leveret.broker.registry.registry import ProducersOfNode, RaisedAlarms, ReplyAddresses
    from leveret.broker.vhost.auth.access import Access, User
    from leveret.broker.vhost.metadata.metadata_writer import MetadataWriter
    from leveret.broker.vhost.trace import Firehose
    from leveret.queue_backing.memory_monitor import MemoryMonitor

log = logger(__name__)


class Client(Protocol):
    """A logged-in connection (``channel/session.py``), as its vhost knows it; its reader owns its exclusive queues.

    Attributes:
        name: ``127.0.0.1:51022 -> 127.0.0.1:5672``, for logs and lists.
        source: the peer's address; lines of the log are limited per address in a flood.
    """

    user: User
    reader: Ref
    name: str
    source: str


class VHost:
    """One virtual host of the node.

    Attributes:
        policies: of the vhost; each exchange and queue of the topology has the policies that apply to it.
        state: of its start and end (``states.py``).
        supervisor: of all its actors; None before the first start.
        queues_sup: the supervisor its queues are started under; None before the first start.
        store: the state of its message store.
        deletions: unfinished deletions of queues and exchanges.
        limits: ``max-connections`` and ``max-queues`` of the vhost.
        features: its firehose, and counts of its special queues; each publish and delivery reads them.
        default_queue_type: of queues declared without a type, where that type can be such a queue; "": classic.
        producer_limits: how many producers a queue remembers, and for how many ms without use.
        node_producers: the limit on producers that all queues of the node share; None: no limit.
        is_closing: an operator is deleting the vhost, so its rows are not written any more.
        reply_addresses: targets of dead letters that are replies; None: there are no clients.
        cluster_nodes: the other nodes of the cluster; None: there is no cluster.
        local_queues: its queues on this node, for the other nodes; None: there is no cluster.
    """

    def __init__(
        self,
        name: str,
        runtime: Runtime,
        access: Access,
        metadata: MetadataWriter,
        memory: MemoryMonitor,
        cluster_nodes: ClusterNodes | None = None,
    ) -> None:
        self.name = name
        self.access = access
        self._runtime = runtime
        self._metadata = metadata
        self._memory = memory
        self.topology: Topology[QueueEntry] = Topology(name)
        self.policies = Policies()
        self.state = VhostState()
        self.supervisor: Ref | None = None
        self.queues_sup: Ref | None = None
        self.store = StoreState()
        self.limits: dict[str, int] = {}
        self.features = VhostFeatures()
        self.default_queue_type = ""
        self.producer_limits = PRODUCERS_MAX, int(PRODUCER_EXPIRY_S * 1000)
        self.node_producers: ProducersOfNode | None = None
        self.is_closing = False
        self.reply_addresses: ReplyAddresses | None = None
        self.alarms: RaisedAlarms | None = None
        self.cluster_nodes = cluster_nodes
        self.local_queues = None if cluster_nodes is None else LocalQueues(cluster_nodes.changed)
        self._lost_queue: QueueEntry | None = None  # while it is ended
        self._forgotten_queue: QueueEntry | None = None  # while ``forget_queue`` ends it
        self.deletions = Deletions(
            runtime, metadata, self.topology, writes_all=cluster_nodes is not None
        )
        self._exclusive: dict[Ref, set[QueueEntry]] = {}
        for exchange in exchange_rules.default_exchanges():
            self.topology.add_exchange(exchange)

    @property
    def firehose(self) -> Firehose | None:
        """The firehose, which gets copies of all messages; None while it is off."""
        return self.features.firehose

    # -- look-ups ------------------------------------------------------------------------------

    def find_queue(self, name: str, owner: Ref) -> QueueEntry:
        """Return a queue that this connection may use.

        Raises:
            NotFound: no such queue.
            ResourceLocked: it is exclusive to another connection, or a delay queue.
        """
        entry: QueueEntry = self.topology.queue(name)
        is_anothers = entry.exclusive is not None and entry.exclusive is not owner
        if is_anothers or entry.delayed_exchange is not None:
            raise queue_arguments.locked(name, self.name)
        return entry

    # -- exchanges -----------------------------------------------------------------------------

    def take_back(self, exchange: Exchange, *, deletes_rows: bool = True) -> None:
        """Forget an exchange that could not be declared; a row of its name may be another node's."""
        if self.topology.exchanges.get(exchange.name) is exchange:
            removal = self.topology.remove_exchange(exchange.name)
            rows = self.deletions.begin(exchange, removal, deletes_rows)
            if deletes_rows:
                self._metadata.delete_later(rows)

    def add_exchange(self, exchange: Exchange) -> None:
        """Add an exchange; a delay queue left of an earlier exchange with its name becomes its own."""
        apply_to_exchange(self.policies, exchange)
        self.topology.add_exchange(exchange)
        if isinstance(exchange.matcher, DelayedMatcher):
            exchange.matcher.queue = self.topology.queues.get(queue_of(exchange.name))

    def delete_exchange(self, user: User, method: ExchangeDelete) -> Steps:
        """Delete an exchange; a missing one is fine."""
        name = method.exchange
        exchange_rules.refuse_default(name)
        exchange_rules.check_deletable(name, self.name)
        self.access.check_exchange(user, self.name, name, "configure")
        exchange = self.topology.exchanges.get(name)
        if exchange is None:
            yield from self.until_deleted(ExchangeRow(self.name, name, ""))
            return
        if method.if_unused and exchange.bindings:
            yield from self.deletions.all_ended()  # its bindings may be of a deleted queue
            exchange = self.topology.exchanges.get(name)
            if exchange is None:
                return
            if exchange.bindings:
                raise PreconditionFailed(f"exchange '{name}' in vhost '{self.name}' in use")
        yield from self._remove(exchange, self.topology.remove_exchange(name))

    def find_policies(self, name: str, kind: Kind) -> Steps:
        """Look up the policies of a new name in slices, before it is entered at once."""
        for _ in self.policies.search(name, kind):
            yield Until(lambda resume: self._runtime.clock.call_later(0.0, resume))

    # -- bindings ------------------------------------------------------------------------------

    def bind(
        self, client: Client, source: str, kind: str, destination: str, key: bytes, arguments: Table
    ) -> Steps:
        """Bind a queue or an exchange to an exchange; a queue that is being declared is waited for."""
        return retried(lambda: self._bind(client, source, kind, destination, key, arguments))

    def _bind(
        self, client: Client, source: str, kind: str, destination: str, key: bytes, arguments: Table
    ) -> Steps:
        self._check_binding(client, source, kind, destination, key, must_exist=True)
        while kind == QUEUE and (entry := self.topology.queues[destination]).state == "starting":
            yield Until(entry.when_running)
            self._check_binding(client, source, kind, destination, key, must_exist=True)
        ends = source, kind, destination, key, dict(sorted(arguments.items()))
        is_shared, new = self._metadata.shared is not None, None
        if is_shared:  # other nodes may delete an end: nothing is routed by it before it is written
            self.topology.ends_of_new(*ends)
        else:
            new = self.topology.bind(*ends)
        if new is None and (bound := self.topology.binding(*ends)) is not None:
            yield from self.wait_for(binding_row(self.name, bound))
            if is_shared and self.topology.binding(*ends) is None:
                raise OvertakenError(f"binding {ends[:4]} was deleted")
            return
        if new is not None and not self.is_written(new.is_durable):
            return
        row = BindingRow(self.name, *ends)
        try:
            yield from self.commit([row], [])
        except InternalError as error:
            is_left = new is None or self.topology.take_back(new)
            if is_left and not isinstance(error, OvertakenError):
                self._metadata.delete_later([row])
            raise

    def unbind(
        self, client: Client, source: str, kind: str, destination: str, key: bytes, arguments: Table
    ) -> Steps:
        """Remove a binding; a missing binding, or missing ends, are fine."""
        return retried(lambda: self._unbind(client, source, kind, destination, key, arguments))

    def _unbind(
        self, client: Client, source: str, kind: str, destination: str, key: bytes, arguments: Table
    ) -> Steps:
        self._check_binding(client, source, kind, destination, key, must_exist=False)
        ends = source, kind, destination, key, arguments
        row = BindingRow(self.name, *ends)
        bound = self.topology.binding(*ends)
        if bound is None:
            yield from self.until_undeclared(row)
            target: Row = QueueRow(self.name, destination)
            if kind != QUEUE:
                target = ExchangeRow(self.name, destination, "")
            # It may have gone with one of its ends, and its own row follows that of the end.
            yield from self.until_deleted(row, target, ExchangeRow(self.name, source, ""))
            return
        if kind == QUEUE:
            self._not_down(self.find_queue(destination, client.reader))
        yield from self._remove(bound, self.topology.unbind(*ends))

    def _check_binding(
        self, client: Client, source: str, kind: str, destination: str, key: bytes, must_exist: bool
    ) -> None:
        access, user = self.access, client.user
        if kind == QUEUE:
            access.check_queue(user, self.name, destination, "write")
        else:
            exchange_rules.refuse_default(destination)
            access.check_exchange(user, self.name, destination, "write")
        exchange_rules.refuse_default(source)
        access.check_exchange(user, self.name, source, "read")
        exchange = self.topology.exchanges.get(source)
        if exchange is None:
            if must_exist:
                raise NotFound(f"no exchange '{source}' in vhost '{self.name}'")
            return
        if exchange.type == "topic":
            access.check_topic(user, self.name, source, key, "read")
        if kind == QUEUE and must_exist:
            self._not_down(self.find_queue(destination, client.reader))

    def _not_down(self, entry: QueueEntry) -> None:
        """Raise NotFound for a queue of a node that is down."""
        if entry.state == "down":
            raise entry.missing()

    # -- queues --------------------------------------------------------------------------------

    def number(self, entry: QueueEntry) -> None:
        """Give a new durable queue its number in the store; InternalError: the metadata store failed."""
        try:
            entry.number(new_queue_no(self._metadata.store, entry.settings))
        except StoreError as error:
            name = entry.name
            log.error("queue not declared queue=%s vhost=%s error=%s", name, self.name, error)
            raise InternalError() from error

    def add_queue(self, entry: QueueEntry, user_name: str) -> Steps:
        """Register a new queue, keep its row when it is durable, and start its actors.

        When the row cannot be written, or the client ends before it is, the queue is forgotten again.

        Raises:
            InternalError: the vhost is down, or the store failed.
            OvertakenError: another node has declared a queue of this name meanwhile.
        """
        if self.state.now not in UP:
            raise InternalError()
        self.register(entry)
        if self.is_written(entry.durable):
            try:
                yield from self.commit([self.queue_row(entry, user_name)], [])
            except (InternalError, GeneratorExit):
                entry.deleted()
                raise
        try:
            yield from self.start_queue(entry)
        except InternalError:
            entry.deleted()
            raise
        yield from self.until_acknowledged()

    def until_acknowledged(self) -> Steps:
        """Wait until all nodes know the queues of this node: clients may then publish to them on any node."""
        if self.cluster_nodes is not None:
            yield Until(self.cluster_nodes.when_acknowledged)

    def until_applied(self) -> Steps:
        """Wait until all nodes have applied the rows that this node has applied."""
        return self._metadata.until_applied()

    def register(self, entry: QueueEntry) -> None:
        """Make a queue known by its name; from now on its policies are up to date."""
        entry.vhost = self
        apply_to_queue(self.policies, entry)
        self.topology.add_queue(entry.name, entry)
        self.features.persisting_queues += entry.persists_all
        self._lead_delays(entry, entry)
        self.features.remote_queues += entry.is_remote
        if self.cluster_nodes is not None:
            self.cluster_nodes.count(entry, 1)
        if self.local_queues is not None and not entry.is_remote:
            entry.on_change = self.local_queues.changed
        if entry.exclusive is not None and not entry.is_remote:
            self._exclusive.setdefault(entry.exclusive, set()).add(entry)

    def register_row(self, row: QueueRow) -> None:
        """Make the queue of a row known, on whatever node it lives."""
        self.register(entry_of(row, self.cluster_nodes, self.queue_deleted))

    def _lead_delays(self, entry: QueueEntry, queue: QueueEntry | None) -> None:
        """Have the exchange of a delay queue, if it exists, send delayed messages to ``queue``; None: to no queue."""
        name = entry.delayed_exchange
        exchange = self.topology.exchanges.get(name) if name is not None else None
        if exchange is not None and isinstance(exchange.matcher, DelayedMatcher):
            exchange.matcher.queue = queue

    def start_queue(self, entry: QueueEntry) -> Steps:
        """Start a registered queue's actors, unless they run.

        Raises:
            InternalError: they did not start, or the vhost is down.
        """
        old = entry.supervisor
        if old is not None and old.is_alive:
            if old.cell.parent is self.queues_sup:
                return
            yield Until(lambda resume: self._runtime.watch(old, resume))
        if entry.state == "deleted":
            return
        if self.state.now not in UP:  # without its store a queue would keep its messages in memory
            raise InternalError()
        assert self.queues_sup is not None
        metadata, store = self._metadata.store, self.store.msg_store
        if store is not None:
            number_transient(metadata, entry)
        make_backing = backing_of(entry, store, self._runtime.clock, self._memory, metadata)
        answer = yield Ask(self.queues_sup, StartChild((entry, make_backing)))
        if isinstance(answer, CallFailed) or answer[0] != "ok":
            log.error(
                "queue not started queue=%s vhost=%s reason=%s", entry.name, self.name, answer
            )
            raise InternalError()

    def delete_queue(self, client: Client, name: str, if_unused: bool, if_empty: bool) -> Steps:
        """Delete a queue; return the number of ready messages it had (0 when there is none)."""
        self.access.check_queue(client.user, self.name, name, "configure")
        if name not in self.topology.queues:
            yield from self.until_deleted(QueueRow(self.name, name))
            return 0
        entry = self.find_queue(name, client.reader)
        if entry.settings.is_quorum:
            _refuse_condition(entry, "if-unused", if_unused)
            _refuse_condition(entry, "if-empty", if_empty)
        return (yield from self.remove_queue(entry, if_unused, if_empty))

    def remove_queue(
        self, entry: QueueEntry, if_unused: bool = False, if_empty: bool = False
    ) -> Steps:
        """Delete a queue for a client or an operator; return the number of ready messages it had.

        Raises:
            NotFound: it lives on another node and does not run.
        """
        count = yield from self._end_queue(entry, if_unused, if_empty)
        if self.is_written(entry.durable) and not entry.is_remote:
            yield from self._metadata.until_deleted(self.queue_row(entry))
        return count

    def _end_queue(self, entry: QueueEntry, if_unused: bool, if_empty: bool) -> Steps:
        if entry.is_remote and entry.state in ("down", "crashed", "stopped"):
            raise entry.missing()
        if entry.state in GONE:
            forget_messages(entry, self.store.msg_store)
            entry.deleted()
            count = 0
        else:
            try:
                count = yield from ask_queue(entry, Delete(if_unused, if_empty))
            except NotFound:
                if entry.state == "down":
                    raise
                count = 0  # it has ended meanwhile
        if entry.is_remote:
            yield from await_remote_deletion(entry)
            entry.deleted()  # before its node announces that
        yield from self.deletions.ended(entry)
        return count

    def delete_exclusive(self, owner: Ref) -> Steps:
        """Delete a connection's exclusive queues, and return them; other nodes may have them still."""
        entries = tuple(self._exclusive.get(owner, ()))
        for entry in entries:
            yield from self._end_queue(entry, if_unused=False, if_empty=False)
        return entries

    def owner_ended(self, owner: Ref) -> None:
        """Forget a connection's exclusive queues that do not run; running ones monitor its reader."""
        for entry in list(self._exclusive.get(owner, ())):
            if entry.state in GONE:
                entry.deleted()

    def queue_deleted(self, entry: QueueEntry) -> None:
        """Forget a queue: called by the queue itself, whatever deleted it."""
        if self.topology.queues.get(entry.name) is not entry:
            return
        removal = self.topology.remove_queue(entry.name)
        self.features.persisting_queues -= entry.persists_all
        self._lead_delays(entry, None)
        self.features.remote_queues -= entry.is_remote
        if self.cluster_nodes is not None:
            self.cluster_nodes.count(entry, -1)
        if entry.exclusive is not None:
            owned = self._exclusive.get(entry.exclusive, set())
            owned.discard(entry)
            if not owned:
                self._exclusive.pop(entry.exclusive, None)
        is_own = not entry.is_remote and self._lost_queue is not entry
        is_forgotten = self._forgotten_queue is entry
        deletes = self.deletions.begin(entry, removal, is_own or is_forgotten)
        if is_forgotten:
            self._metadata.delete_later(deletes)
        if not is_own:
            self._metadata.delete_left(deletes)
            return
        if self.is_written(entry.durable):
            deletes.append(self.queue_row(entry))
        if entry.durable:
            self._note_messages_left(entry)
        if deletes:
            self._metadata.delete_later(deletes)

    def forget_queues(self) -> None:
        """Part from the queues: the vhost is deleted, and its actors have ended."""
        for entry in self.topology.queues.values():
            entry.forget_vhost()

    def forget_queue(self, entry: QueueEntry) -> Steps:
        """End a queue of a node that has been removed from the cluster; its row has been deleted.

        The rows of its bindings, and of auto-delete exchanges that have lost their last one, are deleted by this node.
        """
        self._forgotten_queue = entry
        entry.deleted()
        self._forgotten_queue = None
        yield from self.deletions.name_free(QUEUE, entry.name)

    def lose_queue(self, entry: QueueEntry) -> list[Ref]:
        """End a queue whose row is deleted or another node's; return the channels of its consumers, to be notified.

        It was not durable, and the nodes had lost each other, so that it counted as deleted there; or another node
        was faster to declare it.
        """
        self._lost_queue = entry
        watchers = entry.lost()
        self._lost_queue = None
        if entry.supervisor is not None:
            self._runtime.exit(entry.supervisor, SHUTDOWN)
        return watchers

    def _note_messages_left(self, entry: QueueEntry) -> None:
        """Note a queue whose messages are more than one flush removes, so that a start after a crash removes them."""
        store = self.store.msg_store
        if store is not None:
            left = [no for no in queue_nos_of(entry) if store.message_count(no) > SLICE_ROWS]
            if left:
                self._metadata.note_deleted(left)

    # -- the metadata store --------------------------------------------------------------------

    def commit(self, puts: Sequence[Row], deletes: Sequence[Row]) -> Steps:
        """Wait until rows are written; again when the store's actor was restarted meanwhile.

        Raises:
            InternalError: the disk refused them, or the vhost is being deleted.
        """
        if puts and self.is_closing:
            raise InternalError()
        if puts or deletes:
            yield from self._metadata.commit(puts, deletes)

    def is_written(self, is_durable: bool) -> bool:
        """Whether an object has a row: in a cluster all have one, for the other nodes."""
        return is_durable or self.cluster_nodes is not None

    def wait_for(self, row: Row) -> Steps:
        """Wait for a row that another client has put and that may not be on disk, or on all nodes, yet.

        In a cluster it is not put once more: another node may delete it in between. It may be refused, so the caller
        must check whether its object still exists.
        """
        if self._metadata.shared is not None:
            yield from self._metadata.until_put(row)
        elif self._metadata.pending.is_being_put(row):
            yield from self.commit([row], [])

    def until_undeclared(self, row: Row) -> Steps:
        """Wait until no client of this node is declaring an object that this node does not have.

        In a cluster another node can take the object out of memory while its row is on the way to the store. The store
        may take the row all the same.

        Raises:
            OvertakenError: a client was; the object may exist now.
        """
        if self._metadata.shared is not None and self._metadata.pending.is_being_put(row):
            yield from self._metadata.until_put(row)
            raise OvertakenError(f"row {row.key} was being written")

    def until_deleted(self, *rows: Row) -> Steps:
        """Wait until no node of the cluster has these rows, before a client is answered that they do not exist."""
        if self.cluster_nodes is not None:
            yield from self._metadata.until_deleted(*rows)

    def _remove(self, target: object, removal: Removal) -> Steps:
        """Wait until an exchange or binding is removed, with its bindings and auto-delete exchanges."""
        rows = self.deletions.begin(target, removal)
        yield from self.commit([], rows)
        yield from self.deletions.ended(target)

    def forget_bindings(self, rows: Sequence[BindingRow]) -> None:
        """Delete rows of bindings that lack an end, and auto-delete exchanges that have lost their last binding.

        They are left of a deletion that a crash has cut short. For the node's start, before its actors.
        """
        doomed: list[Row] = list(rows)
        for name in {row.source for row in rows}:
            exchange = self.topology.exchanges.get(name)
            if exchange is not None and exchange.auto_delete and not exchange.bindings:
                removal = self.topology.remove_exchange(name)
                doomed += self.deletions.removed_rows(self.topology.step(removal))
        self._metadata.delete_later(doomed)

    def queue_row(self, entry: QueueEntry, user_name: str = "") -> QueueRow:
        """Return the row of a queue that a user has declared here."""
        return queue_row(entry, user_name, self.cluster_nodes)


def _refuse_condition(entry: QueueEntry, flag: str, is_set: bool) -> None:
    if is_set:
        raise NotImplemented_(
            f"cannot delete {entry}. queue.delete operations with {flag} flag set are not supported"
            " by quorum queues"
        )
