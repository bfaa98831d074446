"""What an export writes, and where to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leveret.spark.errors import OptionError
from leveret.spark.jobs.selection import Selection
from leveret.spark.scan.schema import MESSAGES, columns_of

DATE: Final = "date"
TIME: Final = "enqueued_at"
KEY: Final = ("vhost", "queue", "queue_no", "seq_id", "msg_id")
PARTITIONS: Final = ("vhost", "queue", DATE)


@dataclass(frozen=True, slots=True)
class Export:
    """An export.

    Attributes:
        selection: which messages.
        target: a folder that is not there or empty; for Spark also a URI such as ``s3a://...``.
        columns: of the view; empty: all.
        partition_by: some of ``vhost``, ``queue`` and ``date`` (UTC, of the time when the broker took the message in).
    """

    selection: Selection
    target: str
    columns: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = PARTITIONS

    def __post_init__(self) -> None:
        for name in self.partition_by:
            if name not in PARTITIONS:
                raise OptionError(f"{name!r} makes no folders; there are {', '.join(PARTITIONS)}")
        columns_of("messages", self.columns or None)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The columns of the files and folders, without ``date``."""
        names = self.columns or tuple(column.name for column in MESSAGES)
        return tuple(dict.fromkeys([*names, *(each for each in self.partition_by if each != DATE)]))
