"""An auto-delete queue goes with its last consumer also when its pair dies at the same time.

Tests: broker/queue/returning.py
"""

from __future__ import annotations

import pytest

from leveret.actors.runtime.signals import KILL
from leveret.amqp import methods as m
from leveret.broker.registry.registry import QueueEntry
from rigs.broker_rig import Client, Rig


def consumed(rig: Rig, *clients: Client) -> QueueEntry:
    """Declare an auto-delete queue that each of the clients consumes from."""
    for client in clients:
        client.send(1, m.QueueDeclare("q", auto_delete=True))
        client.send(1, m.BasicConsume("q", f"c{id(client)}"))
        client.take()
    entry: QueueEntry = rig.queues["q"]
    return entry


def kill(rig: Rig, entry: QueueEntry) -> None:
    """End the pair; nothing else happens yet."""
    assert entry.ref is not None
    rig.runtime.exit(entry.ref, KILL)


def test_the_queue_stays_when_its_consumer_returns(rig: Rig) -> None:
    client = rig.session()
    entry = consumed(rig, client)

    kill(rig, entry)
    rig.settle()

    assert rig.queues == {"q": entry}
    client.publish(1, "q", b"0")
    assert client.bodies() == [b"0"]
    client.hang_up()
    assert not rig.queues


@pytest.mark.parametrize("first", ["the queue", "its consumer"])
def test_the_queue_goes_when_its_consumer_dies_with_it(rig: Rig, first: str) -> None:
    client = rig.session()
    entry = consumed(rig, client)

    if first == "the queue":
        kill(rig, entry)
        client.hang_up()
    else:
        rig.runtime.exit(client.reader, KILL)
        kill(rig, entry)
    rig.settle()

    assert not rig.queues


def test_the_queue_goes_when_the_last_of_several_consumers_does_not_return(rig: Rig) -> None:
    one, other = rig.session(), rig.session()
    entry = consumed(rig, one, other)

    kill(rig, entry)
    one.hang_up()
    rig.settle()
    assert rig.queues == {"q": entry}
    other.hang_up()

    assert not rig.queues


@pytest.mark.parametrize("method", [m.BasicCancel, m.ChannelClose])
def test_the_queue_goes_when_its_consumer_leaves_during_the_restart(rig: Rig, method: type) -> None:
    client = rig.session()
    entry = consumed(rig, client)

    kill(rig, entry)
    goodbye = (
        m.BasicCancel(f"c{id(client)}")
        if method is m.BasicCancel
        else m.ChannelClose(200, "", 0, 0)
    )
    client.send(1, goodbye)

    assert not rig.queues


def test_a_queue_that_never_had_a_consumer_stays(rig: Rig) -> None:
    client = rig.session()
    client.send(1, m.QueueDeclare("q", auto_delete=True))

    kill(rig, rig.queues["q"])
    rig.settle()

    assert list(rig.queues) == ["q"]


def test_the_queue_goes_although_its_vhost_was_restarted(rig: Rig) -> None:
    client = rig.session()
    entry = consumed(rig, client)
    queues_sup = rig.node.vhosts["/"].queues_sup
    assert queues_sup is not None

    rig.runtime.exit(queues_sup, KILL)
    client.hang_up()
    rig.settle()

    assert entry.state == "deleted"
    assert not rig.queues
