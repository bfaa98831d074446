"""asyncio's transports, so that they are freed without the interpreter's garbage collector.

A selector transport keeps its own bound method for what it reads, ``_read_ready_cb``, also when it has been closed.
That is a cycle of seven objects for each connection. The collector would find those of old connections only by a full
collection, which looks at all objects of the process and stops it for as long (``docs/decisions/0025``).
"""

from __future__ import annotations

_READS_BY = "_read_ready_cb"


def let_go(transport: object) -> None:
    """Break the cycle of a transport that has been closed and reads no more; uvloop's have none."""
    getattr(transport, "__dict__", {}).pop(_READS_BY, None)
