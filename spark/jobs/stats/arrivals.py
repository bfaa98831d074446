"""When the messages of a queue were taken in: how many in each millisecond, and the times between them.

A time between two messages may span two parts of a job, so the parts keep the times themselves, sorted and each
once: 16 bytes for each millisecond in which messages came.
"""

from __future__ import annotations

import base64
import zlib

import numpy as np

from leveret.spark.scan.gather import Numbers


class Arrivals:
    """Times of messages, in ms since 1970; two are equal if they have the same times."""

    def __init__(self) -> None:
        self._parts: list[tuple[Numbers, Numbers]] = []  # times, ascending, and how many messages

    def add(self, times_ms: Numbers) -> None:
        """Add messages, in any order."""
        if len(times_ms):
            self._parts.append(np.unique(times_ms, return_counts=True))

    def merge(self, other: Arrivals) -> None:
        self._parts += other._parts

    def gap_at(self, share: float) -> int | None:
        """Return the time between a message and the next that this share of them does not exceed; None: fewer than two.

        Messages that came in the same millisecond are 0 ms apart.
        """
        times, counts = self._settled()
        together = int(counts.sum()) - len(times)  # messages 0 ms behind the one before
        gaps = np.sort(np.diff(times))
        if not together + len(gaps):
            return None
        at = max(0, int(np.ceil(share * (together + len(gaps)))) - 1)
        return int(gaps[at - together]) if at >= together else 0

    def pack(self) -> str:
        """Return all times as text."""
        times, counts = self._settled()
        rows = np.stack((np.diff(times, prepend=0), counts)).astype("<i8")
        return base64.b64encode(zlib.compress(rows.tobytes(), 1)).decode()

    @classmethod
    def unpack(cls, text: str) -> Arrivals:
        """Return what ``pack`` has made a text of."""
        steps, counts = np.frombuffer(zlib.decompress(base64.b64decode(text)), "<i8").reshape(2, -1)
        found = cls()
        if len(steps):
            found._parts.append((np.cumsum(steps), counts.astype(np.int64)))
        return found

    def _settled(self) -> tuple[Numbers, Numbers]:
        """Make one part of all."""
        if len(self._parts) != 1:
            nothing = np.empty(0, np.int64)
            times = np.concatenate([nothing, *(part[0] for part in self._parts)])
            counts = np.concatenate([nothing, *(part[1] for part in self._parts)])
            known, at = np.unique(times, return_inverse=True)
            sums = np.zeros(len(known), np.int64)
            np.add.at(sums, at, counts)
            self._parts = [(known, sums)]
        return self._parts[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Arrivals) and self.pack() == other.pack()

    __hash__ = None  # type: ignore[assignment]
