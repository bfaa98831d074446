"""Costs of the store's kernels per message of 1 KiB; the best of some calls on a batch.

.venv/bin/python -P benchmarks/micro/store_kernel.py [calls]
"""

from __future__ import annotations

import importlib
import platform
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from leveret.core.message import origin_of
from leveret.msg_store.format.file_header import CRC32C, extender
from leveret.msg_store.format.record import unpack_meta
from leveret.msg_store.format.record_encoding import encode_run

COUNT = 1_000
SEED = 9
MESSAGE = (origin_of(b"", b"queue"), bytes(14), bytes(1024))


def parts_of(meta: bytes) -> tuple[bytes, bytes]:
    found = unpack_meta(meta)
    return origin_of(found.exchange, *found.routing_keys), found.head


def best_us(call: Callable[[], object], calls: int) -> float:
    best_s = 1e9
    for _ in range(calls):
        start_s = time.process_time()
        call()
        best_s = min(best_s, time.process_time() - start_s)
    return best_s / COUNT * 1e6


def steps(kernel: Any) -> dict[str, Callable[[], object]]:
    parts: list[bytes] = []
    msg_nos = [*range(COUNT)]
    lengths = encode_run(
        [(no, (MESSAGE, (1,))) for no in msg_nos], 5, extender(CRC32C), SEED, parts
    )
    data, length = b"".join(parts), lengths[0]
    places = [(3, at * length, length, 1024, 1) for at in msg_nos]
    values = [struct.pack("<IIIII", *place) for place in places]
    rows = [(no, no, 1024, 0, 1) for no in msg_nos]
    row_values = [value for _, value in kernel.row_items(1, rows)]
    entries = kernel.entries(rows, True)
    located = [*zip(msg_nos, places, strict=True)]
    messages = dict.fromkeys(msg_nos, MESSAGE)
    return {
        "decode_run": lambda: kernel.decode_run(
            data, 0, msg_nos, places, CRC32C, SEED, parts_of, {}
        ),
        "locations": lambda: kernel.locations(values),
        "runs": lambda: kernel.runs(places, 16_384, 1 << 20),
        "total": lambda: kernel.total(places),
        "rows": lambda: kernel.rows(row_values, 0),
        "entries": lambda: kernel.entries(rows, True),
        "bytes_of": lambda: kernel.bytes_of(entries),
        "row_items": lambda: kernel.row_items(1, rows),
        "location_items": lambda: kernel.location_items(located),
        "take": lambda: kernel.take(messages.copy(), msg_nos),
        "size_of": lambda: kernel.size_of(messages.values()),
    }


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"Python {platform.python_version()}, us of CPU per message")
    pure, compiled = (
        steps(importlib.import_module(f"leveret.msg_store.format._kernel_{name}"))
        for name in ("py", "c")
    )
    for name, call in pure.items():
        print(f"{name:14} {best_us(call, calls):6.3f} {best_us(compiled[name], calls):6.3f}")


if __name__ == "__main__":
    main()
