"""The answers of ``leveret store`` as text, and whether they report damage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from leveret.core.printable import printable
from leveret.msg_store.offline.store_at import queue_text
from leveret.server.store_tools.findings import LostIn, lost_text

if TYPE_CHECKING:
    from leveret.management.json_text import Row

QUEUES_SHOWN: Final = 20
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


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
    yield f"{verdict}, {_contents(row)}"
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
        yield f"nothing to repair{contents}"
        return
    verdict = "repaired" if row["is_done"] else "to be repaired, with --yes"
    yield verdict
    yield from (f"  {line}" for line in row["todo"])


def _salvaged(row: Row) -> Iterator[str]:
    size = size_text(row["segment_bytes"])
    yield f"{row['messages']} messages in {row['rows']} rows, {size}"
    if row["rebuilt"]:
        yield f"  from the segments alone, acked messages may be among them: {row['rebuilt']}"
    for each in row["lost"]:
        yield f"  left behind: {lost_text(LostIn(**each))}"
    for gap in row["gaps"]:
        yield f"  the journal has a gap, {gap}: messages published in it may be missing"


def _compacted(row: Row) -> Iterator[str]:
    yield (
        f"segments {size_text(row['segment_bytes_before'])} ->"
        f" {size_text(row['segment_bytes'])}, index {size_text(row['index_bytes_before'])} ->"
        f" {size_text(row['index_bytes'])}"
    )


def _stats(found: Row) -> list[str]:
    lines = [
        "stopped" if found["is_clean"] else "not stopped in order",
        f"  messages   {found['messages']}, bodies {size_text(found['message_bytes'])}",
        f"  segments   {found['segments']}, {size_text(found['segment_bytes'])}:"
        f" {size_text(found['live_bytes'])} live, {size_text(found['garbage_bytes'])} garbage",
        f"  journal    {found['journals']} files, {size_text(found['journal_bytes'])},"
        f" {found['replayed_rows']} rows above the index",
        f"  index      {_index_text(found)}",
        f"  quarantine {found['quarantine']['files']} files,"
        f" {size_text(found['quarantine']['bytes'])}; {found['quarantine']['lost']} messages lost",
    ]
    lines += [f"  damage     {each}" for each in found["damage"]]
    if found["lost"]:
        lines.append(f"  lost       {found['lost']} messages cannot be read")
    for queue in found["queues"][:QUEUES_SHOWN]:
        name = queue_text(queue["queue_no"], queue["name"])
        is_orphan = queue["name"] is None and found["vhost"] is not None
        orphan = " (no definition)" if is_orphan else ""
        lines.append(f"  {queue['messages']:>10}  {name}{orphan}")
    if len(found["queues"]) > QUEUES_SHOWN:
        lines.append(f"  ... and {len(found['queues']) - QUEUES_SHOWN} queues more (--json)")
    return lines


def _index_text(found: Row) -> str:
    index, point = found["index"], found["checkpoint"]
    if index is None:
        return "none that can be used"
    written = f", up to record {point['lsn']}, written {point['age_s']:.0f} s ago" if point else ""
    sizes = f"{size_text(index['bytes'])}, {size_text(index['live_bytes'])} of it in use"
    return f"{index['entries']} entries, {sizes}{written}"


def _where(found: Row) -> str:
    """Return a store's path and vhost."""
    vhost = found["vhost"]
    return f"store {found['path']}" + (f" of vhost {vhost!r}" if vhost is not None else "")


def size_text(size_bytes: float) -> str:
    """Return a size with a unit."""
    power = 0
    while size_bytes >= 1024 and power < len(_UNITS) - 1:
        size_bytes, power = size_bytes / 1024, power + 1
    return f"{size_bytes:.1f} {_UNITS[power]}" if power else f"{size_bytes:.0f} bytes"


_LINES: Final[dict[str, Callable[[Row], Iterable[str]]]] = {
    "stat": _stats,
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
    if difference := answer["metadata_difference"]:
        lines.append(f"definitions are not those of this node, a broker refuses them: {difference}")
    for row in answer["stores"]:
        first, *rest = [row["error"]] if "error" in row else _LINES[verb](row)
        lines += [f"{_where(row)}: {first}", *rest]
    lines += [f"{path} belongs to no vhost" for path in answer["without_vhost"]]
    if not answer["stores"]:
        lines.append("no stores")
    text = "".join(printable(line) + "\n" for line in lines)
    return text + f"salvaged into {answer['target']}\n" if verb == "salvage" else text
