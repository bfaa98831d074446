"""The page of turns: what ``turns.py`` has found, as a table in ``docs/reference/``.

python benchmarks/operations/turn_table.py benchmarks/results/<date>-<commit>-turns.json docs/reference/turns.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_HEAD = """\
# The longest turn of each operation

One event loop serves all clients, so the longest iteration of the loop is the longest wait of everybody
([how turns are bounded](../architecture.md#how-turns-are-bounded)). This table has every operation that a peer or an operator can make large,
at the largest size that the defaults allow (queues, bindings and messages have no limit: at the size in the table), with the longest
iteration from its beginning until the broker is idle again, and the longest garbage collection, which is part of an iteration.
The figures are milliseconds of CPU time of the loop's thread; those above {limit:g} are bold. An operation that takes
more than {close:g} is measured three times, and the table has the median.

[benchmarks/turns.py](../../benchmarks/turns.py) has measured them, and `make turns` writes this page: do not edit it.

| | |
|---|---|
| date | {date} |
| commit | {commit}{earlier} |
| machine | {cpu}, {cores} processors, {system} |
| Python | {python} |
| protocol kernel | {kernel} |
| loop | {loop} |
| operations | {count} of {known} measured, of which {late} above {limit:g} ms |

| operation | size | longest iteration, ms | longest collection, ms |
|---|---|--:|--:|
"""
_EARLIER = "; figures up to {close:g} ms are single measurements of {earlier}"


def page(found: dict[str, Any]) -> str:
    """Return the page for the results of a run."""
    limit, machine = found["limit_ms"], found["machine"]
    rows = found["operations"]
    head = _HEAD.format(
        limit=limit,
        close=found.get("close_ms", limit),
        date=found["date"],
        commit=found["commit"],
        earlier=_EARLIER.format(close=found["close_ms"], earlier=found["earlier"])
        if found.get("earlier")
        else "",
        cpu=machine["cpu"],
        cores=machine["cores"],
        system=machine["system"],
        python=found["versions"]["python"],
        kernel=found["kernel"],
        loop=found["loop"],
        count=len(rows),
        known=found["known"],
        late=sum(is_late(row, limit) for row in rows),
    )
    return head + "".join(_row(row, limit) for row in rows)


def is_late(row: dict[str, Any], limit_ms: float) -> bool:
    """Return whether an operation has taken too long, or was not carried out."""
    return bool(row["problem"]) or max(row["iteration_ms"], row["collection_ms"]) > limit_ms


def _row(row: dict[str, Any], limit_ms: float) -> str:
    size = ". ".join(each for each in (row["size"], row["note"]) if each)
    if row["problem"]:
        return f"| {row['operation']} | {size} | **not measured: {row['problem']}** | |\n"
    figures = [
        f"**{each:.1f}**" if each > limit_ms else f"{each:.1f}"
        for each in (row["iteration_ms"], row["collection_ms"])
    ]
    return f"| {row['operation']} | {size} | {figures[0]} | {figures[1]} |\n"


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    target.write_text(page(json.loads(source.read_text())))


if __name__ == "__main__":
    main()
