"""The share of each queue in a segment: how many records name it, their bytes, and the time of the newest.

The records of a segment name all queues of their routes, so the shares can be counted from the segment alone
(``gc.survey``). They are counted as messages are written while any queue is archived, and kept beside the segment, as
``archive/%08x.json``::

    {"format": 2, "segment": 10, "is_copy": false, "is_settled": false,
     "queues": {"7": [records, bytes, newest_ms, end]}}

They are of *all* queues, so that a policy which comes later need not read old segments again. A segment never changes,
so neither do its shares; ``is_settled`` becomes true once, when no message of it is needed any more as far as the index
goes. A rebuild of the index leaves such a segment out: its messages must not come back to their queues.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from leveret.core.log.loggers import logger
from leveret.msg_store.format.folder import StorePaths

log = logger(__name__)

FOLDER: Final = "archive"
_NAME: Final = "%08x.json"
_FORMAT: Final = 2


class Share(NamedTuple):
    """The records of a segment whose route names a queue."""

    records: int = 0
    size_bytes: int = 0  # of whole records
    newest_ms: int = 0  # since 1970
    end: int = 0  # in the segment, behind the last of them


@dataclass(slots=True)
class SegmentShares:
    """The shares of the queues in a segment, by the queue's number."""

    is_copy: bool = False  # the collector has made it of older segments
    is_settled: bool = False  # nothing in it is needed, also as the index has it
    is_saved: bool = False  # the file beside the segment says the same
    queues: dict[int, Share] = field(default_factory=dict)

    def add(self, queue_no: int, records: int, size_bytes: int, newest_ms: int, end: int) -> None:
        old = self.queues.get(queue_no, _NOTHING)
        records, size_bytes = old.records + records, old.size_bytes + size_bytes
        newest_ms, end = max(old.newest_ms, newest_ms), max(old.end, end)
        self.queues[queue_no] = Share(records, size_bytes, newest_ms, end)


_NOTHING: Final = Share()


def shares_path(folder: StorePaths, file_no: int) -> Path:
    """Return where the shares of a segment are kept."""
    return folder.path / FOLDER / (_NAME % file_no)


def save_shares(folder: StorePaths, file_no: int, shares: SegmentShares) -> None:
    """Write the file beside a segment, synced."""
    folder.files.mkdir(folder.path / FOLDER)
    queues = {str(queue_no): list(share) for queue_no, share in shares.queues.items()}
    contents = {
        "format": _FORMAT,
        "segment": file_no,
        "is_copy": shares.is_copy,
        "is_settled": shares.is_settled,
        "queues": queues,
    }
    folder.files.write_new(shares_path(folder, file_no), json.dumps(contents).encode())


def load_shares(folder: StorePaths, file_no: int) -> SegmentShares | None:
    """Return what the file beside a segment says; None where there is none, or it is damaged: count them again."""
    path = shares_path(folder, file_no)
    try:
        return _decoded(json.loads(folder.files.read(path)), file_no)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("shares of a segment are damaged, counted again path=%s error=%s", path, error)
        return None


def _decoded(contents: Mapping[str, Any], file_no: int) -> SegmentShares:
    if contents["format"] != _FORMAT or contents["segment"] != file_no:
        raise ValueError(f"format {contents['format']}, segment {contents['segment']}")
    queues = {int(no): Share(*map(int, share)) for no, share in contents["queues"].items()}
    return SegmentShares(bool(contents["is_copy"]), bool(contents["is_settled"]), True, queues)


def forget_shares(folder: StorePaths, file_no: int) -> None:
    """Remove the file beside a segment that has been unlinked."""
    with suppress(FileNotFoundError):
        folder.files.unlink(shares_path(folder, file_no))


def drop_orphans(folder: StorePaths) -> None:
    """Remove drafts, and the files of segments that are gone."""
    if FOLDER not in folder.files.names(folder.path):
        return
    existing = {_NAME % file_no for file_no in folder.rdq_nos()}
    for name in folder.files.names(folder.path / FOLDER):
        if name not in existing:
            folder.files.unlink(folder.path / FOLDER / name)
