"""Measure the codec kernels: microseconds per message or ack, without any socket.

    python benchmarks/micro/kernel.py [py|c ...]

Each figure is the best of some short runs over one read of up to 256 KiB (or one batch of 500
deliveries), the way a busy connection sees them.
"""

from __future__ import annotations

import importlib
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

READ_BYTES = 256 * 1024
FRAME_MAX = 131_072
MESSAGE_MAX = 1 << 27
ROUNDS = 15
METHOD = b"\x00\x3c\x00\x28\x00\x00\x00\x08queue-01\x00"
CONTENT_TYPE = b"\x18application/octet-stream"


def frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, 1, len(payload)) + payload + b"\xce"


def publish(number: int, size: int, is_same: bool) -> bytes:
    head = struct.pack(">HHQH", 60, 0, size, 0x9000 if is_same else 0x9080) + CONTENT_TYPE + b"\x02"
    if not is_same:
        head += b"\x24%036d" % number
    return frame(1, METHOD) + frame(2, head) + frame(3, b"x" * size)


def ack(number: int) -> bytes:
    return frame(1, struct.pack(">HHQB", 60, 80, number, 0))


def best_us(work: Callable[[], Any], count: int) -> float:
    """Return the best round's microseconds per message."""
    best = float("inf")
    repeats = max(1, 2000 // count)
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        best = min(best, time.perf_counter() - start)
    return best / repeats / count * 1e6


def scanning(kernel: Any, wires: list[bytes]) -> float:
    scanner = kernel.Scanner(FRAME_MAX, MESSAGE_MAX)
    data = b"".join(wires)
    runs = scanner.scan(data)
    assert sum(len(run[-1]) for run in runs) == len(wires)
    return best_us(lambda: scanner.scan(data), len(wires))


def cut(kernel: Any, size: int) -> float:
    """Scan messages in reads that end inside them."""
    scanner = kernel.Scanner(FRAME_MAX, MESSAGE_MAX)
    wire = publish(1, size, is_same=True) * (4 * READ_BYTES // size)
    reads = [wire[at : at + READ_BYTES] for at in range(0, len(wire), READ_BYTES)]
    return best_us(lambda: [scanner.scan(read) for read in reads], 4 * READ_BYTES // size)


def delivering(kernel: Any, size: int, is_same: bool) -> float:
    scanner = kernel.Scanner(FRAME_MAX, MESSAGE_MAX)
    messages = [
        message
        for number in range(500)
        for message in scanner.scan(publish(number, size, is_same))[0][4]
    ]
    return best_us(
        lambda: kernel.deliveries(1, b"ctag1.0123456789", 1, 0, FRAME_MAX, messages), 500
    )


def figures(kernel: Any) -> list[tuple[str, float]]:
    rows = []
    for size in (16, 1024):
        many = range(READ_BYTES // (size + 110))
        same = [publish(number, size, is_same=True) for number in many]
        differing = [publish(number, size, is_same=False) for number in many]
        rows += [
            (f"scan {size} B, same head", scanning(kernel, same)),
            (f"scan {size} B, one message per read", scanning(kernel, same[:1])),
            (f"scan {size} B, head per message", scanning(kernel, differing)),
            (f"deliver {size} B, same head", delivering(kernel, size, is_same=True)),
            (f"deliver {size} B, head per message", delivering(kernel, size, is_same=False)),
        ]
    rows += [
        ("scan acks", scanning(kernel, [ack(number) for number in range(10_000)])),
        ("scan 8 acks per read", scanning(kernel, [ack(number) for number in range(8)])),
        ("scan 64 KiB, cut by reads", cut(kernel, 65_536)),
        ("scan 128 KiB, cut by reads", cut(kernel, 131_072)),
    ]
    return rows


def main() -> None:
    names = sys.argv[1:] or ["py", "c"]
    kernels = {name: importlib.import_module(f"leveret.amqp._kernel_{name}") for name in names}
    columns = {name: dict(figures(kernel)) for name, kernel in kernels.items()}
    print(f"{'us per message':38}", *(f"{name:>8}" for name in names))
    for row in next(iter(columns.values())):
        print(f"{row:38}", *(f"{columns[name][row]:8.3f}" for name in names))


if __name__ == "__main__":
    main()
