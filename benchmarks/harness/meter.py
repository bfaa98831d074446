#!/usr/bin/env python3
"""``leveret serve`` with a meter in its event loop; ``turns.py`` starts it.

    python benchmarks/harness/meter.py FOLDER serve ...

An *iteration* is the work of the loop's thread between two polls of the selector: nobody else is served before it
ends. It is measured in CPU time of that thread, so other processes of the machine do not count; the interpreter's
garbage collections do. The longest iteration and the longest collection are in ``FOLDER/meter``, a mapped file of
three doubles: their seconds, and the iterations so far. The reader zeroes them to begin again. With
LEVERET_TURNS_STACKS ``FOLDER/stacks`` gets a paragraph for each iteration over ``STACKS_S``: the stacks that a sample
per 2 ms found.
"""

from __future__ import annotations

import gc
import mmap
import os
import selectors
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from struct import Struct
from types import FrameType
from typing import Any

FIGURES = Struct("=3d")  # longest iteration and collection in seconds, iterations
STACKS_S = 0.02
SAMPLE_S = 0.002  # of CPU time
DEPTH = 9


class Meter:
    """The figures of one measurement, in a mapped file that ``turns.py`` reads."""

    def __init__(self, folder: Path) -> None:
        with (folder / "meter").open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), FIGURES.size)
        self._stacks = (folder / "stacks").open("a")
        self._samples: Counter[str] = Counter()
        self._since_s = time.thread_time()
        self._collecting_since_s = 0.0
        if os.environ.get("LEVERET_TURNS_STACKS"):
            signal.signal(signal.SIGPROF, self._sample)
            signal.setitimer(signal.ITIMER_PROF, SAMPLE_S, SAMPLE_S)
        gc.callbacks.append(self._collected)

    def polls(self) -> None:
        """An iteration ends."""
        took_s = time.thread_time() - self._since_s
        iteration_s, collection_s, count = FIGURES.unpack(self._map)
        FIGURES.pack_into(self._map, 0, max(iteration_s, took_s), collection_s, count + 1)
        if self._samples:
            samples, self._samples = self._samples, Counter()  # a signal may add one at any moment
            if took_s > STACKS_S:
                lines = [f"  {seen:4} {stack}" for stack, seen in samples.most_common(8)]
                print(
                    f"{took_s * 1000:.1f} ms", *lines, "", sep="\n", file=self._stacks, flush=True
                )

    def polled(self) -> None:
        """An iteration begins."""
        self._since_s = time.thread_time()

    def _sample(self, _: int, frame: FrameType | None) -> None:
        names: list[str] = []
        while frame is not None and len(names) < DEPTH:
            code = frame.f_code
            names.append(f"{Path(code.co_filename).stem}.{code.co_qualname}:{frame.f_lineno}")
            frame = frame.f_back
        self._samples[" < ".join(names)] += 1

    def _collected(self, phase: str, _: dict[str, int]) -> None:
        now_s = time.thread_time()  # of the thread that collects, whichever it is
        if phase == "start":
            self._collecting_since_s = now_s
            return
        iteration_s, collection_s, count = FIGURES.unpack(self._map)
        collection_s = max(collection_s, now_s - self._collecting_since_s)
        FIGURES.pack_into(self._map, 0, iteration_s, collection_s, count)


def metered(meter: Meter) -> type[selectors.BaseSelector]:
    """Return asyncio's selector with the meter around its polls."""

    class MeteredSelector(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            meter.polls()
            try:
                return super().select(timeout)
            finally:
                meter.polled()

    return MeteredSelector


def main() -> Any:
    """Run ``leveret`` with the arguments behind the folder."""
    folder = Path(sys.argv[1])
    selectors.DefaultSelector = metered(Meter(folder))  # type: ignore[misc, assignment]
    from leveret.server.cli.main import main as leveret_main

    return leveret_main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
