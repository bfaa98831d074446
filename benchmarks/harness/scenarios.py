"""The scenarios, each as options of ``leveret perf``, and the bars that they must meet.

The keys and the work are those of the neutral load generator that ``--loadgen`` takes, so results of
both can be laid side by side.
"""

from __future__ import annotations

from typing import NamedTuple


class Scenario(NamedTuple):
    """One scenario; ``count`` is per publisher at scale 1."""

    about: str
    options: str
    count: int


def _pairs(count: int, messages: int, more: str = "") -> Scenario:
    return Scenario(
        f"{count} publishers awaiting each confirm, {count} consumers and queues{', persistent' * bool(more)}",
        f"-s 256 -c 1 -q 50 -x {count} -y {count} -qp bench.%d -qpt {count}{more}",
        messages,
    )


TEN = ",".join(f"bench.{number}" for number in range(10))

SCENARIOS: dict[str, Scenario] = {
    "a16": Scenario("publish only, 16 B", "-s 16 -y 0 -u bench", 200_000),
    "a1k": Scenario("publish only, 1 KiB", "-s 1024 -y 0 -u bench", 150_000),
    "b16": Scenario("publish and consume, auto-ack, 16 B", "-s 16 -a -u bench", 200_000),
    "b1k": Scenario("publish and consume, auto-ack, 1 KiB", "-s 1024 -a -u bench", 150_000),
    "b64k": Scenario("publish and consume, auto-ack, 64 KiB", "-s 65536 -a -u bench", 20_000),
    "c1k": Scenario("manual ack, prefetch 200", "-s 1024 -q 200 -u bench", 100_000),
    "c1kv": Scenario("as c1k, message-id and size vary", "-s 1024 -q 200 --vary -u bench", 100_000),
    "d1k": Scenario(
        "persistent, confirms, window 1000, publish only",
        "-s 1024 -f persistent -c 1000 -y 0 -ad false -u bench",
        100_000,
    ),
    "d1kc": Scenario(
        "persistent, confirms, window 1000, manual ack",
        "-s 1024 -f persistent -c 1000 -q 200 -ad false -u bench",
        60_000,
    ),
    "d1w": Scenario(
        "persistent, each confirm awaited",
        "-s 1024 -f persistent -c 1 -y 0 -ad false -u bench",
        500,
    ),
    "e1k": Scenario("drain of a backlog, 1 KiB", "-s 1024 -a --consume-after -u bench", 1_000_000),
    "f10": Scenario(
        "fan-out to 10 queues", f"-s 1024 -a -t fanout -e bench.f -y 10 -u {TEN}", 20_000
    ),
    "g1": Scenario(
        "topic, 1000 bindings, 1000 keys",
        f"-s 1024 -a -t topic -e bench.t -y 10 -u {TEN} --bindings 1000",
        100_000,
    ),
    "gu": Scenario(
        "topic, 1000 bindings, a key per message",
        f"-s 1024 -a -t topic -e bench.t -y 10 -u {TEN} --bindings 1000 --keys 100000",
        100_000,
    ),
    "h2k": Scenario("2000 msg/s, manual ack", "-s 1024 -q 200 -r 2000 -u bench", 16_000),
    "j4": Scenario(
        "4 publishers, 4 consumers, 4 queues",
        "-s 1024 -q 200 -x 4 -y 4 -qp bench.%d -qpt 4",
        30_000,
    ),
    "k1": _pairs(1, 4_000),
    "k10": _pairs(10, 1_000),
    "k50": _pairs(50, 400),
    "k200": _pairs(200, 100),
    "k50p": _pairs(50, 200, " -f persistent -ad false"),
    "k200p": _pairs(200, 60, " -f persistent -ad false"),
}

SCALES = {"e1k": 0.3}
"""Scale of the scenarios that run, and are judged, shorter by default."""


class Bar(NamedTuple):
    """The limits relative to RabbitMQ in the same run, for the C kernel and the pure one.

    Attributes:
        cpu: CPU per message at most, as a fraction of RabbitMQ's.
        rate: messages per second at least, as a multiple of RabbitMQ's.
        p50: median latency at most, as a multiple of RabbitMQ's.
        p99: the same of the 99th percentile.

    None is not judged.
    """

    cpu: tuple[float, float] | None = None
    rate: tuple[float, float] | None = None
    p50: float | None = None
    p99: float | None = None


BARS: dict[str, Bar] = {
    "a16": Bar((0.12, 0.20), (7, 4.5)),
    "b16": Bar((0.12, 0.20), (7, 4.5)),
    "b1k": Bar((0.12, 0.20), (7, 4.5)),
    "b64k": Bar((0.8, 0.8), (0.9, 0.9)),
    "c1k": Bar((0.12, 0.20), (6, 4)),
    "c1kv": Bar((0.12, 0.28), (6, 3)),
    "d1k": Bar((0.25, 0.33), (4, 3)),
    "d1kc": Bar((0.25, 0.33), (4, 3)),
    "d1w": Bar(rate=(1.0, 1.0), p99=1.5),
    "e1k": Bar((0.12, 0.20), (8, 5)),
    "f10": Bar((0.12, 0.22), (6, 4)),
    "g1": Bar((0.12, 0.22), (6, 4)),
    "gu": Bar((0.25, 0.35), (4, 2.5)),
    "h2k": Bar((0.6, 0.75), p50=1.0, p99=1.0),
    "j4": Bar((0.12, 0.20), (6, 4)),
    "k1": Bar(),
    "k10": Bar(),
    "k50": Bar((0.6, 0.75), (1.5, 1.25)),
    "k200": Bar(),
    "k50p": Bar(),
    "k200p": Bar(),
}

PATH_BARS: dict[str, Bar] = {
    "h2k": Bar((0.30, 0.30), p50=0.75, p99=0.6),
    "k1": Bar(rate=(3.2, 3.2)),
    "k10": Bar((0.28, 0.28), (3, 3)),
    "k50": Bar((0.28, 0.28), (3.2, 3.2)),
    "k200": Bar((0.28, 0.28), (3.2, 3.2)),
    "k1000": Bar((0.28, 0.28), (3, 3)),
    "k50p": Bar(rate=(3.5, 3.5)),
    "k200p": Bar(rate=(3, 3)),
}
"""The bars of the compiled path, where they are other ones."""

DEFAULT = list(BARS)
