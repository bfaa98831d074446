"""All rows of the cluster in the memory of one node, as they were at one revision of etcd.

It is a function of the keys and values at that revision, whether it was loaded there or came there write by write: so
nodes that have applied the same revision have the same rows. Revisions only go up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from leveret.core.errors import StoreError
from leveret.etcd.key_values import Event
from leveret.etcd.key_values import Row as Stored
from leveret.metadata.etcd.codec import Entry, Keys
from leveret.metadata.tables import Row


class Changed(NamedTuple):
    """How the rows of a replica have changed.

    Attributes:
        revision: as of which they are now so.
        deletes: rows that were live, parents before their children.
        puts: rows that are new, or have other fields, parents before their children. A row that was deleted and made
            again is in both.
        is_own: this node has made the change, with one transaction.
    """

    revision: int
    deletes: list[Row]
    puts: list[Row]
    is_own: bool = False


class Replica:
    """The rows of one node.

    Args:
        keys: where they are.

    Attributes:
        applied: the revision.
        entries: the rows by key, live or not.
        live: the live ones.
        dead: keys of the others, which are garbage.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.applied = 0
        self.entries: dict[str, Entry] = {}
        self.live: dict[str, Entry] = {}
        self.dead: dict[str, None] = {}
        self._children: dict[str, set[str]] = {}
        self._decoded: dict[str, Entry] = {}

    def decode(self, rows: Iterable[Stored]) -> None:
        """Decode rows ahead of ``load``, but for unchanged and damaged rows."""
        for each in rows:
            if self._keys.is_row(each.key) and self.revision(each.key) != each.revision:
                with suppress(StoreError):  # ``load`` raises it
                    self._decoded[each.key] = self._keys.entry(each)

    def load(self, rows: Iterable[Stored], revision: int) -> Changed:
        """Replace all rows by those at a revision; only rows written since are decoded.

        Raises:
            StoreError: a row is damaged, or the revision is lower than the one that was applied. Nothing is changed.
        """
        if revision < self.applied:
            raise StoreError(
                f"etcd has revision {revision}, this node has seen {self.applied}: it was restored from a backup, "
                "or is another etcd; restart all nodes"
            )
        left, touched = dict.fromkeys(self.entries), dict[str, Entry | None]()
        for each in rows:
            if not self._keys.is_row(each.key):
                continue
            left.pop(each.key, None)
            if self.revision(each.key) != each.revision:
                entry = self._decoded.get(each.key)
                if entry is None or entry.revision != each.revision:
                    entry = self._keys.entry(each)
                touched[each.key] = entry
        self._decoded = {}
        return self._change(touched | left, revision)

    def apply(self, events: Sequence[Event], revision: int) -> Changed:
        """Apply the writes of one revision; a revision that was applied before changes nothing.

        Raises:
            StoreError: a row is damaged. Nothing is changed.
        """
        if revision <= self.applied:
            return Changed(self.applied, [], [])
        found: dict[str, Entry | None] = {}
        for each in events:
            if not self._keys.is_row(each.key):
                continue
            if each.value is not None:
                stored = Stored(each.key, each.value, each.revision, each.lease)
                found[each.key] = self._keys.entry(stored)
            elif each.key in self.entries:
                found[each.key] = None
        return self._change(found, revision)

    def revision(self, key: str) -> int:
        """Return the revision of the last write to a row's key; 0: there is no such key."""
        entry = self.entries.get(key)
        return 0 if entry is None else entry.revision

    def hanging_on(self, key: str) -> list[Entry]:
        """Return the live rows that hang on the row of a key."""
        found = (self.live.get(child) for child in self._children.get(key, ()))
        return [entry for entry in found if entry is not None]

    def _change(self, found: dict[str, Entry | None], revision: int) -> Changed:
        self.applied = revision
        for key, entry in found.items():
            self._forget(key)
            if entry is not None:
                self._enter(key, entry)
        changed = Changed(revision, [], [])
        rank = self._keys.rank
        open_ = [(rank(key), key) for key in found]
        heapify(open_)
        while open_:  # in the order of the tables: parents first
            _, key = heappop(open_)
            was, now = self.live.get(key), self._living(key)
            if was is now:
                continue
            self._set(key, was, now, changed)
            if was is None or now is None or was.incarnation != now.incarnation:
                for child in self._children.get(key, ()):
                    if child not in found:  # else it is looked at anyway
                        heappush(open_, (rank(child), child))
        return changed

    def _forget(self, key: str) -> None:
        entry = self.entries.pop(key, None)
        self.dead.pop(key, None)
        for parent in (
            dict(entry.parents) if entry is not None else ()
        ):  # once, of an exchange bound to itself
            children = self._children[parent]
            children.discard(key)
            if not children:
                del self._children[parent]

    def _enter(self, key: str, entry: Entry) -> None:
        self.entries[key] = entry
        self.dead[key] = None
        for parent, _ in entry.parents:
            self._children.setdefault(parent, set()).add(key)

    def _living(self, key: str) -> Entry | None:
        """Return the row of a key, if it is live; its parents have been looked at."""
        entry = self.entries.get(key)
        if entry is None:
            return None
        for parent, incarnation in entry.parents:
            found = self.live.get(parent)
            if found is None or found.incarnation != incarnation:
                return None
        return entry

    def _set(self, key: str, was: Entry | None, now: Entry | None, changed: Changed) -> None:
        if now is not None:
            self.live[key] = now
            self.dead.pop(key, None)
            if was is not None and was.incarnation != now.incarnation:
                changed.deletes.append(was.row)
            changed.puts.append(now.row)
            return
        assert was is not None
        del self.live[key]
        if key in self.entries:
            self.dead[key] = None
        changed.deletes.append(was.row)
