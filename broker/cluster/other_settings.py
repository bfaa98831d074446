"""Users, permissions, vhosts, policies, parameters and limits that other nodes of the cluster have changed.

They take effect as by operator commands on this node: at once, on open connections too. The ``SettingsUpdater`` does
what takes more than one step: it starts and stops vhosts one after the other, and applies policies to queues in slices.
Nothing is written here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from leveret.actors.gen_server import GenServer
from leveret.broker.connection.connections import user_of
from leveret.broker.mail import PolicyChanged
from leveret.broker.node.node import VHOSTS
from leveret.broker.node.store_server import remove_store
from leveret.broker.script import Script, Steps, Until
from leveret.broker.vhost.patterns import PatternError
from leveret.broker.vhost.policies import policy_validation
from leveret.broker.vhost.policies.policies import EXCHANGES, apply_to_exchange, apply_to_queue
from leveret.core.log.loggers import logger
from leveret.core.slices import SLICE_ITEMS
from leveret.metadata.definitions import VHOST_LIMITS
from leveret.metadata.tables import (
    GlobalParameterRow,
    MemberRow,
    ParameterRow,
    PermissionRow,
    PolicyRow,
    TopicPermissionRow,
    UserRow,
    VhostRow,
)
from leveret.supervisors.requests import StartChild, TerminateChild

if TYPE_CHECKING:
    from leveret.broker.node.node import Node
    from leveret.broker.vhost.vhost import VHost
    from leveret.metadata.tables import Row

log = logger(__name__)

SETTINGS_UPDATER: Final = "settings_keeper"


class VhostAdded(Struct, eq=False):
    """To the updater: start a vhost."""

    vhost: VHost


class VhostGone(Struct, eq=False):
    """To the updater: stop a deleted vhost, and remove its messages."""

    vhost: VHost


class PoliciesChanged(Struct, eq=False):
    """To the updater: apply the policies of a vhost to all its exchanges and queues."""

    vhost: VHost


def put_setting(node: Node, row: Row) -> None:
    """Apply a row of settings that was put; rows of other kinds are ignored."""
    if isinstance(row, UserRow):
        node.access.put(row)
    elif isinstance(row, PermissionRow | TopicPermissionRow):
        try:
            node.access.put(row)
        except PatternError as error:
            node.access.remove([row])
            log.error(
                "permission of another node cannot be read, grants nothing user=%s vhost=%s reason=%s",
                row.user, row.vhost, error,
            )  # fmt: skip
    elif isinstance(row, VhostRow):
        put_vhost(node, row)
    elif isinstance(row, PolicyRow):
        node.settings_rows.put(row)
        _put_policy(node, row)
    elif isinstance(row, ParameterRow | GlobalParameterRow | MemberRow):
        node.settings_rows.put(row)
        if isinstance(row, ParameterRow):
            _set_limits(node, row, dict(row.value) if isinstance(row.value, dict) else {})


def put_vhost(node: Node, row: VhostRow) -> None:
    """Apply the row of a vhost; a new vhost is added to the node and begins to start."""
    node.settings_rows.put(row)
    vhost = node.vhosts.get(row.name)
    if vhost is not None:
        vhost.default_queue_type = row.default_queue_type
        return
    vhost = node.vhosts[row.name] = node.new_vhost(row.name, row.default_queue_type)
    _send_updater(node, VhostAdded(vhost))


def delete_setting(node: Node, row: Row) -> None:
    """Apply the deletion of a row of settings; missing rows, and rows of other kinds, are ignored."""
    if isinstance(row, UserRow):
        node.access.remove([row])
        node.connections.close_where(
            lambda each: user_of(each) == row.name, f"user '{row.name}' is deleted"
        )
    elif isinstance(row, PermissionRow | TopicPermissionRow):
        node.access.remove([row])
    elif isinstance(row, VhostRow):
        _delete_vhost(node, row.name)
    elif isinstance(row, PolicyRow | ParameterRow | GlobalParameterRow | MemberRow):
        node.settings_rows.remove([row])
        if isinstance(row, ParameterRow):
            _set_limits(node, row, {})
        elif isinstance(row, PolicyRow) and (vhost := node.vhosts.get(row.vhost)) is not None:
            vhost.policies.remove(row)
            _send_updater(node, PoliciesChanged(vhost))


def _put_policy(node: Node, row: PolicyRow) -> None:
    vhost = node.vhosts.get(row.vhost)
    if vhost is None:
        return
    try:
        policy_validation.check(row)
    except policy_validation.PolicyError as error:
        log.warning("policy skipped vhost=%s name=%s reason=%s", row.vhost, row.name, error)
        vhost.policies.remove(row)
    else:
        vhost.policies.put(row)
    _send_updater(node, PoliciesChanged(vhost))


def _set_limits(node: Node, row: ParameterRow, limits: dict[str, Any]) -> None:
    vhost = node.vhosts.get(row.vhost)
    if vhost is not None and row.component == VHOST_LIMITS:
        vhost.limits = limits


def _delete_vhost(node: Node, name: str) -> None:
    vhost = node.vhosts.get(name)
    if vhost is None:
        return
    vhost.is_closing = True
    node.forget_vhost(vhost)
    _send_updater(node, VhostGone(vhost))


def _send_updater(node: Node, message: VhostAdded | VhostGone | PoliciesChanged) -> None:
    """Send the updater a mail; after a restart it applies all policies and starts all vhosts anyway."""
    updater = node.runtime.whereis(SETTINGS_UPDATER)
    if updater is not None:
        node.runtime.send(updater, message)


class SettingsUpdater(GenServer):
    """Starts and stops vhosts, and applies policies, that other nodes have changed."""

    def init(self, node: Node) -> None:
        self._node = node
        self._jobs: deque[VhostAdded | VhostGone] = deque()
        self._is_busy = False
        self._removal: asyncio.Task[None] | None = None
        self.runtime.register(SETTINGS_UPDATER, self.ref)
        if self.runtime.whereis(VHOSTS) is not None:  # a predecessor has crashed
            for vhost in node.vhosts.values():
                self.handle_cast(PoliciesChanged(vhost))
                if vhost.supervisor is None:
                    self.handle_cast(VhostAdded(vhost))

    def handle_cast(self, message: Any) -> None:
        if type(message) is PoliciesChanged:
            Script(self, self._apply_policies(message.vhost), _done).resume()
            return
        self._jobs.append(message)
        self._next()

    def _next(self, _: object = None) -> None:
        if not self._jobs or self._is_busy or self._node.connections.is_stopping:
            return
        self._is_busy = True
        job = self._jobs.popleft()
        vhost, supervisor = job.vhost, self.runtime.whereis(VHOSTS)
        if type(job) is VhostAdded:
            vhost.store.in_use = self._node.removals.get(vhost.name)
            if supervisor is not None:  # else it is started with all vhosts
                self.call(supervisor, StartChild((vhost,)), self._over, None)
                return
        else:
            child = vhost.supervisor
            if supervisor is not None and child is not None and child.is_alive:
                self.call(supervisor, TerminateChild(child), lambda _: self._remove(vhost), None)
            else:
                self._remove(vhost)
            return
        self._over()

    def _over(self, _: object = None) -> None:
        self._is_busy = False
        self._next()

    def _remove(self, vhost: VHost) -> None:
        vhost.forget_queues()
        if self._node.data_dir is None:
            self._over()
            return
        self._removal = asyncio.ensure_future(remove_store(self._node, vhost))
        self._removal.add_done_callback(lambda _: self._removed())

    def _removed(self) -> None:
        if self.ref.is_alive:
            self.runtime.run_as(self.ref, self._over)

    def _apply_policies(self, vhost: VHost) -> Steps:
        """As ``policies.apply_to_all``, by an actor."""
        topology, policies = vhost.topology, vhost.policies
        for exchange in list(topology.exchanges.values()):
            yield from vhost.find_policies(exchange.name, EXCHANGES)
            apply_to_exchange(policies, exchange)
        topology.touch()
        for number, entry in enumerate(list(topology.queues.values()), 1):
            yield from vhost.find_policies(entry.name, entry.settings.queue_type)
            if apply_to_queue(policies, entry) and entry.ref is not None and not entry.is_remote:
                self.runtime.send(entry.ref, PolicyChanged())
            if number % SLICE_ITEMS == 0:
                yield Until(lambda resume: self.runtime.clock.call_later(0.0, resume))


def _done(_: object) -> None:
    """The policies are applied."""
