#!/usr/bin/env python3
"""The longest iteration of the event loop, for each operation that a peer can make large.

    python benchmarks/turns.py                          # all operations: half an hour
    python benchmarks/turns.py --only delete,purge      # those with one of these words in operation or size
    python benchmarks/turns.py --scale 0.1              # a tenth of each size
    python benchmarks/turns.py --stacks --only purge    # and where the long iterations were
    python benchmarks/turns.py --check                  # exit 1 when one is over 50 ms
    python benchmarks/turns.py --out benchmarks/results --table docs/reference/turns.md
    python benchmarks/turns.py --earlier <results>-turns.json ...    # only those near the limit in an earlier run

Each operation gets a fresh ``leveret serve`` with its defaults (``harness/meter.py``) and is carried out over real
sockets by this process (``harness/peer.py``). The table shows the longest iteration of the loop and the longest garbage
collection, in milliseconds of CPU time, from the operation's beginning until the broker is idle again.
The modules of ``operations/`` have the operations, a function each.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set
from harness import results
from operations import (
    delays,
    ends,
    letters,
    listeners,
    messages,
    operators,
    plugins,
    topology,
    transactions,
    turn_table,
)
from operations.operation import Operation
from operations.rig import KERNEL, LOOP, rig

LIMIT_MS = 50.0
CLOSE = 0.8  # of the limit: from there on a noisy machine decides, and three measurements are made
OPERATIONS: list[Operation] = [
    *topology.OPERATIONS,
    *messages.OPERATIONS,
    *letters.OPERATIONS,
    *ends.OPERATIONS,
    *transactions.OPERATIONS,
    *operators.OPERATIONS,
    *listeners.OPERATIONS,
    *plugins.OPERATIONS,
    *delays.OPERATIONS,
]


def main() -> int:
    """Run the operations and print the table."""
    options = _parser().parse_args()
    words = [word for word in options.only.split(",") if word]
    earlier = json.loads(options.earlier.read_text()) if options.earlier is not None else {}
    rows = {(row["operation"], row["size"]): row for row in earlier.get("operations", ())}
    found: list[dict[str, Any]] = []
    print(f"{'operation':44} {'size':52} {'ms':>8} {'gc ms':>7}", flush=True)
    for operation in OPERATIONS:
        label = f"{operation.name} {operation.size}"
        if words and not any(word in label for word in words):
            continue
        row = rows.get((operation.name, operation.size))
        if row is None or is_close(row, options.limit):
            row = _median(operation, options)
        found.append(row)
    about = {
        "commit": results.commit(),
        "machine": results.machine(),
        "versions": results.versions(with_rabbitmq=False),
        "kernel": KERNEL,
        "loop": LOOP,
        "scale": options.scale,
        "limit_ms": options.limit,
        "close_ms": CLOSE * options.limit,
        "known": len(OPERATIONS),
        "earlier": earlier.get("earlier") or earlier.get("commit", ""),
    }
    if options.out is not None or options.table is not None:
        with tempfile.TemporaryDirectory() as name:
            file = results.write(options.out or Path(name), "turns", {"operations": found}, about)
            if options.table is not None:
                options.table.write_text(turn_table.page(json.loads(file.read_text())))
    late = sum(turn_table.is_late(row, options.limit) for row in found)
    print(f"{len(found)} operations, {late} over {options.limit:g} ms or not carried out")
    return 1 if options.check and late else 0


def is_close(row: dict[str, Any], limit_ms: float) -> bool:
    """Return whether a figure is so near to the limit that one measurement does not decide."""
    return turn_table.is_late(row, CLOSE * limit_ms)


def _median(operation: Operation, options: argparse.Namespace) -> dict[str, Any]:
    """Measure an operation; if it comes close to the limit, three times, and return the median."""
    measured = [_measured(operation, options)]
    if is_close(measured[0], options.limit):
        measured += [_measured(operation, options) for _ in range(2)]
    measured.sort(key=lambda row: (bool(row["problem"]), row["iteration_ms"]))
    return measured[len(measured) // 2]


def _measured(operation: Operation, options: argparse.Namespace) -> dict[str, Any]:
    """Carry out an operation once; print its figures and return them."""
    with rig(options.scale, "1" if options.stacks else "") as each:
        problem = ""
        try:
            operation.run(each)
            each.settle()
        except Exception as error:  # noqa: BLE001  # the other operations go on
            problem = f"{type(error).__name__}: {error}"
        row = {
            "operation": operation.name,
            "size": operation.size,
            "note": operation.note,
            **{name: round(figure, 1) for name, figure in each.found().items()},
            "problem": problem,
        }
        mark = "!" if turn_table.is_late(row, options.limit) else ""
        print(
            f"{operation.name:44} {operation.size:52} {row['iteration_ms']:8.1f}"
            f" {row['collection_ms']:7.1f} {mark}{problem}",
            flush=True,
        )
        if options.stacks:
            print(each.stacks(), flush=True)
    return row


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="words, with commas between them")
    parser.add_argument("--scale", type=float, default=1.0, help="of the sizes")
    parser.add_argument("--limit", type=float, default=LIMIT_MS, help="in milliseconds")
    parser.add_argument(
        "--earlier", type=Path, help="JSON of a run whose figures far below the limit are kept"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 when one is over the limit")
    parser.add_argument("--stacks", action="store_true", help="show where long iterations were")
    parser.add_argument("--out", type=Path, help="folder for the figures as JSON")
    parser.add_argument("--table", type=Path, help="file for the figures as a page of docs/")
    return parser


if __name__ == "__main__":
    sys.exit(main())
