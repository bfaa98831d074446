#!/usr/bin/env python3
"""What applications do, beside RabbitMQ: real clients, one message at a time, many queues, headers, lazy queues.

    python benchmarks/daily.py --loadgen DIR --rabbitc DIR/rabbitc_rate --brokers path,c,rabbitmq --rounds 7
    python benchmarks/daily.py --loadgen DIR --only prefetch-10,lazy

``--loadgen`` is the folder of the neutral generator, whose engine must take 1,000 consumers (``MAXPUB``). ``--rabbitc``
is a program on rabbitmq-c, called as ``PROGRAM HOST PORT MESSAGES BYTES [persistent]``; it publishes and consumes, and
prints messages per second. The rows ``random`` and ``headers`` are this program's own (``harness/peer.py``).
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set
from harness import brokers, rounds
from harness.peer import Peer, message

from leveret.amqp import methods, spec
from leveret.amqp.tables import encode_table
from leveret.server.perf.cpu import descendants

if TYPE_CHECKING:
    from harness.brokers import Broker

Figures = tuple[float, float]  # messages per second, microseconds of CPU for each

WRITE: Final = 100  # messages in a write of this program
IN_FLIGHT: Final = 2_000
OWN_MESSAGES: Final = 40_000
DECLARES: Final = 1_000  # in one write
END: Final = b"!\xce"  # of a message
BODY: Final = bytes(255) + END[:1]
ENTRIES: Final = 20  # in a table of headers
TARGETS: Final = 10  # queues of the headers exchange


class Row(NamedTuple):
    """One row; its program gets ``arguments``."""

    about: str
    program: str
    arguments: str


def _prefetch_one(consumers: int) -> Row:
    count = 8_000 if consumers == 1 else 20_000
    arguments = f"--size 1024 --prefetch 1 --queues 1 --cons {consumers} --count {count}"
    return Row(f"prefetch 1, {consumers} consumers of a queue", "engine", arguments)


ROWS: Final = {
    "rabbitc-100": Row("rabbitmq-c, 100 B", "rabbitc", "200000 100"),
    "rabbitc-1k": Row("rabbitmq-c, 1 KiB", "rabbitc", "200000 1024"),
    "rabbitc-1kp": Row("rabbitmq-c, 1 KiB, persistent", "rabbitc", "150000 1024 persistent"),
    **{f"prefetch-{count}": _prefetch_one(count) for count in (1, 10, 100, 1_000)},
    "lazy": Row("publish to a lazy queue", "lazy", "--mode publish --size 1024 --count 60000"),
    "lazy-drain": Row(
        "drain of a lazy queue", "lazy", "--mode drain --size 1024 --noack --count 60000"
    ),
    "random-10000": Row("a random one of 10,000 queues", "random", "10000"),
    "random-50000": Row("a random one of 50,000 queues", "random", "50000"),
    "headers-20": Row("headers exchange, tables of 20 entries", "headers", ""),
}


class Daily:
    """Carries out rows; what a row needs of a broker is made in its first round and stays."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._own: dict[tuple[str, str], Own] = {}
        self._is_lazy: set[str] = set()

    def run(self, broker: Broker, key: str) -> Figures:
        """Run a row once."""
        row = ROWS[key]
        programs: dict[str, Callable[[Broker, Row], Figures]] = {
            "rabbitc": self._rabbitc,
            "engine": self._engine,
            "lazy": self._lazy,
        }
        if row.program in programs:
            return programs[row.program](broker, row)
        if (broker.name, key) not in self._own:
            self._close(broker)
            kind = RandomQueues if row.program == "random" else Headers
            self._own[broker.name, key] = kind(broker, row)
        return self._own[broker.name, key].run(broker)

    def _close(self, broker: Broker) -> None:
        """End what an earlier row of this broker has made."""
        for place in [each for each in self._own if each[0] == broker.name]:
            self._own.pop(place).close()

    def _rabbitc(self, broker: Broker, row: Row) -> Figures:
        count, *more = row.arguments.split()
        command = [str(self._options.rabbitc), broker.host, str(broker.port), count, *more]
        before_s = rounds.cpu_s(broker)
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return float(done.stdout), (rounds.cpu_s(broker) - before_s) / int(count) * 1e6

    def _engine(self, broker: Broker, row: Row) -> Figures:
        command = [
            str(self._options.loadgen / "amqpload"),
            "--host",
            broker.host,
            "--prefix",
            "daily",
        ]
        command += ["--port", str(broker.port), *row.arguments.split()]
        command += ["--pids", ",".join(map(str, descendants(broker.pid)))]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        result: dict[str, Any] = json.loads(done.stdout)
        return result["msgs_per_s"], result["broker_cpu_us_per_msg"]

    def _lazy(self, broker: Broker, row: Row) -> Figures:
        if broker.name not in self._is_lazy:
            self._is_lazy.add(broker.name)
            brokers.set_policy(broker, "^daily", '{"queue-mode":"lazy"}')
        return self._engine(broker, row)


class Consumer(Peer):
    """Counts deliveries. Once ``is_counting`` is set, it counts ends of messages, faster than it reads frames."""

    is_counting = False

    def _take(self, data: bytes) -> bytes:
        if not self.is_counting:
            return super()._take(data)
        self.seen[spec.BASIC_DELIVER] += data.count(END)
        return data[-1:]


class Own(ABC):
    """One publisher and one consumer, which consumes from all queues with automatic acks."""

    def __init__(self, broker: Broker, row: Row) -> None:
        address = broker.host, broker.port
        self._random = random.Random(1)
        self._publisher, self.consumer = Peer(address), Consumer(address)
        self.prepare(row)
        self.consumer.is_counting = True
        some = [self.message() for _ in range(OWN_MESSAGES)]
        self._writes = [b"".join(some[at : at + WRITE]) for at in range(0, OWN_MESSAGES, WRITE)]

    @abstractmethod
    def prepare(self, row: Row) -> None:
        """Declare what the messages need."""

    @abstractmethod
    def message(self) -> bytes:
        """Return the frames of one message."""

    def consume(self, names: list[str]) -> None:
        self._many([methods.QueueDeclare(name) for name in names])
        self._many([methods.BasicConsume(name, no_ack=True) for name in names])

    def _many(self, several: list[Any]) -> None:
        for at in range(0, len(several), DECLARES):
            self.consumer.calls(1, several[at : at + DECLARES])

    def number(self, count: int) -> int:
        return self._random.randrange(count)

    def run(self, broker: Broker) -> Figures:
        """Publish all messages, and wait until they are delivered."""
        expected = self.consumer.seen[spec.BASIC_DELIVER]
        before_s, began_s = rounds.cpu_s(broker), time.monotonic()
        for write in self._writes:
            self._publisher.raw(write)
            expected += WRITE
            self.consumer.wait(spec.BASIC_DELIVER, expected - IN_FLIGHT)
        self.consumer.wait(spec.BASIC_DELIVER, expected)
        took_s = time.monotonic() - began_s
        return OWN_MESSAGES / took_s, (rounds.cpu_s(broker) - before_s) / OWN_MESSAGES * 1e6

    def close(self) -> None:
        self._publisher.drop()
        self.consumer.drop()


class RandomQueues(Own):
    """Messages to random ones of many queues, through the default exchange."""

    def prepare(self, row: Row) -> None:
        self._count = int(row.arguments)
        self.consume([f"r{self._count}.{number}" for number in range(self._count)])

    def message(self) -> bytes:
        return message(1, b"r%d.%d" % (self._count, self.number(self._count)), BODY)


class Headers(Own):
    """Messages with tables of 20 entries, two of which one of ten bindings matches."""

    def prepare(self, row: Row) -> None:
        names = [f"h.{number}" for number in range(TARGETS)]
        self.consume(names)
        self.consumer.call(1, methods.ExchangeDeclare("daily.h", "headers"))
        for number, name in enumerate(names):
            arguments: Any = {"x-match": ("S", b"all"), **self._matched(number)}
            self.consumer.call(1, methods.QueueBind(name, "daily.h", "", arguments=arguments))

    def message(self) -> bytes:
        others: Any = {f"entry-{number}": ("S", b"a value") for number in range(ENTRIES - 2)}
        table = encode_table(others | self._matched(self.number(TARGETS)))
        return message(1, b"", BODY, exchange=b"daily.h", properties=b"\x20\x00" + table)

    def _matched(self, number: int) -> Any:
        return {"kind": ("S", b"order"), "number": ("I", number)}


def main() -> int:
    """Run and report."""
    parser = rounds.parser(__doc__, ROWS)
    parser.add_argument("--loadgen", type=Path, help="folder of the engine amqpload")
    parser.add_argument("--rabbitc", type=Path, help="a program on rabbitmq-c")
    options = parser.parse_args()
    programs = {ROWS[key].program for key in options.only.split(",")}
    if options.loadgen is None and programs & {"engine", "lazy"}:
        parser.error("--loadgen DIR is needed for the rows prefetch and lazy")
    if options.rabbitc is None and "rabbitc" in programs:
        parser.error("--rabbitc PROGRAM is needed for the rows rabbitc")
    about = {key: row.about for key, row in ROWS.items()}
    rounds.compare("daily", options, about, Daily(options).run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
