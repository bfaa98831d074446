"""asyncio's transports, where they must not be used as they are.

A selector transport keeps its own bound method for what it reads, ``_read_ready_cb``, also when it has been closed.
That is a cycle of seven objects for each connection. The collector would find those of old connections only by a full
collection, which looks at all objects of the process and stops it for as long (``docs/decisions/0025``).

``writelines`` does not ask the protocol to pause in Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1 (CVE-2024-12254), so a
peer that does not read would have the broker keep all that is written to it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

_READS_BY: Final = "_read_ready_cb"
_NEVER_PAUSES: Final = (3, 12) <= sys.version_info < (3, 12, 9) or (
    (3, 13) <= sys.version_info < (3, 13, 2)
)


def write_parts(
    transport: asyncio.WriteTransport, parts: Sequence[bytes | bytearray | memoryview]
) -> None:
    """Write parts that need not be joined; the protocol is asked to pause if they are too much."""
    transport.writelines(parts)
    if _NEVER_PAUSES:
        low_bytes, high_bytes = transport.get_write_buffer_limits()
        transport.set_write_buffer_limits(high_bytes, low_bytes)  # looks at what waits


def descriptor_of(transport: Any) -> int:
    """Return the file descriptor of a transport's socket; -1 when it is closed, or is none."""
    found = transport.get_extra_info("socket")
    return -1 if found is None else int(found.fileno())


def plain_descriptor_of(transport: Any) -> int:
    """Return the file descriptor of a socket without TLS; -1 when there is none."""
    return descriptor_of(transport) if transport.get_extra_info("ssl_object") is None else -1


def let_go(transport: object) -> None:
    """Break the cycle of a transport that has been closed and reads no more; uvloop's have none."""
    getattr(transport, "__dict__", {}).pop(_READS_BY, None)
