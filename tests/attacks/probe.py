"""An honest client whose messages are timed: one each 10 ms through a queue of its own, heartbeat 2 s.

    python -P probe.py HOST PORT

It answers each line on stdin with one line of JSON about the time since the last: latencies in ms. Its connection's
end ends it with an error.
"""

from __future__ import annotations

import json
import select
import struct
import sys
import time

from attacks.peer import publish
from conformance import wire
from conformance.raw import Connection

PERIOD_S = 0.01
HEARTBEAT_S = 2
# Memory or disk are short: the probe waits, which its latencies show.
NOTICES = {"heartbeat", "connection.blocked", "connection.unblocked"}
_NUMBER = struct.Struct(">Qd")


def main(host: str, port: str) -> None:
    connection = Connection((host, int(port)))
    assert connection.open(heartbeat=HEARTBEAT_S).name == "connection.open-ok"
    channel = connection.channel()
    channel.ok("queue.declare", queue="probe", exclusive=True)
    channel.ok("basic.consume", queue="probe", consumer_tag="c", no_ack=True)
    connection.socket.setblocking(False)
    heartbeat = wire.frame(wire.HEARTBEAT, 0, b"")
    latencies: list[float] = []
    sent = received = 0
    next_s = time.monotonic()
    while True:
        wait_s = max(0.0, next_s - time.monotonic())
        ready, _, _ = select.select([connection.socket, sys.stdin], [], [], wait_s)
        now_s = time.monotonic()
        if connection.socket in ready:
            data = connection.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the broker closed the probe's connection")
            connection.buffer += data
            while event := connection._from_buffer():
                if event.name == "basic.deliver":
                    number, at_s = _NUMBER.unpack(event.body)
                    assert number == received, "out of order"
                    received += 1
                    latencies.append((now_s - at_s) * 1000)
                else:
                    assert event.name in NOTICES, event
        if sys.stdin in ready:
            if not sys.stdin.readline():
                return
            report(latencies, sent - received, now_s)
            latencies = []
        if now_s >= next_s:
            connection.socket.send(publish("probe", _NUMBER.pack(sent, now_s)))
            sent += 1
            if sent % 100 == 0:
                connection.socket.send(heartbeat)
            next_s = max(next_s + PERIOD_S, now_s)


def report(latencies: list[float], under_way: int, now_s: float) -> None:
    ordered = sorted(latencies)
    json.dump(
        {
            "count": len(ordered),
            "under_way": under_way,
            "p50": at(ordered, 0.5),
            "p999": at(ordered, 0.999),
            "most": ordered[-1] if ordered else 0.0,
            "slow": [round(each, 1) for each in ordered if each > 20.0],
        },
        sys.stdout,
    )
    sys.stdout.write("\n")
    sys.stdout.flush()


def at(ordered: list[float], share: float) -> float:
    return round(ordered[int(share * (len(ordered) - 1))], 2) if ordered else 0.0


if __name__ == "__main__":
    main(*sys.argv[1:])
