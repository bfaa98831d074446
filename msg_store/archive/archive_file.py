"""``archive.json``: what a reader of the archive must know, which never opens the index.

::

    {"format": 1, "uuid": "16 bytes in hex", "boot_epoch": 3,
     "watermark": {"segment": 12, "byte": 40960},
     "first_segment": 4,
     "ends": {"0000000a": 8192},
     "queues": [{"name": "events", "queue_nos": [7], "retention_ms": 86400000, "retention_bytes": null,
                 "complete_from": 4}]}

* ``watermark``: all records below it are durable, and lie where they lie for ever. It never falls.
* ``first_segment``: the lowest segment there is; null without any.
* ``ends``: segments with bytes behind their last record that counts; a crash has cut a flush off there.
* ``complete_from``: from this segment on no record of the queue is missing (``archive``).

It is replaced as a whole, by a rename. A change of queues, ends or ``complete_from`` is synced; a new watermark is not:
one that is too low does no harm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from leveret.core.log.loggers import logger
from leveret.msg_store.archive.archive import Archive, ArchivedQueue, Retention
from leveret.msg_store.format.folder import StorePaths

log = logger(__name__)

NAME: Final = "archive.json"
_FORMAT: Final = 1


class Watermark(NamedTuple):
    """A position in the stream of a vhost's messages."""

    segment: int
    byte: int


@dataclass(frozen=True, slots=True)
class ArchiveContents:
    """The contents of the file, at one moment."""

    uuid: bytes
    boot_epoch: int
    watermark: Watermark
    first_segment: int | None
    ends: Mapping[int, int]
    queues: Sequence[ArchivedQueue]

    def encoded(self) -> bytes:
        queues = [
            {
                "name": each.name,
                "queue_nos": list(each.queue_nos),
                "retention_ms": each.retention.age_ms,
                "retention_bytes": each.retention.size_bytes,
                "complete_from": each.complete_from,
            }
            for each in self.queues
        ]
        contents = {
            "format": _FORMAT,
            "uuid": self.uuid.hex(),
            "boot_epoch": self.boot_epoch,
            "watermark": self.watermark._asdict(),
            "first_segment": self.first_segment,
            "ends": {f"{file_no:08x}": end for file_no, end in sorted(self.ends.items())},
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
        mark = found["watermark"]
        return ArchiveContents(
            bytes.fromhex(found["uuid"]),
            int(found["boot_epoch"]),
            Watermark(int(mark["segment"]), int(mark["byte"])),
            found["first_segment"],
            {int(name, 16): int(end) for name, end in found["ends"].items()},
            [_queue(each) for each in found["queues"]],
        )
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"a field is missing or of another type: {error!r}") from error


def _queue(found: Mapping[str, Any]) -> ArchivedQueue:
    retention = Retention(found["retention_ms"], found["retention_bytes"])
    numbers = tuple(map(int, found["queue_nos"]))
    if not numbers:
        raise ValueError("a queue without a number")
    return ArchivedQueue(str(found["name"]), numbers, retention, int(found["complete_from"]))


def read(folder: StorePaths) -> ArchiveContents | None:
    """Return the contents of a store's file; None if it has none.

    Raises:
        ValueError: it is damaged.
    """
    if NAME not in folder.files.names(folder.path):
        return None
    return decode(folder.files.read(folder.path / NAME))


def load(folder: StorePaths) -> Archive:
    """Return the archive of a store as the last start left it."""
    try:
        found = read(folder)
    except ValueError as error:
        log.error(
            "archive.json is damaged; all segments are kept until the policies are known store=%s error=%s",
            folder.path,
            error,
        )
        return Archive(is_doubtful=True)
    if found is None:
        return Archive()
    there = set(folder.rdq_nos())
    ends = {file_no: end for file_no, end in found.ends.items() if file_no in there}
    return Archive(found.queues, ends, segment_seen=found.watermark.segment)
