"""The records of mirrored queues in etcd.

The record of a queue is under a key of its own, in msgpack::

    [version, epoch, [node, life], [[node, life], ...]]        master, and in-sync replicas with the oldest first

A record that cannot be read was written by somebody else, or by another version. It is logged with its key, and the
replicas go on as if etcd did not answer, until it is mended or deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec

from leveret.core.errors import LeveretError
from leveret.core.log.loggers import logger
from leveret.etcd.errors import ClusterError
from leveret.mirroring.replicas.record import QueueRecord, Replica, Stored

if TYPE_CHECKING:
    from leveret.etcd.key_values import KeyValues, Row, Swap

log = logger(__name__)

VERSION: Final = 1
DELETED: Final = 1 << 62  # the revision of a record that is gone: above all others

Then: TypeAlias = "Callable[[Stored | None], None]"

_No: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Replica: TypeAlias = tuple[str, _No]
_decoder: Final = msgspec.msgpack.Decoder(tuple[int, _No, _Replica, list[_Replica]])


class QueueRecordError(LeveretError):
    """The record of a mirrored queue cannot be read."""


def pack(record: QueueRecord) -> bytes:
    """Return a record as bytes."""
    return msgspec.msgpack.encode((VERSION, record.epoch, record.master, record.in_sync))


def unpack(data: bytes) -> QueueRecord:
    """Return the record that ``pack`` has written.

    Raises:
        QueueRecordError: it is none, or of another version.
    """
    try:
        version, epoch, master, in_sync = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise QueueRecordError(str(error)) from error
    if version != VERSION:
        raise QueueRecordError(f"version {version}, this node reads {VERSION}")
    replicas = tuple(Replica(*each) for each in in_sync)
    record = QueueRecord(epoch, Replica(*master), replicas)
    if record.master not in replicas or len({each.node for each in replicas}) != len(replicas):
        raise QueueRecordError(f"in-sync replicas {replicas} with the master {record.master}")
    return record


class QueueRecords:
    """The records of the queues of a cluster.

    ``then`` gets the record as it is now, ``Stored(None, DELETED)`` when there is none, and None when etcd has not
    answered: a change may take effect later.

    Args:
        rows: etcd, asked without waiting.
        prefix: of all keys; the queue's name follows.
    """

    def __init__(self, rows: KeyValues, prefix: str) -> None:
        self._rows = rows
        self._prefix = prefix
        self._logged: set[tuple[str, int]] = set()

    def key(self, name: str) -> str:
        """Return the key of a queue's record."""
        return self._prefix + name

    def read(self, name: str, then: Then) -> None:
        """Read a record."""
        key = self.key(name)

        def answer(found: Row | ClusterError | None) -> None:
            then(None if isinstance(found, ClusterError) else self.stored(key, found))

        self._rows.read(key, answer)

    def write(self, name: str, record: QueueRecord | None, revision: int, then: Then) -> None:
        """Change a record if it has this revision, 0: there is none; None deletes it."""
        key = self.key(name)

        def answer(swap: Swap | ClusterError) -> None:
            then(None if isinstance(swap, ClusterError) else self.stored(key, swap.row))

        self._rows.swap(key, None if record is None else pack(record), revision, answer)

    def stored(self, key: str, row: Row | None) -> Stored | None:
        """Return what a row of etcd says; a record that cannot be read is logged once."""
        if row is None:
            return Stored(None, DELETED)
        try:
            return Stored(unpack(row.value), row.revision)
        except QueueRecordError as error:
            if (key, row.revision) not in self._logged:
                self._logged.add((key, row.revision))
                log.error(
                    "record of a mirrored queue cannot be read key=%s revision=%d error=%s",
                    key,
                    row.revision,
                    error,
                )
            return None
