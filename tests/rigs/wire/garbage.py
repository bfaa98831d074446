"""What only the cyclic collector frees."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def garbage_of_block() -> Iterator[Counter[str]]:
    """Count the objects made in the block that only the cyclic collector finds.

    Only Leveret's objects and asyncio's transports count. Objects older than the block do not: other tests' brokers may
    be garbage by then; they stay frozen, as those of conftest.py do.
    """
    found: Counter[str] = Counter()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        kinds = [type(each) for each in gc.garbage]
        gc.garbage.clear()
    finally:
        gc.enable()
    found.update(
        kind.__qualname__
        for kind in kinds
        if str(kind.__module__).startswith(("leveret", "asyncio.selector_events"))
    )
