"""What only the cyclic collector frees."""

from __future__ import annotations

import gc
from collections import Counter


def garbage() -> Counter[str]:
    """Count the objects of Leveret, and asyncio's transports, that only the cyclic collector finds."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    kinds = [type(each) for each in gc.garbage]
    gc.garbage.clear()
    return Counter(
        kind.__qualname__
        for kind in kinds
        if str(kind.__module__).startswith(("leveret", "asyncio.selector_events"))
    )
