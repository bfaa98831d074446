#!/usr/bin/env python3
"""Transactions: commits and messages per second, and the broker's CPU time per message, beside RabbitMQ.

    python benchmarks/transactions.py                     # all of it: two minutes
    python benchmarks/transactions.py --only durable --rounds 5 --seconds 3

Clients of one process send a transaction of 100 messages of 1 KiB in one write, with its commit, and wait for
commit-ok; those with ``acks`` consume the same queue, and each transaction acknowledges what was delivered before.
All brokers do the same work, in alternating rounds. After each, the queues must hold the messages that were committed
and not acknowledged.
"""

from __future__ import annotations

import selectors
import socket
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set
from harness import rounds
from harness.peer import PERSISTENT, PLAIN, Peer, frames, message
from harness.rounds import cpu_s

from leveret.amqp import spec
from leveret.amqp.methods import (
    BasicAck,
    BasicConsume,
    ChannelOpen,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    QueueDeclare,
    QueueDelete,
    TxCommit,
    TxSelect,
)

if TYPE_CHECKING:
    from harness.brokers import Broker

SIZE = 100
BODY = bytes(1024)
_HEAD = struct.Struct(">BHI")


class Scenario(NamedTuple):
    """Work for a number of clients, each with a queue of its own."""

    about: str
    clients: int
    is_durable: bool
    has_acks: bool = False


SCENARIOS = {
    "transient": Scenario("transient, 1 client", 1, False),
    "durable": Scenario("persistent, 1 client", 1, True),
    "durable10": Scenario("persistent, 10 clients", 10, True),
    "acks": Scenario("persistent, acks of what was delivered, 4 clients", 4, True, has_acks=True),
}


class Committer:
    """One client.

    Attributes:
        commits: that were answered.
    """

    def __init__(self, address: tuple[str, int], scenario: Scenario, queue: str) -> None:
        self.commits = 0
        self._acked = self._delivered = 0
        self._has_acks = scenario.has_acks
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self.socket.sendall(spec.PROTOCOL_HEADER)
        self._await(spec.CONNECTION_START)
        self._send(0, ConnectionStartOk({}, "PLAIN", b"\0guest\0guest"))
        self._await(spec.CONNECTION_TUNE)
        self._send(0, ConnectionTuneOk(2047, 131_072, 0), ConnectionOpen("/"))
        self._send(1, ChannelOpen(), QueueDeclare(queue, durable=scenario.is_durable), TxSelect())
        self._await(spec.TX_SELECT_OK)
        if scenario.has_acks:
            self._send(1, BasicConsume(queue))
        properties = PERSISTENT if scenario.is_durable else PLAIN
        self._publishes = message(1, queue.encode(), BODY, properties=properties) * SIZE
        self._commit = frames(1, [TxCommit()])

    def _send(self, channel: int, *methods: Any) -> None:
        self.socket.sendall(frames(channel, methods))

    def _await(self, ids: int) -> None:
        while ids not in self._methods():
            pass

    def _methods(self) -> list[int]:
        data = self.socket.recv(1 << 20)
        assert data, "the broker has closed the connection"
        data, at, found = self._rest + data, 0, []
        while len(data) - at >= 7:
            kind, _, size = _HEAD.unpack_from(data, at)
            if len(data) - at < size + 8:
                break
            if kind == 1:
                found.append(int.from_bytes(data[at + 7 : at + 11], "big"))
            at += size + 8
        self._rest = data[at:]
        assert spec.CHANNEL_CLOSE not in found, "the broker has closed the channel"
        return found

    def begin(self) -> None:
        """Send a transaction."""
        acks = b""
        if self._delivered > self._acked:
            acks = frames(1, [BasicAck(self._delivered, multiple=True)])
            self._acked = self._delivered
        self.socket.sendall(self._publishes + acks + self._commit)

    def received(self) -> bool:
        """Read what the broker has sent; return whether commit-ok is among it."""
        found = self._methods()
        self._delivered += found.count(spec.BASIC_DELIVER)
        if spec.TX_COMMIT_OK not in found:
            return False
        self.commits += 1
        return True


def run(broker: Broker, scenario: Scenario, seconds: float) -> tuple[float, float]:
    """Return messages per second, and the broker's CPU time per message in microseconds."""
    address = broker.host, broker.port
    names = [f"bench.tx.{number}" for number in range(scenario.clients)]
    clients = [Committer(address, scenario, name) for name in names]
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.begin()
        before_s, began_s = cpu_s(broker), time.monotonic()
        waiting = len(clients)
        while waiting:
            for key, _ in selector.select():
                client = key.data
                if not client.received():
                    continue
                if time.monotonic() - began_s < seconds:
                    client.begin()
                else:
                    waiting -= 1
                    selector.unregister(client.socket)
        took_s, used_s = time.monotonic() - began_s, cpu_s(broker) - before_s
    count = SIZE * sum(client.commits for client in clients)
    for client in clients:
        client.socket.close()
    _check(address, names, scenario, count)
    return count / took_s, used_s / count * 1e6


def _check(address: tuple[str, int], names: list[str], scenario: Scenario, count: int) -> None:
    """Delete the queues; AssertionError: a committed message is missing (with acks: all or none are there)."""
    peer = Peer(address)
    left = sum(peer.call(1, QueueDelete(name)).message_count for name in names)
    peer.close()
    assert left == count or (scenario.has_acks and 0 < left < count), f"{left} of {count} left"


def main() -> None:
    about = {
        key: f"transactions of {SIZE}, {scenario.about}" for key, scenario in SCENARIOS.items()
    }
    parser = rounds.parser(__doc__, SCENARIOS)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    rounds.compare(
        "transactions",
        options,
        about,
        lambda broker, key: run(broker, SCENARIOS[key], options.seconds),
    )


if __name__ == "__main__":
    main()
