"""What the fixture ``chaos`` does to a broker, as its clients see it.

Tests: testing/faults.py
"""

from __future__ import annotations

import os
import threading
from functools import partial

import pika.exceptions
import pytest

from leveret.actors.processes.command import Command, CommandSpec
from leveret.actors.runtime.ref import Ref
from leveret.supervisors.requests import DeleteChild, StartChild, TerminateChild
from leveret.supervisors.spec import ChildSpec
from leveret.supervisors.tree_view import Node
from leveret.testing.chaos import Chaos, ChaosError
from leveret.testing.tree_paths import PathError
from leveret.testing.vhost import FreshVhost
from rigs.hosted_actors import Clerk
from rigs.waiting import wait_until
from testing.conftest import Connect

PAIR = ("backing", "amqqueue")


@pytest.mark.parametrize("half", PAIR)
@pytest.mark.parametrize("verb", ["kill", "crash"])
def test_a_queue_that_dies_is_started_again(
    amqp_broker: FreshVhost, chaos: Chaos, connect: Connect, verb: str, half: str
) -> None:
    channel = connect()
    channel.queue_declare("orders")
    old = chaos.find("queue:orders > amqqueue")

    getattr(chaos, verb)(f"queue:orders > {half}")

    wait_until(lambda: not old.is_alive)
    channel.basic_publish("", "orders", b"x")
    assert amqp_broker.queue("orders").bodies == [b"x"]


def test_an_exit_has_the_reason_it_is_given(chaos: Chaos, connect: Connect) -> None:
    connect().queue_declare("orders")
    old = chaos.find("queue:orders > amqqueue")

    chaos.exit("queue:orders > amqqueue", ("boom", 7))

    wait_until(lambda: not old.is_alive)
    assert chaos.deeds[-1].detail == "('boom', 7)"


def test_a_connection_that_is_cut_is_reset_and_its_messages_come_again(
    amqp_broker: FreshVhost, chaos: Chaos, connect: Connect
) -> None:
    channel = connect()
    channel.queue_declare("orders")
    channel.basic_publish("", "orders", b"x")
    channel.basic_get("orders")

    chaos.cut("connection:*")

    with pytest.raises(pika.exceptions.AMQPConnectionError):
        channel.basic_get("orders")
    queue = amqp_broker.queue("orders")
    queue.wait_until(lambda queue: queue.ready == 1)
    assert connect().basic_get("orders")[0].redelivered


@pytest.mark.parametrize("path", ["queue:orders > amqqueue", "connection:*"])
def test_who_is_paused_goes_on_where_it_was(chaos: Chaos, connect: Connect, path: str) -> None:
    channel = connect()
    channel.queue_declare("orders")
    answered = threading.Event()

    def publish() -> None:
        channel.basic_publish("", "orders", b"x")
        answered.set()

    publisher = threading.Thread(target=publish)
    with chaos.pause(path):
        publisher.start()
        if path.startswith("queue"):
            wait_until(chaos.find(path).cell.has_mail)
        assert not answered.is_set()
    publisher.join(10)

    assert answered.is_set()


@pytest.mark.parametrize("path", ["queue:orders > amqqueue", "connection:*"])
def test_who_is_slow_gets_there(chaos: Chaos, connect: Connect, path: str) -> None:
    channel = connect()
    channel.queue_declare("orders")

    with chaos.slow(path, 0.002):
        for number in range(3):
            channel.basic_publish("", "orders", b"%d" % number)
        assert channel.basic_get("orders", auto_ack=True)[2] == b"0"

    assert channel.basic_get("orders", auto_ack=True)[2] == b"1"


def test_a_delay_is_more_than_nothing(chaos: Chaos) -> None:
    with pytest.raises(Exception, match="delay_s is 0, must be more than 0"):
        chaos.slow("maintenance", 0)


def test_a_slow_actor_may_die(chaos: Chaos, connect: Connect) -> None:
    channel = connect()
    channel.queue_declare("orders")
    slow = chaos.slow("queue:orders > amqqueue", 0.001)

    chaos.kill("queue:orders > amqqueue")
    channel.basic_publish("", "orders", b"x")
    slow.resume()

    assert channel.basic_get("orders", auto_ack=True)[2] == b"x"


@pytest.mark.parametrize(
    "child",
    [
        ChildSpec("apart", Clerk, isolation="process"),
        ChildSpec("apart", Command, (CommandSpec(("sleep", "1000")),)),
    ],
    ids=["actor", "program"],
)
def test_kill9_ends_the_process_behind_an_actor_which_is_started_again(
    amqp_broker: FreshVhost, chaos: Chaos, child: ChildSpec
) -> None:
    ask = partial(amqp_broker.broker.runtime.call, chaos.find("infra"))
    _, old = amqp_broker.thread.wait_for(ask(StartChild(child)))
    pid = old.cell.actor.os_pid

    chaos.kill9("infra > apart")

    wait_until(lambda: any(is_other(node, old) for node in chaos.nodes()))
    assert chaos.find("infra > apart").cell.actor.os_pid != pid
    assert not old.is_alive
    assert amqp_broker.thread.wait_for(ask(TerminateChild("apart"))) == "ok"
    assert amqp_broker.thread.wait_for(ask(DeleteChild("apart"))) == "ok"


def is_other(node: Node, old: Ref) -> bool:
    """Tell whether this is the successor of a child."""
    return node.label == "apart" and node.state == "running" and node.ref is not old


def test_kill9_spares_the_process_of_the_tests(chaos: Chaos) -> None:
    with pytest.raises(ChaosError, match=f"it runs in the broker's, {os.getpid()}"):
        chaos.kill9("maintenance")


def test_only_a_connection_can_be_cut(chaos: Chaos) -> None:
    with pytest.raises(ChaosError, match="has no socket to cut; a connection has"):
        chaos.cut("maintenance")

    assert chaos.deeds == []


def test_a_wrong_path_does_nothing_and_says_what_there_is(chaos: Chaos, connect: Connect) -> None:
    connect().queue_declare("orders")

    with pytest.raises(PathError, match=r"did you mean queue:orders\?"):
        chaos.kill("queue:ordres > backing")

    assert chaos.deeds == []


def test_what_was_done_is_told_in_order(chaos: Chaos, connect: Connect) -> None:
    connect().queue_declare("orders")

    chaos.kill("queue:orders > backing")
    chaos.pause("maintenance").resume()

    seed, first, second = chaos.report().splitlines()
    assert seed == f"chaos with seed {chaos.seed}"
    assert first.split("  ")[-1].endswith("queue:orders > backing")
    assert second.endswith("pause   leveret > infra > maintenance")


def test_one_seed_makes_one_choice(amqp_broker: FreshVhost, chaos: Chaos) -> None:
    again = Chaos(amqp_broker.broker, chaos.seed, amqp_broker.thread.run)

    def chosen(by: Chaos) -> list[str]:
        return [by.choose().path for _ in range(20)]

    assert chosen(chaos) == chosen(again)


def test_who_is_chosen_is_started_again(chaos: Chaos, connect: Connect) -> None:
    connect().queue_declare("orders")

    labels = {chaos.choose().label for _ in range(300)}

    assert labels >= {"amqqueue", "backing", "msg_store", "listener", "maintenance"}
    assert not labels & {"reader", "channel:1", "queue:orders", "leveret", "listeners"}
    assert chaos.choose("queue:*").label == "queue:orders"


def test_whoever_is_mortal_leaves_the_broker_alive(chaos: Chaos, connect: Connect) -> None:
    connect().queue_declare("orders")

    labels = {path.rpartition(" > ")[2] for path in chaos.mortal_paths()}

    assert labels >= {"amqqueue", "backing", "queue:orders", "queues", "msg_store", "recovery"}
    assert labels >= {"metadata_store", "maintenance", "listener", "readers", "connections"}
    assert labels >= {"reader", "channel:1"}
    assert not labels & {"leveret", "metadata", "infra", "vhosts", "vhost:/", "listeners"}


def test_the_tree_can_be_read(chaos: Chaos) -> None:
    assert chaos.tree().startswith("leveret ")
    assert "maintenance" in chaos.tree()
