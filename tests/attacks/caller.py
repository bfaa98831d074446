"""An honest client whose requests are timed: it declares and deletes queues, publishes with confirms, and logs in.

    python -P caller.py HOST PORT

It also times how much later than the one before each of the broker's heartbeats comes.

It answers each line on stdin with a line of JSON about the time since the last: latencies in ms, by request. An answer
that does not come within a minute ends it with an error.
"""

from __future__ import annotations

import json
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from attacks.probe import at
from conformance import wire
from conformance.raw import Connection

PAUSE_S = 0.01
ANSWER_S = 60.0
NOTICES = {"connection.blocked", "connection.unblocked"}
PURGED_AFTER = 100
HEARTBEAT_S = 1  # a silent broker sends two in this time
HEARTBEATS = 10  # connections that have heartbeats alone


class Heartbeats:
    """Connections that send and receive nothing but heartbeats, on a thread."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.late_ms: list[float] = []
        connections = [Connection(address) for _ in range(HEARTBEATS)]
        for each in connections:
            assert each.open(heartbeat=HEARTBEAT_S).name == "connection.open-ok"
        self._sockets = [each.socket for each in connections]
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        heartbeat = wire.frame(wire.HEARTBEAT, 0, b"")
        due_s = dict.fromkeys(self._sockets, float("inf"))  # the first shows when the next are due
        while True:
            for each in select.select(self._sockets, [], [])[0]:
                now_s = time.monotonic()
                assert each.recv(1 << 16), "the broker closed a connection"
                each.sendall(heartbeat)
                if due_s[each] < float("inf"):
                    self.late_ms.append(max(0.0, now_s - due_s[each]) * 1000)
                due_s[each] = now_s + HEARTBEAT_S / 2


class Caller:
    """One client, and how long its requests have taken."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self.latencies: dict[str, list[float]] = {"declare": [], "confirm": [], "login": []}
        self._connection = self._log_in()
        self._channel = self._connection.channel()
        self._channel.ok("confirm.select")
        self._channel.ok("queue.declare", queue="caller", durable=True)
        heartbeats = Heartbeats(address)
        self._heartbeats = heartbeats.thread
        self.latencies["heartbeat"] = heartbeats.late_ms
        self._rounds = 0

    def _log_in(self) -> Connection:
        connection = Connection(self._address)
        connection.socket.settimeout(ANSWER_S)
        assert connection.open(heartbeat=0).name == "connection.open-ok"
        return connection

    @contextmanager
    def _timed(self, request: str) -> Iterator[None]:
        began_s = time.monotonic()
        yield
        self.latencies[request].append((time.monotonic() - began_s) * 1000)

    def round(self) -> None:
        """Make each request once."""
        assert self._heartbeats.is_alive(), "a connection with heartbeats has ended"
        self._rounds += 1
        name = f"caller{self._rounds}"
        with self._timed("declare"):
            self._channel.ok("queue.declare", queue=name, exclusive=True)
        self._channel.ok("queue.delete", queue=name)
        with self._timed("confirm"):
            self._channel.publish("caller", b"x", delivery_mode=2)
            while (answer := self._channel.read()).name in NOTICES:
                continue
        assert answer.name == "basic.ack", answer
        with self._timed("login"):
            connection = self._log_in()
        connection.drop()
        if self._rounds % PURGED_AFTER == 0:
            self._channel.ok("queue.purge", queue="caller")


def main(host: str, port: str) -> None:
    caller = Caller((host, int(port)))
    while True:
        caller.round()
        if select.select([sys.stdin], [], [], PAUSE_S)[0]:
            if not sys.stdin.readline():
                return
            report(caller.latencies)
            for latencies in caller.latencies.values():
                latencies.clear()


def report(latencies: dict[str, list[float]]) -> None:
    json.dump(
        {
            request: {"count": len(each), "p50": at(each, 0.5), "p999": at(each, 0.999)}
            for request, each in ((request, sorted(each)) for request, each in latencies.items())
        },
        sys.stdout,
    )
    sys.stdout.write("\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
