"""``archive.json``: what a reader of the archive must know, which never opens the index.

::

    {"format": 2, "uuid": "16 bytes in hex", "vhost": "/", "boot_epoch": 3,
     "watermark": {"segment": 12, "byte": 40960},
     "first_segment": 4, "begun": 2, "frees": 5,
     "ends": {"0000000a": 8192}, "torn": {"0000000a": [[4096, 5120]]},
     "queues": [{"name": "events", "queue_nos": [7], "retention_ms": 86400000, "retention_bytes": null,
                 "since": {"segment": 2, "byte": 5000}, "complete_from": 4,
                 "freed": {"segment": 3, "byte": 9000, "no": 4}}]}

* ``watermark``: all records below it are durable, and lie where they lie for ever. It never falls.
* ``first_segment``: the lowest segment there is; null without any.
* ``ends``: segments with bytes behind their last record that counts; a crash has cut a flush off there.
* ``torn``: bytes before such an end, or before the end of the file, that the crash has torn; no message that was
  confirmed lay there.
* ``begun``, ``frees``, and of each queue ``since``, ``complete_from`` and ``freed``: see ``archive``.

It is replaced as a whole, by a rename. A new watermark alone is not synced, all else is: a watermark that is too low
does no harm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from leveret.core.log.loggers import logger
from leveret.msg_store.archive.archive import (
    Archive,
    ArchivedQueue,
    Freed,
    Position,
    Ranges,
    Retention,
)
from leveret.msg_store.format.folder import StorePaths

log = logger(__name__)

NAME: Final = "archive.json"
_FORMAT: Final = 2


@dataclass(frozen=True, slots=True)
class ArchiveContents:
    """The contents of the file, at one moment."""

    uuid: bytes
    vhost: str
    boot_epoch: int
    watermark: Position
    first_segment: int | None
    begun: int
    frees: int
    ends: Mapping[int, int]
    torn: Mapping[int, Ranges]
    queues: Sequence[ArchivedQueue]

    def encoded(self) -> bytes:
        queues = [
            {
                "name": each.name,
                "queue_nos": list(each.queue_nos),
                "retention_ms": each.retention.age_ms,
                "retention_bytes": each.retention.size_bytes,
                "since": each.since._asdict(),
                "complete_from": each.complete_from,
                "freed": each.freed._asdict() if each.freed is not None else None,
            }
            for each in self.queues
        ]
        contents = {
            "format": _FORMAT,
            "uuid": self.uuid.hex(),
            "vhost": self.vhost,
            "boot_epoch": self.boot_epoch,
            "watermark": self.watermark._asdict(),
            "first_segment": self.first_segment,
            "begun": self.begun,
            "frees": self.frees,
            "ends": {f"{file_no:08x}": end for file_no, end in sorted(self.ends.items())},
            "torn": {f"{file_no:08x}": ranges for file_no, ranges in sorted(self.torn.items())},
            "queues": queues,
        }
        return json.dumps(contents, indent=1).encode()


def decode(data: bytes) -> ArchiveContents:
    """Read the file.

    Raises:
        ValueError: it is damaged, or of another format.
    """
    try:
        found = json.loads(data)
        if found["format"] != _FORMAT:
            raise ValueError(f"format {found['format']}, {_FORMAT} expected")
        return ArchiveContents(
            bytes.fromhex(found["uuid"]),
            str(found["vhost"]),
            int(found["boot_epoch"]),
            _position(found["watermark"]),
            found["first_segment"],
            int(found["begun"]),
            int(found["frees"]),
            {int(name, 16): int(end) for name, end in found["ends"].items()},
            {int(name, 16): _ranges(pairs) for name, pairs in found["torn"].items()},
            [_queue(each) for each in found["queues"]],
        )
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"a field is missing or of another type: {error!r}") from error


def _queue(found: Mapping[str, Any]) -> ArchivedQueue:
    retention = Retention(found["retention_ms"], found["retention_bytes"])
    numbers = tuple(map(int, found["queue_nos"]))
    if not numbers:
        raise ValueError("a queue without a number")
    freed = found["freed"]
    return ArchivedQueue(
        str(found["name"]),
        numbers,
        retention,
        _position(found["since"]),
        int(found["complete_from"]),
        Freed(*_position(freed), int(freed["no"])) if freed is not None else None,
    )


def _position(found: Mapping[str, Any]) -> Position:
    return Position(int(found["segment"]), int(found["byte"]))


def _ranges(pairs: Sequence[Sequence[int]]) -> Ranges:
    return [(int(low), int(high)) for low, high in pairs]


def read(folder: StorePaths) -> ArchiveContents | None:
    """Return the contents of a store's file; None if it has none.

    Raises:
        ValueError: it is damaged.
    """
    if NAME not in folder.files.names(folder.path):
        return None
    return decode(folder.files.read(folder.path / NAME))


def note_crash(folder: StorePaths, ends: Mapping[int, int], torn: Mapping[int, Ranges]) -> None:
    """Add to a store's file, if there is a good one, what a crash has left in its segments; older entries stay."""
    try:
        found = read(folder)
    except ValueError:
        return  # ``load`` reports it
    if found is not None:
        noted = replace(found, ends={**ends, **found.ends}, torn={**torn, **found.torn})
        folder.files.write_new(folder.path / NAME, noted.encoded())


def fault_of(folder: StorePaths, is_expected: bool) -> str:
    """Return the damage of a store's file, "" if it has none; ``is_expected``: the store had the file before."""
    try:
        found = read(folder)
    except ValueError as error:
        return f"{NAME} is damaged: {error}"
    if found is not None and found.uuid != folder.uuid:
        return f"{NAME} belongs to another store"
    return f"{NAME} is missing" if found is None and is_expected else ""


def load(folder: StorePaths, is_expected: bool = False) -> Archive:
    """Return the archive of a store as the last start left it; ``is_expected``: the store had the file before."""
    if fault := fault_of(folder, is_expected):
        log.error(
            "all segments are kept until the policies are known store=%s reason=%s",
            folder.path,
            fault,
        )
        return Archive(is_doubtful=True)
    found = read(folder)
    if found is None:
        return Archive()
    existing = set(folder.rdq_nos())
    ends = {file_no: end for file_no, end in found.ends.items() if file_no in existing}
    torn = {file_no: ranges for file_no, ranges in found.torn.items() if file_no in existing}
    return Archive(
        found.queues, ends, torn, found.begun, found.frees, segment_seen=found.watermark.segment
    )
