"""What keeps the records of groups: a compare-and-swap on the record's revision, with answers that come later.

The operations are etcd's: a read gives a value and the revision of its last write; a write succeeds only if the
record still has the revision that it was read with (0: there is none). Revisions are numbers of the whole store, so
they increase also for a record that was deleted and made again. Reads are linearizable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from leveret.gm.records.group import Group


class Stored(NamedTuple):
    """A record as it is in the store.

    Attributes:
        group: the record, its epoch filled in; None: there is none.
        revision: of its last write; 0 if there is none.
    """

    group: Group | None
    revision: int


class Conflict(NamedTuple):
    """A write found another revision and has changed nothing; ``stored`` is the present record."""

    stored: Stored


class Unavailable(NamedTuple):
    """The store has not answered. Whether a write has taken effect is not known."""

    reason: str


Then: TypeAlias = Callable[[Stored | Conflict | Unavailable], None]


class GroupStore(Protocol):
    """Keeps groups' records by name. It calls ``then`` exactly once, at once or later, on the event loop's thread."""

    def read(self, name: str, then: Then) -> None:
        """Answer ``Stored`` or ``Unavailable``."""

    def write(self, name: str, group: Group | None, revision: int, then: Then) -> None:
        """Store ``group``, or delete the record if it is None, if the record's revision is ``revision``.

        A group with ``NEW_EPOCH`` is read with the revision of this write as its epoch. The answer is the record
        as it was stored, a ``Conflict``, or ``Unavailable``.
        """
