"""An offline store with the names that its files do not have: for what is said about it to people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class StoreAt:
    """A store that no process has open.

    Attributes:
        vhost: the vhost's name; None if the store has no vhost, or the name is not known.
        names: of its queues, by number; a priority queue has several numbers.
        is_snapshot: it is a part of a snapshot, and never changed.
        is_clean: whether its broker had not crashed; None: its files tell whether the broker was stopped in order.
    """

    path: Path
    vhost: str | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    is_snapshot: bool = False
    is_clean: bool | None = None

    @property
    def row(self) -> dict[str, Any]:
        """What each report about a store begins with."""
        return {"path": str(self.path), "vhost": self.vhost}

    def queue(self, queue_no: int) -> str:
        """Return the name of a queue, its number if it has none."""
        return self.names.get(queue_no, f"number {queue_no}")


def queue_text(queue_no: int, name: str | None) -> str:
    """Return a queue's name, or its number."""
    return f"queue {name!r}" if name is not None else f"queue number {queue_no}"
