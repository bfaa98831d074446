"""Records of groups in etcd, for members on several nodes.

The record of group ``g`` is under the key ``PREFIX/gm/g``; its revision is the key's *mod revision*. A write is one
transaction of etcd: if the key still has the revision that was read, put or delete it, otherwise return the present
record.

A request that was not answered may take effect later, when it has already been tried again. This does no harm:

* while the record exists, the late write and the next one expect the same revision, so one of them fails;
* after the late write, the next transaction finds its change already made (``transactions``);
* ``Create`` expects no record. If one was made and deleted meanwhile, a late ``Create`` begins the group again, with
  a member that may have ended; a later newcomer finds that out, as after any end.

A record that cannot be read was written by somebody else, or by another version. It is logged with its key, and
answered as ``Unavailable``: members keep their view until the record is repaired or deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.core.log.loggers import logger
from leveret.etcd.errors import ClusterError
from leveret.gm.records.codec import RecordError, pack, unpack
from leveret.gm.records.group import GmError, Group
from leveret.gm.records.store import Conflict, Stored, Then, Unavailable

if TYPE_CHECKING:
    from leveret.etcd.key_values import KeyValues, Row, Swap

log = logger(__name__)

PREFIX: Final = "/leveret"
NAME_BYTES_MAX: Final = 2 * 1024
NOTHING: Final = Stored(None, 0)


def keys(prefix: str) -> str:
    """Return what the keys of all records begin with; the group's name follows.

    Raises:
        GmError: the prefix is not usable.
    """
    if not prefix.startswith("/") or prefix.endswith("/") or len(prefix.encode()) > NAME_BYTES_MAX:
        raise GmError(
            f"prefix {prefix[:80]!r} of keys must begin with / and not end with it, and have at most {NAME_BYTES_MAX} bytes"
        )
    return f"{prefix}/gm/"


class EtcdGroupStore:
    """A ``GroupStore`` in etcd.

    Args:
        rows: etcd, asked without waiting: ``Background(EtcdClient(settings))``.
        prefix: of all keys; the members of one group must have the same one.

    Raises:
        GmError: the prefix is not usable.
    """

    def __init__(self, rows: KeyValues, prefix: str = PREFIX) -> None:
        self._rows = rows
        self._keys = keys(prefix)
        self._logged: dict[str, int] = {}  # revision of a record that is of no use, by key

    def key(self, name: str) -> str:
        """Return the key of a group's record.

        Raises:
            GmError: the name is empty, too long, or has characters that UTF-8 has not.
        """
        try:
            size = len(name.encode())
        except UnicodeEncodeError as error:
            raise GmError(f"name of a group {name[:80]!r}: {error}") from error
        if not 0 < size <= NAME_BYTES_MAX:
            raise GmError(f"name of a group has {size} bytes, must have 1 to {NAME_BYTES_MAX}")
        return self._keys + name

    def read(self, name: str, then: Then) -> None:
        key = self.key(name)

        def answer(found: Row | ClusterError | None) -> None:
            if isinstance(found, ClusterError):
                then(Unavailable(str(found)))
            else:
                then(self._stored(key, found))

        self._rows.read(key, answer)

    def write(self, name: str, group: Group | None, revision: int, then: Then) -> None:
        key = self.key(name)

        def answer(swap: Swap | ClusterError) -> None:
            if isinstance(swap, ClusterError):
                then(Unavailable(str(swap)))
                return
            stored = self._stored(key, swap.row)
            if isinstance(stored, Stored) and not swap.is_done:
                then(Conflict(stored))
            else:
                then(stored)

        try:
            packed = None if group is None else pack(group)
        except RecordError as error:
            then(self._refused(key, revision, f"cannot be written: {error}"))
            return
        self._rows.swap(key, packed, revision, answer)

    def _stored(self, key: str, row: Row | None) -> Stored | Unavailable:
        """Return a record as it is in etcd."""
        if row is None:
            return NOTHING
        try:
            stored = Stored(unpack(row.value, row.revision), row.revision)
        except RecordError as error:
            return self._refused(key, row.revision, f"cannot be read: {error}")
        self._logged.pop(key, None)
        return stored

    def _refused(self, key: str, revision: int, why: str) -> Unavailable:
        """Log once per revision why a record is of no use, and return that as the answer."""
        if self._logged.get(key) != revision:
            self._logged[key] = revision
            log.error(
                "record of a group is of no use: key=%s revision=%d: it %s", key, revision, why
            )
        return Unavailable(f"the record {key} {why}")
