"""``leveret store stat``: the stats of an offline store, as text or JSON."""

from __future__ import annotations

import json
from typing import Any, Final

from leveret.core.printable import printable
from leveret.core.system.files import Files
from leveret.msg_store.index import lmdb_index
from leveret.msg_store.memtable.memtable import LiveTerms
from leveret.msg_store.offline.audit import queue_text
from leveret.msg_store.offline.inspection import Inspection
from leveret.server.store_tools.dirs import StoreAt

QUEUES_SHOWN: Final = 20
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def stats_of(store: Inspection, at: StoreAt, wall_s: float) -> dict[str, Any]:
    """Return the stats of a store."""
    report = store.report
    terms = {no: each for no, each in store.queues.items() if each.messages or no in at.names}
    segments = list(store.recovered.memtables.files.values())
    return {
        "path": str(at.path),
        "vhost": at.vhost,
        "is_clean": store.recovered.is_clean,
        "messages": sum(each.messages for each in terms.values()),
        "message_bytes": sum(each.size_bytes for each in terms.values()),
        "queues": _queues(terms, at),
        "segments": len(segments),
        "segment_bytes": sum(each.size_bytes for each in segments),
        "live_bytes": sum(each.valid_bytes for each in segments),
        "garbage_bytes": sum(each.size_bytes - each.valid_bytes for each in segments),
        **_journal(store),
        "checkpoint": _checkpoint(store, wall_s),
        "index": _index(store),
        "quarantine": _quarantine(store),
        "damage": _damage(store),
        "lost": len(report.lost),
        "never_confirmed": len(report.dropped),
    }


def _queues(terms: dict[int, LiveTerms], at: StoreAt) -> list[dict[str, Any]]:
    """Return the queues, the largest first; the queue numbers of a priority queue are one queue."""
    queues: dict[str | int, dict[str, Any]] = {}
    for no, each in sorted(terms.items()):
        name = at.names.get(no)
        row = queues.setdefault(
            no if name is None else name,
            {"queue_no": no, "name": name, "messages": 0, "message_bytes": 0},
        )
        row["messages"] += each.messages
        row["message_bytes"] += each.size_bytes
    return sorted(queues.values(), key=lambda row: (-row["messages"], row["queue_no"]))


def _journal(store: Inspection) -> dict[str, int]:
    files, numbers = store.folder.files, store.folder.journal_nos()
    size_bytes = 0
    for file_no in numbers:
        with files.open_read(store.folder.journal_path(file_no)) as file:
            size_bytes += file.size_bytes()
    return {
        "journals": len(numbers),
        "journal_bytes": size_bytes,
        "replayed_rows": store.recovered.memtables.active.weight,
    }


def _checkpoint(store: Inspection, wall_s: float) -> dict[str, Any] | None:
    point = store.lmdb.checkpoint() if store.lmdb is not None else None
    if point is None:
        return None
    written_s = (store.path / lmdb_index.FOLDER / lmdb_index.DATA).stat().st_mtime
    return {
        "lsn": point.lsn,
        "first_journal": point.first_journal,
        "boot_epoch": point.boot_epoch,
        "age_s": round(max(0.0, wall_s - written_s), 1),
    }


def _index(store: Inspection) -> dict[str, int] | None:
    index = store.lmdb
    if index is None:
        return None
    return {"bytes": index.size_bytes, "live_bytes": index.live_bytes, "entries": index.entries}


def _quarantine(store: Inspection) -> dict[str, Any]:
    """Return the stats of the quarantine on the disk, without what the inspection added in memory."""
    files, folder = Files(), store.folder.quarantine
    names = files.names(folder) if folder.is_dir() else []
    size_bytes, lost = 0, 0
    for name in names:
        if (folder / name).is_file():
            size_bytes += (folder / name).stat().st_size
        if name.endswith(".json"):
            lost += _lost_in(files.read(folder / name))
    return {"files": len(names), "bytes": size_bytes, "lost": lost}


def _lost_in(report: bytes) -> int:
    try:
        lost = json.loads(report).get("lost", [])
    except (ValueError, AttributeError):
        return 0  # damaged itself
    return len(lost) if isinstance(lost, list) else 1


def _damage(store: Inspection) -> list[str]:
    report = store.report
    index = [f"index: {report.rebuilt}"] if report.rebuilt else []
    gaps = [f"journal: {gap}" for gap in report.gaps]
    foreign = [f"{name} belongs to another store" for name in report.foreign]
    return [*filter(None, [store.format_damage]), *index, *gaps, *foreign]


def stats_lines(found: dict[str, Any]) -> list[str]:
    """Return the stats of a store for people."""
    lines = [
        f"{where(found)}: {'stopped' if found['is_clean'] else 'not stopped in order'}",
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
        name = printable(queue_text(queue["queue_no"], queue["name"]))
        is_orphan = queue["name"] is None and found["vhost"] is not None
        orphan = " (no definition)" if is_orphan else ""
        lines.append(f"  {queue['messages']:>10}  {name}{orphan}")
    if len(found["queues"]) > QUEUES_SHOWN:
        lines.append(f"  ... and {len(found['queues']) - QUEUES_SHOWN} queues more (--json)")
    return lines


def _index_text(found: dict[str, Any]) -> str:
    index, point = found["index"], found["checkpoint"]
    if index is None:
        return "none that can be used"
    written = f", up to record {point['lsn']}, written {point['age_s']:.0f} s ago" if point else ""
    sizes = f"{size_text(index['bytes'])}, {size_text(index['live_bytes'])} of it in use"
    return f"{index['entries']} entries, {sizes}{written}"


def where(found: dict[str, Any]) -> str:
    """Return a store's path and vhost."""
    vhost = found["vhost"]
    return f"store {found['path']}" + (f" of vhost {vhost!r}" if vhost is not None else "")


def size_text(size_bytes: float) -> str:
    """Return a size with a unit."""
    power = 0
    while size_bytes >= 1024 and power < len(_UNITS) - 1:
        size_bytes, power = size_bytes / 1024, power + 1
    return f"{size_bytes:.1f} {_UNITS[power]}" if power else f"{size_bytes:.0f} bytes"
