"""The engine of an audit in Spark: a task reads a segment, compares all its records, and returns what is unusual.

A task gets the locations that the index has in its segment, 20 bytes per message, and needs to see the segment under
the same path. The caller reads the index and compares the sums, and no message. Segments go to Spark in waves,
so the RAM of the driver does not grow with the store beyond its index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from leveret.core.files import Files
from leveret.core.scratch_files import ScratchCalls
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.offline.segment_check import (
    CheckSegments,
    Places,
    SegmentCheck,
    check_segment,
)
from leveret.spark.jobs.engine import queries
from leveret.spark.jobs.progress import Progress

_Work = tuple[str, bytes, int, Places]  # the store's folder, its uuid, the segment

WAVE_MIN: Final = 64  # segments; of 64 MiB each, as a rule


def check_with_spark(spark: Any, progress: Progress) -> CheckSegments:
    """Return the check of segments by the tasks of a session; it raises SparkFailed."""

    def check(folder: StorePaths, segments: Iterable[tuple[int, Places]]) -> Iterator[SegmentCheck]:
        context = spark.sparkContext
        left, wave = iter(segments), max(WAVE_MIN, 4 * context.defaultParallelism)
        while some := list(islice(left, wave)):
            work: list[_Work] = []
            for file_no, places in some:
                if _is_changed(folder, file_no):  # by the replay of the journal, in this process
                    yield check_segment(folder, file_no, places)
                else:
                    work.append((str(folder.path), folder.uuid, file_no, places))
            if work:
                with queries(spark, progress):
                    found = context.parallelize(work, len(work)).map(_checked).collect()
                yield from found

    return check


def _is_changed(folder: StorePaths, file_no: int) -> bool:
    calls = folder.files.calls
    return isinstance(calls, ScratchCalls) and calls.is_changed(folder.rdq_path(file_no))


def _checked(work: _Work) -> SegmentCheck:
    path, uuid, file_no, places = work
    return check_segment(StorePaths(Files(), Path(path), uuid), file_no, places)
