"""What only the cyclic collector frees."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def garbage_of_block() -> Iterator[Counter[str]]:
    """Count the objects made in the block that only the cyclic collector finds.

    The objects are Leveret's and asyncio's transports. What is older than the block is set aside: the brokers of other
    tests, which somebody may still have held, do not count.
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
        gc.unfreeze()
    found.update(
        kind.__qualname__
        for kind in kinds
        if str(kind.__module__).startswith(("leveret", "asyncio.selector_events"))
    )
