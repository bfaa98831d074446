"""queue.declare: checks in RabbitMQ's order, the choice of the node in a cluster, and the new queue.

A queue lives on the node that its *locator* chooses, among the nodes that run its vhost (RabbitMQ's
``rabbit_queue_master_location_misc``): the argument ``x-queue-master-locator``, else the policy's
``queue-master-locator``, else the default of the cluster.

=============  =======================================================================
client-local   the node of the connection; also the node of every exclusive queue
min-masters    the node with the fewest queues; the first by name of several
random         any
=============  =======================================================================

The delegate of that node declares it (``DelegatedDeclare``), or checks an existing one, writes its row and starts it.
It answers when all nodes have applied the row, so the queue is known here then, and the client can use it at once.
Another client may have deleted it by then; it is not declared once more, for others may have seen it.

A script decides on the rows that this node has applied. It begins anew (``OvertakenError``) when another client was
faster.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from leveret.actors.links.sendable import message
from leveret.actors.runtime.signals import CallFailed
from leveret.amqp.errors import InternalError, PreconditionFailed, SoftError
from leveret.amqp.tables import pack, unpack
from leveret.broker.queue import arguments as queue_arguments
from leveret.broker.queue.arguments import DEAD_LETTER_EXCHANGE
from leveret.broker.queue.equivalence import exchange_named
from leveret.broker.registry.queue_types import CLASSIC, QUEUE_TYPE, type_of
from leveret.broker.registry.registry import GONE, QueueEntry
from leveret.broker.script import Ask, Steps, Until
from leveret.broker.vhost import exchange_rules
from leveret.broker.vhost.auth.auth_backends import granted
from leveret.broker.vhost.metadata.metadata_writer import OvertakenError, retried
from leveret.core.log.floods import SOURCE
from leveret.core.log.loggers import logger
from leveret.metadata.tables import QueueRow
from leveret.routing.bindings import QUEUE

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.amqp.methods import QueueDeclare
    from leveret.amqp.tables import Table
    from leveret.broker.registry.cluster_nodes import ClusterNode
    from leveret.broker.vhost.auth.access import User
    from leveret.broker.vhost.vhost import Client, VHost

log = logger(__name__)

CLIENT_LOCAL: Final = "client-local"
MIN_MASTERS: Final = "min-masters"
RANDOM: Final = "random"
LOCATOR: Final = "queue-master-locator"


@message(sent_as="leveret.broker.vhost.queue_declare:DeclareThere")
@dataclass(slots=True)
class DelegatedDeclare:
    """A call to a delegate: declare a queue on its node, unless there is one of that name.

    The delegate answers None when a queue of that name, new or equivalent, runs and all nodes know it. Otherwise it
    answers with a ``SoftError``, or with False after an error of the node.
    """

    name: str
    durable: bool
    auto_delete: bool
    arguments: bytes
    user: str


def declare_queue(vhost: VHost, client: Client, method: QueueDeclare) -> Steps:
    """Declare a queue, or check that an existing one was declared alike; return its entry, and whether it is new."""
    name = exchange_rules.new_queue_name(method.queue)
    return retried(lambda: _declare(vhost, client, name, method))


def _declare(vhost: VHost, client: Client, name: str, method: QueueDeclare) -> Steps:
    user = client.user
    durable = method.durable and not method.exclusive
    owner = client.reader if method.exclusive else None
    if vhost.default_queue_type and QUEUE_TYPE not in method.arguments:
        _set_default_type(vhost, method)
    check = vhost.access.check_queue
    yield from granted(partial(check, user, vhost.name, name, "configure"))
    if name not in vhost.topology.queues:
        yield from vhost.find_policies(name, type_of(method.arguments).name)
    yield from vhost.deletions.name_free(QUEUE, name)
    yield from _forget_lost(vhost, name)
    current = vhost.topology.queues.get(name)
    if current is not None:
        declared = durable, method.auto_delete, owner, method.arguments
        yield from _await_existing(vhost, current, *declared)
        if current.state == "deleted":  # its declaration was taken back
            raise OvertakenError(f"queue '{name}' was deleted")
        return current, False
    yield from granted(partial(_check_new_queue, vhost, user, name, method))
    # Another client may have been faster, while a back end was asked.
    yield from vhost.until_undeclared(QueueRow(vhost.name, name))
    if name in vhost.topology.queues:
        raise OvertakenError(f"queue '{name}' was declared")
    entry = QueueEntry(
        vhost.name,
        name,
        durable=durable,
        auto_delete=method.auto_delete,
        exclusive=owner,
        arguments=method.arguments,
        on_deleted=vhost.queue_deleted,
    )
    entry.account = client.reader.cell.account
    locator = CLIENT_LOCAL if method.exclusive else locator_of(vhost, name, method.arguments)
    home = located(vhost, locator)
    if home is not None:
        arguments = pack(method.arguments)
        asked = DelegatedDeclare(name, durable, method.auto_delete, arguments, user.name)
        if (yield from declare_remote(vhost, home, asked)):
            return vhost.topology.queues.get(name, entry), True
        raise OvertakenError(f"node '{home.name}' was lost, queue '{name}' may be declared")
    if durable:
        vhost.number(entry)
    yield from vhost.add_queue(entry, user.name)
    if entry.settings.is_quorum:
        log.info("quorum queue has one replica queue=%s vhost=%s", name, vhost.name)
    _warn(vhost, client, name, method.arguments)
    return entry, True


def declare_for_remote(vhost: VHost, asked: DelegatedDeclare) -> Steps:
    """Declare a queue here for a client of another node, which has made all checks.

    The other nodes know the delegate of a vhost before its store is open, so the queue waits for the vhost's start.
    """
    yield Until(lambda resume: vhost.state.when_started(partial(resume, None)))
    return (yield from retried(lambda: _declare_for_remote(vhost, asked)))


def _declare_for_remote(vhost: VHost, asked: DelegatedDeclare) -> Steps:
    yield from vhost.deletions.name_free(QUEUE, asked.name)
    yield from _forget_lost(vhost, asked.name)
    current = vhost.topology.queues.get(asked.name)
    arguments = unpack(asked.arguments)
    if current is not None:
        yield from _await_existing(
            vhost, current, asked.durable, asked.auto_delete, None, arguments
        )
        if vhost.topology.queues.get(asked.name) is not current:
            raise OvertakenError(f"queue '{asked.name}' was deleted")
        return
    yield from vhost.until_undeclared(QueueRow(vhost.name, asked.name))
    entry = QueueEntry(
        vhost.name,
        asked.name,
        durable=asked.durable,
        auto_delete=asked.auto_delete,
        arguments=arguments,
        on_deleted=vhost.queue_deleted,
    )
    if asked.durable:
        vhost.number(entry)
    yield from vhost.add_queue(entry, asked.user)


def _await_existing(
    vhost: VHost,
    current: QueueEntry,
    durable: bool,
    auto_delete: bool,
    owner: Ref | None,
    arguments: Table,
) -> Steps:
    """Check that an existing queue was declared alike, when it runs, and wait until all nodes know it.

    Another client may be declaring it, and be overtaken; then it is deleted here.
    """
    if current.state == "starting":
        yield Until(current.when_running)
        yield from vhost.until_acknowledged()
        if vhost.topology.queues.get(current.name) is not current:
            return
    queue_arguments.check_equivalent(current, durable, auto_delete, owner, arguments)
    yield from vhost.until_applied()


def _forget_lost(vhost: VHost, name: str) -> Steps:
    """Forget a queue of another node that has ended with that node.

    Raises:
        NotFound: there is a queue of this name on another node, and it does not run.
    """
    entry = vhost.topology.queues.get(name)
    if entry is None or not entry.is_remote or entry.state not in GONE:
        return
    if entry.state != "deleted":
        raise entry.missing()
    entry.deleted()
    yield from vhost.deletions.name_free(QUEUE, name)


def _set_default_type(vhost: VHost, method: QueueDeclare) -> None:
    """Put the default type among the arguments, as ``rabbit_amqqueue:augment_declare_args``."""
    is_plain = method.durable and not method.exclusive and not method.auto_delete
    if vhost.default_queue_type == CLASSIC or is_plain:
        kind = ("S", vhost.default_queue_type.encode())
        method.arguments = {**method.arguments, QUEUE_TYPE: kind}


def _check_new_queue(vhost: VHost, user: User, name: str, method: QueueDeclare) -> None:
    limit = vhost.limits.get("max-queues", -1)
    if 0 <= limit <= len(vhost.topology.queues):
        raise PreconditionFailed(
            f"cannot declare queue '{name}': queue limit in vhost '{vhost.name}'"
            f" ({limit}) is reached"
        )
    what = f"queue '{name}' in vhost '{vhost.name}'"
    dead_letter = exchange_named(method.arguments, DEAD_LETTER_EXCHANGE, what)
    if dead_letter is not None:
        vhost.access.check_queue(user, vhost.name, name, "read")
        vhost.access.check_exchange(user, vhost.name, dead_letter, "write")
    queue_arguments.check(
        method.arguments,
        vhost.name,
        name,
        durable=method.durable,
        exclusive=method.exclusive,
        auto_delete=method.auto_delete,
    )


def _warn(vhost: VHost, client: Client, name: str, arguments: Table) -> None:
    idle = queue_arguments.without_effect(arguments, vhost.cluster_nodes is not None)
    if idle:
        log.warning(
            "queue arguments are without effect so far queue=%s vhost=%s user=%s name=%s"
            " arguments=%s",
            name,
            vhost.name,
            client.user.name,
            client.name,
            idle,
            extra={SOURCE: client.source},
        )


# The choice of the node.


def locator_of(vhost: VHost, name: str, arguments: Table) -> str:
    """Return the locator of a new queue; on a single node it does not matter."""
    if vhost.cluster_nodes is None:
        return CLIENT_LOCAL
    given = arguments.get(f"x-{LOCATOR}")
    if given is not None:
        return str(given[1].decode())
    policy = vhost.policies.of_queue(name, type_of(arguments).name).definition
    return str(policy.get(LOCATOR, vhost.cluster_nodes.default_locator))


def located(vhost: VHost, locator: str) -> ClusterNode | None:
    """Return the node that a locator chooses among the nodes that run the vhost; None: this one."""
    cluster_nodes = vhost.cluster_nodes
    if cluster_nodes is None or locator == CLIENT_LOCAL:
        return None
    others = {
        home.name: home
        for home in cluster_nodes.by_name.values()
        if home.is_up and vhost.name in home.delegates
    }
    names = sorted([cluster_nodes.own, *others])
    if locator == MIN_MASTERS:
        return others.get(min(names, key=cluster_nodes.queues_of))
    return others.get(random.choice(names))  # no secret


def declare_remote(vhost: VHost, home: ClusterNode, asked: DelegatedDeclare) -> Steps:
    """Have a queue declared on another node; return False if that node was lost.

    The queue is known here then, unless it was deleted before the answer came.

    Raises:
        SoftError: that node has a queue of this name that is not equivalent.
        InternalError: the node could not.
    """
    assert vhost.cluster_nodes is not None
    vhost.cluster_nodes.expect(home.name, 1)
    try:
        answer = yield Ask(home.delegates[vhost.name], asked)
    finally:
        vhost.cluster_nodes.expect(home.name, -1)
    if isinstance(answer, SoftError):
        raise answer
    if answer is not None and not isinstance(answer, CallFailed):
        log.error("queue not declared queue=%s vhost=%s node=%s", asked.name, vhost.name, home.name)
        raise InternalError()
    return answer is None
