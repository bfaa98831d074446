"""A histogram of times: buckets of at most 3 % width, from 1 µs up, in constant memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

PERCENTILES: Final = (50.0, 75.0, 95.0, 99.0, 99.9)
_FINE_BITS = 5


class Histogram:
    """Counts of microseconds."""

    __slots__ = ("_buckets", "count", "max_us", "min_us")

    def __init__(self) -> None:
        self._buckets: defaultdict[int, int] = defaultdict(int)
        self.count = 0
        self.min_us = 0
        self.max_us = 0

    def add(self, us: int) -> None:
        """Count one time; a negative one (clocks) counts as 0."""
        us = max(us, 0)
        if us < 64:
            self._buckets[us] += 1
        else:
            shift = us.bit_length() - 1 - _FINE_BITS
            self._buckets[(shift << 6) + (us >> shift)] += 1
        if self.count == 0 or us < self.min_us:
            self.min_us = us
        self.max_us = max(self.max_us, us)
        self.count += 1

    def merge(self, other: Histogram) -> None:
        if not other.count:
            return
        for bucket, count in other._buckets.items():
            self._buckets[bucket] += count
        self.min_us = min(self.min_us, other.min_us) if self.count else other.min_us
        self.max_us = max(self.max_us, other.max_us)
        self.count += other.count

    def percentiles(self, wanted: Sequence[float] = PERCENTILES) -> list[int]:
        """Return percentiles in µs; 0 when empty."""
        found: list[int] = []
        buckets = sorted(self._buckets.items())
        for share in wanted:
            rank, seen, at = max(1, -(-self.count * share // 100)), 0, 0
            for bucket, count in buckets:
                seen += count
                at = bucket
                if seen >= rank:
                    break
            found.append(min(_upper(at), self.max_us))
        return found

    def summary(self) -> dict[str, int]:
        names = ("p50", "p75", "p95", "p99", "p999")
        shown = dict(zip(names, self.percentiles(), strict=True))
        return {"min": self.min_us, **shown, "max": self.max_us}


def _upper(bucket: int) -> int:
    if bucket < 64:
        return bucket
    # The mantissa has its leading bit, so one subtraction finds the shift again.
    shift = (bucket - 32) >> 6
    mantissa = bucket - (shift << 6)
    return ((mantissa + 1) << shift) - 1
