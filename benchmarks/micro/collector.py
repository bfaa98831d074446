"""Costs of a merge of two full segments that hold messages still in use.

Prints seconds and CPU per merge, and microseconds of CPU per message copied; the disk is the real one,
in a temporary folder, and its cache is warm.

    .venv/bin/python -P benchmarks/micro/collector.py
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from leveret.core.message import origin_of
from leveret.core.system.files import Files
from leveret.msg_store.format.append_log import AppendLog
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.format.file_header import Identity
from leveret.msg_store.format.folder import SEGMENT_NAME, StoreFolder
from leveret.msg_store.format.rows import Location
from leveret.msg_store.gc.copy import Copy, copy
from leveret.msg_store.gc.scan import Source, ask_index, scan
from leveret.msg_store.wal.segment_writer import SegmentWriter

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))  # also where PYTHONSAFEPATH is set

from rigs.store.memory_index import MemoryIndex

FILES = 2
BATCH = 500


class Thinned(MemoryIndex):
    """Needs every second run of ``run`` messages."""

    def __init__(self, places: dict[int, Location], run: int) -> None:
        super().__init__()
        self.by_msg_no = {no: place for no, place in places.items() if no // run % 2}


def fill(folder: StoreFolder, body_bytes: int) -> dict[int, Location]:
    identity = Identity(folder.uuid, 1)
    writer = SegmentWriter(identity, 1)
    log = AppendLog(folder.files, folder.rdq, SEGMENT_NAME, Ballast(folder.files, folder.path, 0))
    message = (origin_of(b"", b"queue"), bytes(20), bytes(body_bytes))
    places: dict[int, Location] = {}
    while writer.place.file_no <= FILES:
        first = identity.first_no + len(places)
        job, new = writer.job([(first + n, (message, (1,))) for n in range(BATCH)], 0)
        for _ in log.run(job):
            pass
        places |= new
    log.close()
    return places


def finish(*jobs: Iterable[str]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    for job in jobs:
        for _ in job:
            pass
    return time.perf_counter() - wall, time.process_time() - cpu


def measure(folder: StoreFolder, places: dict[int, Location], run: int, file_no: int) -> str:
    sources = [Source(number) for number in range(1, FILES + 1)]
    scanned = finish(*(scan(folder, source) for source in sources))
    index = Thinned(places, run)
    asked = finish(*(ask_index(index, source) for source in sources))
    made = Copy(file_no, sources, 1, 0)
    copied = finish(copy(folder, made))
    count = sum(sum(map(bool, source.needed)) for source in sources)
    cpu = scanned[1] + asked[1] + copied[1]
    parts = " ".join(f"{wall:6.2f} s" for wall, _ in (scanned, asked, copied))
    return f"{count:7} messages  scan, index, copy {parts}  {cpu / count * 1e6:5.1f} us each"


def main() -> None:
    for body_bytes in (100, 1024, 16 * 1024):
        with tempfile.TemporaryDirectory() as path:
            folder = StoreFolder(Files(), Path(path) / "store", lambda: bytes(16), lambda: 0)
            places = fill(folder, body_bytes)
            for file_no, run in ((100, 1), (101, 16)):
                what = f"bodies of {body_bytes:6} B, runs of {run:2}"
                print(what, measure(folder, places, run, file_no))
            folder.close()


if __name__ == "__main__":
    main()
