"""From rows to writes of keys: incarnations, parents, leases, and large writes in parts."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from leveret.core.errors import StoreError
from leveret.etcd.key_values import Delete, Put
from leveret.metadata.etcd.codec import PARENTS, Entry, Keys, packed_entry
from leveret.metadata.etcd.writes import WRITES_MAX, Change, OnMade, Write, Writes, in_parts
from leveret.metadata.interface import ConflictError
from leveret.metadata.tables import BindingRow, ExchangeRow, QueueRow, Row

_INCARNATION_BITS: Final = 63


class RowWrites:
    """Makes writes of rows.

    Args:
        keys: of the rows.
        writes: where they go.
        random: for incarnations.
    """

    def __init__(self, keys: Keys, writes: Writes, random: Random) -> None:
        self._keys = keys
        self._writes = writes
        self._random = random

    def add(
        self,
        puts: Sequence[Row],
        deletes: Sequence[Row],
        lease: int,
        now_s: float,
        then: OnMade,
        after: Write | None = None,
    ) -> Write:
        """Put and delete rows; return the last of the writes for it.

        More than ``WRITES_MAX`` keys, or more bytes than one transaction has, are made in parts, parents before their
        children; the first part that fails ends the write. Of so many deletions, rows that hang on other deleted rows
        are left to the garbage collector.

        Args:
            puts: rows to write.
            deletes: rows to delete before; rows that hang on a row that is put again end. Missing rows are ignored, and
                so is the row of a queue that was replaced by another declaration.
            lease: of this node.
            now_s: the time.
            then: gets None and the revision when all parts are applied here, or the first error.
            after: a write without which these are not made.

        Raises:
            ConflictError: a row's parent is missing.
            StoreError: a row is too large, or has a value that cannot be stored. Nothing is written.
        """
        putting = {self._keys.row(row): row for row in sorted(puts, key=_table)}
        deleting = {self._keys.row(row): row for row in deletes}
        changes = self._deletes({k: row for k, row in deleting.items() if k not in putting})
        changes += self._puts(putting, deleting, lease)
        parts = in_parts(changes, _written) or [[]]
        return self._add_parts(parts, now_s, then, after)

    def _deletes(self, rows: dict[str, Row]) -> list[Change]:
        """Return deletions of existing rows, and of rows whose deletion is pending: they share its outcome."""
        found = {
            key: entry
            for key, row in rows.items()
            if (entry := self._writes.entry(key)) is None or not _is_another(row, entry.row)
            if entry is not None or self._writes.is_busy(key)
        }
        if len(found) > WRITES_MAX:
            found = {
                key: entry
                for key, entry in found.items()
                if entry is None or not any(parent in found for parent, _ in entry.parents)
            }
        return [Change(Delete(key)) for key in found]

    def _puts(self, rows: dict[str, Row], deleting: dict[str, Row], lease: int) -> list[Change]:
        made: dict[str, Entry] = {}
        changes = []
        for key, row in rows.items():
            entry = self._writes.entry(key)
            if entry is not None and (key in deleting or _is_another(row, entry.row)):
                entry = None  # its bindings end with it, and a queue has its own lease
            incarnation = self._incarnation(row, entry)
            parents, binding_lease = [], 0
            for parent in self._keys.parents(row):
                found = made.get(parent)
                if found is None and (parent in rows or parent not in deleting):
                    found = self._writes.entry(parent)
                if found is None:
                    name = parent.removeprefix(self._keys.rows)
                    raise ConflictError(f"{name} is not there, and {key} hangs on it; look again")
                parents.append((parent, found.incarnation))
                if isinstance(row, BindingRow) and isinstance(found.row, QueueRow):
                    binding_lease = found.lease
            own_lease = 0
            if entry is not None:
                own_lease = entry.lease
            elif isinstance(row, QueueRow) and not row.durable:
                own_lease = lease
            elif isinstance(row, BindingRow) and row.kind == "queue":
                own_lease = binding_lease
            made[key] = Entry(row, incarnation, tuple(parents), 0, own_lease)
            value = packed_entry(row, incarnation, made[key].parents)
            changes.append(Change(Put(key, value, own_lease), made[key]))
        return changes

    def _incarnation(self, row: Row, entry: Entry | None) -> int:
        if not isinstance(row, PARENTS):
            return 0
        return (
            entry.incarnation if entry is not None else self._random.getrandbits(_INCARNATION_BITS)
        )

    def _add_parts(
        self, parts: list[list[Change]], now_s: float, then: OnMade, after: Write | None
    ) -> Write:
        left, is_over = len(parts), False

        def made(error: StoreError | None, revision: int) -> None:
            nonlocal left, is_over
            left -= 1
            if not is_over and (error is not None or not left):
                is_over = True
                then(error, revision)

        for part in parts:
            after = Write(part, now_s, made, after)
            self._writes.add(after)
        assert after is not None
        return after


def _is_another(row: Row, stored: Row) -> bool:
    """Return whether two rows of one key are different queues or exchanges.

    Queues are of two nodes, or have two numbers; a row without node (outside of clusters, or of whatever queue has the
    name) or number is that of any. The fields of an exchange never change.
    """
    if isinstance(row, ExchangeRow):
        return row.to_fields() != stored.to_fields()
    if not isinstance(row, QueueRow) or not isinstance(stored, QueueRow):
        return False
    ours, theirs = (row.node, row.queue_no), (stored.node, stored.queue_no)
    return any(one and other and one != other for one, other in zip(ours, theirs, strict=True))


def _written(change: Change) -> Put | Delete:
    return change.write


def _table(row: Row) -> int:
    return row.TABLE
