"""The plan of an import of definitions, complete before anything is changed.

Rows are checked one by one in RabbitMQ's order; the first row that cannot be created refuses the whole file, and
the refusal names the row. Entries that RabbitMQ silently leaves out are left out with a notice: queues and
exchanges whose names begin with ``amq.``, and bindings without their ends, which RabbitMQ's own exports contain
(it exports neither exclusive queues nor internal exchanges, but does export their bindings).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgpack

from leveret.amqp.errors import ProtocolError
from leveret.amqp.tables import encode_table
from leveret.broker.queue import arguments as queue_arguments
from leveret.broker.queue.storage.factory import new_queue_no
from leveret.broker.registry.queue_settings import settings_of
from leveret.broker.registry.queue_types import DEFAULT_TYPES, QUEUE_TYPE
from leveret.broker.vhost.auth.access import check_patterns
from leveret.broker.vhost.exchange_rules import RESERVED
from leveret.broker.vhost.policies import policy_validation
from leveret.broker.vhost.vhost import VHost
from leveret.core.errors import ConfigError
from leveret.core.limits import SHORTSTR_BYTES_MAX
from leveret.core.slices import sliced
from leveret.management.errors import RefusedError
from leveret.metadata.definitions import LEAVE_OUT, REFUSE, VHOST_LIMITS
from leveret.metadata.tables import (
    BindingRow,
    ExchangeRow,
    GlobalParameterRow,
    ParameterRow,
    PermissionRow,
    PolicyRow,
    QueueRow,
    Row,
    TopicPermissionRow,
    UserRow,
    VhostRow,
)
from leveret.routing.bindings import QUEUE
from leveret.routing.delayed import DELAYED, queue_of
from leveret.routing.exchange import ALTERNATE_EXCHANGE, Exchange, is_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.broker.node.node import Node

_CANNOT: Final = (ProtocolError, ConfigError, ValueError, TypeError, OverflowError)


class Plan:
    """The rows of one file, checked against a node.

    Args:
        unsupported_queues: one of ``UNSUPPORTED_QUEUES``.

    Attributes:
        access: users and permissions, which replace existing ones.
        settings: vhosts' descriptions, policies and parameters, which replace existing ones.
        limits: limits of vhosts, by name.
        new_vhosts: vhosts to start, by name.
        exchanges: new ones with their rows, by vhost and name.
        queues: rows of new queues, by vhost and name.
        bindings: rows of new bindings.
        notices: a line for each entry that is left out or has no effect.
        replaced: a line for each queue that is another than the file says, or left out for its type.
    """

    def __init__(self, node: Node, unsupported_queues: str = REFUSE) -> None:
        self._node = node
        self._unsupported_queues = unsupported_queues
        self.access: list[UserRow | PermissionRow | TopicPermissionRow] = []
        self.settings: list[Row] = []
        self.limits: dict[str, dict[str, int]] = {}
        self.new_vhosts: dict[str, VHost] = {}
        self.exchanges: dict[tuple[str, str], tuple[ExchangeRow, Exchange]] = {}
        self.queues: dict[tuple[str, str], QueueRow] = {}
        self.bindings: list[BindingRow] = []
        self.notices: list[str] = []
        self.replaced: list[str] = []
        self._users: set[str] = set()

    def add(self, row: Row) -> None:
        """Check and add a row; rows must come in the order of ``ORDER``.

        Raises:
            RefusedError: the row cannot be created.
        """
        try:
            self.CHECKS[type(row)](self, row)
        except _CANNOT as error:
            raise RefusedError(f"{described(row)}: {error}") from error

    def first_rows(self) -> list[Row]:
        """Return the rows of settings, users and exchanges that survive a restart, in a cluster all."""
        is_shared = self._node.cluster_nodes is not None
        exchanges = [
            row for row, exchange in self.exchanges.values() if exchange.durable or is_shared
        ]
        return [*self.settings, *self.access, *exchanges]

    async def last_rows(self) -> list[Row]:
        """Return those of queues, which are this node's, and of bindings."""
        cluster_nodes = self._node.cluster_nodes
        is_shared = cluster_nodes is not None
        rows: list[Row] = []
        async for queue in sliced(self.queues.values()):
            if queue.durable:
                queue.queue_no = new_queue_no(
                    self._node.metadata.store, settings_of(queue.arguments)
                )
            if cluster_nodes is not None:
                queue.node = cluster_nodes.own
            if queue.durable or is_shared:
                rows.append(queue)
        return rows + [
            row async for row in sliced(self.bindings) if is_shared or self._is_durable(row)
        ]

    @property
    def policies(self) -> list[PolicyRow]:
        return [row for row in self.settings if isinstance(row, PolicyRow)]

    def vhost(self, name: str) -> VHost:
        """Return a vhost, existing or new.

        Raises:
            ConfigError: the vhost does not exist.
        """
        vhost = self._node.vhosts.get(name) or self.new_vhosts.get(name)
        if vhost is None:
            raise ConfigError(f"virtual host '{name}' does not exist")
        return vhost

    def finish(self) -> None:
        """Check the limits that need all rows.

        Raises:
            RefusedError: a vhost would have more queues than its limit.
        """
        for name, count in Counter(vhost for vhost, _ in self.queues).items():
            vhost = self.vhost(name)
            limit = vhost.limits.get("max-queues", -1)
            total = len(vhost.topology.queues) + count
            if 0 <= limit < total:
                raise RefusedError(
                    f"vhost '{name}': {total} queues would exceed its limit of {limit}"
                )

    # One method per table.

    def _add_vhost(self, row: VhostRow) -> None:
        if row.default_queue_type not in DEFAULT_TYPES:
            raise ConfigError(f"unsupported default queue type '{row.default_queue_type}'")
        if row.name not in self._node.vhosts:
            self.new_vhosts[row.name] = self._node.new_vhost(row.name, row.default_queue_type)
        self.settings.append(row)

    def _add_user(self, row: UserRow) -> None:
        self._users.add(row.name)
        self.access.append(row)

    def _add_permission(self, row: PermissionRow | TopicPermissionRow) -> None:
        if row.user not in self._users and row.user not in self._node.access.users:
            raise ConfigError(f"user '{row.user}' does not exist")
        self.vhost(row.vhost)
        check_patterns(row)
        self.access.append(row)

    def _add_parameter(self, row: ParameterRow) -> None:
        self.vhost(row.vhost)
        if row.component == VHOST_LIMITS:
            self.limits[row.vhost] = dict(row.value)
        else:
            self.notices.append(f"{described(row)} is kept and has no effect")
        self._add_setting(row)

    def _add_policy(self, row: PolicyRow) -> None:
        self.vhost(row.vhost)
        policy_validation.check(row)
        if idle := queue_arguments.without_effect(row.definition):
            self.notices.append(f"{described(row)}: {idle} without effect so far")
        self._add_setting(row)

    def _add_setting(self, row: Row) -> None:
        """Add a row whose values may have any type, if msgpack can store them."""
        msgpack.packb(row.to_fields(), unicode_errors="surrogateescape")
        self.settings.append(row)

    def _add_exchange(self, row: ExchangeRow) -> None:
        place, vhost = (row.vhost, row.name), self.vhost(row.vhost)
        is_known = row.name in vhost.topology.exchanges or place in self.exchanges
        if is_known or self._is_reserved(row):
            return
        _check_name(row.name)
        if not is_type(row.type):
            raise ConfigError(f"unknown exchange type '{row.type}'")
        if row.arguments.get(ALTERNATE_EXCHANGE, ("S",))[0] != "S":
            raise ConfigError(f"argument {ALTERNATE_EXCHANGE} is not a text")
        encode_table(row.arguments)
        exchange = Exchange(
            row.name, row.type, row.durable, row.auto_delete, row.internal, row.arguments
        )
        self.exchanges[place] = (row, exchange)
        delays = QueueRow(row.vhost, queue_of(row.name))
        if row.type == DELAYED and delays.name not in vhost.topology.queues:
            self.queues[delays.vhost, delays.name] = delays

    def _add_queue(self, row: QueueRow) -> None:
        place, vhost = (row.vhost, row.name), self.vhost(row.vhost)
        if idle := queue_arguments.without_effect(row.arguments):
            self.notices.append(f"{described(row)}: {idle} without effect so far")
        if row.name in vhost.topology.queues or place in self.queues or self._is_reserved(row):
            return
        if self._is_replaced(row):
            return
        _check_name(row.name)
        queue_arguments.check(
            row.arguments, row.vhost, row.name, durable=row.durable, auto_delete=row.auto_delete
        )
        encode_table(row.arguments)
        self.queues[place] = row

    def _is_replaced(self, row: QueueRow) -> bool:
        """Make a queue of an unsupported type a classic one, as the option says; return whether it is left out."""
        kind = queue_arguments.asked_type(row.arguments)
        if kind in queue_arguments.OFFERED or self._unsupported_queues == REFUSE:
            return False
        if self._unsupported_queues == LEAVE_OUT:
            self.replaced.append(f"{described(row)} is left out: there are no {kind} queues")
            return True
        classic = queue_arguments.as_classic(row.arguments)
        dropped = sorted(row.arguments.keys() - classic.keys() - {QUEUE_TYPE})
        without = f", without {', '.join(dropped)}" if dropped else ""
        self.replaced.append(f"{described(row)} becomes a classic queue: it was {kind}{without}")
        row.arguments = classic
        return False

    def _is_reserved(self, row: ExchangeRow | QueueRow) -> bool:
        is_reserved = row.name.startswith(RESERVED)
        if is_reserved:
            self.notices.append(f"{described(row)} is left out: its name begins with {RESERVED}")
        return is_reserved

    def _add_binding(self, row: BindingRow) -> None:
        topology = self.vhost(row.vhost).topology
        if not row.source:
            return  # the default exchange's are implicit
        source = self._exchange(row.vhost, row.source)
        if source is None:
            self._leave_out(row, f"there is no exchange '{row.source}'")
        elif not self._has_destination(row):
            self._leave_out(row, f"there is no {row.kind} '{row.destination}'")
        else:
            if len(row.routing_key) > SHORTSTR_BYTES_MAX:
                raise ConfigError(f"its routing key is longer than {SHORTSTR_BYTES_MAX} bytes")
            source.matcher.check(row.routing_key, row.arguments)
            encode_table(row.arguments)
            here = (row.source, row.kind, row.destination, row.routing_key, row.arguments)
            if topology.binding(*here) is None:
                self.bindings.append(row)

    def _leave_out(self, row: BindingRow, reason: str) -> None:
        self.notices.append(f"{described(row)} is left out: {reason}")

    def _exchange(self, vhost: str, name: str) -> Exchange | None:
        new = self.exchanges.get((vhost, name))
        return new[1] if new is not None else self.vhost(vhost).topology.exchanges.get(name)

    def _queue(self, vhost: str, name: str) -> Any:
        return self.queues.get((vhost, name)) or self.vhost(vhost).topology.queues.get(name)

    def _has_destination(self, row: BindingRow) -> bool:
        if row.kind == QUEUE:
            return self._queue(row.vhost, row.destination) is not None
        return self._exchange(row.vhost, row.destination) is not None

    def _is_durable(self, row: BindingRow) -> bool:
        find = self._queue if row.kind == QUEUE else self._exchange
        ends = (self._exchange(row.vhost, row.source), find(row.vhost, row.destination))
        return all(end is not None and end.durable for end in ends)

    CHECKS: ClassVar[dict[type[Row], Callable[[Plan, Any], None]]] = {
        VhostRow: _add_vhost,
        UserRow: _add_user,
        PermissionRow: _add_permission,
        TopicPermissionRow: _add_permission,
        ParameterRow: _add_parameter,
        GlobalParameterRow: _add_setting,
        PolicyRow: _add_policy,
        ExchangeRow: _add_exchange,
        QueueRow: _add_queue,
        BindingRow: _add_binding,
    }


ORDER: Final = tuple(Plan.CHECKS)
"""The tables, each after the tables that it refers to."""


def _check_name(name: str) -> None:
    if len(name.encode("utf-8", "surrogateescape")) > SHORTSTR_BYTES_MAX:
        raise ConfigError(f"its name is longer than {SHORTSTR_BYTES_MAX} bytes")


_WORDS: Final[dict[type[Row], str]] = {
    UserRow: "user '{0.name}'",
    VhostRow: "vhost '{0.name}'",
    PermissionRow: "permissions of user '{0.user}' in vhost '{0.vhost}'",
    TopicPermissionRow: "topic permissions of user '{0.user}' in vhost '{0.vhost}'",
    ParameterRow: "parameter '{0.name}' of component '{0.component}' in vhost '{0.vhost}'",
    GlobalParameterRow: "global parameter '{0.name}'",
    PolicyRow: "policy '{0.name}' in vhost '{0.vhost}'",
    ExchangeRow: "exchange '{0.name}' in vhost '{0.vhost}'",
    QueueRow: "queue '{0.name}' in vhost '{0.vhost}'",
}


def described(row: Row) -> str:
    """Return a row's name for refusals and notices."""
    if isinstance(row, BindingRow):
        key = row.routing_key.decode("utf-8", "backslashreplace")
        return (
            f"binding from '{row.source}' to {row.kind} '{row.destination}' with key '{key}' "
            f"in vhost '{row.vhost}'"
        )
    return _WORDS[type(row)].format(row)
