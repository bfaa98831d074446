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

from py4j.protocol import Py4JError

from leveret.core.errors import StoreError
from leveret.core.system.files import Files
from leveret.core.system.scratch_files import ScratchCalls
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.offline.locations import Locations
from leveret.msg_store.offline.segment_check import CheckSegments, SegmentCheck, check_segment
from leveret.spark.jobs.engine import SparkFailed, queries
from leveret.spark.jobs.progress import Progress

_Work = tuple[str, bytes, int, Locations]  # the store's folder, its uuid, the segment

WAVE_MIN: Final = 64  # segments; of 64 MiB each, as a rule


def check_with_spark(spark: Any, progress: Progress) -> CheckSegments:
    """Return the check of segments by the tasks of a session; it raises SparkFailed."""

    def check(
        folder: StorePaths, segments: Iterable[tuple[int, Locations]]
    ) -> Iterator[SegmentCheck]:
        wave = max(WAVE_MIN, 4 * spark.sparkContext.defaultParallelism)
        left = iter(segments)
        while some := list(islice(left, wave)):
            work: list[_Work] = []
            for file_no, locations in some:
                if _is_changed(folder, file_no):  # by the replay of the journal, in this process
                    yield check_segment(folder, file_no, locations)
                else:
                    work.append((str(folder.path), folder.uuid, file_no, locations))
            if work:
                yield from _in_tasks(spark, work, progress)

    return check


def _is_changed(folder: StorePaths, file_no: int) -> bool:
    calls = folder.files.calls
    return isinstance(calls, ScratchCalls) and calls.is_changed(folder.rdq_path(file_no))


def _in_tasks(spark: Any, work: list[_Work], progress: Progress) -> Iterator[SegmentCheck]:
    """Yield the checks of segments, each made by a task of its own.

    Raises:
        StoreError: a task cannot read its segment.
        SparkFailed: the tasks failed.
    """
    try:
        with queries(spark, progress):
            found = spark.sparkContext.parallelize(work, len(work)).map(_check).collect()
    except Py4JError as error:
        raise SparkFailed(
            f"tasks that read segments failed: {str(error).splitlines()[0]}"
        ) from error
    for each in found:
        if isinstance(each, str):
            raise StoreError(each)
        yield each


def _check(work: _Work) -> SegmentCheck | str:
    """Check a segment in a task; return why it cannot be read, so that the task is not run again."""
    path, uuid, file_no, locations = work
    try:
        return check_segment(StorePaths(Files(), Path(path), uuid), file_no, locations)
    except OSError as error:
        return (
            f"segment {file_no:08x} of {path} cannot be read: {error.strerror or error}; "
            "executors must see the store under the same path as the driver"
        )
