"""Verification of a snapshot: every file, every row of its index, every message record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leveret.core.errors import StoreError
from leveret.core.files import Files
from leveret.msg_store.offline.image_check import Checked, ImageCheck
from leveret.msg_store.offline.store_image import StoreImage
from leveret.server.snapshots.copying import check_files
from leveret.server.snapshots.manifest import Manifest, StoreEntry


@dataclass(slots=True)
class Report:
    """The result of a verification.

    Attributes:
        snapshot: its name.
        rows: messages checked, counted once for every queue that holds them.
        records: message records read.
        size_bytes: of those records.
        damaged: for each queue ``vhost``, ``queue``, ``seqs``, and ``why`` for the first message.
        problems: all other damage, a line each.
    """

    snapshot: str
    rows: int = 0
    records: int = 0
    size_bytes: int = 0
    damaged: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damaged and not self.problems


def verify(
    files: Files, folder: Path, wanted: Manifest, advance: Callable[[int], None] = lambda _: None
) -> Report:
    """Read every file and message of a snapshot.

    Args:
        files: file access.
        folder: the snapshot.
        wanted: its manifest.
        advance: called now and then with the number of messages checked since the last call.
    """
    report = Report(wanted.name, problems=check_files(folder, wanted))
    for store in wanted.stores:
        try:
            with StoreImage(files, folder / store.folder) as image:
                _add(report, store, image, ImageCheck(image, advance).run())
        except (StoreError, OSError) as error:
            report.problems.append(f"vhost '{store.vhost}': {error}")
    return report


def _add(report: Report, store: StoreEntry, image: StoreImage, checked: Checked) -> None:
    report.rows += checked.rows
    report.records += checked.messages
    report.size_bytes += checked.size_bytes
    names = {no: queue.name for queue in store.queues for no in queue.queue_nos}
    for queue_no, wrong in checked.wrong.items():
        report.damaged.append(
            {
                "vhost": store.vhost,
                "queue": names.get(queue_no),
                "queue_no": queue_no,
                "seqs": [seq for seq, _ in wrong],
                "why": wrong[0][1],
            }
        )
    problems = list(checked.problems)
    for queue in store.queues:
        terms = [image.queues[no] for no in queue.queue_nos if no in image.queues]
        if (count := sum(each.messages for each in terms)) != queue.messages:
            problems.append(f"queue '{queue.name}' has {count} messages, {queue.messages} expected")
    report.problems += [f"vhost '{store.vhost}': {problem}" for problem in problems]
