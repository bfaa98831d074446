#!/usr/bin/env python3
"""Fan-out to many queues, and large bodies, beside RabbitMQ: the same work, alternating, on the same machine.

    python benchmarks/fan_out.py                                       # all, 5 rounds
    python benchmarks/fan_out.py --only 100-of-64k,1000-of-64k --rounds 3 --brokers c

One client publishes to a fanout exchange, and another consumes from all of its queues, without acknowledgements, on one
channel. A unit is a delivery. Meanwhile a client of another process asks for a queue's length, again and again: the
time to its answer shows for how long the broker serves nobody else, and its 99th percentile and longest are printed.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set
from harness import rounds
from harness.peer import PART, Peer, message
from harness.rounds import cpu_s

from leveret.amqp.methods import BasicConsume, ExchangeDeclare, QueueBind, QueueDeclare, QueueDelete

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.brokers import Broker

EXCHANGE, PROBED = "bench.fan", "bench.probed"
KEY = b"k"
PATIENCE_S = 120.0
PROBE_EVERY_S = 0.002
OVERHEAD = 8  # of a frame
KIB = 1024


class Scenario(NamedTuple):
    """Queues that get each message, the size of its body, and how many messages are published."""

    queues: int
    body_bytes: int
    messages: int
    batch: int = 1

    @property
    def about(self) -> str:
        return f"{self.queues:,} queues, bodies of {self.body_bytes:,} bytes"


SCENARIOS = {
    "1-of-64k": Scenario(1, 64 * KIB, 10_000),
    "1-of-1m": Scenario(1, 1024 * KIB, 600),
    "100-of-64k": Scenario(100, 64 * KIB, 150),
    "1000-of-64k": Scenario(1_000, 64 * KIB, 15),
    "100-of-100": Scenario(100, 100, 4_000, batch=100),
    "1000-of-100": Scenario(1_000, 100, 400, batch=100),
    "10000-of-100": Scenario(10_000, 100, 200, batch=100),
}


class Consumer(Peer):
    """A client that, once its deliveries begin, only counts bytes, which costs little beside the broker."""

    taken_bytes = 0
    counts = False

    def _take(self, data: bytes) -> bytes:
        if not self.counts:
            return super()._take(data)
        self.taken_bytes += len(data)
        return b""

    def wait_taken(self, size_bytes: int) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self.taken_bytes >= size_bytes, PATIENCE_S):
                raise TimeoutError(f"{self.taken_bytes:,} of {size_bytes:,} bytes delivered")


def tag_of(number: int) -> str:
    return f"{number:06}"


def delivery_bytes(body_bytes: int) -> int:
    """Return the size of a delivery's frames; all tags have six characters."""
    method = 4 + 1 + len(tag_of(0)) + 8 + 1 + 1 + len(EXCHANGE) + 1 + len(KEY)
    return method + 14 + body_bytes + OVERHEAD * (2 + -(-body_bytes // PART))


def probe(address: tuple[str, int], ends: Any) -> None:
    """Ask until told to stop; send the seconds that each answer took."""
    peer, took = Peer(address), []
    ends.send(None)
    while not ends.poll(PROBE_EVERY_S):
        began_s = time.monotonic()
        peer.call(1, QueueDeclare(PROBED, passive=True))
        took.append(time.monotonic() - began_s)
    ends.send(took)


@contextmanager
def probing(address: tuple[str, int], about: str) -> Iterator[None]:
    """Have another process ask the broker meanwhile; print how long the answers took."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=probe, args=(address, theirs))
    process.start()
    ours.recv()
    try:
        yield
    finally:
        ours.send(None)
        took_ms = sorted(each * 1000 for each in ours.recv())
        process.join()
    at_99 = took_ms[len(took_ms) * 99 // 100]
    sys.stdout.write(
        f"{about}: {len(took_ms)} answers, p99 {at_99:.1f} ms, longest {took_ms[-1]:.1f} ms\n"
    )


def run(broker: Broker, key: str) -> tuple[float, float]:
    """Return deliveries per second, and the broker's CPU time for each in microseconds."""
    scenario = SCENARIOS[key]
    address = broker.host, broker.port
    publisher, consumer = Peer(address), Consumer(address)
    names = [f"bench.fan.{number}" for number in range(scenario.queues)]
    tags = [tag_of(number) for number in range(scenario.queues)]
    publisher.call(1, QueueDeclare(PROBED))
    publisher.call(1, ExchangeDeclare(EXCHANGE, "fanout"))
    publisher.calls(1, [QueueDeclare(name) for name in names])
    publisher.calls(1, [QueueBind(name, EXCHANGE) for name in names])
    consumes = [BasicConsume(name, tag, no_ack=True) for name, tag in zip(names, tags, strict=True)]
    consumer.calls(1, consumes)
    one = message(1, KEY, bytes(scenario.body_bytes), exchange=EXCHANGE.encode())
    batch = one * scenario.batch
    deliveries = scenario.messages * scenario.queues
    consumer.counts = True
    with probing(address, f"{key}: {broker.name}"):
        before_s, began_s = cpu_s(broker), time.monotonic()
        for _ in range(scenario.messages // scenario.batch):
            publisher.raw(batch)
        consumer.wait_taken(deliveries * delivery_bytes(scenario.body_bytes))
        took_s, used_s = time.monotonic() - began_s, cpu_s(broker) - before_s
    consumer.drop()
    publisher.calls(1, [QueueDelete(name) for name in [*names, PROBED]])
    publisher.close()
    return deliveries / took_s, used_s / deliveries * 1e6


def main() -> None:
    about = {key: scenario.about for key, scenario in SCENARIOS.items()}
    options = rounds.parser(__doc__, SCENARIOS).parse_args()
    rounds.compare("fan-out", options, about, run)


if __name__ == "__main__":
    main()
