"""A group's record as bytes, for a store: msgpack ``[format, epoch, version, [[node, number, is_alive], ...]]``."""

from __future__ import annotations

from typing import Any, Final

import msgpack

from leveret.gm.records.group import ENTRIES_MAX, NEW_EPOCH, Entry, GmError, Group, MemberId

RECORD_FORMAT: Final = 1
RECORD_BYTES_MAX: Final = 512 * 1024


class RecordError(GmError):
    """A record cannot be read, or not be written."""


def pack(group: Group) -> bytes:
    """Return the record as bytes.

    Raises:
        RecordError: it is above a limit.
    """
    entries = [[*entry.member, entry.is_alive] for entry in group.entries]
    packed: bytes = msgpack.packb([RECORD_FORMAT, group.epoch, group.version, entries])
    if len(entries) > ENTRIES_MAX or len(packed) > RECORD_BYTES_MAX:
        raise RecordError(
            f"record has {len(entries)} members and {len(packed)} bytes, limits {ENTRIES_MAX} and {RECORD_BYTES_MAX}: "
            "make groups smaller, or names of nodes shorter"
        )
    return packed


def unpack(packed: bytes, revision: int) -> Group:
    """Return the record that ``pack`` has packed.

    Args:
        packed: the record's bytes.
        revision: of its last write; the epoch of a record that was written with ``NEW_EPOCH``.

    Raises:
        RecordError: the bytes are no record of this format.
    """
    try:
        return _group(msgpack.unpackb(packed), revision)
    except RecordError:
        raise
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        why = "it is not msgpack" if isinstance(error, msgpack.UnpackException) else str(error)
        raise RecordError(
            f"record of {len(packed)} bytes at revision {revision} is no group: {why}; delete it, or restore it"
        ) from error


def _group(value: Any, revision: int) -> Group:
    if not isinstance(value, list) or not value or value[0] != RECORD_FORMAT:
        raise RecordError(
            f"record at revision {revision} is not of format {RECORD_FORMAT}; upgrade this node"
        )
    _, epoch, version, entries = value
    if not isinstance(entries, list):
        raise TypeError(f"{entries!r} are no entries")
    if len(entries) > ENTRIES_MAX:
        raise RecordError(
            f"record at revision {revision} has {len(entries)} members, limit {ENTRIES_MAX}"
        )
    for number in (epoch, version):
        if type(number) is not int or number < 0:
            raise ValueError(f"{number!r} is no number of an epoch or version")
    found = tuple(map(_entry, entries))
    if len({entry.member for entry in found}) < len(found):
        raise ValueError("a member has two entries")
    return Group(revision if epoch == NEW_EPOCH else epoch, version, found)


def _entry(value: Any) -> Entry:
    node, number, is_alive = value
    if type(node) is not str or type(number) is not int or type(is_alive) is not bool:
        raise TypeError(f"{value!r} is no entry [node, number, is_alive]")
    return Entry(MemberId(node, number), is_alive)
