"""The answers of ``leveret store`` as text, and whether they report damage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from leveret.core.printable import printable
from leveret.server.store_tools.findings import LostIn, lost_text
from leveret.server.store_tools.stats import size_text, stats_lines, where

if TYPE_CHECKING:
    from leveret.management.json_text import Row


def is_unsound(answer: Row) -> bool:
    """Tell whether something is damaged, was left behind, or is left to be repaired."""
    return any(_is_unsound(row) for row in answer["stores"])


def _is_unsound(row: Row) -> bool:
    if "error" in row:
        return True
    if "todo" in row:
        return bool(row["todo"]) and not row["is_done"]
    if "rebuilt" in row:
        return bool(row["lost"] or row["gaps"])
    return not row.get("is_sound", True)


def _verified(row: Row) -> Iterator[str]:
    verdict = "sound" if row["is_sound"] else "DAMAGED"
    yield f"{where(row)}: {verdict}, {_contents(row)}"
    yield from (f"  {line}" for line in row["damage"])
    yield from (f"  from a crash, the next start corrects it: {line}" for line in row["of_a_crash"])
    yield from (f"  note: {line}" for line in row["notes"])


def _contents(row: Row) -> str:
    return (
        f"{row['messages']} messages of {size_text(row['message_bytes'])}"
        f" in {row['segments']} segments"
    )


def _repaired(row: Row) -> Iterator[str]:
    if not row["todo"]:
        contents = f", {_contents(row)}" if "messages" in row else ""
        yield f"{where(row)}: nothing to repair{contents}"
        return
    verdict = "repaired" if row["is_done"] else "to be repaired, with --yes"
    yield f"{where(row)}: {verdict}"
    yield from (f"  {line}" for line in row["todo"])


def _salvaged(row: Row) -> Iterator[str]:
    size = size_text(row["segment_bytes"])
    yield f"{where(row)}: {row['messages']} messages in {row['rows']} rows, {size}"
    if row["rebuilt"]:
        yield f"  from the segments alone, acked messages may be among them: {row['rebuilt']}"
    for each in row["lost"]:
        yield f"  left behind: {lost_text(LostIn(**each))}"
    for gap in row["gaps"]:
        yield f"  the journal has a gap, {gap}: messages published in it may be missing"


def _compacted(row: Row) -> Iterator[str]:
    yield (
        f"{where(row)}: segments {size_text(row['segment_bytes_before'])} ->"
        f" {size_text(row['segment_bytes'])}, index {size_text(row['index_bytes_before'])} ->"
        f" {size_text(row['index_bytes'])}"
    )


_LINES: Final[dict[str, Callable[[Row], Iterable[str]]]] = {
    "stat": stats_lines,
    "verify": _verified,
    "repair": _repaired,
    "salvage": _salvaged,
    "compact": _compacted,
}


def text_of(verb: str, answer: Row) -> str:
    """Return the answer of a verb for people."""
    lines: list[str] = []
    if damage := answer["metadata_damage"]:
        lines.append(f"definitions cannot be read, queues have no names: {damage}")
    for row in answer["stores"]:
        lines += [f"{where(row)}: {row['error']}"] if "error" in row else _LINES[verb](row)
    lines += [f"{path} belongs to no vhost" for path in answer["without_vhost"]]
    if not answer["stores"]:
        lines.append("no stores")
    text = "".join(printable(line) + "\n" for line in lines)
    return text + f"salvaged into {answer['target']}\n" if verb == "salvage" else text
