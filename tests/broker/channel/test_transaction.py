"""Transactions on a whole broker without sockets: turns, waits, limits, and the ends of channels amid them.

Tests: broker/channel/channel.py, broker/channel/methods.py, broker/channel/records.py, broker/channel/uncommitted.py
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from leveret.actors.runtime import scheduler
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import SHUTDOWN
from leveret.amqp import methods as m
from leveret.broker.channel import channel, transaction
from leveret.broker.channel.reply_consumers import REPLY_TO
from leveret.broker.channel.uncommitted import OpenTransactions
from leveret.broker.mail import PEER_ENDED, Publish, Requeue
from leveret.core.limits import CREDIT_MESSAGES, FAN_OUT_QUEUES, TRANSACTIONS_SHARE
from leveret.core.sizes import SizeLimit
from rigs.broker_rig import Client, Rig


@pytest.fixture
def client(rig: Rig) -> Client:
    """A client with a transaction on channel 1 and a queue."""
    return transactional(rig)


def transactional(rig: Rig) -> Client:
    client = rig.session(channels=2)
    client.ask(1, m.QueueDeclare("q"))
    client.ask(1, m.TxSelect())
    return client


def ready(client: Client, queue: str = "q") -> int:
    count: int = client.ask(2, m.QueueDeclare(queue, passive=True)).message_count
    return count


def channel_of(client: Client, number: int = 1) -> Ref:
    ref: Ref = client.rig.node.connections.readers[client.reader].channels._slots[number].ref
    return ref


def opened(rig: Rig) -> OpenTransactions:
    return rig.node.connections.open_transactions


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The channels that have asked for another turn, once for each."""
    asked: list[object] = []
    next_turn = channel.Channel.next_turn

    def counted(self: channel.Channel, callback: Callable[[Any], None]) -> None:
        asked.append(self)
        next_turn(self, callback)

    monkeypatch.setattr(channel.Channel, "next_turn", counted)
    return asked


def test_a_commit_waits_for_queues_that_take_nothing_in(rig: Rig, client: Client) -> None:
    count = 3 * CREDIT_MESSAGES[0]
    for number in range(count):
        client.publish(1, "q", b"%d" % number, priority=number % 2)  # each by itself
    queue = rig.queues["q"].ref
    rig.runtime.suspend(queue)

    client.protocol.data_received(m.method_frame(1, m.encode(m.TxCommit())))
    rig.settle()

    waiting = sum(len(mail.messages) for mail, _ in queue.cell.inbox)
    assert CREDIT_MESSAGES[0] <= waiting < CREDIT_MESSAGES[0] + transaction._JOINED_MESSAGES
    assert client.take() == []
    rig.runtime.resume(queue)
    rig.settle()
    assert client.take() == [m.TxCommitOk()]
    assert ready(client) == count


def test_a_commit_is_cut_into_turns(
    rig: Rig, client: Client, monkeypatch: Any, turns: list[object]
) -> None:
    monkeypatch.setattr(transaction, "PUBLISH_TURN_WORK", 150)
    monkeypatch.setattr(channel, "_FIRST_TURN_WORK", 150)
    monkeypatch.setattr(transaction, "_JOINED_MESSAGES", 10)
    for number in range(3):
        client.ask(2, m.QueueDeclare(f"q{number}"))
        client.ask(2, m.QueueBind(f"q{number}", "amq.fanout", ""))
    count = 300
    for number in range(count):
        client.publish(1, "", b"%d" % number, exchange="amq.fanout")
    turns.clear()

    client.send(1, m.TxCommit())

    assert client.take() == [m.TxCommitOk()]
    assert len(turns) > 10
    assert [ready(client, f"q{number}") for number in range(3)] == [count] * 3


@pytest.mark.parametrize("is_last", [False, True])
def test_a_batch_for_very_many_queues(rig: Rig, client: Client, is_last: bool) -> None:
    queues = FAN_OUT_QUEUES + 10
    for number in range(queues):
        client.send(2, m.QueueDeclare(f"w{number}"), m.QueueBind(f"w{number}", "amq.fanout", ""))
    client.take()
    client.publish(1, "", b"1", b"2", exchange="amq.fanout")
    if not is_last:
        client.publish(1, "q", b"3")

    client.send(1, m.TxCommit())

    assert client.take() == [m.TxCommitOk()]
    assert ready(client, "w0") == ready(client, f"w{queues - 1}") == 2
    assert ready(client) == (not is_last)


def test_settlements_follow_the_publishes(rig: Rig, client: Client) -> None:
    client.publish(2, "q", b"old")
    client.send(1, m.BasicGet("q"), m.BasicReject(1, True))
    client.publish(1, "q", b"new")
    queue = rig.queues["q"].ref
    rig.runtime.suspend(queue)

    client.send(1, m.TxCommit())

    assert [type(mail) for mail, _ in queue.cell.inbox] == [Publish, Requeue]


def test_a_rollback_makes_tags_known_again(rig: Rig, client: Client) -> None:
    client.publish(2, "q", b"1", b"2", b"3")
    client.send(1, *[m.BasicGet("q")] * 3, m.BasicAck(2), m.BasicAck(3, True))
    client.take()

    assert client.ask(1, m.TxRollback()) == m.TxRollbackOk()
    client.send(1, *[m.BasicAck(tag) for tag in (1, 2)], m.TxCommit())
    assert client.take() == [m.TxCommitOk()]
    client.send(1, m.ChannelClose(200, "", 0, 0))
    client.take()
    assert ready(client) == 1


def test_messages_with_other_targets_are_kept_apart(rig: Rig, client: Client) -> None:
    client.ask(2, m.QueueDeclare("r"))
    client.ask(2, m.QueueDeclare("s"))
    for name in ("r", "s"):
        cc = {"CC": ("A", [("S", name.encode())])}
        client.publish(1, "q", name.encode(), headers=cc)
    client.publish(1, "q", b"kept", delivery_mode=2)
    client.publish(1, "q", b"gone", expiration="0")

    assert client.ask(1, m.TxCommit()) == m.TxCommitOk()

    assert [ready(client, name) for name in ("r", "s")] == [1, 1]
    client.send(2, *[m.BasicGet("q", no_ack=True)] * 4)
    assert client.bodies() == [b"r", b"s", b"kept"]


def test_a_queue_that_is_declared_anew_gets_the_messages(rig: Rig, client: Client) -> None:
    client.publish(1, "q", b"m")
    client.ask(2, m.QueueDelete("q"))
    client.ask(2, m.QueueDeclare("q"))

    assert client.ask(1, m.TxCommit()) == m.TxCommitOk()
    assert ready(client) == 1


@pytest.mark.parametrize("kind", [m.BasicAck, m.BasicNack, m.BasicReject])
@pytest.mark.parametrize("is_multiple", [False, True])
def test_many_settlements_are_cut_into_turns(
    rig: Rig, client: Client, kind: type, is_multiple: bool, monkeypatch: Any
) -> None:
    monkeypatch.setattr(transaction, "SETTLED_MAX", 50)
    for module in ("deliveries", "unacked"):
        monkeypatch.setattr(f"leveret.broker.channel.consuming.{module}.SETTLED_MAX", 50)
    count = 1_000
    client.publish(2, "q", *[b"%d" % number for number in range(count)])
    client.send(1, m.BasicConsume("q", "c"))
    client.send(1, m.BasicCancel("c"))
    client.take()
    tags = random.Random(7).sample(range(1, count + 1), count)
    if kind is m.BasicReject:
        methods: list[Any] = [m.BasicReject(tag, True) for tag in tags]
    elif is_multiple:
        methods = [kind(tag, True) for tag in range(10, count + 1, 10)]
    else:
        methods = [kind(tag, False) for tag in tags]
    client.send(1, *methods)
    assert ready(client) == 0
    actor = channel_of(client).cell.actor
    assert len(actor.deliveries.unacked) == count
    is_ack = kind is m.BasicAck
    assert actor.transaction.ack_count == (count if is_ack else 0)

    client.send(1, m.TxCommit())

    assert client.take() == [m.TxCommitOk()]
    assert len(actor.deliveries.unacked) == 0
    assert not actor.trap_exits
    client.send(2, m.BasicConsume("q", "again", no_ack=True))
    assert client.bodies() == ([] if is_ack else [b"%d" % number for number in range(count)])


def test_settlements_of_different_kinds_are_cut_into_turns(
    rig: Rig, client: Client, monkeypatch: Any, turns: list[object]
) -> None:
    monkeypatch.setattr(transaction, "SETTLED_MAX", 200)
    count = 300
    client.publish(2, "q", *[b"%d" % number for number in range(count)])
    client.send(1, m.BasicConsume("q", "c"))
    client.send(1, m.BasicCancel("c"))
    for tag in range(1, count + 1, 3):
        client.send(1, m.BasicAck(tag), m.BasicReject(tag + 1, True), m.BasicNack(tag + 2, True))
    client.take()
    turns.clear()

    client.send(1, m.TxCommit())

    assert client.take() == [m.TxCommitOk()]
    assert len(turns) >= 10
    assert ready(client) == count * 2 // 3


def test_recover_amid_a_transaction_is_cut_into_turns(
    rig: Rig, client: Client, monkeypatch: Any
) -> None:
    monkeypatch.setattr(transaction, "SETTLED_MAX", 7)
    client.publish(2, "q", *[b"%d" % number for number in range(100)])
    client.send(1, m.BasicConsume("q", "c"))
    client.send(1, m.BasicCancel("c"))
    client.send(1, m.BasicAck(20, True), *[m.BasicAck(tag) for tag in range(30, 101, 10)])
    client.take()

    client.send(1, m.BasicRecover(True))

    assert client.take() == [m.BasicRecoverOk()]
    assert ready(client) == 72
    assert client.ask(1, m.TxCommit()) == m.TxCommitOk()
    client.send(1, m.ChannelClose(200, "", 0, 0))
    client.take()
    assert ready(client) == 72


ENDS: dict[str, Callable[[Client, Ref], object]] = {
    "its client closes the connection": lambda client, _: client.send(
        0, m.ConnectionClose(200, "", 0, 0)
    ),
    "another channel fails": lambda client, _: client.send(3, m.BasicAck(1)),
    "the socket is lost": lambda client, _: client.hang_up(),
    "the client has ended": lambda client, channel: client.rig.runtime.send(channel, PEER_ENDED),
    "the broker stops": lambda client, _: client.rig.runtime.exit(client.rig.root, SHUTDOWN),
}


@pytest.mark.parametrize("way", ENDS)
def test_a_commit_that_has_begun_is_carried_out(
    rig: Rig, client: Client, way: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(transaction, "PUBLISH_TURN_WORK", 10)
    monkeypatch.setattr(channel, "_FIRST_TURN_WORK", 10)
    monkeypatch.setattr(transaction, "_JOINED_MESSAGES", 1)
    monkeypatch.setattr(scheduler, "DRAIN_S", -1.0)  # as if each turn were long
    other = rig.session(channels=2)
    other.ask(1, m.QueueDeclare("r"))
    other.publish(1, "r", b"acked", b"taken")
    client.send(1, m.BasicGet("r"), m.BasicGet("r"), m.BasicAck(1))
    for number in range(200):
        client.publish(1, "q", b"%d" % number)
    ref = channel_of(client)
    client.protocol.data_received(m.method_frame(1, m.encode(m.TxCommit())))
    for _ in range(3):
        rig.runtime.drain()
    assert ref.cell.actor.transaction.is_applying
    ENDS[way](client, ref)
    rig.settle()

    if way != "the broker stops":
        assert ready(other) == 200
        assert ready(other, "r") == 1
    assert opened(rig).size_bytes == opened(rig).count == 0


def test_deliveries_come_back_when_the_client_ends_before_its_commit(
    rig: Rig, client: Client
) -> None:
    """What a client has sent is published; its acks come too late, as without a transaction."""
    other = rig.session(channels=2)
    other.publish(1, "q", b"taken")
    client.send(1, m.BasicGet("q"), m.BasicAck(1))
    client.publish(1, "q", b"new")
    rig.runtime.send(channel_of(client), PEER_ENDED)
    rig.settle()

    client.send(1, m.BasicAck(1), m.BasicAck(0, True), m.TxCommit())

    other.send(1, m.BasicConsume("q", "c", no_ack=True))
    assert other.bodies() == [b"taken", b"new"]


@pytest.mark.parametrize("end", ["crash", "delete"])
def test_a_queue_that_ends_amid_a_commit(rig: Rig, client: Client, end: str) -> None:
    client.publish(1, "q", b"1")
    queue = rig.queues["q"].ref
    rig.runtime.suspend(queue)
    client.protocol.data_received(m.method_frame(1, m.encode(m.TxCommit())))
    rig.settle()
    assert client.take() == []

    if end == "delete":
        rig.session().send(1, m.QueueDelete("q"))
        rig.runtime.resume(queue)
        rig.settle()
        assert client.take() == [m.TxCommitOk()]
    else:
        rig.runtime.exit(queue, "kill")
        rig.settle()
        (closed,) = client.take()
        assert (closed.reply_code, closed.class_id, closed.method_id) == (406, 90, 20)
        assert closed.reply_text == "PRECONDITION_FAILED - partial tx completion"
    assert opened(rig).size_bytes == opened(rig).count == 0


def test_a_queue_that_has_crashed_for_good_refuses_the_commit(rig: Rig, client: Client) -> None:
    client.publish(1, "q", b"1")
    for _ in range(6):
        rig.runtime.exit(rig.queues["q"].ref, "kill")
        rig.settle()
    assert rig.queues["q"].state == "crashed"

    assert client.ask(1, m.TxCommit()).reply_text.endswith("partial tx completion")


@pytest.mark.parametrize("command", ["publish", "ack", "method"])
def test_a_command_that_comes_while_a_commit_waits(rig: Rig, client: Client, command: str) -> None:
    client.publish(1, "q", b"1")
    rig.runtime.suspend(rig.queues["q"].ref)
    client.protocol.data_received(m.method_frame(1, m.encode(m.TxCommit())))
    rig.settle()
    if command == "publish":
        client.protocol.data_received(client.contents(1, ("", "q", b"2", {})))
    else:
        method: Any = m.BasicAck(1) if command == "ack" else m.BasicQos(0, 1, False)
        client.protocol.data_received(m.method_frame(1, m.encode(method)))
    rig.settle()

    (closed,) = client.take()
    assert type(closed) is m.ConnectionClose
    assert closed.reply_code == 504
    assert closed.reply_text.endswith("unexpected command while processing 'tx.commit'")
    rig.runtime.resume(rig.queues["q"].ref)
    rig.settle()
    assert client.take() == []


def test_a_command_behind_a_long_commit(rig: Rig, client: Client, monkeypatch: Any) -> None:
    """It is found when the commit begins to wait for the queues."""
    monkeypatch.setattr(transaction, "PUBLISH_TURN_WORK", 10)
    monkeypatch.setattr(channel, "_FIRST_TURN_WORK", 10)
    monkeypatch.setattr(transaction, "_JOINED_MESSAGES", 1)
    client.publish(1, "q", *[b"1"] * 10)
    rig.runtime.suspend(rig.queues["q"].ref)

    client.send(1, m.TxCommit(), m.BasicQos(0, 1, False))

    assert [type(each) for each in client.take()] == [m.ConnectionClose]


def test_a_commit_waits_for_reply_consumers_that_do_not_read(rig: Rig, client: Client) -> None:
    slow = rig.session()
    slow.ask(1, m.BasicConsume(REPLY_TO, "r", no_ack=True))
    key = channel_of(slow).cell.actor.publisher.reply_key.decode()
    for body in (b"1", b"2"):
        client.publish(1, key, body)
        client.publish(1, "q", body)
    slow.protocol.pause_writing()
    slow.wire.unread_bytes = 20 << 20

    client.protocol.data_received(m.method_frame(1, m.encode(m.TxCommit())))
    rig.settle()
    assert client.take() == []

    slow.wire.unread_bytes = 0
    slow.protocol.resume_writing()
    rig.settle()
    assert client.take() == [m.TxCommitOk()]
    assert slow.bodies() == [b"1", b"2"]


# -- what transactions keep ---------------------------------------------------------------------------


def limited(kept_bytes: int) -> Rig:
    """A node whose transactions may keep so much."""
    return Rig(memory_high_watermark=SizeLimit(int(kept_bytes / TRANSACTIONS_SHARE)))


@pytest.mark.parametrize("end", ["commit", "rollback", "close", "hang up", "kill"])
def test_what_a_transaction_keeps_is_counted(rig: Rig, client: Client, end: str) -> None:
    client.publish(1, "q", bytes(10_000), bytes(10_000))
    assert 20_000 < opened(rig).size_bytes < 25_000
    assert opened(rig).count == 1

    if end == "kill":
        rig.runtime.exit(channel_of(client), "kill")
        rig.settle()
    elif end == "hang up":
        client.hang_up()
    else:
        ends: dict[str, Any] = {
            "commit": m.TxCommit(),
            "rollback": m.TxRollback(),
            "close": m.ChannelClose(200, "", 0, 0),
        }
        client.send(1, ends[end])

    assert opened(rig).size_bytes == opened(rig).count == 0


def test_a_transaction_that_keeps_too_much_is_refused() -> None:
    rig = limited(100_000)
    client, modest = transactional(rig), transactional(rig)
    modest.publish(1, "q", bytes(1_000))
    for _ in range(8):
        client.publish(1, "q", bytes(10_000))
    assert client.take() == []

    client.publish(1, "q", bytes(10_000))

    (closed,) = client.take()
    assert closed.reply_code == 406
    assert closed.reply_text.startswith("PRECONDITION_FAILED - transaction too large")
    modest.publish(1, "q", bytes(1_000))
    assert modest.ask(1, m.TxCommit()) == m.TxCommitOk()
    assert ready(modest) == 2


def test_who_keeps_little_goes_on_while_another_keeps_much() -> None:
    rig = limited(100_000)
    greedy, modest = transactional(rig), transactional(rig)
    for _ in range(8):
        greedy.publish(1, "q", bytes(10_000))
    for _ in range(4):
        modest.publish(1, "q", bytes(10_000))

    assert modest.ask(1, m.TxCommit()) == m.TxCommitOk()
    assert greedy.ask(1, m.TxCommit()) == m.TxCommitOk()
    assert ready(modest) == 12


def test_dropped_messages_are_freed_in_slices(rig: Rig, client: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr(transaction, "_FREED_MESSAGES", 100)
    monkeypatch.setattr(transaction, "_JOINED_MESSAGES", 100)
    freed = Counter[float]()
    free = transaction._free

    def counted(clock: Any, batches: Any) -> None:
        before = len(batches)
        free(clock, batches)
        freed[len(freed)] = before - len(batches)

    monkeypatch.setattr(transaction, "_free", counted)
    for number in range(1_000):
        client.publish(1, "q", b"%d" % number)

    client.send(1, m.TxRollback())

    assert client.take() == [m.TxRollbackOk()]
    assert len(freed) >= 10
    assert max(freed.values()) == 1
    assert client.ask(1, m.TxCommit()) == m.TxCommitOk()
    assert ready(client) == 0


def test_messages_with_the_same_targets_are_kept_together(rig: Rig, client: Client) -> None:
    for number in range(50):
        client.publish(1, "q", b"%d" % number)
    kept = channel_of(client).cell.actor.transaction

    assert len(kept._batches) == 1
    assert kept.message_count == 50
