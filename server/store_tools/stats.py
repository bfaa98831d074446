"""``leveret store stat``: the stats of an offline store."""

from __future__ import annotations

import json
from typing import Any

from leveret.core.system.files import Files
from leveret.msg_store.index import lmdb_index
from leveret.msg_store.memtable.memtable import LiveTerms
from leveret.msg_store.offline.inspection import Inspection
from leveret.msg_store.offline.store_at import StoreAt


def stats_of(store: Inspection, at: StoreAt, wall_s: float) -> dict[str, Any]:
    """Return the stats of a store."""
    report = store.report
    terms = {no: each for no, each in store.queues.items() if each.messages or no in at.names}
    segments = list(store.recovered.memtables.files.values())
    return at.row | {
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
    return [*filter(None, [store.format_damage]), *store.report.of_files]
