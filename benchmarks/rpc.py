#!/usr/bin/env python3
"""Thousands of RPC clients, each on a connection of its own, and one server: reply times beside RabbitMQ's.

    python benchmarks/rpc.py                                  # 5,000 clients, 2,000 requests/s, 7 rounds
    python benchmarks/rpc.py --clients 1000 --rate 4000 --brokers c
    python benchmarks/rpc.py --direct                         # direct reply-to instead of exclusive queues
    python benchmarks/rpc.py --burst                          # all clients ask at the same moment, once a second

Requests leave at fixed times, the clients taking turns; a reply time counts from the moment at which the request
should have left, so a stop counts against every request that it delays. This process is clients and server. How
late it was itself is printed as *lag*: a maximum near it says nothing about the broker.
"""

from __future__ import annotations

import argparse
import gc
import select
import socket
import statistics
import struct
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set
from harness import brokers, results
from harness.peer import frames
from harness.rounds import cpu_s

from leveret.amqp import methods, spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

REQUESTS = b"bench.rpc"
DIRECT = b"amq.rabbitmq.reply-to"
AT_ONCE = 100  # connections that are opened together
BURST_S = 1.0
READ_BYTES = 1 << 18
GRACE_S = 20.0
CLOSES = [each.to_bytes(4, "big") for each in (spec.CONNECTION_CLOSE, spec.CHANNEL_CLOSE)]
_TIME = struct.Struct(">d")
_FRAME = struct.Struct(">BHI")


class Figures:
    """Reply times of one round, and how late this process was."""

    def __init__(self) -> None:
        self.times_s: list[float] = []
        self.lag_s = 0.0

    def at(self, share: float) -> float:
        """Return a quantile in milliseconds."""
        self.times_s.sort()
        return self.times_s[min(len(self.times_s) - 1, int(share * len(self.times_s)))] * 1000


class Crowd:
    """Clients of one broker, and their server."""

    def __init__(self, broker: brokers.Broker, clients: int, is_direct: bool) -> None:
        self.broker = broker
        self._epoll = select.epoll()
        self._rest: dict[int, bytes] = {}
        self._by_number: dict[int, socket.socket] = {}
        (self._server,) = self._open([REQUESTS], is_exclusive=False)
        self._clients: list[tuple[socket.socket, bytes]] = []
        for first in range(0, clients, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, clients))
            names = [DIRECT if is_direct else b"bench.rpc.%d" % number for number in numbers]
            self._clients += zip(self._open(names), names, strict=True)
        self._next = 0

    def _open(self, queues: Sequence[bytes], is_exclusive: bool = True) -> list[socket.socket]:
        """Open a connection for each queue, and consume from it there."""
        address = self.broker.host, self.broker.port
        opened = [socket.create_connection(address, 60) for _ in queues]
        login = methods.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest")
        tuned = methods.ConnectionTuneOk(2047, 131_072, 0), methods.ConnectionOpen("/")
        _ask_all(opened, [spec.PROTOCOL_HEADER] * len(opened))
        for step in (frames(0, [login]), frames(0, tuned), frames(1, [methods.ChannelOpen()])):
            _ask_all(opened, [step] * len(opened))
        declared = [name for name in queues if name != DIRECT]
        if declared:
            declares = [
                methods.QueueDeclare(each.decode(), exclusive=is_exclusive) for each in queues
            ]
            _ask_all(opened, [frames(1, [each]) for each in declares])
        consumes = [methods.BasicConsume(each.decode(), no_ack=True) for each in queues]
        _ask_all(opened, [frames(1, [each]) for each in consumes])
        for each in opened:
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._epoll.register(each.fileno(), select.EPOLLIN)
            self._by_number[each.fileno()] = each
            self._rest[each.fileno()] = b""
        return opened

    def run(self, count: int, rate: float, is_burst: bool) -> Figures:
        """Have ``count`` requests made at a rate, or all clients at once each second; return the figures."""
        found, server = Figures(), self._server.fileno()
        began_s = now_s = time.monotonic()
        sent, end_s = 0, 0.0
        per_burst = len(self._clients)
        while len(found.times_s) < count:
            while sent < count:
                due_s = began_s + (BURST_S * (sent // per_burst) if is_burst else sent / rate)
                if due_s > now_s:
                    break
                self._ask(due_s)
                sent += 1
                if not is_burst:
                    found.lag_s = max(found.lag_s, now_s - due_s)
                end_s = due_s + GRACE_S
            wait_s = max(0.0, due_s - now_s) if sent < count else 1.0
            events = self._epoll.poll(wait_s)
            now_s = time.monotonic()
            for number, _ in events:
                data = self._rest[number] + self._by_number[number].recv(READ_BYTES)
                if number == server:
                    self._answer(number, data)
                else:
                    self._take(number, data, found.times_s, now_s)
            now_s = time.monotonic()
            if sent == count and now_s > end_s:
                raise TimeoutError(f"{len(found.times_s)} of {count} replies")
        return found

    def _ask(self, due_s: float) -> None:
        client, name = self._clients[self._next]
        self._next = (self._next + 1) % len(self._clients)
        client.send(_message(REQUESTS, _TIME.pack(due_s), name))

    def _answer(self, number: int, data: bytes) -> None:
        """Answer requests; the reply's body is that of the request."""
        replies, at, to = [], 0, b""
        for kind, start, end in _frames_of(data):
            if kind == 2:  # class, weight, size, flags, reply-to
                to = data[start + 15 : start + 15 + data[start + 14]]
            elif kind == 3:
                replies.append(_message(to, data[start:end]))
                at = end + 1
        self._rest[number] = data[at:]
        reply = memoryview(b"".join(replies))
        while reply:
            try:
                reply = reply[self._server.send(reply) :]
            except BlockingIOError:
                select.select([], [self._server], [])

    def _take(self, number: int, data: bytes, times_s: list[float], now_s: float) -> None:
        at = 0
        for kind, start, end in _frames_of(data):
            if kind == 3:
                times_s.append(now_s - _TIME.unpack_from(data, start)[0])
                at = end + 1
        self._rest[number] = data[at:]

    def close(self) -> None:
        for each in self._by_number.values():
            each.close()
        self._epoll.close()


def _ask_all(opened: Sequence[socket.socket], questions: Sequence[bytes]) -> None:
    """Ask on all connections at once, and wait for a frame on each."""
    for each, question in zip(opened, questions, strict=True):
        each.sendall(question)
    for each in opened:
        data = b""
        while not any(_frames_of(data)):
            if not (part := each.recv(READ_BYTES)):
                raise ConnectionError("closed by the broker")
            data += part
        if data[7:11] in CLOSES:
            raise ConnectionError(str(data))


def _message(key: bytes, body: bytes, reply_to: bytes = b"") -> bytes:
    method = b"\x00\x3c\x00\x28\x00\x00\x00%c%b\x00" % (len(key), key)
    header = struct.pack(">HHQ", 60, 0, len(body))
    header += b"\x02\x00%c%b" % (len(reply_to), reply_to) if reply_to else b"\x00\x00"
    return b"".join(
        b"%b%b\xce" % (_FRAME.pack(kind, 1, len(payload)), payload)
        for kind, payload in ((1, method), (2, header), (3, body))
    )


def _frames_of(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield kind, start and end of the payload of each whole frame."""
    at, size = 0, len(data)
    while size - at >= 7:
        kind, _, length = _FRAME.unpack_from(data, at)
        if at + length + 8 > size:
            return
        yield kind, at + 7, at + 7 + length
        at += length + 8


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=5_000)
    parser.add_argument("--rate", type=float, default=2_000.0, help="requests per second")
    parser.add_argument("--seconds", type=float, default=8.0, help="of a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--direct", action="store_true", help="direct reply-to")
    parser.add_argument("--burst", action="store_true", help="all clients at once")
    parser.add_argument("--brokers", default="c,rabbitmq", help="of c, py and rabbitmq")
    parser.add_argument("--out", type=Path, default=results.RESULTS, help="folder of the results")
    options = parser.parse_args()
    count = int(options.rate * options.seconds)
    if options.burst:
        count = options.clients * int(options.seconds / BURST_S)
    rows: dict[str, list[tuple[float, ...]]] = {}
    gc.freeze()
    gc.disable()
    with ExitStack() as stack:
        crowds = []
        for name in options.brokers.split(","):
            started = brokers.rabbitmq() if name == "rabbitmq" else brokers.leveret(name)
            crowd = Crowd(stack.enter_context(started), options.clients, options.direct)
            stack.callback(crowd.close)
            crowds.append(crowd)
            crowd.run(options.clients, options.rate, is_burst=False)  # containers made on first use
        for number in range(options.rounds):
            for crowd in crowds if number % 2 else reversed(crowds):
                before_s = cpu_s(crowd.broker)
                found = crowd.run(count, options.rate, options.burst)
                cpu_us = (cpu_s(crowd.broker) - before_s) / count * 1e6
                row = found.at(0.5), found.at(0.99), found.at(1.0), found.lag_s * 1000, cpu_us
                rows.setdefault(crowd.broker.name, []).append(row)
                _show(crowd.broker.name, row)
    print("medians: p50, p99, maximum, lag (ms), CPU (us per request)")
    for name, several in rows.items():
        _show(name, [statistics.median(column) for column in zip(*several, strict=True)])
    about = {
        "commit": results.commit(),
        "machine": results.machine(),
        "versions": results.versions("rabbitmq" in rows),
        "command": results.command_line("benchmarks/rpc.py"),
    }
    results.write(options.out, "rpc", {"rounds": rows}, about)


def _show(name: str, row: Sequence[float]) -> None:
    print(f"{name:10}", "  ".join(f"{each:8.2f}" for each in row), flush=True)


if __name__ == "__main__":
    main()
