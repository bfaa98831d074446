"""The memory that rounds of work keep, as ``tracemalloc`` counts it."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable


def bytes_kept(rounds: Callable[[int], None], count: int) -> int:
    """Return how many more bytes are in use after ``count`` rounds; those before have filled the caches."""
    rounds(10)
    gc.collect()
    tracemalloc.start()
    try:
        rounds(10)
        before, _ = tracemalloc.get_traced_memory()
        rounds(count)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before
