"""Costs of a message in a variable queue that fits into RAM, with an index and without one.

Transient messages of 1 KiB, no RAM target: publish, fetch with acks and ack, in batches of 100 and one
at a time, and publish_delivered with ack. CPU microseconds per message, the best of many rounds, the two
queues in turn so that a slow moment hits both.

    .venv/bin/python -P benchmarks/micro/backing_queue.py
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Any

from leveret.queue_backing.variable.queue import VariableQueue

ROUNDS = 400
MESSAGES = 800  # per round
BYTES_MAX = 256 * 1024


class MonotonicClock:
    def monotonic_s(self) -> float:
        return time.monotonic()


class UnusedIndex:
    """Transient messages that fit into RAM never reach it."""


def cycle(queue: Any, batch: int) -> tuple[float, float, float]:
    """Publish, fetch and ack in batches; return the seconds each took."""
    messages = [(b"origin", b"head", bytes(1024)) for _ in range(batch)]
    size_bytes = 1024 * batch
    now = time.perf_counter
    times = [0.0, 0.0, 0.0]
    publish, fetch, ack = queue.publish, queue.fetch, queue.ack
    queue.publish(messages, False, None, size_bytes)  # never quite empty
    for _ in range(MESSAGES // batch):
        start = now()
        publish(messages, False, None, size_bytes)
        published = now()
        seqs = fetch(batch, BYTES_MAX, True).seqs
        fetched = now()
        ack(seqs)
        times[2] += now() - fetched
        times[1] += fetched - published
        times[0] += published - start
    queue.ack(queue.fetch(batch, BYTES_MAX, True).seqs)
    return times[0], times[1], times[2]


def straight(queue: Any, batch: int) -> tuple[float, ...]:
    """Publish to waiting consumers and ack."""
    messages = [(b"origin", b"head", bytes(1024)) for _ in range(batch)]
    publish, ack = queue.publish_delivered, queue.ack
    start = time.perf_counter()
    for _ in range(MESSAGES // batch):
        first, _ = publish(messages, False, None, 1024 * batch)
        ack(list(range(first, first + batch)))
    return (time.perf_counter() - start,)


def best(work: Callable[[Any, int], tuple[float, ...]], batch: int) -> list[list[float]]:
    """Return microseconds per message of each step, for both queues."""
    queues = [VariableQueue(), VariableQueue(UnusedIndex(), MonotonicClock())]  # type: ignore[arg-type]
    rounds: list[list[tuple[float, ...]]] = [[], []]
    for _ in range(ROUNDS):
        for results, queue in zip(rounds, queues, strict=True):
            results.append(work(queue, batch))
    return [[min(step) / MESSAGES * 1e6 for step in zip(*r, strict=True)] for r in rounds]


def main() -> None:
    print(f"Python {platform.python_version()}, us per message: without an index, with one, ratio")
    for batch in (100, 1):
        without, with_index = best(cycle, batch)
        for name, a, b in zip(("publish", "fetch", "ack"), without, with_index, strict=True):
            print(f"batch {batch:3}  {name:12} {a:6.3f} {b:6.3f}  {b / a:.2f}")
        a, b = sum(without), sum(with_index)
        print(f"batch {batch:3}  {'all three':12} {a:6.3f} {b:6.3f}  {b / a:.2f}")
        (a,), (b,) = best(straight, batch)
        print(f"batch {batch:3}  {'straight+ack':12} {a:6.3f} {b:6.3f}  {b / a:.2f}")


main()
