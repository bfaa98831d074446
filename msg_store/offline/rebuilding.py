"""The rebuild of an index from the segments of an offline store: what it would make, and the rebuild in place.

``recovery.rebuild`` does the work, as for a start that finds no index. It takes a message into every queue that the
message's record names, unless a journal that is left acked it. So acked messages come back whose records the collector
has not removed yet. How many is known by comparison with the index, as long as that can be read; the index is not used
for anything else.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from leveret.core.system.files import Files
from leveret.msg_store.offline.audit import Progress
from leveret.msg_store.offline.inspection import Inspection
from leveret.msg_store.offline.repair import recover
from leveret.msg_store.recovery.format_repair import restore_format

NOT_ASKED: Final = "the index was not asked"
_PROGRESS_EVERY: Final = 65_536


@dataclass(slots=True)
class RebuiltQueue:
    """The entries of a queue in a rebuilt index.

    Attributes:
        came_back: entries that the index does not have: acked messages. None if the index cannot be used.
        gone: entries of the index whose messages are in no segment, or cannot be read; None as above.
    """

    entries: int = 0
    body_bytes: int = 0
    came_back: int | None = None
    gone: int | None = None


@dataclass(slots=True)
class Rebuilt:
    """A rebuilt index.

    Attributes:
        index_damage: why the index cannot be used, and nothing is compared with it; empty if it can.
        messages: how many there are; each may be in several queues.
        epoch_seen: the highest boot epoch that was used.
    """

    index_damage: str = ""
    messages: int = 0
    epoch_seen: int = 0
    queues: dict[int, RebuiltQueue] = field(default_factory=dict)


def preview(path: Path, progress: Progress) -> Rebuilt:
    """Rebuild the index of a store in a temporary folder, and compare; the store is not changed.

    Raises:
        StoreLocked: another process has the store open.
        StoreError: it is no store, or a newer version's.
    """
    found, before = Rebuilt(), None
    with Inspection(path) as store:
        found.index_damage = store.report.rebuilt
        if not found.index_damage:
            before = _messages(store, progress)
    with Inspection(path, NOT_ASKED) as store:
        found.epoch_seen = store.epoch_seen
        found.messages = sum(1 for _ in store.locations())
        total, done = sum(terms.messages for terms in store.queues.values()), 0
        for queue_no in sorted({*store.queue_nos(), *(before or ())}):
            queue = found.queues[queue_no] = RebuiltQueue()
            known = _ascending((before or {}).get(queue_no, array("Q")))
            kept = at = 0
            for _, msg_no, size_bytes, _, _ in store.rows(queue_no):  # ascending by message, too
                queue.entries += 1
                queue.body_bytes += size_bytes
                while at < len(known) and known[at] < msg_no:
                    at += 1
                kept += at < len(known) and known[at] == msg_no
                done += 1
                if not done % _PROGRESS_EVERY:
                    progress("compared", done, total)
            if before is not None:
                queue.came_back, queue.gone = queue.entries - kept, len(known) - kept
    return found


def _messages(store: Inspection, progress: Progress) -> dict[int, array[int]]:
    """Return the messages of each queue by the index."""
    found: dict[int, array[int]] = {}
    total, done = sum(terms.messages for terms in store.queues.values()), 0
    for queue_no in store.queue_nos():
        found[queue_no] = array("Q", (row[1] for row in store.rows(queue_no)))
        done += len(found[queue_no])
        progress("index", done, total)
    for queue_no, _, msg_no, _ in store.report.lost:
        found.setdefault(queue_no, array("Q")).append(msg_no)
    return found


def _ascending(msg_nos: array[int]) -> array[int]:
    is_sorted = all(first <= second for first, second in pairwise(msg_nos))
    return msg_nos if is_sorted else array("Q", sorted(msg_nos))


def rebuild_in_place(path: Path, boot_epoch: int, now_ms: Callable[[], int]) -> list[str]:
    """Set the index of a store aside, and rebuild it; return what was put into the quarantine.

    ``boot_epoch`` is above all that were used. A rebuild that is cut off is done again by the next start.

    Raises:
        StoreLocked: another process has the store open.
        OSError: the disk is full, or fails.
    """
    files = Files()
    restore_format(files, path)
    recover(path, boot_epoch, now_ms, is_index_used=False)
    return sorted(name for name in files.names(path / "quarantine") if name.startswith("index-"))
