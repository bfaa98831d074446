#!/usr/bin/env python3
"""Messages through an exchange that delays, while many others wait there.

    python benchmarks/delayed.py
    python benchmarks/delayed.py --waiting 1000000 --messages 200000 --kernels c,py

Persistent messages of 100 bytes wait for an hour. Then others with a delay of 1 ms are published with confirms and
delivered to a consumer of a durable queue, which does not acknowledge. The rate counts from the first publish to the
last delivery, so each message has come in, waited on the disk, and gone out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set
from harness import brokers, results
from harness.peer import Peer, message

from leveret.amqp import spec
from leveret.amqp.methods import (
    BasicConsume,
    ConfirmSelect,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
)
from leveret.amqp.tables import encode_table

BODY = bytes(100)
HOUR_MS = 3_600_000
BATCH = 500
EXCHANGE, QUEUE = "bench.delayed", "bench.delayed"


def publish(peer: Peer, count: int, delay_ms: int) -> None:
    """Publish persistent messages with a delay."""
    table = encode_table({"x-delay": ("I", delay_ms)})
    key, exchange = QUEUE.encode(), EXCHANGE.encode()
    one = message(1, key, BODY, exchange=exchange, properties=b"\x30\x00" + table + b"\x02")
    for first in range(0, count, BATCH):
        peer.raw(one * min(BATCH, count - first))


def prepare(address: tuple[str, int], waiting: int) -> Peer:
    """Declare all, have messages wait; return the publisher."""
    peer = Peer(address)
    arguments = {"x-delayed-type": ("S", b"direct")}
    peer.call(1, ExchangeDeclare(EXCHANGE, "x-delayed-message", durable=True, arguments=arguments))
    peer.call(1, QueueDeclare(QUEUE, durable=True))
    peer.call(1, QueueBind(QUEUE, EXCHANGE, QUEUE))
    publish(peer, waiting, HOUR_MS)
    peer.call(1, ConfirmSelect())
    return peer


def run(peer: Peer, consumer: Peer, count: int) -> float:
    """Return messages per second, in and out."""
    before = consumer.seen[spec.BASIC_DELIVER]
    began_s = time.monotonic()
    publish(peer, count, 1)
    consumer.wait(spec.BASIC_DELIVER, before + count)
    return count / (time.monotonic() - began_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kernels", default="c", help="of c and py")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results"))
    options = parser.parse_args()
    found: dict[str, list[float]] = {}
    for kernel in options.kernels.split(","):
        with brokers.leveret(kernel) as broker:
            address = broker.host, broker.port
            peer, consumer = prepare(address, options.waiting), Peer(address)
            consumer.call(1, BasicConsume(QUEUE, no_ack=True))
            found[kernel] = [run(peer, consumer, options.messages) for _ in range(options.rounds)]
            sys.stdout.write(
                f"{kernel}: {statistics.median(found[kernel]):,.0f} messages/s in and out,"
                f" {options.waiting:,} waiting\n"
            )
            peer.close()
            consumer.close()
    about = {
        "commit": results.commit(),
        "machine": results.machine(),
        "waiting": options.waiting,
        "versions": results.versions(with_rabbitmq=False),
    }
    results.write(options.out, "delayed", {"rounds": found}, about)


if __name__ == "__main__":
    main()
