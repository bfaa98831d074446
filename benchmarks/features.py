#!/usr/bin/env python3
"""Dead letters, length limits and priorities, beside RabbitMQ: the same work, alternating, on the same machine.

    python benchmarks/features.py                            # all, 5 rounds
    python benchmarks/features.py --only chain,drop --rounds 3 --brokers c

One client publishes messages of 1 KiB as fast as the broker takes them, and another gets what there is to get. The rate
counts from the first publish until all has arrived, or the queue has handled everything.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set
from harness import rounds
from harness.peer import Peer, message
from harness.rounds import cpu_s

from leveret.amqp import spec
from leveret.amqp.methods import BasicConsume, ConfirmSelect, QueueDeclare, QueueDelete

if TYPE_CHECKING:
    from harness.brokers import Broker

    from leveret.amqp.tables import Field

BODY = bytes(1024)
BATCH = 100
FIRST, SECOND, THIRD = "bench.first", "bench.second", "bench.third"
LEVELS = 10
PATIENCE_S = 120.0


class Clients(NamedTuple):
    """The publisher, with confirms or without, and the consumer."""

    publisher: Peer
    consumer: Peer


Work = Callable[[Clients, int], None]


def _publish(clients: Clients, queue: str, count: int, with_levels: bool = False) -> None:
    levels = range(LEVELS) if with_levels else range(1)
    one = [message(1, queue.encode(), BODY, properties=b"\x08\x00%c" % level) for level in levels]
    batch = b"".join(one) * (BATCH // len(one))
    for _ in range(count // BATCH):
        clients.publisher.raw(batch)


def _arrive(clients: Clients, count: int) -> None:
    clients.consumer.wait(spec.BASIC_DELIVER, count, PATIENCE_S)


def _handled(clients: Clients, queue: str) -> None:
    """Wait until a queue has handled everything before."""
    clients.publisher.call(1, QueueDeclare(queue, passive=True))


def _chain(clients: Clients, count: int) -> None:
    clients.consumer.call(1, BasicConsume(THIRD, no_ack=True))
    _publish(clients, FIRST, count)
    _arrive(clients, count)


def _flood(clients: Clients, count: int) -> None:
    _publish(clients, FIRST, count)
    _handled(clients, FIRST)


def _refused(clients: Clients, count: int) -> None:
    clients.publisher.call(1, ConfirmSelect())
    _flood(clients, count)


def _priorities(clients: Clients, count: int) -> None:
    clients.consumer.call(1, BasicConsume(FIRST, no_ack=True))
    _publish(clients, FIRST, count, with_levels=True)
    _arrive(clients, count)


class Scenario(NamedTuple):
    """Queues to declare, and the work that clients do with them."""

    about: str
    count: int
    queues: dict[str, dict[str, Field]]
    work: Work


def _dying(target: str) -> dict[str, Field]:
    return {
        "x-message-ttl": ("l", 1),
        "x-dead-letter-exchange": ("S", b""),
        "x-dead-letter-routing-key": ("S", target.encode()),
    }


_LIMIT: dict[str, Field] = {"x-max-length": ("l", 1_000)}

SCENARIOS = {
    "chain": Scenario(
        "TTL of 1 ms in two queues, dead-lettered to the next, consumed from the third",
        50_000,
        {FIRST: _dying(SECOND), SECOND: _dying(THIRD), THIRD: {}},
        _chain,
    ),
    "drop": Scenario("a queue of 1,000 drops its head", 300_000, {FIRST: _LIMIT}, _flood),
    "refuse": Scenario(
        "a queue of 1,000 refuses further messages (reject-publish), with confirms",
        300_000,
        {FIRST: {**_LIMIT, "x-overflow": ("S", b"reject-publish")}},
        _refused,
    ),
    "priority": Scenario(
        "ten priorities, published and consumed",
        200_000,
        {FIRST: {"x-max-priority": ("l", LEVELS - 1)}},
        _priorities,
    ),
}


def run(broker: Broker, scenario: Scenario) -> tuple[float, float]:
    """Return messages per second, and the broker's CPU time per message in microseconds."""
    address = broker.host, broker.port
    clients = Clients(Peer(address), Peer(address))
    operator = Peer(address)
    for name, arguments in scenario.queues.items():
        operator.call(1, QueueDeclare(name, arguments=arguments))
    before_s, began_s = cpu_s(broker), time.monotonic()
    scenario.work(clients, scenario.count)
    took_s, used_s = time.monotonic() - began_s, cpu_s(broker) - before_s
    for name in scenario.queues:
        operator.call(1, QueueDelete(name))
    for peer in (*clients, operator):
        peer.close()
    return scenario.count / took_s, used_s / scenario.count * 1e6


def main() -> None:
    about = {key: scenario.about for key, scenario in SCENARIOS.items()}
    options = rounds.parser(__doc__, SCENARIOS).parse_args()
    rounds.compare("features", options, about, lambda broker, key: run(broker, SCENARIOS[key]))


if __name__ == "__main__":
    main()
