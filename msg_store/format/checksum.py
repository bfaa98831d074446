"""Checksums of records and frames: which one, and its seed.

A file's header names the kind (``docs/decisions/0008-crc32c.md``), so that a file is read with what
it was written with, wherever that was. CRC-32C is preferred, computed by the processor through
google-crc32c's C extension; where that is missing, zlib's CRC-32 is the fastest there is.

Every checksum starts from a **seed** made of the store's uuid. A body is whatever a client sent, so
it may hold the bytes of a perfect record; without the uuid it cannot hold its checksum, and neither
a search through a damaged file nor a file of another store passes for what it is not.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from typing import Final, TypeAlias

from leveret.msg_store.format.errors import Corrupt

with warnings.catch_warnings():
    # Without its C part the module warns that it is slow; then it is used to read only.
    warnings.simplefilter("ignore", RuntimeWarning)
    import google_crc32c

Extend: TypeAlias = Callable[[int, bytes], int]

CRC32: Final = 1
CRC32C: Final = 2


def _crc32(crc: int, data: bytes) -> int:
    return zlib.crc32(data, crc)


_EXTENDERS: Final[dict[int, Extend]] = {CRC32: _crc32, CRC32C: google_crc32c.extend}

PREFERRED: Final = CRC32C if google_crc32c.implementation == "c" else CRC32


def extender(kind: int) -> Extend:
    """Return the function ``(checksum so far, bytes) -> checksum`` of a kind.

    Raises:
        Corrupt: there is no such kind.
    """
    try:
        return _EXTENDERS[kind]
    except KeyError:
        raise Corrupt(f"checksum kind {kind} is unknown") from None


def seed_of(uuid: bytes) -> int:
    """Return where the checksums of a store start."""
    return zlib.crc32(uuid)
