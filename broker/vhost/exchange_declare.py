"""exchange.declare: checks in RabbitMQ's order, and the new exchange with its row.

An exchange of the type ``x-delayed-message`` has a delay queue, a durable queue of its own. Both rows are in one write:
if another node of the cluster has declared one of the two meanwhile, neither is written, and the script begins anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.amqp.errors import InternalError
from leveret.broker.queue.equivalence import exchange_named
from leveret.broker.registry.registry import QueueEntry
from leveret.broker.script import Steps, Until
from leveret.broker.vhost import exchange_rules
from leveret.broker.vhost.metadata.metadata_writer import OvertakenError, retried
from leveret.broker.vhost.policies.policies import EXCHANGES
from leveret.broker.vhost.rows import exchange_row
from leveret.broker.vhost.states import UP
from leveret.metadata.tables import ExchangeRow
from leveret.routing.bindings import EXCHANGE, QUEUE
from leveret.routing.delayed import DELAYED, DelayedMatcher, queue_of
from leveret.routing.exchange import ALTERNATE_EXCHANGE, Exchange

if TYPE_CHECKING:
    from leveret.amqp.methods import ExchangeDeclare
    from leveret.broker.vhost.auth.access import User
    from leveret.broker.vhost.vhost import VHost
    from leveret.metadata.tables import Row


def declare_exchange(vhost: VHost, user: User, method: ExchangeDeclare) -> Steps:
    """Declare an exchange, or check that an existing one was declared alike."""
    return retried(lambda: _declare(vhost, user, method))


def _declare(vhost: VHost, user: User, method: ExchangeDeclare) -> Steps:
    name, topology = method.exchange, vhost.topology
    if method.passive:
        exchange_rules.refuse_default(name)
        topology.exchange(name)
        yield from vhost.until_applied()
        return
    exchange_rules.check_type(method.type)
    exchange_rules.refuse_default(name)
    vhost.access.check_exchange(user, vhost.name, name, "configure")
    if name not in topology.exchanges:
        yield from vhost.find_policies(name, EXCHANGES)
    yield from vhost.deletions.name_free(EXCHANGE, name)
    if method.type == DELAYED:
        yield from vhost.deletions.name_free(QUEUE, queue_of(name))
    current = topology.exchanges.get(name)
    if current is not None:
        yield from vhost.wait_for(exchange_row(vhost.name, current))
        if topology.exchanges.get(name) is not current:  # its client was overtaken
            raise OvertakenError(f"exchange '{name}' was deleted")
        exchange_rules.check_equivalent(current, method, vhost.name)
        yield from _delay_queue_runs(vhost, name)
        return
    yield from vhost.until_undeclared(ExchangeRow(vhost.name, name, ""))
    exchange_rules.check_new_name(name)
    _check_alternate(vhost, user, method)
    exchange = Exchange(
        name,
        method.type,
        durable=method.durable,
        auto_delete=method.auto_delete,
        internal=method.internal,
        arguments=method.arguments,
    )
    vhost.add_exchange(exchange)
    if isinstance(exchange.matcher, DelayedMatcher):
        yield from _write_with_delay_queue(vhost, exchange, user.name)
    elif vhost.is_written(exchange.durable):
        try:
            yield from vhost.commit([exchange_row(vhost.name, exchange)], [])
        except InternalError as error:
            vhost.take_back(exchange, deletes_rows=not isinstance(error, OvertakenError))
            raise


def _write_with_delay_queue(vhost: VHost, exchange: Exchange, user_name: str) -> Steps:
    """Write the rows of a new exchange and of its delay queue, and start the queue.

    A delay queue may exist, left of an earlier exchange with this name.
    """
    queue = None
    rows: list[Row] = []
    if vhost.is_written(exchange.durable):
        rows.append(exchange_row(vhost.name, exchange))
    if queue_of(exchange.name) not in vhost.topology.queues:
        queue = _new_delay_queue(vhost, exchange.name)
        vhost.register(queue)
        rows.append(vhost.queue_row(queue, user_name))
    try:
        if vhost.state.now not in UP:
            raise InternalError()
        if rows:
            yield from vhost.commit(rows, [])
        if queue is not None:
            yield from vhost.start_queue(queue)
            yield from vhost.until_acknowledged()
        yield from _delay_queue_runs(vhost, exchange.name)
    except (InternalError, GeneratorExit) as error:
        if queue is not None:
            queue.deleted()
        vhost.take_back(exchange, deletes_rows=not isinstance(error, OvertakenError))
        raise


def have_delay_queue(vhost: VHost, exchange: str) -> Steps:
    """Make the delay queue of an existing exchange, or wait for the queue that it has."""
    if queue_of(exchange) not in vhost.topology.queues:
        yield from vhost.add_queue(_new_delay_queue(vhost, exchange), "")
    else:
        yield from _delay_queue_runs(vhost, exchange)


def _new_delay_queue(vhost: VHost, exchange: str) -> QueueEntry:
    name = queue_of(exchange)
    queue = QueueEntry(vhost.name, name, durable=True, on_deleted=vhost.queue_deleted)
    vhost.number(queue)
    return queue


def _delay_queue_runs(vhost: VHost, exchange: str) -> Steps:
    """Wait until the delay queue of an exchange runs; return at once if the exchange has none, or if it runs."""
    queue = vhost.topology.queues.get(queue_of(exchange))
    if queue is not None and queue.state == "starting":
        yield Until(queue.when_running)


def _check_alternate(vhost: VHost, user: User, method: ExchangeDeclare) -> None:
    what = f"exchange '{method.exchange}' in vhost '{vhost.name}'"
    alternate = exchange_named(method.arguments, ALTERNATE_EXCHANGE, what)
    if alternate is not None:
        vhost.access.check_exchange(user, vhost.name, method.exchange, "read")
        vhost.access.check_exchange(user, vhost.name, alternate, "write")
