"""From the stored rows to running vhosts; and the first user and vhost of an empty store."""

from __future__ import annotations

import asyncio
import functools
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.actor import LATER
from leveret.actors.gen_server import GenServer
from leveret.amqp.errors import InternalError, NotFound, ProtocolError, SoftError
from leveret.broker.node.log_exchange import LOG_EXCHANGE
from leveret.broker.node.node import VHOSTS
from leveret.broker.node.outages import STAYS_DOWN
from leveret.broker.queue.storage.factory import new_queue_no
from leveret.broker.registry.queue_settings import settings_of
from leveret.broker.script import Ask, Script, Steps, Until
from leveret.broker.vhost.policies import policy_validation
from leveret.broker.vhost.policies.policies import apply_to_exchange
from leveret.broker.vhost.states import Event, State
from leveret.core.errors import StoreError
from leveret.core.log.loggers import logger
from leveret.metadata import passwords
from leveret.metadata.interface import ConflictError
from leveret.metadata.tables import ExchangeRow, PermissionRow, UserRow, VhostRow
from leveret.routing.exchange import Exchange
from leveret.supervisors.requests import StartChild

if TYPE_CHECKING:
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.node.node import Node
    from leveret.broker.vhost.vhost import VHost
    from leveret.core.settings import BrokerSettings
    from leveret.metadata.tables import BindingRow, Contents, PolicyRow, Row

log = logger(__name__)

OTHERS_WAIT_S: Final = 10.0  # clients of vhosts that serve, for one whose start takes long
_STARTER: Final = "vhost_starter"
_BEGIN: Final = "begin"
_LATE: Final = "late"
_STOPPING: Final = "stopping"


async def load(node: Node, with_defaults: bool = True) -> None:
    """Count the start; fill a new node from its store, which gets RabbitMQ's first rows if empty.

    Raises:
        StoreError: the store cannot be read or written.
    """
    node.epochs.begin()
    store = node.metadata.store
    contents = store.load()
    if not contents and with_defaults:
        await _write_first(node, first_rows(node.settings))
        contents = store.load()
    await _number_queues(node, contents)
    await _add_log_exchange(node, contents)
    fill(node, contents if node.cluster_nodes is None else store.load())


async def _write_first(node: Node, rows: list[Row]) -> None:
    """Write rows, unless another node of a new cluster has been faster."""
    try:
        await node.metadata.write(rows)
    except ConflictError:
        if not node.metadata.store.load():
            raise


async def _add_log_exchange(node: Node, contents: Contents) -> None:
    """Make the exchange to which the log is published, if the settings name one; its vhost must exist."""
    settings = node.settings
    row = ExchangeRow(settings.default_vhost, LOG_EXCHANGE, "topic", internal=True)
    is_wanted = settings.log_exchange and any(each.name == row.vhost for each in contents.vhosts)
    if is_wanted and all(
        (each.vhost, each.name) != (row.vhost, row.name) for each in contents.exchanges
    ):
        await _write_first(node, [row])
        contents.add(row)


async def _number_queues(node: Node, contents: Contents) -> None:
    """Number the durable queues that were declared without a message store."""
    rows: list[Row] = []
    for row in contents.queues:
        if row.durable and not row.queue_no and node.is_own(row):
            row.queue_no = new_queue_no(node.metadata.store, settings_of(row.arguments))
            rows.append(row)
    if rows:
        await node.metadata.write(rows)


def first_rows(settings: BrokerSettings) -> list[Row]:
    """Return the rows of RabbitMQ's first start: vhost ``/``, user ``guest``, all permissions."""
    password_hash = passwords.hash_password(settings.default_pass.encode(), os.urandom(4))
    return [
        VhostRow(settings.default_vhost, "Default virtual host"),
        UserRow(settings.default_user, password_hash, tags=list(settings.default_user_tags)),
        PermissionRow(settings.default_user, settings.default_vhost, *settings.default_permissions),
    ]


def fill(node: Node, contents: Contents) -> None:
    """Make users, vhosts, exchanges, queues' entries and bindings from the stored rows."""
    vhosts = node.vhosts
    node.access.load(contents)
    node.settings_rows.load(contents)
    node.metadata.deleted_queues.update(row.queue_no for row in contents.deleted_queues)
    for row in contents.vhosts:
        vhosts[row.name] = node.new_vhost(row.name, row.default_queue_type)
    _add_policies(vhosts, contents.policies)
    for parameter in contents.parameters:
        if parameter.component == "vhost-limits" and parameter.vhost in vhosts:
            vhosts[parameter.vhost].limits = dict(parameter.value)
    for exchange in contents.exchanges:
        vhost = vhosts.get(exchange.vhost)
        if vhost is not None and exchange.name not in vhost.topology.exchanges:
            vhost.add_exchange(stored_exchange(exchange))
    for queue in contents.queues:
        vhost = vhosts.get(queue.vhost)
        if not queue.durable and node.is_own(queue):
            node.metadata.delete_later([queue])  # it ended with an earlier life of this node
        elif vhost is not None:
            vhost.register_row(queue)
    _bind_all(node, contents.bindings)


def stored_exchange(row: ExchangeRow) -> Exchange:
    """Return the exchange of a row; if its type is gone, or refuses the arguments now, the exchange routes nothing."""
    make = functools.partial(
        Exchange, row.name, row.type, row.durable, row.auto_delete, row.internal, row.arguments
    )
    reason = f"exchange type '{row.type}' not found"
    try:
        exchange = make()
    except ProtocolError as error:
        reason = str(error)
        exchange = make(is_usable=False)
    if not exchange.is_usable:
        log.error("exchange cannot route vhost=%s name=%s reason=%s", row.vhost, row.name, reason)
    return exchange


def _add_policies(vhosts: dict[str, VHost], rows: list[PolicyRow]) -> None:
    """Add policies; a policy that this version would refuse stays stored without effect."""
    for row in rows:
        try:
            policy_validation.check(row)
        except policy_validation.PolicyError as error:
            log.warning("policy skipped vhost=%s name=%s reason=%s", row.vhost, row.name, error)
        else:
            if row.vhost in vhosts:
                vhosts[row.vhost].policies.put(row)
    for vhost in vhosts.values():
        for default in vhost.topology.exchanges.values():
            apply_to_exchange(vhost.policies, default)


def _bind_all(node: Node, bindings: list[BindingRow]) -> None:
    """Bind as the rows say; delete rows without source or destination, which a crash has left of a deletion."""
    lost: dict[str, list[BindingRow]] = {}
    for row in bindings:
        if not _bind(node.vhosts, row):
            lost.setdefault(row.vhost, []).append(row)
    for name, rows in lost.items():
        vhost = node.vhosts.get(name)
        if vhost is not None:
            vhost.forget_bindings(rows)
        else:
            node.metadata.delete_later(rows)


def _bind(vhosts: dict[str, VHost], row: BindingRow) -> bool:
    """Bind as a row says; return False when its exchange or queue is missing."""
    vhost = vhosts.get(row.vhost)
    try:
        if vhost is None:
            raise NotFound(f"no vhost '{row.vhost}'")
        vhost.topology.bind(row.source, row.kind, row.destination, row.routing_key, row.arguments)
    except SoftError as error:
        log.warning(
            "binding skipped vhost=%s source=%s %s=%s reason=%s",
            row.vhost, row.source, row.kind, row.destination, error,
        )  # fmt: skip
        return not isinstance(error, NotFound)
    return True


class VhostStarter(GenServer):
    """Starts all vhosts, then acknowledges its start and ends.

    It stands before the listeners in the tree, so a client that can connect finds the queues recovered. A vhost that
    fails does not hold up the listeners. After ``OTHERS_WAIT_S`` one vhost that serves is enough. When the broker
    stops, the starter waits for none.
    """

    def init(self, node: Node) -> object:
        self.runtime.register(_STARTER, self.ref)
        self._node = node
        self._have_begun = self._is_late = False
        self.post(self.ref, _BEGIN)
        return LATER

    def handle_cast(self, message: object) -> None:
        if message == _BEGIN:
            self.start_timer(OTHERS_WAIT_S, _LATE)
            Script(self, self._steps(), self._begun).resume()
        else:
            assert message == _STOPPING
            self._end_if_started()

    def handle_info(self, message: object) -> None:
        assert message == _LATE
        self._is_late = True
        self._end_if_started()

    def _steps(self) -> Steps:
        for vhost in list(self._node.vhosts.values()):
            supervisor = self.runtime.whereis(VHOSTS)
            assert supervisor is not None
            yield Ask(supervisor, StartChild((vhost,)))
            vhost.state.when_started(self._started)

    def _begun(self, _: object) -> None:
        self._have_begun = True
        self._end_if_started()

    def _started(self) -> None:
        if self.ref.is_alive:
            self.runtime.run_as(self.ref, self._end_if_started)

    def _end_if_started(self) -> None:
        if not self._have_begun:
            return
        states = [each.state for each in self._node.vhosts.values()]
        are_over = not any(each.is_starting for each in states)
        is_enough = self._is_late and any(each.now is State.RUNNING for each in states)
        if are_over or is_enough or self._node.connections.is_stopping:
            self.started()
            self.stop()


def end_start(runtime: Runtime) -> None:
    """End the wait for vhosts that are being started: the broker stops in order."""
    starter = runtime.whereis(_STARTER)
    if starter is not None:
        runtime.send(starter, _STOPPING)


class QueueStarter(GenServer):
    """Starts the actors of a vhost's queues when its store is open, at boot and after the vhost crashed.

    It is RabbitMQ's ``rabbit_vhost_process``. Its start is acknowledged before, so that no supervisor waits
    for the store; the vhost is RUNNING when all queues run.
    """

    def init(self, node: Node, vhost: VHost) -> None:
        self._node = node
        self._vhost = vhost
        vhost.state.enter(Event.STARTS)
        Script(self, self._steps(), self._recovered).resume()

    def _steps(self) -> Steps:
        vhost = self._vhost
        yield Until(vhost.store.when_open)
        vhost.state.enter(Event.STORE_OPENED)
        entries = list(vhost.topology.queues.values())
        store = vhost.store.msg_store
        # A queue is declared only when its vhost's store is open: a new store with queues has lost its folder.
        if store is not None and store.is_new:
            store.report_gone([entry.name for entry in entries if not entry.is_remote])
        for entry in entries:
            if entry.is_remote:
                continue
            if vhost.state.now is not State.RECOVERING:
                return  # this actor is about to be restarted
            with suppress(InternalError):  # logged; the others can be recovered
                yield from vhost.start_queue(entry)

    def _recovered(self, _: Any) -> None:
        if self._vhost.state.now is State.RECOVERING:
            store = self._vhost.store.msg_store
            if store is not None:
                queues = self._vhost.topology.queues.values()
                store.policies_known({entry.queue_no for entry in queues})
            self._vhost.state.enter(Event.QUEUES_STARTED)


class StartFailedError(StoreError):
    """A vhost did not start.

    Attributes:
        reason: the error of its store, or the reason of its supervisor.
    """

    def __init__(self, name: str, reason: object) -> None:
        super().__init__(f"vhost '{name}' did not start: {reason}")
        self.reason = reason


async def start_vhost(node: Node, name: str) -> VHost:
    """Begin to start one vhost's actors, from outside the actors; return the vhost."""
    supervisor, vhost = node.runtime.whereis(VHOSTS), node.vhosts[name]
    assert supervisor is not None
    await node.runtime.call(supervisor, StartChild((vhost,)), None)
    return vhost


async def vhost_started(vhost: VHost, timeout_s: float | None = None) -> bool:
    """Wait until a vhost serves; return whether it does, False also when it takes longer.

    Raises:
        StartFailedError: its start has failed, or it was deleted meanwhile.
    """
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def started() -> None:
        if not over.done():
            over.set_result(None)

    vhost.state.when_started(started)
    await asyncio.wait([over], timeout=timeout_s)
    if not over.done():
        return False
    if vhost.state.now is not State.RUNNING:
        raise StartFailedError(vhost.name, vhost.store.error or STAYS_DOWN)
    return True
